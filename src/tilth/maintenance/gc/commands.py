"""The ops that collect what nobody needs in one table, and the commands about them.

Covers: wiring, SYSTEM GC, EXPLAIN GC. Does not cover: rounds (op.py), what they do (part_gc.py, log_gc.py,
history_gc.py, deleted_part_gc.py).

Tests: tests/unit/maintenance/gc/test_history_gc.py.
"""

from __future__ import annotations

from tilth.base.errors import NotFoundError
from tilth.maintenance.gc.deleted_part_gc import DeletedPartGc
from tilth.maintenance.gc.explain_gc import GcRow, explain_table
from tilth.maintenance.gc.history_gc import HistoryGc
from tilth.maintenance.gc.log_gc import LogGc
from tilth.maintenance.gc.op import GcOp
from tilth.maintenance.gc.part_gc import PartGc
from tilth.maintenance.gc.pending import PendingPartitions
from tilth.maintenance.gc.round import GcReport, GcTable, joined
from tilth.maintenance.gc.trash import TrashPhase
from tilth.maintenance.work.context import TableContext


class GcCommands:
    """Commands for the garbage of one table."""

    def __init__(self, context: TableContext) -> None:
        self._table = GcTable(context.server, context.watch)
        segments = PendingPartitions(context.watch)
        parts = PartGc(self._table, segments)
        log = LogGc(self._table, TrashPhase(self._table), parts, segments)
        self._parts, self._log = GcOp(parts, self._table), GcOp(log, self._table)
        self._history = GcOp(HistoryGc(self._table), self._table)
        self._deleted_parts = GcOp(DeletedPartGc(self._table), self._table)

    @property
    def ops(self) -> tuple[GcOp, ...]:
        """The ops, in the order in which they are registered."""
        return self._parts, self._log, self._history, self._deleted_parts

    def run_now(self, partition: str | None = None, *, is_forced: bool = False) -> GcReport:
        """A round of each kind over the table or one partition; `is_forced` takes the lifetimes for 0.

        Raises NotFoundError for a partition that is not there.
        """
        if partition is not None and partition not in self._table.catalog.parts.partitions(self._table.uuid):
            raise NotFoundError("no such partition", table=self._table.watch.name, partition=partition)
        # Segments first: what hid them is ended then. What changed rows of parts last, when they are gone.
        order = (self._deleted_parts, self._log, self._parts, self._history)
        return joined(op.run_now(partition, is_forced=is_forced) for op in order)

    def explain(self) -> list[GcRow]:
        """Return what the table has beside its visible rows, what retains it and until when; then what is visible."""
        return explain_table(self._table)
