"""Errors of tasks that are errors of Spark itself: each says what happened, and whether a retry helps."""

from __future__ import annotations

import pytest

from tilth.base.errors import ErrorKind
from tilth.sql.spark_errors import from_spark
from tilth.warehouse import SparkGoneError, SparkMemoryError, loss_in

NO_MEMORY = (
    "An error occurred while calling o83.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage "
    "failure: Task 0 in stage 4.0 failed 1 times, most recent failure: java.lang.OutOfMemoryError: Java heap space\n"
    "\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)"
)


def refused() -> ConnectionRefusedError:
    return ConnectionRefusedError(111, "Connection refused")


def caused(cause: Exception) -> Exception:
    error = RuntimeError("the task failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [refused(), caused(refused()), RuntimeError("Answer from Java side is empty"), caused(caused(BrokenPipeError()))],
)
def test_a_jvm_that_has_gone_is_said_and_invites_a_retry(error: Exception) -> None:
    for found in (loss_in(error), from_spark(error, "SELECT 1", lambda place: place, "SELECT 1")):
        assert isinstance(found, SparkGoneError)
        assert found.kind is ErrorKind.UNAVAILABLE
        assert "retry the statement" in found.hint
        assert "refused" not in str(found)


@pytest.mark.parametrize("error", [RuntimeError(NO_MEMORY), caused(RuntimeError(NO_MEMORY))])
def test_too_little_memory_names_the_setting(error: Exception) -> None:
    for found in (loss_in(error), from_spark(error, "SELECT 1", lambda place: place, "SELECT 1")):
        assert isinstance(found, SparkMemoryError)
        assert found.kind is ErrorKind.UNAVAILABLE
        assert "warehouse.driver-memory" in found.hint
        assert "o83" not in str(found)


def test_errors_of_tasks_stay_theirs() -> None:
    assert loss_in(ValueError("a value")) is None
    endless = ValueError("one")
    endless.__cause__ = caused(endless)
    assert loss_in(endless) is None
