"""Functions over the partitions of a frame, with a stand-in for Spark that runs each partition here, tried as said.

Spark's own tasks are in tests/integration/warehouse/test_spark_session.py.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark import TaskContext as SparkTask
from pyspark.sql import DataFrame

from tilth.base.errors import ErrorKind, NotFoundError
from tilth.base.mailbox import AnswerUnreadableError
from tilth.model.answer import pack
from tilth.warehouse import TaskFailedError, run_tasks


class JobFailedError(Exception):
    """What Spark raises of a task that fails."""


_MapBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Frame:
    """Of a DataFrame what `run_tasks` needs."""

    partitions: Sequence[Sequence[int]]
    columns: Sequence[str] = ("id",)
    #: Attempts of the task before the one whose rows Spark takes, by partition.
    lost: dict[int, int] = field(default_factory=dict)
    #: `True`: the source of the rows fails at their end.
    breaks_off: bool = False
    shown: Sequence[str] = ()
    function: _MapBatches | None = None

    def toDF(self, *names: str) -> Frame:  # noqa: N802  # Spark's name
        return replace(self, shown=names)

    def mapInArrow(self, function: _MapBatches, _: str) -> Frame:  # noqa: N802  # Spark's name
        return replace(self, function=function)

    def collect(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for task, values in enumerate(self.partitions):
            last = self.lost.get(task, 0)
            for attempt in range(last + 1):
                answered = self._tried(task, attempt, values)
            rows += answered
        return rows

    def _tried(self, task: int, attempt: int, values: Sequence[int]) -> list[dict[str, Any]]:
        assert self.function is not None
        batches = self._batches(values)
        before = SparkTask.get()
        SparkTask._setTaskContext(None)
        SparkTask(partitionId=task, attemptNumber=attempt)
        try:
            return [row for batch in self.function(batches) for row in batch.to_pylist()]
        except Exception as error:
            raise JobFailedError from error
        finally:
            SparkTask._setTaskContext(before)

    def _batches(self, values: Sequence[int]) -> Iterator[pa.RecordBatch]:
        names = list(self.shown or self.columns)
        for value in values:
            yield pa.record_batch([[value]] * len(names), names=names)
        if self.breaks_off:
            raise OSError("broken off")


def frame(*partitions: Sequence[int], **more: Any) -> DataFrame:
    return cast(DataFrame, Frame(partitions, **more))


def total(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> tuple[int, int, int]:
    return task, attempt, sum(sum(batch.column(0).to_pylist()) for batch in rows)


def test_each_task_gives_one_answer_in_the_order_of_the_partitions() -> None:
    assert run_tasks(frame([1, 2], [], [3]), total, tuple[int, int, int]) == [(0, 0, 3), (1, 0, 0), (2, 0, 3)]
    assert run_tasks(frame(), total, tuple[int, int, int]) == []


def test_tasks_that_were_lost_and_tried_again_answer_once() -> None:
    assert run_tasks(frame([1], [2], lost={0: 2}), total, tuple[int, int, int]) == [(0, 2, 1), (1, 0, 2)]


@pytest.mark.parametrize("columns", [("id",), ("a.b", "c"), ("same", "same"), ("a b", "`")])
def test_rows_have_the_names_of_the_frame_whatever_spark_can_read(columns: tuple[str, ...]) -> None:
    def names(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> list[str]:
        return [name for batch in rows for name in batch.schema.names]

    assert run_tasks(frame([1], columns=columns), names, list[str]) == [list(columns)]


def failing(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> int:
    if task == 1:
        raise NotFoundError("the file is gone", file="f", hint="look elsewhere")
    if task == 2:
        raise ValueError("no such luck")
    return task


def test_an_error_of_a_task_comes_back_with_its_kind_and_code() -> None:
    with pytest.raises(NotFoundError, match="the file is gone") as caught:
        run_tasks(frame([1], [2], [3]), failing, int)
    error = caught.value
    assert (error.kind, error.code, error.facts, error.hint) == (
        ErrorKind.NOT_FOUND,
        "NOT_FOUND",
        {"file": "f"},
        "look elsewhere",
    )


def test_any_other_error_comes_back_as_a_failed_task_with_its_text() -> None:
    def fail(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> int:
        return failing(rows, task=2, attempt=attempt)

    with pytest.raises(TaskFailedError, match="ValueError: no such luck"):
        run_tasks(frame([1]), fail, int)


def test_an_error_of_an_attempt_that_spark_has_thrown_away_is_none() -> None:
    def fail_first(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> int:
        if not attempt:
            raise NotFoundError
        return attempt

    assert run_tasks(frame([1], lost={0: 1}), fail_first, int) == [1]


class CodeOnReading:
    """Object whose unpickling runs code."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return pytest.fail, ("the driver has run code of a task",)


@pytest.mark.parametrize("answer", [CodeOnReading(), object(), 1 << 70, {1: CodeOnReading()}])
def test_what_is_no_value_is_no_answer(answer: object) -> None:
    def give(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> object:
        return answer

    with pytest.raises(TaskFailedError):
        run_tasks(frame([1]), give, object)


@pytest.mark.parametrize("packed", [pickle.dumps(CodeOnReading()), pack("text"), b"", b"\x80"])
def test_a_row_that_is_no_answer_is_an_error_of_its_task(packed: bytes) -> None:
    class Foreign(Frame):
        def collect(self) -> list[dict[str, Any]]:
            return [{"answer": pack(1)}, {"answer": packed}]

    with pytest.raises(AnswerUnreadableError, match="task=1"):
        run_tasks(cast(DataFrame, Foreign([[1], [2]])), failing, int)


@pytest.mark.parametrize("good", [0, 2])
@pytest.mark.parametrize("seen_as", [OSError, NotFoundError])
def test_what_fails_before_the_function_is_for_spark_to_tell(good: int, seen_as: type[Exception]) -> None:
    """The rows break off where the task that makes them fails: the function must not answer in its place."""

    def read(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> int:
        try:
            return len(list(rows))
        except OSError as error:
            raise seen_as() from error

    with pytest.raises(JobFailedError):
        run_tasks(frame(range(good), breaks_off=True), read, int)
