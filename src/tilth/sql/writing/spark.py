"""Writes the rows of a DataFrame to files in the tasks of one Spark job, and brings back the facts of what was written.

Covers: holding rows up to a bound, the way of facts and errors to the driver. Does not cover: the files.
Always holds: what a task holds in memory is bounded; the error of a task keeps its kind and its facts.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext as SparkTask
from pyspark.sql import DataFrame

from tilth.base.errors import TilthError

#: Bytes of rows that a task holds before it writes them.
BUFFER_BYTES = 256 * 1024 * 1024
_FACTS = "facts binary"

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class WriteRows(Protocol[T_co]):
    """Writes rows to files named after the task and its attempt, numbered from `first_n` on. Must pickle."""

    def __call__(self, rows: pa.Table, *, task: int, attempt: int, first_n: int) -> Sequence[T_co]: ...


def written_in_tasks(rows: DataFrame, write: WriteRows[T], check: Callable[[], None]) -> list[T]:
    """What `write` returned for all rows; raises the first TilthError of a task, and Spark's own errors.

    `check` raises when the work was cancelled.
    """
    # PySpark would look for a field where a column's name has a dot.
    numbered = rows.toDF(*map(str, range(len(rows.columns))))
    facts = numbered.mapInArrow(_TaskWriter(write, rows.columns), _FACTS).collect()
    check()
    written: list[T] = []
    for (fact,) in facts:
        outcome = pickle.loads(fact)
        if isinstance(outcome, TilthError):
            raise outcome
        written += outcome
    return written


class _TaskWriter(Generic[T]):
    """Runs in Spark's tasks: rows in, facts of the files out."""

    def __init__(self, write: WriteRows[T], names: Sequence[str]) -> None:
        self._write = write
        self._names = list(names)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            outcome: object = self._write_all(batches)
        except TilthError as error:
            # As a row, it keeps its kind and its facts; Spark would make text of it.
            outcome = error
        yield pa.record_batch([pa.array([pickle.dumps(outcome)], pa.binary())], names=["facts"])

    def _write_all(self, batches: Iterator[pa.RecordBatch]) -> list[T]:
        written: list[T] = []
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size >= BUFFER_BYTES:
                written += self._write_held(held, len(written))
                held, size = [], 0
        return written + (self._write_held(held, len(written)) if held else [])

    def _write_held(self, held: Sequence[pa.RecordBatch], first_n: int) -> list[T]:
        place = SparkTask.get()
        assert place is not None
        rows = pa.Table.from_batches(held).rename_columns(self._names)
        return list(self._write(rows, task=place.partitionId(), attempt=place.attemptNumber(), first_n=first_n))
