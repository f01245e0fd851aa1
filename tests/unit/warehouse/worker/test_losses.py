"""Too little memory of Spark, found in errors of tasks: what is said names the setting and nothing of Java."""

from __future__ import annotations

import pytest

from tilth.base.errors import ErrorKind
from tilth.query.language.spark_errors import from_spark
from tilth.warehouse import SparkMemoryError, memory_loss_in

NO_MEMORY = (
    "An error occurred while calling o83.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage "
    "failure: Task 0 in stage 4.0 failed 1 times, most recent failure: java.lang.OutOfMemoryError: Java heap space\n"
    "\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)"
)


def caused(cause: Exception) -> Exception:
    error = RuntimeError("the task failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [RuntimeError(NO_MEMORY), caused(RuntimeError(NO_MEMORY))])
def test_too_little_memory_names_the_setting(error: Exception) -> None:
    for found in (memory_loss_in(error), from_spark(error, "SELECT 1", lambda place: place, "SELECT 1")):
        assert isinstance(found, SparkMemoryError)
        assert found.kind is ErrorKind.UNAVAILABLE
        assert "warehouse.driver-memory" in found.hint
        assert "o83" not in str(found)


def test_other_errors_of_tasks_stay_as_they_are() -> None:
    assert memory_loss_in(ValueError("a value")) is None
    endless = ValueError("one")
    endless.__cause__ = caused(endless)
    assert memory_loss_in(endless) is None
