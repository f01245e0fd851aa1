"""Queries over system tables that may take long: which, and that their process ends with them."""

from __future__ import annotations

import threading

import psutil
import pyarrow as pa
import pytest
import sqlglot

from tests.codes import WithCode
from tilth.base.cancel import Cancellation, working_under
from tilth.base.errors import ConflictError
from tilth.introspection.system_queries import answer_from_system
from tilth.introspection.system_query_process import may_run_long
from tilth.model.pushdown import Pushdown
from tilth.query.errors import BadQueryError

TABLES = {
    "many": pa.table(
        {"a": pa.array(range(20_000), pa.int64()), "at": pa.array([0] * 20_000, pa.timestamp("us", "UTC"))}
    ),
    "few": pa.table({"a": pa.array([1, 2], pa.int64())}),
}


def _rows(name: str, _: Pushdown) -> pa.Table:
    return TABLES[name]


ENDLESS = "SELECT count(*) FROM system.many x, system.many y, system.many z WHERE x.a * y.a % 7 = z.a"


@pytest.mark.parametrize(
    ("text", "is_long"),
    [
        ("SELECT * FROM many", False),
        ("SELECT * FROM many, few", False),
        ("SELECT * FROM many a, many b", True),
        ("SELECT * FROM many WHERE a IN (SELECT a FROM many)", True),
        ("SELECT repeat('x', 1000000000) FROM few", True),
        ("WITH RECURSIVE n AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM n) SELECT * FROM n, few", True),
    ],
)
def test_what_multiplies_rows_or_texts_may_take_long(text: str, is_long: bool) -> None:
    rows = {name: table.num_rows for name, table in TABLES.items()}
    assert may_run_long(sqlglot.parse_one(text, read="spark"), rows) == is_long


def test_the_answer_of_a_long_query_is_that_of_a_short_one() -> None:
    begun: list[int] = []
    text = "SELECT x.a, x.at, count(*) AS n FROM system.many x JOIN system.many y ON x.a = y.a GROUP BY 1, 2 ORDER BY 1"
    found = answer_from_system(text, _rows, before_long=lambda: begun.append(1))
    assert begun == [1]
    assert found.num_rows == 20_000
    assert found.slice(5, 1).to_pylist() == [{"a": 5, "at": TABLES["many"]["at"][0].as_py(), "n": 1}]
    assert found.schema == pa.schema([("a", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])


def test_a_long_query_ends_with_its_statement_and_leaves_no_process() -> None:
    cancellation, before = Cancellation(), psutil.Process().children()
    timer = threading.Timer(
        0.5,
        lambda: cancellation.cancel(ConflictError.coded("QUERY_WAS_CANCELLED", "the query was cancelled", by="a test")),
    )
    timer.start()
    with working_under(cancellation), pytest.raises(ConflictError, check=WithCode("QUERY_WAS_CANCELLED")):
        answer_from_system(ENDLESS, _rows)
    assert psutil.Process().children() == before


def test_a_result_or_a_sort_larger_than_its_memory_is_refused() -> None:
    with pytest.raises(BadQueryError, match=r"Resources exhausted|select fewer rows"):
        answer_from_system("SELECT x.a, y.at FROM system.many x, system.many y ORDER BY 1, 2", _rows)
