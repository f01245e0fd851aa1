"""Spark's lack of memory in the errors of tasks: what happened, and which setting helps. Pure.

Covers: Java's OutOfMemoryError, anywhere among the causes of an error. Does not cover: a JVM that has ended or hangs.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.warehouse.errors import SparkMemoryError

#: Causes of one error that are looked at.
_CAUSES_MAX = 16
_NO_MEMORY = "java.lang.OutOfMemoryError"
_HINT = "read fewer rows or columns, or raise the node's setting warehouse.driver-memory"


def memory_loss_in(error: BaseException) -> SparkMemoryError | None:
    """Return the error to raise where Spark had too little memory; None for every other error."""
    if any(_NO_MEMORY in str(each) for each in _causes(error)):
        return SparkMemoryError(hint=_HINT)
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error itself, and what led to it; a bounded number, for causes may form a circle."""
    at: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if at is None:
            return
        yield at
        at = at.__cause__ or at.__context__
