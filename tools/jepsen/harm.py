"""Ways to hurt processes, links, clocks and disks: the kinds of blows.

Covers: signals to a process and its children, links, hosts that are cut off, a clock set wrong, folders that vanish,
disks that are full, read-only or hang, bytes that change. Does not cover: the blows that a subject offers (servers.py,
single.py).
Always holds: each blow has a mending that undoes it, and that may be called twice.
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

from tools.hosts import Hosts
from tools.tcp_link import TcpLink, Way

CLOCK_VARIABLE = "TILTH_TEST_CLOCK"
SITE = Path(__file__).parent / "site"
#: Least and most seconds of a blow, of which each draws its own time.
SHORT = (0.1, 3.0)
#: Least and most seconds around the three after which a silent server is ended.
MIDDLE = (0.5, 7.0)
DELAY_SECONDS = (0.05, 0.6)
#: Sizes of wrong clocks, from less than `server.clock-bound` to days.
CLOCK_SECONDS = (0.3, 2.0, 60.0, 3600.0, 3 * 86400.0)
DISK_MIB = 96
FLIPPED_FILES_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """One way to hurt the system under test, and to mend it."""

    name: str
    #: Name of the component that is hurt; two blows on the same one are not struck together.
    target: str
    strike: Callable[[], object]
    mend: Callable[[], object]
    #: Least and most seconds from strike to mending.
    seconds: tuple[float, float] = MIDDLE
    weight: float = 1.0
    #: `True` where the blow may last much longer than `seconds` now and then.
    may_last: bool = False


class HasPid(Protocol):
    """A process that has a new id after each start."""

    @property
    def pid(self) -> int | None: ...


def load_factor() -> float:
    """Return the factor, 1 or more, by which time limits grow on a busy machine."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) / 4)


# --- processes -------------------------------------------------------------------------------------------------------


def send(number: signal.Signals, process: HasPid, *, alone: bool = False) -> None:
    """Send a signal to a process and all its children, or to it alone; none to a process that has ended."""
    pid = process.pid
    if pid is None:
        return
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(pid)
        for each in [found, *([] if alone else found.children(recursive=True))]:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)


def pauses(name: str, process: HasPid) -> list[Blow]:
    """Return the pause of a process with all its children, and of the process alone."""
    return [
        _pause(name, [process]),
        Blow(
            name=f"{name} paused but for its JVM",
            target=name,
            strike=partial(send, signal.SIGSTOP, process, alone=True),
            mend=partial(send, signal.SIGCONT, process),
            may_last=True,
        ),
    ]


def pause_of_several(name: str, processes: Sequence[HasPid], target: str) -> Blow:
    return _pause(name, processes, target=target)


def _pause(name: str, processes: Sequence[HasPid], *, target: str = "") -> Blow:
    def signal_all(number: signal.Signals) -> None:
        for process in processes:
            send(number, process)

    return Blow(
        name=f"{name} paused",
        target=target or name,
        strike=partial(signal_all, signal.SIGSTOP),
        mend=partial(signal_all, signal.SIGCONT),
        may_last=True,
    )


def jvm_killed(name: str, process: HasPid, rng: random.Random) -> Blow:
    """Return the end of the JVM of a process, which starts another one."""

    def strike() -> None:
        pid = process.pid
        if pid is None:
            return
        with suppress(psutil.NoSuchProcess):
            java = [each for each in psutil.Process(pid).children(recursive=True) if "java" in each.name()]
            if java:
                rng.choice(java).kill()

    return Blow(name=f"JVM of {name} killed", target=name, strike=strike, mend=lambda: None, seconds=SHORT, weight=0.5)


# --- links -----------------------------------------------------------------------------------------------------------


def link_blows(name: str, link: TcpLink, rng: random.Random) -> list[Blow]:
    """Return the blows on a link: cut, dead in both directions or in one, slow."""

    def delay() -> None:
        link.delay(rng.uniform(*DELAY_SECONDS))

    target = f"link {name}"
    return [
        Blow(name=f"{target} cut", target=target, strike=link.cut, mend=link.mend),
        Blow(name=f"{target} swallows", target=target, strike=link.swallow, mend=link.mend, may_last=True),
        Blow(name=f"{target} loses answers", target=target, strike=partial(link.swallow, Way.BACK), mend=link.mend),
        Blow(name=f"{target} loses calls", target=target, strike=partial(link.swallow, Way.THERE), mend=link.mend),
        Blow(name=f"{target} delivers late", target=target, strike=delay, mend=link.mend, weight=0.7),
    ]


# --- hosts -----------------------------------------------------------------------------------------------------------


def host_blows(hosts: Hosts, host: int, name: str) -> list[Blow]:
    """Return the blows on the network of a host: no packets in both directions or in one."""
    target, heal = f"host of {name}", partial(hosts.heal, host)
    return [
        Blow(name=f"{target} cut off", target=target, strike=partial(hosts.cut, host), mend=heal, may_last=True),
        Blow(name=f"{target} cannot send", target=target, strike=partial(hosts.lose_sent, host), mend=heal),
        Blow(name=f"{target} cannot receive", target=target, strike=partial(hosts.lose_received, host), mend=heal),
    ]


# --- clocks ----------------------------------------------------------------------------------------------------------


class Clock:
    """The wall clock of another process, which can be set wrong (site/sitecustomize.py)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.set(0.0)

    @property
    def environment(self) -> dict[str, str]:
        return {CLOCK_VARIABLE: str(self._path)}

    def set(self, seconds: float) -> None:
        """Set it to this many seconds ahead of the machine's clock."""
        data = struct.pack("<q", round(seconds * 1e9))
        if not self._path.exists():
            self._path.write_bytes(data)
        # The process has the file mapped, so the bytes change in it.
        with self._path.open("r+b") as file:
            file.write(data)


def clock_blows(name: str, clock: Clock, rng: random.Random, *, sizes: Sequence[float] = CLOCK_SECONDS) -> list[Blow]:
    """Return the blows on a clock: wrong by about one of the sizes, ahead or behind, and jumping."""

    def bump() -> None:
        clock.set(rng.choice((-1, 1)) * rng.choice(sizes) * rng.uniform(0.5, 1.5))

    strobe = _Strobe(clock, rng, sizes)
    target = f"clock of {name}"
    return [
        Blow(name=f"{target} wrong", target=target, strike=bump, mend=partial(clock.set, 0.0)),
        Blow(name=f"{target} strobes", target=target, strike=strobe.start, mend=strobe.stop, weight=0.5),
    ]


class _Strobe:
    """Jumps of a clock between the right time and a wrong one, several times a second."""

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
    """A folder on a small file system of its own in a file; a plain folder where this process may not mount one."""

    def __init__(self, folder: Path, *, mib: int = DISK_MIB, content: Path | None = None) -> None:
        """`content`: folder whose files are moved to the disk."""
        self.folder = folder
        self._image = folder.with_name(folder.name + ".img")
        folder.mkdir(parents=True, exist_ok=True)
        self.is_mounted = _can_mount() and self._mount(mib)
        if content is not None:
            for each in content.iterdir():
                # Unlike Python's own means, `mv` keeps owners and rights on another file system.
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
        """Fill the disk."""
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
        """Make writes hang."""
        _run_quietly("fsfreeze", "-f", str(self.folder))

    def thaw(self) -> None:
        _run_quietly("fsfreeze", "-u", str(self.folder))

    def make_read_only(self) -> None:
        _run_quietly("mount", "-o", "remount,ro", str(self.folder))

    def make_writable(self) -> None:
        _run_quietly("mount", "-o", "remount,rw", str(self.folder))

    def close(self) -> None:
        """Unmount the disk, also with open files."""
        if self.is_mounted:
            self.thaw()
            _run_quietly("umount", "-l", str(self.folder))

    def blows(self, name: str, target: str) -> list[Blow]:
        """Return the blows on the disk; none where it is a plain folder."""
        if not self.is_mounted:
            return []
        return [
            Blow(name=f"{name} full", target=target, strike=self.fill, mend=self.free),
            Blow(name=f"{name} hangs", target=target, strike=self.freeze, mend=self.thaw),
            Blow(name=f"{name} read-only", target=target, strike=self.make_read_only, mend=self.make_writable),
        ]


def moved_to_disk(folder: Path, *, mib: int) -> Disk | None:
    """Move the content of the folder to a small disk mounted there; None: this process may not mount one."""
    state = folder.stat()
    disk = Disk(folder, mib=mib, content=folder.rename(folder.with_name(folder.name + ".moving")))
    os.chown(folder, state.st_uid, state.st_gid)
    folder.chmod(state.st_mode & 0o777)
    return disk if disk.is_mounted else None


def vanishing(name: str, folder: Path, target: str) -> Blow:
    """Return the loss of a folder, which comes back as it was."""
    hidden = folder.with_name(folder.name + ".away")

    def strike() -> None:
        if folder.exists() and not hidden.exists():
            folder.rename(hidden)

    def mend() -> None:
        if not hidden.exists():
            return
        if folder.exists():
            # Somebody has made the folder anew, which is a defect: its content is kept to find the cause.
            folder.rename(folder.with_name(folder.name + ".meanwhile"))
        hidden.rename(folder)

    return Blow(name=f"{name} gone", target=target, strike=strike, mend=mend)


def flipping(name: str, folder: Path, target: str, rng: random.Random) -> Blow:
    """Return the change of single bytes in some files of one replica."""

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

    return Blow(name=f"{name} has wrong bytes", target=target, strike=strike, mend=lambda: None, seconds=SHORT)


def _can_mount() -> bool:
    return os.geteuid() == 0 and Path("/dev/loop-control").exists()


def _run_quietly(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
