"""Runs functions in Spark's tasks and brings their answers back, and warms the Python workers. What is shipped imports
no catalog.

Covers: functions over the rows of a frame, or over none. Does not cover: what the functions do, the form of their
answers (model/answer.py), tasks in the middle of a plan (beside_spark.py, base/mailbox.py).
Always holds: Spark pickles the functions that it sends, and nothing that comes back is unpickled; each task gives one
answer, that of the attempt whose rows Spark takes; an error of a task comes back with its type, kind, code and facts.

Tests: tests/integration/warehouse/test_tasks_on_spark.py.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from tilth.base.errors import TilthError
from tilth.model.answer import pack, unpack
from tilth.warehouse.errors import TaskFailedError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_ANSWER = "answer binary"
#: Time that a warming task holds its Python worker, so that the others get workers of their own.
_WARM_SECONDS = 0.3


class OverRows(Protocol[T_co]):
    """Function that runs in a Spark task over the rows of its partition, and may leave rows unread."""

    def __call__(self, rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> T_co: ...


class InTask(Protocol[T_co]):
    """Function that runs in a Spark task without rows."""

    def __call__(self, *, task: int, attempt: int) -> T_co: ...


def run_tasks(frame: DataFrame, function: OverRows[T], answer: type[T]) -> list[T]:
    """Call `function(rows, task=.., attempt=..)` for each of the frame's partitions, in a Spark task each.

    Returns the answers in the order of the partitions. `answer`: their type, one that msgspec reads. The function must
    pickle: it goes to the tasks. Raises the TilthError of the first task that failed as it was, any other error as
    TaskFailedError with its text, AnswerUnreadableError, and Spark's own errors of computing the rows.
    """
    names = frame.columns
    is_plain = len(set(names)) == len(names) and all(map(str.isidentifier, names))
    # PySpark would read a dot in a column's name as access to a field, and accepts no name twice.
    numbered = frame if is_plain else frame.toDF(*map(str, range(len(names))))

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        is_waiting = False

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal is_waiting
            is_waiting = True
            for batch in batches:
                is_waiting = False
                yield batch.rename_columns(names)
                is_waiting = True
            is_waiting = False

        spark_task = TaskContext.get()
        assert spark_task is not None
        try:
            packed = pack(function(rows(), task=spark_task.partitionId(), attempt=spark_task.attemptNumber()))
        except Exception as error:
            if is_waiting:
                # Whatever makes the rows has failed, and Spark says why.
                raise
            # The error travels as a row: it keeps its type and its facts; Spark would make text of it.
            packed = pack(error if isinstance(error, TilthError) else _failed(error))
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([packed], pyarrow.binary())], names=["answer"])

    rows = numbered.mapInArrow(call, _ANSWER).collect()
    return [unpack(bytes(row["answer"]), answer, task=task) for task, row in enumerate(rows)]


def _failed(error: Exception) -> TaskFailedError:
    story = "".join(traceback.format_exception(error)[-3:])
    return TaskFailedError("the task failed", reason=f"{type(error).__name__}: {error}", at=story)


def run_in_task(session: SparkSession, function: InTask[T], answer: type[T]) -> T:
    """Call `function(task=.., attempt=..)` in one task of a Spark job; returns and raises as `run_tasks`."""
    [answered] = run_in_tasks(session, function, answer, tasks=1)
    return answered


def run_in_tasks(session: SparkSession, function: InTask[T], answer: type[T], *, tasks: int) -> list[T]:
    """Call `function(task=.., attempt=..)` in so many tasks of one Spark job, `task` from 0 on; returns and raises as
    `run_tasks`, when all tasks have ended.
    """

    def call(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> T:
        for _ in rows:
            pass
        return function(task=task, attempt=attempt)

    return run_tasks(session.range(0, tasks, 1, tasks), call, answer)


def warm(session: SparkSession, *, tasks: int) -> int:
    """Start Python workers and import what tasks need; return how many processes there are."""

    def hold(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> int:
        import gc
        import os
        import threading

        import confluent_kafka  # noqa: F401

        for _ in rows:
            pass
        # The worker collects garbage after each task; modules are none.
        gc.freeze()
        threading.Event().wait(_WARM_SECONDS)
        return os.getpid()

    return len(set(run_tasks(session.range(0, tasks, 1, tasks), hold, int)))
