"""NaN, both zeros and dates before the calendar's change: every statement with a filter finds them in parts.

Each of these was lost once: Parquet's own filters answer otherwise than Spark for them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lane_spark import LaneSpark
from tests.long import cases
from tilth.node import Node
from tilth.storage import BadColumnError

pytestmark = pytest.mark.integration
#: Ids of the rows that each filter finds.
FILTERS = {
    "x > 5": {1, 2},
    "x = CAST('NaN' AS DOUBLE)": {1, 2},
    "x <> 3": {1, 2, 4, 5},
    "x NOT IN (3)": {1, 2, 4, 5},
    "x BETWEEN 4 AND CAST('NaN' AS DOUBLE)": {1, 2},
    "x = 0": {4, 5},
    "x = CAST('-0.0' AS DOUBLE)": {4, 5},
    "part.x > 5": {1, 2},
    "part.x = 0": {4, 5},
    "day = DATE'1582-10-10'": {3, 4},
    "day > DATE'1582-10-04' AND day < DATE'1582-10-15'": {3, 4},
    "at = TIMESTAMP'1582-10-10 12:00:00'": {3, 4},
    "at >= TIMESTAMP'1582-10-05 00:00:00' AND at < TIMESTAMP'1582-10-14 00:00:00'": {3, 4},
    "part.day = DATE'1582-10-10'": {3, 4},
}
_ROWS = {
    1: ("CAST('NaN' AS DOUBLE)", "1582-10-04"),
    2: ("CAST('NaN' AS DOUBLE)", "1582-10-04"),
    3: ("3D", "1582-10-10"),
    4: ("CAST('-0.0' AS DOUBLE)", "1582-10-10"),
    5: ("0D", "1582-10-04"),
}


@pytest.fixture(scope="module")
def node(lane_spark: LaneSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with lane_spark.node(tmp_path_factory.mktemp("every")) as made:
        made.engine.run("SYSTEM STOP MERGES", database="default")
        made.engine.run("SYSTEM STOP FLUSH", database="default")
        yield made


def _run(node: Node, text: str) -> set[int]:
    table = node.engine.run(text, database="default").table
    return set(table.column("id").to_pylist()) if table.num_columns else set()


def _make(node: Node, name: str, settings: str = "") -> None:
    _run(
        node,
        f"CREATE TABLE {name} (id BIGINT, v BIGINT, x DOUBLE, day DATE, at TIMESTAMP, "
        f"part STRUCT<x: DOUBLE, day: DATE>) ENGINE = MergeTree ORDER BY id {settings}",
    )
    # Three inserts, so that parts, and then their merge, have few values each.
    for ids in ((1, 2), (3,), (4, 5)):
        rows = " UNION ALL ".join(
            f"SELECT {each}, 0, {x}, DATE'{day}', TIMESTAMP'{day} 12:00:00', named_struct('x', {x}, 'day', DATE'{day}')"
            for each in ids
            for x, day in [_ROWS[each]]
        )
        _run(node, f"INSERT INTO {name} {rows}")


@pytest.mark.parametrize(
    "settings", cases(["SETTINGS parquet_row_group_rows = 1", "SETTINGS memory_buffer = 1", ""], first=2)
)
def test_the_answer_does_not_change_with_flush_and_merge(node: Node, settings: str) -> None:
    _make(node, "kept", settings)
    for step in ("SELECT 1 AS id", "SYSTEM FLUSH kept", "OPTIMIZE TABLE kept FINAL"):
        _run(node, step)
        # A scan of its own for each.
        scans = (f"SELECT {n} AS n, id FROM kept WHERE {text}" for n, text in enumerate(FILTERS))
        table = node.engine.run(" UNION ALL ".join(scans), database="default").table
        rows = list(zip(table.column("n").to_pylist(), table.column("id").to_pylist(), strict=True))
        found = {text: {row for number, row in rows if number == n} for n, text in enumerate(FILTERS)}
        assert found == FILTERS, step
        assert len(rows) == sum(map(len, FILTERS.values())), step
    _run(node, "DROP TABLE kept")


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        ("DELETE FROM t WHERE {filter}", "SELECT id FROM t"),
        ("ALTER TABLE t DELETE WHERE {filter} SETTINGS mutations_sync = 1", "SELECT id FROM t"),
        ("UPDATE t SET v = 1 WHERE {filter}", "SELECT id FROM t WHERE v = 0"),
        ("ALTER TABLE t UPDATE v = 1 WHERE {filter} SETTINGS mutations_sync = 1", "SELECT id FROM t WHERE v = 0"),
    ],
    ids=["delete", "alter_delete", "update", "alter_update"],
)
@pytest.mark.parametrize("text", cases(["x > 5", "x = 0", "day = DATE'1582-10-10'"]))
@pytest.mark.parametrize("is_merged", [False, True], ids=["parts", "merged"])
def test_statements_that_change_rows_find_them_all(
    node: Node, statement: str, answer: str, text: str, is_merged: bool
) -> None:
    _make(node, "t")
    if is_merged:
        _run(node, "OPTIMIZE TABLE t FINAL")
    _run(node, statement.format(filter=text))
    assert _run(node, answer) == set(_ROWS) - FILTERS[text]
    _run(node, "DROP TABLE t")


@pytest.mark.parametrize("clause", ["ORDER BY s", "UNIQUE KEY (s)", "PARTITION BY bucket(2, s)", "PARTITION BY s"])
def test_bytes_that_are_no_text_are_strings_for_spark_and_stored_nowhere(node: Node, clause: str) -> None:
    _run(node, f"CREATE TABLE bytes (id BIGINT, s STRING) ENGINE = MergeTree {clause}")
    for values in ("1, CAST(X'FE41' AS STRING)", "1, 'a' UNION ALL SELECT 2, CAST(X'FE41' AS STRING)"):
        with pytest.raises(BadColumnError, match="not UTF-8"):
            _run(node, f"INSERT INTO bytes SELECT {values}")
    _run(node, "INSERT INTO bytes SELECT 3, CAST(X'F09F9880' AS STRING)")
    assert _run(node, "SELECT id FROM bytes WHERE s > 'b'") == {3}
    assert _run(node, "SELECT id FROM bytes WHERE hex(s) = 'FE41'") == set()
    _run(node, "DROP TABLE bytes")


def test_a_dot_in_a_column_s_name(node: Node) -> None:
    _run(node, "CREATE TABLE dots (id BIGINT, `a.b` DOUBLE, a STRUCT<b: DOUBLE>) ENGINE = MergeTree ORDER BY `a.b`")
    _run(node, "INSERT INTO dots SELECT 1, CAST('NaN' AS DOUBLE), named_struct('b', 1D)")
    _run(node, "INSERT INTO dots SELECT 2, 1D, named_struct('b', CAST('NaN' AS DOUBLE))")
    assert _run(node, "SELECT id FROM dots WHERE `a.b` > 5") == {1}
    assert _run(node, "SELECT id FROM dots WHERE a.b > 5") == {2}
    _run(node, "ALTER TABLE dots UPDATE a = named_struct('b', `a.b`) WHERE a.b = 1 SETTINGS mutations_sync = 1")
    _run(node, "UPDATE dots SET a = named_struct('b', 7D) WHERE `a.b` = 1")
    assert _run(node, "SELECT id FROM dots WHERE a.b > 7") == {1}
    assert _run(node, "SELECT id FROM dots WHERE a.b = 7") == {2}
