"""Merges and flushes as tasks: what goes to the worker, what runs there, what comes back. Knows no catalog.

Covers: the messages, which both share, and the runners. Does not cover: choice and commit (merge/op.py, flush/op.py),
the bytes (tilth.storage).
Always holds: a file is on the disk before its name is reported, its row map beside it; what was deleted or changed
in a part before is so in what becomes of it.

Tests: tests/integration/maintenance/test_maintenance_spark.py.
"""

from __future__ import annotations

from functools import partial

import msgspec

from tilth.model.delta import PartSource
from tilth.model.part import Bound, WrittenPart
from tilth.model.task import Cost
from tilth.storage import Expiry, FlushResult, MergeResult, NewPart, TableLayout, flush_segments, merge_parts
from tilth.warehouse import Runner, TaskContext, TaskResult, run_in_task


class MergeTask(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a worker needs to make one part of several, or of segments, of one partition."""

    layout: TableLayout
    #: Sources in the order of the parts; a merge has no segments, a flush nothing else.
    sources: tuple[PartSource, ...]
    partition: str
    values: tuple[Bound, ...]
    txn: int
    #: Rows that are left out.
    expired: Expiry | None = None


class MergeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's report of a merge or flush."""

    #: None: no row was left.
    written: WrittenPart | None
    rows_in: int
    bytes_in: int
    #: Left out because their time had passed.
    rows_expired: int = 0
    #: Left out because they were deleted before.
    rows_deleted: int = 0


def merge_runner() -> Runner:
    """The runner of TaskKind.MERGE: one Spark task reads, merges, writes; the file is on the disk when it returns."""
    return _merge


def flush_runner() -> Runner:
    """The runner of TaskKind.FLUSH: one Spark task reads segments, sorts, writes; else like `merge_runner`."""
    return _flush


def _merge(context: TaskContext) -> TaskResult:
    task = msgspec.msgpack.decode(context.spec.payload, type=MergeTask)
    merge = partial(merge_parts, _new_part(task), task.sources, expired=task.expired)
    result = run_in_task(context.session, merge, MergeResult)
    return _made(
        MergeFacts(
            written=result.written,
            rows_in=result.rows_in,
            bytes_in=result.bytes_in,
            rows_expired=result.rows_expired,
            rows_deleted=result.rows_deleted,
        )
    )


def _flush(context: TaskContext) -> TaskResult:
    task = msgspec.msgpack.decode(context.spec.payload, type=MergeTask)
    flush = partial(flush_segments, _new_part(task), task.sources)
    result = run_in_task(context.session, flush, FlushResult)
    return _made(
        MergeFacts(
            written=result.written,
            rows_in=result.rows_in,
            bytes_in=result.bytes_in,
            rows_deleted=result.rows_deleted,
        )
    )


def _new_part(task: MergeTask) -> NewPart:
    return NewPart(layout=task.layout, partition=task.partition, values=task.values, txn=task.txn)


def _made(facts: MergeFacts) -> TaskResult:
    output_bytes = 0 if facts.written is None else facts.written.file.size
    cost = Cost(input_bytes=facts.bytes_in, output_bytes=output_bytes)
    return TaskResult(payload=msgspec.msgpack.encode(facts), actual=cost)
