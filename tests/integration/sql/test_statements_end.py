"""Statements on a real node that would run for ever, that wait for something, or whose client does not read what they
answer: killed, timed out, left alone, stopped, within bounds of time and disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

import tilth
from tests.long import cases
from tests.waiting import wait_until
from tilth.base.errors import TilthError
from tilth.client import AnswerLostError, ServerError
from tools.node_process import NodeProcess

pytestmark = pytest.mark.integration

#: A cancelled statement is answered within the grace time of two seconds; the rest is for a busy machine.
ANSWER_SECONDS_MAX = 12.0
#: 10^17 pairs, in Spark.
PAIRS = "SELECT count(*) FROM range(300000000) a CROSS JOIN range(300000000) b WHERE (a.id * b.id) % 7 = 3"
#: About 120 MB.
LARGE = "SELECT id, repeat('x', 100) AS s FROM slow"
#: About 10^10 rows of settings.
ENDLESS = (
    "SELECT count(*) FROM system.settings a, system.settings b, system.settings c, system.settings d "
    "WHERE a.name < d.value"
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    # A JVM that a test stops for a while is not to be killed.
    settings = {"warehouse.hang-bound": "300 s", "server.result-read-timeout": "3 s"}
    with NodeProcess(tmp_path_factory.mktemp("node"), settings=settings).serving() as node:
        yield node


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

    def code(self, seconds_max: float = ANSWER_SECONDS_MAX) -> str:
        """Return the code of the error; empty: it has ended well."""
        self._thread.join(seconds_max)
        assert not self._thread.is_alive()
        return self.error.code if self.error is not None else ""

    @property
    def failure(self) -> TilthError:
        """Return the error that it ends with, however long it takes."""
        self.code(180.0)
        assert self.error is not None
        return self.error


def in_spark(node: NodeProcess) -> int:
    return node.value("SELECT count(*) FROM system.processes WHERE state = 'running in Spark' AND tasks_total > 0")


def listed(node: NodeProcess, kind: str) -> int:
    return node.value(f"SELECT count(*) FROM system.processes WHERE kind = '{kind}'")


def kill(node: NodeProcess, kind: str) -> None:
    node.connection.sql(f"KILL QUERY WHERE kind = '{kind}'")


def java_of(node: NodeProcess) -> psutil.Process:
    [java] = [each for each in psutil.Process(node.pid).children() if each.name() == "java"]
    return java


@contextmanager
def stopped_java(node: NodeProcess) -> Iterator[None]:
    """Nothing in Spark ends within the block: its JVM is stopped."""
    java = java_of(node)
    java.suspend()
    try:
        yield
    finally:
        java.resume()


def filled(node: NodeProcess, table: str, *, parts: int = 3) -> None:
    sql = node.connection.sql
    sql(f"CREATE TABLE {table} (k BIGINT, v BIGINT) ENGINE = MergeTree ORDER BY k SETTINGS disable_compaction = 1")
    for number in range(parts):
        sql(f"INSERT INTO {table} VALUES ({number}, 1)")


def test_three_endless_queries_are_killed_and_others_are_answered(node: NodeProcess) -> None:
    endless = [Background(node, PAIRS) for _ in range(3)]
    wait_until(lambda: in_spark(node) == 3)
    shown = node.connection.sql("SHOW PROCESSLIST").rows
    assert sum(PAIRS in row for row in shown) == 3
    killed = node.connection.sql("KILL QUERY WHERE query LIKE '%CROSS JOIN%' AND queue = 'query' SYNC").rows
    assert [row[0] for row in killed] == ["finished"] * 3
    for each in endless:
        assert (each.failure.code, "KILL QUERY" in each.failure.message) == ("QUERY_WAS_CANCELLED", True)
    assert node.value("SELECT 1") == 1
    logged = "SELECT count(*) FROM system.query_log WHERE error_code = 'QUERY_WAS_CANCELLED' AND kind = 'Query'"
    assert node.value(logged) == 3
    wait_until(lambda: node.value("SELECT count(*) FROM system.tasks WHERE state = 'running' AND kind = 'query'") == 0)


@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT INTO limits.t SETTINGS max_execution_time = 3 {PAIRS}",
        pytest.param(f"{PAIRS} SETTINGS max_execution_time = 3", marks=pytest.mark.long),
    ],
)
def test_a_statement_has_a_time_limit(node: NodeProcess, statement: str) -> None:
    node.connection.sql("CREATE DATABASE IF NOT EXISTS limits")
    node.connection.sql("CREATE TABLE IF NOT EXISTS limits.t (a BIGINT) ENGINE = MergeTree ORDER BY a")
    late = Background(node, statement)
    assert late.failure.code == "TIMEOUT_EXCEEDED"
    assert "max_execution_time" in late.failure.hint
    assert late.seconds < 30
    assert node.value("SELECT count(*) FROM limits.t") == 0


def test_a_closed_connection_ends_its_query(node: NodeProcess) -> None:
    with httpx.Client(trust_env=False, timeout=httpx.Timeout(3.0)) as client, pytest.raises(httpx.ReadTimeout):
        client.post(f"{node.url}/v1/sql", content=PAIRS)
    wait_until(lambda: node.value("SELECT count(*) FROM system.processes WHERE queue = 'query'") == 0)
    rows = node.connection.sql("SELECT error FROM system.query_log WHERE error LIKE '%closed the connection%'").rows
    assert len(rows) == 1


def test_many_selects_starve_neither_inserts_nor_kill_query(node: NodeProcess) -> None:
    """More readers than there are slots of queries, each of which takes a while."""
    node.connection.sql("CREATE DATABASE IF NOT EXISTS busy")
    node.connection.sql("CREATE TABLE busy.t (a BIGINT) ENGINE = MergeTree ORDER BY a SETTINGS memory_buffer = 1")
    readers = [Background(node, PAIRS) for _ in range(24)]
    waiting = "SELECT count(*) FROM system.processes WHERE state LIKE 'waiting for a slot, % ahead'"
    wait_until(lambda: node.value(waiting) == 8)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: node.connection.sql(f"INSERT INTO busy.t VALUES ({n})"), range(20)))
    node.connection.sql("KILL QUERY WHERE queue = 'query'")
    for reader in readers:
        assert reader.failure.code == "QUERY_WAS_CANCELLED"
    assert node.value("SELECT count(*) FROM busy.t") == 20


@pytest.mark.parametrize("by", cases(["KILL QUERY", "max_execution_time", "a closed connection"]))
def test_a_long_query_of_system_tables_ends(node: NodeProcess, by: str) -> None:
    processes = len(psutil.Process(node.pid).children())
    if by == "a closed connection":
        with httpx.Client(trust_env=False, timeout=httpx.Timeout(3.0)) as client, pytest.raises(httpx.ReadTimeout):
            client.post(f"{node.url}/v1/sql", content=ENDLESS)
    else:
        limit = " SETTINGS max_execution_time = 2" if by == "max_execution_time" else ""
        endless = Background(node, ENDLESS + limit)
        if by == "KILL QUERY":
            wait_until(lambda: len(psutil.Process(node.pid).children()) > processes)
            node.connection.sql("KILL QUERY WHERE query LIKE '%settings d%' AND kind = 'Query'")
        assert endless.code() == ("QUERY_WAS_CANCELLED" if by == "KILL QUERY" else "TIMEOUT_EXCEEDED")
    wait_until(lambda: listed(node, "Query") == 1)
    wait_until(lambda: len(psutil.Process(node.pid).children()) == processes)


def test_a_system_query_that_needs_too_much_memory_is_refused_and_the_node_goes_on(node: NodeProcess) -> None:
    with pytest.raises(ServerError, match="Resources exhausted") as refused:
        node.connection.sql(
            "SELECT a.name, b.doc FROM system.settings a, system.settings b, system.settings c ORDER BY b.doc, c.name"
        )
    assert refused.value.kind.value == "invalid"


def test_optimize_ends_and_leaves_nothing_half_made(node: NodeProcess) -> None:
    filled(node, "o")
    with stopped_java(node):
        optimize = Background(node, "OPTIMIZE TABLE o FINAL")
        wait_until(lambda: node.value("SELECT count(*) FROM system.tasks WHERE state = 'running' AND kind = 'merge'"))
        shown = node.connection.sql("SELECT state, task_id IS NULL FROM system.processes WHERE kind = 'OptimizeTable'")
        assert shown.rows == [("running in Spark", False)]
        kill(node, "OptimizeTable")
        assert optimize.code() == "QUERY_WAS_CANCELLED"
        assert listed(node, "OptimizeTable") == 0
    assert optimize.error is not None
    assert "finished merges stay" in optimize.error.hint
    wait_until(lambda: not node.value("SELECT count(*) FROM system.tasks WHERE state = 'running' AND kind = 'merge'"))
    assert node.value("SELECT count(*) FROM o") == 3
    assert node.value("SELECT count(*) FROM system.parts WHERE table = 'o' AND active") == 3
    # Nothing holds the parts any more.
    node.connection.sql("OPTIMIZE TABLE o FINAL")
    assert node.value("SELECT count(*) FROM system.parts WHERE table = 'o' AND active") == 1
    assert all(row[2] for row in node.connection.sql("SYSTEM VERIFY o").rows)


def test_who_waits_for_a_mutation_goes_and_the_mutation_is_done_all_the_same(node: NodeProcess) -> None:
    filled(node, "m")
    node.connection.sql("SYSTEM STOP MUTATIONS m FOR 5 MINUTE")
    waiting = Background(
        node, "ALTER TABLE m DELETE WHERE k = 1 SETTINGS mutations_sync = 1, mutations_wait_timeout_seconds = 900"
    )
    wait_until(lambda: node.value("SELECT count(*) FROM system.mutations WHERE table = 'm'"))
    assert listed(node, "AlterTable") == 1
    kill(node, "AlterTable")
    assert waiting.code() == "MUTATION_NOT_DONE"
    assert listed(node, "AlterTable") == 0
    node.connection.sql("SYSTEM START MUTATIONS m")
    assert waiting.error is not None
    assert "QUERY_WAS_CANCELLED" in waiting.error.message
    assert "do not send the statement again" in waiting.error.hint
    wait_until(lambda: node.value("SELECT count(*) FROM m") == 2)


def test_an_update_that_waits_for_an_alter_changes_nothing(node: NodeProcess) -> None:
    filled(node, "u")
    node.connection.sql("SYSTEM STOP MUTATIONS u")
    node.connection.sql("ALTER TABLE u DELETE WHERE k = 0 SETTINGS mutations_sync = 0")
    late = Background(node, "UPDATE u SET v = 7 WHERE k = 1 SETTINGS max_execution_time = 2")
    assert late.code() == "TIMEOUT_EXCEEDED"
    node.connection.sql("SYSTEM START MUTATIONS u")
    assert node.value("SELECT count(*) FROM u WHERE v = 7") == 0


def test_an_insert_that_waits_for_its_batch_is_not_stored(node: NodeProcess) -> None:
    node.connection.sql("CREATE TABLE g (k BIGINT) ENGINE = MergeTree ORDER BY k SETTINGS memory_buffer = 1")
    slow = "SETTINGS async_insert_busy_timeout_ms = 60000"
    leader = Background(node, f"INSERT INTO g {slow} VALUES (1)")
    wait_until(lambda: listed(node, "InsertValues") == 1)
    other = Background(node, f"INSERT INTO g {slow} VALUES (2)")
    wait_until(lambda: listed(node, "InsertValues") == 2)
    node.connection.sql("KILL QUERY WHERE query LIKE '%(1)%' AND kind = 'InsertValues'")
    assert leader.code() == "QUERY_WAS_CANCELLED"
    assert listed(node, "InsertValues") == 1
    with httpx.Client(trust_env=False, timeout=httpx.Timeout(2.0)) as client, pytest.raises(httpx.ReadTimeout):
        client.post(f"{node.url}/v1/sql", content=f"INSERT INTO g {slow} VALUES (3)")
    wait_until(lambda: listed(node, "InsertValues") == 1)
    # An INSERT that does not wait ends the wait of its batch: the shortest wait of a batch counts.
    node.connection.sql("INSERT INTO g SETTINGS async_insert_busy_timeout_ms = 0 VALUES (4)")
    assert other.code() == ""
    assert sorted(node.connection.sql("SELECT k FROM g").rows) == [(2,), (4,)]


def not_read_to_its_end(node: NodeProcess) -> ServerError:
    """Return the error of a client that reads the first rows of a large result, and goes on when the node has given it
    up and left nothing of it.
    """
    node.connection.sql("CREATE TABLE IF NOT EXISTS slow (id BIGINT) ENGINE = MergeTree ORDER BY id")
    node.connection.sql("INSERT INTO slow SELECT id FROM range(1000000)")

    def is_clean() -> bool:
        is_over = node.value("SELECT count(*) FROM system.processes") == 1
        leases = node.value("SELECT count(*) FROM system.readers")
        return is_over and not leases and not list((node.data / "spark").glob("result-*"))

    with tilth.connect(node.url) as connection, connection.stream(LARGE) as rows:
        batches = iter(rows)
        next(batches)
        wait_until(is_clean)
        with pytest.raises(ServerError) as refused:
            list(batches)
    assert refused.value.code == "RESULT_NOT_READ"
    return refused.value


def test_a_client_that_stops_reading_holds_its_result_for_a_while_only(node: NodeProcess) -> None:
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(not_read_to_its_end, node)
        states = "SELECT state FROM system.processes WHERE state LIKE 'its client has not read for %on disk'"
        wait_until(lambda: refused.done() or node.connection.sql(states).rows)
        assert node.value("SELECT count(*) FROM system.readers") == 1
        assert not refused.done()
        assert "has not read for" in refused.result().message


@pytest.mark.long
def test_results_on_the_disk_have_a_bound(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, settings={"server.results-disk-max": "40 MiB"}).serving() as node:
        assert "40.0 MiB are allowed" in not_read_to_its_end(node).message
        logged = node.connection.sql("SELECT error FROM system.query_log WHERE error_code = 'RESULT_NOT_READ'").rows
    assert ["server.results-disk-max" in error for (error,) in logged] == [True]


def test_a_node_that_stops_ends_all_of_them(node: NodeProcess) -> None:
    """The last test, for it ends the node: queries run, others wait, and a Java answers nothing any more."""
    filled(node, "s")
    node.connection.sql("CREATE TABLE h (k BIGINT) ENGINE = MergeTree ORDER BY k SETTINGS memory_buffer = 1")
    running = [Background(node, PAIRS) for _ in range(3)]
    wait_until(lambda: in_spark(node) == len(running))
    java = java_of(node)
    java.suspend()
    running += [
        Background(node, "OPTIMIZE TABLE s FINAL"),
        Background(node, "INSERT INTO h SETTINGS async_insert_busy_timeout_ms = 60000 VALUES (1)"),
        Background(node, ENDLESS),
    ]
    wait_until(lambda: node.value("SELECT count(*) FROM system.processes") == len(running) + 1)
    children = psutil.Process(node.pid).children(recursive=True)
    started = time.monotonic()
    psutil.Process(node.pid).terminate()
    assert [each.code(30.0) for each in running] == ["NODE_STOPPING"] * len(running)
    assert node.wait_end(30.0 - (time.monotonic() - started))
    assert not java.is_running()
    wait_until(lambda: not any(child.is_running() for child in children))
