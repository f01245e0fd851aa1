"""The ops of one table that compact deltas and collect what is not needed: how they are made and what they share.

Covers: wiring. Does not cover: what each does (flush_deltas.py, minor_delta.py, major_delta.py, part_gc.py, log_gc.py,
history_gc.py, deleted_part_gc.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilth.base.clock import Clock
from tilth.base.rand import Rng
from tilth.catalog import Catalog
from tilth.maintenance.cleaner import Cleaner
from tilth.maintenance.op import Op, OpKind
from tilth.maintenance.ops.deleted_part_gc import DeletedPartGc
from tilth.maintenance.ops.delta_look import DeltaLook
from tilth.maintenance.ops.delta_op import ChooseDeltas, DeltaOp
from tilth.maintenance.ops.flush_deltas import choose_flush
from tilth.maintenance.ops.gc_op import GcDuty, GcOp
from tilth.maintenance.ops.gc_round import GcTable, raised
from tilth.maintenance.ops.gc_trash import TrashPhase
from tilth.maintenance.ops.history_gc import HistoryGc
from tilth.maintenance.ops.log_gc import LogGc
from tilth.maintenance.ops.major_delta import choose_major
from tilth.maintenance.ops.minor_delta import choose_minor
from tilth.maintenance.ops.part_gc import PartGcOp
from tilth.maintenance.owner import Owner
from tilth.maintenance.settings import ManagerSettings
from tilth.maintenance.tally import Tally
from tilth.maintenance.watch import TableWatch
from tilth.warehouse import Dispatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the manager has for all ops of all tables."""

    clock: Clock
    catalog: Catalog
    dispatcher: Dispatcher
    root: str
    rng: Rng
    settings: ManagerSettings
    owner: Owner
    cleaner: Cleaner
    tally: Tally
    #: How many tables there are.
    table_count: Callable[[], int]
    #: Percent of the memory in use where that presses, else 0.
    used_percent: Callable[[], float]


def delta_ops(
    around: Surroundings, watch: TableWatch, told: Callable[[OpKind], Callable[[str, str], None]]
) -> list[DeltaOp]:
    """`told(kind)(partition, reason)` takes refusals for the record."""
    settings = around.settings
    look = DeltaLook(around.clock, around.catalog, watch)
    choices: dict[OpKind, ChooseDeltas] = {
        OpKind.FLUSH_DELTAS: lambda partitions, busy, now_ms: choose_flush(
            partitions, busy=busy, now_ms=now_ms, settings=settings.flush, used_percent=around.used_percent()
        ),
        OpKind.MINOR_DELTA: lambda partitions, busy, _: choose_minor(partitions, busy=busy, settings=settings.deltas),
        OpKind.MAJOR_DELTA: lambda partitions, busy, _: choose_major(partitions, busy=busy, settings=settings.deltas),
    }
    return [
        DeltaOp(
            around.clock,
            around.catalog,
            around.dispatcher,
            around.root,
            kind=kind,
            choose=choose,
            switched_off_by=settings.switched_off_by(kind),
            look=look,
            watch=watch,
            owner=around.owner,
            cleaner=around.cleaner,
            told=told(kind),
            tally=around.tally,
        )
        for kind, choose in choices.items()
    ]


def gc_ops(around: Surroundings, watch: TableWatch) -> list[Op]:
    """Those of parts, of flushed segments, of history and of parts without rows."""
    parts = PartGcOp(
        around.clock,
        around.catalog,
        around.root,
        around.rng,
        watch=watch,
        owner=around.owner,
        tally=around.tally,
        table_count=around.table_count,
    )
    of_log, of_history, of_parts = (_table(around, watch) for _ in range(3))
    log = LogGc(of_log, TrashPhase(of_log), parts)
    parts.hand_segments_to(log.found)
    duties: list[tuple[GcDuty, GcTable]] = [
        (log, of_log),
        (HistoryGc(of_history), of_history),
        (DeletedPartGc(of_parts), of_parts),
    ]
    others = [
        GcOp(
            around.clock,
            duty,
            table,
            switched_off_by=around.settings.switched_off_by(duty.kind),
            tally=around.tally,
            table_count=around.table_count,
        )
        for duty, table in duties
    ]
    return [parts, *others]


def _table(around: Surroundings, watch: TableWatch) -> GcTable:
    return GcTable(
        clock=around.clock,
        catalog=around.catalog,
        root=around.root,
        rng=around.rng,
        watch=watch,
        owner=around.owner,
        failed=raised,
    )
