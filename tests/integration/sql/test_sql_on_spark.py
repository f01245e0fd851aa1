"""Queries and INSERT .. SELECT on a real Spark: names, snapshots, pruning, errors. One session for all tests."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count

import pyarrow.parquet as pq
import pytest

from tests.spark_world import SparkWorld
from tilth.base.errors import TilthError
from tilth.model.table import TableDef
from tilth.model.txn import TxnState

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def world(world: SparkWorld) -> SparkWorld:
    world.run("CREATE DATABASE `odd db`", database="default")
    world.run(
        "CREATE TABLE orders (id Int64, day Date, customer Int64, amount Decimal(10, 2), note String) "
        "ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id"
    )
    world.run("CREATE TABLE customers (id Int64, name String) ENGINE = MergeTree ORDER BY id")
    world.run("CREATE TABLE `odd db`.orders (id Int64, x Int64) ENGINE = MergeTree ORDER BY id")
    world.run("CREATE TABLE `odd db`.`odd``name` (`a b` Int64) ENGINE = MergeTree ORDER BY `a b`")
    for month in (1, 2, 3):
        world.run(
            "INSERT INTO orders VALUES "
            + ", ".join(f"({month * 10 + n}, '2020-0{month}-1{n}', {n}, {n}.5, 'o{n}')" for n in range(3))
        )
    world.run("INSERT INTO customers VALUES (0, 'Ann'), (1, 'Bob'), (2, NULL)")
    world.run("INSERT INTO `odd db`.orders VALUES (10, 7), (11, 8)")
    world.run("INSERT INTO `odd db`.`odd``name` VALUES (5)")
    return world


def test_types_and_names_of_the_answer(world: SparkWorld) -> None:
    answer = world.run("SELECT ID, day, amount * 2 AS `double`, NULL, note, id FROM orders WHERE id = 11")
    assert [(c.name, c.type) for c in answer.columns] == [
        ("ID", "bigint"),
        ("day", "date"),
        ("double", "decimal(12,2)"),
        ("NULL", "void"),
        ("note", "string"),
        ("id", "bigint"),
    ]
    assert world.rows("SELECT id, day, amount FROM orders WHERE id = 11") == [(11, date(2020, 1, 11), Decimal("1.50"))]
    # Spark's name would be the expression that toMonday and dateDiff stand for.
    answer = world.run(
        "SELECT count(*), o.*, toMonday(day),  dateDiff('day', day, current_date()) > 1 FROM orders o "
        "WHERE id = 11 AND day < current_date() GROUP BY ALL ORDER BY id LIMIT 1"
    )
    names = ["count(1)", "id", "day", "customer", "amount", "note", "toMonday(day)"]
    assert answer.table.column_names == [*names, "dateDiff('day', day, current_date()) > 1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT count(*) FROM orders", [(9,)]),
        ("SELECT count(*) FROM shop.orders o WHERE O.id > 20", [(5,)]),
        # The table's own name serves as its alias, with and without its database.
        ("SELECT orders.id FROM shop.orders WHERE shop.orders.id = 10", [(10,)]),
        (
            "SELECT shop.orders.* FROM shop.orders ORDER BY orders.id LIMIT 1",
            [(10, date(2020, 1, 10), 0, Decimal("0.50"), "o0")],
        ),
        (
            "SELECT c.name, sum(o.amount) FROM orders o JOIN customers c ON o.customer = c.id WHERE c.name = 'Bob' "
            "GROUP BY c.name",
            [("Bob", Decimal("4.50"))],
        ),
        (
            "WITH orders AS (SELECT id FROM shop.orders WHERE id < 12), x AS (SELECT * FROM orders) "
            "SELECT max(id) FROM x",
            [(11,)],
        ),
        (
            "SELECT id FROM orders WHERE customer IN (SELECT id FROM customers WHERE name = 'Ann') "
            "AND EXISTS (SELECT 1 FROM `odd db`.orders z WHERE z.id = orders.id)",
            [(10,)],
        ),
        ("SELECT (SELECT max(x) FROM `odd db`.orders), (SELECT min(id) FROM orders)", [(8, 10)]),
        # Two tables of one name, told apart by their databases.
        (
            "SELECT shop.orders.id, `odd db`.orders.x FROM shop.orders JOIN `odd db`.orders "
            "ON shop.orders.id = `odd db`.orders.id ORDER BY 1",
            [(10, 7), (11, 8)],
        ),
        (
            "SELECT a.x, b.amount FROM `odd db`.orders a JOIN shop.orders b USING (id) ORDER BY 1",
            [(7, Decimal("0.50")), (8, Decimal("1.50"))],
        ),
        ("SELECT `a b` FROM `odd db`.`odd``name`", [(5,)]),
        (
            'SELECT \'from shop.orders o\', \'say "shop.orders"\' FROM "customers" WHERE "id" = 0 -- shop.orders',
            [("from shop.orders o", 'say "shop.orders"')],
        ),
        (
            "SELECT '\N{GRINNING FACE}', id FROM orders WHERE note = 'o1' AND id < 12",
            [("\N{GRINNING FACE}", 11)],
        ),
        ("TABLE customers", [(0, "Ann"), (1, "Bob"), (2, None)]),
        ("FROM customers |> WHERE id = 1 |> SELECT name", [("Bob",)]),
        (
            "SELECT CASE WHEN id IN (SELECT id FROM `odd db`.orders) THEN 'both' ELSE 'one' END AS k, count(*) "
            "FROM orders GROUP BY k ORDER BY k",
            [("both", 2), ("one", 7)],
        ),
        ("SELECT count(*) FROM orders TABLESAMPLE (100 PERCENT) WHERE orders.id > 0", [(9,)]),
        ("SELECT l.id FROM orders l JOIN orders r ON l.id + 10 = r.id AND r.id = 20", [(10,)]),
        (
            "SELECT o.id, t.v FROM orders o LATERAL VIEW explode(array(1, 2)) t AS v WHERE o.id = 10 ORDER BY v",
            [(10, 1), (10, 2)],
        ),
        (
            "SELECT count(*) FROM orders o, LATERAL (SELECT name FROM customers c WHERE c.id = o.customer) "
            "WHERE name = 'Ann'",
            [(3,)],
        ),
        ("VALUES (1), (2)", [(1,), (2,)]),
        ("SELECT id FROM orders ORDER BY id DESC LIMIT 1", [(32,)]),
    ],
)
def test_queries(world: SparkWorld, text: str, expected: list[tuple[object, ...]]) -> None:
    assert world.rows(text) == expected


def test_a_view_of_time_is_fixed_and_keeps_its_names(world: SparkWorld) -> None:
    answer = world.run(
        "SELECT now(), current_date, now() = current_timestamp() FROM orders WHERE day < current_date() LIMIT 1"
    )
    assert [c.name for c in answer.columns] == ["now()", "current_date()", "(now() = current_timestamp())"]
    moment, _, same = (column[0].as_py() for column in answer.table.columns)
    assert abs(moment - datetime.now(UTC)) < timedelta(minutes=5)
    assert same
    assert answer.parts_pruned == 0
    assert world.run("SELECT id FROM orders WHERE day > now()").parts_pruned == 3


@pytest.mark.parametrize(
    ("predicate", "read"),
    [
        ("day >= DATE '2020-03-01'", 1),
        ("day BETWEEN '2020-01-01' AND '2020-01-31'", 1),
        ("id IN (11, 31)", 2),
        ("id = 11 OR day = DATE '2020-02-11'", 2),
        ("NOT (id < 30)", 1),
        ("date_trunc('month', day) = TIMESTAMP '2020-03-01'", 3),
        ("note = 'o1'", 3),
        ("id + 1 = 11", 1),
        ("id > 1000", 0),
        ("to_date(day) = '2020-01-10'", 1),
        ("id IS NULL", 0),
        ("customer = 1 AND id > (SELECT max(id) - 2 FROM orders)", None),
    ],
)
def test_parts_are_left_out_by_their_ranges(world: SparkWorld, predicate: str, read: int | None) -> None:
    pruned = world.run(f"SELECT * FROM orders WHERE {predicate}")
    whole = world.run(f"SELECT * FROM orders WHERE {predicate}", prune_parts="false")
    assert pruned.table.sort_by("id").to_pylist() == whole.table.sort_by("id").to_pylist()
    assert (whole.parts_read, whole.parts_pruned) == (3, 0)
    if read is not None and "+" not in predicate:
        assert (pruned.parts_read, pruned.parts_pruned) == (read, 3 - read)
    logged = world.rows("SELECT parts_read, parts_pruned FROM system.query_log ORDER BY started DESC, kind LIMIT 50")
    assert (pruned.parts_read, pruned.parts_pruned) in logged


@pytest.mark.parametrize(
    ("predicate", "expected", "read"),
    [
        ("f = 0.7F", [1], 1),
        ("f >= 0.7F", [1], 1),
        ("f <= 0.3F", [2], 1),
        ("wall = TIMESTAMP_NTZ '2020-01-02 03:04:05.000006'", [1], 1),
        ("wall < TIMESTAMP_NTZ '1970-01-01 00:00:00'", [2], 1),
    ],
)
def test_literals_of_four_bytes_and_times_without_a_zone(
    world: SparkWorld, predicate: str, expected: list[int], read: int
) -> None:
    world.run(
        "CREATE TABLE IF NOT EXISTS exact (id Int64, f Float32, wall TIMESTAMP_NTZ) "
        "ENGINE = MergeTree ORDER BY (f, wall)"
    )
    if not world.rows("SELECT id FROM exact"):
        world.run("INSERT INTO exact VALUES (1, 0.7, '2020-01-02 03:04:05.000006')")
        world.run("INSERT INTO exact VALUES (2, 0.3, '1969-12-31 23:59:59')")
    answer = world.run(f"SELECT id FROM exact WHERE {predicate}")
    assert answer.table.column(0).to_pylist() == expected
    assert answer.parts_read == read


def test_one_table_twice_is_read_from_one_snapshot(world: SparkWorld) -> None:
    answer = world.run(
        "SELECT a.id FROM orders a JOIN orders b ON a.id = b.id WHERE a.id < 20 AND b.day > '2020-01-10'"
    )
    assert sorted(answer.table.column(0).to_pylist()) == [11, 12]
    assert (answer.parts_read, answer.parts_pruned) == (1, 2)


def test_system_tables_join_tables_of_rows(world: SparkWorld) -> None:
    rows = world.rows(
        "SELECT p.table, c.name FROM system.tables t JOIN system.parts p ON p.table = t.name "
        "JOIN customers c ON c.id = p.level WHERE t.name = 'customers'"
    )
    assert rows == [("customers", "Ann")]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n FROM {rows} ORDER BY n",
        "SELECT n FROM {rows} ORDER BY n DESC",
        "SELECT n FROM {rows} ORDER BY n DESC NULLS FIRST",
        "SELECT n FROM (SELECT n FROM {rows} ORDER BY n LIMIT 2) ORDER BY n DESC",
        "SELECT n, row_number() OVER (ORDER BY n DESC) FROM {rows} ORDER BY 2",
        "SELECT first_value(n) OVER (ORDER BY n), n FROM {rows} ORDER BY 2",
    ],
)
def test_rows_of_system_tables_are_sorted_as_spark_sorts(world: SparkWorld, text: str) -> None:
    """Spark answers the statement that reads a table, DataFusion the one that reads a system table only."""
    names = "SELECT CASE WHEN name LIKE 'o%' THEN NULL ELSE name END AS n FROM system.tables WHERE database <> 'x'"
    here = world.rows(text.format(rows=f"({names})"))
    spark = world.rows(text.format(rows=f"({names} AND EXISTS (SELECT 1 FROM customers))"))
    assert here == spark
    assert any(row[0] is None for row in here)


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("SELECT nam FROM customers", "UNKNOWN_COLUMN", ["column=nam", "name", "at=1:8"]),
        ("SELECT c.nope\nFROM customers c\nWHERE c.bad = 1", "UNKNOWN_COLUMN", ["at=3:7", "bad"]),
        ("SELECT * FROM custmers", "TABLE_NOT_FOUND", ["custmers", "customers"]),
        ("SELECT * FROM nope.customers", "DATABASE_NOT_FOUND", ["nope"]),
        ("SELECT nope(id) FROM customers", "UNKNOWN_FUNCTION", ["nope"]),
        ("SELECT id FROM customers a JOIN customers b ON a.id = b.id", "BAD_QUERY", ["ambiguous"]),
        ("SELECT name, count(*) FROM customers", "BAD_QUERY", ["reason="]),
        ("SELECT id frm customers WHERE", "SYNTAX_ERROR", ["line=1"]),
        ("SELECT CAST(name AS INT) FROM customers", "BAD_QUERY", ["Ann"]),
        ("SELECT 1 / (id - id) FROM customers", "BAD_QUERY", ["zero"]),
        ("SELECT * FROM parquet.`/etc`", "NOT_ALLOWED", ["parquet", "INSERT INTO"]),
        ("SELECT * FROM customers VERSION AS OF 100", "UNKNOWN_VERSION", ["newest=1"]),
        ("WITH x AS (SELECT 1 AS id, 'x' AS name) INSERT INTO customers SELECT * FROM x", "NOT_ALLOWED", ["INSERT"]),
        ("FROM customers INSERT INTO customers SELECT *", "NOT_ALLOWED", ["INSERT"]),
        ("SELECT * FROM customers", "UNKNOWN_SETTING", ["no_such"]),
    ],
)
def test_errors_say_what_and_where_without_java(world: SparkWorld, text: str, code: str, told: list[str]) -> None:
    error = world.refused(text, **({"no_such": "1"} if code == "UNKNOWN_SETTING" else {}))
    shown = str(error)
    assert error.code == code, shown
    assert all(word in shown for word in told), shown
    assert "\tat " not in shown
    assert "__tilth" not in shown
    assert "SQLSTATE" not in shown


def test_a_large_result_is_refused(world: SparkWorld) -> None:
    error = world.refused("SELECT id, repeat('x', 1000) FROM range(10000)", max_result_bytes="1 MiB")
    assert error.code == "RESULT_TOO_LARGE"
    assert world.rows("SELECT count(*) FROM range(10)") == [(10,)]


def test_the_environment_is_not_for_queries(world: SparkWorld) -> None:
    assert world.rows("SELECT '${env:PATH}', id FROM customers WHERE id = 0") == [("${env:PATH}", 0)]


def test_spark_settings_reach_the_query_and_no_other(world: SparkWorld) -> None:
    text = "SELECT hour(TIMESTAMP '2020-01-01 00:00:00Z')"
    assert world.rows(text, spark__sql__session__timeZone="Asia/Tokyo") == [(9,)]
    assert world.rows(text) == [(0,)]
    assert world.rows(f"{text} SETTINGS `spark.sql.session.timeZone` = 'Asia/Tokyo'") == [(9,)]


def test_insert_select(world: SparkWorld) -> None:
    names = count()

    def target(columns: str, tail: str = "") -> str:
        name = f"target{next(names)}"
        world.run(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree {tail}")
        return name

    same = target("id Int64, day Date, n Int32 DEFAULT 40 + 2", "PARTITION BY toYYYYMM(day) ORDER BY id")
    answer = world.run(f"INSERT INTO {same} (day, id) SELECT day, id FROM orders WHERE id < 30 ORDER BY id DESC")
    assert (answer.rows_written, answer.parts_read, answer.parts_pruned) == (6, 2, 1)
    assert world.rows(f"SELECT count(*), min(id), max(day), max(n) FROM {same}") == [(6, 10, date(2020, 2, 12), 42)]
    assert world.run(f"INSERT INTO {same} SELECT id, day, 1 FROM orders WHERE id > 1000").rows_written == 0
    narrow = target("a Int16 NOT NULL", "ORDER BY a")
    for text, told in (
        ("SELECT 1.5", "column=a"),
        ("SELECT 'x'", "column=a"),
        ("SELECT 1, 2", "another number of columns"),
        ("SELECT 70000", "70000"),
        ("SELECT CAST(NULL AS INT)", "column=a"),
        ("SELECT nope FROM orders", "nope"),
    ):
        assert told in str(world.refused(f"INSERT INTO {narrow} {text}")), text
    assert world.rows(f"SELECT * FROM {narrow}") == []
    aborted = [txn for txn in world.catalog.transactions.unfinished() if txn.state is TxnState.ABORTED]
    assert len(aborted) >= 5


def test_a_reader_lease_is_there_while_a_query_runs_and_gone_after_it(world: SparkWorld) -> None:
    seen: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            seen.append(len(world.catalog.readers.list()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    world.rows("SELECT count(*) FROM orders a CROSS JOIN customers b")
    done.set()
    watcher.join()
    assert max(seen) == 2
    assert world.catalog.readers.list() == []
    with pytest.raises(TilthError):
        world.rows("SELECT raise_error('x') FROM orders")
    assert world.catalog.readers.list() == []


def test_views_are_checked_by_the_worker(world: SparkWorld) -> None:
    world.run("CREATE TABLE k (id Int64, name String) ENGINE = Kafka('localhost:1', 'topic', 'group', 'JSONEachRow')")
    world.run("CREATE TABLE into_ (id Int64, label String) ENGINE = MergeTree ORDER BY id")
    for text, told in (
        ("SELECT id, nope AS label FROM k", "nope"),
        ("SELECT id, name AS other FROM k", "other"),
        ("SELECT id FROM k JOIN customers USING (id)", "exactly one Kafka table"),
        ("SELECT id, name AS label FROM customers", "needs a Kafka table"),
        ("SELECT id frm k k2 k3", "line=1"),
    ):
        assert told in str(world.refused(f"CREATE MATERIALIZED VIEW v TO into_ AS {text}")), text
    world.run("CREATE MATERIALIZED VIEW v TO into_ AS SELECT id, upper(name) AS label FROM shop.k WHERE id > 0")
    assert world.rows("SELECT * FROM v") == []
    assert "into_" in str(world.refused("SELECT * FROM k"))
    found = world.catalog.tables.get("shop", "into_")
    assert isinstance(found, TableDef)


def test_explain_names_no_view_of_ours_as_a_column_and_runs_nothing(world: SparkWorld) -> None:
    ((plan,),) = world.rows("EXPLAIN SELECT id FROM orders WHERE id > 100")
    assert "Physical Plan" in str(plan)


def test_many_queries_at_once(world: SparkWorld) -> None:
    """Each has its own session: views and settings of one are not seen by another."""
    results: list[object] = []

    def ask(number: int) -> None:
        zone = "Asia/Tokyo" if number % 2 else "UTC"
        text = f"SELECT count(*), hour(TIMESTAMP '2020-01-01 00:00:00Z') FROM orders WHERE id > {number * 10}"
        results.append((number, *world.rows(text, spark__sql__session__timeZone=zone)[0]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, results)) == ["(0, 9, 0)", "(1, 8, 9)", "(2, 5, 0)", "(3, 2, 9)"]


def test_a_flipped_bit_in_a_page_is_found(world: SparkWorld) -> None:
    """The values are not compressible, so that no decompression would notice."""
    world.run("CREATE TABLE flipped (a Int64) ENGINE = MergeTree ORDER BY a")
    world.run("INSERT INTO flipped SELECT hash(id, 1) * 4294967296 + hash(id, 2) FROM range(2000)")
    table = world.catalog.tables.get("shop", "flipped")
    part, *_ = world.catalog.parts.snapshot(table.uuid).parts
    path = world.folder / "tables" / table.uuid / "data" / part.file.name
    chunk = pq.read_metadata(path).row_group(0).column(0)
    place = chunk.data_page_offset + chunk.total_compressed_size // 2
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    error = world.refused("SELECT max(a) FROM flipped")
    assert error.code == "PART_FILE_CORRUPT"
    assert part.file.name in str(error)
    assert "CRC" in str(error), "the checksum has found it"


def test_a_missing_file_is_named(world: SparkWorld) -> None:
    world.run("CREATE TABLE broken (a Int64) ENGINE = MergeTree ORDER BY a")
    world.run("INSERT INTO broken VALUES (1)")
    table = world.catalog.tables.get("shop", "broken")
    (part,) = world.catalog.parts.snapshot(table.uuid).parts
    (world.folder / "tables" / table.uuid / "data" / part.file.name).unlink()
    error = world.refused("SELECT * FROM broken")
    assert error.code == "PART_FILE_NOT_FOUND"
    assert part.file.name in str(error)
