"""Parts of a table that some work has reserved for itself, so that nothing else works on them.

Covers: merges, rewrites, flushes, compactions of deltas and the hiding of empty parts, waiting and running ones. Does
not cover: what the catalog makes sure of anyway, that a part is replaced once.
Always holds: a part is reserved by one work at a time.

Tests: tests/unit/maintenance/flush/test_op.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

#: Real time: what is waited for are other threads. The bound is for work of whose outcome nobody knows.
WAIT_SECONDS = 0.5


class ReservedParts:
    """Reserved parts of one table, by name. For any thread; may be called while the table's lock is held."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._released = threading.Condition(lock)
        self._names: set[str] = set()

    def now(self) -> frozenset[str]:
        """All that are reserved."""
        with self._lock:
            return frozenset(self._names)

    def reserve(self, names: Iterable[str]) -> bool:
        """All of them, or none where one is reserved already; returns whether they were reserved."""
        wanted = set(names)
        with self._lock:
            if not self._names.isdisjoint(wanted):
                return False
            self._names |= wanted
            return True

    def reserve_free(self, names: Iterable[str]) -> list[str]:
        """Reserve those parts that nobody has reserved; return them in their order."""
        with self._lock:
            free = [name for name in names if name not in self._names]
            self._names.update(free)
            return free

    def release(self, names: Iterable[str]) -> None:
        """They may be reserved again."""
        with self._lock:
            self._names.difference_update(names)
            self._released.notify_all()

    def wait(self) -> None:
        """Wait until something is released, at most `WAIT_SECONDS`; not at all where nothing is reserved."""
        with self._lock:
            if self._names:
                self._released.wait(WAIT_SECONDS)
