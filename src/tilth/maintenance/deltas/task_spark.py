"""Compactions of deltas as tasks: what goes to the worker, what runs there, what comes back. Knows no catalog.

Covers: the messages and their runner. Does not cover: choice and commit (op.py), the bytes (tilth.storage).
Always holds: a file is on the disk before its name is reported.

Tests: tests/integration/maintenance/test_deltas_spark.py.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import assert_never

import msgspec

from tilth.model.delta import Delta, PartSource, WrittenDelta
from tilth.model.task import Cost
from tilth.storage import DeltaWriter, TableLayout, compact_changes, compact_major, compact_minor
from tilth.warehouse import Runner, TaskContext, TaskResult, run_in_tasks


class DeltaWay(StrEnum):
    """The ways to compact deltas."""

    #: Change segments become deltas of their parts.
    FLUSH = "flush"
    #: The deltas of one part become one of each kind.
    MINOR = "minor"
    #: The updates of one part become columns.
    MAJOR = "major"


class DeltaTask(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a worker needs to compact deltas of one partition."""

    #: Layout with the table's current columns; parts may have others.
    layout: TableLayout
    way: DeltaWay
    partition: str
    #: Deltas in the order in which they apply.
    sources: tuple[Delta, ...]
    #: The parts, each with those of the sources that change it; of MINOR and MAJOR one.
    targets: tuple[PartSource, ...]
    #: Names of data files of those targets whose changes become a change segment again.
    kept: tuple[str, ...] = ()
    #: Ids of the columns that MAJOR writes anew, in shares: a Spark task and a delta each.
    columns: tuple[tuple[int, ...], ...] = ()
    txn: int


class DeltaFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's report of a compaction."""

    written: tuple[WrittenDelta, ...]
    bytes_in: int


def delta_runner() -> Runner:
    """Runner of TaskKind.DELTA: one Spark task, or one for each share of columns, reads, folds, writes; the files are
    on the disk when it returns.
    """
    return _compact


def _compact(context: TaskContext) -> TaskResult:
    task = msgspec.msgpack.decode(context.spec.payload, type=DeltaTask)
    bytes_in = sum(delta.bytes for delta in task.sources)
    if task.way is DeltaWay.MAJOR:
        bytes_in = task.targets[0].bytes
    tasks = max(1, len(task.columns))
    found = run_in_tasks(context.session, partial(_write, task), tuple[WrittenDelta, ...], tasks=tasks)
    written = tuple(delta for each in found for delta in each)
    facts = DeltaFacts(written=written, bytes_in=bytes_in)
    cost = Cost(input_bytes=bytes_in, output_bytes=sum(delta.file.size for delta in written))
    return TaskResult(payload=msgspec.msgpack.encode(facts), actual=cost)


def _write(work: DeltaTask, *, task: int, attempt: int) -> tuple[WrittenDelta, ...]:
    with DeltaWriter(work.layout, txn=work.txn, task=task, attempt=attempt) as out:
        match work.way:
            case DeltaWay.FLUSH:
                return compact_changes(out, work.partition, work.sources, work.targets, kept=frozenset(work.kept))
            case DeltaWay.MINOR:
                return compact_minor(out, work.targets[0])
            case DeltaWay.MAJOR:
                return compact_major(out, work.targets[0], work.columns[task])
            case _:
                assert_never(work.way)
