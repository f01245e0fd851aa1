"""Several servers over one catalog: real processes, a real PostgreSQL, a real broker; servers that are killed, stopped
and started, a database that is killed.

Two servers serve all tests of this file. Always holds: whatever is done to them, every message is in the table once.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
from confluent_kafka import Producer

import tilth
from tests.long import cases
from tests.waiting import wait_until
from tilth.base.clock import SystemClock
from tilth.base.ids import random_id
from tilth.catalog import Catalog, Joining, PostgresKV, ServerVersionError, parse_postgres
from tilth.client import ServerError
from tilth.membership import Bounds, Member
from tilth.model.server import host_of
from tools.broker import Broker
from tools.node_process import NodeProcess
from tools.postgres import Postgres
from tools.worker_process import WorkerRun

pytestmark = pytest.mark.integration

SECONDS_MAX = 180.0
NAMES = ("a", "b")
GONE_SECONDS = 3.0
TOKEN = "a-token-of-this-test-0123456789"
#: From the end of a server until its worker is at another one: two unanswered reports, and what a crowded machine adds.
WORKER_SECONDS_MAX = 30.0


class World:
    """Two servers, what they share, and a Kafka table that is read the whole time."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.broker = folder, broker
        (folder / "token").write_text(f"{TOKEN}\n")
        self.postgres = Postgres(folder / "postgres")
        self.postgres.start()
        self.nodes = {name: self.node(name) for name in NAMES}
        self.produced = 0
        self._producer = Producer({"bootstrap.servers": broker.bootstrap})

    def node(self, name: str, **settings: str) -> NodeProcess:
        given = {
            "catalog.url": self.postgres.address(),
            "storage.root": f"file://{self.folder}/tables",
            "server.name": name,
            "server.gone-bound": f"{GONE_SECONDS} s",
            "server.token-file": str(self.folder / "token"),
            "warehouse.driver-memory": "1g",
            "warehouse.master": "local[2]",
        }
        given |= {key.replace("_", "."): value for key, value in settings.items()}
        return NodeProcess(self.folder / f"node-{name}-{len(settings)}", settings=given)

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()
        for node in self.nodes.values():
            node.wait_ready()
        self.broker.create_topic("flights", 4)
        self.sql("a", "CREATE TABLE rows (id Int64, n Int32) ENGINE = MergeTree ORDER BY id UNIQUE KEY id")
        self.sql(
            "b",
            "CREATE TABLE source (id Int64, n Int32) ENGINE = Kafka SETTINGS "
            f"kafka_broker_list = '{self.broker.bootstrap}', kafka_topic_list = 'flights', kafka_group_name = 'g', "
            "kafka_format = 'JSONEachRow', stream_flush_interval_ms = 300",
        )
        self.sql("a", "CREATE TABLE plain (id Int64) ENGINE = MergeTree ORDER BY id")
        self.sql("a", "CREATE MATERIALIZED VIEW into_plain TO plain AS SELECT id FROM source")
        self.wait(lambda: len(self.hosts()) == 1, "nobody consumes")

    def close(self) -> None:
        for node in self.nodes.values():
            node.stop()
        self.postgres.stop()

    def sql(self, name: str, text: str) -> tilth.client.http.Result:
        return self.nodes[name].connection.sql(text)

    def produce(self, count: int = 100) -> None:
        for _ in range(count):
            self._producer.produce("flights", json.dumps({"id": self.produced, "n": 1}).encode())
            self.produced += 1
        self._producer.flush()

    def hosts(self, asked: str = "") -> list[str]:
        """Names of the servers that hold the consumer's lease and live."""
        query = "SELECT holder FROM system.leases WHERE name LIKE 'consumer/%' AND is_valid"
        return [holder.partition("#")[0] for (holder,) in self.sql(asked or self.living, query).rows]

    @property
    def host(self) -> str:
        [name] = self.hosts()
        return name

    @property
    def living(self) -> str:
        return next(name for name, node in self.nodes.items() if not node.has_ended)

    def other(self, name: str) -> str:
        [found] = [each for each in NAMES if each != name]
        return found

    def wait(self, is_so: Callable[[], bool], otherwise: str) -> float:
        """Return how long it took."""

        def why() -> str:
            return "\n".join([otherwise, *(node.log_tail() for node in self.nodes.values())])

        return wait_until(is_so, why, seconds_max=SECONDS_MAX)

    def wait_for_rows(self, name: str) -> float:
        """Wait until all that was produced is there, once."""
        took = self.wait(lambda: self.nodes[name].value("SELECT count() FROM plain") >= self.produced, "rows miss")
        assert self.nodes[name].value("SELECT count() FROM plain") == self.produced
        assert self.nodes[name].value("SELECT count(DISTINCT id) FROM plain") == self.produced
        return took

    def wait_both(self) -> None:
        for node in self.nodes.values():
            node.wait_ready()
        alive = "SELECT count() FROM system.servers WHERE state = 'alive' AND url IS NOT NULL"
        for node in self.nodes.values():
            self.wait(lambda node=node: node.value(alive) == 2, "a server is not alive")  # type: ignore[misc]
        # A server that has just joined or was resumed acquires the leases of its tables a little later.
        [(source,)] = self.sql("a", "SELECT uuid FROM system.tables WHERE name = 'source'").rows
        self.wait(lambda: self.hosts() == [host_of(source, NAMES)], "the tables are not where they belong")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("servers"), broker)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def world(started: World) -> World:
    """Both servers live."""
    started.wait_both()
    return started


def test_any_server_answers_any_statement(world: World) -> None:
    world.produce()
    for name in NAMES:
        world.wait_for_rows(name)
        verified = world.sql(name, "SYSTEM VERIFY plain").rows
        assert verified
        assert all(is_right for _, _, is_right, _ in verified), verified
        world.sql(name, f"INSERT INTO rows VALUES ({ord(name)}, 1)")
        world.sql(name, f"UPDATE rows SET n = 2 WHERE id = {ord(name)}")
        assert world.sql(name, "SELECT id, n FROM rows ORDER BY id").rows[-1][1] == 2
        world.sql(name, "OPTIMIZE TABLE rows FINAL")
        world.sql(name, f"ALTER TABLE plain ADD COLUMN {name} Int32 DEFAULT 7")
        world.sql(name, f"ALTER TABLE plain UPDATE {name} = 8 WHERE id = 3 SETTINGS mutations_sync = 1")
        assert world.nodes[world.other(name)].value(f"SELECT {name} FROM plain WHERE id = 3") == 8
        world.sql(name, "EXPLAIN MERGE rows")
        world.sql(name, "EXPLAIN GC rows")


def test_verbs_work_from_any_server_and_rows_of_services_come_from_all(world: World) -> None:
    state = "SELECT state, server FROM system.bg_threads WHERE table = 'source'"
    host = world.host
    for name in NAMES:
        world.sql(name, "SYSTEM STOP CONSUME source")
        # When it has answered, nothing runs any more, wherever it ran.
        assert world.sql(name, state).rows == [("stopped", host)]
        world.sql(world.other(name), "SYSTEM START CONSUME source")
        world.wait(lambda name=name: world.sql(name, state).rows == [("running", host)], "it does not run")  # type: ignore[misc]
        world.sql(name, "SYSTEM RESTART CONSUME source")
    for name in NAMES:
        stopped = world.sql(name, "SYSTEM STOP CONSUME")
        assert not [notice for notice in stopped.summary.notices if "has not said" in notice]
        assert world.sql(name, state).rows == [("stopped", host)]
        for word in ("MERGES", "GC"):
            assert "has not said" not in str(world.sql(name, f"SYSTEM STOP {word}").summary.notices)
            service = "merge" if word == "MERGES" else "gc"
            states = f"SELECT DISTINCT state FROM system.bg_threads WHERE service = '{service}'"
            assert world.sql(name, states).rows == [("stopped",)]
            world.sql(world.other(name), f"SYSTEM START {word}")
        world.sql(world.other(name), "SYSTEM START CONSUME")
        world.wait(lambda name=name: world.sql(name, state).rows == [("running", host)], "it does not run")  # type: ignore[misc]
    workers = [server for (server,) in world.sql("a", "SELECT DISTINCT server FROM system.workers ORDER BY 1").rows]
    assert workers == ["a", "b"]
    servers = "SELECT name, is_self, state, version FROM system.servers ORDER BY name"
    own = version("tilth")
    assert world.sql("a", servers).rows == [("a", True, "alive", own), ("b", False, "alive", own)]
    hosted = world.sql("a", "SELECT sum(tables) FROM system.servers").rows
    # The table of dead letters counts, too.
    assert hosted == [(4,)]


def test_a_query_is_killed_by_its_id_from_any_server(world: World) -> None:
    slow = "SELECT count(*) FROM range(300000000) a CROSS JOIN range(300000000) b WHERE (a.id * b.id) % 7 = 3"
    failures: list[ServerError] = []

    def ask() -> None:
        try:
            world.sql("a", slow)
        except ServerError as error:
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    found = "SELECT query_id, server FROM system.processes WHERE query LIKE '%CROSS%' AND query NOT LIKE '%LIKE%'"
    world.wait(lambda: len(world.sql("b", found).rows) == 1, "it does not run")
    [(query_id, server)] = world.sql("b", found).rows
    assert server == "a"
    missed = world.sql("b", f"KILL QUERY WHERE query_id = '{query_id}'")
    assert missed.rows == []
    assert query_id in str(missed.summary.notices)
    assert world.sql("b", f"KILL QUERY '{query_id}' SYNC").rows[0][:2] == ("finished", query_id)
    asking.join(SECONDS_MAX)
    assert len(failures) == 1
    with pytest.raises(ServerError, match="no such query"):
        world.sql("b", "KILL QUERY 'nobody'")


@pytest.mark.parametrize("times", cases([1, 2]))
def test_a_killed_server_s_tables_move_and_come_back(world: World, times: int) -> None:
    for _ in range(times):
        host = world.host
        other = world.other(host)
        with reading(world) as held:
            world.nodes[host].kill()
            world.produce()
            # Until it is taken to be gone the others say that its rows are missing.
            notices = world.sql(other, "SELECT * FROM system.bg_threads").summary.notices
            assert all(f"rows of server {host}" in notice for notice in notices)
            world.wait_for_rows(other)
            assert world.hosts() == [other]
            both = tilth.connect(",".join(world.nodes[name].url for name in (host, other)), timeout_seconds=60)
            assert both.sql("SELECT count() FROM plain").rows == [(world.produced,)]
            world.nodes[host].start()
            world.wait_both()
            # A server that starts leaves what queries of others hold: their files would go while they are read.
            assert held() == {other}
        world.wait(lambda host=host: world.hosts() == [host], "it does not come back")  # type: ignore[misc]
    assert world.nodes[other].value("SELECT count() FROM system.transactions WHERE state = 'running'") <= 1


@contextmanager
def reading(world: World) -> Iterator[Callable[[], set[str]]]:
    """Inside, a query of each server holds a version of `plain`; yields what returns whose leases are there."""
    with closing(PostgresKV(SystemClock(), parse_postgres(world.postgres.address()))) as kv:
        readers = Catalog(kv, SystemClock(), "test", random_id).readers
        [(uuid,)] = world.sql("a", "SELECT uuid FROM system.tables WHERE name = 'plain'").rows
        leases = {name: readers.open(uuid, 1, name, 300_000) for name in NAMES}

        def found() -> set[str]:
            return {name for name, lease in leases.items() if readers.find(lease.id) is not None}

        yield found
        for name in found():
            readers.close(leases[name])


@pytest.mark.long
def test_a_worker_goes_on_with_the_next_server_when_its_own_is_killed(world: World) -> None:
    worker = WorkerRun(
        world.folder / "worker",
        server=",".join(world.nodes[name].url for name in NAMES),
        warehouse="write",
        name="far",
        token=TOKEN,
        settings={"warehouse.master": "local[1]", "warehouse.driver-memory": "1g"},
    )
    at = "SELECT server, state FROM system.workers WHERE name = 'far'"
    worker.start()
    try:
        world.wait(lambda: world.sql("b", at).rows == [("a", "alive")], "it is not at the first server")
        pid = worker.pid
        for left, joined in (("a", "b"), ("b", "a")):
            world.nodes[left].kill()
            took = world.wait(lambda joined=joined: world.sql(joined, at).rows == [(joined, "alive")], worker.log())  # type: ignore[misc]
            print(f"the worker is at {joined} {took:.1f} s after the end of {left}")
            assert took < WORKER_SECONDS_MAX
            world.nodes[left].start()
            world.wait_both()
            # It stays with the server that it has.
            assert world.sql(left, at).rows == [(joined, "alive")]
        # The process and its Spark are the same, and work for the server.
        assert worker.pid == pid
        world.sql("a", "ALTER SERVER b DRAIN")
        world.sql("a", "ALTER WORKER embedded DRAIN")
        consumes = "SELECT count() FROM system.tasks WHERE worker = 'far' AND kind = 'consume' AND state = 'running'"
        world.wait(lambda: world.nodes["a"].value(consumes) > 0, "it does not consume")
        world.produce()
        rows = "SELECT sum(rows) FROM system.parts WHERE active AND table = 'plain'"
        world.wait(lambda: world.nodes["b"].value(rows) == world.produced, "its rows miss")
        assert world.nodes["a"].value(consumes) > 0
        log = worker.log()
        for name in NAMES:
            assert f"action=server_left cause_id=- server={name}" in log, log
    finally:
        world.sql("a", "ALTER WORKER embedded RESUME")
        world.sql("a", "ALTER SERVER b RESUME")
        worker.stop()


@pytest.mark.parametrize("name", cases(NAMES))
def test_a_failover_is_rehearsed_under_load_and_everything_is_as_before(world: World, name: str) -> None:
    home = world.host
    over = threading.Event()

    def produce() -> None:
        while not over.wait(0.1):
            world.produce(20)

    source = threading.Thread(target=produce)
    source.start()
    try:
        drilled = world.sql(name, "DRILL FAILOVER source FOR SECONDS 3")
    finally:
        over.set()
        source.join()
    there, back = (dict(zip(drilled.names, row, strict=True)) for row in drilled.rows)
    assert (there["from_server"], there["to_server"]) == (home, world.other(home))
    assert (back["from_server"], back["to_server"]) == (world.other(home), home)
    for move in (there, back):
        assert move["lost"] == "nothing"
        assert 0 < move["seconds"] < 20
        assert 0 < move["gap_seconds"] < 20
        assert move["rounds"] > 0
    assert world.hosts() == [home]
    assert world.sql(name, "DRILL FAILOVER plain FOR SECONDS 1").rows[0][-1] == "nothing"
    for each in NAMES:
        world.wait_for_rows(each)
    [host] = [
        server for (server,) in world.sql("a", "SELECT server FROM system.bg_threads WHERE table = 'source'").rows
    ]
    assert host == home


def test_a_server_that_stood_still_commits_nothing_when_it_goes_on(world: World) -> None:
    host = world.host
    other = world.other(host)
    os.kill(world.nodes[host].pid, signal.SIGSTOP)
    try:
        world.produce()
        world.wait_for_rows(other)
        assert world.hosts(other) == [other]
    finally:
        os.kill(world.nodes[host].pid, signal.SIGCONT)
    world.produce()
    world.wait_both()
    world.wait(lambda: world.hosts() == [host], "it does not come back")
    world.produce()
    for name in NAMES:
        world.wait_for_rows(name)


def test_a_database_that_is_killed_is_waited_for(world: World) -> None:
    world.postgres.kill()
    try:
        world.produce()
        with pytest.raises(ServerError, match="catalog's database does not answer"):
            world.sql("a", "SELECT count() FROM plain")
        health = world.nodes["a"].connection.health()
        assert "127.0.0.1" in health.components["catalog"]
        assert "tilth_" in world.nodes["a"].connection.metrics()
    finally:
        world.postgres.start()
    world.wait_both()
    world.produce()
    for name in NAMES:
        world.wait_for_rows(name)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"server_name": "a"}, ("SERVER_NAME_TAKEN", "server=a", "http://127.0.0.1")),
        ({"storage_root": "file:///tmp/elsewhere-of-tilth"}, ("STORE_LOCATION", "elsewhere")),
        pytest.param(
            {"catalog_url": "postgresql://tilth@127.0.0.1:9/x"}, ("CATALOG_AWAY", "127.0.0.1:9"), marks=pytest.mark.long
        ),
        pytest.param(
            {"catalog_url": "postgresql://tilth:secret-word@127.0.0.1/x"},
            ("BAD_CATALOG_ADDRESS",),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_server_that_does_not_fit_is_refused(world: World, settings: dict[str, str], words: tuple[str, ...]) -> None:
    numbers = itertools.count()
    node = world.node(f"c{next(numbers)}", **settings)
    node.start()
    try:
        assert node.wait_end(SECONDS_MAX)
        log = node.log_tail()
        assert all(word in log for word in words), log
        assert "secret-word" not in log
    finally:
        node.stop()
    world.wait_both()


def member_of(store: PostgresKV, name: str, given: str) -> Member:
    """A server of this version, of which nothing but its membership runs."""
    return Member(
        SystemClock(),
        Catalog(store, SystemClock(), name, random_id),
        Joining(name=name, run=random_id(), version=given, url="http://10.1.1.1:7411"),
        bounds=Bounds(GONE_SECONDS),
        liveness=store.liveness(),
        on_change=lambda: None,
    )


def test_a_server_of_another_version_is_refused_and_those_that_live_go_on(world: World) -> None:
    with closing(PostgresKV(SystemClock(), parse_postgres(world.postgres.address()))) as store:
        member = member_of(store, "later", "9.9.0")
        with pytest.raises(ServerVersionError, match=f"version=9.9.0 server=[ab] .*server_version={version('tilth')}"):
            member.join()
        member.stop()
    assert world.sql("a", "SELECT name FROM system.servers ORDER BY name").rows == [("a",), ("b",)]
    world.produce()
    for name in NAMES:
        world.wait_for_rows(name)


@pytest.mark.long
def test_tilth_serve_is_refused_while_a_server_of_another_version_lives(world: World) -> None:
    address = world.postgres.address(schema="of_another_version")
    with closing(PostgresKV(SystemClock(), parse_postgres(address))) as store:
        member = member_of(store, "later", "9.9.0")
        joined = member.join()
        member.start()
        node = world.node("d", catalog_url=address)
        node.start()
        try:
            assert node.wait_end(SECONDS_MAX)
            assert node.exit_code == 1
            log = node.log_tail()
            words = ("SERVER_VERSION", f"version={version('tilth')}", "server=later", "url=http://10.1.1.1:7411")
            assert all(word in log for word in (*words, "server_version=9.9.0", "stop the server later")), log
            assert "Traceback" not in log
            servers = member._catalog.servers
            assert [each.id for each in servers.all()] == [joined.id]
            assert [each.id for each in member.now().servers] == [joined.id]
            assert member.trouble == ""
        finally:
            node.stop()
            member.stop()
        # When that one has left it is taken.
        node.start()
        try:
            node.wait_ready()
            found = node.connection.sql("SELECT name, version FROM system.servers").rows
            assert found == [("d", version("tilth"))]
        finally:
            node.stop()
