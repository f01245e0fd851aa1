"""Ways to hurt processes, links, clocks and disks: what blows are made of.

Covers: signals to a process and those below it, links, a clock set wrong, folders that vanish, disks that are full,
read-only or hang, bytes that change. Does not cover: which of them a subject offers (servers.py, single.py).
Always holds: each has an end that undoes it, which may be called twice.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import psutil

from tools.tcp_link import TcpLink, Way

CLOCK_VARIABLE = "TILTH_TEST_CLOCK"
SITE = Path(__file__).parent / "site"
#: Blows last so long; each draws its own time.
SHORT = (0.1, 3.0)
#: A server may be silent for three seconds: some blows end before, some behind that.
MIDDLE = (0.5, 7.0)
DELAY_SECONDS = (0.05, 0.6)
#: From less than servers bear of one another to days.
CLOCK_SECONDS = (0.3, 2.0, 60.0, 3600.0, 3 * 86400.0)
DISK_MIB = 96
FLIPPED_FILES_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """One way to hurt the whole, and to mend it."""

    name: str
    #: What is hurt; two blows on one thing are not struck together.
    place: str
    strike: Callable[[], object]
    mend: Callable[[], object]
    #: Least and most seconds between the two.
    seconds: tuple[float, float] = MIDDLE
    weight: float = 1.0
    #: Whether it may last for longer now and then.
    may_last: bool = False


class HasPid(Protocol):
    """A process, which has a new id after each start."""

    @property
    def pid(self) -> int | None: ...


def crowd() -> float:
    """Return how many times slower a machine is on which so many others work."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) / 4)


# --- processes -------------------------------------------------------------------------------------------------------


def send(number: signal.Signals, process: HasPid, *, alone: bool = False) -> None:
    """Signal a process with all that it has started, or alone. A process that has ended is left."""
    pid = process.pid
    if pid is None:
        return
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(pid)
        for each in [found, *([] if alone else found.children(recursive=True))]:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)


def pauses(name: str, process: HasPid) -> list[Blow]:
    """Return the pause of a process with all that it has started, of it alone, and of its children alone."""
    return [
        _pause(name, [process]),
        Blow(
            name=f"{name} paused but for its JVM",
            place=name,
            strike=partial(send, signal.SIGSTOP, process, alone=True),
            mend=partial(send, signal.SIGCONT, process),
            may_last=True,
        ),
    ]


def pause_of_group(name: str, processes: Sequence[HasPid], place: str) -> Blow:
    return _pause(name, processes, place=place)


def _pause(name: str, processes: Sequence[HasPid], *, place: str = "") -> Blow:
    def signal_all(number: signal.Signals) -> None:
        for process in processes:
            send(number, process)

    return Blow(
        name=f"{name} paused",
        place=place or name,
        strike=partial(signal_all, signal.SIGSTOP),
        mend=partial(signal_all, signal.SIGCONT),
        may_last=True,
    )


def jvm_killed(name: str, process: HasPid, rng: random.Random) -> Blow:
    """Return the end of the Java below a process, which starts another."""

    def strike() -> None:
        pid = process.pid
        if pid is None:
            return
        with suppress(psutil.NoSuchProcess):
            java = [each for each in psutil.Process(pid).children(recursive=True) if "java" in each.name()]
            if java:
                rng.choice(java).kill()

    return Blow(name=f"JVM of {name} killed", place=name, strike=strike, mend=lambda: None, seconds=SHORT, weight=0.5)


# --- links -----------------------------------------------------------------------------------------------------------


def link_blows(name: str, link: TcpLink, rng: random.Random) -> list[Blow]:
    """Return what may happen to a link: cut, dead in both directions or in one, slow."""

    def delay() -> None:
        link.delay(rng.uniform(*DELAY_SECONDS))

    place = f"link {name}"
    return [
        Blow(name=f"{place} cut", place=place, strike=link.cut, mend=link.mend),
        Blow(name=f"{place} swallows", place=place, strike=link.swallow, mend=link.mend, may_last=True),
        Blow(name=f"{place} loses answers", place=place, strike=partial(link.swallow, Way.BACK), mend=link.mend),
        Blow(name=f"{place} loses calls", place=place, strike=partial(link.swallow, Way.THERE), mend=link.mend),
        Blow(name=f"{place} delivers late", place=place, strike=delay, mend=link.mend, weight=0.7),
    ]


# --- clocks ----------------------------------------------------------------------------------------------------------


class Clock:
    """The wall clock of a process, which this one sets wrong (site/sitecustomize.py)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.set(0.0)

    @property
    def environment(self) -> dict[str, str]:
        return {CLOCK_VARIABLE: str(self._path)}

    def set(self, seconds: float) -> None:
        """Let it be so far ahead of the truth."""
        data = struct.pack("<q", round(seconds * 1e9))
        if not self._path.exists():
            self._path.write_bytes(data)
        # In place: the process has the file mapped.
        with self._path.open("r+b") as file:
            file.write(data)


def clock_blows(name: str, clock: Clock, rng: random.Random, *, sizes: Sequence[float] = CLOCK_SECONDS) -> list[Blow]:
    """Return a clock that is wrong by about one of the sizes, ahead or behind, and one that jumps."""

    def bump() -> None:
        clock.set(rng.choice((-1, 1)) * rng.choice(sizes) * rng.uniform(0.5, 1.5))

    strobe = _Strobe(clock, rng, sizes)
    place = f"clock of {name}"
    return [
        Blow(name=f"{place} wrong", place=place, strike=bump, mend=partial(clock.set, 0.0)),
        Blow(name=f"{place} strobes", place=place, strike=strobe.start, mend=strobe.stop, weight=0.5),
    ]


class _Strobe:
    """A clock that jumps between the truth and another time several times a second."""

    def __init__(self, clock: Clock, rng: random.Random, sizes: Sequence[float]) -> None:
        self._clock = clock
        self._rng = rng
        self._sizes = sizes
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        size = self._rng.choice(self._sizes)
        self._over.clear()
        self._thread = threading.Thread(target=self._run, args=(size,), name="strobe", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._clock.set(0.0)

    def _run(self, size: float) -> None:
        is_wrong = False
        while not self._over.wait(0.07):
            is_wrong = not is_wrong
            self._clock.set(size if is_wrong else 0.0)


# --- disks -----------------------------------------------------------------------------------------------------------


class Disk:
    """A small file system of its own in a file, where this machine allows it; else a plain folder."""

    def __init__(self, folder: Path, *, mib: int = DISK_MIB, content: Path | None = None) -> None:
        """`content`: a folder whose files are moved there."""
        self.folder = folder
        self._image = folder.with_name(folder.name + ".img")
        folder.mkdir(parents=True, exist_ok=True)
        self.is_mounted = _can_mount() and self._mount(mib)
        if content is not None:
            for each in content.iterdir():
                # With owners and rights.
                subprocess.run(["mv", str(each), str(folder)], check=True)
            content.rmdir()

    def _mount(self, mib: int) -> bool:
        with self._image.open("wb") as file:
            file.truncate(mib << 20)
        made = _run_quietly("mkfs.ext4", "-q", "-m", "0", str(self._image))
        if not made or not _run_quietly("mount", "-o", "loop", str(self._image), str(self.folder)):
            return False
        (self.folder / "lost+found").rmdir()
        return True

    def fill(self) -> None:
        """Leave no room."""
        with suppress(OSError), (self.folder / ".filler").open("wb") as file:
            while True:
                file.write(bytes(1 << 20))
                file.flush()
        with suppress(OSError), (self.folder / ".filler2").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))

    def free(self) -> None:
        for name in (".filler", ".filler2"):
            (self.folder / name).unlink(missing_ok=True)

    def freeze(self) -> None:
        """Let writes hang."""
        _run_quietly("fsfreeze", "-f", str(self.folder))

    def thaw(self) -> None:
        _run_quietly("fsfreeze", "-u", str(self.folder))

    def make_read_only(self) -> None:
        _run_quietly("mount", "-o", "remount,ro", str(self.folder))

    def make_writable(self) -> None:
        _run_quietly("mount", "-o", "remount,rw", str(self.folder))

    def close(self) -> None:
        """Unmount it, also with files open."""
        if self.is_mounted:
            self.thaw()
            _run_quietly("umount", "-l", str(self.folder))

    def blows(self, name: str, place: str) -> list[Blow]:
        """Return what may happen to it; nothing where it is a plain folder."""
        if not self.is_mounted:
            return []
        return [
            Blow(name=f"{name} full", place=place, strike=self.fill, mend=self.free),
            Blow(name=f"{name} hangs", place=place, strike=self.freeze, mend=self.thaw),
            Blow(name=f"{name} read-only", place=place, strike=self.make_read_only, mend=self.make_writable),
        ]


def moved_to_disk(folder: Path, *, mib: int) -> Disk | None:
    """Move what is in the folder to a small disk that is mounted there; None: this machine lets us make none."""
    state = folder.stat()
    disk = Disk(folder, mib=mib, content=folder.rename(folder.with_name(folder.name + ".moving")))
    os.chown(folder, state.st_uid, state.st_gid)
    folder.chmod(state.st_mode & 0o777)
    return disk if disk.is_mounted else None


def vanishing(name: str, folder: Path, place: str) -> Blow:
    """Return the loss of a folder, which comes back as it was."""
    hidden = folder.with_name(folder.name + ".away")

    def strike() -> None:
        if folder.exists() and not hidden.exists():
            folder.rename(hidden)

    def mend() -> None:
        if not hidden.exists():
            return
        if folder.exists():
            # Made anew meanwhile, which would be a fault of its own: what is in it stays to be seen.
            folder.rename(folder.with_name(folder.name + ".meanwhile"))
        hidden.rename(folder)

    return Blow(name=f"{name} gone", place=place, strike=strike, mend=mend)


def flipping(name: str, folder: Path, place: str, rng: random.Random) -> Blow:
    """Return bytes that change in some files of one replica."""

    def strike() -> None:
        files = [path for path in sorted(folder.glob("*/data/*")) if path.suffix in (".parquet", ".arrow", "")]
        for path in rng.sample(files, min(len(files), FLIPPED_FILES_MAX)):
            with suppress(OSError), path.open("r+b") as file:
                size = os.fstat(file.fileno()).st_size
                if size:
                    file.seek(rng.randrange(size))
                    byte = file.read(1)
                    file.seek(-1, os.SEEK_CUR)
                    file.write(bytes([byte[0] ^ 0x55]))

    return Blow(name=f"{name} has wrong bytes", place=place, strike=strike, mend=lambda: None, seconds=SHORT)


def _can_mount() -> bool:
    return os.geteuid() == 0 and Path("/dev/loop-control").exists()


def _run_quietly(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
