"""The trash: parts that have left their table and whose files are still there (phase 2 of GC)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilth.base.clock import Clock
from tilth.catalog import codec
from tilth.catalog.change import REMOVE_BATCH, Plan, change
from tilth.catalog.clock import HybridClock
from tilth.catalog.keys import Space, span, unpack
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.part_log import part_event, put_events
from tilth.model.part import PartEvent, TrashItem


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashedPart:
    """A trash item and where it lies."""

    key: bytes
    table: str
    item: TrashItem


class Trash:
    """`catalog.trash`."""

    def __init__(self, clock: Clock, hybrid: HybridClock, kv: KeyValue) -> None:
        self._clock = clock
        self._hybrid = hybrid
        self._kv = kv

    def items(
        self, table: str | None = None, *, after: bytes | None = None, limit: int
    ) -> tuple[list[TrashedPart], bytes | None]:
        """Up to `limit` items behind a cursor, by table and name, and the next cursor; None: that was the last."""
        start, end = span(Space.TRASH) if table is None else span(Space.TRASH, table)
        if after is not None:
            start = max(start, after + b"\x00")
        items = [
            TrashedPart(key=key, table=str(unpack(key, "ssiiii")[0]), item=codec.TRASH.decode(key, found.value))
            for key, found in self._kv.scan(start, end, limit=limit)
        ]
        return items, items[-1].key if items and len(items) == limit else None

    def remove(self, table: str, items: Sequence[TrashedPart]) -> int:
        """Forgets items whose files are gone; returns how many were there."""
        removed = 0
        for first in range(0, len(items), REMOVE_BATCH):
            removed += self._remove_batch(table, items[first : first + REMOVE_BATCH])
        return removed

    def _remove_batch(self, table: str, items: Sequence[TrashedPart]) -> int:
        now_ms, ts = self._clock.now_ms(), self._hybrid.now()

        def plan(view: ReadView) -> Plan[int]:
            there = [each for each in items if each.table == table and view.get(each.key) is not None]
            events: list[PartEvent] = [part_event("remove", table, each.item.part, now_ms) for each in there]
            return Plan(result=len(there), puts=put_events(events, ts), deletes=[each.key for each in there])

        return change(self._kv, self._clock, plan)
