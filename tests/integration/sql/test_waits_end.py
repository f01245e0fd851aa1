"""Statements that wait for something else than a query of Spark, on a real node: killed, timed out, left alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import psutil
import pytest

import tilth
from tests.long import cases
from tilth.client import ServerError
from tools.node_process import NodeProcess

pytestmark = pytest.mark.integration

SECONDS_MAX = 180.0
#: A cancelled statement is answered within the grace time of two seconds; the rest is for a busy machine.
ANSWER_SECONDS_MAX = 12.0
#: About 10^10 rows of settings.
ENDLESS = (
    "SELECT count(*) FROM system.settings a, system.settings b, system.settings c, system.settings d "
    "WHERE a.name < d.value"
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    # A JVM that a test stops for a while is not to be killed.
    node = NodeProcess(tmp_path_factory.mktemp("node"), settings={"warehouse.hang-bound": "300 s"})
    node.start()
    try:
        node.wait_ready()
        yield node
    finally:
        node.stop()


class Background:
    """A statement on a thread and a connection of its own."""

    def __init__(self, node: NodeProcess, text: str) -> None:
        self.error: ServerError | None = None
        self._connection = tilth.connect(node.url, timeout_seconds=180)
        self._thread = threading.Thread(target=self._run, args=(text,))
        self._thread.start()

    def _run(self, text: str) -> None:
        try:
            with self._connection as connection:
                connection.sql(text)
        except ServerError as error:
            self.error = error

    def code(self) -> str:
        """Of its error, which comes soon."""
        self._thread.join(ANSWER_SECONDS_MAX)
        assert not self._thread.is_alive()
        return self.error.code if self.error is not None else ""


def eventually(look: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def listed(node: NodeProcess, kind: str) -> int:
    return node.value(f"SELECT count(*) FROM system.processes WHERE kind = '{kind}'")


def kill(node: NodeProcess, kind: str) -> None:
    node.connection.sql(f"KILL QUERY WHERE kind = '{kind}'")


@contextmanager
def stopped_java(node: NodeProcess) -> Iterator[None]:
    """Inside, what has begun in Spark does not end."""
    (java,) = (each for each in psutil.Process(node.pid).children() if each.name() == "java")
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
            eventually(lambda: len(psutil.Process(node.pid).children()) > processes)
            node.connection.sql("KILL QUERY WHERE query LIKE '%settings d%' AND kind = 'Query'")
        assert endless.code() == ("QUERY_WAS_CANCELLED" if by == "KILL QUERY" else "TIMEOUT_EXCEEDED")
    eventually(lambda: listed(node, "Query") == 1)
    eventually(lambda: len(psutil.Process(node.pid).children()) == processes)


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
        eventually(lambda: node.value("SELECT count(*) FROM system.tasks WHERE state = 'running' AND kind = 'merge'"))
        shown = node.connection.sql("SELECT state, task_id IS NULL FROM system.processes WHERE kind = 'OptimizeTable'")
        assert shown.rows == [("running in Spark", False)]
        kill(node, "OptimizeTable")
        assert optimize.code() == "QUERY_WAS_CANCELLED"
        assert listed(node, "OptimizeTable") == 0
    assert optimize.error is not None
    assert "finished merges stay" in optimize.error.hint
    eventually(lambda: not node.value("SELECT count(*) FROM system.tasks WHERE state = 'running' AND kind = 'merge'"))
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
    eventually(lambda: node.value("SELECT count(*) FROM system.mutations WHERE table = 'm'"))
    assert listed(node, "AlterTable") == 1
    kill(node, "AlterTable")
    assert waiting.code() == "MUTATION_NOT_DONE"
    assert listed(node, "AlterTable") == 0
    node.connection.sql("SYSTEM START MUTATIONS m")
    assert waiting.error is not None
    assert "QUERY_WAS_CANCELLED" in waiting.error.message
    assert "do not send the statement again" in waiting.error.hint
    eventually(lambda: node.value("SELECT count(*) FROM m") == 2)


def test_an_update_that_waits_for_an_alter_changes_nothing(node: NodeProcess) -> None:
    filled(node, "u")
    node.connection.sql("SYSTEM STOP MUTATIONS u")
    node.connection.sql("ALTER TABLE u DELETE WHERE k = 0 SETTINGS mutations_sync = 0")
    late = Background(node, "UPDATE u SET v = 7 WHERE k = 1 SETTINGS max_execution_time = 2")
    assert late.code() == "TIMEOUT_EXCEEDED"
    node.connection.sql("SYSTEM START MUTATIONS u")
    assert node.value("SELECT count(*) FROM u WHERE v = 7") == 0


def test_an_insert_that_waits_for_its_group_is_not_stored(node: NodeProcess) -> None:
    node.connection.sql("CREATE TABLE g (k BIGINT) ENGINE = MergeTree ORDER BY k SETTINGS memory_buffer = 1")
    slow = "SETTINGS async_insert_busy_timeout_ms = 60000"
    leader = Background(node, f"INSERT INTO g {slow} VALUES (1)")
    eventually(lambda: listed(node, "InsertValues") == 1)
    other = Background(node, f"INSERT INTO g {slow} VALUES (2)")
    eventually(lambda: listed(node, "InsertValues") == 2)
    node.connection.sql("KILL QUERY WHERE query LIKE '%(1)%' AND kind = 'InsertValues'")
    assert leader.code() == "QUERY_WAS_CANCELLED"
    assert listed(node, "InsertValues") == 1
    with httpx.Client(trust_env=False, timeout=httpx.Timeout(2.0)) as client, pytest.raises(httpx.ReadTimeout):
        client.post(f"{node.url}/v1/sql", content=f"INSERT INTO g {slow} VALUES (3)")
    eventually(lambda: listed(node, "InsertValues") == 1)
    # One that does not wait ends the wait of the group, for the strictest of its inserts counts.
    node.connection.sql("INSERT INTO g SETTINGS async_insert_busy_timeout_ms = 0 VALUES (4)")
    assert other.code() == ""
    assert sorted(node.connection.sql("SELECT k FROM g").rows) == [(2,), (4,)]


def test_a_node_that_stops_ends_all_of_them(node: NodeProcess) -> None:
    """The last test, for it ends the node."""
    filled(node, "s")
    node.connection.sql("CREATE TABLE h (k BIGINT) ENGINE = MergeTree ORDER BY k SETTINGS memory_buffer = 1")
    with stopped_java(node):
        waiting = [
            Background(node, "OPTIMIZE TABLE s FINAL"),
            Background(node, "INSERT INTO h SETTINGS async_insert_busy_timeout_ms = 60000 VALUES (1)"),
            Background(node, ENDLESS),
        ]
        eventually(lambda: node.value("SELECT count(*) FROM system.processes") == len(waiting) + 1)
        children = psutil.Process(node.pid).children(recursive=True)
        started = time.monotonic()
        psutil.Process(node.pid).terminate()
        assert [each.code() for each in waiting] == ["NODE_STOPPING"] * len(waiting)
    assert node.wait_end(30.0 - (time.monotonic() - started))
    eventually(lambda: not any(child.is_running() for child in children))
