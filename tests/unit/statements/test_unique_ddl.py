"""UNIQUE KEY and version columns: what CREATE takes, what SHOW CREATE gives back, what ALTER leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql_world import SqlWorld, refused, table_of
from tests.statement_texts import render
from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.statements import CreateTable
from tilth.statements.registry import parse


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    return SqlWorld(tmp_path)


def test_keys_and_versions_are_never_null_and_order_the_rows(world: SqlWorld) -> None:
    world.run(
        "CREATE TABLE t (Region String, k Int64, v DateTime, n Int32 NULL) ENGINE = MergeTree(V) "
        "PARTITION BY region UNIQUE KEY (REGION, k)"
    )
    table = table_of(world)
    assert (table.unique_key, table.version_column, table.order_by) == (("Region", "k"), "v", ("Region", "k"))
    assert [(column.name, column.nullable) for column in table.schema.columns] == [
        ("Region", False),
        ("k", False),
        ("v", False),
        ("n", True),
    ]
    assert world.rows("SELECT unique_key, sort_key, segments FROM system.tables WHERE name = 't'") == [
        (["Region", "k"], ["Region", "k"], 0)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (a Int64, v Int32) ENGINE = MergeTree(v) ORDER BY a UNIQUE KEY a",
        "CREATE TABLE t (a Int64, `to` Int32, b Date) ENGINE = MergeTree(`to`) ORDER BY tuple() UNIQUE KEY (a, b)",
        "CREATE TABLE t (a Int64, b Date) ENGINE = HaUniqueMergeTree('/p', '{replica}', b) UNIQUE KEY a",
        "CREATE TABLE t (a Int64, b Nullable(Date)) ENGINE = CnchMergeTree() PRIMARY KEY b UNIQUE KEY a "
        "SETTINGS partition_level_unique_keys = 0, enable_unique_partial_update = 1",
    ],
)
def test_what_show_create_gives_makes_the_same_table(world: SqlWorld, text: str) -> None:
    assert parse(render(parse(text))) == parse(text)
    world.run(text)
    before = table_of(world)
    [(shown,)] = world.rows("SHOW CREATE TABLE t")
    world.run("DROP TABLE t")
    world.run(str(shown))
    after = table_of(world)
    for name in ("schema", "unique_key", "version_column", "order_by", "settings"):
        assert getattr(before, name) == getattr(after, name)


def test_null_that_is_written_stays_written() -> None:
    statement = parse("CREATE TABLE t (a Nullable(Int64), b Int64 NULL, c Int64) ENGINE = MergeTree UNIQUE KEY c")
    assert isinstance(statement, CreateTable)
    again = parse(render(statement))
    assert isinstance(again, CreateTable)
    assert [spec.states_null for spec in again.columns] == [True, True, False]


@pytest.mark.parametrize(
    ("clauses", "code", "told"),
    [
        ("UNIQUE KEY x", "UNKNOWN_COLUMN", "UNIQUE KEY"),
        ("UNIQUE KEY maybe", "BAD_DEFINITION", "never NULL"),
        ("UNIQUE KEY tags", "BAD_DEFINITION", "type=Array(String)"),
    ],
)
def test_columns_that_are_no_key(world: SqlWorld, clauses: str, code: str, told: str) -> None:
    columns = "a Int64, maybe Nullable(Int64), tags Array(String)"
    error = refused(world, f"CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY a {clauses}")
    assert (error.code, told in str(error)) == (code, True), error
    assert world.catalog.tables.find("default", "t") is None


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["", "U"])
def test_every_whole_number_is_a_version(world: SqlWorld, sign: str, bits: int) -> None:
    world.run(f"CREATE TABLE t (a Int64, v {sign}Int{bits}) ENGINE = ReplacingMergeTree(v) ORDER BY a")
    assert (table_of(world).unique_key, table_of(world).version_column) == (("a",), "v")


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        ("x", "UNKNOWN_COLUMN", "x"),
        ("a", "BAD_DEFINITION", "cannot be a column of the key"),
        ("s", "BAD_DEFINITION", "whole number"),
        ("f", "BAD_DEFINITION", "whole number"),
        ("d", "BAD_DEFINITION", "type=Decimal(10, 2)"),
        ("maybe", "BAD_DEFINITION", "never NULL"),
    ],
)
def test_columns_that_are_no_version(world: SqlWorld, version: str, code: str, told: str) -> None:
    columns = "a Int64, s String, f Float64, d Decimal(10, 2), maybe Int64 NULL"
    error = refused(world, f"CREATE TABLE t ({columns}) ENGINE = MergeTree({version}) UNIQUE KEY a")
    assert (error.code, told in str(error)) == (code, True), error


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (a Int64) ENGINE = MergeTree(a) ORDER BY a",
        "CREATE TABLE t (a Int64) ENGINE = HaUniqueMergeTree ORDER BY a",
        "CREATE TABLE t (a Int64) ENGINE = MergeTree(a, 8192) UNIQUE KEY a",
        "CREATE TABLE t (a Int64) ENGINE = Kafka(a)",
        "CREATE TABLE t (a Int64) ENGINE = Kafka UNIQUE KEY a",
    ],
)
def test_what_the_grammar_refuses(text: str) -> None:
    with pytest.raises(SqlSyntaxError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("DROP COLUMN k", "BAD_ALTER", "UNIQUE KEY"),
        ("RENAME COLUMN k TO z", "BAD_ALTER", "UNIQUE KEY"),
        ("MODIFY COLUMN k Int64", "BAD_ALTER", "UNIQUE KEY"),
        ("DROP COLUMN v", "BAD_ALTER", "version"),
        ("RENAME COLUMN v TO z", "BAD_ALTER", "version"),
        ("UPDATE n = 1 WHERE true", "BAD_ALTER", "UPDATE t SET"),
        ("DELETE WHERE n = 1", "BAD_ALTER", "DELETE FROM t"),
        ("MODIFY SETTING partition_level_unique_keys = 0", "BAD_ALTER", "scope"),
        ("RESET SETTING partition_level_unique_keys", "", ""),
        ("MODIFY SETTING partition_level_unique_keys = true, enable_unique_partial_update = 1", "", ""),
        ("MODIFY COLUMN n Int64", "", ""),
    ],
)
def test_what_alter_leaves_alone(world: SqlWorld, text: str, code: str, told: str) -> None:
    world.run("CREATE TABLE t (o Int64, k Int32, v Int32, n Int32) ENGINE = MergeTree(v) ORDER BY o UNIQUE KEY k")
    if not code:
        world.run(f"ALTER TABLE t {text}")
        return
    error = refused(world, f"ALTER TABLE t {text}")
    assert (error.code, told in str(error)) == (code, True), error


def test_keys_and_versions_are_not_updated(world: SqlWorld) -> None:
    world.run("CREATE TABLE t (k Int64, v Int32, n Int32) ENGINE = MergeTree(v) UNIQUE KEY k")
    assert refused(world, "UPDATE t SET n = 1, K = 2 WHERE true").code == "KEY_COLUMN_UPDATE"
    assert refused(world, "UPDATE t SET v = 2 WHERE true").code == "BAD_ALTER"
    assert refused(world, "UPDATE t SET x = 2 WHERE true").code == "UNKNOWN_COLUMN"
    assert world.dispatch.specs == []


@pytest.mark.parametrize(
    ("settings", "code", "told"),
    [
        ("", "NOTHING_TO_UNDROP", "keys must stay unique"),
        ("SETTINGS partition_level_unique_keys = 0", "BAD_ALTER", "same keys"),
    ],
)
def test_an_undrop_never_doubles_a_key(world: SqlWorld, settings: str, code: str, told: str) -> None:
    world.run(f"CREATE TABLE t (p Int32, k Int32) ENGINE = MergeTree PARTITION BY p ORDER BY k UNIQUE KEY k {settings}")
    world.run("INSERT INTO t VALUES (1, 7)")
    world.run("ALTER TABLE t DROP PARTITION 1")
    world.run("INSERT INTO t VALUES (1, 7)")
    error = refused(world, "ALTER TABLE t UNDROP PARTITION 1")
    assert (error.code, told in str(error)) == (code, True), error
