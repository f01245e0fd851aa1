"""News of all tables' parts, read from the part log: one short range read, whatever the number of tables.

Always holds: a call reads and reports a bounded number of events; an event is reported once at most. Events carry the
time at which their commit was made ready and may land a little later than younger ones, so each reading overlaps the
one before; one that lands later still is never reported, so the ops also check tables periodically. After the clock has
gone back, a reading counts as incomplete.

Tests: tests/unit/maintenance/manager/test_manager.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tilth.catalog import Catalog
from tilth.model.part import PartEvent

EventKey: TypeAlias = tuple[str, str, str, int]

#: Statistics begin with the events of so long ago.
WARM_START_MS = 3 * 86_400_000
WARM_EVENTS_MAX = 50_000
#: A commit lands within this after it was made ready; while nothing newer lands, a late one has longer.
OVERLAP_MS = 1_000
LATE_MS = 10_000
#: Events since the last reading that are reported; with more, the oldest are not.
EVENTS_MAX = 20_000
#: Events of one read, and of one answer.
READ_EVENTS = 500
NEWS_EVENTS = 100


class PartFeed:
    """The reader of the part log."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._since_ms: int | None = None
        #: Events of the overlap that were already reported.
        self._reported: set[EventKey] = set()
        self._reading: _Reading | None = None
        #: Events that were read, in reverse order, and whether they are all.
        self._fresh: list[PartEvent] = []
        self._is_all = True
        #: The events from before the start were reported.
        self.has_begun = False

    @property
    def is_behind(self) -> bool:
        """True if there is more to read or to report at once."""
        return self._reading is not None or bool(self._fresh)

    def news(self, now_ms: int) -> tuple[list[PartEvent], bool]:
        """Return the next events, oldest first, and whether they are all since the last ones; not more than can be
        handled in a short time: `is_behind` is true if there are more.
        """
        if not self._fresh:
            self._read(now_ms)
        fresh, is_all = self._fresh, self._is_all
        events = [fresh.pop() for _ in range(min(NEWS_EVENTS, len(fresh)))]
        self._is_all = True
        self.has_begun = self.has_begun or not self.is_behind
        return events, is_all

    def _read(self, now_ms: int) -> None:
        """Read the next events, from the newest to the oldest; go on where the last read has ended."""
        if self._reading is None:
            self._reading = self._begin(now_ms)
        reading = self._reading
        found = self._catalog.part_log.before(
            reading.end, reading.start_ms, limit=min(READ_EVENTS, reading.limit - len(reading.events))
        )
        reading.events += found.events
        reading.end = found.first
        if found.first is None or len(reading.events) >= reading.limit:
            self._reading = None
            self._end(reading)

    def _begin(self, now_ms: int) -> _Reading:
        if self._since_ms is None:
            start_ms, limit, is_back = max(0, now_ms - WARM_START_MS), WARM_EVENTS_MAX, False
        else:
            # A clock that was ahead has gone back: new events have earlier times than the last one that was read.
            is_back = self._since_ms > now_ms
            start_ms, limit = max(0, now_ms - LATE_MS) if is_back else self._since_ms, EVENTS_MAX
        return _Reading(now_ms=now_ms, start_ms=start_ms, limit=limit, is_back=is_back)

    def _end(self, reading: _Reading) -> None:
        start_ms, now_ms, found = reading.start_ms, reading.now_ms, reading.events
        self._fresh = [event for event in found if _key(event) not in self._reported]
        self._is_all = len(found) < reading.limit and not reading.is_back
        newest_ms = max((event.at_ms for event in found), default=start_ms)
        # While nothing happens, what was reported long ago is not read again and again.
        self._since_ms = max(start_ms, min(newest_ms, now_ms) - OVERLAP_MS, now_ms - LATE_MS)
        self._reported = {_key(event) for event in found if event.at_ms >= self._since_ms}


@dataclass(slots=True, kw_only=True)
class _Reading:
    """One reading of all events since a time."""

    now_ms: int
    start_ms: int
    limit: int
    #: The clock had gone back.
    is_back: bool
    #: Events that were read, newest first, and the key before which the next read ends.
    events: list[PartEvent] = field(default_factory=list)
    end: bytes | None = None


def _key(event: PartEvent) -> EventKey:
    return event.event, event.table, event.part, event.at_ms
