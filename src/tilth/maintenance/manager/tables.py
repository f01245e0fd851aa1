"""The ops of one table: each kind is registered here, and what commands ask of them.

Covers: wiring. Does not cover: what each op does (the folders of their kinds), which tables there are (registry.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from tilth.maintenance.deltas.op import delta_ops
from tilth.maintenance.flush.commands import FlushCommands
from tilth.maintenance.gc.deleted_part_gc import DeletedPartGc
from tilth.maintenance.gc.history_gc import HistoryGc
from tilth.maintenance.gc.log_gc import LogGc
from tilth.maintenance.gc.op import GcDuty, GcOp
from tilth.maintenance.gc.part_gc import PartGcOp
from tilth.maintenance.gc.round import GcTable, joined, raised
from tilth.maintenance.gc.trash import TrashPhase
from tilth.maintenance.merge.commands import MergeCommands
from tilth.maintenance.mutate.commands import MutateCommands
from tilth.maintenance.op import Op, OpKind
from tilth.maintenance.stats import GcReport
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.watch import TableWatch
from tilth.model.service import ServiceKind

OpT = TypeVar("OpT", bound=Op)

#: Segments first: what hid them is ended then. What changed rows of parts last, when they are gone.
_GC_ORDER = (OpKind.DELETED_PART_GC, OpKind.LOG_GC, OpKind.PART_GC, OpKind.HISTORY_GC)


@dataclass(frozen=True, slots=True, eq=False)
class TableCommands:
    """Commands of people for one table's ops, beside what all ops answer."""

    merges: MergeCommands
    flushes: FlushCommands
    mutations: MutateCommands


@dataclass(frozen=True, slots=True, eq=False)
class TableOps:
    """The registered ops of one table."""

    watch: TableWatch
    ops: tuple[Op, ...]
    #: None only where a test made the ops.
    commands: TableCommands | None = None

    def op(self, kind: type[OpT]) -> OpT:
        """Return the op of this class. Every table has one of each."""
        return next(op for op in self.ops if isinstance(op, kind))

    def command(self) -> TableCommands:
        assert self.commands is not None
        return self.commands

    def by_service(self) -> list[list[Op]]:
        found: dict[ServiceKind, list[Op]] = {}
        for op in self.ops:
            found.setdefault(op.service, []).append(op)
        return list(found.values())

    def gc_now(self, partition: str | None, *, is_forced: bool) -> GcReport:
        """Run a round of each kind of collecting; `is_forced` takes the lifetimes for 0."""
        found = {op.kind: op for op in self.ops if isinstance(op, GcOp | PartGcOp)}
        return joined(found[kind].run_now(partition, is_forced=is_forced) for kind in _GC_ORDER if kind in found)


def ops_of(context: TableContext) -> TableOps:
    merges, mutations, flushes = MergeCommands(context), MutateCommands(context), FlushCommands(context)
    return TableOps(
        context.watch,
        (merges.op, mutations.op, flushes.op, *delta_ops(context), *_gc_ops(context)),
        TableCommands(merges, flushes, mutations),
    )


def _gc_ops(context: TableContext) -> list[Op]:
    """Return the ops that collect parts, flushed segments, history and parts without rows."""
    parts = PartGcOp(context)
    of_log, of_history, of_parts = (GcTable(context=context, failed=raised) for _ in range(3))
    log = LogGc(of_log, TrashPhase(of_log), parts)
    parts.hand_segments_to(log.found)
    duties: list[tuple[GcDuty, GcTable]] = [
        (log, of_log),
        (HistoryGc(of_history), of_history),
        (DeletedPartGc(of_parts), of_parts),
    ]
    return [parts, *(GcOp(duty, table) for duty, table in duties)]
