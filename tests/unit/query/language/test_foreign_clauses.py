"""Clauses of other systems in queries of Spark's SQL."""

from __future__ import annotations

import pytest

from tilth.grammar.errors import UnsupportedSqlError
from tilth.query.language.foreign_clauses import check_select, clause_of
from tilth.statements.registry import parse


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("SELECT * FROM a ANY LEFT JOIN b ON a.k = b.k", "ANY JOIN"),
        ("SELECT * FROM d.a ASOF JOIN b ON a.k = b.k", "ASOF JOIN"),
        ("SELECT * FROM `a` array join t", "ARRAY JOIN"),
        ("SELECT * FROM a VERSION AS OF 3 ANY JOIN b ON a.k = b.k", "ANY JOIN"),
        ("SELECT * FROM a TIMESTAMP AS OF '2026-01-05' ASOF LEFT JOIN b ON a.k = b.k", "ASOF JOIN"),
        ("SELECT * FROM (SELECT 1) PASTE JOIN (SELECT 2)", "PASTE JOIN"),
        ("INSERT INTO t SELECT * FROM a GLOBAL INNER JOIN b ON a.k = b.k", "GLOBAL JOIN"),
        ("CREATE MATERIALIZED VIEW v TO t AS SELECT * FROM a ALL INNER JOIN b ON a.k = b.k", "ALL JOIN"),
        ("SELECT DISTINCT ON (k) k, v FROM a", "DISTINCT ON"),
    ],
)
def test_what_spark_would_take_for_an_alias_is_refused(text: str, what: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=f"^{what} is not supported") as caught:
        check_select(parse(text))
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM a AS any LEFT JOIN b ON any.k = b.k",
        "SELECT 'x ANY LEFT JOIN y' FROM a LEFT JOIN b ON a.k = b.k",
        "SELECT any, all FROM global JOIN asof ON global.k = asof.k",
        "SELECT DISTINCT k FROM a",
        "SELECT * FROM a x JOIN b y ON x.k = y.k AND x.array = y.array",
        "DROP TABLE a",
    ],
)
def test_names_and_texts_are_no_clauses(text: str) -> None:
    check_select(parse(text))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("SELECT a FROM t ORDER BY a WITH FILL STEP 1", "WITH FILL"),
        ("SELECT a FROM t ORDER BY a LIMIT 3 WITH TIES", "WITH TIES"),
        ("SELECT a FROM t OFFSET 1 ROW FETCH FIRST 2 ROWS ONLY", "FETCH"),
        ("SELECT TOP 3 a FROM t", "TOP"),
        ("SELECT * REPLACE (a + 1 AS a) FROM t", "* REPLACE"),
        ("SELECT COLUMNS('x') APPLY(sum) FROM t", "APPLY"),
        ("SELECT a FROM t LEFT ANY JOIN u USING (k)", "ANY, ALL or ASOF JOIN"),
        ("SELECT @@version", "variables"),
        ("SELECT a FROM t WHERE k = {id:UInt64}", "query parameters"),
        ("SELECT a FROM t FOR UPDATE", "FOR UPDATE"),
    ],
)
def test_a_clause_that_spark_does_not_read_has_a_name(text: str, what: str) -> None:
    found = clause_of(text)
    assert found is not None
    assert found[0] == what
    assert found[1]


@pytest.mark.parametrize("text", ["SELECT 'WITH FILL' FROM t WHER a", "SELECT a, FROM t -- FOR UPDATE"])
def test_texts_and_comments_are_no_clauses(text: str) -> None:
    assert clause_of(text) is None
