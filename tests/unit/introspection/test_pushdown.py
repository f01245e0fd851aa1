"""Columns and conditions that are pushed down: never fewer columns or rows than the answer needs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute
import pytest
import sqlglot

from tilth.introspection.pushdown import pushdown_of
from tilth.introspection.system_queries import answer_from_system
from tilth.model.pushdown import Pushdown
from tilth.model.text.quotes import with_backticks


def wanted(text: str) -> Pushdown:
    named = with_backticks(text)
    return pushdown_of(sqlglot.parse_one(named, read="spark"), named)


@pytest.mark.parametrize(
    ("text", "equal"),
    [
        ("SELECT a FROM t WHERE database = 'd' AND \"table\" = 't'", {"database": "d", "table": "t"}),
        ("SELECT a FROM t x WHERE ('d' = x.database) AND (b OR c) AND x.Name = 'n'", {"database": "d", "name": "n"}),
        ("SELECT count(*) FROM t WHERE database = 'd' GROUP BY a HAVING max(b) = 'x'", {"database": "d"}),
        ("SELECT a FROM t WHERE database = 'd' AND database = 'e'", {"database": "d"}),
        ("SELECT a FROM t WHERE database = 'd' OR name = 'n'", {}),
        ("SELECT a FROM t WHERE NOT database = 'd'", {}),
        ("SELECT a FROM t WHERE NOT (database = 'd' AND name = 'n')", {}),
        ("SELECT a FROM t WHERE database <> 'd' AND name LIKE 'n' AND b = 1 AND c = d", {}),
        ("SELECT a FROM t WHERE lower(database) = 'd'", {}),
        (r"SELECT a FROM t WHERE name = 'it\'s' AND b = 'x\\y' AND c = 'it''s' AND d = r'e'", {}),
        (r"SELECT a FROM t WHERE name = '\%' AND a <> '%'", {}),
        ("SELECT a FROM t, u WHERE database = 'd'", {}),
        ("SELECT a FROM t, (VALUES ('d')) AS v (database) WHERE v.database = 'd'", {}),
        ("SELECT a FROM t CROSS JOIN UNNEST(b) AS v (database) WHERE database = 'd'", {}),
        ("SELECT v.name FROM (VALUES ('d')) AS v (name) LEFT ANTI JOIN t ON t.a = v.name WHERE name = 'd'", {}),
        ("SELECT a FROM t AS x (name, database) WHERE database = 'd'", {}),
        ("SELECT a FROM t JOIN t AS u ON t.a = u.a WHERE t.database = 'd'", {}),
        ("SELECT a FROM t WHERE database = 'd' AND a IN (SELECT a FROM t)", {}),
        ("SELECT a FROM (SELECT * FROM t) WHERE database = 'd'", {}),
        ("SELECT a FROM t WHERE database = 'd' UNION ALL SELECT a FROM t", {}),
        ("WITH u AS (SELECT a, database FROM t) SELECT a FROM u WHERE database = 'd'", {}),
    ],
)
def test_rows_are_narrowed_by_what_every_row_of_the_answer_has(text: str, equal: dict[str, str]) -> None:
    assert wanted(text).equal == equal


@pytest.mark.parametrize(
    ("text", "true", "not_null"),
    [
        ("SELECT a FROM t WHERE Ready AND b IS NOT NULL AND (x OR y)", {"ready"}, {"b"}),
        ("SELECT a FROM t x WHERE (x.ready) AND NOT (x.b IS NULL)", {"ready"}, {"b"}),
        ("SELECT a FROM t WHERE ready OR b IS NOT NULL", set(), set()),
        ("SELECT a FROM t WHERE NOT ready AND b IS NULL AND NOT (b IS NOT NULL)", set(), set()),
        ("SELECT a FROM t WHERE ready IS NOT TRUE AND b = 1 IS NOT NULL AND coalesce(b, 1) IS NOT NULL", set(), set()),
        ("SELECT a FROM t JOIN t AS u ON t.a = u.a WHERE t.ready AND t.b IS NOT NULL", set(), set()),
        ("SELECT a FROM t WHERE a IN (SELECT a FROM t WHERE ready)", set(), set()),
    ],
)
def test_rows_are_narrowed_by_flags_and_by_what_is_not_null(text: str, true: set[str], not_null: set[str]) -> None:
    found = wanted(text)
    assert ({*found.true}, {*found.not_null}) == (true, not_null)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t",
        "SELECT x.* FROM t x",
        "SELECT a, * EXCEPT (b) FROM t",
        "SELECT count(DISTINCT *) FROM t",
        "SELECT a FROM t NATURAL JOIN u",
        "SELECT a FROM (SELECT * FROM t)",
        "SELECT struct(*) FROM t",
        "SELECT b FROM t AS x (a, b)",
        "SELECT b FROM (SELECT x.b FROM t AS x (a, b)) AS y",
    ],
)
def test_columns_may_be_wanted_without_their_names(text: str) -> None:
    assert wanted(text).columns is None
    assert wanted(text).has("anything")


def test_other_columns_than_those_named_are_not_wanted() -> None:
    text = "SELECT count(*), Max(x.Rows) AS most FROM t x WHERE \"at\" > 1 -- version\n ORDER BY 'comment' LIMIT 3"
    found = wanted(text)
    assert [each for each in ("rows", "at", "Rows", "version", "comment", "uuid") if found.has(each)] == [
        "rows",
        "at",
        "Rows",
    ]


PARTS = pa.table(
    {
        "database": ["d", "d", "e", "it's"],
        "table": ["t", "u", "t", "t"],
        "name": ["n1", "n2", "t", "n4"],
        "rows": [1, 2, 3, 4],
        "active": [True, False, None, True],
        "damaged": [None, "torn", None, "torn"],
    }
)


def all_parts(name: str, wanted: Pushdown) -> pa.Table:
    return PARTS


def as_few_parts_as_are_wanted(name: str, wanted: Pushdown) -> pa.Table:
    found = PARTS
    for column, text in wanted.equal.items():
        found = found.filter(pyarrow.compute.equal(found[column], text))
    for column in wanted.true:
        found = found.filter(found[column])
    for column in wanted.not_null:
        found = found.filter(pyarrow.compute.is_valid(found[column]))
    return pa.table({each: found[each] if wanted.has(each) else pa.nulls(len(found)) for each in found.column_names})


@pytest.mark.parametrize(
    "text",
    [
        "SELECT b FROM system.parts AS p (a, b, c, d, e, f)",
        "SELECT sum(rows) FROM system.parts AS p (name, b, c, rows, e, f) WHERE name = 'd'",
        "SELECT p.name FROM system.parts p, (VALUES ('q')) AS v (database) WHERE v.database = 'q'",
        "SELECT v.name FROM (VALUES ('t')) AS v (name) LEFT SEMI JOIN system.parts p ON p.name = v.name "
        "WHERE name = 't'",
        "SELECT v.name FROM (VALUES ('n1')) AS v (name) LEFT ANTI JOIN system.parts p ON p.table = v.name "
        "WHERE name = 'n1'",
        "SELECT name FROM system.parts WHERE database = 'it\\'s' AND table = '\\164'",
        "SELECT name FROM system.parts WHERE table = 't' = true AND database = 'd' IS NOT NULL",
        "SELECT name FROM system.parts WHERE table = 't' /* /* */ OR 1 = 1 -- */",
        "SELECT upper(table) AS table FROM system.parts WHERE table = 'T'",
        "SELECT max(name) FILTER (WHERE table = 'u') FROM system.parts WHERE database = 'd'",
        "SELECT table, count(*) FROM system.parts WHERE table = 't' GROUP BY ROLLUP (table) ORDER BY table",
        "SELECT name FROM system.parts WHERE table = 't' QUALIFY row_number() OVER (ORDER BY rows DESC) = 1",
        "SELECT name FROM system.parts WHERE active AND damaged IS NOT NULL",
        "SELECT name FROM system.parts WHERE NOT active OR NOT (damaged IS NULL) AND active",
        "SELECT name, active IS NULL AS active FROM system.parts WHERE (active) = false IS NOT NULL ORDER BY name",
        "SELECT count(*) FILTER (WHERE active) FROM system.parts WHERE NOT (damaged IS NOT NULL)",
        "SELECT u.name FROM (SELECT name, table FROM system.parts) AS u (table, name) WHERE u.table = 'n1'",
    ],
)
def test_answers_are_those_over_all_rows_and_columns(text: str) -> None:
    assert answer_from_system(text, as_few_parts_as_are_wanted) == answer_from_system(text, all_parts)
