"""Runs functions in Spark's tasks and brings their answers back, and warms the Python workers. What is shipped imports
no catalog.

Covers: functions over the rows of a frame, or over none. Does not cover: what the functions do, the form of their
answers (model/answer.py), tasks in the middle of a plan (beside_spark.py, base/mailbox.py).
Always holds: Spark pickles the functions that it sends, and nothing that comes back is unpickled; each task gives one
answer, that of the attempt whose rows Spark takes; an error of a task comes back with its type, kind, code and facts.

Tests: tests/integration/warehouse/test_tasks_on_spark.py.
"""

from __future__ import annotations

import struct
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial, singledispatch
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from tilth.base.errors import TilthError
from tilth.base.java_class import compiled_once
from tilth.model.answer import pack, unpack
from tilth.warehouse.errors import TaskFailedError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_ANSWER = "answer binary"
#: Length before each answer of a job.
_LENGTH = struct.Struct(">i")
#: Additional environment of the Python workers of Spark SQL. With another one, workers would be processes of their own.
_SQL_ENVIRONMENT = {"SPARK_SIMPLIFIED_TRACEBACK": "1"}
#: Environment and include paths of Python workers by context, and the same as collections of the JVM.
_known: WeakKeyDictionary[SparkContext, tuple[tuple[dict[str, str], list[str]], tuple[Any, Any]]] = WeakKeyDictionary()
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
    rows = numbered.mapInArrow(_answering(function, names), _ANSWER).collect()
    return [unpack(bytes(row["answer"]), answer, task=task) for task, row in enumerate(rows)]


def _answering(
    function: OverRows[T], names: Sequence[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function of batches with columns of these names that gives the packed answer, or error, as one row."""

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        is_waiting = False

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal is_waiting
            is_waiting = True
            for batch in batches:
                is_waiting = False
                yield batch.rename_columns(names)
                is_waiting = True
            is_waiting = False

        # Whatever makes the rows may fail, and Spark says why.
        packed = packed_answer(partial(function, rows()), is_ours=lambda: not is_waiting)
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([packed], pyarrow.binary())], names=["answer"])

    return call


def packed_answer(function: InTask[object], *, is_ours: Callable[[], bool] = lambda: True) -> bytes:
    """Call the function in a task; return its packed answer, or error, unless the error is not ours."""
    from pyspark import TaskContext

    spark_task = TaskContext.get()
    assert spark_task is not None
    try:
        return pack(function(task=spark_task.partitionId(), attempt=spark_task.attemptNumber()))
    except Exception as error:
        if not is_ours():
            raise
        # The error travels as an answer: it keeps its type and its facts; Spark would make text of it.
        return pack(error if isinstance(error, TilthError) else _failed(error))


def _failed(error: Exception) -> TaskFailedError:
    story = "".join(traceback.format_exception(error)[-3:])
    return TaskFailedError("the task failed", reason=f"{type(error).__name__}: {error}", at=story)


def run_in_task(session: SparkSession, function: InTask[T], answer: type[T]) -> T:
    """Call `function(task=.., attempt=..)` in one task of a Spark job; returns and raises as `run_tasks`."""
    [answered] = run_in_tasks(session, function, answer, tasks=1)
    return answered


def run_inline(function: Callable[[], T]) -> T:
    """Call `function` on this thread, where a job would cost more; raises as `run_tasks`."""
    try:
        return function()
    except TilthError:
        raise
    except Exception as error:
        raise _failed(error) from error


def run_in_tasks(session: SparkSession, function: InTask[T], answer: type[T], *, tasks: int) -> list[T]:
    """Call `function(task=.., attempt=..)` in so many tasks of one Spark job, `task` from 0 on; returns and raises as
    `run_tasks`, when all tasks have ended.
    """

    packed = packed_answers(session, partial(packed_answer, function), tasks)
    return [unpack(each, answer, task=task) for task, each in enumerate(packed)]


@singledispatch
def packed_answers(session: Any, answer: Callable[[], bytes], tasks: int) -> list[bytes]:
    """Call `answer` in so many tasks of one Spark job; return what it returned, in the order of the tasks.

    Stand-ins for sessions register functions of their own.
    """

    def call(_: int, elements: Iterator[object]) -> Iterator[bytes]:
        # Spark uses a Python worker again only where its input was read to the end.
        for _element in elements:
            pass
        yield answer()

    assert __package__ is not None
    job = compiled_once(session, __package__, "TaskJob")
    return list(_pieces(bytes(job.run(session.sparkContext._jsc, tasks, _python_function(session.sparkContext, call)))))


def _pieces(answers: bytes) -> Iterator[bytes]:
    """Yield what TaskJob.java has put together."""
    at = 0
    while at < len(answers):
        (size,) = _LENGTH.unpack_from(answers, at)
        at += _LENGTH.size + size
        yield answers[at - size : at]


# Any: handles of py4j have no types.
def _python_function(context: SparkContext, function: Callable[..., Any]) -> Any:
    """Return the function of a partition's number and elements as the JVM runs it in tasks; PySpark makes the same."""
    from pyspark.core.rdd import _prepare_for_python_RDD
    from pyspark.serializers import NoOpSerializer

    command = (function, None, NoOpSerializer(), NoOpSerializer())
    pickled, broadcasts, environment, includes = _prepare_for_python_RDD(context, command)
    environment, includes = _in_jvm(context, environment, includes)
    return context._jvm.SimplePythonFunction(  # type: ignore[union-attr]  # there is one
        bytearray(pickled),
        environment,
        includes,
        context.pythonExec,
        context.pythonVer,
        broadcasts,
        context._javaAccumulator,
    )


def _in_jvm(context: SparkContext, environment: dict[str, str], includes: list[str]) -> tuple[Any, Any]:
    """Return both as collections of the JVM, which take a call for each element to make."""
    known = _known.get(context)
    if known is None or known[0] != (environment, includes):
        collections = context._jvm.java.util  # type: ignore[union-attr]  # there is one
        made = (collections.HashMap(environment | _SQL_ENVIRONMENT), collections.ArrayList(includes))
        known = _known[context] = ((dict(environment), list(includes)), made)
    return known[1]


def warm(session: SparkSession, *, tasks: int) -> int:
    """Start Python workers and import what tasks need; return how many processes there are."""

    def hold(*, task: int, attempt: int) -> int:
        import gc
        import os
        import threading

        import confluent_kafka  # noqa: F401

        # The worker collects garbage after each task; modules are none.
        gc.freeze()
        threading.Event().wait(_WARM_SECONDS)
        return os.getpid()

    return len(set(run_in_tasks(session, hold, int, tasks=tasks)))
