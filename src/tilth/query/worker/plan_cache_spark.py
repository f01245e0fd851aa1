"""Plans of Spark that are kept, and opened again in another session.

Covers: which texts may have such plans, handles of them. Does not cover: which plan is kept for what (query_cache.py),
which plans mean the same at any time (PlanKeeper.java).
Always holds: these are internals of Spark; where they do not answer as expected, nothing is kept and the log says why.

Tests: tests/integration/sql/test_query_cache.py.
"""

from __future__ import annotations

import re
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tilth.base.java_class import compiled_once
from tilth.base.logs import Log
from tilth.query.worker.relations import TIME_WORDS

#: A backslash may write a word of time in a way that no search finds.
_OTHER_TIMES = re.compile(r"\\|\b(tomorrow|epoch)\b", re.IGNORECASE)

_log = Log("sql")


def is_timeless(text: str) -> bool:
    """Return whether Spark's parser makes the same of the text at any time: TIMESTAMP 'now' becomes a number there."""
    return not TIME_WORDS.search(text) and not _OTHER_TIMES.search(text)


# Any: a handle of an object in the JVM.
def keep_plan(frame: DataFrame) -> Any | None:
    """Return a handle of the frame's plan; None: it may mean something else the next time.

    Raises what Spark's optimizer raises.
    """
    try:
        return _keeper(frame.sparkSession).keep(frame._jdf)
    except PySparkException:
        raise
    except (Py4JError, TypeError) as error:
        _log.warning("plan_not_kept", because=type(error).__name__, error=error)
        return None


def open_plan(session: SparkSession, handle: Any) -> DataFrame | None:
    """Return the rows of a kept plan in a session with the same settings; None: the JVM has needed its memory."""
    try:
        opened = _keeper(session).open(handle, session._jsparkSession)
    except (Py4JError, PySparkException, TypeError) as error:
        _log.warning("plan_not_opened", because=type(error).__name__, error=error)
        return None
    return None if opened is None else DataFrame(opened, session)


def _keeper(session: SparkSession) -> Any:
    assert __package__ is not None
    return compiled_once(session, __package__, "PlanKeeper")
