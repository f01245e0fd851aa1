"""COPY INTO, EXPORT and a pipe killed where it hurts: nothing is lost, nothing is there twice.

One node that starts five times, about ten seconds each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tilth.base.errors import TilthError
from tools.node_process import NodeProcess

pytestmark = pytest.mark.integration
ROWS = 1000
COUNT = "SELECT count(*), count(DISTINCT id) FROM {table}"


@pytest.fixture
def node(tmp_path: Path, java_home: Path) -> Iterator[NodeProcess]:
    # No other transaction commits, so that the failpoints are those of COPY INTO.
    settings = {"storage.file-locations": str(tmp_path), "enable_maintenance_manager": "false"}
    node = NodeProcess(tmp_path / "node", settings=settings)
    yield node
    node.stop()


def start(node: NodeProcess, failpoints: str = "") -> None:
    node.start(failpoints=failpoints)
    node.wait_ready()


def put(folder: Path, number: int, text: str = "") -> None:
    """Put a file there, whole from the first moment."""
    lines = [json.dumps({"id": number * ROWS + row}) for row in range(ROWS)]
    folder.mkdir(exist_ok=True)
    (folder / f".{number}").write_text(text or "\n".join(lines))
    (folder / f".{number}").rename(folder / f"{number}.json")


def test_files_are_loaded_and_written_once_whatever_is_killed(node: NodeProcess, tmp_path: Path) -> None:
    """Dies before and behind the commit of COPY INTO, behind the files of EXPORT, behind the commit of a pipe."""
    copied, piped = tmp_path / "copied", tmp_path / "piped"
    for number in range(3):
        put(copied, number)
    sql = node.connection.sql
    copy = f"COPY INTO t FROM '{copied}' FORMAT JSON"
    start(node, "catalog.before_commit:1")
    for table in ("t", "p"):
        sql(f"CREATE TABLE {table} (id BIGINT) ENGINE = MergeTree ORDER BY id")
    with pytest.raises(TilthError):
        sql(copy)
    node.kill()

    start(node, "catalog.after_commit:1")
    assert sql(COUNT.format(table="t")).rows == [(0, 0)]
    assert sql("SELECT count(*) FROM system.loaded_files").rows == [(0,)]
    with pytest.raises(TilthError):
        sql(copy)
    node.kill()

    start(node, "export.after_files:1")
    assert sql(copy).summary.message == "nothing to copy into default.t; 3 files loaded before"
    assert sql(COUNT.format(table="t")).rows == [(3 * ROWS, 3 * ROWS)]
    with pytest.raises(TilthError):
        sql(f"EXPORT TABLE t TO '{tmp_path}/out' FORMAT JSON")
    node.kill()
    left = {path.name for path in (tmp_path / "out").glob("part-*")}
    assert left
    assert not (tmp_path / "out" / "_SUCCESS").exists()

    start(node, "catalog.after_commit:1")
    check_export(node, tmp_path, left)
    put(piped, 0)
    sql(f"CREATE PIPE p EVERY 1 SECOND AS COPY INTO p FROM '{piped}' FORMAT JSON")
    assert node.wait_end(90.0)

    for number, text in ((1, ""), (2, "no json"), (3, "")):
        put(piped, number, text)
    start(node)
    check_pipe(node, piped)


def check_export(node: NodeProcess, folder: Path, left: set[str]) -> None:
    """Check that the export is whole, without files of the one that was killed."""
    assert f"{3 * ROWS} rows" in node.connection.sql(f"EXPORT TABLE t TO '{folder}/out' FORMAT JSON").summary.message
    names = {path.name for path in (folder / "out").glob("part-*")}
    manifest = json.loads((folder / "out" / "_manifest.json").read_text())
    assert names == {each["name"] for each in manifest["files"]}
    assert not names & left
    ids = [json.loads(line)["id"] for name in names for line in (folder / "out" / name).read_text().splitlines()]
    assert sorted(ids) == list(range(3 * ROWS))


def check_pipe(node: NodeProcess, folder: Path) -> None:
    """Check that the pipe loads each good file once, names the bad one, and loads it once it is corrected."""
    sql = node.connection.sql

    def has(files: int) -> bool:
        return sql(COUNT.format(table="p")).rows == [(files * ROWS, files * ROWS)]

    wait_until(lambda: has(3), "the pipe has not loaded what is good")
    failed = "SELECT file, code FROM system.pipe_errors"
    wait_until(lambda: sql(failed).rows == [(f"{folder}/2.json", "BAD_FILE_ROW")], "the bad file is not named")
    put(folder, 2)
    wait_until(lambda: has(4), "the pipe has not loaded what was corrected")
    assert sql("SELECT count(*) FROM system.loaded_files WHERE table = 'p'").rows == [(4,)]
    assert sql("SELECT * FROM system.pipe_errors").rows == []
    sql("SYSTEM STOP COPY p")
    assert sql("SELECT state FROM system.pipes").rows == [("stopped",)]
