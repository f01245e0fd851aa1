"""A real Spark: what its optimizer says that a query needs of its tables, as ranges of parts can answer it.

Which columns are needed is tested in test_read_scan_paths.py, together with the answers.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from tilth.model.part import Bound
from tilth.model.table import Column, Schema
from tilth.model.types import DataType, Decimal, Kind, Simple
from tilth.query.snapshots.predicates import (
    AllOf,
    AnyOf,
    Compare,
    Comparison,
    HasPrefix,
    IsIn,
    IsNull,
    Needs,
    Negation,
    Predicate,
    Undecided,
)
from tilth.query.snapshots.simplify import joined
from tilth.query.worker.needs_spark import create_views, find_needs

pytestmark = pytest.mark.integration
_TYPES: dict[str, DataType] = {
    "tiny": Simple(Kind.INT8),
    "i": Simple(Kind.INT32),
    "k": Simple(Kind.INT64),
    "f": Simple(Kind.FLOAT32),
    "x": Simple(Kind.FLOAT64),
    "m": Decimal(9, 2),
    "b": Simple(Kind.BOOLEAN),
    "s": Simple(Kind.STRING),
    "raw": Simple(Kind.BINARY),
    "day": Simple(Kind.DATE),
    "at": Simple(Kind.TIMESTAMP),
    "wall": Simple(Kind.TIMESTAMP_NTZ),
    "a.b": Simple(Kind.INT32),
}
SCHEMA = Schema(columns=tuple(Column(id=n, name=name, type=each) for n, (name, each) in enumerate(_TYPES.items(), 1)))
_NOON = int(datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC).timestamp() * 1_000_000)
EQUAL = Comparison.EQUAL


def _needs(session: SparkSession, text: str, tables: int = 1) -> Needs:
    names = [f"t{number}" for number in range(tables)]
    create_views(session, names, [SCHEMA] * tables)
    return find_needs(session, text, tables)


def _predicates(session: SparkSession, where: str) -> list[Predicate]:
    """The conditions, without those that Spark adds: that a column is not NULL."""
    (found,) = _needs(session, f"SELECT k FROM t0 WHERE {where}").predicates
    found = joined(found)
    items = found.items if isinstance(found, AllOf) else (found,)
    return [item for item in items if not (isinstance(item, Negation) and isinstance(item.item, IsNull))]


@pytest.mark.parametrize(
    ("where", "column", "value"),
    [
        ("tiny = 7", "tiny", 7),
        ("i = -2147483648", "i", -(2**31)),
        ("k = 9223372036854775807", "k", 2**63 - 1),
        ("k = '5'", "k", 5),
        # 0.7 as a DOUBLE is another number than 0.7 as a FLOAT.
        ("f = 0.7F", "f", 0.699999988079071),
        ("f = 3.4028234E38F", "f", 3.4028234663852886e38),
        ("x = 0.7D", "x", 0.7),
        ("x = 1e300", "x", 1e300),
        ("x = 5", "x", 5.0),
        ("m = 12.50", "m", "12.50"),
        ("b", "b", True),
        ("s = 'a\u00e9\U0001f600\ufffd\"\\\\'", "s", 'a\u00e9\U0001f600\ufffd"\\'),
        ("day = DATE'1970-01-03'", "day", 2),
        ("day = DATE'0001-01-01'", "day", -719162),
        ("at = TIMESTAMP'2020-01-02 03:04:05.000006Z'", "at", _NOON),
        ("at = TIMESTAMP'9999-12-31 23:59:59Z'", "at", 253402300799000000),
        ("wall = TIMESTAMP_NTZ'2020-01-02 03:04:05.000006'", "wall", _NOON),
        ("`a.b` = 1", "a.b", 1),
    ],
)
def test_literals_are_as_ranges_are(session: SparkSession, where: str, column: str, value: Bound) -> None:
    (found,) = _predicates(session, where)
    assert isinstance(found, Compare)
    assert (found.column, found.comparison, type(found.value)) == (column, EQUAL, type(value))
    assert found.value == value


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "UTC"])
def test_a_time_means_what_it_means_in_the_session_s_zone(session: SparkSession, zone: str) -> None:
    session.conf.set("spark.sql.session.timeZone", zone)
    try:
        # In Berlin this hour comes twice.
        text = "2020-10-25 02:30:00"
        micros = session.sql(f"SELECT unix_micros(TIMESTAMP'{text}')").collect()[0][0]
        assert _predicates(session, f"at >= '{text}'") == [Compare("at", Comparison.GREATER_OR_EQUAL, micros)]
        later = "2020-10-25 02:30:00+01:00"
        assert _predicates(session, f"at IN (TIMESTAMP'{later}')") == [Compare("at", EQUAL, 1603589400000000)]
    finally:
        session.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("5 < k", Compare("k", Comparison.GREATER, 5)),
        ("5 >= k", Compare("k", Comparison.LESS_OR_EQUAL, 5)),
        ("k IN (1, NULL)", IsIn("k", (1, None))),
        ("k NOT IN (1, 2)", Negation(IsIn("k", (1, 2)))),
        ("k = 1 OR k = 2 OR k IN (3, 4)", IsIn("k", (1, 2, 3, 4))),
        ("k <> 1 AND k <> 2 AND NOT (k = 3)", Negation(IsIn("k", (1, 2, 3)))),
        ("s IS NULL", IsNull("s")),
        ("s LIKE 'ab%'", HasPrefix("s", "ab")),
        ("k = 1 OR s IS NULL", AnyOf((IsIn("k", (1,)), IsNull("s")))),
        ("b = false", Negation(IsIn("b", (True,)))),
        ("k IN (1, 2, i)", Undecided()),
        ("k = i", Undecided()),
        ("upper(s) = 'X'", Undecided()),
        ("x = CAST('NaN' AS DOUBLE)", Undecided()),
        ("x IN (1, CAST('NaN' AS DOUBLE))", Undecided()),
        ("x < CAST('Infinity' AS DOUBLE)", Undecided()),
        ("raw = X'01'", Undecided()),
        # The text of X'FF' would be U+FFFD, which sorts elsewhere.
        ("s < CAST(X'FF' AS STRING)", Undecided()),
        ("s IN ('a', CAST(X'FF' AS STRING))", Undecided()),
        ("s COLLATE UTF8_LCASE = 'a'", Undecided()),
        ("s COLLATE UTF8_LCASE IN ('a', 'b')", Undecided()),
        ("k <=> 1", Undecided()),
        ("rand() < 0.5", Undecided()),
    ],
)
def test_conditions(session: SparkSession, where: str, expected: Predicate) -> None:
    assert _predicates(session, where) == [expected]


def test_long_lists_are_one_term_each(session: SparkSession) -> None:
    """Spark makes sets of lists of more than ten."""
    numbers = ", ".join(map(str, range(2000)))
    texts = ", ".join(f"'v{number}'" for number in range(2000))
    days = ", ".join(f"date_add(DATE'1970-01-01', {number})" for number in range(50))
    for where, values in (
        (f"k IN ({numbers})", list(range(2000))),
        (f"k IN (NULL, {numbers})", [None, *range(2000)]),
        (f"tiny IN ({numbers}) OR tiny = 200", None),
        (f"m IN ({numbers})", [f"{number}.00" for number in range(2000)]),
        (f"x IN ({numbers}, -0.0D)", [float(number) for number in range(2000)]),
        (f"s IN ({texts})", [f"v{number}" for number in range(2000)]),
        (f"day IN ({days})", list(range(50))),
    ):
        (found,) = _predicates(session, where)
        if values is not None:
            assert isinstance(found, IsIn)
            assert set(found.values) == set(values)
        (found,) = _predicates(session, where.replace(" IN", " NOT IN")) or [Undecided()]
        if values is not None and None not in values:
            assert isinstance(found, Negation)
            assert isinstance(found.item, IsIn)
            assert set(found.item.values) == set(values)


def test_chains_and_nested_conditions_have_a_bound(session: SparkSession) -> None:
    """A chain is one node however long it is; what is nested deeply is unknown, and the rest is known."""
    chain = " AND ".join(f"k <> {number}" for number in range(300))
    assert _predicates(session, chain) == [Negation(IsIn("k", tuple(range(300))))]
    pairs = " OR ".join(f"(k = {number} AND i = {number + 1})" for number in range(200))
    (found,) = _needs(session, f"SELECT k FROM t0 WHERE s = 'x' AND ({pairs})").predicates
    assert Compare("s", EQUAL, "x") in joined(found).items  # type: ignore[union-attr]
    nested = "k = 0"
    for number in range(1, 90):
        nested = f"({nested} OR (k = {number} AND i = {number}) AND s = 'v{number}') AND x > {number}"
    (found,) = _needs(session, f"SELECT k FROM t0 WHERE {nested}").predicates
    assert Compare("x", Comparison.GREATER, 89.0) in joined(found).items  # type: ignore[union-attr]


def test_what_is_read_twice_gets_the_union_and_subqueries_are_seen(session: SparkSession) -> None:
    # The table in the subquery is the same reference, of a common table expression.
    text = "WITH c AS (SELECT k, s FROM t0) SELECT k, (SELECT max(k) FROM c) FROM c WHERE k = 1"
    (found,) = _needs(session, text).predicates
    assert isinstance(found, AnyOf)
    assert Undecided() in found.items
    text = "SELECT k FROM t0 WHERE k = 1 AND i > (SELECT max(i) FROM t1 WHERE k = 2 AND s IN ('a', 'b'))"
    first, second = (json.dumps(repr(each)) for each in _needs(session, text, 2).predicates)
    assert "value=1" in first
    assert "value=2" in second
    assert "'b'" in second
    text = "SELECT a.k FROM t0 a JOIN t1 b ON a.k = b.k WHERE a.k = 5 AND b.i = 6"
    first, second = (repr(each) for each in _needs(session, text, 2).predicates)
    assert "value=6" not in first
    assert "value=6" in second


def test_columns_of_readings_that_stand_side_by_side(session: SparkSession) -> None:
    def columns(text: str, tables: int = 1) -> list[set[str] | None]:
        return [None if found is None else set(found) for found in _needs(session, text, tables).columns]

    assert columns("SELECT k FROM t0 UNION ALL SELECT i FROM t1", 2) == [{"k"}, {"i"}]
    assert columns("WITH c AS (SELECT * FROM t0) SELECT k FROM c UNION ALL SELECT i FROM c") == [{"k", "i"}]
    assert columns("SELECT * FROM t0") in ([None], [set(_TYPES)])
    assert columns("SELECT * FROM t0 a JOIN (SELECT k FROM t1) b ON a.k = b.k", 3)[1:] == [{"k"}, None]
    assert columns("SELECT max(k) FROM t0 WHERE i > 3 GROUP BY s") == [{"k", "i", "s"}]
