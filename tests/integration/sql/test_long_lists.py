"""A long list of values finds what its short pieces find, through the engine on Spark, for every kind of value.

How: each condition is asked with a list that is padded with values that no row has, and with a short list of those
that rows have, which leaves no part out. Rows are in several parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lane_spark import LaneSpark
from tests.long import cases
from tilth.node import Node

pytestmark = pytest.mark.integration
LENGTH = 600
_ROWS = {
    1: ("1", "'a'", "CAST('NaN' AS DOUBLE)", "1.50", "DATE'1582-10-10'"),
    2: ("2", "'B'", "CAST('-0.0' AS DOUBLE)", "-0.05", "DATE'1970-01-01'"),
    3: ("-9223372036854775808", "''", "0D", "0", "DATE'9999-12-31'"),
    4: ("9223372036854775807", "'\U0001f600'", "CAST('Infinity' AS DOUBLE)", "9999999.99", "DATE'0001-01-01'"),
    5: ("NULL", "NULL", "NULL", "NULL", "NULL"),
    6: ("6", "'it''s'", "1.5D", "7.25", "DATE'2024-02-29'"),
}
#: Lists by column: values that rows have, and a pattern for values that no row has.
_LISTS = {
    "k": (("2", "-9223372036854775808", "6"), "{0} * 0 + 1000{0}"),
    "plain": (("2", "6", "9223372036854775807"), "1000{0}"),
    "s": (("'a'", "'\U0001f600'", "''"), "'v{0}'"),
    "x": (("0D", "CAST('NaN' AS DOUBLE)", "1.5D"), "1000{0}D"),
    "zero": (("CAST('-0.0' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"), "1000{0}D"),
    "m": (("1.50", "-0.05"), "1{0}.5"),
    "day": (("DATE'1582-10-10'", "DATE'2024-02-29'"), "date_add(DATE'2100-01-01', {0})"),
    "text_of_k": (("'2'", "'6'"), "'1000{0}'"),
    "s COLLATE UTF8_LCASE": (("'b'", "'A'"), "'v{0}'"),
}
_COLUMN = {"plain": "k", "zero": "x", "text_of_k": "k"}


@pytest.fixture(scope="module")
def node(lane_spark: LaneSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with lane_spark.node(tmp_path_factory.mktemp("long")) as made:
        made.engine.run("SYSTEM STOP MERGES", database="default")
        _make(made, "t")
        yield made


def _run(node: Node, text: str) -> list[tuple[Any, ...]]:
    table = node.engine.run(text, database="default").table
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_columns else []


def _make(node: Node, name: str) -> None:
    _run(
        node,
        f"CREATE TABLE {name} (id BIGINT, k BIGINT, s STRING, x DOUBLE, m DECIMAL(9, 2), day DATE, v BIGINT) "
        "ENGINE = MergeTree ORDER BY (k, s) SETTINGS allow_nullable_key = 1",
    )
    for ids in ((1, 2), (3,), (4, 5), (6,)):
        rows = " UNION ALL ".join(f"SELECT {each}, {', '.join(_ROWS[each])}, 0" for each in ids)
        _run(node, f"INSERT INTO {name} {rows}")


def _conditions(kind: str, *, length: int) -> dict[str, str]:
    """Conditions by their shape, with a list of so many values that no row has."""
    column = _COLUMN.get(kind, kind)
    values, other = _LISTS[kind]
    others = [other.format(number) for number in range(length)]
    half = len(others) // 2
    listed = ", ".join([*others[:half], *values, *others[half:]])
    chain = [*others[: half // 10], *values, *others[half : half + half // 10]]
    return {
        "in": f"{column} IN ({listed})",
        "not_in": f"{column} NOT IN ({listed})",
        "null": f"{column} IN (NULL, {listed})",
        "not_in_null": f"{column} NOT IN ({listed}, NULL)",
        "two": f"{column} IN ({listed}) AND id IN ({', '.join(map(str, range(2, 7 + length)))})",
        "either": f"{column} IN ({listed}) OR ({column} NOT IN ({listed}) AND id NOT IN (6, {listed_ids(length)}))",
        "or": " OR ".join(f"{column} = {each}" for each in chain),
        "and": " AND ".join(f"{column} <> {each}" for each in chain),
    }


def listed_ids(length: int) -> str:
    return ", ".join(str(number) for number in range(100, 101 + length))


def _found(node: Node, conditions: dict[str, str], settings: str = "") -> dict[str, set[int]]:
    # A scan of its own for each.
    scans = (f"SELECT '{shape}' AS shape, id FROM t WHERE {where}" for shape, where in conditions.items())
    rows = _run(node, f"{' UNION ALL '.join(scans)} {settings}")
    return {shape: {row[1] for row in rows if row[0] == shape} for shape in conditions}


@pytest.mark.parametrize("kind", cases(_LISTS, and_also=("s", "x", "day")))
def test_long_lists_find_what_short_ones_find(node: Node, kind: str) -> None:
    short = _found(node, _conditions(kind, length=0), "SETTINGS prune_parts = 0")
    assert short["in"]
    assert short["in"] | short["not_in"] == set(_ROWS) - {5}
    assert _found(node, _conditions(kind, length=LENGTH)) == short


@pytest.mark.parametrize("shape", cases(["in", "not_in", "two"]))
def test_delete_and_update_take_the_rows_that_select_finds(node: Node, shape: str) -> None:
    name = f"c_{shape}"
    _make(node, name)
    where = _conditions("plain", length=LENGTH)[shape]
    found = _run(node, f"SELECT id FROM {name} WHERE {where}")
    _run(node, f"UPDATE {name} SET v = 1 WHERE {where}")
    assert _run(node, f"SELECT id FROM {name} WHERE v = 1") == found
    _run(node, f"DELETE FROM {name} WHERE {where}")
    left = {row[0] for row in _run(node, f"SELECT id FROM {name}")}
    assert left == set(_ROWS) - {row[0] for row in found}
    _run(node, f"DROP TABLE {name}")


def test_a_long_list_still_leaves_parts_out(node: Node) -> None:
    """In a session of any zone."""
    numbers = ", ".join(str(number) for number in range(4, 5000))
    for zone in ("UTC", "Europe/Berlin"):
        answer = node.engine.run(
            f"SELECT id FROM t WHERE k IN ({numbers})",
            database="default",
            settings={"spark.sql.session.timeZone": zone},
        )
        assert answer.table.column("id").to_pylist() == [6]
        assert answer.parts_read == 1
        assert answer.parts_pruned >= 3
