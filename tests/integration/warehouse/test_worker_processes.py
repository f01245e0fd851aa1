"""Workers in processes of their own: a real server, real `tilth worker` processes, a real broker; calls that are lost,
workers that are killed, stopped, or not welcome.

One server serves all tests of this file, with one worker for imports behind a proxy and one for queries. Their names
sort before `embedded`, so that they get the tasks; the embedded worker takes over when they are gone.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest
from confluent_kafka import Producer

from tests.long import cases
from tests.waiting import wait_until
from tilth.client import ServerError
from tilth.model.failure import CallFailure
from tilth.warehouse.remote.wire import MEDIA_TYPE, Registration
from tools.broker import Broker
from tools.http_proxy import Fate, HttpProxy
from tools.node_process import NodeProcess, free_port
from tools.worker_process import WorkerRun

pytestmark = pytest.mark.integration

TOKEN = "a-token-of-this-test-0123456789"
SECONDS_MAX = 180.0
#: A JVM that hangs is found in half a minute; one that is slow on a crowded machine is not taken for one.
QUICK = {"warehouse.heartbeat-interval": "1 s", "warehouse.hang-bound": "25 s"}
_names = itertools.count()


class World:
    """A server, its workers, and what tests say again and again."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.broker = folder, broker
        token_file = folder / "token"
        token_file.write_text(f"{TOKEN}\n")
        settings = {"server.token-file": str(token_file), "warehouse.driver-memory": "1g"}
        # Crowded machines are slow: what is silent for two seconds there may be well.
        settings |= {"warehouse.master": "local[2]", "server.worker-gone-bound": "4 s"}
        settings["warehouse.wait-for-worker"] = "90 s"
        self.node = NodeProcess(folder, settings=settings)
        self.node.start()
        self.node.wait_ready()
        self.proxy = HttpProxy(self.node.url)
        self.write = self.worker("a-write", server=self.proxy.url)
        self.query = self.worker("a-query", warehouse="default")
        for worker in (self.write, self.query):
            worker.start()
        for worker in (self.write, self.query):
            self.wait_alive(worker.name)

    def worker(self, name: str, *, server: str = "", warehouse: str = "write", token: str = TOKEN) -> WorkerRun:
        return WorkerRun(
            self.folder / f"{name}-{next(_names)}",
            server=server or self.node.url,
            warehouse=warehouse,
            name=name,
            token=token,
            settings={"warehouse.master": "local[2]", "warehouse.driver-memory": "1g"} | QUICK,
        )

    def close(self) -> None:
        for worker in (self.write, self.query):
            worker.stop()
        self.proxy.close()
        self.node.stop()

    def workers(self) -> dict[str, str]:
        return dict(self.node.connection.sql("SELECT name, state FROM system.workers").rows)

    def wait_alive(self, name: str) -> None:
        self.wait(lambda: self.workers().get(name) == "alive", f"{name} is not alive")

    def wait(self, is_so: Callable[[], bool], otherwise: str) -> float:
        """Return how long it took."""
        return wait_until(is_so, lambda: f"{otherwise}: {self.workers()}\n{self._logs()}")

    def _logs(self) -> str:
        logs = [self.folder / "node.log", *self.folder.glob("*/worker.log")]
        return "\n".join(each.read_text(errors="replace")[-3000:] for each in logs)

    def jvm_of_write(self) -> psutil.Process:
        """Return the JVM of the worker of the write warehouse."""
        (jvm,) = [each for each in psutil.Process(self.write.pid).children() if each.name() == "java"]
        return jvm

    def flow(self) -> Flow:
        return Flow(self, f"w{next(_names)}")


class Flow:
    """A topic, a Kafka table that reads it, a table of rows behind it."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self.name = world, name
        self._sent = 0
        self._producer = Producer({"bootstrap.servers": world.broker.bootstrap})
        world.broker.create_topic(name, 2)
        sql = world.node.connection.sql
        sql(f"CREATE TABLE {name}_t (k BIGINT, s STRING) ENGINE = MergeTree ORDER BY k")
        sql(
            f"CREATE TABLE {name}_k (k BIGINT, s STRING) ENGINE = Kafka SETTINGS "
            f"kafka_broker_list = '{world.broker.bootstrap}', kafka_topic_list = '{name}', "
            f"kafka_group_name = '{name}', kafka_format = 'JSONEachRow', kafka_flush_interval_ms = 200"
        )
        sql(f"CREATE MATERIALIZED VIEW {name}_v TO {name}_t AS SELECT k, s FROM {name}_k")

    def send(self, count: int) -> None:
        for number in range(self._sent, self._sent + count):
            self._producer.produce(self.name, msgspec.json.encode({"k": number, "s": "é\u0000'\\"}))
        assert self._producer.flush(30) == 0
        self._sent += count

    def wait_all(self) -> float:
        """Until every message is a row; return how long that took."""
        return self._world.wait(lambda: self.rows() >= self._sent, f"{self.name}: not all of {self._sent} rows")

    def rows(self) -> int:
        return self._world.node.value(f"SELECT sum(rows) FROM system.parts WHERE active AND table = '{self.name}_t'")

    def go_to(self, worker: str) -> None:
        """Let the consumer run on this worker: the server's own would take it, too."""
        sql = self._world.node.connection.sql
        if self.worker() != worker:
            sql("ALTER WORKER embedded DRAIN")
            self._world.wait(lambda: self.worker() == worker, f"the consumer did not move to {worker}")
            sql("ALTER WORKER embedded RESUME")

    def worker(self) -> str:
        """Return the worker of the consumer that runs."""
        query = (
            "SELECT worker FROM system.tasks WHERE kind = 'consume' AND state = 'running' "
            f"AND table LIKE '%{self.name}_k'"
        )
        rows = self._world.node.connection.sql(query).rows
        return str(rows[0][0]) if rows else ""

    def check(self) -> None:
        """Each message is there, once."""
        node = self._world.node
        found = node.connection.sql(f"SELECT count(*), count(DISTINCT k), min(k), max(k) FROM {self.name}_t").rows
        assert found == [(self._sent, self._sent, 0, self._sent - 1)]
        verified = node.connection.sql(f"SYSTEM VERIFY {self.name}_t").rows
        assert verified
        assert not [row for row in verified if "error" in str(row).lower()]

    def drop(self) -> None:
        for kind, suffix in (("VIEW", "v"), ("TABLE", "k"), ("TABLE", "t")):
            self._world.node.connection.sql(f"DROP {kind} {self.name}_{suffix}")


@pytest.fixture(scope="module")
def world(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("workers"), broker)
    try:
        yield world
    finally:
        world.close()


@pytest.fixture
def flow(world: World) -> Iterator[Flow]:
    flow = world.flow()
    try:
        yield flow
    finally:
        flow.drop()


def test_queries_and_inserts_run_on_the_worker_of_their_warehouse(world: World) -> None:
    sql = world.node.connection.sql
    # The server's own Spark would take some, too.
    sql("ALTER WORKER embedded DRAIN")
    sql("CREATE TABLE far (k BIGINT, s STRING) ENGINE = MergeTree ORDER BY k")
    sql("INSERT INTO far VALUES (1, 'one'), (2, NULL)")
    sql("INSERT INTO far SELECT k + 10, s FROM far")
    assert sql("SELECT k, s FROM far ORDER BY k").rows == [(1, "one"), (2, None), (11, "one"), (12, None)]
    # Large: it comes as files.
    assert len(sql("SELECT id, repeat('x', 1000) FROM range(30000)").rows) == 30000
    with pytest.raises(ServerError, match="colour") as raised:
        sql("SELECT colour FROM far")
    assert raised.value.code == "UNKNOWN_COLUMN"
    with pytest.raises(ServerError) as raised:
        sql("SELECT sum(hash(id) % 7) FROM range(1000000000000) SETTINGS max_execution_time = 2")
    assert raised.value.code == "TIMEOUT_EXCEEDED"
    cancelled = "SELECT worker FROM system.tasks WHERE state = 'cancelled'"
    world.wait(lambda: sql(cancelled).rows == [("a-query",)], "the query was not cancelled")
    placed = sql("SELECT DISTINCT worker FROM system.tasks WHERE kind IN ('query', 'insert') AND state = 'done'").rows
    assert {("a-query",)} <= set(placed) <= {("a-query",), ("a-write",)}
    sql("DROP TABLE far")
    sql("ALTER WORKER embedded RESUME")


def test_workers_are_shown_with_their_process_and_what_is_free(world: World) -> None:
    columns = "name, warehouses, state, pid, version, cores, free_disk_bytes > 0, last_report IS NOT NULL"
    rows = world.node.connection.sql(f"SELECT {columns} FROM system.workers ORDER BY name").rows
    assert [(row[0], list(row[1]), *row[2:]) for row in rows] == [
        ("a-query", ["default"], "alive", world.query.pid, version("tilth"), 2, True, True),
        ("a-write", ["write"], "alive", world.write.pid, version("tilth"), 2, True, True),
        ("embedded", ["default", "write"], "alive", None, None, None, True, False),
    ]


def test_calls_that_are_lost_delayed_or_repeated_change_nothing(world: World, flow: Flow) -> None:
    flow.send(100)
    flow.wait_all()
    flow.go_to("a-write")
    rules = [
        world.proxy.add(fate, call, times=2)
        for call in ("consumer/begin", "consumer/commit", "consumer/ends", "ended")
        for fate in Fate
    ]
    while any(rule.left for rule in rules if rule.call != "ended"):
        flow.send(50)
        flow.wait_all()
    flow.check()
    consumer = world.node.connection.sql(
        f"SELECT rounds, messages FROM system.kafka_tables WHERE table = '{flow.name}_k'"
    ).rows
    # A commit that was sent twice is counted once.
    assert consumer[0][1] == flow.rows()
    assert [rule for rule in rules if rule.call != "ended" and rule.met != 2] == []


def test_a_worker_that_is_killed_is_replaced(world: World, flow: Flow) -> None:
    flow.send(100)
    flow.wait_all()
    flow.go_to("a-write")
    world.write.kill()
    flow.send(100)
    seconds = flow.wait_all()
    print(f"first commit {seconds:.1f} s after the kill")
    assert flow.worker() == "embedded"
    lost = world.node.connection.sql(
        "SELECT reason FROM system.tasks WHERE kind = 'consume' AND state = 'lost' AND worker = 'a-write'"
    ).rows
    assert "its process has ended" in str(lost)
    flow.check()
    # The tests behind this one wait for it where they need it.
    world.write.start()


def test_a_query_whose_worker_is_killed_runs_on_another_one(world: World) -> None:
    node, text = world.node, "SELECT count(*) FROM range(600000000) WHERE id % 4 = 1"
    node.connection.sql("ALTER WORKER embedded DRAIN")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(node.connection.sql, text)
        busy = "SELECT count(*) FROM system.tasks WHERE state = 'running' AND kind = 'query' AND worker = 'a-query'"
        world.wait(lambda: node.value(busy) > 0, "the query does not run")
        node.connection.sql("ALTER WORKER embedded RESUME")
        world.query.kill()
        assert answer.result(SECONDS_MAX).rows == [(150_000_000,)]
    [[why]] = node.connection.sql(f"SELECT sent_again FROM system.query_log WHERE text = '{text}'").rows
    assert why.startswith("TASK_LOST: the worker is gone")
    world.query.start()


@pytest.mark.long
def test_a_worker_that_is_stopped_is_replaced_and_comes_back(world: World, flow: Flow) -> None:
    flow.send(100)
    flow.wait_all()
    flow.go_to("a-write")
    world.write.signal(signal.SIGSTOP)
    try:
        flow.send(100)
        flow.wait_all()
        assert flow.worker() == "embedded"
    finally:
        world.write.signal(signal.SIGCONT)
    world.wait_alive("a-write")
    flow.send(100)
    flow.wait_all()
    flow.check()
    assert "registering_again" in world.write.log()


@pytest.mark.long
def test_a_worker_whose_jvm_hangs_is_replaced_with_its_reason(world: World, flow: Flow) -> None:
    sql = world.node.connection.sql
    sql(f"DROP VIEW {flow.name}_v")
    # Small rounds need Spark only for what it computes.
    sql(f"CREATE MATERIALIZED VIEW {flow.name}_v TO {flow.name}_t AS SELECT k, reverse(s) AS s FROM {flow.name}_k")
    flow.send(100)
    flow.wait_all()
    flow.go_to("a-write")
    world.jvm_of_write().suspend()
    flow.send(100)
    seconds = flow.wait_all()
    print(f"first commit {seconds:.1f} s after the JVM was stopped")
    flow.check()
    lost = world.node.connection.sql(
        "SELECT reason FROM system.tasks WHERE kind = 'consume' AND state = 'lost' AND worker = 'a-write'"
    ).rows
    assert "stopped" in str(lost)
    # Its Spark is started again.
    world.wait_alive("a-write")


@pytest.mark.long
def test_small_rounds_go_on_while_the_jvm_hangs_and_after_it_was_replaced(world: World, flow: Flow) -> None:
    flow.send(100)
    flow.wait_all()
    flow.go_to("a-write")
    jvm = world.jvm_of_write()
    jvm.suspend()
    flow.send(100)
    flow.wait_all()
    assert flow.worker() == "a-write"
    world.wait(lambda: not jvm.is_running(), "the JVM is not ended")
    world.wait_alive("a-write")
    # A round that needs Spark finds the new one.
    flow.send(20_000)
    flow.wait_all()
    flow.check()


def test_workers_come_back_to_a_server_that_was_killed(world: World, flow: Flow) -> None:
    flow.send(100)
    flow.wait_all()
    world.node.kill()
    flow.send(100)
    world.node.start()
    world.node.wait_ready()
    for worker in (world.write, world.query):
        world.wait_alive(worker.name)
    flow.wait_all()
    flow.send(100)
    flow.wait_all()
    flow.check()


@pytest.mark.long
def test_a_worker_that_is_asked_to_stop_says_farewell(world: World, flow: Flow) -> None:
    flow.send(100)
    flow.wait_all()
    world.write.stop()
    assert world.write.wait_end(0) == 0
    assert "a-write" not in world.workers()
    flow.send(100)
    flow.wait_all()
    flow.check()
    world.write.start()
    world.wait_alive("a-write")


@pytest.mark.long
def test_a_drained_worker_gives_its_consumers_away_without_losing_a_round(world: World, flow: Flow) -> None:
    sql = world.node.connection.sql
    flow.send(100)
    flow.wait_all()
    drained = flow.worker()
    other = "embedded" if drained == "a-write" else "a-write"
    sql(f"ALTER WORKER '{drained}' DRAIN BECAUSE 'a test'")
    try:
        flow.send(400)
        flow.wait_all()
        world.wait(lambda: flow.worker() == other, "the consumer has not moved")
        world.wait(lambda: world.workers()[drained] == "drained", f"{drained} is not drained")
        flow.send(100)
        flow.wait_all()
        flow.check()
    finally:
        sql(f"ALTER WORKER '{drained}' RESUME")
    world.wait_alive(drained)


@pytest.mark.long
def test_a_warehouse_of_a_user_waits_for_its_worker_and_has_one(world: World) -> None:
    sql = world.node.connection.sql
    sql("CREATE WAREHOUSE reports SETTINGS num_workers = 1, work = 'queries', cores = 2")
    assert sql("SELECT reason FROM system.warehouses WHERE name = 'reports'").rows[0][0].startswith("no workers")
    worker = world.worker("b-reports", warehouse="reports")
    worker.start()
    try:
        # It waits until the worker is there.
        assert sql("SELECT sum(id) FROM range(10) SETTINGS warehouse = 'reports'").rows == [(45,)]
        [(name,)] = sql("SELECT DISTINCT worker FROM system.tasks WHERE warehouse = 'reports' AND state = 'done'").rows
        assert name == "b-reports"
        with pytest.raises(ServerError, match="b-reports"):
            sql("DROP WAREHOUSE reports")
    finally:
        worker.stop()
    sql("DROP WAREHOUSE reports")


@pytest.mark.long
def test_a_worker_serves_two_servers_at_once(world: World, tmp_path: Path) -> None:
    """The servers have a catalog each: what a worker does for them is the same. Half a minute, for another server."""
    settings = {"server.token-file": str(world.folder / "token"), "warehouse.driver-memory": "1g"}
    settings |= {"warehouse.master": "local[2]", "warehouse.embedded": "write"}
    other = NodeProcess(tmp_path / "other", settings=settings)
    other.start()
    worker = WorkerRun(
        tmp_path / "shared",
        server=f"{world.node.url},{other.url}",
        warehouse="default",
        name="0-shared",
        token=TOKEN,
        settings={"warehouse.master": "local[2]", "warehouse.driver-memory": "1g"},
    )
    worker.add_options("--all-servers")
    nodes = (world.node, other)
    elsewhere = "SELECT elsewhere FROM system.workers WHERE name = '0-shared'"
    try:
        other.wait_ready()
        worker.start()
        for node in nodes:
            alive = "SELECT count(*) FROM system.workers WHERE name = '0-shared' AND state = 'alive'"
            world.wait(lambda node=node, alive=alive: node.value(alive) == 1, "it is not at both")  # type: ignore[misc]
        long = "SELECT count(*) FROM range(10000000000) WHERE id % 7 = sqrt(id)"
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(other.connection.sql, long)
            world.wait(lambda: world.node.value(elsewhere) == 1, "the first server does not see the other's task")
            assert other.value(elsewhere) == 0
            assert world.node.value("SELECT count(*) FROM range(1000)") == 1000
            placed = "SELECT count(*) FROM system.tasks WHERE kind = 'query' AND state = 'done' AND worker = '0-shared'"
            assert world.node.value(placed) >= 1
            # One of the two servers is killed: the worker goes on for the other.
            other.kill()
            assert slow.exception() is not None
        world.wait(lambda: world.node.value(elsewhere) == 0, "tasks of a server that is gone go on")
        assert world.node.value("SELECT count(*) FROM range(1001)") == 1001
    finally:
        worker.stop()
        other.stop()
    world.wait(lambda: "0-shared" not in world.workers(), "it has not left")


@pytest.mark.parametrize(
    "codes",
    cases(
        [
            ("SERVICE_TOKEN_REFUSED", "WORKER_NAME_TAKEN", "WAREHOUSE_NOT_FOUND", "PEER_AWAY"),
            ("BAD_SERVICE_TOKEN", "NAME_OF_THE_SERVER", "PEER_ANSWER_LOST", "BAD_SERVER_ADDRESS"),
        ]
    ),
)
def test_workers_that_are_not_welcome_are_told_why(world: World, codes: tuple[str, ...]) -> None:
    """All of one case are started at once."""
    given: dict[str, tuple[str, dict[str, str]]] = {
        "SERVICE_TOKEN_REFUSED": ("b-token", {"token": "another-token-of-this-test"}),
        "BAD_SERVICE_TOKEN": ("b-short", {"token": "short"}),
        "WORKER_NAME_TAKEN": ("a-query", {"warehouse": "default"}),
        "NAME_OF_THE_SERVER": ("embedded", {}),
        "WAREHOUSE_NOT_FOUND": ("b-house", {"warehouse": "nowhere"}),
        "PEER_AWAY": ("b-nobody", {"server": f"http://127.0.0.1:{free_port()}"}),
        "PEER_ANSWER_LOST": ("b-broker", {"server": f"http://{world.broker.bootstrap}"}),
        "BAD_SERVER_ADDRESS": ("b-word", {"server": "postgres://u:hunter2@host"}),
    }
    workers = {code: world.worker(given[code][0], **given[code][1]) for code in codes}
    for worker in workers.values():
        worker.start()
    for code, worker in workers.items():
        assert worker.wait_end(SECONDS_MAX) == 1, code
        assert (code if code != "NAME_OF_THE_SERVER" else "WORKER_NAME_TAKEN") in worker.log()
        assert not [secret for secret in (TOKEN, "another-token", "hunter2") if secret in worker.log()]
    assert TOKEN not in (world.folder / "node.log").read_text()


def test_the_door_of_workers_asks_for_the_token_and_refuses_browsers(world: World) -> None:
    url = f"{world.node.url}/v1/worker/register"
    body = msgspec.msgpack.encode(Registration(name="x", version="0.0.1", wire=0))
    known = {"authorization": f"Bearer {TOKEN}", "content-type": MEDIA_TYPE, "x-tilth-call": "one"}

    def refused(**headers: str) -> tuple[int, str]:
        answer = httpx.post(url, content=body, headers=headers)
        if answer.headers["content-type"] != MEDIA_TYPE:
            return answer.status_code, answer.json()["error"]["code"]
        return answer.status_code, msgspec.msgpack.decode(answer.content, type=CallFailure).code

    assert refused() == (401, "SERVICE_TOKEN_REFUSED")
    assert refused(authorization=f"Bearer {TOKEN}x") == (401, "SERVICE_TOKEN_REFUSED")
    assert refused(**known) == (409, "WORKER_VERSION")
    assert refused(**known, origin=world.node.url) == (403, "ORIGIN_REFUSED")
    assert refused(**known, host="rebound.example") == (403, "HOST_REFUSED")
    for call in ("report", "consumer/commit", "query/pin"):
        answer = httpx.post(f"{world.node.url}/v1/worker/{call}", content=body, headers=known)
        assert msgspec.msgpack.decode(answer.content, type=CallFailure).code == "WORKER_FENCED"
    assert list((world.node.data / "tables").glob(".server-probe-*"))
