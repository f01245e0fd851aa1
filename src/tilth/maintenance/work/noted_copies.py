"""The tables whose replicas lack copies, read for all tables at once.

Covers: reading them once for all tables that need them within a second. Does not cover: the notes of one table
(catalog), what is done about them (copies/replicate.py).
Always holds: an answer has the age of its reading; where so many tables lack copies that reading all of them takes
long, they are read less often.

Tests: tests/unit/maintenance/copies/test_replicate.py.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from tilth.base.clock import Clock
from tilth.catalog import Catalog

#: Age up to which one reading serves all tables, and the same in multiples of the time that it took.
FRESH_SECONDS = 1.0
FRESH_DURATIONS = 10
#: Replicas of tables that one reading names at most; with more, any table may lack copies.
NAMED_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedSeen:
    """The tables with notes as of one time; None: too many to name."""

    age_ms: int
    tables: frozenset[str] | None

    def may_have(self, table: str) -> bool:
        return self.tables is None or table in self.tables


class NotedCopies:
    """The tables of one catalog whose replicas lack copies. For any thread."""

    def __init__(self, clock: Clock, catalog: Catalog) -> None:
        self._clock = clock
        self._catalog = catalog
        self._lock = threading.Lock()
        #: Monotonic times of the last reading and of the next one.
        self._read_at = 0.0
        self._next_at: float | None = None
        self._tables: frozenset[str] | None = None

    def lately(self) -> NotedSeen:
        """Return the tables as of the last reading, or of a new one where that is too old."""
        with self._lock:
            now = self._clock.monotonic()
            if self._next_at is None or now >= self._next_at:
                found = self._catalog.copies.lacking(NAMED_MAX)
                self._tables = frozenset(table for table, _ in found) if len(found) < NAMED_MAX else None
                took = self._clock.monotonic() - now
                self._read_at, self._next_at = now, now + max(FRESH_SECONDS, took * FRESH_DURATIONS)
            return NotedSeen(age_ms=round((now - self._read_at) * 1000), tables=self._tables)
