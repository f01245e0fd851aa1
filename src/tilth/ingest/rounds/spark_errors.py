"""Distinguish a view that cannot be computed of some messages from a Spark that cannot compute.

Covers: errors of Spark's jobs. Does not cover: errors of our own tasks, which come back as they were (spark.py).
Always holds: only an error of evaluating expressions is attributed to the messages; an error that may come from
the machine, the disk or Spark itself is not, because no message may be refused for that.

Tests: tests/integration/ingest/test_views_that_fail.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_CONDITION = re.compile(r"\[[A-Z0-9_.]+\] ")
_SQL_STATE = re.compile(r"SQLSTATE: (\w{5})")
#: Classes of SQLSTATE that are about the machine, the session or the text of the query: connections, deadlocks, our own
#: tasks, memory, what operators do, the file system; Spark's own trouble but for a failed assertion.
_OTHER_STATES = ("08", "38", "40", "42", "53", "57", "58", "XXK")
#: Java's own errors of evaluation that Spark does not wrap stand in other packages than these.
_OTHER_PACKAGES = ("org.apache.spark.", "java.io.", "java.nio.", "java.net.", "java.util.concurrent.", "py4j.")
_OTHER_CLASSES = ("java.lang.InterruptedException", "java.lang.OutOfMemoryError")
#: Advice to those who set up Spark, not to those who write views.
_ADVICE = re.compile(r" ?If (necessary|you want)[^.]*? set \"spark\..*$")
_CHAIN_MAX = 20


def why_not_computed(error: Exception) -> str | None:
    """Return in one line why the rows of a job cannot be computed; None: something else went wrong."""
    last: tuple[str, str] = ("", "")
    for name, message in _chain(error):
        state = _SQL_STATE.search(message)
        if state is not None:
            return None if state[1].startswith(_OTHER_STATES) else _plain(message)
        last = (name, message)
    name, message = last
    if not name or name.startswith(_OTHER_PACKAGES) or name in _OTHER_CLASSES:
        return None
    return _plain(message) or name.rpartition(".")[2]


def _chain(error: Exception) -> Iterator[tuple[str, str]]:
    """Class and message of the error of the JVM and of its causes."""
    # Any: a throwable of the JVM, under the one name or the other as pyspark knows its class or not.
    throwable: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CHAIN_MAX):
        if throwable is None:
            return
        yield str(throwable.getClass().getName()), str(throwable.getMessage() or "")
        throwable = throwable.getCause()


def _plain(message: str) -> str:
    """The message without Spark's codes, the text of the query and advice about Spark's settings."""
    first = (message.strip().splitlines() or [""])[0]
    text = _SQL_STATE.sub("", _CONDITION.sub("", first, count=1))
    return _ADVICE.sub("", text).strip()[:500]
