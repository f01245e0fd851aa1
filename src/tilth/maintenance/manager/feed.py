"""News of all tables' parts, read from the part log: one short range read, whatever the number of tables.

Always holds: an event is reported once at most. Events carry the time at which their commit was made ready and may land
a little later than younger ones, so each read overlaps the one before; one that lands later still is never reported,
so the ops also check tables periodically. After the clock has gone back, a read counts as incomplete.

Tests: tests/unit/maintenance/manager/test_manager.py.
"""

from __future__ import annotations

from tilth.catalog import Catalog
from tilth.model.part import PartEvent

#: Statistics begin with the events of so long ago.
WARM_START_MS = 3 * 86_400_000
WARM_EVENTS_MAX = 50_000
#: A commit lands within this after it was made ready; while nothing newer lands, a late one has longer.
OVERLAP_MS = 1_000
LATE_MS = 10_000
#: Events of one read; more means that the oldest are not counted.
EVENTS_MAX = 20_000


class PartFeed:
    """The reader of the part log."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._since_ms: int | None = None
        #: Events of the overlap that were already reported.
        self._reported: set[tuple[str, str, str, int]] = set()

    @property
    def has_begun(self) -> bool:
        return self._since_ms is not None

    def news(self, now_ms: int) -> tuple[list[PartEvent], bool]:
        """Return the events since the last call, oldest first, and whether they are all."""
        # A clock that was ahead has gone back: new events have earlier times than the last one that was read.
        is_back = self._since_ms is not None and self._since_ms > now_ms
        if is_back:
            self._since_ms = max(0, now_ms - LATE_MS)
        if self._since_ms is None:
            start, limit = max(0, now_ms - WARM_START_MS), WARM_EVENTS_MAX
        else:
            start, limit = self._since_ms, EVENTS_MAX
        found = self._catalog.part_log.recent(start, limit=limit)
        fresh = [event for event in found if _key(event) not in self._reported]
        newest_ms = max((event.at_ms for event in found), default=start)
        # While nothing happens, what was reported long ago is not read again and again.
        self._since_ms = max(start, min(newest_ms, now_ms) - OVERLAP_MS, now_ms - LATE_MS)
        self._reported = {_key(event) for event in found if event.at_ms >= self._since_ms}
        return fresh, len(found) < limit and not is_back


def _key(event: PartEvent) -> tuple[str, str, str, int]:
    return event.event, event.table, event.part, event.at_ms
