"""Writes the rows of a DataFrame to files in the tasks of one Spark job.

Covers: holding rows up to a bound. Does not cover: the files, how facts come back (warehouse/session/spark.py).
Always holds: what a task holds in memory is bounded; files are written, nothing is committed here.

Tests: tests/integration/sql/test_sql_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from tilth.storage import BUFFER_BYTES, stretches
from tilth.warehouse import run_tasks

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class WriteRows(Protocol[T_co]):
    """Writes rows to files named after the task and its attempt, numbered from `first_n` on. It must pickle: it goes to
    the tasks.
    """

    def __call__(self, rows: pa.Table, *, task: int, attempt: int, first_n: int) -> Sequence[T_co]: ...


def written_in_tasks(rows: DataFrame, write: WriteRows[T], check: Callable[[], None], answer: type[list[T]]) -> list[T]:
    """Return what `write` returned for all rows; raises the first TilthError of a task, and Spark's own errors.

    `check` raises when the work was cancelled; `answer`: the type of what `write` returns, as a list.
    """
    try:
        answers = run_tasks(rows, partial(_write_all, write), answer)
    finally:
        check()
    return [fact for facts in answers for fact in facts]


def _write_all(write: WriteRows[T], rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> list[T]:
    written: list[T] = []
    for held in stretches(rows, bytes_max=BUFFER_BYTES):
        written += write(held, task=task, attempt=attempt, first_n=len(written))
    return written
