"""Files of a table in their folder: begun, read, removed, and what it means that one is missing or differs.

Covers: the way of all rooms to the store of a root. Does not cover: how a store does it (backends/local.py,
backends/objects.py, backends/hdfs.py), what the bytes mean (parts/part_files.py, parts/segments.py, deltas/deltas.py).
Always holds: an error names the file by its URI.

Tests: tests/integration/storage/test_store_behaviour.py.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import TypeVar

import pyarrow as pa

from tilth.base.errors import CorruptError, TilthError
from tilth.model.part import DataFile
from tilth.storage.errors import (
    DeltaFileCorruptError,
    DeltaFileNotFoundError,
    PartFileCorruptError,
    PartFileNotFoundError,
    StoreAwayError,
)
from tilth.storage.store.protocol import FileSizeError, NewFile, Store, StoredFile
from tilth.storage.store.root import Folder
from tilth.storage.store.stores import store_of

T = TypeVar("T")


def new_file(folder: Folder, name: str) -> NewFile:
    """Begin a file that a commit may name; raises FileExistsError where the name is taken."""
    return store_of(folder.root).create(folder.key(name))


@contextmanager
def new_whole_file(folder: Folder, name: str, *, fsync: bool = True) -> Iterator[NewFile]:
    """Write a file that is ended where the block ends well, and safe with `fsync`; else there is none of this name.

    Raises FileExistsError where the name is taken.
    """
    file = new_file(folder, name)
    try:
        yield file
    except BaseException:
        # A bucket has no object before its end: one of this name would be somebody else's.
        if folder.root.kind not in ("s3", "gs", "az"):
            file.give_up()
            remove(folder, name)
        raise
    end_file(folder, file, fsync=fsync)


class FileFinisher:
    """Ends new files of a folder, several at once where each takes its time; a context manager that waits for all."""

    def __init__(self, folder: Folder, *, fsync: bool) -> None:
        self._folder = folder
        self._fsync = fsync
        self._most = store_of(folder.root).ending_max
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[Future[DataFile]] = deque()

    def end(self, file: NewFile) -> DataFile:
        """Begin to end a file, which takes nothing more; what fails is raised here or at the exit."""
        if self._most == 1:
            return file.finish(fsync=self._fsync)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._most, thread_name_prefix="ending")
        while len(self._waiting) >= self._most:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(file.finish, fsync=self._fsync))
        return file.written

    def __enter__(self) -> FileFinisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        if kind is None:
            while self._waiting:
                self._waiting.popleft().result()
            if self._fsync:
                sync_folder(self._folder)


def end_file(folder: Folder, file: NewFile, *, fsync: bool) -> DataFile:
    """End a new file of the folder; with `fsync`, wait until it and its name are on the disk."""
    written = file.finish(fsync=fsync)
    if fsync:
        sync_folder(folder)
    return written


def new_stream(folder: Folder, name: str) -> pa.NativeFile:
    """Begin a file that no commit names; raises FileExistsError where the name is taken."""
    return store_of(folder.root).stream(folder.key(name))


def put(folder: Folder, name: str, data: bytes) -> None:
    """Write a small file that no commit names, over one that may be there."""
    store_of(folder.root).put(folder.key(name), data)


def sync_folder(folder: Folder) -> None:
    """Wait until the names in the folder are on the disk."""
    store_of(folder.root).sync(folder.path)


def make_folder(folder: Folder, *, fsync: bool) -> None:
    """Make the folder and those above it, if they are missing; wait until two levels of names are on the disk."""
    store_of(folder.root).prepare(folder.path, fsync=fsync)


def stamp_of(folder: Folder, name: str) -> tuple[int, ...]:
    """Return numbers that differ when the file has been written anew; none where it is not there."""
    return store_of(folder.root).stamp(folder.key(name))


def are_there(folder: Folder, names: Sequence[str]) -> list[bool]:
    """Return for each name whether a file is there."""
    return store_of(folder.root).exist([folder.key(name) for name in names])


def remove(folder: Folder, name: str) -> bool:
    """Remove a file; return whether it was there, False where the store does not report it."""
    removal = store_of(folder.root).remove([folder.key(name)])
    removal.check()
    return bool(removal.found)


def remove_files(folder: Folder, names: Sequence[str]) -> None:
    """Remove files, in this order; one that is not there is no error. Raises why one may be there still."""
    store_of(folder.root).remove([folder.key(name) for name in names]).check()


def list_files(folder: Folder) -> Iterator[StoredFile]:
    """Yield each file in the folder, with its path relative to the folder. No query and no write needs this."""
    above = f"{folder.path}/" if folder.path else ""
    for found in store_of(folder.root).files(folder.path):
        yield found._replace(path=found.path.removeprefix(above))


def remove_listed(folder: Folder, paths: Sequence[str]) -> dict[str, TilthError | OSError]:
    """Remove files by their paths relative to the folder; return the errors of those that may still exist."""
    keys = {folder.key(path): path for path in paths}
    return {keys[key]: error for key, error in store_of(folder.root).remove(list(keys)).failed.items()}


def read_file(folder: Folder, name: str) -> pa.Buffer:
    """Return all bytes of a file; raises FileNotFoundError."""
    return store_of(folder.root).read(folder.key(name))


def open_file(folder: Folder, name: str) -> pa.NativeFile:
    """Open a file for reading parts of it; raises FileNotFoundError."""
    return store_of(folder.root).open(folder.key(name))


def open_sized(folder: Folder, file: DataFile) -> pa.NativeFile:
    """Open a file for reading parts of it, its size checked; raises what `missing_error` and `corrupt_error` return."""
    try:
        return store_of(folder.root).open(folder.key(file.name), size=file.size)
    except FileNotFoundError as error:
        raise missing_error(folder, file.name) from error
    except FileSizeError as error:
        raise corrupt_error(folder, file.name, size=error.size, expected_size=file.size) from error


def read_verified(folder: Folder, file: DataFile, *, is_delta: bool = False) -> pa.Buffer:
    """The bytes of a file, size and checksum verified; of a local disk they stay the kernel's, nothing is copied.

    Raises what `missing_error` and `corrupt_error` return.
    """
    return call_good_copy(folder, lambda store: _read_verified(store, folder, file, is_delta))


def _read_verified(store: Store, folder: Folder, file: DataFile, is_delta: bool) -> pa.Buffer:
    try:
        buffer = store.read(folder.key(file.name), size=file.size)
    except FileNotFoundError as error:
        raise missing_error(folder, file.name, is_delta=is_delta) from error
    except FileSizeError as error:
        raise corrupt_error(folder, file.name, is_delta=is_delta, size=error.size, expected_size=file.size) from error
    except OSError as error:
        raise corrupt_error(folder, file.name, is_delta=is_delta, because=str(error)) from error
    checksum = zlib.crc32(buffer)
    if checksum != file.checksum:
        raise corrupt_error(folder, file.name, is_delta=is_delta, checksum=checksum, expected_checksum=file.checksum)
    return buffer


def check_size(folder: Folder, file: DataFile, *, is_delta: bool = False) -> None:
    """Raises what `missing_error` and `corrupt_error` return where the file is not there, or not as long as it was."""

    def check(store: Store) -> None:
        try:
            size = store.size(folder.key(file.name))
        except FileNotFoundError as error:
            raise missing_error(folder, file.name, is_delta=is_delta) from error
        if size != file.size:
            raise corrupt_error(folder, file.name, is_delta=is_delta, size=size, expected_size=file.size)

    call_good_copy(folder, check)


def check_bytes(store: Store, folder: Folder, file: DataFile, *, is_delta: bool = False) -> None:
    """Read all of one copy; raises what `missing_error` and `corrupt_error` return where it is not what was written."""
    try:
        size, checksum = store.checksum(folder.key(file.name))
    except FileNotFoundError as error:
        raise missing_error(folder, file.name, is_delta=is_delta) from error
    if (size, checksum) != (file.size, file.checksum):
        facts = {"size": size, "expected_size": file.size, "checksum": checksum, "expected_checksum": file.checksum}
        raise corrupt_error(folder, file.name, is_delta=is_delta, **facts)


def call_good_copy(folder: Folder, call: Callable[[Store], T]) -> T:
    """Return the answer for the first copy of a file that is right; raises why none is: that one does not answer is
    no evidence about the file, and counts before the errors of others.
    """
    errors: list[TilthError | OSError] = []
    for call_copy in store_of(folder.root).copies:
        try:
            return call_copy(call)
        except (TilthError, OSError) as error:
            errors.append(error)
    raise next((error for error in errors if not isinstance(error, CorruptError | OSError)), errors[0])


def corrupt_error(
    folder: Folder, name: str, *, is_delta: bool = False, **facts: object
) -> PartFileCorruptError | DeltaFileCorruptError:
    """Return the error for a file that is not what was written: a part's, or one with changes of rows."""
    uri, texts = folder.uri(name), {key: str(fact) for key, fact in facts.items()}
    return DeltaFileCorruptError(file=uri, **texts) if is_delta else PartFileCorruptError(file=uri, **texts)


def missing_error(
    folder: Folder, name: str, because: str = "", *, is_delta: bool = False
) -> PartFileNotFoundError | DeltaFileNotFoundError | StoreAwayError:
    """Return the error for a file that is not there: its bytes are lost, or the store is away with all its files."""
    uri, facts = folder.uri(name), {"because": because} if because else {}
    if store_of(folder.root).has_folder(folder.path):
        return DeltaFileNotFoundError(file=uri, **facts) if is_delta else PartFileNotFoundError(file=uri, **facts)
    return StoreAwayError(file=uri, **facts, hint="check that the store is mounted; the operation is tried again")
