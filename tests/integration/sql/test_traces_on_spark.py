"""A trace goes from the client's header over the statement and its task to Spark's jobs. A few seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.otlp_collector import Collector, SpanSeen
from tests.spark_world import SparkWorld
from tilth.base import tracing
from tilth.base.errors import TilthError
from tilth.base.settings import TraceSettings
from tilth.base.tracing import UNTRACED
from tilth.control.running import Origin

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = PARENT[3:35]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        tracing.set_up(TraceSettings(endpoint=made.url), server="s1")
        yield made
        tracing.stop()


def run(world: SparkWorld, text: str, *, trace: str = PARENT) -> None:
    world.engine.run(text, database="shop", origin=Origin(trace=trace))


# Any: pyspark ships no types for objects of the JVM.
def descriptions(world: SparkWorld) -> list[str]:
    """Descriptions of jobs in Spark's UI."""
    context: Any = world.session.context
    jobs = context._jsc.sc().statusStore().jobsList(None)
    shown = (jobs.apply(index).description() for index in range(jobs.size()))
    return [each.get() for each in shown if each.isDefined()]


def test_a_trace_reaches_sparks_jobs(world: SparkWorld, collector: Collector) -> None:
    run(world, "CREATE TABLE t (id BIGINT, name STRING) ENGINE = MergeTree ORDER BY id")
    run(world, "INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    run(world, "SELECT name, count(*) FROM t WHERE id > 0 GROUP BY name")
    run(world, "SELECT 1 AS repeated", trace=UNTRACED)
    with pytest.raises(TilthError):
        run(world, "SELECT nothing FROM t")
    spans = collector.wait_for(lambda spans: sum(each.name == "statement" for each in spans) == 4)
    assert {each.trace for each in spans} == {TRACE}
    by_id = {each.id: each for each in spans}

    def path(span: SpanSeen) -> str:
        above = by_id.get(span.parent)
        return f"{path(above)} > {span.name}" if above is not None else span.name

    query = next(each for each in spans if each.attributes.get("db.response.returned_rows") == 2)
    assert query.parent == PARENT[36:52]
    assert query.attributes["db.operation.name"] == "Query"
    assert query.attributes["db.namespace"] == "shop"
    assert "GROUP BY name" in str(query.attributes["db.query.text"])
    paths = {path(each) for each in spans}
    assert paths >= {
        "statement > parse",
        "statement > commit",
        "statement > task query > analyze > snapshot",
        "statement > task query > spark",
        "statement > collect",
    }
    [failed] = [each for each in spans if each.name == "statement" and each.is_failed]
    assert failed.attributes["error.type"] == "UNKNOWN_COLUMN"
    assert f"tilth query, trace {TRACE}" in descriptions(world)
    assert world.session.context.getLocalProperty("spark.job.description") is None
    assert not any("repeated" in str(each.attributes) for each in spans)


def test_jobs_have_no_names_while_traces_are_off(world: SparkWorld) -> None:
    before = len(descriptions(world))
    run(world, "SELECT count(*) FROM range(10)")
    assert len(descriptions(world)) == before
