"""COPY INTO, EXPORT and a pipe killed where it hurts: nothing is lost, nothing is there twice.

Two nodes, one that starts four times and one that starts three times, about ten seconds each.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tilth.base.errors import TilthError
from tools.node_process import NodeProcess

pytestmark = pytest.mark.integration
ROWS = 1000
WAIT_SECONDS_MAX = 90.0


def test_files_are_loaded_and_written_once_whatever_is_killed(tmp_path: Path, java_home: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(3):
        lines = [json.dumps({"id": number * ROWS + row}) for row in range(ROWS)]
        (folder / f"{number}.json").write_text("\n".join(lines))
    node = NodeProcess(
        tmp_path / "node",
        # No other transaction commits, so that the failpoints are those of COPY INTO.
        settings={"storage.file-locations": str(tmp_path), "enable_maintenance_manager": "false"},
    )
    sql = node.connection.sql
    copy = f"COPY INTO default.t FROM '{folder}' FORMAT JSON"
    export = f"EXPORT TABLE default.t TO '{tmp_path}/out' FORMAT JSON"
    count = "SELECT count(*), count(DISTINCT id) FROM default.t"
    try:
        node.start(failpoints="catalog.before_commit:1")
        node.wait_ready()
        sql("CREATE TABLE default.t (id BIGINT) ENGINE = MergeTree ORDER BY id")
        with pytest.raises(TilthError):
            sql(copy)
        node.kill()
        node.start(failpoints="catalog.after_commit:1")
        node.wait_ready()
        assert sql(count).rows == [(0, 0)]
        assert sql("SELECT count(*) FROM system.loaded_files").rows == [(0,)]
        with pytest.raises(TilthError):
            sql(copy)
        node.kill()
        node.start(failpoints="export.after_files:1")
        node.wait_ready()
        assert sql(copy).summary.message == "nothing to copy into default.t; 3 files loaded before"
        assert sql(count).rows == [(3 * ROWS, 3 * ROWS)]
        with pytest.raises(TilthError):
            sql(export)
        node.kill()
        left = {path.name for path in (tmp_path / "out").glob("part-*")}
        assert left
        assert not (tmp_path / "out" / "_SUCCESS").exists()
        node.start()
        node.wait_ready()
        assert f"{3 * ROWS} rows" in sql(export).summary.message
        names = {path.name for path in (tmp_path / "out").glob("part-*")}
        manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
        assert names == {each["name"] for each in manifest["files"]}
        assert not names & left
        ids = [json.loads(line)["id"] for name in names for line in (tmp_path / "out" / name).read_text().splitlines()]
        assert sorted(ids) == list(range(3 * ROWS))
    finally:
        node.stop()


def test_a_pipe_loads_each_file_once_whatever_is_killed(tmp_path: Path, java_home: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()

    def put(number: int, text: str = "") -> None:
        lines = [json.dumps({"id": number * ROWS + row}) for row in range(ROWS)]
        (folder / f".{number}").write_text(text or "\n".join(lines))
        (folder / f".{number}").rename(folder / f"{number}.json")

    node = NodeProcess(
        tmp_path / "node",
        settings={"storage.file-locations": str(tmp_path), "enable_maintenance_manager": "false"},
    )
    sql = node.connection.sql

    def loaded() -> list[tuple[object, ...]]:
        return sql("SELECT count(*), count(DISTINCT id) FROM default.t").rows

    try:
        put(0)
        node.start(failpoints="catalog.before_commit:1")
        node.wait_ready()
        sql("CREATE TABLE default.t (id BIGINT) ENGINE = MergeTree ORDER BY id")
        sql(f"CREATE PIPE p EVERY 1 SECOND AS COPY INTO default.t FROM '{folder}' FORMAT JSON")
        assert node.wait_end(WAIT_SECONDS_MAX)
        node.start(failpoints="catalog.after_commit:1")
        put(1)
        put(2, "no json")
        assert node.wait_end(WAIT_SECONDS_MAX)
        node.start()
        node.wait_ready()
        put(3)
        wait_until(lambda: loaded() == [(3 * ROWS, 3 * ROWS)], "the pipe has loaded what is good")
        failed = sql("SELECT file, code FROM system.pipe_errors").rows
        assert failed == [(f"{folder}/2.json", "BAD_FILE_ROW")]
        put(2)
        wait_until(lambda: loaded() == [(4 * ROWS, 4 * ROWS)], "the pipe has loaded what was corrected")
        assert sql("SELECT count(*) FROM system.loaded_files").rows == [(4,)]
        assert sql("SELECT * FROM system.pipe_errors").rows == []
        sql("SYSTEM STOP COPY default.t")
        assert sql("SELECT state FROM system.pipes").rows == [("stopped",)]
    finally:
        node.stop()


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
