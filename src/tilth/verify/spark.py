"""Reads a table's files in Spark's tasks, for checks of tables that are too large for the server.

Covers: orders in tasks, keys by an aggregation of Spark. Does not cover: what a file is compared with (reading.py), the
findings (files.py).
Always holds: the answers are those of `ReadsHere`, in the same order; a task holds the keys of one block of rows.

Tests: tests/integration/sql/test_verify_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f

from tilth.base.errors import TilthError
from tilth.model.answer import pack, unpack
from tilth.model.delta import PartSource
from tilth.model.task import Cost
from tilth.storage import TableLayout, layout_of, live_hashes
from tilth.storage.read.scan_paths import split_by_cost
from tilth.verify.reading import DeletesOrder, FilesOrder, KeysOrder, Order, ReadsHere, Wrong
from tilth.warehouse import TaskContext, TaskResult, run_tasks

_HASHES = "scope int, hash bigint, error binary"


def read_in_tasks(context: TaskContext, order: bytes) -> TaskResult:
    """Carry out an order; the payload of the result is its answer."""
    given: Order = msgspec.msgpack.decode(order, type=Order)
    answer: list[Wrong] | int
    try:
        answer = _repeated(context, given) if isinstance(given, KeysOrder) else _wrong(context, given)
    finally:
        context.raise_if_cancelled()
    return TaskResult(payload=msgspec.msgpack.encode(answer), actual=Cost(input_bytes=given.size))


def _wrong(context: TaskContext, order: FilesOrder | DeletesOrder) -> list[Wrong]:
    orders = list(_pieces(order, context.fit().tasks))
    frame = context.session.range(0, len(orders), 1, max(1, len(orders)))
    packed = [msgspec.msgpack.encode(each) for each in orders]
    return [wrong for found in run_tasks(frame, partial(_read, packed), list[Wrong]) for wrong in found]


def _pieces(order: FilesOrder | DeletesOrder, tasks: int) -> Iterator[FilesOrder | DeletesOrder]:
    """Yield orders that are the whole order together, one behind the other."""
    if isinstance(order, DeletesOrder):
        for chunk in split_by_cost([source.bytes for source in order.sources], tasks=tasks):
            yield DeletesOrder(folder=order.folder, sources=order.sources[chunk.start : chunk.stop])
        return
    sizes = [*(part.source.file.size for part in order.parts), *(delta.size for delta in order.deltas)]
    parts = len(order.parts)
    for chunk in split_by_cost(sizes, tasks=tasks):
        yield FilesOrder(
            folder=order.folder,
            parts=order.parts[chunk.start : chunk.stop],
            deltas=order.deltas[max(0, chunk.start - parts) : max(0, chunk.stop - parts)],
        )


def _read(orders: Sequence[bytes], rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> list[Wrong]:
    for _ in rows:
        pass
    return ReadsHere().wrong(msgspec.msgpack.decode(orders[task], type=FilesOrder | DeletesOrder))


def _repeated(context: TaskContext, order: KeysOrder) -> int:
    sources = [(number, source) for number, scope in enumerate(order.scopes) for source in scope]
    chunks = split_by_cost([source.bytes for _, source in sources], tasks=context.fit().tasks)
    if not chunks:
        return 0
    packed = [msgspec.msgpack.encode(sources[chunk.start : chunk.stop]) for chunk in chunks]
    reader = _HashReader(layout_of(order.table, order.root), packed)
    frame = context.session.range(0, len(packed), 1, len(packed)).mapInArrow(reader, _HASHES)
    keys = frame.groupBy("scope", "hash").agg(f.count("*").alias("rows"), f.max("error").alias("error"))
    counted = f.when(f.col("hash").isNotNull(), f.col("rows") - 1).otherwise(0)
    [(repeated, error)] = keys.agg(f.sum(counted), f.max("error")).collect()
    if error is not None:
        unpack(bytes(error), type(None), task=0)
    return int(repeated or 0)


class _HashReader:
    """Runs in Spark's tasks: numbers of tasks in, hashes of keys out; an error as a row of its own."""

    def __init__(self, layout: TableLayout, tasks: Sequence[bytes]) -> None:
        self._layout = layout
        self._tasks = tasks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in [number for batch in batches for number in batch.column(0).to_pylist()]:
            try:
                for scope, source in msgspec.msgpack.decode(self._tasks[number], type=list[tuple[int, PartSource]]):
                    for hashes in live_hashes(self._layout, source):
                        yield _batch(pa.array(np.full(len(hashes), scope, np.int32)), hashes.view(np.int64), None)
            except TilthError as error:
                yield _batch(pa.array([0], pa.int32()), None, pack(error))


def _batch(
    scopes: pa.Array, hashes: np.ndarray[tuple[int], np.dtype[np.int64]] | None, error: bytes | None
) -> pa.RecordBatch:
    count = len(scopes)
    found = pa.nulls(count, pa.int64()) if hashes is None else pa.array(hashes)
    return pa.RecordBatch.from_arrays(
        [scopes, found, pa.array([error] * count, pa.binary())], names=["scope", "hash", "error"]
    )
