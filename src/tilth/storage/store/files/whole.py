"""Files whose size is in no record: of their copies one counts that has its end.

Covers: opening such a file, its size and checksum. Does not cover: files that a record names, whose size and checksum
are known (files.py), what the bytes mean (parts, deltas).
Always holds: a copy of which a writer wrote a beginning only, or nothing, is passed over for one that is whole.

Tests: tests/integration/storage/test_store_behaviour.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tilth.storage.store.files.files import call_good_copy, corrupt_error
from tilth.storage.store.paths import PART_EXTENSION
from tilth.storage.store.protocol import Store
from tilth.storage.store.root import Folder
from tilth.storage.store.stores import store_of

T = TypeVar("T")


def open_whole(folder: Folder, name: str) -> pa.NativeFile:
    """Open a Parquet or Arrow file for reading parts of it, each from a copy of the right size.

    Raises FileNotFoundError, and PartFileCorruptError where no copy has its end.
    """
    store, key = store_of(folder.root), folder.key(name)
    if len(store.copies) == 1:
        return store.open(key)
    return store.open(key, size=_call_whole_copy(folder, name, lambda copy: _size_with_end(copy, folder, name)))


def read_whole(folder: Folder, name: str, decode: Callable[[pa.Buffer], T]) -> T:
    """Return what a file means, by the first copy that `decode` understands; raises as `open_whole`."""
    return _call_whole_copy(folder, name, lambda copy: decode(copy.read(folder.key(name))))


def whole_checksum(folder: Folder, name: str) -> tuple[int, int]:
    """Return size and CRC-32 of a whole copy of a Parquet or Arrow file; raises as `open_whole`."""
    store, key = store_of(folder.root), folder.key(name)
    if len(store.copies) == 1:
        return store.checksum(key)

    def checksum(copy: Store) -> tuple[int, int]:
        # First: it reads little of a copy that is not whole.
        _size_with_end(copy, folder, name)
        return copy.checksum(key)

    return _call_whole_copy(folder, name, checksum)


def _call_whole_copy(folder: Folder, name: str, read: Callable[[Store], T]) -> T:
    def checked(copy: Store) -> T:
        try:
            return read(copy)
        except FileNotFoundError:
            raise
        # An empty file cannot be mapped; a file that was cut off, and bytes that mean nothing, raise these, too.
        except (pa.ArrowException, OSError, ValueError) as error:
            raise corrupt_error(folder, name, because=(str(error).splitlines() or [""])[0]) from error

    return call_good_copy(folder, checked)


def _size_with_end(copy: Store, folder: Folder, name: str) -> int:
    with copy.open(folder.key(name)) as source:
        if name.endswith(f".{PART_EXTENSION}"):
            pq.read_metadata(source)
        else:
            pa.ipc.open_file(source)
        return int(source.size())
