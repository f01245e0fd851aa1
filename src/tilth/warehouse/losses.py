"""What an error says about Spark itself: its JVM has ended, or has too little memory. Pure.

Covers: errors of py4j and sockets, Java's OutOfMemoryError. Does not cover: errors of queries (sql/spark_errors.py),
noticing that a JVM hangs. Always holds: what is returned says what a caller can do, and is of a kind that tells
programs whether to retry.
"""

from __future__ import annotations

from tilth.base.errors import TilthError
from tilth.warehouse.errors import SparkGoneError, SparkMemoryError

#: How py4j and sockets say that nobody is there any more.
_GONE = (
    "Py4JNetworkError",
    "Answer from Java side is empty",
    "Error while sending or receiving",
    "An error occurred while trying to connect to the Java server",
)
#: Causes of one error that are looked at.
_CAUSES_MAX = 16
_NO_MEMORY = "java.lang.OutOfMemoryError"
_MEMORY_HINT = "read fewer rows or columns, or raise the node's setting warehouse.driver-memory"
_GONE_HINT = "retry the statement: Spark is started again by itself"


def loss_in(error: BaseException) -> TilthError | None:
    """Return what the error means where it is Spark that failed, not the task; None otherwise."""
    chain = list(_chain(error))
    texts = [f"{type(each).__name__}: {each}" for each in chain]
    if any(_NO_MEMORY in text for text in texts):
        return SparkMemoryError(hint=_MEMORY_HINT)
    is_gone = any(isinstance(each, ConnectionError) for each in chain)
    if is_gone or any(word in text for text in texts for word in _GONE):
        return SparkGoneError("Spark ended while the task ran", hint=_GONE_HINT)
    return None


def _chain(error: BaseException) -> list[BaseException]:
    """The error and its causes; no longer than errors of one task are."""
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in found and len(found) < _CAUSES_MAX:
        found.append(at)
        at = at.__cause__ or at.__context__
    return found
