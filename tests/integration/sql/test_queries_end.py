"""Queries that would run for ever on a real node, in a process of its own: killed, timed out, left alone, stopped."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

import tilth
from tilth.base.errors import TilthError
from tilth.client import AnswerLostError, ServerError
from tools.node_process import NodeProcess

pytestmark = pytest.mark.integration

#: 10^17 pairs.
ENDLESS = "SELECT count(*) FROM range(300000000) a CROSS JOIN range(300000000) b WHERE (a.id * b.id) % 7 = 3"
SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("node"))
    node.start()
    try:
        node.wait_ready()
        yield node
    finally:
        node.stop()


class Background:
    """A statement on a thread and a connection of its own."""

    def __init__(self, node: NodeProcess, text: str) -> None:
        self.error: TilthError | None = None
        self.seconds = 0.0
        self._connection = tilth.connect(node.url, timeout_seconds=180)
        self._thread = threading.Thread(target=self._run, args=(text,))
        self._thread.start()

    def _run(self, text: str) -> None:
        started = time.monotonic()
        try:
            with self._connection as connection:
                connection.sql(text)
        except (ServerError, AnswerLostError) as error:
            self.error = error
        self.seconds = time.monotonic() - started

    def join(self) -> None:
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive()


def eventually(look: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def in_spark(node: NodeProcess) -> int:
    return node.value("SELECT count(*) FROM system.processes WHERE state = 'running in Spark' AND tasks_total > 0")


def test_three_endless_queries_are_killed_and_others_are_answered(node: NodeProcess) -> None:
    endless = [Background(node, ENDLESS) for _ in range(3)]
    eventually(lambda: in_spark(node) == 3)
    shown = node.connection.sql("SHOW PROCESSLIST").rows
    assert sum(ENDLESS in row for row in shown) == 3
    killed = node.connection.sql("KILL QUERY WHERE query LIKE '%CROSS JOIN%' AND queue = 'query' SYNC").rows
    assert [row[0] for row in killed] == ["finished"] * 3
    for each in endless:
        each.join()
        assert each.error is not None
        assert (each.error.code, "KILL QUERY" in each.error.message) == ("QUERY_WAS_CANCELLED", True)
    assert node.value("SELECT 1") == 1
    logged = "SELECT count(*) FROM system.query_log WHERE error_code = 'QUERY_WAS_CANCELLED' AND kind = 'Query'"
    assert node.value(logged) == 3
    eventually(lambda: node.value("SELECT count(*) FROM system.tasks WHERE state = 'running' AND kind = 'query'") == 0)


@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT INTO limits.t SETTINGS max_execution_time = 3 {ENDLESS}",
        pytest.param(f"{ENDLESS} SETTINGS max_execution_time = 3", marks=pytest.mark.long),
    ],
)
def test_a_statement_has_a_time_limit(node: NodeProcess, statement: str) -> None:
    node.connection.sql("CREATE DATABASE IF NOT EXISTS limits")
    node.connection.sql("CREATE TABLE IF NOT EXISTS limits.t (a BIGINT) ENGINE = MergeTree ORDER BY a")
    late = Background(node, statement)
    late.join()
    assert late.error is not None
    assert late.error.code == "TIMEOUT_EXCEEDED"
    assert "max_execution_time" in late.error.hint
    assert late.seconds < 30
    assert node.value("SELECT count(*) FROM limits.t") == 0


def test_a_closed_connection_ends_its_query(node: NodeProcess) -> None:
    with httpx.Client(trust_env=False, timeout=httpx.Timeout(3.0)) as client, pytest.raises(httpx.ReadTimeout):
        client.post(f"{node.url}/v1/sql", content=ENDLESS)
    eventually(lambda: node.value("SELECT count(*) FROM system.processes WHERE queue = 'query'") == 0)
    rows = node.connection.sql("SELECT error FROM system.query_log WHERE error LIKE '%closed the connection%'").rows
    assert len(rows) == 1


def test_many_selects_starve_neither_inserts_nor_kill_query(node: NodeProcess) -> None:
    """More readers than there are slots of queries, each of which takes a while."""
    node.connection.sql("CREATE DATABASE IF NOT EXISTS busy")
    node.connection.sql("CREATE TABLE busy.t (a BIGINT) ENGINE = MergeTree ORDER BY a SETTINGS memory_buffer = 1")
    readers = [Background(node, ENDLESS) for _ in range(24)]
    waiting = "SELECT count(*) FROM system.processes WHERE state LIKE 'waiting for a slot, % ahead'"
    eventually(lambda: node.value(waiting) == 8)
    started = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: node.connection.sql(f"INSERT INTO busy.t VALUES ({n})"), range(20)))
    assert time.monotonic() - started < SECONDS_MAX
    node.connection.sql("KILL QUERY WHERE queue = 'query'")
    for reader in readers:
        reader.join()
        assert reader.error is not None
        assert reader.error.code == "QUERY_WAS_CANCELLED"
    assert node.value("SELECT count(*) FROM busy.t") == 20


def test_a_node_ends_in_time_whatever_runs(node: NodeProcess) -> None:
    """The last test, for it ends the node: with queries that run, and a Java that answers nothing any more."""
    endless = [Background(node, ENDLESS) for _ in range(3)]
    eventually(lambda: in_spark(node) == 3)
    (java,) = psutil.Process(node.pid).children()
    java.suspend()
    os.kill(node.pid, signal.SIGTERM)
    assert node.wait_end(STOP_SECONDS_MAX)
    assert not java.is_running()
    for each in endless:
        each.join()
        assert each.error is not None
        assert each.error.code == "NODE_STOPPING"
