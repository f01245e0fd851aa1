"""The catalog's statistics of a table's open deltas, read once for all ops that need them.

Covers: reading, and reading again only what has changed. Does not cover: what is made of it (policy.py).
Always holds: a table without deltas costs one read of nothing after each change of it.

Tests: tests/unit/maintenance/deltas/test_op.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilth.base.clock import Clock
from tilth.catalog import Catalog
from tilth.maintenance.deltas.policy import PartitionDeltas
from tilth.maintenance.state import NEVER_MS
from tilth.maintenance.table.watch import TableWatch
from tilth.model.delta import applied_order
from tilth.model.part import PartEvent

#: Time between two refreshes of a table that changes.
REFRESH_BUSY_MS = 1_000
#: Events after which the deltas, or what they change, differ from the last observation.
_NEWS = frozenset(
    {"delete", "merge", "flush", "mutate", "hide", "undrop", "flush_deltas", "minor_delta", "major_delta"}
)


class DeltaObservation:
    """The last observation of one table's deltas. For the manager's thread, but for `notice`."""

    def __init__(self, clock: Clock, catalog: Catalog, watch: TableWatch) -> None:
        self._clock = clock
        self._catalog = catalog
        self._watch = watch
        self._known: dict[str, PartitionDeltas] = {}
        #: Partitions to be read again; all of them at first.
        self._stale: set[str] = set()
        self._is_all_stale = True
        #: `True` until all partitions were read, or are to be read again.
        self._is_first = True
        self._refreshed_ms = -REFRESH_BUSY_MS

    @property
    def due_ms(self) -> int:
        """Return when the next observation is worth it."""
        return self._refreshed_ms + REFRESH_BUSY_MS if self._is_all_stale or self._stale else NEVER_MS

    def observe(self, event: PartEvent, partition: str) -> bool:
        """Note a line of the part log about this table; return true if it is news."""
        is_news = event.event in _NEWS
        if is_news:
            self.notice(partition)
        return is_news

    def notice(self, partition: str) -> None:
        """Note that something of the partition has changed."""
        with self._watch.lock:
            self._stale.add(partition)
        self._watch.is_woken = True

    def notice_all(self) -> None:
        """Forget all that is known: news were lost, or the definition has changed."""
        self._is_all_stale, self._is_first = True, False
        self._watch.is_woken = True

    def partitions(self) -> Sequence[PartitionDeltas]:
        """Return the partitions with open deltas, as of at most `REFRESH_BUSY_MS` ago."""
        now_ms = self._clock.now_ms()
        if self.due_ms <= now_ms:
            self._refreshed_ms = now_ms
            self._read()
        return list(self._known.values())

    def fresh(self, partition: str) -> PartitionDeltas:
        uuid = self._watch.uuid
        deltas = self._catalog.parts.deltas(uuid, partition)
        parts = self._catalog.parts.visible(uuid, partition) if deltas else []
        found = PartitionDeltas(
            partition=partition,
            parts={part.file.name: part for part in parts},
            deltas=tuple(applied_order(deltas)),
        )
        if deltas:
            self._known[partition] = found
        else:
            self._known.pop(partition, None)
        return found

    def _read(self) -> None:
        with self._watch.lock:
            stale, self._stale = self._stale, set()
        is_all, self._is_all_stale = self._is_all_stale, False
        try:
            if is_all and not self._has_none():
                stale |= set(self._known)
                stale |= {delta.partition for delta in self._catalog.parts.deltas(self._watch.uuid)}
            self._is_first = False
            for partition in sorted(stale):
                self.fresh(partition)
        except Exception:
            # Partitions that were not read are still stale.
            self._is_all_stale = True
            raise

    def _has_none(self) -> bool:
        """Return whether the table had no deltas when it was registered, and that is all that is to be known: those
        that came later were reported.
        """
        left = self._watch.leftovers
        return self._is_first and left is not None and not left.has_deltas
