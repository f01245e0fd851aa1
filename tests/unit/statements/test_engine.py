"""What the engine does around a statement: those that only read, and lines of the query log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.sql_world import SqlWorld, refused
from tilth.base.errors import TilthError
from tilth.statements.registry import KINDS

READ_ONLY = {"readonly": "1"}
#: The last words of names of statements that show something.
READING = ("Query", "Describe", "ExistsTable", "ExplainMerge", "ExplainGc", "ExplainPipe")


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path)
    made.run("CREATE TABLE t (a BIGINT) ENGINE = MergeTree ORDER BY a")
    return made


def test_statements_that_only_read_are_those_that_show_and_explain() -> None:
    reading = {value.__name__ for value, kind in KINDS.items() if kind.only_reads}
    assert reading == {name.__name__ for name in KINDS if name.__name__.startswith("Show")} | set(READING)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t VALUES (1)",
        "DROP TABLE t",
        "ALTER TABLE t ADD COLUMN b INT",
        "DELETE FROM t WHERE a = 1",
        "SYSTEM STOP MERGES t",
        "KILL QUERY WHERE query_id = 'x'",
        "SET max_result_bytes = 1",
        "INSERT INTO t SETTINGS readonly = 0 VALUES (1)",
    ],
)
def test_a_reader_changes_nothing(world: SqlWorld, text: str) -> None:
    error = refused(world, text, READ_ONLY)
    assert (error.code, error.hint) == ("READONLY_SETTING", "send it without the setting readonly")
    assert world.rows("SELECT name, rows, parts FROM system.tables") == [("t", 0, 0)]


@pytest.mark.parametrize("text", ["SHOW TABLES", "SELECT name FROM system.tables", "DESCRIBE t", "EXPLAIN GC t"])
def test_a_reader_reads(world: SqlWorld, text: str) -> None:
    assert world.run(text, settings=READ_ONLY).table.num_columns > 0


def test_rows_that_no_statement_brings_are_refused_too(world: SqlWorld) -> None:
    with pytest.raises(TilthError, match="changes something"):
        world.engine.insert_text("default", "t", input_format="CSV", data=b"1\n", settings=READ_ONLY)
    with pytest.raises(TilthError, match="changes something"):
        world.engine.insert_arrow("default", "t", pa.table({"a": [1]}), settings=READ_ONLY)


def test_a_statement_without_a_line_in_the_query_log(world: SqlWorld) -> None:
    world.run("SHOW TABLES", settings={"log_queries": "0"})
    world.run("SHOW DATABASES")
    kinds = [kind for (kind,) in world.rows("SELECT kind FROM system.query_log")]
    assert "ShowDatabases" in kinds
    assert "ShowTables" not in kinds
