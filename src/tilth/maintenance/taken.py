"""Which parts of a table some work has taken for itself, so that nothing else takes them.

Covers: merges, rewrites, flushes, compactions of deltas and the hiding of empty parts, waiting and running ones. Does
not cover: what the catalog makes sure of anyway, that a part is replaced once.
Always holds: a part is taken by one work at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

#: Real time: what is waited for are other threads. The bound is for work of whose outcome nobody knows.
WAIT_SECONDS = 0.5


class TakenParts:
    """Of one table, by the names of the parts. For any thread; may be asked while the table's lock is held."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._given_back = threading.Condition(lock)
        self._names: set[str] = set()

    def now(self) -> frozenset[str]:
        """All that are taken."""
        with self._lock:
            return frozenset(self._names)

    def take(self, names: Iterable[str]) -> bool:
        """All of them, or none where one is taken already; whether they were taken."""
        wanted = set(names)
        with self._lock:
            if not self._names.isdisjoint(wanted):
                return False
            self._names |= wanted
            return True

    def take_free(self, names: Iterable[str]) -> list[str]:
        """Those that nobody has taken, in their order."""
        with self._lock:
            free = [name for name in names if name not in self._names]
            self._names.update(free)
            return free

    def give_back(self, names: Iterable[str]) -> None:
        """They may be taken again."""
        with self._lock:
            self._names.difference_update(names)
            self._given_back.notify_all()

    def wait(self) -> None:
        """For a moment, or until something is given back; not at all where nothing is taken."""
        with self._lock:
            if self._names:
                self._given_back.wait(WAIT_SECONDS)
