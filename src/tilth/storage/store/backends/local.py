"""Files on a local disk: written once under their final name, summed, on the disk before they count.

Covers: the store of a folder, waiting for the disk. Does not cover: what the bytes mean, what it means that a file is
missing or differs (files/files.py).
Always holds: an existing file is never written to again, but for what `put` wrote.

Tests: tests/integration/storage/test_store_behaviour.py.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence

import pyarrow as pa

from tilth.model.part import DataFile
from tilth.storage.store.protocol import FileSizeError, NewFile, OnlyCopy, Removal, StoredFile

_READ_BYTES = 1 << 20
#: Folders that a process remembers to have waited for.
SYNCED_MAX = 10_000
_synced: set[str] = set()


class LocalStore:
    """The files below a folder of the local disk."""

    names_per_removal = 1
    ending_max = 1

    def __init__(self, folder: str, *, is_mapped: bool = True) -> None:
        """`is_mapped`: files are mapped into memory; if `False`, their bytes are copied, and a read that hangs blocks
        its own thread alone.
        """
        self._folder = folder
        self._is_mapped = is_mapped

    @property
    def copies(self) -> tuple[OnlyCopy, ...]:
        return (OnlyCopy(self),)

    def prepare(self, folder: str, *, fsync: bool) -> None:
        make_local_folder(self._path(folder), fsync=fsync)

    def sync(self, folder: str) -> None:
        sync_local_folder(self._path(folder))

    def create(self, path: str) -> NewFile:
        return SummingFile(self._path(path))

    def stream(self, path: str) -> pa.NativeFile:
        full_path = self._path(path)
        os.close(os.open(full_path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        return pa.OSFile(full_path, "wb")

    def put(self, path: str, data: bytes) -> None:
        with open(self._path(path), "wb") as target:
            target.write(data)

    def read(self, path: str, *, size: int | None = None) -> pa.Buffer:
        """Return the bytes; they are not copied if files are mapped."""
        with self.open(path, size=size) as source:
            return source.read_buffer()

    def open(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        """Map the file: the kernel's cache is the buffer, nothing of a waiting file is kept in memory beside it."""
        full_path = self._path(path)
        if size is not None:
            found = os.path.getsize(full_path)
            if found != size:
                raise FileSizeError(found)
        return pa.memory_map(full_path, "r") if self._is_mapped else pa.OSFile(full_path, "rb")

    def size(self, path: str) -> int:
        return os.path.getsize(self._path(path))

    def checksum(self, path: str) -> tuple[int, int]:
        size = checksum = 0
        with open(self._path(path), "rb") as file:
            while data := file.read(_READ_BYTES):
                size += len(data)
                checksum = zlib.crc32(data, checksum)
        return size, checksum

    def stamp(self, path: str) -> tuple[int, ...]:
        try:
            status = os.stat(self._path(path))
        except OSError:
            return ()
        return status.st_size, status.st_ino, status.st_mtime_ns

    def exist(self, paths: Sequence[str]) -> list[bool]:
        return [os.path.exists(self._path(path)) for path in paths]

    def remove(self, paths: Sequence[str]) -> Removal:
        removal = Removal()
        for path in paths:
            try:
                os.unlink(self._path(path))
                removal.found.append(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                removal.fail([path], error)
                continue
            removal.gone.append(path)
        return removal

    def list_prefix(self, prefix: str) -> None:
        """Return None: a folder is read whole."""

    def has_folder(self, folder: str) -> bool:
        return os.path.isdir(self._path(folder))

    def files(self, folder: str) -> Iterator[StoredFile]:
        full_path = self._path(folder)
        for above, _, names in os.walk(full_path, onerror=_unless_missing):
            for name in names:
                whole = os.path.join(above, name)
                try:
                    # The size of a link itself: a store contains no links.
                    status = os.lstat(whole)
                except FileNotFoundError:
                    # It was removed since the folder was read.
                    continue
                yield StoredFile(os.path.relpath(whole, self._folder), status.st_size, status.st_mtime_ns // 1_000_000)

    def remove_folder(self, folder: str) -> None:
        removal = Removal()
        for above, folders, names in os.walk(self._path(folder), topdown=False, onerror=_unless_missing):
            links = [name for name in folders if os.path.islink(os.path.join(above, name))]
            removal.failed |= self.remove([os.path.join(above, name) for name in (*names, *links)]).failed
            if not removal.failed:
                os.rmdir(above)
        removal.check()

    def _path(self, path: str) -> str:
        return os.path.join(self._folder, path) if path else self._folder


class SummingFile:
    """A new file that sums what is written to it; raises FileExistsError where the name is taken."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115  # closed by finish or give_up
        self._checksum = 0
        self._size = 0

    @property
    def closed(self) -> bool:
        return False

    def write(self, data: bytes) -> int:
        if self._file.closed:
            return len(data)
        view = memoryview(data)
        self._checksum = zlib.crc32(view, self._checksum)
        self._size += len(view)
        while len(view):
            view = view[self._file.write(view) :]
        return len(data)

    def tell(self) -> int:
        return self._size

    @property
    def written(self) -> DataFile:
        return DataFile(name=os.path.basename(self._path), size=self._size, checksum=self._checksum)

    def flush(self) -> None:
        """Do nothing: nothing is held back."""

    def close(self) -> None:
        """Do nothing; finish and give_up close: Parquet's writer closes what it writes to too early for fsync."""

    def finish(self, *, fsync: bool) -> DataFile:
        try:
            if fsync:
                os.fsync(self._file.fileno())
        except OSError:
            self.give_up()
            raise
        self._file.close()
        return self.written

    def give_up(self) -> None:
        # One that has ended well stays as it is: somebody may name it.
        if not self._file.closed:
            try:
                self._file.truncate(0)
            finally:
                self._file.close()

    def abandon(self) -> None:
        # `give_up` ends the open file itself, whichever file has its name now.
        self.give_up()


def sync_local_folder(folder: str) -> None:
    """Wait until the names in the folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_local_folder(folder: str, *, fsync: bool) -> None:
    """Make the folder and those above it, if they are missing; wait until two levels of names are on the disk.

    Waits once in each process, also for a folder that is there: whoever made it may still be waiting, or have died.
    """
    is_there = os.path.isdir(folder)
    if is_there and (not fsync or folder in _synced):
        return
    os.makedirs(folder, exist_ok=True)
    if fsync:
        above = os.path.dirname(folder)
        sync_local_folder(above)
        sync_local_folder(os.path.dirname(above))
        if len(_synced) >= SYNCED_MAX:
            _synced.clear()
        _synced.add(folder)


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
