"""DELETED_PART_GC: parts whose rows are all deleted are hidden when the newest delete is ancient.

Rule: docs/policies/history.md#deleted_part_gc.

Covers: which parts, and the transaction that hides them by marks, all at once. Does not cover: their files, which go as
those of merged parts do (part_gc.py); parts of which a few rows are left, which are left to merges.
Always holds: a part that gets a change meanwhile, or that is merged, stays; nothing works on a part that is hidden.

Tests: tests/unit/maintenance/gc/test_history_gc.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilth.base.logs import Log
from tilth.base.units import show_bytes
from tilth.catalog import PartsChangedError, PartsGoneError, ReplaceParts
from tilth.maintenance.gc.pending import PendingPartitions
from tilth.maintenance.gc.round import GcTable, Round, promised_ms
from tilth.maintenance.kinds import IoUsage, OpKind
from tilth.model.delta import Delta, by_file, deleted_rows
from tilth.model.part import Part, PartEvent

#: Events with which a part may lose its last row.
_DELETING_EVENTS = frozenset({"delete", "flush_deltas", "minor_delta"})
#: Parts hidden in one transaction.
HIDE_BATCH = 1_000

_log = Log("maintenance")


class DeletedPartGc:
    """`tilth.maintenance.gc.op.GcRoutine` for parts without rows."""

    kind = OpKind.DELETED_PART_GC
    io = IoUsage.HIGH

    def __init__(self, table: GcTable) -> None:
        self._table = table
        self._pending = PendingPartitions(table.watch)

    def due_ms(self) -> int:
        return self._pending.first_ms()

    def observe(self, event: PartEvent, partition: str) -> bool:
        if event.event not in _DELETING_EVENTS:
            return False
        self._pending.note(partition, event.at_ms + promised_ms(self._table.settings) + 1)
        return True

    def has_leftovers(self) -> bool:
        left = self._table.watch.leftovers
        return left is None or left.has_deltas

    def schedule(self, at_ms: int) -> None:
        self._pending.schedule(at_ms)

    def poll(self, now_ms: int) -> None:
        self._pending.answer(now_ms, self._with_deltas)

    def _with_deltas(self) -> set[str]:
        return {delta.partition for delta in self._table.catalog.parts.deltas(self._table.uuid)}

    def retained(self) -> int:
        return self._pending.retained()

    def about(self) -> str:
        return self.waits() or "a check is due"

    def waits(self) -> str:
        size = self.retained()
        return f"parts without rows, with {show_bytes(size)}, wait until their past is over" if size else ""

    def run(self, done: Round) -> str:
        self._pending.each(done, self._table, self._collect)
        return f"{done.moved} parts without rows hidden, {show_bytes(done.removed_bytes)}, {done.kept} stay"

    def _collect(self, done: Round, partition: str, now_ms: int) -> None:
        table = self._table
        found = self._without_rows(partition)
        limit = table.ancient_limit(done.settings, is_background=not done.is_command)
        ancient = [(part, newest) for part, newest in found if newest < limit.before_ts]
        young = [(part, newest) for part, newest in found if newest >= limit.before_ts]
        done.kept += len(young)
        if young and not done.reason:
            done.reason = f"{young[0][0].name}: its last rows were deleted after {limit.hold}"
        for first in range(0, len(ancient), HIDE_BATCH):
            self._hide(done, partition, ancient[first : first + HIDE_BATCH])
        self._pending.plan(partition, [(part.bytes, newest) for part, newest in young], now_ms, table.settings)

    def _without_rows(self, partition: str) -> list[tuple[Part, int]]:
        """Visible parts, segments not among them, all of whose rows are deleted, with the time of the last change."""
        parts = self._table.catalog.parts
        changes = by_file(parts.deltas(self._table.uuid, partition))
        if not changes:
            return []
        return [
            (part, _newest(changes[part.file.name]))
            for part in parts.visible(self._table.uuid, partition)
            if not part.is_segment
            and part.file.name in changes
            and deleted_rows(part.file.name, changes[part.file.name]) >= part.rows
        ]

    def _hide(self, done: Round, partition: str, parts: Sequence[tuple[Part, int]]) -> None:
        """Hide the parts that nothing works on; the others are left to what does."""
        watch = self._table.watch
        names = watch.reserved.reserve_free(str(part.name) for part, _ in parts)
        free = [(part, newest) for part, newest in parts if str(part.name) in names]
        if len(free) < len(parts):
            self._pending.note(partition, self._table.clock.now_ms() + int(self._table.settings.pause * 1000))
        try:
            if free:
                self._commit(free)
                done.moved += len(free)
                done.removed_bytes += sum(part.bytes for part, _ in free)
        except (PartsGoneError, PartsChangedError) as error:
            # They are checked again; the change brought no rows back.
            self._pending.note(partition, self._table.clock.now_ms() + int(self._table.settings.pause * 1000))
            done.reason = str(error)
        finally:
            watch.reserved.release(names)
            watch.is_woken = True

    def _commit(self, parts: Sequence[tuple[Part, int]]) -> None:
        table = self._table
        updates = [
            ReplaceParts(
                table=table.uuid,
                sources=(part.name,),
                written=None,
                seen=((part.file.name, newest),),
                event="remove_deleted",
                reason="all its rows were deleted long ago",
            )
            for part, newest in parts
        ]
        txn = table.commit("deleted_part_gc", "deleted_part_gc", updates)
        _log.info("deleted_parts_hidden", cause_id=str(txn), table=table.watch.name, parts=len(parts))


def _newest(deltas: Sequence[Delta]) -> int:
    return max(delta.change_ts for delta in deltas)
