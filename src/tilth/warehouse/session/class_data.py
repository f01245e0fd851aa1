"""Class-data archive: Spark's classes as the JVM keeps them in memory, so that it maps them instead of loading them.

Covers: which archive fits a start, the options for using and for making one, making it in the background. Does not
cover: what the making process runs (class_data_maker.py).
Always holds: an archive is used by a start with the same Java, the same jars and the same options only; one that does
not fit costs nothing but the time that it would have saved. Nobody but the user of the node can have written it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil

from tilth.base.full import free_bytes
from tilth.base.logs import Log
from tilth.warehouse.session.java import Java, find_java
from tilth.warehouse.settings import WarehouseSettings

#: Delay after a node's start before it makes an archive: what it was started for comes first.
MAKE_AFTER_SECONDS = 120.0
#: Making one lasts half a minute, and ten times that on a crowded machine.
_MAKE_SECONDS_MAX = 900
#: Minimum free memory: the JVM that makes an archive uses half of it.
_FREE_MEMORY_MIN = 2 << 30
#: An archive needs a fifth of it, and the disk may be that of the catalog.
_FREE_DISK_MIN = 1 << 30
#: Heap size from which on pointers are long, and so are those in an archive.
_LONG_POINTERS_BYTES = 31 << 30
_SUFFIX = ".jsa"
#: The value of `warehouse.class-data` that means none.
OFF = "off"
#: The system's lowest priority.
NICE_MAX = 19
_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}

_log = Log("warehouse")


class ClassData:
    """The part of a start of Spark that concerns class data. Of itself: there is none, each start loads all classes."""

    #: Maximum time for the JVM to end.
    end_seconds = 10.0

    def options(self, java: Java, spark_home: Path) -> tuple[str, ...]:
        """Return options of the JVM."""
        return ()

    def started(self, java: Java, spark_home: Path) -> None:
        """Note that Spark runs."""

    def stop(self) -> None:
        """Note that Spark is about to end."""


class MadeClassData(ClassData):
    """The start of the process that makes an archive: its JVM writes it when it ends."""

    end_seconds = 300.0

    def __init__(self, path: Path) -> None:
        self._path = path

    def options(self, java: Java, spark_home: Path) -> tuple[str, ...]:
        return (f"-XX:ArchiveClassesAtExit={self._path}",)


class UsedClassData(ClassData):
    """Starts that use the archive of a folder, and make one where none fits."""

    def __init__(self, folder: Path, settings: WarehouseSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._maker: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def options(self, java: Java, spark_home: Path) -> tuple[str, ...]:
        path = self.path(java, spark_home)
        if not _is_own(path) or _is_two_paths(path):
            return ()
        # Without its logs: an archive that does not fit is one that is not used.
        return (f"-XX:SharedArchiveFile={path}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")

    def started(self, java: Java, spark_home: Path) -> None:
        """Make an archive later where none fits."""
        path = self.path(java, spark_home)
        with self._lock:
            if self._is_over or self._timer is not None or path.exists() or _is_two_paths(path):
                return
            self._timer = threading.Timer(MAKE_AFTER_SECONDS, self.make, (path,), {"nice": NICE_MAX})
            self._timer.daemon = True
            self._timer.name = "tilth-class-data"
            self._timer.start()

    def make(self, path: Path, *, nice: int) -> bool:
        """Make the archive in a process of its own and wait for it; False: there is none, and the reason is logged."""
        try:
            return self._make(path, nice)
        except OSError as error:
            _log.warning("class_data_not_made", reason=error)
            return False

    def _make(self, path: Path, nice: int) -> bool:
        for folder in (self._folder, self._folder / "log"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        free_memory, free_disk = psutil.virtual_memory().available, free_bytes(str(self._folder))
        if free_memory < _FREE_MEMORY_MIN or free_disk < _FREE_DISK_MIN:
            _log.info("class_data_not_made", reason="there is little room", memory=free_memory, disk=free_disk)
            return False
        order = msgspec.msgpack.encode((replace(self._settings, nice=nice), str(path)))
        with self._lock:
            if self._is_over:
                return False
            with (self._folder / "log" / "maker.out").open("wb") as log:
                command = [sys.executable, "-m", "tilth.warehouse.session.class_data_maker"]
                self._maker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        maker = self._maker
        assert maker.stdin is not None
        with suppress(BrokenPipeError):
            # Left open: when this process ends, so does the maker.
            maker.stdin.write(len(order).to_bytes(4, "big") + order)
            maker.stdin.flush()
        with suppress(subprocess.TimeoutExpired):
            maker.wait(_MAKE_SECONDS_MAX)
        self._end_maker()
        if maker.returncode != 0:
            if not self._is_over:
                _log.warning("class_data_not_made", exit_code=maker.returncode, log=self._folder / "log")
            return False
        _log.info("class_data_made", file=path, bytes=path.stat().st_size)
        return True

    def stop(self) -> None:
        with self._lock:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
        self._end_maker()

    def _end_maker(self) -> None:
        with self._lock:
            maker, self._maker = self._maker, None
        if maker is None:
            return
        if maker.poll() is None:
            for process in (*_children(maker.pid), maker):
                with suppress(psutil.Error, ProcessLookupError):
                    process.kill()
        maker.wait()
        assert maker.stdin is not None
        with suppress(BrokenPipeError):
            maker.stdin.close()

    def path(self, java: Java, spark_home: Path) -> Path:
        """Return where an archive for such starts is, or will be."""
        return self._folder / f"{archive_key(java, spark_home, self._settings)}{_SUFFIX}"


def class_data(settings: WarehouseSettings, *, default: Path) -> ClassData:
    """Return the folder of the setting; `default`: the folder if it is empty."""
    if settings.class_data == OFF:
        return ClassData()
    return UsedClassData(Path(settings.class_data).absolute() if settings.class_data else default, settings)


def make_class_data(settings: WarehouseSettings) -> bool:
    """Make the archive in the setting's folder if none fits; False: there is none, and the reason is logged."""
    used = UsedClassData(Path(settings.class_data).absolute(), settings)
    path = used.path(find_java(settings.java_home, os.environ), spark_home())
    return path.exists() or used.make(path, nice=settings.nice)


def spark_home() -> Path:
    """Return the folder of Spark, which comes with PySpark."""
    import pyspark

    return Path(pyspark.__file__).parent


def archive_key(java: Java, spark_home: Path, settings: WarehouseSettings) -> str:
    """Return a name that changes with all that an archive depends on: Java, the jars, options that users give."""
    jars = sorted(
        (jar.name, found.st_size, found.st_mtime_ns)
        for jar in (spark_home / "jars").iterdir()
        for found in (jar.stat(),)
    )
    given = sorted((name, value) for name, value in settings.spark_conf if name.startswith("spark.driver.extra"))
    facts = (java.home, java.release, str(spark_home), jars, given, _heap_bytes(settings) >= _LONG_POINTERS_BYTES)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def replace_archive(made: Path, path: Path) -> None:
    """Give a finished archive its name, and remove those that fit other starts."""
    made.rename(path)
    for other in path.parent.glob(f"*{_SUFFIX}"):
        if other != path:
            other.unlink(missing_ok=True)


def _is_own(path: Path) -> bool:
    """Whoever can write the archive can run code as this user."""
    try:
        found, folder = path.stat(), path.parent.stat()
    except OSError:
        return False
    return all(each.st_uid == os.getuid() and not each.st_mode & 0o022 for each in (found, folder))


def _is_two_paths(path: Path) -> bool:
    """Java reads what follows a colon as another archive."""
    return os.pathsep in str(path)


def _heap_bytes(settings: WarehouseSettings) -> int:
    text = settings.driver_memory.lower()
    return int(text[:-1]) << _UNITS[text[-1]]


def _children(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return [*psutil.Process(pid).children(recursive=True)]
    return []
