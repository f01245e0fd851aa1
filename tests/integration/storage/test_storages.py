"""Tables in three storages: the node's own disk, and two buckets of two servers with keys of their own; one of these
ends and comes back while rows stream into all of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.waiting import wait_until
from tilth.base.errors import TilthError
from tools.broker import ROOT, Broker
from tools.node_process import NodeProcess
from tools.s3server import KEY, SECRET, S3Server

pytestmark = pytest.mark.integration
#: Replaced files go within seconds.
FORGETS = (
    "old_parts_lifetime = 1, tablet_history_max_age_sec = 1, ttl_for_trash_items = 1, cleanup_delay_period = 1, "
    "cleanup_delay_period_random_add = 1"
)
STORAGES = ("default", "warm", "cold")


@dataclass(frozen=True, slots=True)
class World:
    """A node, and a server for each bucket."""

    node: NodeProcess
    stores: dict[str, S3Server]
    folder: Path

    def address(self, name: str, *, prefix: str = "tables", secret: str = "secret") -> str:
        keys = f"key=file:{self.folder}/secrets/key&secret=file:{self.folder}/secrets/{secret}"
        return f"s3://{name}/{prefix}?endpoint={self.stores[name].endpoint}&region=us-east-1&{keys}"

    def file_count(self, table: str) -> dict[str, int]:
        """Files of a table by storage."""
        [(uuid_,)] = self.node.connection.sql(f"SELECT uuid FROM system.tables WHERE name = '{table}'").rows
        found = {name: len(list(store.folder.rglob(f"{uuid_}/data/*"))) for name, store in self.stores.items()}
        return found | {"default": len(list(self.node.data.glob(f"tables/{uuid_}/data/*")))}


@pytest.fixture(scope="module")
def world(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("storages")
    (folder / "secrets").mkdir()
    for name, text in (("key", KEY), ("secret", SECRET), ("wrong", "wrong-secret-of-the-bucket")):
        (folder / "secrets" / name).write_text(text)
    settings = {
        "storage.secrets-folder": str(folder / "secrets"),
        # Statements tell then why a store refuses.
        "storage.hosts": "127.0.0.1",
        "warehouse.jars": str(ROOT / ".cache" / "s3a"),
        "warehouse.driver-memory": "1g",
    }
    node = NodeProcess(folder / "node", settings=settings)
    stores = {name: S3Server(folder / name) for name in STORAGES[1:]}
    try:
        for name, store in stores.items():
            store.start()
            store.create_bucket(name)
        node.start()
        node.wait_ready()
        world = World(node, stores, folder)
        for name in stores:
            node.connection.sql(f"CREATE STORAGE {name} ROOT '{world.address(name)}'")
        yield world
    finally:
        node.stop()
        for store in stores.values():
            store.stop()


def test_every_file_of_a_table_is_in_its_storage(world: World) -> None:
    sql = world.node.connection.sql
    for name in STORAGES:
        settings = f"storage_policy = '{name}', {FORGETS}"
        sql(f"CREATE TABLE p_{name} (id BIGINT, v STRING) ENGINE = MergeTree ORDER BY id SETTINGS {settings}")
        sql(f"CREATE TABLE u_{name} (id BIGINT, v STRING) ENGINE = MergeTree UNIQUE KEY id SETTINGS {settings}")
        sql(f"INSERT INTO p_{name} SELECT id, 'v' FROM range(1000)")
        sql(f"INSERT INTO p_{name} VALUES (-1, NULL)")
        sql(f"INSERT INTO u_{name} SELECT id % 100, 'old' FROM range(300)")
        sql(f"INSERT INTO u_{name} VALUES (7, 'new')")
        sql(f"DELETE FROM p_{name} WHERE id % 10 = 3")
        sql(f"UPDATE p_{name} SET v = 'w' WHERE id < 5")
        sql(f"OPTIMIZE TABLE p_{name} FINAL")
    # All three in one scan: each bucket is reached with its own keys.
    joined = " UNION ALL ".join(f"SELECT count(*) AS n, sum(id) AS s FROM p_{name} WHERE id > -9" for name in STORAGES)
    assert len(set(sql(joined).rows)) == 1
    for name in STORAGES:
        assert sql(f"SELECT count(*), count_if(v = 'w') FROM p_{name} WHERE id > -9").rows == [(901, 5)]
        assert sql(f"SELECT count(*), max_by(v, id = 7) FROM u_{name}").rows == [(100, "new")]
        for kind in ("p", "u"):
            counts = world.file_count(f"{kind}_{name}")
            assert counts.pop(name) > 0
            assert set(counts.values()) == {0}
            verified = sql(f"SYSTEM VERIFY {kind}_{name}")
            assert all(row[verified.names.index("ok")] for row in verified.rows)
        gone = f"SELECT count(*) FROM system.part_log WHERE event = 'remove' AND table = 'p_{name}'"
        wait_until(lambda gone=gone: world.node.value(gone) > 0, f"old files of p_{name} to go")  # type: ignore[misc]


def test_a_storage_that_ends_holds_up_its_own_tables_only(world: World, broker: Broker) -> None:
    sql, topic = world.node.connection.sql, f"storages-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for name in STORAGES:
        sql(f"CREATE TABLE r_{name} (id BIGINT) ENGINE = MergeTree ORDER BY id SETTINGS storage_policy = '{name}'")
        sql(
            f"CREATE TABLE k_{name} (id BIGINT) ENGINE = Kafka SETTINGS kafka_broker_list = '{broker.bootstrap}', "
            f"kafka_topic_list = '{topic}', kafka_group_name = '{topic}-{name}', kafka_format = 'JSONEachRow', "
            "stream_flush_interval_ms = 300"
        )
        sql(f"CREATE MATERIALIZED VIEW m_{name} TO r_{name} AS SELECT id FROM k_{name}")

    def send(first: int, count: int) -> None:
        for number in range(first, first + count):
            producer.produce(topic, b'{"id": %d}' % number, partition=number % 2)
        assert producer.flush(30) == 0

    def consumed(name: str) -> int:
        return world.node.value(f"SELECT sum(messages) FROM system.ingest_ledger WHERE table = 'k_{name}'")

    send(0, 200)
    for name in STORAGES:
        wait_until(lambda name=name: consumed(name) >= 200, f"rows in {name}")  # type: ignore[misc]
    cold = world.stores["cold"]
    port = int(cold.endpoint.rpartition(":")[2])
    cold.kill()
    try:
        send(200, 200)
        for name in ("default", "warm"):
            wait_until(lambda name=name: consumed(name) >= 400, f"rows in {name} while another is away")  # type: ignore[misc]
            sql(f"OPTIMIZE TABLE r_{name} FINAL")
            assert sql(f"SELECT count(*), count(DISTINCT id) FROM r_{name} WHERE id >= 0").rows == [(400, 400)]
        states = dict(sql("SELECT name, state FROM system.storages").rows)
        assert states == {"default": "ok", "warm": "ok", "cold": "away"}
        components = world.node.connection.health().components
        assert components["storage cold"] != "ok"
        assert (components["storage warm"], components["tables folder"]) == ("ok", "ok")
        with pytest.raises(TilthError, match="s3://cold"):
            sql("SELECT count(*) FROM r_cold WHERE id >= 0")
        failed = "SELECT count(*) FROM system.bg_threads WHERE table = 'k_cold' AND last_exception LIKE '%s3://cold%'"
        wait_until(lambda: world.node.value(failed) > 0, "the consumer to name its storage")
        # One that hangs is known, too: nobody waits for it.
        world.stores["warm"].pause()
        try:
            wait_until(lambda: state_of(world, "warm") == "away", "a storage that hangs to be reported")
        finally:
            world.stores["warm"].go_on()
        wait_until(lambda: state_of(world, "warm") == "ok", "it to be well again")
        # The node starts without it, too.
        world.node.kill()
        world.node.start()
        wait_until(lambda: is_up(world), "a start")
        send(400, 100)
        wait_until(lambda: consumed("warm") >= 500, "rows after the restart")
    finally:
        cold.start(port)
    wait_until(lambda: consumed("cold") >= 500, "rows once it is back")
    assert sql("SELECT count(*), count(DISTINCT id) FROM r_cold WHERE id >= 0").rows == [(500, 500)]
    verified = sql("SYSTEM VERIFY r_cold")
    assert all(row[verified.names.index("ok")] for row in verified.rows)
    wait_until(lambda: world.node.connection.health().components["storage cold"] == "ok", "health")


def state_of(world: World, name: str) -> str:
    [(state,)] = world.node.connection.sql(f"SELECT state FROM system.storages WHERE name = '{name}'").rows
    return str(state)


def is_up(world: World) -> bool:
    try:
        return world.node.value("SELECT count(*) FROM system.storages") == 3
    except TilthError:
        return False


def test_a_location_that_cannot_be_used_is_named_and_nothing_is_made(world: World) -> None:
    sql = world.node.connection.sql
    warm = world.address("warm")
    for address, words in (
        (world.address("warm", prefix="other", secret="wrong"), "STORAGE_EXISTS"),
        (warm.replace("s3://warm", "s3://nobody").replace("/secrets/secret", "/secrets/../key"), "BAD_STORE"),
        (warm.replace("s3://warm", "s3://nobody"), "STORE_AWAY"),
        (warm.replace("s3://warm", "s3://nobody").replace("/secrets/secret", "/secrets/wrong"), "STORE_REFUSED"),
        (warm.replace("s3://warm", "s3://nobody").replace("/secrets/secret", "/secrets/none"), "STORE_SECRET"),
        (
            warm.replace(world.stores["warm"].endpoint, "http://127.0.0.1:9").replace("s3://warm", "s3://far"),
            "STORE_AWAY",
        ),
    ):
        with pytest.raises(TilthError) as raised:
            sql(f"CREATE STORAGE bad ROOT '{address}'")
        assert raised.value.code == words, str(raised.value)
        assert "wrong-secret" not in str(raised.value)
    assert {row[0] for row in sql("SHOW STORAGES").rows} == set(STORAGES)


def test_no_secret_is_shown(world: World) -> None:
    sql = world.node.connection.sql
    shown = (world.folder / "node" / "node.log").read_text(errors="replace")
    shown += "".join(path.read_text(errors="replace") for path in world.node.data.glob("log/*"))
    for statement in (
        "SHOW CREATE STORAGE warm",
        "SHOW STORAGES",
        "SELECT * FROM system.storages",
        "SELECT * FROM system.query_log",
        "EXPLAIN EXTENDED SELECT * FROM u_warm",
        "SHOW CREATE TABLE u_warm",
        "SHOW SETTINGS",
    ):
        shown += str(sql(statement).rows)
    assert SECRET not in shown
    assert KEY not in shown
    assert "wrong-secret" not in shown
