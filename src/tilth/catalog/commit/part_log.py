"""The part log: what happened to parts, for people and for the warm start of statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from tilth.base.clock import Clock
from tilth.catalog.kv import KeyValue
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack, span
from tilth.catalog.records.small_commit import remove_range, rewrite_range
from tilth.model.part import Part, PartEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsRead:
    """A part of the log."""

    #: Newest first.
    events: list[PartEvent]
    #: Key of the oldest one; None: there are no older ones.
    first: bytes | None


class PartLog:
    """`catalog.part_log`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv
        #: Key before which no event has the range of a sort key.
        self._without_sort_keys = span(Space.PART_LOG)[0]

    def recent(self, since_ms: int = 0, table: str | None = None, *, limit: int) -> list[PartEvent]:
        """Return the newest events at or after a time, of one table or all; oldest of them first."""
        found: list[PartEvent] = []
        for event in self._backwards(since_ms):
            if len(found) == limit:
                break
            if table is None or event.table == table:
                found.append(event)
        return found[::-1]

    def before(self, end: bytes | None, since_ms: int, *, limit: int) -> EventsRead:
        """Return the last events before a key, or of all, that are not older than a time: one read. Only keys of an
        earlier answer are given.
        """
        start, last = pack(Space.PART_LOG, since_ms), span(Space.PART_LOG)[1]
        found = list(self._kv.scan(start, end or last, limit=limit, reverse=True))
        return EventsRead(
            events=[codec.PART_EVENTS.decode(key, each.value) for key, each in found],
            first=found[-1][0] if len(found) == limit else None,
        )

    def trim(self, before_ms: int) -> int:
        """Remove the events before a time; return how many."""
        end = pack(Space.PART_LOG, before_ms)
        return remove_range(self._kv, self._clock, Space.PART_LOG, end=end)

    def forget_sort_keys(self, before_ms: int) -> int:
        """Remove the ranges of sort keys from events before a time; return how many events had one. The ranges would
        outlive the rows of their parts. Events that this process has already rewritten are not read again.
        """
        end = pack(Space.PART_LOG, before_ms)
        if end <= self._without_sort_keys:
            return 0
        forgotten = rewrite_range(self._kv, self._clock, self._without_sort_keys, end, _without_sort_key)
        self._without_sort_keys = end
        return forgotten

    def _backwards(self, since_ms: int) -> Iterator[PartEvent]:
        start, end = pack(Space.PART_LOG, since_ms), span(Space.PART_LOG)[1]
        for key, found in self._kv.scan(start, end, reverse=True):
            yield codec.PART_EVENTS.decode(key, found.value)


def _without_sort_key(key: bytes, value: bytes) -> bytes | None:
    event = codec.PART_EVENTS.decode(key, value)
    return None if event.key is None else codec.PART_EVENTS.encode(replace(event, key=None))


def part_event(event: str, table: str, part: Part, now_ms: int) -> PartEvent:
    return PartEvent(event=event, at_ms=now_ms, table=table, part=str(part.name), rows=part.rows, bytes=part.bytes)


def put_events(events: Iterable[PartEvent], batch: int) -> dict[bytes, bytes]:
    """The keys and values of a batch's events; `batch` is an id that no other batch has, of any server."""
    return {
        pack(Space.PART_LOG, event.at_ms, batch, number): codec.PART_EVENTS.encode(event)
        for number, event in enumerate(events)
    }
