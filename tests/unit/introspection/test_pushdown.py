"""Columns and conditions that are pushed down: never fewer columns or rows than the answer needs."""

from __future__ import annotations

import pytest
import sqlglot

from tilth.introspection.pushdown import pushdown_of
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
        ("SELECT a FROM t, u WHERE database = 'd'", {}),
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
    "text",
    [
        "SELECT * FROM t",
        "SELECT x.* FROM t x",
        "SELECT a, * EXCEPT (b) FROM t",
        "SELECT count(DISTINCT *) FROM t",
        "SELECT a FROM t NATURAL JOIN u",
        "SELECT a FROM (SELECT * FROM t)",
        "SELECT struct(*) FROM t",
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
