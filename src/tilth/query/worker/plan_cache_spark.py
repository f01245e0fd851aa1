"""Plans of Spark that are retained, and opened again in another session.

Covers: which texts may have such plans, handles of them. Does not cover: which plan is cached for what
(query_cache.py), which plans mean the same at any time (CachedPlans.java).
Always holds: these are internals of Spark; where they do not answer as expected, nothing is retained and the log says
why.

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

#: Further words of time, and the backslash, which may spell any of them in a way that no search finds.
_OTHER_TIMES = re.compile(r"\\|\b(tomorrow|epoch)\b", re.IGNORECASE)

_log = Log("sql")


def is_timeless(text: str) -> bool:
    """Return whether Spark's parser gives one plan for the text at any time; it turns TIMESTAMP 'now' into a number."""
    return not TIME_WORDS.search(text) and not _OTHER_TIMES.search(text)


# Any: a handle of an object in the JVM.
def retain_plan(frame: DataFrame) -> Any | None:
    """Retain the frame's plan; return a handle of it. None: it may mean something else the next time.

    Raises what Spark's optimizer raises.
    """
    try:
        return _plans(frame.sparkSession).retain(frame._jdf)
    except PySparkException:
        raise
    except (Py4JError, TypeError) as error:
        _log.warning("plan_not_retained", because=type(error).__name__, error=error)
        return None


def open_plan(session: SparkSession, handle: Any) -> DataFrame | None:
    """Return the rows of a retained plan in a session with the same settings; None: the JVM has needed its memory."""
    try:
        opened = _plans(session).open(handle, session._jsparkSession)
    except (Py4JError, PySparkException, TypeError) as error:
        _log.warning("plan_not_opened", because=type(error).__name__, error=error)
        return None
    return None if opened is None else DataFrame(opened, session)


def _plans(session: SparkSession) -> Any:
    assert __package__ is not None
    return compiled_once(session, __package__, "CachedPlans")
