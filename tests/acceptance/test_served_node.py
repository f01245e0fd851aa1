"""A served node as its users meet it: a real process, real HTTP, real Spark; wrong things typed, the plug pulled.

One node serves all tests of this file; each test has a database of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tilth
from tilth.client import ServerError
from tools.node_process import NodeProcess

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("node"))
    node.start()
    try:
        node.wait_ready()
        yield node
    finally:
        node.stop()


def test_rows_inserted_in_every_way_are_read_back(node: NodeProcess) -> None:
    sql = node.connection.sql
    sql("CREATE DATABASE ways")
    sql("CREATE TABLE ways.t (k BIGINT, s STRING) ENGINE = MergeTree PARTITION BY bucket(3, k) ORDER BY k")
    sql("INSERT INTO ways.t VALUES (1, 'one'), (2, NULL)")
    sql('INSERT INTO ways.t FORMAT JSONEachRow {"k": 3, "s": "three"}\n{"k": 4}')
    sql("INSERT INTO ways.t SELECT k + 10, s FROM ways.t")
    node.connection.insert("ways.t", pa.table({"k": [100], "s": ["hundred"]}))
    expected = [(1, "one"), (2, None), (3, "three"), (4, None), (11, "one"), (12, None), (13, "three"), (14, None)]
    assert sql("SELECT k, s FROM ways.t ORDER BY k").rows == [*expected, (100, "hundred")]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("SELEC 1", "SYNTAX_ERROR"),
        ("SELECT * FROM nowhere.t", "DATABASE_NOT_FOUND"),
        ("SELECT * FROM wrong.nothing", "TABLE_NOT_FOUND"),
        ("SELECT colour FROM wrong.t", "UNKNOWN_COLUMN"),
        ("CREATE TABLE wrong.t2 (a BIGINT) ENGINE = MergeTree ORDER BY b", "UNKNOWN_COLUMN"),
        ("CREATE TABLE wrong.t2 (a IPv4) ENGINE = MergeTree ORDER BY a", "UNSUPPORTED_SYNTAX"),
        (
            "CREATE TABLE wrong.t2 (a BIGINT) ENGINE = MergeTree ORDER BY a SETTINGS old_part_lifetime = 1",
            "UNKNOWN_SETTING",
        ),
        ("ALTER TABLE wrong.t MODIFY SETTING old_parts_lifetime = 'soon'", "BAD_SETTING"),
        ("CREATE TABLE wrong.t (a BIGINT) ENGINE = MergeTree ORDER BY a", "TABLE_EXISTS"),
        ("DROP DATABASE wrong", "DATABASE_NOT_EMPTY"),
    ],
)
def test_a_wrong_statement_is_refused_by_a_stable_code_and_changes_nothing(
    node: NodeProcess, statement: str, code: str
) -> None:
    sql = node.connection.sql
    sql("CREATE DATABASE IF NOT EXISTS wrong")
    sql("CREATE TABLE IF NOT EXISTS wrong.t (a BIGINT) ENGINE = MergeTree ORDER BY a")
    before = sql("SHOW TABLES FROM wrong").rows
    with pytest.raises(ServerError) as refused:
        sql(statement)
    assert refused.value.code == code, refused.value
    assert refused.value.id
    assert sql("SHOW TABLES FROM wrong").rows == before


def test_switches_and_tables_survive_a_sigkill(node: NodeProcess) -> None:
    sql = node.connection.sql
    sql("CREATE DATABASE kept")
    sql("CREATE TABLE kept.t (a BIGINT) ENGINE = MergeTree ORDER BY a")
    sql("INSERT INTO kept.t VALUES (1), (2)")
    sql("SYSTEM STOP MERGES kept.t BECAUSE 'a test'")
    node.kill()
    node.start()
    node.wait_ready()
    assert sql("SELECT sum(a) FROM kept.t").rows == [(3,)]
    switch = "SELECT switch, because FROM system.bg_threads WHERE database = 'kept' AND service = 'merge'"
    assert sql(switch).rows == [("stopped", "a test")]
    sql("SYSTEM START MERGES kept.t")
    assert sql(switch).rows[0][0] == "running"


def test_a_second_node_on_the_same_folder_is_refused_by_name(node: NodeProcess) -> None:
    command = [sys.executable, "-m", "tilth.client.cli", "serve", "--data", str(node.data), "--listen", "127.0.0.1:0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    assert "STORE_LOCKED" in second.stderr
    assert "catalog" in second.stderr


def test_the_command_line_prints_rows_and_fails_with_the_code(node: NodeProcess) -> None:
    command = [sys.executable, "-m", "tilth.client.cli", "sql", "--url", node.url, "--format", "csv", "-c"]
    good = subprocess.run([*command, "SELECT 1 AS one"], capture_output=True, text=True, timeout=60, check=False)
    assert (good.returncode, good.stdout.split()) == (0, ['"one"', "1"])
    bad = subprocess.run([*command, "SELECT"], capture_output=True, text=True, timeout=60, check=False)
    assert bad.returncode == 1
    assert "SYNTAX_ERROR" in bad.stderr or "BAD_QUERY" in bad.stderr


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(tilth.base.errors.TilthError, match=r"http://127\.0\.0\.1:9"):
        tilth.connect("http://127.0.0.1:9").sql("SELECT 1")


@pytest.mark.parametrize("example", ["quickstart.py"])
def test_examples_run(node: NodeProcess, example: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / example), node.url]
    subprocess.run(command, check=True, timeout=120, capture_output=True)


def test_a_whole_node_runs_inside_a_program(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "notebook.py"), str(tmp_path / "data")]
    done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    assert "998001" in done.stdout
