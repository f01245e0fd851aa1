"""LOG_GC: row segments that were flushed go when no allowed read needs them any more.

Rule: docs/policies/log-gc.md.

Covers: which segments go when. Does not cover: marks and drop ranges over them, and segments that a drop hid, which
UNDROP may bring back (part_gc.py).
Always holds: a segment that is hidden by nothing stays, for its rows are nowhere else; one that a reader, a running
transaction or an allowed read of the past may need stays too. What a flush replaced never comes back, so it does not
wait in the trash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tilth.base.errors import TilthError
from tilth.base.failpoints import hit
from tilth.base.units import show_bytes
from tilth.catalog import visibility
from tilth.maintenance.gc.pending import PendingPartitions
from tilth.maintenance.gc.policy import GcEntry, judge_ended
from tilth.maintenance.gc.round import GcTable, Round, promised_ms
from tilth.maintenance.gc.trash import TrashPhase
from tilth.maintenance.kinds import IoUsage, OpKind
from tilth.model.part import Entry, Part, PartEvent


class Marks(Protocol):
    """Collector of the marks over segments, and of those segments that stay in the trash for a while."""

    def segments_moved(self, partition: str, left: Sequence[tuple[Part, int]]) -> None:
        """Note that segments have left the partition; these, with their ends, wait in the trash."""


class LogGc:
    """`tilth.maintenance.gc.op.GcRoutine` for flushed segments."""

    kind = OpKind.LOG_GC
    io = IoUsage.LOW

    def __init__(self, table: GcTable, trash: TrashPhase, marks: Marks, segments: PendingPartitions) -> None:
        """`segments`: where segments wait that have ended; PART_GC sees them, too."""
        self._table = table
        self._trash = trash
        self._marks = marks
        self._pending = segments

    def due_ms(self) -> int:
        return self._pending.first_ms()

    def observe(self, event: PartEvent, partition: str) -> bool:
        # Drops and mutations end segments too, which is not as common: PART_GC reports them.
        if event.event != "flush":
            return False
        self._pending.expect(partition)
        self._pending.note(partition, event.at_ms + promised_ms(self._table.settings) + 1)
        return True

    def has_leftovers(self) -> bool:
        """Return False: PART_GC finds them."""
        return False

    def schedule(self, at_ms: int) -> None:
        """Schedule partitions where segments are known to wait; PART_GC reads all others and reports what it finds."""
        for partition in self._pending.waiting():
            self._pending.note(partition, at_ms)

    def poll(self, now_ms: int) -> None:
        """Do nothing: pending partitions are known."""

    def retained(self) -> int:
        return self._pending.retained()

    def about(self) -> str:
        return self.waits() or "a check is due"

    def waits(self) -> str:
        return self._pending.waits("flushed segments{} wait until nothing needs them")

    def run(self, done: Round) -> str:
        self._pending.each(done, self._table, self._collect)
        return f"{done.removed} flushed segments removed, {show_bytes(done.removed_bytes)}, {done.kept} stay"

    def _collect(self, done: Round, partition: str, now_ms: int) -> None:
        table = self._table
        entries = table.catalog.parts.entries(table.uuid, partition)
        ended = {str(part.name): (part, end_ts) for part, end_ts in ended_segments(entries)}
        limit = table.ancient_limit(done.settings, is_background=not done.is_command)
        snapshots = sorted(lease.snapshot_ts for lease in table.leases(now_ms)) if ended else []
        verdicts = [
            judge_ended(GcEntry(name=name, commit_ts=part.commit_ts, end_ts=end), limit, snapshots)
            for name, (part, end) in ended.items()
        ]
        going = [ended[verdict.name] for verdict in verdicts if verdict.goes]
        staying = [verdict for verdict in verdicts if not verdict.goes]
        done.kept += len(staying)
        if staying and not done.reason:
            done.reason = f"{staying[0].name}: {staying[0].reason}"
        left: list[tuple[Part, int]] = []
        for first in range(0, len(going), done.settings.move_batch):
            left += self._move(done, partition, going[first : first + done.settings.move_batch], now_ms)
        if going:
            self._marks.segments_moved(partition, left)
        self._plan(partition, [ended[verdict.name] for verdict in staying], now_ms)

    def _move(
        self, done: Round, partition: str, going: Sequence[tuple[Part, int]], now_ms: int
    ) -> list[tuple[Part, int]]:
        """Through the trash to nothing; returns what has to stay in the trash."""
        table = self._table
        table.forget_versions([end_ts for _, end_ts in going])
        hit("log_gc.before_trash")
        moves: list[tuple[Entry, int]] = list(going)
        fence = table.table_leases.fence(table.uuid)
        done.moved += table.catalog.parts.move_to_trash(table.uuid, moves, fence=fence, now_ms=now_ms)
        hit("log_gc.after_trash")
        items = table.catalog.trash.find(table.uuid, [part.name for part, _ in going])
        try:
            removed = self._trash.remove_now(done, [item for item in items if not item.item.is_dropped])
        except TilthError:
            # They have left the table whatever becomes of their files.
            self._marks.segments_moved(partition, going)
            raise
        keys = {item.key for item in removed}
        # An UNDROP may need the segments that a drop hid.
        return [(item.item.part, item.item.end_ts) for item in items if item.key not in keys]

    def _plan(self, partition: str, ended: Sequence[tuple[Part, int]], now_ms: int) -> None:
        """Note when the partition is checked again for these segments."""
        self._pending.plan(partition, [(part.bytes, end) for part, end in ended], now_ms, self._table.settings)


def ended_segments(entries: Sequence[Entry]) -> list[tuple[Part, int]]:
    """The segments that no reader at or after the time beside them needs."""
    return [
        (entry, end_ts)
        for entry, end_ts in visibility.end_times(entries)
        if isinstance(entry, Part) and entry.is_segment
    ]
