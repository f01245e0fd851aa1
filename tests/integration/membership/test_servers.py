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
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import tilth
from tilth.client import ServerError
from tools.broker import Broker
from tools.node_process import NodeProcess
from tools.postgres import Postgres

pytestmark = pytest.mark.integration

SECONDS_MAX = 90.0
NAMES = ("a", "b")
GONE_SECONDS = 3.0


class World:
    """Two servers, what they share, and a Kafka table that is read the whole time."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.broker = folder, broker
        (folder / "token").write_text("a-token-of-this-test-0123456789\n")
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
        started = time.monotonic()
        while not is_so():
            logs = "\n".join(node.log_tail() for node in self.nodes.values())
            assert time.monotonic() - started < SECONDS_MAX, f"{otherwise}\n{logs}"
            time.sleep(0.05)
        return time.monotonic() - started

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
        self.wait(lambda: len(self.hosts()) == 1, "nobody consumes")


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
    workers = [server for (server,) in world.sql("a", "SELECT DISTINCT server FROM system.workers ORDER BY 1").rows]
    assert workers == ["a", "b"]
    servers = "SELECT name, is_self, state FROM system.servers ORDER BY name"
    assert world.sql("a", servers).rows == [("a", True, "alive"), ("b", False, "alive")]
    hosted = world.sql("a", "SELECT sum(tables) FROM system.servers").rows
    # That of dead letters, too.
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
    asking.join(30)
    assert len(failures) == 1
    with pytest.raises(ServerError, match="no such query"):
        world.sql("b", "KILL QUERY 'nobody'")


def test_a_killed_server_s_tables_move_and_come_back(world: World) -> None:
    for _ in range(2):
        host = world.host
        other = world.other(host)
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
        world.wait(lambda host=host: world.hosts() == [host], "it does not come back")  # type: ignore[misc]
    assert world.nodes[other].value("SELECT count() FROM system.transactions WHERE state = 'running'") <= 1


def test_a_failover_is_rehearsed_under_load_and_everything_is_as_before(world: World) -> None:
    home = world.host
    for name in NAMES:
        over = threading.Event()

        def produce(over: threading.Event = over) -> None:
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
    for name in NAMES:
        world.wait_for_rows(name)
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
        ({"catalog_url": "postgresql://tilth@127.0.0.1:9/x"}, ("CATALOG_AWAY", "127.0.0.1:9")),
        ({"catalog_url": "postgresql://tilth:secret-word@127.0.0.1/x"}, ("BAD_CATALOG_ADDRESS",)),
    ],
)
def test_a_server_that_does_not_fit_is_refused(world: World, settings: dict[str, str], words: tuple[str, ...]) -> None:
    numbers = itertools.count()
    node = world.node(f"c{next(numbers)}", **settings)
    node.start()
    try:
        assert node.wait_end(60)
        log = node.log_tail()
        assert all(word in log for word in words), log
        assert "secret-word" not in log
    finally:
        node.stop()
    world.wait_both()
