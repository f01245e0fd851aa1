"""Merges and flushes as tasks: what goes to the worker, what runs there, what comes back. Knows no catalog.

Covers: the messages, which both share, and the runners. Does not cover: choice and commit (merge/op.py, flush/op.py),
the bytes (tilth.storage).
Always holds: a file is on the disk before its name is reported, its row map beside it; what was deleted or changed
in a part before is so in what becomes of it.

Tests: tests/integration/maintenance/test_maintenance_spark.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from tilth.model.delta import PartSource
from tilth.model.part import Bound, WrittenPart
from tilth.model.task import Cost
from tilth.storage import (
    CutPlan,
    Expiry,
    FlushResult,
    KeyRange,
    MergeResult,
    NewPart,
    TableLayout,
    flush_segments,
    merge_parts,
    plan_ranges,
    ranges_of,
)
from tilth.warehouse import Runner, TaskContext, TaskResult, run_in_task, run_in_tasks


class MergeTask(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a worker needs to make one part of several, or of segments, of one partition; or several key
    ranges.
    """

    layout: TableLayout
    #: Sources in the order of the parts; a merge has no segments, a flush nothing else.
    sources: tuple[PartSource, ...]
    partition: str
    values: tuple[Bound, ...]
    txn: int
    #: Rows that are left out.
    expired: Expiry | None = None
    #: Number of key ranges into which the merge is cut, at most: with more than one a Spark task each, whose number is
    #: that of the range.
    ranges: int = 1


class MergeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's report of a merge or flush."""

    #: The part of each key range, of one where it was not cut; None: no row of it was left.
    written: tuple[WrittenPart | None, ...]
    rows_in: int
    #: Bytes that the tasks read.
    bytes_in: int
    #: Left out because their time had passed.
    rows_expired: int = 0
    #: Left out because they were deleted before.
    rows_deleted: int = 0
    #: The most bytes that one task read.
    task_bytes_max: int = 0
    #: Reason why there are fewer ranges than were wanted; empty if there are not.
    why_fewer: str = ""

    @property
    def made(self) -> tuple[WrittenPart, ...]:
        """The parts that have rows."""
        return tuple(each for each in self.written if each is not None)


def merge_runner() -> Runner:
    """The runner of TaskKind.MERGE: one Spark task reads, merges, writes; the file is on the disk when it returns.

    A merge that is cut has a task before, which draws samples of the keys, and one for each range.
    """
    return _merge


def flush_runner() -> Runner:
    """The runner of TaskKind.FLUSH: one Spark task reads segments, sorts, writes; else like `merge_runner`."""
    return _flush


def _merge(context: TaskContext) -> TaskResult:
    task = msgspec.msgpack.decode(context.spec.payload, type=MergeTask)
    plan = CutPlan(cuts=())
    if task.ranges > 1:
        plan = run_in_task(context.session, partial(_plan, task), CutPlan)
        context.raise_if_cancelled()
    if plan.cuts:
        merge = partial(_merge_range, task, ranges_of(plan))
        results = run_in_tasks(context.session, merge, MergeResult, tasks=len(plan.cuts) + 1)
    else:
        whole = partial(merge_parts, _new_part(task), task.sources, expired=task.expired)
        results = [run_in_task(context.session, whole, MergeResult)]
    return _made(
        MergeFacts(
            written=tuple(result.written for result in results),
            rows_in=sum(result.rows_in for result in results),
            bytes_in=sum(result.bytes_in for result in results),
            rows_expired=sum(result.rows_expired for result in results),
            rows_deleted=sum(result.rows_deleted for result in results),
            task_bytes_max=max(result.bytes_in for result in results),
            why_fewer=plan.why_fewer,
        )
    )


def _plan(plan: MergeTask, *, task: int, attempt: int) -> CutPlan:
    return plan_ranges(plan.layout, plan.sources, plan.ranges)


def _merge_range(merge: MergeTask, ranges: Sequence[KeyRange], *, task: int, attempt: int) -> MergeResult:
    return merge_parts(
        _new_part(merge), merge.sources, task=task, attempt=attempt, expired=merge.expired, within=ranges[task]
    )


def _flush(context: TaskContext) -> TaskResult:
    task = msgspec.msgpack.decode(context.spec.payload, type=MergeTask)
    flush = partial(flush_segments, _new_part(task), task.sources)
    result = run_in_task(context.session, flush, FlushResult)
    return _made(
        MergeFacts(
            written=(result.written,),
            rows_in=result.rows_in,
            bytes_in=result.bytes_in,
            rows_deleted=result.rows_deleted,
            task_bytes_max=result.bytes_in,
        )
    )


def _new_part(task: MergeTask) -> NewPart:
    return NewPart(layout=task.layout, partition=task.partition, values=task.values, txn=task.txn)


def _made(facts: MergeFacts) -> TaskResult:
    cost = Cost(input_bytes=facts.bytes_in, output_bytes=sum(part.file.size for part in facts.made))
    return TaskResult(payload=msgspec.msgpack.encode(facts), actual=cost)
