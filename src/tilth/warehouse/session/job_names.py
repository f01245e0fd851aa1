"""Names of Spark's jobs while traces are on: its UI shows which trace a job belongs to.

Covers: the description and a property of the jobs of one thread. Does not cover: spans (base/tracing.py).

Tests: tests/integration/sql/test_traces_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tilth.base import tracing

#: Property with what Spark's UI shows of a job, and ours with the id of the span.
DESCRIPTION, TRACEPARENT = "spark.job.description", "tilth.traceparent"


# Any: pyspark ships no types for what a session without Connect has.
@contextmanager
def traced_jobs(session: Any, what: str) -> Iterator[None]:
    """Name the jobs that this thread starts inside by the current span; does nothing where there is none."""
    parent = tracing.traceparent()
    if not parent:
        yield
        return
    context = session.sparkContext
    context.setLocalProperty(DESCRIPTION, f"tilth {what}, trace {parent.split('-')[1]}")
    context.setLocalProperty(TRACEPARENT, parent)
    try:
        yield
    finally:
        # The JVM may have ended; what failed because of it is the better reason.
        with suppress(Exception):
            context.setLocalProperty(DESCRIPTION, None)
            context.setLocalProperty(TRACEPARENT, None)
