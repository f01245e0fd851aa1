"""Bytes on a local disk: written once under their final name, summed, on the disk before they count.

Covers: writing one file, its checksum, reading all of it, removing, waiting for the disk, what it means that one is
missing or differs. Does not cover: what the bytes mean (parts/parts.py, parts/segments.py, deltas/deltas.py).
Always holds: an existing file is never written to again.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pyarrow as pa

from tilth.model.part import DataFile
from tilth.storage.errors import (
    DeltaFileCorruptError,
    DeltaFileNotFoundError,
    PartFileCorruptError,
    PartFileNotFoundError,
    StoreAwayError,
)

_READ_BYTES = 1 << 20
#: Folders that a process remembers to have waited for.
SYNCED_MAX = 10_000
_synced: set[str] = set()


class SummingFile:
    """A new file that sums what is written to it; raises FileExistsError where the name is taken."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115  # closed by finish or give_up
        self._checksum = 0
        self._size = 0

    def write(self, data: bytes) -> int:
        """Append; return the number of bytes. After `give_up` nothing happens."""
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

    def flush(self) -> None:
        """Do nothing: nothing is held back."""

    @property
    def closed(self) -> bool:
        """Return false for Parquet's writer, which must be able to end after `give_up` too."""
        return False

    def close(self) -> None:
        """Do nothing; finish and give_up close: Parquet's writer closes what it writes to too early for fsync."""

    def finish(self, *, fsync: bool) -> DataFile:
        """Close the file; with `fsync`, wait until it is on the disk."""
        if fsync:
            os.fsync(self._file.fileno())
        self._file.close()
        return DataFile(name=Path(self._path).name, size=self._size, checksum=self._checksum)

    def give_up(self) -> None:
        """Free the bytes and keep the name, so that the numbers of an attempt's files have no hole."""
        self._file.truncate(0)
        self._file.close()


def sync_folder(folder: str) -> None:
    """Wait until the names in the folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: str, *, fsync: bool) -> None:
    """Make the folder and those above it, if they are missing; wait until two levels of names are on the disk.

    Waits once in each process, also for a folder that is there: whoever made it may still be waiting, or have died.
    """
    is_there = os.path.isdir(folder)
    if is_there and (not fsync or folder in _synced):
        return
    os.makedirs(folder, exist_ok=True)
    if fsync:
        above = os.path.dirname(folder)
        sync_folder(above)
        sync_folder(os.path.dirname(above))
        if len(_synced) >= SYNCED_MAX:
            _synced.clear()
        _synced.add(folder)


def checksum_of(path: str) -> tuple[int, int]:
    size = checksum = 0
    with open(path, "rb") as file:
        while data := file.read(_READ_BYTES):
            size += len(data)
            checksum = zlib.crc32(data, checksum)
    return size, checksum


def remove(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def mapped(folder: str, file: DataFile, *, is_delta: bool = False) -> pa.Buffer:
    """The bytes of a file, size and checksum verified; they stay the kernel's, nothing is copied.

    Raises what `missing` and `corrupt` say.
    """
    path = os.path.join(folder, file.name)
    check_size(path, file, is_delta=is_delta)
    try:
        with pa.memory_map(path, "r") as source:
            buffer = source.read_buffer()
    except OSError as error:
        raise corrupt(path, is_delta=is_delta, because=str(error)) from error
    checksum = zlib.crc32(buffer)
    if checksum != file.checksum:
        raise corrupt(path, is_delta=is_delta, checksum=checksum, expected_checksum=file.checksum)
    return buffer


def check_size(path: str, file: DataFile, *, is_delta: bool = False) -> None:
    """Raises what `missing` and `corrupt` return where the file is not there, or not as long as it was."""
    try:
        size = os.path.getsize(path)
    except FileNotFoundError as error:
        raise missing(path, is_delta=is_delta) from error
    if size != file.size:
        raise corrupt(path, is_delta=is_delta, size=size, expected_size=file.size)


def corrupt(path: str, *, is_delta: bool = False, **facts: object) -> PartFileCorruptError | DeltaFileCorruptError:
    """Return the error for a file that is not what was written: a part's, or one with changes of rows."""
    texts = {name: str(fact) for name, fact in facts.items()}
    return DeltaFileCorruptError(file=path, **texts) if is_delta else PartFileCorruptError(file=path, **texts)


def missing(
    path: str, because: str = "", *, is_delta: bool = False
) -> PartFileNotFoundError | DeltaFileNotFoundError | StoreAwayError:
    """Return the error for a file that is not there: its bytes are lost, or the store is away with all its files."""
    facts = {"because": because} if because else {}
    if os.path.isdir(os.path.dirname(path.removeprefix("file:"))):
        return DeltaFileNotFoundError(file=path, **facts) if is_delta else PartFileNotFoundError(file=path, **facts)
    return StoreAwayError(file=path, **facts, hint="check that the store is mounted; the operation is tried again")
