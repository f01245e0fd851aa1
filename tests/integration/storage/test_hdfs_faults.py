"""An HDFS whose NameNode hangs or is gone, whose DataNode dies in the middle of a write, whose disks change bytes:
nothing is half done, nothing is lost, every error has its kind and names the file.

The client waits for seconds where a real one waits for thirty.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.storage.store_locations import Location
from tests.integration.storage.test_store_behaviour import layout_in, rows_of, txn_of
from tilth.base.errors import ErrorKind, TilthError
from tilth.storage import PartFileNotFoundError, clean_transaction, read_part, write_parts
from tilth.storage.errors import StoreAwayError, StoreBusyError, StoreRefusedError
from tilth.storage.store import stores
from tilth.storage.store.backends.hdfs import HdfsStore, HdfsTimes
from tilth.storage.store.files.files import make_folder, read_verified
from tilth.storage.store.root import parse_root
from tools.hdfs_cluster import HdfsCluster

pytestmark = pytest.mark.integration

QUICK = HdfsTimes(connect_seconds=1.0, request_seconds=4.0)
MIB = 1 << 20


@pytest.fixture
def cluster(hdfs: HdfsCluster) -> Iterator[HdfsCluster]:
    """The cluster that the tests of this process share; each leaves both processes running."""
    yield hdfs
    hdfs.continue_name_node()


@pytest.fixture
def location(cluster: HdfsCluster, monkeypatch: pytest.MonkeyPatch) -> Location:
    kept: dict[object, HdfsStore] = {}
    monkeypatch.setattr(stores, "store_of", lambda root: kept.setdefault(root, HdfsStore(root, QUICK)))
    monkeypatch.setattr("tilth.storage.store.files.files.store_of", stores.store_of)
    location = Location(parse_root(f"{cluster.address}/{uuid4().hex}"))
    make_folder(location.folder, fsync=True)
    return location


def store_at(location: Location) -> HdfsStore:
    return HdfsStore(location.root, QUICK)


def write(store: HdfsStore, path: str, *pieces: bytes) -> None:
    file = store.create(path)
    for piece in pieces:
        file.write(piece)
    file.finish(fsync=True)


def error_of(call: Callable[[], object]) -> TilthError:
    with pytest.raises(TilthError) as raised:
        call()
    return raised.value


def requests(store: HdfsStore) -> list[Callable[[], object]]:
    return [
        lambda: write(store, "t/data/new", b"abc"),
        lambda: store.read("t/data/a"),
        lambda: store.size("t/data/a"),
        lambda: store.remove(["t/data/a"]).check(),
    ]


def test_a_name_node_that_hangs_is_one_to_try_again_after(cluster: HdfsCluster, location: Location) -> None:
    store = store_at(location)
    write(store, "t/data/a", b"abc")
    cluster.pause_name_node()
    try:
        for call in requests(store)[1:3]:
            error = error_of(call)
            assert (type(error), error.kind) == (StoreBusyError, ErrorKind.RETRY)
            assert error.facts["file"] == location.folder.uri("a")
    finally:
        cluster.continue_name_node()
    assert store.read("t/data/a").to_pybytes() == b"abc"


@pytest.mark.long
def test_answers_that_were_lost_double_nothing_and_are_no_clash(cluster: HdfsCluster, location: Location) -> None:
    store = store_at(location)
    write(store, "t/data/b", b"abc")
    # The client of this name has read what it needs to know: what it sends now is the one request.
    write(store, "t/data/a", b"abc")
    store.remove(["t/data/a"]).check()
    cluster.pause_name_node()
    try:
        assert isinstance(error_of(lambda: store.create("t/data/a")), StoreBusyError)
    finally:
        cluster.continue_name_node()
    # The NameNode now does the request.
    assert any(store.exist(["t/data/a"])[0] or threading.Event().wait(0.1) for _ in range(100))
    file = store.create("t/data/a")
    with pytest.raises(FileExistsError):
        store.create("t/data/a")
    file.write(b"abc")
    cluster.pause_name_node()
    timer = threading.Timer(QUICK.request_seconds + 1, cluster.continue_name_node)
    timer.start()
    try:
        assert file.finish(fsync=True).size == 3
    finally:
        timer.cancel()
        cluster.continue_name_node()
    assert store.read("t/data/a", size=3).to_pybytes() == b"abc"
    with pytest.raises(FileExistsError):
        store.create("t/data/a")


@pytest.mark.long
def test_a_name_node_that_is_gone_is_reported_and_found_again(cluster: HdfsCluster, location: Location) -> None:
    layout, store = layout_in(location), store_at(location)
    (part,) = write_parts(layout, rows_of(10), txn=1, task=0, attempt=0)
    write(store, "t/data/a", b"abc")
    cluster.name_node.kill()
    try:
        for call in requests(store):
            error = error_of(call)
            assert (type(error), error.kind) == (StoreAwayError, ErrorKind.UNAVAILABLE)
            assert error.facts["file"].startswith(f"{location.root}/t/data/")
        assert not store.has_folder("t/data")
        # A read of rows is no damage either.
        assert isinstance(error_of(lambda: read_part(location.folder, part.file)), StoreAwayError)
    finally:
        cluster.start_name_node()
    assert store.read("t/data/a").to_pybytes() == b"abc"
    assert read_part(location.folder, part.file).num_rows == 10
    write(store, "t/data/new", b"abc")


def test_a_data_node_that_dies_in_the_middle_of_a_write_leaves_a_name_that_goes(
    cluster: HdfsCluster, location: Location
) -> None:
    layout, store = layout_in(location), store_at(location)
    (part,) = write_parts(layout, rows_of(10), txn=1, task=0, attempt=0)
    file = store.create("t/data/2-0.0-0.parquet")
    file.write(os.urandom(9 * MIB))
    cluster.data_node.kill()
    try:
        error = error_of(lambda: ([file.write(os.urandom(9 * MIB)) for _ in range(20)], file.finish(fsync=True)))
        assert (type(error), error.facts["file"]) == (StoreBusyError, location.folder.uri("2-0.0-0.parquet"))
        file.give_up()
        assert isinstance(error_of(lambda: read_verified(location.folder, part.file)), StoreBusyError)
    finally:
        cluster.start_data_node()
    assert store.exist(["t/data/2-0.0-0.parquet"]) == [True]
    clean_transaction(location.root, txn_of(2))
    assert store.exist(["t/data/2-0.0-0.parquet", location.folder.key(part.file.name)]) == [False, True]
    assert read_part(location.folder, part.file).num_rows == 10


KILLED = """
import os, sys
from tilth.storage.store.root import parse_root
from tilth.storage.store.stores import store_of
file = store_of(parse_root(sys.argv[1])).create("t/data/2-0.0-0.parquet")
file.write(b"x" * (9 << 20))
os.kill(os.getpid(), 9)
"""


@pytest.mark.long
def test_what_a_killed_writer_left_goes_by_name(cluster: HdfsCluster, location: Location) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, location.root.text], timeout=60, check=False)
    assert done.returncode == -9
    store = store_at(location)
    assert store.exist(["t/data/2-0.0-0.parquet"]) == [True]
    with pytest.raises(FileExistsError):
        store.create("t/data/2-0.0-0.parquet")
    clean_transaction(location.root, txn_of(2))
    assert store.exist(["t/data/2-0.0-0.parquet"]) == [False]


FREED = """
import sys
from tilth.storage.store.backends.hdfs import HdfsStore
from tilth.storage.store.root import parse_root
for _ in range(200):
    HdfsStore(parse_root(sys.argv[1])).exist([f"t/{name}" for name in range(40)])
"""


@pytest.mark.long
def test_stores_that_are_freed_while_answers_arrive_hang_nothing(location: Location) -> None:
    subprocess.run([sys.executable, "-c", FREED, location.root.text], timeout=60, check=True)


EXITING = """
import sys, threading
from tilth.storage.store.backends.hdfs import HdfsStore
from tilth.storage.store.root import parse_root
store = HdfsStore(parse_root(sys.argv[1]))
store.exist(["t/a"])
def call():
    while True:
        store.exist([f"t/{name}" for name in range(40)])
threading.excepthook = lambda _: None
for _ in range(4):
    threading.Thread(target=call, daemon=True).start()
threading.Event().wait(0.3)
"""


@pytest.mark.long
def test_processes_that_exit_while_answers_arrive_end_well(location: Location) -> None:
    started = [subprocess.Popen([sys.executable, "-c", EXITING, location.root.text]) for _ in range(10)]
    assert [each.wait(60) for each in started] == [0] * 10


def test_a_file_that_was_removed_while_it_was_written_is_not_there(cluster: HdfsCluster, location: Location) -> None:
    store = store_at(location)
    for size in (3, 9 * MIB):
        file = store.create("t/data/a")
        file.write(b"x" * size)
        store.remove_folder("t")
        assert isinstance(error_of(lambda: file.finish(fsync=True)), StoreAwayError | StoreBusyError)  # noqa: B023
        assert store.exist(["t/data/a"]) == [False]
        make_folder(location.folder, fsync=True)


def test_a_missing_file_is_lost_and_a_missing_folder_is_away(cluster: HdfsCluster, location: Location) -> None:
    (part,) = write_parts(layout_in(location), rows_of(10), txn=1, task=0, attempt=0)
    store = store_at(location)
    store.remove([location.folder.key(part.file.name)])
    with pytest.raises(PartFileNotFoundError):
        read_part(location.folder, part.file)
    store.remove_folder("t")
    with pytest.raises(StoreAwayError):
        read_part(location.folder, part.file)


def test_bytes_that_a_disk_changed_are_never_taken_for_the_file(cluster: HdfsCluster, location: Location) -> None:
    before = {*cluster.folder.rglob("blk_*")}
    (part,) = write_parts(layout_in(location), rows_of(1000), txn=1, task=0, attempt=0)
    new = {*cluster.folder.rglob("blk_*")} - before
    blocks = [path for path in new if path.stat().st_size == part.file.size]
    assert len(blocks) == 1
    _flip(blocks[0])
    for call in (lambda: read_verified(location.folder, part.file), lambda: read_part(location.folder, part.file)):
        error = error_of(call)
        # Damaged or away: the client does not report it.
        assert (type(error), error.facts["because"]) == (StoreBusyError, "no DataNode gives these bytes")


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_addresses_and_users_that_are_wrong_are_reported(
    cluster: HdfsCluster, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address in ("hdfs://nowhere.invalid:8020/a", "hdfs://127.0.0.1:1/a", "hdfs://unknown_service/a"):
        error = error_of(lambda: HdfsStore(parse_root(address), QUICK).read("t/data/a"))  # noqa: B023
        assert (type(error), error.kind) == (StoreAwayError, ErrorKind.UNAVAILABLE)
        assert str(error.facts["file"]).startswith(address)
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    for call in (requests(store_at(location))[0], lambda: store_at(location).remove(["t/data/a"]).check()):
        error = error_of(call)
        assert (type(error), error.facts["because"]) == (StoreRefusedError, "AccessControlException")
