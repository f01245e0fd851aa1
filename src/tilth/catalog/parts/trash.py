"""The trash: parts that have left their table and whose files are still there (phase 2 of GC).

Always holds: an item marked for removal never comes back, and one that is not marked has its file; UNDROP PARTITION
relies on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from tilth.base.clock import Clock
from tilth.catalog.commit.part_log import part_event, put_events
from tilth.catalog.kv import KeyValue, Precondition, ReadView, Versioned
from tilth.catalog.records import codec
from tilth.catalog.records.hybrid_clock import HybridClock
from tilth.catalog.records.keys import Space, entry_key, pack, span, unpack
from tilth.catalog.records.small_commit import REMOVE_BATCH, Plan, change, read, unchanged
from tilth.catalog.rules.state import check_fence
from tilth.model.lease import Fence
from tilth.model.part import PartEvent, PartName, TrashItem


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashedPart:
    """A trash item and its key."""

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
        """Return up to `limit` items behind a cursor, by table and name, and the next cursor; None: no more items."""
        start, end = span(Space.TRASH) if table is None else span(Space.TRASH, table)
        if after is not None:
            start = max(start, after + b"\x00")
        items = [
            TrashedPart(key=key, table=str(unpack(key, "ssiiii")[0]), item=codec.TRASH.decode(key, found.value))
            for key, found in self._kv.scan(start, end, limit=limit)
        ]
        return items, items[-1].key if items and len(items) == limit else None

    def find(self, table: str, names: Iterable[PartName]) -> list[TrashedPart]:
        """Return those of the table's parts with these names that are in the trash."""
        found = []
        with self._kv.view() as view:
            for name in names:
                key = entry_key(table, name, space=Space.TRASH)
                item = read(view, key, codec.TRASH)
                if item is not None:
                    found.append(TrashedPart(key=key, table=table, item=item))
        return found

    def mark_for_removal(
        self, table: str, items: Sequence[TrashedPart], *, fence: Fence | None = None
    ) -> list[TrashedPart]:
        """Mark items so that they cannot come back and their files may be removed; return those that are in the trash
        as they were read. An item that came back and was dropped again is another item: it is not marked.

        Items are marked before their files are removed. Marking them again is harmless. Raises FencedError.
        """
        marked: list[TrashedPart] = []
        for first in range(0, len(items), REMOVE_BATCH):
            marked += self._mark_batch(table, items[first : first + REMOVE_BATCH], fence)
        return marked

    def remove(self, table: str, items: Sequence[TrashedPart]) -> int:
        """Delete the records of items whose files are removed; return how many there were."""
        removed = 0
        for first in range(0, len(items), REMOVE_BATCH):
            removed += self._remove_batch(table, items[first : first + REMOVE_BATCH])
        return removed

    def _mark_batch(self, table: str, items: Sequence[TrashedPart], fence: Fence | None) -> list[TrashedPart]:
        def plan(view: ReadView) -> Plan[list[TrashedPart]]:
            preconditions: list[Precondition] = []
            if fence is not None:
                lease_key = pack(Space.LEASE, fence.name)
                preconditions.append(unchanged(lease_key, view.get(lease_key)))
                check_fence(read(view, lease_key, codec.LEASES), fence)
            marked: list[TrashedPart] = []
            puts: dict[bytes, bytes] = {}
            for each in items:
                found = view.get(each.key) if each.table == table else None
                if found is None:
                    continue
                item = codec.TRASH.decode(each.key, found.value)
                if item.end_ts != each.item.end_ts:
                    continue
                # An entry that no drop hid does not come back anyway.
                if item.is_dropped and not item.is_going:
                    item = msgspec.structs.replace(item, is_going=True)
                    preconditions.append(unchanged(each.key, found))
                    puts[each.key] = codec.TRASH.encode(item)
                marked.append(TrashedPart(key=each.key, table=table, item=item))
            return Plan(result=marked, preconditions=preconditions, puts=puts)

        return change(self._kv, self._clock, plan)

    def _remove_batch(self, table: str, items: Sequence[TrashedPart]) -> int:
        now_ms, batch = self._clock.now_ms(), self._hybrid.new_id()

        def plan(view: ReadView) -> Plan[int]:
            there: dict[bytes, Versioned] = {}
            events: list[PartEvent] = []
            for each in items:
                found = view.get(each.key) if each.table == table else None
                if found is not None:
                    there[each.key] = found
                    events.append(part_event("remove", table, each.item.part, now_ms))
            return Plan(
                result=len(events),
                preconditions=[unchanged(key, found) for key, found in there.items()],
                puts=put_events(events, batch),
                deletes=list(there),
            )

        return change(self._kv, self._clock, plan)
