"""The ops of one table: each kind is registered here, with its commands.

Covers: wiring. Does not cover: what each op does (the folders of their kinds), which tables there are (registry.py).

Tests: tests/unit/maintenance/merge/test_op.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilth.maintenance.copies.op import CopyCommands
from tilth.maintenance.deltas.op import delta_ops
from tilth.maintenance.flush.commands import FlushCommands
from tilth.maintenance.gc.commands import GcCommands
from tilth.maintenance.merge.commands import MergeCommands
from tilth.maintenance.mutate.commands import MutateCommands
from tilth.maintenance.table.watch import TableWatch
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.op import Op
from tilth.model.service import ServiceKind


@dataclass(frozen=True, slots=True, eq=False)
class TableCommands:
    """Commands of people for one table's ops, beside what all ops answer."""

    merges: MergeCommands
    flushes: FlushCommands
    mutations: MutateCommands
    garbage: GcCommands
    copies: CopyCommands


@dataclass(frozen=True, slots=True, eq=False)
class TableOps:
    """The registered ops of one table."""

    watch: TableWatch
    ops: tuple[Op, ...]
    #: None only where a test made the ops.
    commands: TableCommands | None = None

    def command(self) -> TableCommands:
        assert self.commands is not None
        return self.commands

    def cancel(self) -> None:
        """Cancel the ops: the table is gone or the server stops."""
        for op in self.ops:
            op.cancel()

    def notice_all(self) -> None:
        """Let the ops refresh everything."""
        for op in self.ops:
            op.notice_all()

    def by_service(self) -> list[list[Op]]:
        found: dict[ServiceKind, list[Op]] = {}
        for op in self.ops:
            found.setdefault(op.kind.traits.service, []).append(op)
        return list(found.values())


def ops_of(context: TableContext) -> TableOps:
    merges, mutations, flushes = MergeCommands(context), MutateCommands(context), FlushCommands(context)
    garbage, copies = GcCommands(context), CopyCommands(context)
    return TableOps(
        context.watch,
        (merges.op, mutations.op, flushes.op, *delta_ops(context), *garbage.ops, *copies.ops),
        TableCommands(merges, flushes, mutations, garbage, copies),
    )
