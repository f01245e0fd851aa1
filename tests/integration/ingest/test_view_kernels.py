"""Kernels of views beside Spark: the same rows for hostile values, or Spark computes the view."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.integration.ingest.round_world import RoundWorld
from tests.unit.ingest.decoding import kafka_of
from tilth.ingest import check_view
from tilth.ingest.views.kernels import UnfitError, ViewKernel
from tilth.ingest.views.plans import SqlPlan
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Kind, Simple
from tilth.storage import arrow_type
from tilth.warehouse import WorkerSession, schema_of

COLUMNS = {
    "i": Kind.INT64,
    "j": Kind.INT32,
    "d": Kind.FLOAT64,
    "e": Kind.FLOAT64,
    "s": Kind.STRING,
    "u": Kind.STRING,
    "b": Kind.BOOLEAN,
    "t": Kind.TIMESTAMP,
    "day": Kind.DATE,
}
#: Expressions that have kernels; each with values that Spark computes and kernels may leave to it.
EXPRESSIONS = (
    "i + 1",
    "i * j",
    "j - 7",
    "-j",
    "d * 1.2",
    "d + e",
    "d / e",
    "-d",
    "round(d, 2)",
    "round(d * 1.2, 2)",
    "round(e)",
    "round(d, 5)",
    "CAST(j AS BIGINT) + i",
    "CAST(i AS INT)",
    "CAST(i AS DOUBLE)",
    "CAST(i AS STRING)",
    "CAST(b AS STRING)",
    "CAST(t AS DATE)",
    "CAST(timestamp_micros(i) AS DATE)",
    "upper(s)",
    "lower(u)",
    "length(s)",
    "concat(s, '-', u)",
    "s || upper(u)",
    "coalesce(s, u, 'none')",
    "coalesce(d, 0.5D)",
    "CASE WHEN i > 0 THEN 'more' WHEN b THEN 'b' ELSE s END",
    "if(d > e, d, e)",
    "i > 0 AND b",
    "NOT b OR i = 5",
    "d = e",
    "d < e",
    "d >= 0",
    "s < u",
    "s = 'a'",
    "day >= DATE'1969-12-31'",
    "t < TIMESTAMP'2025-01-01 00:00:00'",
    "i IN (1, 5, -9)",
    "s IN ('a', 'É')",
    "s IS NULL",
    "timestamp_millis(i)",
    "timestamp_micros(j)",
    "timestamp_seconds(j)",
)
FILTERS = ("i >= 0", "b", "s <> 'a' AND d IS NOT NULL", "round(d, 1) > 0.1 OR i IN (1, 2)")

_NUMBERS = (0, 1, -1, 5, -9, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**63 - 1, -(2**63), None)
_DOUBLES = (
    *(0.0, -0.0, 1.0, 0.5, 2.5, -2.5, 0.125, 1.005, 2.675, -1.115, 1e-7, 5e-324, 1e11, 1e13, 1e300, math.inf),
    *(-math.inf, math.nan, None),
    *(number / 1000 for number in range(-25, 2000, 10)),
    *(number / 100 * 1.2 for number in range(-99, 999, 7)),
)
_TEXTS = ("a", "A", "", "aé", "ß", "É", "z\U0001f600", "\0", "Straße", "ab cd", None)
_TIMES = (0, -1, -86_400_000_000, 86_399_999_999, 1_735_689_600_000_000, -62_000_000_000_000_000, None)
_DAYS = (0, -1, 20_089, -700_000, None)


def hostile() -> pa.RecordBatch:
    """Rows in which each value of a column meets several of the others."""
    count = len(_DOUBLES)

    def of(values: Sequence[Any], kind: Kind, step: int = 1) -> pa.Array:
        return pa.array([values[(row * step + row // len(values)) % len(values)] for row in range(count)], _arrow(kind))

    columns = {
        "i": of(_NUMBERS, Kind.INT64),
        "j": of([each for each in _NUMBERS if each is None or -(2**31) <= each < 2**31], Kind.INT32),
        "d": pa.array(_DOUBLES, pa.float64()),
        "e": of(_DOUBLES[:19], Kind.FLOAT64, 3),
        "s": of(_TEXTS, Kind.STRING),
        "u": of(_TEXTS, Kind.STRING, 4),
        "b": of((True, False, None), Kind.BOOLEAN),
        "t": of(_TIMES, Kind.TIMESTAMP),
        "day": of(_DAYS, Kind.DATE),
    }
    return pa.RecordBatch.from_pydict(columns)


def _arrow(kind: Kind) -> pa.DataType:
    return arrow_type(Simple(kind))


def kernel_of(session: SparkSession, select: str) -> tuple[SqlPlan, ViewKernel | None]:
    """The plan of a view over the columns; its target has the types that Spark gives."""
    types = ", ".join(f"{name} {kind.value}" for name, kind in COLUMNS.items())
    session.createDataFrame(session.sparkContext.emptyRDD(), types).createOrReplaceTempView("shape")
    fields = schema_of(session.sql(select.replace("FROM k", "FROM shape"))).fields
    columns = [
        Column(id=number, name=field.name, type=Simple(Kind(field.dataType.simpleString())))
        for number, field in enumerate(fields, start=1)
    ]
    target = TableDef(uuid="t", database="db", name="t", schema=Schema(columns=tuple(columns)))
    plan = check_view(session, kafka_of(COLUMNS), target, select)
    assert isinstance(plan, SqlPlan), plan
    return plan, plan.kernel


def by_spark(session: SparkSession, rows: pa.RecordBatch, select: str) -> list[dict[str, Any]]:
    session.createDataFrame(pa.Table.from_batches([rows])).createOrReplaceTempView("k")
    return shown(session.sql(select).toArrow())


def shown(table: pa.Table) -> list[dict[str, Any]]:
    """The rows with times as numbers, so that each can be shown; NaN and the sign of zero as texts."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        is_day = pa.types.is_date(column.type)
        numbers = column.cast(pa.int32() if is_day else pa.int64()) if is_day or _is_time(column.type) else column
        columns[name] = [repr(value) for value in numbers.to_pylist()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _is_time(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(arrow))


def fit_rows(kernel: ViewKernel, rows: pa.RecordBatch) -> list[int]:
    """The positions of rows that the kernel computes alone."""
    fit = []
    for row in range(rows.num_rows):
        try:
            kernel.run(rows.slice(row, 1))
        except UnfitError:
            continue
        fit.append(row)
    return fit


@pytest.fixture
def session(spark: WorkerSession) -> SparkSession:
    made: SparkSession = spark.session.newSession()
    made.conf.set("spark.sql.session.timeZone", "UTC")
    return made


def test_expressions_mean_what_spark_means(session: SparkSession) -> None:
    rows = hostile()
    wrong = []
    for expression in EXPRESSIONS:
        select = f"SELECT {expression} AS v FROM k"
        plan, kernel = kernel_of(session, select)
        assert kernel is not None, (expression, plan.no_kernel)
        fit = fit_rows(kernel, rows)
        assert len(fit) >= 20, (expression, len(fit))
        taken = rows.take(pa.array(fit))
        found = shown(kernel.run(taken)[0])
        expected = by_spark(session, taken, select)
        wrong += [
            (expression, rows.slice(fit[n], 1).to_pylist(), one, other)
            for n, (one, other) in enumerate(zip(found, expected, strict=True))
            if one != other
        ][:2]
    assert wrong == []


def test_filters_keep_the_rows_that_spark_keeps(session: SparkSession) -> None:
    rows = hostile()
    for condition in FILTERS:
        select = f"SELECT i, d, concat(s, u) AS v FROM k WHERE {condition}"
        plan, kernel = kernel_of(session, select)
        assert kernel is not None, (condition, plan.no_kernel)
        taken = rows.take(pa.array(fit_rows(kernel, rows)))
        found, positions = kernel.run(taken)
        assert shown(found) == by_spark(session, taken, select)
        assert 0 < found.num_rows < taken.num_rows
        assert positions is not None
        assert taken.column("i").take(pa.array(positions)).equals(found["i"].combine_chunks())


@pytest.mark.parametrize(
    ("expression", "because"),
    [
        ("substring(s, 1, 2)", "substring of string, int, int has no kernel"),
        ("CAST(d AS STRING)", "cast of double has no kernel"),
        ("rand() > 0.5D", "rand of bigint has no kernel"),
        ("i + CAST(d AS DECIMAL(10, 2))", "has no kernel"),
        ("upper(s COLLATE UNICODE_CI)", "has no kernel"),
    ],
)
def test_other_expressions_are_for_spark(session: SparkSession, expression: str, because: str) -> None:
    plan, kernel = kernel_of(session, f"SELECT CAST({expression} AS STRING) AS v FROM k")
    assert kernel is None
    assert because in plan.no_kernel


@pytest.mark.parametrize(
    "expression",
    [
        *("now()", "current_timestamp() > t", "current_date()", "(SELECT now())", "current_user()", "unix_timestamp()"),
        *("TIMESTAMP'now'", "t > TIMESTAMP'yesterday UTC'", "day = DATE'today'", "CAST('now' AS TIMESTAMP) > t"),
    ],
)
def test_what_changes_from_round_to_round_is_for_spark(session: SparkSession, expression: str) -> None:
    """The plan is made once, when the consumer begins."""
    plan, kernel = kernel_of(session, f"SELECT CAST({expression} AS STRING) AS v, i + 1 AS i FROM k")
    assert kernel is None
    assert plan.no_kernel == "the present time, or another value of the session, has no kernel"


@pytest.mark.parametrize("word", ["'no' 'w'", "'\\u006eow'", "concat('no', 'w')"])
def test_the_present_in_disguise_is_for_spark(session: SparkSession, word: str) -> None:
    plan, kernel = kernel_of(session, f"SELECT t > CAST({word} AS TIMESTAMP) AS v FROM k")
    assert kernel is None
    assert plan.no_kernel == "a time whose date is not in the view's text has no kernel"


def test_an_expression_too_deep_to_be_sent_is_for_spark(session: SparkSession) -> None:
    plan, kernel = kernel_of(session, f"SELECT {' + '.join(['i'] * 120)} AS v FROM k")
    assert kernel is None
    assert plan.no_kernel == "an expression of more than 80 levels has no kernel"


def test_a_view_that_aggregates_is_for_spark(session: SparkSession) -> None:
    plan, kernel = kernel_of(session, "SELECT i, count(*) AS n FROM k GROUP BY i")
    assert kernel is None
    assert plan.no_kernel == "Aggregate has no kernel"


KINDS: dict[str, Kind] = {"id": Kind.INT64, "name": Kind.STRING, "price": Kind.FLOAT64}
SELECT = "SELECT id, upper(name) AS name, round(price * 1.2, 2) AS price FROM k WHERE id >= 0"


def message(number: int, name: str) -> bytes:
    return f'{{"id": {number}, "name": "{name}", "price": {number}.25}}'.encode()


def test_rows_beyond_kernels_are_computed_by_spark(tmp_path: Path, spark: WorkerSession) -> None:
    """The round that meets them is given up and done again; rows before and behind them are there once."""
    world = RoundWorld(tmp_path, spark)
    world.source(KINDS)
    world.view("v", KINDS, SELECT)
    first = [message(number, "abc") for number in range(-5, 50)]
    world.topic.put([first])
    world.drain(1)
    assert len(world.rows("to_v")) == 50
    world.topic.put([[*first, *(message(number, "straße") for number in range(50, 60)), b"{"]])
    world.drain(1)
    rows = {row["id"]: row for row in world.rows("to_v")}
    assert sorted(rows) == list(range(60))
    assert rows[3] == {"id": 3, "name": "ABC", "price": 3.9}
    assert rows[55] == {"id": 55, "name": "STRASSE", "price": 66.3}
    assert [letter["raw"] for letter in world.dead_letters()] == [b"{"]
    world.check()
