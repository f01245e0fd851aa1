"""Tables in several storages of one node: its own disk, two buckets of two servers with keys of their own, and three
replicas, two disks and a bucket. One of them is away, hangs, loses a file, gets a wrong one, loses everything, ends and
comes back; rows go in and come out all the while.
"""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

import tilth
from tests.long import cases
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
COLUMNS = "(id BIGINT, v STRING) ENGINE = MergeTree"


@dataclass(frozen=True, slots=True)
class World:
    """A node, and a server for each bucket."""

    node: NodeProcess
    stores: dict[str, S3Server]
    folder: Path

    def address(self, name: str, *, prefix: str = "tables", secret: str = "secret") -> str:
        keys = f"key=file:{self.folder}/secrets/key&secret=file:{self.folder}/secrets/{secret}"
        return f"s3://{name}/{prefix}?endpoint={self.stores[name].endpoint}&region=us-east-1&{keys}"

    @property
    def replica_folders(self) -> tuple[Path, Path]:
        return self.folder / "disks" / "one", self.folder / "disks" / "two"

    def file_count(self, table: str) -> dict[str, int]:
        """Files of a table by storage."""
        [(uuid_,)] = self.node.connection.sql(f"SELECT uuid FROM system.tables WHERE name = '{table}'").rows
        found = {name: len(list(self.stores[name].folder.rglob(f"{uuid_}/data/*"))) for name in STORAGES[1:]}
        return found | {"default": len(list(self.node.data.glob(f"tables/{uuid_}/data/*")))}


@dataclass(frozen=True, slots=True)
class Replicas:
    """The storage `r`: the folders of two replicas and the server of the third."""

    node: NodeProcess
    folders: tuple[Path, Path]
    store: S3Server

    def sql(self, text: str) -> list[tuple[object, ...]]:
        return self.node.connection.sql(text).rows

    def data(self, table: str) -> tuple[Path, Path, Path]:
        """The folder of the table's files in each replica."""
        [(uuid,)] = self.sql(f"SELECT uuid FROM system.tables WHERE name = '{table}'")
        bucket = next(self.store.folder.rglob("third"))
        one, two, three = (folder / f"{uuid}/data" for folder in (*self.folders, bucket / "tables"))
        return one, two, three

    def files(self, table: str) -> list[set[str]]:
        """Names of parts, segments and deltas in each replica."""
        return [
            {file.name for file in folder.glob("*") if file.suffix in (".parquet", ".arrow", ".puffin")}
            for folder in self.data(table)
        ]

    def queue(self, table: str) -> int:
        return int(self.node.value(f"SELECT sum(queue_size) FROM system.replicas WHERE table = '{table}'"))

    def wait_whole(self, table: str) -> None:
        """Wait until no replica lacks anything, and all have the same files."""
        wait_until(lambda: self.queue(table) == 0, f"the queue of {table} to be empty")
        wait_until(lambda: len({frozenset(names) for names in self.files(table)}) == 1, "all replicas to have the same")
        assert all(row[-2] for row in self.sql(f"SYSTEM SCRUB {table}"))


@pytest.fixture(scope="module")
def world(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("storages")
    (folder / "secrets").mkdir()
    for name, text in (("key", KEY), ("secret", SECRET), ("wrong", "wrong-secret-of-the-bucket")):
        (folder / "secrets" / name).write_text(text)
    settings = {
        "storage.secrets-folder": str(folder / "secrets"),
        "storage.local-folder": str(folder / "disks"),
        # Statements tell then why a store refuses.
        "storage.hosts": "127.0.0.1",
        "warehouse.jars": str(ROOT / ".cache" / "s3a"),
        "warehouse.driver-memory": "1g",
    }
    node = NodeProcess(folder / "node", settings=settings)
    stores = {name: S3Server(folder / name) for name in (*STORAGES[1:], "third")}
    try:
        # It needs the stores only once they are named.
        node.start()
        for name, store in stores.items():
            store.start()
            store.create_bucket(name)
        node.wait_ready()
        world = World(node, stores, folder)
        for name in STORAGES[1:]:
            node.connection.sql(f"CREATE STORAGE {name} ROOT '{world.address(name)}'")
        one, two = world.replica_folders
        roots = f"'{one}', '{two}', '{world.address('third')}'"
        node.connection.sql(f"CREATE STORAGE r REPLICAS ({roots}) QUORUM 2")
        yield world
    finally:
        node.stop()
        for store in stores.values():
            store.stop()


# --- replicas --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replicas(world: World) -> Replicas:
    return Replicas(world.node, world.replica_folders, world.stores["third"])


def make(replicas: Replicas, name: str) -> None:
    settings = f"storage_policy = 'r', {FORGETS}"
    replicas.sql(f"CREATE TABLE {name} {COLUMNS} ORDER BY id SETTINGS {settings}")
    replicas.sql(f"INSERT INTO {name} SELECT id, 'v' FROM range(1000)")


def test_every_file_is_in_every_replica(replicas: Replicas) -> None:
    make(replicas, "whole")
    replicas.sql(f"CREATE TABLE keyed {COLUMNS} UNIQUE KEY id SETTINGS storage_policy = 'r'")
    replicas.sql("INSERT INTO whole VALUES (-1, NULL)")
    replicas.sql("INSERT INTO keyed SELECT id % 100, 'old' FROM range(300)")
    replicas.sql("INSERT INTO keyed VALUES (7, 'new')")
    replicas.sql("DELETE FROM whole WHERE id % 10 = 3")
    replicas.sql("UPDATE whole SET v = 'w' WHERE id < 5")
    replicas.sql("OPTIMIZE TABLE whole FINAL")
    assert replicas.sql("SELECT count(*), count_if(v = 'w') FROM whole WHERE id > -9") == [(901, 5)]
    assert replicas.sql("SELECT count(*), max_by(v, id = 7) FROM keyed") == [(100, "new")]
    for table in ("whole", "keyed"):
        replicas.wait_whole(table)
    [(state, root, kind)] = replicas.sql("SELECT state, root, kind FROM system.storages WHERE name = 'r'")
    assert (state, root, kind) == ("ok", "replicas://r", "replicas")
    assert replicas.sql("SELECT DISTINCT state, total_replicas, active_replicas, quorum FROM system.replicas") == [
        ("ok", 3, 3, 2)
    ]


def test_a_replica_that_is_away_holds_up_nobody_and_catches_up(replicas: Replicas) -> None:
    make(replicas, "away")
    make(replicas, "refused")
    port = int(replicas.store.endpoint.rpartition(":")[2])
    replicas.store.kill()
    try:
        for number in range(3):
            replicas.sql(f"INSERT INTO away VALUES ({2000 + number}, 'x')")
        replicas.sql("DELETE FROM away WHERE id < 10")
        assert replicas.sql("SELECT count(*) FROM away WHERE id >= 0") == [(993,)]
        assert replicas.queue("away") >= 4
        [(state, active)] = replicas.sql(
            "SELECT state, active_replicas FROM system.replicas WHERE table = 'away' AND replica_num = 2"
        )
        assert (state, active) == ("away", 2)
        with pytest.raises(TilthError) as caught:
            replicas.sql("INSERT INTO refused SETTINGS insert_quorum = 3 VALUES (9, 'x')")
        assert caught.value.code == "QUORUM_NOT_MET"
    finally:
        replicas.store.start(port)
    replicas.wait_whole("away")
    assert replicas.sql("SELECT count(*) FROM away WHERE id >= 0") == [(993,)]
    assert replicas.sql("SELECT count(*) FROM refused WHERE id >= 0") == [(1000,)]


def test_a_replica_that_hangs_holds_up_one_file_for_a_short_time(replicas: Replicas) -> None:
    make(replicas, "hangs")
    replicas.store.pause()
    try:
        for number in range(5):
            replicas.sql(f"INSERT INTO hangs VALUES ({2000 + number}, 'x')")
        assert replicas.sql("SELECT count(*) FROM hangs WHERE id >= 0") == [(1005,)]
        wait_until(lambda: replicas.queue("hangs") > 0, "missing copies to be noted")
    finally:
        replicas.store.go_on()
    replicas.wait_whole("hangs")


@pytest.mark.parametrize("replica", cases([0, 2]))
def test_a_wrong_copy_and_a_lost_one_are_made_anew(replicas: Replicas, replica: int) -> None:
    name = f"wrong_{replica}"
    make(replicas, name)
    replicas.sql(f"INSERT INTO {name} SELECT id + 5000, 'w' FROM range(1000)")
    folder = replicas.data(name)[replica]
    one, other, *_ = sorted(folder.glob("*.parquet"))
    content = bytearray(one.read_bytes())
    content[len(content) // 2] ^= 0xFF
    one.write_bytes(bytes(content))
    other.unlink()
    # Found by a query, or by the scrub: whoever comes first.
    assert replicas.sql(f"SELECT count(*), min(v), max(v) FROM {name} WHERE id >= 0") == [(2000, "v", "w")]
    rows = replicas.node.connection.sql(f"SYSTEM SCRUB {name}")
    assert all(row[rows.names.index("ok")] for row in rows.rows), rows.rows
    replicas.wait_whole(name)
    assert all(row[2] for row in replicas.sql(f"SYSTEM VERIFY {name}"))


@pytest.mark.long
def test_files_that_go_while_a_replica_is_away_go_there_too(replicas: Replicas) -> None:
    make(replicas, "goes")
    replicas.wait_whole("goes")
    port = int(replicas.store.endpoint.rpartition(":")[2])
    replicas.store.kill()
    try:
        replicas.sql("INSERT INTO goes VALUES (2000, 'x')")
        replicas.sql("OPTIMIZE TABLE goes FINAL")
        time.sleep(2)
    finally:
        replicas.store.start(port)
    wait_until(lambda: all(len(names) == 1 for names in replicas.files("goes")), "old files to go everywhere")
    replicas.wait_whole("goes")


def test_a_replica_that_has_lost_everything_is_filled_on_demand_only(replicas: Replicas) -> None:
    """It is filled once all that began before has ended, for which another test waits."""
    make(replicas, "lost")
    replicas.wait_whole("lost")
    one = replicas.folders[0]
    shutil.rmtree(one)
    one.mkdir()
    state = "SELECT state FROM system.replicas WHERE table = 'lost' AND replica_num = 0"
    wait_until(lambda: replicas.sql(state) == [("away",)], "the loss to be seen")
    replicas.sql("INSERT INTO lost VALUES (2000, 'x')")
    assert replicas.sql("SELECT count(*) FROM lost WHERE id >= 0") == [(1001,)]
    # An empty folder may be a disk that is not mounted.
    assert list(one.iterdir()) == []
    replicas.sql(f"ALTER STORAGE r RESTORE REPLICA '{one}'")
    # From now on files are written to it.
    wait_until(lambda: replicas.sql(state) != [("away",)], "the replica to be used again")


def test_what_is_wrong_is_refused_by_name(replicas: Replicas) -> None:
    for text, code in (
        ("CREATE STORAGE s REPLICAS ('/nowhere/a', '/nowhere/b')", "BAD_STORE"),
        (f"CREATE STORAGE s REPLICAS ('{replicas.folders[0]}')", "BAD_STORE"),
        (f"CREATE STORAGE s REPLICAS ('{replicas.folders[0]}x', '{replicas.folders[0]}x')", "BAD_STORE"),
        (f"CREATE STORAGE s REPLICAS ('{replicas.folders[0]}x', '{replicas.folders[0]}y') QUORUM 3", "BAD_QUORUM"),
        (f"CREATE STORAGE s REPLICAS ('{replicas.folders[0]}', '{replicas.folders[0]}y')", "STORAGE_EXISTS"),
        ("CREATE STORAGE s ROOT 'replicas://r?quorum=1&root=/a&root=/b'", "BAD_STORE"),
        (
            "CREATE TABLE q (id BIGINT) ENGINE = MergeTree SETTINGS storage_policy = 'r', insert_quorum = 4",
            "BAD_QUORUM",
        ),
        ("ALTER TABLE whole MODIFY SETTING insert_quorum = 4", "BAD_QUORUM"),
        ("ALTER STORAGE r RESTORE REPLICA '/elsewhere'", "BAD_STORE"),
        ("ALTER STORAGE nothing RESTORE REPLICA '/elsewhere'", "STORAGE_NOT_FOUND"),
        ("ALTER STORAGE `default` ADD REPLICA '/elsewhere'", "BAD_STORE"),
        ("ALTER STORAGE r ADD REPLICA '/elsewhere'", "BAD_STORE"),
        (f"ALTER STORAGE r ADD REPLICA '{replicas.folders[0]}'", "STORAGE_EXISTS"),
        (f"ALTER STORAGE r REPLACE REPLICA '{replicas.folders[0]}x' WITH '{replicas.folders[0]}y'", "BAD_STORE"),
        (f"ALTER STORAGE r REPLACE REPLICA '{replicas.folders[0]}' WITH '{replicas.folders[1]}'", "STORAGE_EXISTS"),
    ):
        with pytest.raises(TilthError) as caught:
            replicas.sql(text)
        assert caught.value.code == code, text
    [(made,)] = replicas.sql("SHOW CREATE STORAGE r")
    assert "QUORUM 2" in str(made)
    assert "secret-of" not in str(made)


def test_a_replica_gives_way_to_another_and_one_is_added_under_load(replicas: Replicas) -> None:
    """This test changes the storage of all tables, while rows come in, also of work that began before, and while
    another replica is filled.
    """
    make(replicas, "moved")
    one, two = replicas.folders
    four, five = (one.parent / name for name in ("four", "five"))
    over = threading.Event()
    sent: list[int] = []

    def insert() -> None:
        with closing(tilth.connect(replicas.node.url)) as connection:
            while not over.is_set():
                connection.sql(f"INSERT INTO moved VALUES ({5000 + len(sent)}, 'y')")
                sent.append(1)

    thread = threading.Thread(target=insert)
    thread.start()
    try:
        wait_until(lambda: len(sent) > 3, "the first rows")
        replicas.sql(f"ALTER STORAGE r REPLACE REPLICA '{two}' WITH '{four}'")
        replicas.sql(f"ALTER STORAGE r ADD REPLICA '{five}'")
        wait_until(lambda: len(sent) > 30, "rows beside it")
        assert replicas.sql("SELECT count(*) FROM moved WHERE id < 5000") == [(1000,)]
    finally:
        over.set()
        thread.join()
    # Nobody uses the old location any more.
    shutil.rmtree(two)
    assert replicas.sql("SELECT count(*) FROM moved WHERE id >= 5000") == [(len(sent),)]


# --- storages --------------------------------------------------------------------------------------------------------


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


def test_the_replica_that_was_restored_and_the_new_ones_are_filled(replicas: Replicas) -> None:
    """Their filling began some tests ago."""
    one, four, five = (replicas.folders[0].parent / name for name in ("one", "four", "five"))
    state = "SELECT DISTINCT state, total_replicas, quorum FROM system.replicas"
    wait_until(lambda: replicas.sql(state) == [("ok", 4, 2)], "all replicas to be whole")
    now = replace(replicas, folders=(one, four))
    for table in ("moved", "whole", "keyed", "away", "hangs", "lost", "refused"):
        now.wait_whole(table)
        [(uuid,)] = replicas.sql(f"SELECT uuid FROM system.tables WHERE name = '{table}'")
        assert {path.name for path in (five / f"{uuid}/data").iterdir()} >= now.files(table)[0]
    [(count, last)] = replicas.sql("SELECT count(*), max(id) FROM moved WHERE id >= 5000")
    assert count == int(str(last)) - 4999
    assert replicas.sql("SELECT count(*) FROM lost WHERE id >= 0") == [(1001,)]


def test_a_storage_that_ends_holds_up_its_own_tables_only(world: World, replicas: Replicas, broker: Broker) -> None:
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
        states = {"default": "ok", "warm": "ok", "cold": "away", "r": "ok"}
        # A good answer of the store is reused for a while.
        wait_until(lambda: dict(sql("SELECT name, state FROM system.storages").rows) == states, "cold to be away")
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
        # The node starts without it, too, with its replicas as they were.
        make(replicas, "kept")
        of_kept = "SELECT DISTINCT state, total_replicas, quorum FROM system.replicas WHERE table = 'kept'"
        before = replicas.sql(of_kept)
        world.node.kill()
        world.node.start()
        wait_until(lambda: is_up(world), "a start")
        wait_until(lambda: replicas.sql(of_kept) == before, "the replicas to be as before")
        assert replicas.sql("SELECT count(*) FROM kept WHERE id >= 0") == [(1000,)]
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
        return world.node.value("SELECT count(*) FROM system.storages") == len(STORAGES) + 1
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
    assert {row[0] for row in sql("SHOW STORAGES").rows} == {*STORAGES, "r"}


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
