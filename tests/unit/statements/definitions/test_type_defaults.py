"""data_type_default_nullable = 0: columns without NULL have the defaults of their types, as in ClickHouse."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tests.sql_world import SqlWorld, refused, table_of
from tilth.model.table import KafkaDef
from tilth.storage import data_folder, local_root, read_part

OFF = {"data_type_default_nullable": "0"}


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    return SqlWorld(tmp_path)


@pytest.mark.parametrize(
    ("declared", "default"),
    [
        ("UInt8", "0"),
        ("UInt64", "0"),
        ("Int64", "0"),
        ("Decimal(10, 2)", "0"),
        ("Bool", "false"),
        ("String", "''"),
        ("LowCardinality(String)", "''"),
        ("FixedString(3)", "''"),
        ("Date", "'1970-01-01'"),
        ("DateTime64(3, 'Asia/Shanghai')", "TIMESTAMP '1970-01-01 00:00:00Z'"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '1970-01-01 00:00:00'"),
        ("BINARY", "''"),
        ("Float32", "0"),
        ("UUID", "'00000000-0000-0000-0000-000000000000'"),
        ("Enum8('it''s' = 1, 'b' = 2)", "'it''s'"),
        ("Array(UInt8)", "[]"),
        ("Map(String, Int8)", "{}"),
        ("Tuple(a Enum('x'), b Array(String), c Tuple(UUID))", "('x', [], ('00000000-0000-0000-0000-000000000000'))"),
    ],
)
def test_a_column_has_the_default_of_its_type(world: SqlWorld, declared: str, default: str) -> None:
    world.run(f"CREATE TABLE t (k Int64, c {declared}) ENGINE = MergeTree ORDER BY k", settings=OFF)
    column = table_of(world).schema.columns[1]
    assert not column.nullable
    assert column.written_default == default
    [(shown,)] = world.rows("SHOW CREATE TABLE t")
    before = table_of(world).schema
    world.run("DROP TABLE t")
    world.run(str(shown))
    assert table_of(world).schema == before


def test_what_is_written_counts(world: SqlWorld) -> None:
    world.run(
        "CREATE TABLE t (k Int64, a Nullable(Int8), b Int8 NULL, c Int8 DEFAULT 7, d Int8 NOT NULL) "
        "ENGINE = MergeTree ORDER BY k",
        settings=OFF,
    )
    found = {column.name: (column.nullable, column.written_default) for column in table_of(world).schema.columns}
    assert found == {"k": (False, "0"), "a": (True, None), "b": (True, None), "c": (False, "7"), "d": (False, "0")}
    error = refused(world, "CREATE TABLE u (k Int64 DEFAULT NULL) ENGINE = MergeTree ORDER BY k", OFF)
    assert error.code == "BAD_VALUE"


def test_it_is_no_setting_of_a_table(world: SqlWorld) -> None:
    text = "CREATE TABLE t (k Int64) ENGINE = MergeTree ORDER BY k SETTINGS data_type_default_nullable = 0"
    error = refused(world, text)
    assert (error.code, "SET name = value before it" in error.hint) == ("UNKNOWN_SETTING", True), error


def test_columns_that_alter_makes(world: SqlWorld) -> None:
    world.run("CREATE TABLE t (k Int64, a Int8 NOT NULL DEFAULT 3, b Int8) ENGINE = MergeTree ORDER BY k")
    world.run("ALTER TABLE t ADD COLUMN c String, ADD COLUMN d Nullable(String), MODIFY COLUMN a Int16", settings=OFF)
    found = {column.name: (column.nullable, column.written_default) for column in table_of(world).schema.columns}
    assert found == {
        "k": (True, None),
        "a": (False, "3"),
        "b": (True, None),
        "c": (False, "''"),
        "d": (True, None),
    }
    assert refused(world, "ALTER TABLE t MODIFY COLUMN b Int16", OFF).code == "BAD_ALTER"


def test_rows_of_an_insert_get_them(world: SqlWorld, tmp_path: Path) -> None:
    world.run("CREATE TABLE t (k UInt64, n UInt8, s String, d DateTime) ENGINE = MergeTree ORDER BY k", settings=OFF)
    world.run("INSERT INTO t (k) VALUES (18446744073709551615)")
    world.run('INSERT INTO t FORMAT JSONEachRow {"n": "7"}')
    table = table_of(world)
    folder = data_folder(local_root(tmp_path), table.uuid)
    parts = world.catalog.parts.snapshot(table.uuid).parts
    rows = [row for part in parts for row in read_part(folder, part.file).to_pylist()]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert sorted(rows, key=str) == [
        {"k": Decimal(0), "n": 7, "s": "", "d": epoch},
        {"k": Decimal(2**64 - 1), "n": 0, "s": "", "d": epoch},
    ]


def test_a_kafka_table_has_them_too(world: SqlWorld) -> None:
    world.run(
        "CREATE TABLE k (id UInt64, s String, n Nullable(Int8)) ENGINE = Kafka "
        "SETTINGS kafka_broker_list = 'b:1', kafka_topic_list = 't', kafka_format = 'JSONEachRow'",
        settings=OFF,
    )
    kafka = world.catalog.tables.get("default", "k")
    assert isinstance(kafka, KafkaDef)
    assert [(column.nullable, column.written_default) for column in kafka.schema.columns] == [
        (False, "0"),
        (False, "''"),
        (True, None),
    ]
