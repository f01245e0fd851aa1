"""Functions over rows in real Spark tasks: answers, errors of the function, of the rows and of the middle of a plan."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tilth.base.errors import CorruptError, ErrorKind
from tilth.base.mailbox import new_mailbox
from tilth.model.answer import error_in, pack
from tilth.warehouse import OverRows, Send, TaskFailedError, WorkerSession, mapped_beside, run_in_tasks, run_tasks

pytestmark = pytest.mark.integration

_Answer = tuple[int, int, list[str], int]


@pytest.fixture
def session(spark: WorkerSession) -> SparkSession:
    return spark.session


def totals() -> OverRows[_Answer]:
    """Task, attempt, the columns' names, the sum of the first one."""

    def total(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> _Answer:
        names: list[str] = []
        values = 0
        for batch in rows:
            names = batch.schema.names
            values += sum(batch.column(0).to_pylist())
        return task, attempt, names, values

    return total


def test_each_partition_is_answered_for_once_under_the_frame_s_own_names(session: SparkSession) -> None:
    frame = session.range(0, 6, 1, 3).selectExpr("id AS `a.b`", "id * 2 AS c", "'x' AS c")
    names = ["a.b", "c", "c"]
    assert run_tasks(frame, totals(), tuple[int, int, list[str], int]) == [
        (0, 0, names, 1),
        (1, 0, names, 5),
        (2, 0, names, 9),
    ]


def test_a_function_may_leave_rows_unread(session: SparkSession) -> None:
    def first(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> int:
        answer: int = next(rows).column(0)[0].as_py()
        return answer

    assert run_tasks(session.range(0, 1_000_000, 1, 2), first, int) == [0, 500_000]


@pytest.mark.parametrize("kind", [CorruptError, ValueError])
def test_errors_of_the_function_come_back(session: SparkSession, kind: type[Exception]) -> None:
    def fail(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> None:
        if task == 1:
            raise CorruptError("damaged", file="f", hint="look") if kind is CorruptError else ValueError("no luck")

    with pytest.raises(CorruptError if kind is CorruptError else TaskFailedError) as caught:
        run_tasks(session.range(0, 4, 1, 2), fail, type(None))
    error = caught.value
    if isinstance(error, CorruptError):
        assert (error.kind, error.facts, error.hint) == (ErrorKind.CORRUPT, {"file": "f"}, "look")
    else:
        assert "ValueError: no luck" in str(error)


@pytest.mark.parametrize("tasks", [1, 3])
def test_tasks_without_rows_answer_in_their_order(session: SparkSession, tasks: int) -> None:
    large = b"\0\xff" * 500_000

    def answer(*, task: int, attempt: int) -> tuple[int, int, bytes]:
        return task, attempt, large * task

    found = run_in_tasks(session, answer, tuple[int, int, bytes], tasks=tasks)
    assert found == [(task, 0, large * task) for task in range(tasks)]


@pytest.mark.parametrize("kind", [CorruptError, ValueError])
def test_errors_of_a_task_without_rows_come_back(session: SparkSession, kind: type[Exception]) -> None:
    def fail(*, task: int, attempt: int) -> None:
        if task == 1:
            raise CorruptError("damaged", file="f") if kind is CorruptError else ValueError("no luck")

    with pytest.raises(CorruptError if kind is CorruptError else TaskFailedError, match=r"damaged|no luck"):
        run_in_tasks(session, fail, type(None), tasks=2)


def test_a_python_worker_that_dies_is_an_error_and_the_next_job_has_another(session: SparkSession) -> None:
    def die(*, task: int, attempt: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with pytest.raises((PySparkException, Py4JError), match="Python worker exited unexpectedly"):
        run_in_tasks(session, die, int, tasks=1)
    assert run_in_tasks(session, lambda *, task, attempt: task, int, tasks=2) == [0, 1]


def test_python_workers_of_tasks_with_and_without_rows_are_of_one_daemon(session: SparkSession) -> None:
    """Spark has a daemon for each environment of workers; none of its workers runs tasks of another one."""

    def without(*, task: int, attempt: int) -> int:
        return os.getppid()

    def over(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> int:
        for _ in rows:
            pass
        return os.getppid()

    assert run_in_tasks(session, without, int, tasks=1) == run_tasks(session.range(0, 1, 1, 1), over, int)


def broken_by_sql(session: SparkSession) -> DataFrame:
    return session.range(0, 4, 1, 2).selectExpr("CAST(raise_error(concat('up', 'stream')) AS BIGINT) AS id")


def broken_by_python(session: SparkSession) -> DataFrame:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise ValueError("".join(("up", "stream")))

    return session.range(0, 4, 1, 2).mapInArrow(fail, "id bigint")


@pytest.mark.parametrize("make", [broken_by_sql, broken_by_python])
def test_errors_of_making_the_rows_are_spark_s(session: SparkSession, make: object) -> None:
    assert callable(make)
    with pytest.raises((PySparkException, Py4JError), match="upstream"):
        run_tasks(make(session), totals(), tuple[int, int, list[str], int])


def test_a_task_in_the_middle_of_a_plan_sends_its_answer(session: SparkSession) -> None:
    def middle(batches: Iterator[pa.RecordBatch], send: Send, /) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            yield batch
            send(numbers[0], f"read {numbers}")

    # With a shuffle behind it and without one: tasks whose rows others read, and tasks that go on with them.
    for is_shuffled in (True, False):
        with mapped_beside(session.range(0, 4, 1, 2), middle, "id bigint", str) as (frame, answers):
            assert answers.all() == []
            rows = frame.groupBy("id").count() if is_shuffled else frame.where("id >= 0")
            assert sum(answer[3] for answer in run_tasks(rows, totals(), tuple[int, int, list[str], int])) == 6
            assert answers.all() == ["read [0, 1]", "read [2, 3]"]
            accumulator = answers._accumulator.id()
        # Any: pyspark ships no types for objects of the JVM.
        jvm: Any = session.sparkContext._jvm
        assert jvm.org.apache.spark.util.AccumulatorContext.get(accumulator).isEmpty()


def test_a_task_in_the_middle_of_a_plan_sends_an_error_and_goes_on(session: SparkSession) -> None:
    def middle(batches: Iterator[pa.RecordBatch], send: Send, /) -> Iterator[pa.RecordBatch]:
        yield from batches
        send(0, CorruptError("bad", file="f"))

    with mapped_beside(session.range(0, 2, 1, 1), middle, "id bigint", str) as (frame, answers):
        assert frame.count() == 2
        with pytest.raises(CorruptError, match="bad: file=f"):
            answers.all()


def test_a_task_that_fails_in_the_middle_of_a_plan_sends_its_error(session: SparkSession) -> None:
    mailbox = new_mailbox()

    def middle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        letter = mailbox.letter(pack(CorruptError("bad", file="it's \U0001f680 \u2028")))
        assert letter is not None
        yield from batches
        raise letter

    rows = session.range(0, 4, 1, 2).mapInArrow(middle, "id bigint")
    for failing in (rows, rows.groupBy("id").count()):
        for act in (
            failing.collect,
            failing.toArrow,
            lambda frame=failing: run_tasks(frame, totals(), tuple[int, int, list[str], int]),
        ):
            with pytest.raises((PySparkException, Py4JError)) as raised:
                act()
            found = error_in(str(raised.value), mailbox)
            assert isinstance(found, CorruptError)
            assert found.facts == {"file": "it's \U0001f680 \u2028"}


def test_a_worker_is_forked_with_all_that_tasks_import(session: SparkSession) -> None:
    """Else each worker after a failed task would import it anew: half a second for each try of a round."""

    def imported(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> bool:
        return {"tilth.ingest.rounds.spark", "tilth.storage.read.overlay_spark"} <= sys.modules.keys()

    assert run_tasks(session.range(0, 2, 1, 2), imported, bool) == [True, True]
