"""A node whose disk is full: a small file system of its own, filled by a foreign file, then freed again.

Mounting needs the rights of root.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from tests.waiting import wait_until
from tilth.client import ServerError
from tools.node_process import NodeProcess

pytestmark = pytest.mark.acceptance
SIZE_MIB = 160
SECONDS_MAX = 120.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("full")
    (folder / "data").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(folder / "data")], check=True)
    try:
        with NodeProcess(folder, settings={"warehouse.driver-memory": "1g"}).serving() as node:
            yield node
    finally:
        subprocess.run(["umount", str(folder / "data")], check=True)


class Ballast:
    """A foreign file that takes all room there is."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ballast"

    def fill(self) -> None:
        for size in (1 << 20, 1 << 12):
            with self._path.open("ab", buffering=0) as file:
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def test_a_full_disk_is_told_everywhere_and_cured_by_room(node: NodeProcess) -> None:
    sql = node.connection.sql
    sql("CREATE TABLE t (id BIGINT, s STRING) ENGINE = MergeTree ORDER BY id")
    sql("INSERT INTO t VALUES (1, 'one')")
    ballast = Ballast(node.data)
    ballast.fill()
    try:
        refused = fill_until_refused(node, ballast)
        assert refused["kind"] == "unavailable"
        assert str(node.data) in refused["message"]
        assert "free=" in refused["message"]
        assert "make room" in refused["hint"]
        for text in (
            "INSERT INTO t VALUES (2, 'two')",
            "INSERT INTO t SELECT id, 'x' FROM range(1000000)",
            "CREATE TABLE other (id BIGINT) ENGINE = MergeTree ORDER BY id",
            "DELETE FROM t WHERE id = 1",
        ):
            response = post(node, text)
            assert (response.status_code, code_of(response)) == (503, "STORE_FULL"), (text, response.text)
            assert int(response.headers["Retry-After"]) >= 1
        with pytest.raises(ServerError) as caught:
            node.connection.insert("t", pa.table({"id": [3], "s": ["three"]}))
        assert caught.value.code == "STORE_FULL"
        response = post(node, "SELECT count(*) FROM t")
        assert response.status_code == 200 or code_of(response) == "STORE_FULL", response.text
        check_answers(node)
        health = httpx.get(f"{node.url}/v1/health").json()
        first, state = next(iter(health["components"].items()))
        assert first == "disk"
        assert "no room" in state
        assert httpx.get(f"{node.url}/v1/ready").status_code == 503
    finally:
        ballast.remove()
    wait_until(lambda: post(node, "INSERT INTO t VALUES (4, 'four')").status_code == 200)
    wait_until(lambda: httpx.get(f"{node.url}/v1/ready").status_code == 200)
    rows = sql("SELECT id FROM t WHERE s IN ('one', 'two', 'three', 'four') ORDER BY id").rows
    # Each INSERT that was refused has applied nothing; the last may have been tried more often than it was answered.
    assert sorted(set(rows)) == [(1,), (4,)]
    check_answers(node)


def fill_until_refused(node: NodeProcess, ballast: Ballast) -> dict[str, str]:
    """What the first refusal says: some room may be reserved already."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        response = post(node, "INSERT INTO t VALUES (0, 'filler')")
        if response.status_code != 200:
            assert (response.status_code, code_of(response)) == (503, "STORE_FULL"), response.text
            error: dict[str, str] = response.json()["error"]
            return error
        ballast.fill()
    raise AssertionError("the disk does not become full")


def check_answers(node: NodeProcess) -> None:
    """System tables need no room on the disk."""
    for table in ("bg_threads", "tables", "query_log", "parts", "tasks", "transactions"):
        response = post(node, f"SELECT * FROM system.{table}")
        assert response.status_code == 200, (table, response.text)


def post(node: NodeProcess, text: str) -> httpx.Response:
    return httpx.post(f"{node.url}/v1/sql", content=text, headers={"Accept": "application/json"}, timeout=SECONDS_MAX)


def code_of(response: httpx.Response) -> str:
    return str(response.json()["error"]["code"])
