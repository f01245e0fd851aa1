"""System tables: every one builds by its declared types, is documented, and answers with no worker alive."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from tests.sql_world import SqlWorld
from tilth.base.errors import TilthError
from tilth.catalog import AddGap, AddLedger, AdvanceOffsets, InsertBatch, LoadFile, SetOffsets
from tilth.introspection.registry import SYSTEM_TABLES
from tilth.introspection.system_queries import system_tables_of
from tilth.introspection.system_table import FLAG, TEXTS
from tilth.model.loaded_file import LoadedFile, SkippedRow
from tilth.model.offset import IngestGap, LedgerEntry, LedgerRange, OffsetRange, StoredOffset, TopicPartition
from tilth.model.pipe import FailedFile, Pipe
from tilth.model.task import Cost, TaskState
from tilth.model.types import quoted

#: Columns whose values change from one query to the next.
CHANGING = {"value", "memory_bytes", "memory_limit_bytes", "last_proof", "query_id", "clock_offset_ms", "free_bytes"}


def _is_given(value: object) -> bool:
    return value is not None


def _nulls_first(value: object) -> tuple[bool, object]:
    return value is not None, value


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    """Tables, parts, marks, a Kafka table with a round and a gap, a lease, a reader."""
    made = SqlWorld(tmp_path)
    made.run("CREATE TABLE t (a Int64, d Date) ENGINE = MergeTree PARTITION BY d ORDER BY a")
    made.run("INSERT INTO t VALUES (1, '2020-01-01'), (2, '2020-01-02')")
    made.run("INSERT INTO t VALUES (3, '2020-01-01')")
    made.run("ALTER TABLE t DROP PARTITION '2020-01-02'")
    made.run("CREATE TABLE gone (a Int64) ENGINE = MergeTree ORDER BY a")
    made.run("DROP TABLE gone")
    made.run("ALTER TABLE t ADD COLUMN s String")
    made.run("CREATE TABLE buffered (a Int64) ENGINE = MergeTree ORDER BY a SETTINGS memory_buffer = 1")
    made.run("INSERT INTO buffered SETTINGS async_insert = 0 VALUES (1), (2)")
    made.run("CREATE TABLE k (a Int64) ENGINE = Kafka('b:9092', 'topic', 'g', 'JSONEachRow')")
    kafka = made.catalog.tables.get("default", "k").uuid
    txn = made.catalog.transactions.open("consume")
    entry = LedgerEntry(
        txn=txn.id,
        kafka_table=kafka,
        consumer=0,
        ranges=(LedgerRange(topic="topic", partition=0, start=0, end=5, messages=5, rows=4, dead=1),),
        stored={},
    )
    gap = IngestGap(kafka_table=kafka, topic="topic", partition=1, start=7, end=-1, reason="gone", at_ms=1_000)
    moved = OffsetRange(topic="topic", partition=0, start=0, end=5)
    first = {TopicPartition("topic", 0): StoredOffset(0, ""), TopicPartition("topic", 1): StoredOffset(7, "")}
    txn.commit(
        [
            SetOffsets(kafka_table=kafka, offsets=first, before={}),
            AdvanceOffsets(kafka_table=kafka, ranges=(moved,)),
            AddLedger(entry=entry),
            AddGap(gap=gap, stored=StoredOffset(7, "")),
        ]
    )
    skipped = (SkippedRow(line=2, reason="no", raw=b"{"),)
    loaded = LoadedFile(file="/in/a", size=1, modified_ms=1_000, rows=3, skipped=skipped, query_id="q")
    table = made.catalog.tables.get("default", "t").uuid
    made.catalog.transactions.open("copy").commit([LoadFile(table=table, loaded=loaded)])
    made.catalog.transactions.apply("insert", [InsertBatch(table=table, stream="orders", query="q1", batch=3, rows=10)])
    pipe = Pipe(table=table, name="p", id="1", address="/in", format="JSON", every_ms=1, created_ms=1, query_id="q")
    made.catalog.pipes.create(pipe)
    failed = FailedFile(file="/in/b", size=1, modified_ms=1, schema_version=1, code="C", error="no", failed_ms=1)
    made.catalog.pipes.fail(pipe, [failed])
    made.catalog.leases.acquire("table/x", "s1")
    made.catalog.readers.open(made.catalog.tables.get("default", "t").uuid, made.catalog.clock.now(), "s1", 1_000)
    return made


@pytest.mark.parametrize("name", sorted(SYSTEM_TABLES))
def test_every_system_table_answers_without_a_worker(world: SqlWorld, name: str) -> None:
    answer = world.run(f"SELECT * FROM system.{name}")
    table = SYSTEM_TABLES[name]
    assert [column.name for column in answer.columns] == [column.name for column in table.all_columns]
    assert answer.table.schema.types == table.schema.types
    assert answer.table.num_rows or name in ("trash", "deltas", "lost_transactions", "merges", "replicas")
    assert world.dispatch.specs == []


@pytest.mark.parametrize("name", sorted(SYSTEM_TABLES.keys() - {"processes", "query_log"}))
def test_columns_and_tables_that_a_query_names_are_made_as_all_are(world: SqlWorld, name: str) -> None:
    """A column that the query does not name, and rows of other tables, are left out before they are made."""
    world.run(
        "CREATE TABLE crowded (a Int64) ENGINE = MergeTree ORDER BY a "
        "SETTINGS parts_to_delay_insert = 0, parts_to_throw_insert = 1"
    )
    world.run("INSERT INTO crowded VALUES (1)")
    table = SYSTEM_TABLES[name]
    every = world.run(f"SELECT * FROM system.{name}").table
    steady = [each.name for each in table.all_columns if each.name not in CHANGING and each.type != TEXTS]
    for column in steady:
        (alone,) = world.run(f'SELECT "{column}" FROM system.{name} ORDER BY 1').table.columns
        assert alone.to_pylist() == sorted(every[column].to_pylist(), key=_nulls_first), column
    for column in ("name", "table", "database", "service", "state", "switch"):
        if column in steady:
            text = f"SELECT {', '.join(map(quoted, steady))} FROM system.{name}"
            for value in {*every[column].to_pylist(), "none", "default"} - {None}:
                some = world.run(f"{text} WHERE {quoted(column)} = '{value}' AND 1 = 1").table.to_pylist()
                known = [row for row in every.select(steady).to_pylist() if row[column] == value]
                assert sorted(map(str, some)) == sorted(map(str, known)), (column, value)
    for column in steady:
        is_flag = every[column].type == FLAG
        for condition, fits in ((f"{quoted(column)} IS NOT NULL", _is_given), (quoted(column), bool))[: 1 + is_flag]:
            some = world.run(f"SELECT {quoted(column)} FROM system.{name} WHERE {condition}").table[0].to_pylist()
            known = [value for value in every[column].to_pylist() if fits(value)]
            assert sorted(map(str, some)) == sorted(map(str, known)), condition


@pytest.mark.parametrize("name", sorted(SYSTEM_TABLES))
def test_every_column_is_documented_once(name: str) -> None:
    table = SYSTEM_TABLES[name]
    assert table.name == name
    assert table.doc.endswith(".")
    assert all(column.doc.endswith((".", "?")) for column in table.columns), name
    assert len({column.name for column in table.columns}) == len(table.columns)


def test_parts_tell_what_is_visible(world: SqlWorld) -> None:
    assert world.rows("SELECT partition, rows, active FROM system.parts ORDER BY partition, min_block") == [
        ("2020-01-01", 1, True),
        ("2020-01-01", 1, True),
        ("2020-01-02", 1, False),
    ]
    assert world.rows("SELECT kind, partition FROM system.marks") == [("drop_range", "2020-01-02")]
    assert world.rows("SELECT name, rows, parts FROM system.tables WHERE name = 't'") == [("t", 2, 2)]


def test_segments_and_merges_under_way_are_shown(world: SqlWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = "SELECT table, partition, rows, deleted_rows, schema_version, damaged FROM system.segments"
    assert world.rows(segments) == [("buffered", "all", 2, 0, 1, None)]
    running = [
        msgspec.structs.replace(each, state=TaskState.RUNNING, estimate=Cost(input_bytes=20))
        for each in world.dispatch.tasks()
    ]
    monkeypatch.setattr(world.dispatch, "tasks", lambda: running)
    merges = "SELECT database, table, task, state, is_mutation, input_bytes, reason FROM system.merges"
    assert world.rows(merges) == [("default", "t", "t1", "running", False, 20, "the only one")]


def test_joins_groups_and_case(world: SqlWorld) -> None:
    rows = world.rows(
        "SELECT T.Database, count(*) AS n, sum(p.rows) FROM system.tables T JOIN `system`.`parts` p "
        "ON p.table = T.name AND p.active GROUP BY t.database"
    )
    assert rows == [("default", 2, 2)]


def test_the_session_s_database_may_be_system(world: SqlWorld) -> None:
    assert world.rows("SELECT name FROM databases", database="system") == [("default",)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT n FROM {rows} ORDER BY n", [None, "buffered", "t"]),
        ("SELECT n FROM {rows} ORDER BY n DESC", ["t", "buffered", None]),
        ("SELECT n FROM {rows} ORDER BY n NULLS LAST", ["buffered", "t", None]),
        ("SELECT n FROM (SELECT n FROM {rows} ORDER BY n DESC LIMIT 2) ORDER BY n", ["buffered", "t"]),
        ("SELECT n FROM {rows} ORDER BY row_number() OVER (ORDER BY n DESC)", ["t", "buffered", None]),
        ("SELECT first_value(n) OVER (ORDER BY n) FROM {rows}", [None, None, None]),
        ("SELECT unnest(array_agg(n ORDER BY n DESC)) FROM {rows}", ["t", "buffered", None]),
    ],
)
def test_nulls_are_sorted_as_spark_sorts_them(world: SqlWorld, text: str, expected: list[str | None]) -> None:
    """NULL is less than every value: it comes first, and last with DESC, wherever a query sorts."""
    rows = "(SELECT CASE WHEN name <> 'k' THEN name END AS n FROM system.tables WHERE name <> 'k_dead_letters')"
    assert [row[0] for row in world.rows(text.format(rows=rows))] == expected


def test_bg_threads_say_why_nothing_runs_while_spark_is_away(world: SqlWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    away = "Spark is away since 2026-01-01 00:00:00 UTC: the JVM was ended by SIGKILL"
    workers = [replace(each, reason=away) for each in world.dispatch.workers()]
    monkeypatch.setattr(world.dispatch, "workers", lambda: workers)
    [(state, reason)] = world.rows("SELECT state, reason FROM system.bg_threads WHERE service = 'consume'")
    assert (state, reason) == ("waiting", f"{away}; the broker does not answer")


def test_bg_threads_tells_state_switch_and_exception(world: SqlWorld) -> None:
    rows = world.rows(
        "SELECT state, switch, wakeups, last_exception, last_exception_time FROM system.bg_threads "
        "WHERE database = 'default' AND table = 'k'"
    )
    assert rows == [("failed", "running", 3, "no broker", datetime(1970, 1, 1, 0, 0, 0, 900_000, tzinfo=UTC))]


def test_settings_show_what_the_node_was_given(world: SqlWorld) -> None:
    assert world.rows("SELECT value, is_set FROM system.settings WHERE name = 'warehouse.query-slots'") == [("3", True)]


@pytest.mark.parametrize("table", SYSTEM_TABLES)
def test_a_table_is_sorted_and_cut_also_without_rows(tmp_path: Path, table: str) -> None:
    empty = SqlWorld(tmp_path)
    column = f"`{SYSTEM_TABLES[table].all_columns[0].name}`"
    for condition in ("", f" WHERE CAST({column} AS STRING) = 'nothing'"):
        rows = empty.rows(f"SELECT {column} FROM system.{table}{condition} ORDER BY {column} DESC LIMIT 2")
        assert len(rows) <= 2
    assert empty.rows(f"SELECT count(*) FROM system.{table} WHERE {column} IS NULL AND {column} IS NOT NULL") == [(0,)]


def test_the_query_log_tells_of_errors_too(world: SqlWorld) -> None:
    with pytest.raises(TilthError):
        world.run("SELECT nope FROM system.parts")
    rows = world.rows("SELECT kind, error_code, text FROM system.query_log WHERE error_code IS NOT NULL")
    assert rows == [("Query", "UNKNOWN_COLUMN", "SELECT nope FROM system.parts")]


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("SELECT nope FROM system.parts", "UNKNOWN_COLUMN", "min_block"),
        ("SELECT * FROM system.partz", "TABLE_NOT_FOUND", "parts"),
        ("SELECT nope(1) FROM system.parts", "BAD_QUERY", "nope"),
        ("SELECT * FROM t", "UNAVAILABLE", "worker"),
        ("INSERT INTO system.parts VALUES (1)", "READ_ONLY", "system.parts"),
    ],
)
def test_errors(world: SqlWorld, text: str, code: str, told: str) -> None:
    with pytest.raises(TilthError) as caught:
        world.run(text)
    assert caught.value.code == code
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT * FROM system.parts", ["parts"]),
        (
            "WITH x AS (SELECT * FROM system.parts) SELECT * FROM x JOIN SYSTEM.Tables USING (table)",
            ["parts", "tables"],
        ),
        ("SELECT * FROM system.parts p JOIN db.t ON p.rows = t.a", None),
        ("SELECT 'system.parts'", None),
        ("SELECT * FROM t", None),
        ("SELECT 1", None),
        ("SELECT a FROM other.system", None),
        ("this is system. no SQL", None),
    ],
)
def test_which_queries_need_no_worker(text: str, tables: list[str] | None) -> None:
    found = system_tables_of(text, "default")
    assert (sorted(found) if found else found) == tables


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM '{path}'",
        "SELECT * FROM `{path}`",
        'SELECT * FROM "{path}"',
        "SELECT * FROM system.`{path}`",
        "SELECT * FROM system.parts, '{path}' AS f",
        "SELECT * FROM system.parts WHERE name IN (SELECT a FROM '{path}')",
        "SELECT * FROM read_csv('{path}')",
        "SELECT * FROM read_parquet('{path}')",
        "WITH x AS (SELECT * FROM '{path}') SELECT * FROM x, system.parts",
        "SELECT * FROM system.parts, information_schema.tables",
        "SELECT * FROM information_schema.df_settings",
        "SELECT version() FROM system.parts",
        "SELECT reflect('java.lang.System', 'getenv') FROM system.parts",
        "CREATE EXTERNAL TABLE e STORED AS CSV LOCATION '{path}'",
        "COPY (SELECT * FROM system.parts) TO '{path}'",
        "SET datafusion.catalog.information_schema = true",
    ],
)
@pytest.mark.parametrize("database", ["default", "system"])
def test_the_lane_of_system_tables_reads_and_writes_no_files(
    world: SqlWorld, tmp_path: Path, text: str, database: str
) -> None:
    """Whatever it does not refuse itself goes to Spark, which has no worker here."""
    path = tmp_path / "secret.csv"
    path.write_text("a,b\nhunter2,1\n")
    with pytest.raises(TilthError) as caught:
        world.run(text.format(path=path), database=database)
    assert "hunter2" not in str(caught.value)
    assert path.read_text() == "a,b\nhunter2,1\n"
