"""A table whose files are in three replicas: two disks and a bucket. One is away, hangs, loses a file, gets a wrong
one, loses everything; rows go in and come out all the while.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import tilth
from tests.long import cases
from tests.waiting import wait_until
from tilth.base.errors import TilthError
from tools.broker import ROOT
from tools.node_process import NodeProcess
from tools.s3server import KEY, SECRET, S3Server

pytestmark = pytest.mark.integration
COLUMNS = "(id BIGINT, v STRING) ENGINE = MergeTree"
#: Replaced files go within seconds.
FORGETS = (
    "old_parts_lifetime = 1, tablet_history_max_age_sec = 1, ttl_for_trash_items = 1, cleanup_delay_period = 1, "
    "cleanup_delay_period_random_add = 1"
)


@dataclass(frozen=True, slots=True)
class World:
    """A node, the folders of two replicas and the server of the third."""

    node: NodeProcess
    folders: tuple[Path, Path]
    store: S3Server

    def sql(self, text: str) -> list[tuple[object, ...]]:
        return self.node.connection.sql(text).rows

    def data(self, table: str) -> tuple[Path, Path, Path]:
        """The folder of the table's files in each replica."""
        [(uuid,)] = self.sql(f"SELECT uuid FROM system.tables WHERE name = '{table}'")
        bucket = next(self.store.folder.rglob("bucket"))
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
    folder = tmp_path_factory.mktemp("replicas")
    (folder / "secrets").mkdir()
    (folder / "secrets" / "key").write_text(KEY)
    (folder / "secrets" / "secret").write_text(SECRET)
    settings = {
        "storage.secrets-folder": str(folder / "secrets"),
        "storage.local-folder": str(folder / "disks"),
        "warehouse.jars": str(ROOT / ".cache" / "s3a"),
        "warehouse.driver-memory": "1g",
    }
    node, store = NodeProcess(folder / "node", settings=settings), S3Server(folder / "store")
    folders = folder / "disks" / "one", folder / "disks" / "two"
    keys = f"key=file:{folder}/secrets/key&secret=file:{folder}/secrets/secret&region=us-east-1"
    try:
        store.start()
        store.create_bucket("bucket")
        node.start()
        node.wait_ready()
        bucket = f"s3://bucket/tables?endpoint={store.endpoint}&{keys}"
        node.connection.sql(f"CREATE STORAGE r REPLICAS ('{folders[0]}', '{folders[1]}', '{bucket}') QUORUM 2")
        yield World(node, folders, store)
    finally:
        node.stop()
        store.stop()


def make(world: World, name: str) -> None:
    settings = f"storage_policy = 'r', {FORGETS}"
    world.sql(f"CREATE TABLE {name} {COLUMNS} ORDER BY id SETTINGS {settings}")
    world.sql(f"INSERT INTO {name} SELECT id, 'v' FROM range(1000)")


def test_every_file_is_in_every_replica(world: World) -> None:
    make(world, "whole")
    world.sql(f"CREATE TABLE keyed {COLUMNS} UNIQUE KEY id SETTINGS storage_policy = 'r'")
    world.sql("INSERT INTO whole VALUES (-1, NULL)")
    world.sql("INSERT INTO keyed SELECT id % 100, 'old' FROM range(300)")
    world.sql("INSERT INTO keyed VALUES (7, 'new')")
    world.sql("DELETE FROM whole WHERE id % 10 = 3")
    world.sql("UPDATE whole SET v = 'w' WHERE id < 5")
    world.sql("OPTIMIZE TABLE whole FINAL")
    assert world.sql("SELECT count(*), count_if(v = 'w') FROM whole WHERE id > -9") == [(901, 5)]
    assert world.sql("SELECT count(*), max_by(v, id = 7) FROM keyed") == [(100, "new")]
    for table in ("whole", "keyed"):
        world.wait_whole(table)
    [(state, root, kind)] = world.sql("SELECT state, root, kind FROM system.storages WHERE name = 'r'")
    assert (state, root, kind) == ("ok", "replicas://r", "replicas")
    assert world.sql("SELECT DISTINCT state, total_replicas, active_replicas, quorum FROM system.replicas") == [
        ("ok", 3, 3, 2)
    ]


def test_a_replica_that_is_away_holds_up_nobody_and_catches_up(world: World) -> None:
    make(world, "away")
    port = int(world.store.endpoint.rpartition(":")[2])
    world.store.kill()
    try:
        for number in range(3):
            world.sql(f"INSERT INTO away VALUES ({2000 + number}, 'x')")
        world.sql("DELETE FROM away WHERE id < 10")
        assert world.sql("SELECT count(*) FROM away WHERE id >= 0") == [(993,)]
        assert world.queue("away") >= 4
        [(state, active)] = world.sql(
            "SELECT state, active_replicas FROM system.replicas WHERE table = 'away' AND replica_num = 2"
        )
        assert (state, active) == ("away", 2)
        with pytest.raises(TilthError) as caught:
            world.sql("INSERT INTO away SETTINGS insert_quorum = 3 VALUES (9, 'x')")
        assert caught.value.code == "QUORUM_NOT_MET"
    finally:
        world.store.start(port)
    world.wait_whole("away")
    assert world.sql("SELECT count(*) FROM away WHERE id >= 0") == [(993,)]


def test_a_replica_that_hangs_holds_up_one_file_for_a_short_time(world: World) -> None:
    make(world, "hangs")
    world.store.pause()
    try:
        for number in range(5):
            world.sql(f"INSERT INTO hangs VALUES ({2000 + number}, 'x')")
        assert world.sql("SELECT count(*) FROM hangs WHERE id >= 0") == [(1005,)]
        wait_until(lambda: world.queue("hangs") > 0, "missing copies to be noted")
    finally:
        world.store.go_on()
    world.wait_whole("hangs")


@pytest.mark.parametrize("replica", cases([0, 2]))
def test_a_wrong_copy_and_a_lost_one_are_made_anew(world: World, replica: int) -> None:
    name = f"wrong_{replica}"
    make(world, name)
    world.sql(f"INSERT INTO {name} SELECT id + 5000, 'w' FROM range(1000)")
    folder = world.data(name)[replica]
    one, other, *_ = sorted(folder.glob("*.parquet"))
    content = bytearray(one.read_bytes())
    content[len(content) // 2] ^= 0xFF
    one.write_bytes(bytes(content))
    other.unlink()
    # Found by a query, or by the scrub: whoever comes first.
    assert world.sql(f"SELECT count(*), min(v), max(v) FROM {name} WHERE id >= 0") == [(2000, "v", "w")]
    rows = world.node.connection.sql(f"SYSTEM SCRUB {name}")
    assert all(row[rows.names.index("ok")] for row in rows.rows), rows.rows
    world.wait_whole(name)
    assert all(row[2] for row in world.sql(f"SYSTEM VERIFY {name}"))


def test_a_replica_that_has_lost_everything_is_filled_on_demand_only(world: World) -> None:
    make(world, "lost")
    world.wait_whole("lost")
    one = world.folders[0]
    shutil.rmtree(one)
    one.mkdir()
    state = "SELECT state FROM system.replicas WHERE table = 'lost' AND replica_num = 0"
    wait_until(lambda: world.sql(state) == [("away",)], "the loss to be seen")
    world.sql("INSERT INTO lost VALUES (2000, 'x')")
    assert world.sql("SELECT count(*) FROM lost WHERE id >= 0") == [(1001,)]
    # It may be a disk that is not mounted.
    assert list(one.iterdir()) == []
    world.sql(f"ALTER STORAGE r RESTORE REPLICA '{one}'")
    wait_until(lambda: world.sql(state) == [("ok",)], "the replica to be filled")
    world.wait_whole("lost")
    for table in ("whole", "keyed", "away", "hangs"):
        world.wait_whole(table)


@pytest.mark.long
def test_files_that_go_while_a_replica_is_away_go_there_too(world: World) -> None:
    make(world, "goes")
    world.wait_whole("goes")
    port = int(world.store.endpoint.rpartition(":")[2])
    world.store.kill()
    try:
        world.sql("INSERT INTO goes VALUES (2000, 'x')")
        world.sql("OPTIMIZE TABLE goes FINAL")
        time.sleep(2)
    finally:
        world.store.start(port)
    wait_until(lambda: all(len(names) == 1 for names in world.files("goes")), "old files to go everywhere")
    world.wait_whole("goes")


def test_what_is_wrong_is_refused_by_name(world: World) -> None:
    for text, code in (
        ("CREATE STORAGE s REPLICAS ('/nowhere/a', '/nowhere/b')", "BAD_STORE"),
        (f"CREATE STORAGE s REPLICAS ('{world.folders[0]}')", "BAD_STORE"),
        (f"CREATE STORAGE s REPLICAS ('{world.folders[0]}x', '{world.folders[0]}x')", "BAD_STORE"),
        (f"CREATE STORAGE s REPLICAS ('{world.folders[0]}x', '{world.folders[0]}y') QUORUM 3", "BAD_QUORUM"),
        (f"CREATE STORAGE s REPLICAS ('{world.folders[0]}', '{world.folders[0]}y')", "STORAGE_EXISTS"),
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
        (f"ALTER STORAGE r ADD REPLICA '{world.folders[0]}'", "STORAGE_EXISTS"),
        (f"ALTER STORAGE r REPLACE REPLICA '{world.folders[0]}x' WITH '{world.folders[0]}y'", "BAD_STORE"),
        (f"ALTER STORAGE r REPLACE REPLICA '{world.folders[0]}' WITH '{world.folders[1]}'", "STORAGE_EXISTS"),
    ):
        with pytest.raises(TilthError) as caught:
            world.sql(text)
        assert caught.value.code == code, text
    [(made,)] = world.sql("SHOW CREATE STORAGE r")
    assert "QUORUM 2" in str(made)
    assert "secret-of" not in str(made)


def test_a_replica_gives_way_to_another_and_one_is_added_under_load(world: World) -> None:
    """The last one: it changes the storage of all. Rows come in all the time, by work that began before, too."""
    make(world, "moved")
    one, two = world.folders
    four, five = (one.parent / name for name in ("four", "five"))
    over = threading.Event()
    sent: list[int] = []

    def insert() -> None:
        with closing(tilth.connect(world.node.url)) as connection:
            while not over.is_set():
                connection.sql(f"INSERT INTO moved VALUES ({5000 + len(sent)}, 'y')")
                sent.append(1)

    thread = threading.Thread(target=insert)
    thread.start()
    try:
        wait_until(lambda: len(sent) > 3, "the first rows")
        world.sql(f"ALTER STORAGE r REPLACE REPLICA '{two}' WITH '{four}'")
        world.sql(f"ALTER STORAGE r ADD REPLICA '{five}'")
        wait_until(lambda: len(sent) > 30, "rows beside it")
        assert world.sql("SELECT count(*) FROM moved WHERE id < 5000") == [(1000,)]
    finally:
        over.set()
        thread.join()
    # Nobody uses the old location any more.
    shutil.rmtree(two)
    state = "SELECT DISTINCT state, total_replicas, quorum FROM system.replicas"
    wait_until(lambda: world.sql(state) == [("ok", 4, 2)], "all replicas to be whole")
    now = replace(world, folders=(one, four))
    for table in ("moved", "whole", "keyed", "away"):
        now.wait_whole(table)
        [(uuid,)] = world.sql(f"SELECT uuid FROM system.tables WHERE name = '{table}'")
        assert {path.name for path in (five / f"{uuid}/data").iterdir()} >= now.files(table)[0]
    assert world.sql("SELECT count(*) FROM moved WHERE id >= 5000") == [(len(sent),)]
    world.node.kill()
    world.node.start()
    world.node.wait_ready()
    assert world.sql(state) == [("ok", 4, 2)]
    assert world.sql("SELECT count(*) FROM moved WHERE id >= 5000") == [(len(sent),)]
