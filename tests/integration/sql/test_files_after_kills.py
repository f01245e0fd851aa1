"""COPY INTO and EXPORT killed where it hurts, and sent again: nothing is lost, nothing is there twice.

One node that starts four times, about ten seconds each.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilth.base.errors import TilthError
from tools.node_process import NodeProcess

pytestmark = pytest.mark.integration
ROWS = 1000


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
