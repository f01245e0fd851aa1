"""Transactions and leases of readers that hold collection back, read for all tables at once.

Covers: reading them once for all tables that need them within a second. Does not cover: the limit that follows
(gc/policy.py), leases by which a file is judged before it is removed, which are read each time (gc/round.py).
Always holds: the time of a reading is taken before it, and a limit is computed by that time: who begins later reads
nothing that had ended before it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from tilth.base.clock import Clock
from tilth.catalog import Catalog
from tilth.model.lease import ReaderLease

#: Age up to which one reading serves all tables.
FRESH_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsSeen:
    """All holds as of one time."""

    now_ms: int
    #: Id of the oldest transaction that may still commit; None: none runs.
    oldest_txn: int | None
    #: Leases that have not ended, by the table's uuid.
    leases: dict[str, list[ReaderLease]]

    def oldest_reader(self, table: str, *, is_named: bool = False) -> int | None:
        """Return the oldest snapshot of the table that is held; `is_named`: by a reader of changes."""
        held = (each.snapshot_ts for each in self.leases.get(table, ()) if bool(each.name) is is_named)
        return min(held, default=None)


class CollectionHolds:
    """The holds of one catalog. For any thread."""

    def __init__(self, clock: Clock, catalog: Catalog) -> None:
        self._clock = clock
        self._catalog = catalog
        self._lock = threading.Lock()
        self._seen: tuple[float, HoldsSeen] | None = None

    def lately(self) -> HoldsSeen:
        """Return the holds as of at most `FRESH_SECONDS` ago."""
        with self._lock:
            now = self._clock.monotonic()
            if self._seen is None or not 0 <= now - self._seen[0] < FRESH_SECONDS:
                self._seen = (now, self.now())
            return self._seen[1]

    def now(self) -> HoldsSeen:
        """Read the holds."""
        now_ms = self._clock.now_ms()
        oldest_txn = self._catalog.transactions.oldest_running()
        leases: dict[str, list[ReaderLease]] = {}
        for each in self._catalog.readers.list():
            if each.expires_ms > now_ms:
                leases.setdefault(each.table, []).append(each)
        return HoldsSeen(now_ms=now_ms, oldest_txn=oldest_txn, leases=leases)
