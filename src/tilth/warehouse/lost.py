"""Errors that a call may end with when the JVM behind it ends. Pure."""

from __future__ import annotations

from tilth.warehouse.errors import SparkRestartingError

#: Causes of causes that are looked at.
_DEPTH_MAX = 20
#: What Spark says when it stops inside of a JVM that is asked to end.
_ENDING = ("SparkContext was shut down", "stopped SparkContext", "SparkContext has been shutdown")
#: py4j's errors by name: this module is also loaded where py4j is not.
_LOST_NAMES = frozenset({"Py4JError", "Py4JNetworkError"})


def may_be_lost(error: BaseException) -> bool:
    """True when the error, or one that it came from, is of a broken connection or of a Spark that stops."""
    found: BaseException | None = error
    for _ in range(_DEPTH_MAX):
        if found is None:
            return False
        is_lost = isinstance(found, SparkRestartingError | OSError | EOFError) or type(found).__name__ in _LOST_NAMES
        if is_lost or any(words in str(found) for words in _ENDING):
            return True
        found = found.__cause__ or found.__context__
    return False
