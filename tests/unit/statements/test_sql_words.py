"""Words that change nothing in the node, and notices: what an answer says of what it did not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql_world import SqlWorld, refused

TABLE = "CREATE TABLE t (a Int64, s String) ENGINE = MergeTree ORDER BY a"


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    return SqlWorld(tmp_path)


def test_set_is_checked_and_handed_to_the_client(world: SqlWorld) -> None:
    answer = world.run("SET mutations_sync = 1, spark.sql.ansi.enabled = false")
    assert answer.connection_settings == {"mutations_sync": "1", "spark.sql.ansi.enabled": "false"}
    assert "plain HTTP" in answer.notices[0]
    for text, code in (
        ("SET mutations_sync = 9", "BAD_SETTING"),
        ("SET no_such_thing = 1", "UNKNOWN_SETTING"),
        ("SET spark.sql.extensions = 'x'", "NOT_ALLOWED"),
        ("SET dialect = 'cobol'", "BAD_SETTING"),
        (f"SET insertion_label = '{'x' * 5000}'", "BAD_VALUE"),
    ):
        error = refused(world, text)
        assert error.code == code
        assert error.hint


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"{TABLE} SETTINGS index_granularity = 8192", "index_granularity"),
        ("SET max_threads = 4", "max_threads"),
        ("SELECT name FROM system.tables SETTINGS max_threads = 4", "max_threads"),
    ],
)
def test_a_setting_without_effect_is_named(world: SqlWorld, text: str, name: str) -> None:
    assert f"the setting {name} has no effect" in world.run(text).notices


def test_a_setting_with_effect_has_no_notice(world: SqlWorld) -> None:
    assert world.run(f"{TABLE} SETTINGS parquet_row_group_rows = 1000").notices == ()
    assert world.run("SELECT name FROM system.tables SETTINGS max_result_bytes = 1000000").notices == ()


def test_what_is_always_done_says_so(world: SqlWorld) -> None:
    answer = world.run("SYSTEM FLUSH LOGS")
    assert (answer.message, answer.notices) == (
        "nothing to do: system tables are always up to date",
        ("SYSTEM FLUSH LOGS has no effect",),
    )
    world.run(TABLE.replace(" t ", " logs "))
    error = refused(world, "SYSTEM FLUSH LOGS")
    assert "SYSTEM FLUSH default.logs" in error.hint


def test_show_of_partitions_functions_and_some_tables(world: SqlWorld) -> None:
    for name in ("t1", "t2", "t3"):
        world.run(TABLE.replace(" t ", f" {name} "))
    assert world.run("SHOW TABLES LIKE 't%' LIMIT 2").table["name"].to_pylist() == ["t1", "t2"]
    assert world.run("SHOW COLUMNS FROM t1 FROM default").table["name"].to_pylist() == ["a", "s"]
    assert world.run("SHOW PARTITIONS FROM t1").table.num_rows == 0
    assert refused(world, "SHOW PARTITIONS FROM nothing").code == "TABLE_NOT_FOUND"
    found = world.run("SHOW FUNCTIONS LIKE 'toStartOfM%'").table["name"].to_pylist()
    assert found == ["toStartOfMinute", "toStartOfMonth"]


def test_system_tables_of_others_are_there_or_named(world: SqlWorld) -> None:
    assert world.run("SELECT database, table, elapsed, progress FROM system.merges").table.num_rows == 0
    assert world.run("SELECT partition, bytes_on_disk, rows_count, active FROM system.cnch_parts").table.num_rows == 0
    assert "system.tables" in refused(world, "SELECT * FROM system.cnch_tables").hint
    assert "system.servers" in refused(world, "SELECT * FROM system.clusters").hint


def test_a_path_is_not_a_database(world: SqlWorld) -> None:
    assert "cannot read files by path" in refused(world, "SHOW TABLES FROM parquet").hint
