"""Cache of what was read of small files, for the next reader in this process.

Covers: a cache of bounded size. Does not cover: which files are cached (upsert.py, key_lookup.py).
Always holds: files never change and their names are never used again, so an entry is never stale; the entry that was
used longest ago goes first. A round that searches keys needs the segments of all rounds since the last flush;
only the newest of them are not cached yet.

Tests: tests/unit/storage/upsert/test_upsert.py.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from tilth.model.part import DataFile

T = TypeVar("T")

#: Limit of the cache in each process that searches for keys.
HELD_BYTES_MAX = 64 << 20

#: Bytes of an entry besides its arrays.
ENTRY_BYTES = 2048


class HeldFiles:
    """Cache by file of what a reader made of it. Threads may share it."""

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        # Any: each entry is of the type that its reader expects.
        self._entries: OrderedDict[tuple[object, ...], tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, kind: tuple[str, ...], file: DataFile, read: Callable[[], T], size_of: Callable[[T], int]) -> T:
        """Return the result of `read`, cached or read now. `kind`: the folder, and what is made of the file."""
        key = (*kind, file.name, file.size, file.checksum)
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                held: T = self._entries[key][0]
                return held
        made = read()
        size = ENTRY_BYTES + size_of(made)
        with self._lock:
            if key not in self._entries and size <= self._bytes_max:
                self._entries[key] = made, size
                self._bytes += size
            while self._bytes > self._bytes_max:
                _, (_, gone) = self._entries.popitem(last=False)
                self._bytes -= gone
        return made


#: Cache of this process.
HELD = HeldFiles()
