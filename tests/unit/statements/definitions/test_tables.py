"""Definitions: what is made, what is refused and by which name, what SHOW gives back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.sql_world import SqlWorld, answer_defaults, answer_view_tasks, refused, table_of
from tilth.model.service import ServiceKind, SwitchState
from tilth.model.table import Column, KafkaDef, TableDef, ViewDef
from tilth.statements.registry import parse

KAFKA = (
    "CREATE TABLE k (a Int64, s String) ENGINE = Kafka SETTINGS kafka_broker_list = 'b:9092', "
    "kafka_topic_list = 't', kafka_group_name = 'g', kafka_format = 'JSONEachRow'"
)


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    return SqlWorld(tmp_path)


def test_a_table_is_made_as_it_was_said(world: SqlWorld) -> None:
    answer = world.run(
        "CREATE TABLE t (a Int64 NOT NULL, `Day` Date DEFAULT '2020-01-31', s String COMMENT 'x') ENGINE = MergeTree "
        "PARTITION BY toYYYYMM(day) ORDER BY (A, day) SETTINGS parquet_row_group_rows = 1000"
    )
    assert answer.message == "table created: default.t"
    made = table_of(world, "t")
    assert [(c.id, c.name, c.nullable) for c in made.schema.columns] == [
        (1, "a", False),
        (2, "Day", True),
        (3, "s", True),
    ]
    assert made.order_by == ("a", "Day")
    assert made.next_column_id == 4
    assert made.settings == {"parquet_row_group_rows": "1000"}


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY b", "UNKNOWN_COLUMN", "b"),
        ("CREATE TABLE t (a Int64) ENGINE = MergeTree PARTITION BY c ORDER BY a", "UNKNOWN_COLUMN", "c"),
        ("CREATE TABLE t (a String) ENGINE = MergeTree PARTITION BY toDate(a)", "BAD_PARTITION_TRANSFORM", "toDate"),
        (
            "CREATE TABLE t (a LowCardinality(String)) ENGINE = MergeTree PARTITION BY toYYYYMM(a)",
            "BAD_PARTITION_TRANSFORM",
            "type=LowCardinality(String)",
        ),
        (
            "CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a TTL a + INTERVAL 1 DAY",
            "INVALID_INPUT",
            "type=UInt64",
        ),
        ("CREATE TABLE t (a Int64, A String) ENGINE = MergeTree ORDER BY a", "SYNTAX_ERROR", "A"),
        ("CREATE TABLE t (a Array(Int64)) ENGINE = MergeTree ORDER BY a", "BAD_DEFINITION", "type=Array(Int64)"),
        ("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a SETTINGS no_such = 1", "UNKNOWN_SETTING", "no_such"),
        (
            "CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a SETTINGS parquet_compression_level = 99",
            "BAD_SETTING",
            "parquet_compression_level",
        ),
        ("CREATE TABLE t (a Int32 DEFAULT 'x') ENGINE = MergeTree ORDER BY a", "BAD_VALUE", "a"),
        ("CREATE TABLE nope.t (a Int64) ENGINE = MergeTree ORDER BY a", "DATABASE_NOT_FOUND", "nope"),
        ("CREATE TABLE system.t (a Int64) ENGINE = MergeTree ORDER BY a", "READ_ONLY", "system.t"),
        ("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a TTL d + INTERVAL 1 DAY", "INVALID_INPUT", "d"),
    ],
)
def test_a_wrong_definition_is_refused_by_name_and_nothing_is_made(
    world: SqlWorld, text: str, code: str, named: str
) -> None:
    error = refused(world, text)
    assert error.code == code
    assert named in str(error)
    assert world.catalog.tables.list() == []


def test_a_kafka_table_comes_with_its_dead_letters(world: SqlWorld) -> None:
    world.run(KAFKA)
    kafka = world.catalog.tables.get("default", "k")
    assert isinstance(kafka, KafkaDef)
    assert table_of(world, "k_dead_letters").order_by
    assert ("wake", kafka.uuid) in world.consume.calls


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        (("kafka_topic_list = 't'", "kafka_topics = 't'"), "UNKNOWN_SETTING", "kafka_topics"),
        (("kafka_group_name = 'g'", "kafka_num_consumers = 0"), "BAD_SETTING", "kafka_num_consumers"),
        (("kafka_broker_list = 'b:9092', ", ""), "MISSING_SETTING", "kafka_broker_list"),
        (("'JSONEachRow'", "'XML'"), "BAD_SETTING", "kafka_format"),
    ],
)
def test_a_wrong_kafka_table_leaves_no_dead_letters(
    world: SqlWorld, change: tuple[str, str], code: str, named: str
) -> None:
    error = refused(world, KAFKA.replace(*change))
    assert error.code == code
    assert named in str(error)
    assert world.catalog.tables.list() == []


def test_a_view_is_checked_by_a_worker_before_it_exists(world: SqlWorld) -> None:
    world.run(KAFKA)
    world.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
    assert refused(world, "CREATE MATERIALIZED VIEW v TO t AS SELECT a FROM k").code == "UNAVAILABLE"
    assert world.catalog.tables.find("default", "v") is None
    world.dispatch.answer = answer_view_tasks(("k",))
    world.run("CREATE MATERIALIZED VIEW v TO t AS SELECT a FROM k")
    view = world.catalog.tables.get("default", "v")
    assert isinstance(view, ViewDef)
    assert view.select == "SELECT a FROM k"
    world.dispatch.answer = answer_view_tasks(("t",))
    assert refused(world, "CREATE MATERIALIZED VIEW w TO t AS SELECT a FROM t").code == "WRONG_KIND_OF_TABLE"
    assert refused(world, "CREATE MATERIALIZED VIEW w TO k AS SELECT a FROM k").code == "WRONG_KIND_OF_TABLE"


def test_what_views_hang_on_is_neither_dropped_nor_renamed(world: SqlWorld) -> None:
    world.run(KAFKA)
    world.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
    world.dispatch.answer = answer_view_tasks(("k",))
    world.run("CREATE MATERIALIZED VIEW v TO t AS SELECT a FROM k")
    for text in ("DROP TABLE k", "DROP TABLE t", "RENAME TABLE k TO k2"):
        error = refused(world, text)
        assert error.code == "TABLE_IN_USE"
        assert "default.v" in str(error)
    world.run("RENAME TABLE t TO t2")
    for text in ("DROP VIEW v", "DROP TABLE k", "DROP TABLE t2"):
        world.run(text)
    assert [one.name for one in world.catalog.tables.list()] == ["k_dead_letters"]


def test_drop_and_undrop(world: SqlWorld) -> None:
    world.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
    assert refused(world, "DROP VIEW t").code == "WRONG_KIND_OF_TABLE"
    world.run("DROP TABLE t")
    assert refused(world, "DROP TABLE t").code == "TABLE_NOT_FOUND"
    assert "there was no" in world.run("DROP TABLE IF EXISTS t").message
    world.run("UNDROP TABLE t")
    assert world.rows("EXISTS TABLE t") == [(True,)]


def as_kept(column: Column) -> Column:
    """All that rows depend on."""
    return msgspec.structs.replace(column, written_default="")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (a Int64 NOT NULL, `odd name` Decimal(10, 2), m Map(String, Array(Int32)) COMMENT 'it''s') "
        "ENGINE = MergeTree PARTITION BY (bucket(4, a), `odd name`) ORDER BY a SETTINGS parquet_compression_level = 3",
        "CREATE TABLE t (d DateTime64(3) DEFAULT now()) ENGINE = MergeTree ORDER BY tuple() COMMENT 'c'",
        "CREATE TABLE t (u UInt8 DEFAULT 7, e Enum8('a' = 1, 'b' = -2), z DateTime('Asia/Shanghai') "
        "DEFAULT '2026-01-01 00:00:00', l Array( UUID ) DEFAULT [], m Map(String, VARCHAR(3)) DEFAULT {'a': 'b'}, "
        "t Tuple(a Int8, b FixedString(2)) DEFAULT (1, 'x'), x Binary DEFAULT X'00ff') ENGINE = MergeTree ORDER BY u",
        KAFKA.replace("TABLE k", "TABLE t"),
    ],
)
def test_show_create_runs_again(world: SqlWorld, text: str) -> None:
    world.dispatch.answer = answer_defaults({"now()": 1}, computed=["now()"])
    world.run(text)
    before = world.catalog.tables.get("default", "t")
    ((shown,),) = world.rows("SHOW CREATE TABLE t")
    parse(str(shown))
    world.run("DROP TABLE t")
    world.run(str(shown))
    after = world.catalog.tables.get("default", "t")
    assert not isinstance(before, ViewDef)
    assert not isinstance(after, ViewDef)
    assert [as_kept(column) for column in after.schema.columns] == [as_kept(column) for column in before.schema.columns]
    assert (after.settings, after.comment) == (before.settings, before.comment)
    if isinstance(before, TableDef):
        assert isinstance(after, TableDef)
        assert (after.partition_by, after.order_by) == (before.partition_by, before.order_by)


def test_settings_are_checked_before_they_change(world: SqlWorld) -> None:
    world.run(KAFKA)
    kafka = world.catalog.tables.get("default", "k")
    assert refused(world, "ALTER TABLE k MODIFY SETTING kafka_num_consumers = -1").code == "BAD_SETTING"
    assert refused(world, "ALTER TABLE k MODIFY SETTING parquet_row_group_rows = 10").code == "UNKNOWN_SETTING"
    assert refused(world, "ALTER TABLE k RESET SETTING kafka_topic_list").code == "MISSING_SETTING"
    assert ("adopt", kafka.uuid) not in world.consume.calls
    world.run("ALTER TABLE k MODIFY SETTING num_consumers = 3, kafka_max_block_size = 1000")
    changed = world.catalog.tables.get("default", "k")
    assert isinstance(changed, KafkaDef)
    assert changed.settings["kafka_num_consumers"] == "3"
    assert ("adopt", kafka.uuid) in world.consume.calls
    world.run("ALTER TABLE k RESET SETTING kafka_num_consumers")
    reset = world.catalog.tables.get("default", "k")
    assert isinstance(reset, KafkaDef)
    assert "kafka_num_consumers" not in reset.settings


def test_show_and_describe(world: SqlWorld) -> None:
    world.run("CREATE DATABASE shop")
    world.run("CREATE TABLE shop.orders (a Int64 NOT NULL, s String COMMENT 'what') ENGINE = MergeTree ORDER BY a")
    world.run("CREATE TABLE shop.items (a Int64) ENGINE = MergeTree ORDER BY a")
    assert world.rows("SHOW DATABASES") == [("default",), ("shop",), ("system",)]
    assert world.rows("SHOW TABLES FROM shop LIKE 'or%'") == [("orders", "MergeTree")]
    assert world.rows("SHOW TABLES", database="shop") == [("items", "MergeTree"), ("orders", "MergeTree")]
    assert ("parts", "System") in world.rows("SHOW TABLES FROM system")
    assert world.rows("DESCRIBE shop.orders") == [
        ("a", "bigint", "Int64", False, "", None, ""),
        ("s", "string", "String", True, "", None, "what"),
    ]
    for table, _ in world.rows("SHOW TABLES FROM system"):
        described = world.rows(f"DESCRIBE system.{table}")
        assert all(comment for *_, comment in described), table
        assert [row[0] for row in described] == list(
            world.run(f"SELECT * FROM system.{table} LIMIT 0").table.column_names
        )
    assert world.rows("SHOW SETTINGS LIKE 'max_result%'")[0][0] == "max_result_bytes"
    assert refused(world, "DROP DATABASE shop").code == "DATABASE_NOT_EMPTY"
    assert refused(world, "SHOW TABLES FROM shp").code == "DATABASE_NOT_FOUND"
    assert world.run("USE shop").message == "database: shop"


def test_switches_and_work_at_once(world: SqlWorld) -> None:
    world.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
    world.run(KAFKA)
    uuid, kafka = table_of(world, "t").uuid, world.catalog.tables.get("default", "k").uuid
    world.run("SYSTEM STOP MERGES t FOR 10 minutes BECAUSE 'backup'")
    switch = world.catalog.services.switch(uuid, ServiceKind.MERGE)
    assert switch is not None
    assert (switch.state, switch.because) == (SwitchState.STOPPED, "backup")
    assert switch.until_ms - switch.since_ms == 600_000
    world.run("SYSTEM START MERGES t")
    again = world.catalog.services.switch(uuid, ServiceKind.MERGE)
    assert again is None or again.state is SwitchState.RUNNING
    world.run("SYSTEM STOP CONSUME k")
    world.run("SYSTEM START CONSUME k")
    world.run("SYSTEM RESTART CONSUME k")
    assert [call[0] for call in world.consume.calls if call[1] == kafka][-4:] == [
        "stop",
        "wait stopped",
        "start",
        "restart",
    ]
    assert refused(world, "SYSTEM STOP CONSUME t").code == "WRONG_KIND_OF_TABLE"
    assert refused(world, "SYSTEM STOP MERGES k").code == "WRONG_KIND_OF_TABLE"
    assert "topic/0 at 42" in world.run("SYSTEM RESET CONSUME OFFSET k TO BEGIN").message
    assert world.rows("SYSTEM VERIFY t") == [
        (
            "default.t",
            "the visible rows are those inserted less those removed",
            True,
            "visible 0, inserted 0, removed 0",
        ),
        ("default.t", "the rows of the ledgers were inserted", True, "from Kafka 0, from other inserts 0"),
        ("default.t", "size, checksum and rows of every visible file", True, "0 files, 0 bytes"),
        ("default.t", "no offset was read into it by two Kafka tables", True, "fed by none"),
    ]
    assert "3 parts became 1" in world.run("OPTIMIZE TABLE t FINAL").message
    assert "2 records" in world.run("SYSTEM GC t").message
    assert "2 segments with 1.0 KiB became 1 parts of 3 rows" in world.run("SYSTEM FLUSH t").message
    assert "no segments" in world.run("SYSTEM FLUSH t").message
    assert ("optimize", uuid, None, True) in world.maintenance.calls


def test_the_triplet_of_other_systems_runs_unchanged(world: SqlWorld) -> None:
    world.dispatch.answer = answer_view_tasks(("default", "events_kafka"))
    for text in (
        "CREATE TABLE default.events_kafka (`id` UInt32, `name` LowCardinality(String), `at` DateTime) "
        "ENGINE = CnchKafka() SETTINGS kafka_broker_list = 'b:9092', kafka_topic_list = 't', kafka_group_name = 'g', "
        "kafka_format = 'JSONEachRow', kafka_row_delimiter = '\\n', kafka_num_consumers = 2, "
        "kafka_max_block_size = 65536",
        "CREATE TABLE default.events (`id` UInt32, `name` LowCardinality(String), `at` DateTime) "
        "ENGINE = CnchMergeTree PARTITION BY toDate(at) ORDER BY (name, id) SETTINGS index_granularity = 8192",
        "CREATE MATERIALIZED VIEW default.events_view TO default.events (`id` UInt32, `name` String, `at` DateTime) "
        "AS SELECT id, name, at FROM default.events_kafka",
    ):
        world.run(text)
    assert [one.engine.value for one in world.catalog.tables.list()] == [
        "MergeTree",
        "Kafka",
        "MergeTree",
        "MaterializedView",
    ]
    assert world.rows("SELECT source, target FROM system.tables WHERE name = 'events_view'") == [
        ("default.events_kafka", "default.events")
    ]
