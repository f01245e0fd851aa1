"""Runs one function in one Spark task, and warms the Python workers. What is shipped imports no catalog."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from tilth.base.errors import TilthError
from tilth.warehouse.errors import TaskFailedError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_ANSWER = "is_error boolean, answer binary"
#: How long a warming task holds its Python worker, so that the others get workers of their own.
_WARM_SECONDS = 0.3


class InTask(Protocol[T_co]):
    """What runs in a Spark task."""

    def __call__(self, *, task: int, attempt: int) -> T_co: ...


def run_in_task(session: SparkSession, function: InTask[T]) -> T:
    """Calls `function(task=.., attempt=..)` in one task of a Spark job and returns what it returns.

    Function and result must pickle. Raises its TilthError as it was; any other error as TaskFailedError with the text.
    """

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        for _ in batches:
            pass
        place = TaskContext.get()
        assert place is not None
        is_error, answer = False, b""
        try:
            answer = pickle.dumps(function(task=place.partitionId(), attempt=place.attemptNumber()))
        except TilthError as error:
            is_error, answer = True, pickle.dumps(error)
        except Exception as error:
            story = "".join(traceback.format_exception(error)[-3:])
            failed = TaskFailedError("the task failed", reason=f"{type(error).__name__}: {error}", at=story)
            is_error, answer = True, pickle.dumps(failed)
        columns = [pyarrow.array([is_error]), pyarrow.array([answer], pyarrow.binary())]
        yield pyarrow.RecordBatch.from_arrays(columns, names=["is_error", "answer"])

    row = session.range(0, 1, 1, 1).mapInArrow(call, _ANSWER).collect()[0]
    answer = pickle.loads(bytes(row["answer"]))
    if row["is_error"]:
        raise answer
    result: T = answer
    return result


def warm(session: SparkSession, *, tasks: int) -> int:
    """Starts Python workers and imports what tasks need; returns how many processes there are."""

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc
        import os
        import threading

        import confluent_kafka  # noqa: F401
        import pyarrow

        for _ in batches:
            pass
        # The worker collects garbage after each task; modules are none.
        gc.freeze()
        threading.Event().wait(_WARM_SECONDS)
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([os.getpid()], pyarrow.int64())], names=["pid"])

    rows = session.range(0, tasks, 1, tasks).mapInArrow(hold, "pid long").collect()
    return len({row["pid"] for row in rows})
