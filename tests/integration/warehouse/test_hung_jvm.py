"""A served node whose JVM is stopped (SIGSTOP) or killed (SIGKILL) while statements and services use it.

Every process is found as a child of the node's and ended by its id.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import psutil
import pytest

from tests.long import cases
from tests.waiting import wait_until
from tools.node_process import NodeProcess

pytestmark = pytest.mark.integration
#: Statements that need Spark, and last long enough to be hit.
SLOW = "SELECT sum(a.id * b.id) FROM range(1000000) a CROSS JOIN range(1000000) b"
#: Statements that end, with their rows. The first is collected; Spark considers the second large, so it is streamed,
#: and its columns are sent before its first row is there.
COUNTED = ("SELECT count(*) FROM range(400000000) WHERE id % 4 = 1", [[100_000_000]])
GROUPED = (
    "SELECT k, count(*) FROM (SELECT id % 1000 AS k FROM range(80000000)) GROUP BY k ORDER BY k",
    [[key, 80_000] for key in range(1000)],
)
HANG_SECONDS = 8.0
#: Time limit of a restart of Spark on a busy machine.
SECONDS_MAX = 180.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {
        "warehouse.heartbeat-interval": "1 s",
        "warehouse.hang-bound": f"{HANG_SECONDS} s",
        "warehouse.stall-bound": "15 s",
        # A start of Spark on a busy machine.
        "warehouse.wait-for-worker": f"{SECONDS_MAX} s",
    }
    with NodeProcess(tmp_path_factory.mktemp("hung"), settings=settings).serving() as node:
        node.connection.sql("CREATE TABLE t (id BIGINT) ENGINE = MergeTree ORDER BY id")
        node.connection.sql("INSERT INTO t VALUES (1), (2)")
        yield node


def jvm_of(node: NodeProcess) -> psutil.Process:
    [jvm] = [child for child in psutil.Process(node.pid).children() if "java" in child.name()]
    return jvm


def post(node: NodeProcess, text: str) -> httpx.Response:
    return httpx.post(f"{node.url}/v1/sql", content=text, headers={"Accept": "application/json"}, timeout=SECONDS_MAX)


class InFlight:
    """A statement that runs in another thread."""

    def __init__(self, node: NodeProcess, text: str) -> None:
        self.response: httpx.Response | None = None
        self._thread = threading.Thread(target=self._run, args=(node, text), daemon=True)
        self._thread.start()

    def _run(self, node: NodeProcess, text: str) -> None:
        with suppress(httpx.HTTPError):
            self.response = post(node, text)

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait_over(self) -> None:
        """It was answered, or its connection was closed."""
        self._thread.join(SECONDS_MAX)
        assert self.is_over, "the statement hangs"

    def answer(self) -> httpx.Response:
        self.wait_over()
        assert self.response is not None
        return self.response


def test_ready_is_a_door_of_its_own(node: NodeProcess) -> None:
    ready = httpx.get(f"{node.url}/v1/ready").json()
    assert ready["components"]["statements"] == "ok"
    assert httpx.get(f"{node.url}/v1/health").status_code == 200


@pytest.mark.parametrize("how", cases([signal.SIGSTOP, signal.SIGKILL]))
def test_a_jvm_that_hangs_or_dies_is_replaced_and_queries_are_sent_again(
    node: NodeProcess, how: signal.Signals
) -> None:
    jvm, before = jvm_of(node), sent_again(node)
    node.connection.sql(f"CREATE TABLE taken_{how.name} (id BIGINT) ENGINE = MergeTree ORDER BY id")
    writing = InFlight(node, f"INSERT INTO taken_{how.name} {SLOW}")
    running = {rows: InFlight(node, text) for text, rows in ((COUNTED[0], "counted"), (GROUPED[0], "grouped"))}
    wait_until(lambda: node.value("SELECT count(*) FROM system.processes WHERE tasks_total > 0") == 3)
    os.kill(jvm.pid, how)
    meanwhile = [InFlight(node, "SELECT count(*) FROM t") for _ in range(3)]
    seen = watch_until_back(node, jvm.pid)

    # A statement that writes is not sent again; its client gets the error.
    check_restarting(writing.answer())
    assert rows_of(running["counted"].answer()) == COUNTED[1]
    assert rows_of(running["grouped"].answer()) == GROUPED[1]
    assert [rows_of(one.answer()) for one in meanwhile] == [[[2]]] * 3
    logged = node.connection.sql("SELECT text, sent_again FROM system.query_log WHERE sent_again IS NOT NULL").rows
    assert {COUNTED[0], GROUPED[0]} <= {text for text, _ in logged}
    assert all("SPARK_RESTARTING: Spark ended while the task ran" in why for _, why in logged)
    assert sent_again(node) >= before + 2
    assert "action=statement_sent_again" in (node.data.parent / "node.log").read_text(errors="replace")
    assert node.value(f"SELECT count(*) FROM taken_{how.name}") == 0
    # Answers that people and programs got while Spark was away.
    assert seen.statuses == {503}
    assert any("since 20" in text for text in seen.health), seen.health
    assert any("since 20" in text and state == "waiting" for state, text in seen.services), seen.services
    why = "does not go on|hung" if how is signal.SIGSTOP else "SIGKILL"
    assert any(word in text for word in why.split("|") for text in seen.health), seen.health
    wait_until(lambda: post(node, "SELECT count(*) FROM t").status_code == 200)
    [[state]] = node.connection.sql(
        "SELECT state FROM system.tasks WHERE kind = 'query' AND reason LIKE '%Spark%' ORDER BY created DESC LIMIT 1"
    ).rows
    assert state == "lost"
    wait_until(lambda: httpx.get(f"{node.url}/v1/ready").status_code == 200)


#: Queries with loops that check for no interrupt: in a leaf of the plan, a regular expression (for centuries),
#: functions of texts and arrays, an explode, and, on the driver, in the optimizer.
ENDLESS = {
    "top": "SELECT * FROM range(100000000000) ORDER BY id DESC LIMIT 1",
    "rlike": f"SELECT count(*) FROM range(0, 64, 1, 64) WHERE concat(repeat('a', 60), id) RLIKE '{'a*' * 12}b'",
    "try": "SELECT max(try_divide(levenshtein(repeat('a', 900000 + id), repeat('b', 900000)), 1)) FROM range(4)",
    "lambda": "SELECT aggregate(sequence(1, 90000), id, (a, x) -> a + size(filter(sequence(1, 90000), y -> y < x))) "
    "FROM range(4)",
    "explode": "SELECT count(*) FROM (SELECT explode(sequence(1, 300000)) x FROM (SELECT explode(sequence(1, 1000000))"
    " FROM range(2))) WHERE x % 7 = -5",
    "constant": "SELECT levenshtein(repeat('a', 900000), repeat('b', 900000))",
}


@pytest.mark.parametrize("kind", cases(ENDLESS, and_also=("constant",)))
def test_cancelled_queries_that_nothing_interrupts_end_and_others_go_on(node: NodeProcess, kind: str) -> None:
    jvm = jvm_of(node)
    running = InFlight(node, ENDLESS[kind])
    wait_until(lambda: bool(node.value("SELECT count(*) FROM system.tasks WHERE state = 'running' AND kind = 'query'")))
    if kind != "constant":
        wait_until(lambda: bool(node.value("SELECT max(coalesce(stages_total, 0)) FROM system.processes")))
    time.sleep(1)
    assert not running.is_over
    node.connection.sql("KILL QUERY WHERE query LIKE '%SELECT%' AND query NOT LIKE '%KILL%'")
    running.wait_over()
    # A streamed answer has begun, and breaks off.
    assert running.response is None or running.answer().json()["error"]["code"] == "QUERY_WAS_CANCELLED"
    meanwhile = [InFlight(node, "SELECT count(*) FROM t") for _ in range(4)]
    assert [each.answer().status_code for each in meanwhile] == [200] * 4
    # It uses the processor no longer, and its JVM is still the same.
    wait_until(lambda: jvm.cpu_percent(0.5) < 50)
    assert jvm_of(node).pid == jvm.pid


@pytest.mark.long
def test_a_task_whose_python_workers_hang_is_cancelled_and_the_next_one_runs(node: NodeProcess) -> None:
    node.connection.sql("CREATE TABLE big (id BIGINT) ENGINE = MergeTree ORDER BY id")
    running = InFlight(node, "INSERT INTO big SELECT id FROM range(40000000)")
    jvm = jvm_of(node)
    wait_until(lambda: any(worker.cpu_percent(0.1) > 20 for worker in python_workers(jvm)))
    stopped: set[psutil.Process] = set()

    def stop_workers() -> bool:
        """Those that are started meanwhile, too: after a restart Spark starts some that only warm up."""
        for worker in python_workers(jvm):
            with suppress(psutil.NoSuchProcess):
                worker.suspend()
                stopped.add(worker)
        return running.is_over

    try:
        wait_until(stop_workers)
    finally:
        for worker in stopped:
            with suppress(psutil.NoSuchProcess):
                worker.kill()
    response = running.answer()
    body = response.json()["error"]
    assert (response.status_code, body["code"]) == (503, "TASK_STALLED"), body
    assert "no progress for" in body["message"]
    assert jvm.is_running()
    assert post(node, "INSERT INTO big SELECT id FROM range(1000)").status_code == 200
    assert node.value("SELECT count(*) FROM big") == 1000


def python_workers(jvm: psutil.Process) -> list[psutil.Process]:
    """The processes that compute, without the one that they are forked from."""
    daemons = [child for child in jvm.children() if "python" in child.name()]
    return [worker for daemon in daemons for worker in daemon.children()]


def test_a_node_whose_jvm_hangs_ends_within_half_a_minute(node: NodeProcess) -> None:
    """The last test of this file: it ends the node."""
    running = InFlight(node, SLOW)
    wait_until(lambda: bool(node.value("SELECT count(*) FROM system.tasks WHERE state = 'running' AND kind = 'query'")))
    jvm = jvm_of(node)
    jvm.suspend()
    os.kill(node.pid, signal.SIGTERM)
    assert node.wait_end(30.0)
    assert node.exit_code == 0
    assert not jvm.is_running()
    running.wait_over()


class Seen:
    def __init__(self) -> None:
        self.statuses: set[int] = set()
        self.health: set[str] = set()
        self.services: set[tuple[str, str]] = set()


def watch_until_back(node: NodeProcess, pid: int) -> Seen:
    """What health and system tables say until another JVM answers; they themselves always answer at once."""
    seen = Seen()
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        started = time.monotonic()
        health = httpx.get(f"{node.url}/v1/health", timeout=5)
        spark = health.json()["components"]["spark"]
        if spark != "ok":
            ready = httpx.get(f"{node.url}/v1/ready", timeout=5)
            seen.statuses |= {
                each.status_code for each in (health, ready) if each.json()["components"]["spark"] != "ok"
            }
            seen.health.add(spark)
            rows = node.connection.sql("SELECT state, reason FROM system.bg_threads WHERE service = 'merge'").rows
            seen.services |= {(row[0], row[1]) for row in rows}
        elif seen.health:
            with suppress(ValueError):
                if jvm_of(node).pid != pid:
                    return seen
        assert time.monotonic() - started < 5, "system tables and health wait for Spark"
        time.sleep(0.2)
    raise AssertionError(f"Spark does not come back: {seen.health} {node.log_tail()}")


def sent_again(node: NodeProcess) -> float:
    """The metric."""
    for line in httpx.get(f"{node.url}/metrics").text.splitlines():
        if line.startswith("tilth_statements_sent_again_total "):
            return float(line.split()[1])
    raise AssertionError("the metric is not there")


def rows_of(response: httpx.Response) -> object:
    assert response.status_code == 200, response.text
    return response.json()["rows"]


def check_restarting(response: httpx.Response) -> None:
    body = response.json()["error"]
    assert (response.status_code, body["code"], body["kind"]) == (503, "SPARK_RESTARTING", "unavailable"), body
    assert int(response.headers["Retry-After"]) >= 1
    assert "retry the statement" in body["hint"]
