"""Columns that are computed from others, by Spark: MATERIALIZED, ALIAS, DEFAULT over columns."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pytest

from tests.spark_world import SparkWorld

pytestmark = pytest.mark.integration

_numbers = count(1)
COLUMNS = (
    "k Int32, price Float64, pieces Int32, day DATE MATERIALIZED to_date(at), at TIMESTAMP, "
    "name String DEFAULT concat('n', k), size Int32 MATERIALIZED length(name), "
    "total Float64 ALIAS price * pieces, double_total Float64 ALIAS total * 2"
)
GIVEN = "(1, 1.5, 2, '2026-01-05 10:00:00', 'x'), (2, 2.0, 3, '2026-01-06 23:30:00', 'yy')"


def new_table(world: SparkWorld, columns: str = COLUMNS, rest: str = "ORDER BY k", **settings: str) -> str:
    name = f"c{next(_numbers)}"
    world.run(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree {rest}", **settings)
    return name


@pytest.fixture(scope="module")
def filled(world: SparkWorld) -> str:
    """A table with rows 1 and 2."""
    table = new_table(world)
    world.run(f"INSERT INTO {table} VALUES {GIVEN}")
    return table


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * EXCEPT (at) FROM {t} ORDER BY k", [(1, 1.5, 2, "x"), (2, 2.0, 3, "yy")]),
        ("SELECT k, total FROM {t} WHERE double_total > 6 ORDER BY total", [(2, 6.0)]),
        ("SELECT size, count(*) FROM {t} GROUP BY size ORDER BY size", [(1, 1), (2, 1)]),
        ("SELECT total AS a, sum(size) FROM {t} GROUP BY total ORDER BY a", [(3.0, 1), (6.0, 2)]),
        ("SELECT k FROM {t} WHERE day = DATE '2026-01-06'", [(2,)]),
        # A name of theirs leaves `*` as it is, in each SELECT by itself.
        ("SELECT count(*) FROM (SELECT * FROM {t} WHERE total > 5) s WHERE s.k = 2", [(1,)]),
        ("SELECT s.* FROM (SELECT k, total FROM {t}) s ORDER BY total DESC", [(2, 6.0), (1, 3.0)]),
        ("SELECT * EXCEPT (`AT`, o.name), o.total FROM {t} AS o WHERE k = 1", [(1, 1.5, 2, 3.0)]),
        ("SELECT o.* EXCEPT (at, total), total FROM {t} AS o WHERE k = 1", [(1, 1.5, 2, "x", 3.0)]),
        (
            "SELECT a.*, b.size FROM (SELECT k FROM {t}) a JOIN {t} b ON a.k = b.k AND b.total > 3",
            [(2, 2)],
        ),
        ("WITH w AS (SELECT k, size FROM {t}) SELECT * FROM w ORDER BY size DESC LIMIT 1", [(2, 2)]),
        ("SELECT shop.{t}.total FROM shop.{t} WHERE shop.{t}.k = 1", [(3.0,)]),
    ],
)
def test_a_query_names_them_and_a_star_does_not(
    world: SparkWorld, filled: str, query: str, rows: list[tuple[object, ...]]
) -> None:
    assert world.rows(query.format(t=filled)) == rows


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {t} WHERE size = 1",
        "SELECT * FROM {t} AS x WHERE x.total = 3",
        "SELECT x.* FROM {t} x JOIN {t} y ON x.k = y.k WHERE y.total = 3",
        "SELECT * FROM (TABLE {t}) WHERE k = 1",
        "SELECT DISTINCT * FROM {t} WHERE k = 1 AND day IS NOT NULL ORDER BY k",
    ],
)
def test_a_star_beside_a_name_stands_for_the_other_columns(world: SparkWorld, filled: str, query: str) -> None:
    answer = world.run(query.format(t=filled))
    assert answer.table.column_names == ["k", "price", "pieces", "at", "name"]
    assert answer.table.column(0).to_pylist() == [1]


def test_a_star_of_a_join_leaves_out_those_of_the_tables_that_have_them(world: SparkWorld, filled: str) -> None:
    world.run("CREATE TABLE sizes (k Int32, size Int32) ENGINE = MergeTree ORDER BY k")
    world.run("INSERT INTO sizes VALUES (1, 7)")
    rows = world.rows(f"SELECT * EXCEPT (at) FROM sizes JOIN (SELECT * FROM {filled}) f USING (k)")
    assert rows == [(1, 7, 1.5, 2, "x")]
    answer = world.run(f"SELECT * FROM sizes s JOIN {filled} f ON s.k = f.k AND f.size = 1")
    assert answer.table.column_names == ["k", "size", "k", "price", "pieces", "at", "name"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {t} NATURAL JOIN (SELECT 1 AS size)",
        "SELECT * FROM {t} PIVOT (sum(total) FOR k IN (1, 2))",
        "SELECT 1 AS size UNION ALL TABLE {t}",
    ],
)
def test_where_a_star_cannot_leave_them_out_the_query_is_refused(world: SparkWorld, filled: str, query: str) -> None:
    error = world.refused(query.format(t=filled))
    assert "MATERIALIZED or ALIAS" in error.message
    assert "name the columns" in error.hint


def test_rows_get_them_whichever_way_they_come(world: SparkWorld) -> None:
    table = new_table(world)
    at = "2026-01-05 23:30:00"
    world.run(f"INSERT INTO {table} VALUES (1, 1.5, 2, '{at}', 'abc')")
    world.run(f"INSERT INTO {table} (k, at) VALUES (22, '{at}')")
    world.run(
        f'INSERT INTO {table} FORMAT JSONEachRow {{"k": 3, "at": "{at}"}}\n{{"k": 4, "name": "four", "at": "{at}"}}'
    )
    world.run(f"INSERT INTO {table} (k, at, name) FORMAT CSV 5,{at},\\N")
    world.run(f"INSERT INTO {table} (at, k) SELECT TIMESTAMP '{at}', CAST(id + 6 AS INT) FROM range(2)")
    world.run(f"INSERT INTO {table} SELECT * FROM {table} WHERE size < 0")
    world.engine.insert_arrow("shop", table, pa.table({"k": pa.array([9], pa.int16()), "name": ["nine"]}))
    # A clock of a session is no matter of a row.
    berlin = {"spark__sql__session__timeZone": "Europe/Berlin"}
    world.run(f"INSERT INTO {table} (k, at) VALUES (10, '2026-01-06 00:30:00')", **berlin)
    world.run(f"INSERT INTO {table} (k, at) SELECT 11, TIMESTAMP '2026-01-06 00:30:00'", **berlin)
    found = world.rows(f"SELECT k, name, size, CAST(day AS STRING) FROM {table} ORDER BY k")
    day = "2026-01-05"
    assert found == [
        (1, "abc", 3, day),
        (3, "n3", 2, day),
        (4, "four", 4, day),
        (5, None, None, day),
        (6, "n6", 2, day),
        (7, "n7", 2, day),
        (9, "nine", 4, None),
        (10, "n10", 3, day),
        (11, "n11", 3, day),
        (22, "n22", 3, day),
    ]


def test_an_update_computes_anew_what_depends_on_it(world: SparkWorld) -> None:
    table = new_table(
        world,
        "k Int32, s String, a Int32 MATERIALIZED length(s), b Int32 MATERIALIZED a + k, c Int32 ALIAS b + 1, "
        "d Int32 DEFAULT length(s)",
    )
    world.run(f"INSERT INTO {table} (k, s) VALUES (1, 'x'), (2, 'xx'), (3, 'xxx')")
    world.run(f"UPDATE {table} SET s = concat(s, s, 'y') WHERE c >= 5")
    rows = world.rows(f"SELECT k, s, a, b, c, d FROM {table} ORDER BY k")
    assert rows == [(1, "x", 1, 2, 3, 1), (2, "xxxxy", 5, 7, 8, 2), (3, "xxxxxxy", 7, 10, 11, 3)]
    world.run(f"DELETE FROM {table} WHERE c = 3")
    assert world.rows(f"SELECT k FROM {table} ORDER BY k") == [(2,), (3,)]


def test_upserts_of_a_unique_key_have_them(world: SparkWorld) -> None:
    table = new_table(world, "k Int32, v String, size Int32 MATERIALIZED length(v)", "UNIQUE KEY k")
    world.run(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'bb'), (3, 'c')")
    world.run(f"INSERT INTO {table} SELECT 1, 'aaa'")
    world.run(f'INSERT INTO {table} FORMAT JSONEachRow {{"k": 2, "_op": "delete"}}\n{{"k": 3, "v": "cccc"}}')
    assert world.rows(f"SELECT k, size FROM {table} ORDER BY k") == [(1, 3), (3, 4)]


def test_rows_that_are_there_get_an_added_one(world: SparkWorld) -> None:
    table = new_table(world, "k Int32, at TIMESTAMP, s String")
    world.run(f"INSERT INTO {table} VALUES (1, '2026-01-05 23:30:00', 'abc')")
    world.run(
        f"ALTER TABLE {table} ADD COLUMN day DATE MATERIALIZED to_date(at), ADD COLUMN n Int32 DEFAULT length(s) + k, "
        "ADD COLUMN m Int32 MATERIALIZED n * 10, ADD COLUMN a Int32 ALIAS m + 1"
    )
    world.run(f"ALTER TABLE {table} RENAME COLUMN s TO text SETTINGS force_alter_conflict_check = 0")
    world.run(f"INSERT INTO {table} (k, text) VALUES (2, 'x')")
    for zone in ("UTC", "Asia/Tokyo"):
        rows = world.rows(
            f"SELECT k, CAST(day AS STRING), n, m, a FROM {table} WHERE a > 0 ORDER BY k",
            spark__sql__session__timeZone=zone,
        )
        assert rows == [(1, "2026-01-05", 4, 40, 41), (2, None, 3, 30, 31)]
    assert world.rows(f"SELECT * EXCEPT (at) FROM {table} ORDER BY k") == [(1, "abc", 4), (2, "x", 3)]


def test_an_alter_changes_them(world: SparkWorld) -> None:
    table = new_table(world)
    world.run(f"INSERT INTO {table} (k, name) VALUES (1, 'a')")
    world.run(f"ALTER TABLE {table} MODIFY COLUMN size Int32 MATERIALIZED length(name) + 100")
    change = f"ALTER TABLE {table} MODIFY COLUMN total ALIAS {{}} + pieces, RENAME COLUMN price TO cost"
    assert "RENAME COLUMN in a statement of its own" in world.refused(change.format("cost")).hint
    world.run(f"ALTER TABLE {table} MODIFY COLUMN total ALIAS price + pieces")
    world.run(f"ALTER TABLE {table} RENAME COLUMN price TO cost SETTINGS mutations_sync = 0")
    world.run(f"INSERT INTO {table} (k, name, cost, pieces) VALUES (2, 'a', 1, 2)")
    assert world.rows(f"SELECT k, size, double_total FROM {table} ORDER BY k") == [(1, 1, None), (2, 101, 6.0)]
    world.run(f"ALTER TABLE {table} MODIFY COLUMN size REMOVE MATERIALIZED")
    world.run(f"INSERT INTO {table} (k, size) VALUES (3, 7)")
    assert world.rows(f"SELECT size FROM {table} WHERE k = 3") == [(7,)]
    ((shown,),) = world.rows(f"SHOW CREATE TABLE {table}")
    assert "double_total Float64 ALIAS total * 2" in str(shown)
    assert "total Float64 ALIAS cost + pieces" in str(shown)
    world.run(str(shown).replace(f"shop.{table}", "shop.again"))
    assert world.rows("SHOW CREATE TABLE again") == [(str(shown).replace(f"shop.{table}", "shop.again"),)]
    world.run(f"ALTER TABLE {table} DROP COLUMN double_total, DROP COLUMN total, DROP COLUMN cost")


def test_clickhouses_words_are_read_where_the_dialect_says_so(world: SparkWorld) -> None:
    columns = (
        "k Int32, tags Array(String), first String MATERIALIZED tags[1], n Int32 DEFAULT length(tags), "
        "up String ALIAS upper(first), day Date MATERIALIZED toDate(at), at DateTime"
    )
    table = new_table(world, columns, dialect="clickhouse")
    world.run(f"INSERT INTO {table} (k, tags, at) VALUES (1, ['a', 'b'], '2026-01-05 10:00:00')")
    assert world.rows(f"SELECT first, n, up, CAST(day AS STRING) FROM {table}") == [("a", 2, "A", "2026-01-05")]
    rows = world.rows(f"SELECT * EXCEPT (at), first, up FROM {table} SETTINGS dialect = 'clickhouse'")
    assert rows == [(1, ["a", "b"], 2, "a", "A")]


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ("c Int32 MATERIALIZED nope + 1", "UNKNOWN_COLUMN"),
        ("c Int32 MATERIALIZED nope(k)", "UNKNOWN_FUNCTION"),
        ("c Int32 MATERIALIZED java_method('a', k)", "NOT_ALLOWED"),
        ("c Int32 MATERIALIZED k + (SELECT 1)", "BAD_MUTATION"),
        ("c Int32 MATERIALIZED sum(k)", "BAD_MUTATION"),
        ("c Float64 MATERIALIZED k * rand()", "BAD_MUTATION"),
        ("c Int32 MATERIALIZED k + hour(now())", "BAD_MUTATION"),
        ("c TIMESTAMP ALIAS now()", "BAD_MUTATION"),
        ("c Float64 ALIAS rand()", "BAD_MUTATION"),
        ("c Int32 DEFAULT k / 2", "BAD_MUTATION"),
        ("c Int32 MATERIALIZED s", "BAD_MUTATION"),
        ("c Int32 ALIAS d + 1, d Int32 MATERIALIZED c + 1", "BAD_DEFINITION"),
        ("c Int32 DEFAULT c + 1", "BAD_DEFINITION"),
    ],
)
def test_an_expression_is_refused_before_anything_is_made(world: SparkWorld, columns: str, code: str) -> None:
    error = world.refused(f"CREATE TABLE never (k Int32, s String, {columns}) ENGINE = MergeTree ORDER BY k")
    assert error.code == code, error
    assert world.rows("EXISTS TABLE never") == [(False,)]


def test_expressions_over_columns_are_given_in_utc(world: SparkWorld) -> None:
    error = world.refused(
        "CREATE TABLE never (t TIMESTAMP, d DATE MATERIALIZED to_date(t)) ENGINE = MergeTree",
        spark__sql__session__timeZone="Europe/Berlin",
    )
    assert (error.code, error.facts["zone"]) == ("BAD_MUTATION", "Europe/Berlin")
