"""Spark's losses in the errors of tasks: its memory, with the setting that helps, or its JVM. Pure.

Covers: Java's OutOfMemoryError and errors of a JVM that ends, anywhere among the causes of an error. Does not cover: a
JVM that hangs (pulse.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.warehouse.errors import SparkMemoryError, SparkRestartingError

#: Maximum number of causes examined in one error.
_CAUSES_MAX = 20
_NO_MEMORY = "java.lang.OutOfMemoryError"
_HINT = "read fewer rows or columns, or raise the node's setting warehouse.driver-memory"
#: Errors of Spark when it stops inside of a JVM that is ending.
_ENDING = ("SparkContext was shut down", "stopped SparkContext", "SparkContext has been shutdown")
#: py4j's errors by name: this module is also loaded where py4j is not.
_LOST_NAMES = frozenset({"Py4JError", "Py4JNetworkError"})


def memory_loss_in(error: BaseException) -> SparkMemoryError | None:
    """Return the error to raise where Spark had too little memory; None for every other error."""
    if any(_NO_MEMORY in str(each) for each in _causes(error)):
        return SparkMemoryError(hint=_HINT)
    return None


def may_be_lost(error: BaseException) -> bool:
    """True when the error, or one that it came from, is of a broken connection or of a Spark that stops."""
    return any(_is_of_lost_jvm(each) for each in _causes(error))


def _is_of_lost_jvm(error: BaseException) -> bool:
    is_lost = isinstance(error, SparkRestartingError | OSError | EOFError) or type(error).__name__ in _LOST_NAMES
    return is_lost or any(words in str(error) for words in _ENDING)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error itself, and what led to it; a bounded number, for causes may form a circle."""
    at: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if at is None:
            return
        yield at
        at = at.__cause__ or at.__context__
