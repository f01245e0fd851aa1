"""ClickHouse's functions on Spark: what each returns, and where they can be used. One session for all tests."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.codes import WithCode
from tests.spark_world import SparkWorld
from tilth.base.errors import TilthError
from tilth.clickhouse.functions.functions import functions
from tilth.clickhouse.functions.variants import REFUSED
from tilth.warehouse import check_plan, parse_expression
from tilth.warehouse.allowed.allow_list import allow_list

pytestmark = pytest.mark.integration

#: Names that Spark has too, in lower case: our variants stand before Spark's function, which takes all other calls.
EXTENDED = frozenset({"any", "count"})
DAY = datetime.date(2026, 3, 18)
_TIME = "toDateTime('2026-03-18 10:47:33')"


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def world(world: SparkWorld) -> SparkWorld:
    world.run("CREATE TABLE t (id Int64, s String, ts DateTime, a Array(Int64)) ENGINE = MergeTree ORDER BY id")
    world.run(
        "INSERT INTO t VALUES (1, 'one', '2026-01-01 10:00:00', [1, 2]), (2, 'two', '2026-01-02 11:30:00', [3]), "
        "(3, 'two', '2026-02-01 12:00:00', [])"
    )
    return world


# One query for all: a query takes longer than all of its expressions.
_SCALARS = [
    ("toDate('2026-03-18')", DAY),
    ("toDate('2026-03-18 10:00:00')", DAY),
    (f"toDate({_TIME})", DAY),
    ("toDate(20530)", DAY),
    ("toDate(1773830853)", DAY),
    ("toDate(NULL)", None),
    ("toDate(toDateTime('2026-03-18 23:00:00'), 'Asia/Shanghai')", datetime.date(2026, 3, 19)),
    (_TIME, _time("2026-03-18 10:47:33")),
    ("toDateTime(1773830853)", _time("2026-03-18 10:47:33")),
    ("toDateTime('2026-01-01 00:00:00', 'Asia/Shanghai')", _time("2025-12-31 16:00:00")),
    ("toDateTime64('2026-01-01 00:00:00.123', 3)", _time("2026-01-01 00:00:00.123")),
    ("toString(15)", "15"),
    ("toString(toDate('2026-03-18'))", "2026-03-18"),
    ("toInt8('12')", 12),
    ("toInt64(1.9)", 1),
    ("toInt32(toDate('2026-03-18'))", 20530),
    ("toInt64OrZero('x')", 0),
    ("toInt64OrNull('x')", None),
    ("toUInt8(255)", 255),
    ("toUInt8OrZero('x')", 0),
    ("toUInt8OrZero('-1')", 0),
    ("toUInt16OrNull('70000')", None),
    ("toUInt64('18446744073709551615')", Decimal(18446744073709551615)),
    ("toFloat64('1.5')", 1.5),
    ("toFloat64OrZero('x')", 0.0),
    (f"toStartOfMinute({_TIME})", _time("2026-03-18 10:47:00")),
    (f"toStartOfFiveMinutes({_TIME})", _time("2026-03-18 10:45:00")),
    (f"toStartOfFifteenMinutes({_TIME})", _time("2026-03-18 10:45:00")),
    (f"toStartOfHour({_TIME})", _time("2026-03-18 10:00:00")),
    (f"toStartOfDay({_TIME})", _time("2026-03-18 00:00:00")),
    (f"toMonday({_TIME})", datetime.date(2026, 3, 16)),
    (f"toStartOfWeek({_TIME})", datetime.date(2026, 3, 15)),
    (f"toStartOfWeek({_TIME}, 1)", datetime.date(2026, 3, 16)),
    ("toStartOfWeek(toDate('2026-03-15'))", datetime.date(2026, 3, 15)),
    (f"toStartOfMonth({_TIME})", datetime.date(2026, 3, 1)),
    (f"toStartOfQuarter({_TIME})", datetime.date(2026, 1, 1)),
    (f"toStartOfYear({_TIME})", datetime.date(2026, 1, 1)),
    (f"toYYYYMM({_TIME})", 202603),
    (f"toYYYYMMDD({_TIME})", 20260318),
    (f"toYYYYMMDDhhmmss({_TIME})", 20260318104733),
    (f"toYear({_TIME})", 2026),
    (f"toMonth({_TIME})", 3),
    (f"toDayOfMonth({_TIME})", 18),
    (f"toDayOfWeek({_TIME})", 3),
    ("toDayOfWeek(toDate('2026-03-15'))", 7),
    (f"toHour({_TIME})", 10),
    (f"toMinute({_TIME})", 47),
    (f"toSecond({_TIME})", 33),
    (f"toUnixTimestamp({_TIME})", 1773830853),
    ("fromUnixTimestamp(1)", _time("1970-01-01 00:00:01")),
    (f"formatDateTime({_TIME}, '%Y-%m-%d T%H:%i:%S 100%%')", "2026-03-18 T10:47:33 100%"),
    (f"toStartOfInterval({_TIME}, INTERVAL '15' MINUTE)", _time("2026-03-18 10:45:00")),
    ("yesterday() = today() - 1", True),
    ("addDays(toDate('2026-03-18'), 1)", datetime.date(2026, 3, 19)),
    (f"addDays({_TIME}, 1)", _time("2026-03-19 10:47:33")),
    ("addMonths(toDate('2026-01-31'), 1)", datetime.date(2026, 2, 28)),
    (f"subtractHours({_TIME}, 11)", _time("2026-03-17 23:47:33")),
    ("subtractYears(toDate('2024-02-29'), 1)", datetime.date(2023, 2, 28)),
    (f"addWeeks({_TIME}, -1)", _time("2026-03-11 10:47:33")),
    (f"{_TIME} + toIntervalDay(2)", _time("2026-03-20 10:47:33")),
    ("dateDiff('day', toDate('2026-01-01'), toDate('2026-03-01'))", 59),
    ("dateDiff('hour', toDateTime('2018-01-01 22:59:00'), toDateTime('2018-01-01 23:01:00'))", 1),
    ("date_diff('month', '2026-01-31', '2026-02-01')", 1),
    ("dateDiff('week', toDate('2026-03-15'), toDate('2026-03-16'))", 1),
    ("dateDiff('year', toDate('2026-12-31'), toDate('2025-01-01'))", -1),
    ("ifNull(NULL, 'z')", "z"),
    ("assumeNotNull('z')", "z"),
    ("multiIf(false, 1, true, 2, 3)", 2),
    ("empty('')", True),
    ("notEmpty('a')", True),
    ("empty(array())", True),
    ("notEmpty(array(1))", True),
    ("intDiv(7, 2)", 3),
    ("intDiv(-7, 2)", -3),
    ("modulo(7, 2)", 1),
    ("divide(7, 2)", 3.5),
    ("formatReadableSize(100000)", "97.66 KiB"),
    ("formatReadableSize(0)", "0.00 B"),
    ("has(array(1, 2), 2)", True),
    ("hasAll(array(1, 2), array(2, 3))", False),
    ("indexOf(array('a', 'b'), 'b')", 2),
    ("arrayMap(x -> x * 2, array(1, 2))", [2, 4]),
    ("arrayFilter(x -> x > 1, array(1, 2))", [2]),
    ("arrayStringConcat(array('a', 'b'), '-')", "a-b"),
    ("range(3)", [0, 1, 2]),
    ("range(0)", []),
    ("splitByChar('.', 'a.b')", ["a", "b"]),
    ("replaceAll('aa', 'a', 'b')", "bb"),
    ("replaceOne('aa', 'a', 'b')", "ba"),
    ("match('abc', 'b')", True),
    ("startsWith('abc', 'a')", True),
    ("JSONExtractString('{\"a\": {\"b c\": \"x\"}}', 'a', 'b c')", "x"),
    ("JSONExtractInt('{\"a\": 5}', 'a')", 5),
    ("JSONExtractInt('{}', 'a')", 0),
    ("JSONHas('{}', 'a')", False),
    ("tuple(1, 'a')", {"col1": 1, "col2": "a"}),
]
_AGGREGATES = [
    ("count()", 3),
    ("uniq(s)", 2),
    ("uniqExact(s)", 2),
    ("uniqIf(s, id > 1)", 1),
    ("any(id) IN (1, 2, 3)", True),
    ("any(id > 2)", True),
    ("argMax(s, id)", "two"),
    ("groupUniqArray(s)", ["one", "two"]),
    ("countIf(id > 1)", 2),
    ("sumIf(id, id > 1)", 5),
    # A column that can be NULL.
    ("sumIf(id, id > 9)", None),
    ("count() FILTER (WHERE id > 1)", 2),
    ("uniq(s) FILTER (WHERE id > 1)", 1),
    ("count(DISTINCT s) + count()", 5),
    ("toStartOfDay(max(ts))", _time("2026-02-01")),
]


def _values(world: SparkWorld, expressions: list[str], rest: str = "") -> dict[str, Any]:  # Any: as their types are
    columns = ", ".join(f"{expression} AS c{index}" for index, expression in enumerate(expressions))
    (row,) = world.run(f"SELECT {columns} {rest}").table.to_pylist()
    return dict(zip(expressions, row.values(), strict=True))


def test_what_functions_return(world: SparkWorld) -> None:
    assert _values(world, [expression for expression, _ in _SCALARS]) == dict(_SCALARS)


def test_what_aggregates_return(world: SparkWorld) -> None:
    found = _values(world, [expression for expression, _ in _AGGREGATES], "FROM t")
    found["groupUniqArray(s)"].sort()
    assert found == dict(_AGGREGATES)


def test_functions_work_wherever_an_expression_stands(world: SparkWorld) -> None:
    grouped = "SELECT toStartOfMonth(ts) AS m, count() AS c FROM t GROUP BY toStartOfMonth(ts) HAVING count() > 1"
    assert world.run(grouped).table.to_pylist() == [{"m": datetime.date(2026, 1, 1), "c": 2}]
    assert world.run("SELECT count() OVER () AS c FROM t").table.column("c").to_pylist() == [3, 3, 3]
    assert world.run("SELECT arrayJoin(a) AS x FROM t ORDER BY x").table.column("x").to_pylist() == [1, 2, 3]
    assert world.run("SELECT * FROM numbers(3)").table.to_pydict() == {"number": [0, 1, 2]}
    assert world.run("SELECT number FROM numbers(2, 2)").table.to_pydict() == {"number": [2, 3]}
    world.run("CREATE TABLE u (id Int64, day Date DEFAULT yesterday()) ENGINE = MergeTree ORDER BY id")
    world.run("INSERT INTO u SELECT toInt64(number), addDays(today(), -number) FROM numbers(4)")
    world.run("INSERT INTO u (id) VALUES (9)")
    assert world.run("SELECT count() AS c FROM u WHERE day = yesterday()").table.column("c").to_pylist() == [2]
    world.run("DELETE FROM u WHERE toInt8(id) > 2")
    world.run("UPDATE u SET day = toDate('2020-01-01') WHERE has(array(1, 2), id)")
    assert world.run("SELECT count() AS c FROM u WHERE toYear(day) = 2020").table.column("c").to_pylist() == [2]


def test_conditions_on_functions_leave_parts_out(world: SparkWorld) -> None:
    world.run("CREATE TABLE p (id Int64, ts DateTime) ENGINE = MergeTree PARTITION BY toDate(ts) ORDER BY id")
    world.run("INSERT INTO p SELECT number, toDateTime('2026-01-01 00:00:00') + toIntervalDay(number) FROM numbers(5)")
    answer = world.run("SELECT count() AS c FROM p WHERE toDate(ts) >= toDate('2026-01-04')")
    assert (answer.table.column("c").to_pylist(), answer.parts_pruned) == ([2], 3)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("SELECT toDate()", "BAD_ARGUMENTS", "takes 1 or 2"),
        ("SELECT cuont(*) FROM t", "UNKNOWN_FUNCTION", "did you mean .*count"),
        ("SELECT toStartofHuor(now())", "UNKNOWN_FUNCTION", "toStartOfHour"),
        ("SELECT cityHash64('a')", "UNKNOWN_FUNCTION", "xxhash64"),
        ("SELECT * FROM s3('http://x/y.parquet')", "UNKNOWN_FUNCTION", "queries read no files"),
        ("SELECT toUInt8(300)", "BAD_QUERY", "not from 0 to 255"),
        ("SELECT toInt64('x')", "BAD_QUERY", "cannot be cast"),
        ("SELECT dateDiff('eon', now(), now())", "BAD_QUERY", "no such unit of time: eon"),
        ("SELECT toDate(array(1))", "BAD_QUERY", "CAST"),
    ],
)
def test_what_does_not_work_is_named(world: SparkWorld, text: str, code: str, message: str) -> None:
    with pytest.raises(TilthError, check=WithCode(code), match=message):
        world.run(text)


def test_expressions_are_made_of_allowed_functions_and_change_none_of_sparks(world: SparkWorld) -> None:
    session = world.session.new_session(pool="queries")
    for name, variants in functions().items():
        for variant in variants:
            if variant.arguments is None:
                assert variant.expression in allow_list().functions
            elif not variant.expression.startswith(REFUSED):
                check_plan(parse_expression(session, variant.expression.replace("$", "a")))
        assert (name.lower() in allow_list().functions) == (name in EXTENDED), name
