"""The merge as a task: what goes to the worker, what runs there, what comes back. What is shipped knows no catalog."""

from __future__ import annotations

from functools import partial

import msgspec

from tilth.model.part import Bound, DataFile, WrittenPart
from tilth.model.task import Cost
from tilth.storage import TableLayout, merge_parts
from tilth.warehouse import Runner, TaskContext, TaskResult, run_in_task


class MergeTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker must know to merge parts of one partition."""

    layout: TableLayout
    #: In the order of the parts.
    files: tuple[DataFile, ...]
    partition: str
    values: tuple[Bound, ...]
    txn: int


class MergeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker reports of a merge that it did."""

    #: None: no row was left.
    written: WrittenPart | None
    rows_in: int
    bytes_in: int


_TASKS = msgspec.msgpack.Decoder(MergeTask)
_FACTS = msgspec.msgpack.Decoder(MergeFacts)


def encode_task(task: MergeTask) -> bytes:
    return msgspec.msgpack.encode(task)


def decode_task(payload: bytes) -> MergeTask:
    return _TASKS.decode(payload)


def encode_facts(facts: MergeFacts) -> bytes:
    return msgspec.msgpack.encode(facts)


def decode_facts(payload: bytes) -> MergeFacts:
    return _FACTS.decode(payload)


def merge_runner() -> Runner:
    """The runner of TaskKind.MERGE: one Spark task reads, merges, writes; the file is on the disk when it returns."""
    return _run


def _run(context: TaskContext) -> TaskResult:
    task = decode_task(context.spec.payload)
    result = run_in_task(
        context.session,
        partial(merge_parts, task.layout, task.files, task.partition, task.values, txn=task.txn),
    )
    facts = MergeFacts(written=result.written, rows_in=result.rows_in, bytes_in=result.bytes_in)
    output_bytes = 0 if result.written is None else result.written.file.size
    return TaskResult(payload=encode_facts(facts), actual=Cost(input_bytes=result.bytes_in, output_bytes=output_bytes))
