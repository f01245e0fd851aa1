"""An object store that throttles, hangs, loses answers and cuts connections: nothing is half done, nothing is doubled,
every error has its kind and names the file, and none shows a secret.

Over a fake bucket that counts requests; its client may wait for a second where a real one waits for thirty.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest

from tests.bucket_roots import BUCKET, KEY_VARIABLE, SECRET_VARIABLE, bucket_root
from tests.integration.storage.store_locations import Location
from tests.integration.storage.test_store_behaviour import layout_in, rows_of, txn_of
from tests.long import cases
from tilth.base.errors import ErrorKind, TilthError
from tilth.model.part import DataFile
from tilth.storage import (
    FilesLeftError,
    clean_transaction,
    drop_table_folder,
    read_part,
    remove_data,
    write_filter,
    write_parts,
)
from tilth.storage.errors import StoreAwayError, StoreBusyError, StoreRefusedError
from tilth.storage.store.backends import backend
from tilth.storage.store.backends.buckets import ObjectTimes
from tilth.storage.store.backends.objects import PUT_TRIES_MAX, ObjectStore
from tilth.storage.store.root import StoreRoot, parse_root
from tilth.testing import BucketFault, FakeBucket
from tools.s3server import SECRET, S3Server

pytestmark = pytest.mark.integration

QUICK = ObjectTimes(connect_seconds=1.0, request_seconds=1.0, retries_max=1, retry_seconds=3.0)
#: A connection that is kept may have ended with the fault: a second try meets that, on a busy machine.
PATIENT = ObjectTimes(connect_seconds=1.0, request_seconds=1.0, retries_max=4, retry_seconds=15.0)
MIB = 1 << 20
#: Faults whose request was never performed when the client gives up.
UNDONE = (BucketFault.THROTTLED, BucketFault.SILENT, BucketFault.REQUEST_CUT)


@pytest.fixture
def bucket() -> Iterator[FakeBucket]:
    with FakeBucket() as bucket:
        yield bucket


@pytest.fixture
def location(bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch) -> Location:
    monkeypatch.setattr(backend, "_new_store", lambda root: ObjectStore(root, QUICK))
    return Location(bucket_root(bucket.endpoint))


def write(store: ObjectStore, path: str, *pieces: bytes) -> int:
    file = store.create(path)
    for piece in pieces:
        file.write(piece)
    return file.finish(fsync=True).checksum


def error_of(call: Callable[[], object]) -> TilthError:
    with pytest.raises(TilthError) as raised:
        call()
    shown: BaseException | None = raised.value
    while shown is not None:
        assert SECRET not in f"{shown!r} {shown}"
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    return raised.value


@pytest.mark.parametrize("fault", BucketFault)
@pytest.mark.parametrize("times", cases([2, 1]))
def test_a_fault_that_passes_is_not_seen(
    bucket: FakeBucket, location: Location, fault: BucketFault, times: int
) -> None:
    store = ObjectStore(location.root, PATIENT)
    bucket.plan(*[fault] * times)
    assert write(store, "t/data/a", b"abc") == zlib.crc32(b"abc")
    bucket.forget_plan()
    assert list(bucket.objects.values()) == [b"abc"]
    if times == 1:
        bucket.plan(fault)
        assert store.read("t/data/a", size=3).to_pybytes() == b"abc"


@pytest.mark.parametrize("fault", UNDONE)
def test_a_fault_that_lasts_is_one_to_try_again_after(
    bucket: FakeBucket, location: Location, fault: BucketFault
) -> None:
    store = ObjectStore(location.root, QUICK)
    write(store, "t/data/a", b"abc")
    calls = (
        lambda: write(store, "t/data/b", b"def"),
        lambda: store.read("t/data/a"),
        lambda: store.open("t/data/a"),
        lambda: store.remove(["t/data/a"]).check(),
        lambda: store.size("t/data/a"),
    )
    bucket.plan(*[fault] * 50 * len(calls))
    # All at once: each waits for its time.
    with ThreadPoolExecutor(len(calls)) as pool:
        errors = list(pool.map(error_of, calls))
    bucket.forget_plan()
    for error in errors:
        assert (type(error), error.kind) == (StoreBusyError, ErrorKind.RETRY)
        assert error.facts["file"].startswith(f"{location.root.uri}/t/data/")
    assert list(bucket.objects.values()) == [b"abc"]


def test_an_answer_that_was_lost_doubles_nothing_and_is_no_clash(bucket: FakeBucket, location: Location) -> None:
    store = ObjectStore(location.root, QUICK)
    bucket.plan(*[BucketFault.ANSWER_LOST] * PUT_TRIES_MAX)
    write(store, "t/data/a", b"abc")
    bucket.forget_plan()
    bucket.plan(BucketFault.ANSWER_LOST)
    with pytest.raises(FileExistsError):
        write(store, "t/data/a", b"other")
    bucket.forget_plan()
    bucket.plan(BucketFault.ANSWER_LOST)
    store.remove(["t/data/a"])
    assert bucket.objects == {}


def test_a_large_file_whose_pieces_fail_is_whole_or_not_there(bucket: FakeBucket, location: Location) -> None:
    store = ObjectStore(location.root, QUICK)
    pieces = [os.urandom(9 * MIB) for _ in range(3)]
    bucket.plan(None, BucketFault.THROTTLED, None, BucketFault.THROTTLED)
    write(store, "t/data/a", *pieces)
    bucket.forget_plan()
    assert list(bucket.objects.values()) == [b"".join(pieces)]
    file = store.create("t/data/b")
    file.write(pieces[0])
    bucket.plan(*[BucketFault.THROTTLED] * 100)
    error_of(lambda: ([file.write(piece) for piece in pieces * 5], file.finish(fsync=True)))
    file.give_up()
    bucket.forget_plan()
    assert store.exist(["t/data/b"]) == [False]


def test_bytes_that_were_cut_on_the_way_are_never_taken_for_the_file(bucket: FakeBucket, location: Location) -> None:
    layout = layout_in(location)
    (part,) = write_parts(layout, rows_of(1000), txn=1, task=0, attempt=0)
    for faults in range(1, 8):
        bucket.plan(*[BucketFault.ANSWER_CUT] * faults)
        # No other error, above all none of damage.
        with suppress(StoreBusyError):
            assert read_part(location.folder, part.file)["k"].to_pylist() == list(range(1000))
        bucket.forget_plan()


def test_a_part_on_a_bucket_that_is_away_is_not_damaged(bucket: FakeBucket, location: Location) -> None:
    layout = layout_in(location)
    (part,) = write_parts(layout, rows_of(1000), txn=1, task=0, attempt=0)
    bucket.plan(*[BucketFault.THROTTLED] * 50)
    assert isinstance(error_of(lambda: read_part(location.folder, part.file)), StoreBusyError)
    bucket.forget_plan()
    assert read_part(location.folder, part.file).num_rows == 1000


def changed(root: StoreRoot, old: str, new: str) -> ObjectStore:
    return ObjectStore(parse_root(root.text.replace(old, new)), QUICK)


def test_what_is_wrong_with_a_store_is_reported_without_a_secret(
    bucket: FakeBucket, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_bucket = changed(location.root, "s3://tilth/", "s3://others/")
    no_server = changed(location.root, bucket.endpoint, "http://127.0.0.1:1")
    no_host = changed(location.root, bucket.endpoint, "http://nowhere.invalid")
    for store in (no_bucket, no_server, no_host):
        for call in (lambda: write(store, "t/data/a", b"abc"), lambda: store.read("t/data/a")):  # noqa: B023
            error = error_of(call)
            assert (type(error), error.kind) == (StoreAwayError, ErrorKind.UNAVAILABLE)
            assert error.facts["file"].endswith("/t/data/a")
    assert not no_bucket.has_folder("t/data")
    monkeypatch.setenv("TILTH_TEST_OTHER_KEY", "AKIAOTHER")
    stranger = changed(location.root, f"env:{KEY_VARIABLE}", "env:TILTH_TEST_OTHER_KEY")
    for call in (lambda: write(stranger, "t/data/a", b"abc"), lambda: stranger.read("t/data/a")):
        error = error_of(call)
        assert (type(error), error.facts["because"]) == (StoreRefusedError, "InvalidAccessKeyId")
        assert "AKIAOTHER" not in str(error)
    monkeypatch.delenv(SECRET_VARIABLE)
    assert SECRET_VARIABLE in str(error_of(lambda: ObjectStore(location.root)))


def verbs(bucket: FakeBucket) -> Counter[str]:
    return Counter(request.verb for request in bucket.requests())


def test_requests_are_as_few_as_files(bucket: FakeBucket, location: Location) -> None:
    layout = layout_in(location, unique_key=("k",))
    (part,) = write_parts(layout, rows_of(1000), txn=1, task=0, attempt=0)
    assert verbs(bucket) == {"PUT": 1}
    read_part(location.folder, part.file)
    assert verbs(bucket) == {"GET": 1}
    write_filter(layout, part.file)
    assert verbs(bucket) == {"GET": 1, "PUT": 1}
    remove_data(location.root, "t", [part.file])
    assert (verbs(bucket), bucket.objects) == ({"REMOVE": 1}, {})
    for task in range(3):
        write_parts(layout, rows_of(10), txn=2, task=task, attempt=1)
    verbs(bucket)
    clean_transaction(location.root, txn_of(2, tasks=3))
    assert (verbs(bucket), bucket.objects) == ({"LIST": 1, "REMOVE": 1}, {})
    written = [write_parts(layout, rows_of(10), txn=3, task=0, attempt=attempt)[0].file.name for attempt in range(2)]
    verbs(bucket)
    clean_transaction(location.root, txn_of(3), keep={written[1]})
    left = [name.rpartition("/")[2] for name in bucket.objects]
    assert (verbs(bucket), left) == ({"LIST": 1, "REMOVE": 1}, [written[1]])


def test_files_that_come_behind_those_that_are_gone_are_found_in_a_bucket_too(
    bucket: FakeBucket, location: Location
) -> None:
    """A task that has written 20 files goes on with any number."""
    for numbers in (range(20), (20, 21), (57,)):
        for n in numbers:
            location.store.put(location.folder.key(f"1-0.0-{n}.arrow"), b"x")
        verbs(bucket)
        assert clean_transaction(location.root, txn_of(1)) == len(numbers)
        assert (verbs(bucket), bucket.objects) == ({"LIST": 1, "REMOVE": 1}, {})


def test_a_real_server_lists_the_names_of_one_transaction(s3_server: S3Server) -> None:
    root = bucket_root(s3_server.endpoint)
    store = ObjectStore(root)
    folder = s3_server.folder / "buckets" / BUCKET / root.prefix / "t" / "data"
    folder.mkdir(parents=True)
    own = [f"7-0.0-{n}.parquet" for n in range(1500)]
    for name in (*own, *(f"{txn}-0.0-{n}.parquet" for txn in (6, 70, 8) for n in range(700))):
        (folder / name).write_bytes(b"x")
    s3_server.requests()
    assert sorted(store.list_prefix("t/data/7-")) == sorted(f"t/data/{name}" for name in own)
    assert len(s3_server.requests()) == 2
    assert store.list_prefix("t/data/9-") == store.list_prefix("t/none/7-") == []


def test_a_real_server_gets_no_more_requests(s3_server: S3Server) -> None:
    store = ObjectStore(bucket_root(s3_server.endpoint))
    s3_server.requests()
    write(store, "t/data/a", b"abc")
    with store.open("t/data/a", size=3) as file:
        assert file.read() == b"abc"
    store.remove(["t/data/a", "t/data/b"])
    assert [verb for verb, _ in s3_server.requests()] == ["PUT", "GET", "POST"]


def test_two_thousand_files_go_with_few_requests(s3_server: S3Server) -> None:
    root = bucket_root(s3_server.endpoint)
    folder = s3_server.folder / "buckets" / BUCKET / root.prefix / "t" / "data"
    folder.mkdir(parents=True)
    files = [DataFile(name=f"7-0.0-{n}.parquet", size=1, checksum=0) for n in range(2000)]
    for file in files:
        for name in (file.name, file.name.replace("parquet", "filter")):
            (folder / name).write_bytes(b"x")
    (folder / "8-0.0-0.parquet").write_bytes(b"x")
    s3_server.requests()
    assert remove_data(root, "t", files, deleters=2) == {}
    # Each with its row map and its filter, whether they are there or not: three names a file, a thousand a request.
    assert Counter(verb for verb, _ in s3_server.requests()) == {"POST": 7}
    assert [path.name for path in folder.iterdir()] == ["8-0.0-0.parquet"]
    for file in files[:1500]:
        (folder / file.name).write_bytes(b"x")
    drop_table_folder(root, "t")
    assert Counter(verb for verb, _ in s3_server.requests()) == {"GET": 2, "POST": 2}
    assert not [path for path in folder.parent.rglob("*") if path.is_file()]


def test_what_nobody_may_remove_stays_with_its_reason_and_stops_no_other(
    bucket: FakeBucket, location: Location
) -> None:
    layout = layout_in(location)
    files = [write_parts(layout, rows_of(1), txn=1, task=0, attempt=0, first_n=n)[0].file for n in range(50)]
    kept = {f"{location.root.prefix}/{location.folder.key(files[n].name)}" for n in (3, 40)}
    bucket.kept.update(kept)
    failed = remove_data(location.root, "t", files)
    assert {files[n].name for n in (3, 40)} == failed.keys()
    assert bucket.objects.keys() == kept
    for name, error in failed.items():
        assert isinstance(error, StoreRefusedError)
        assert error.facts["file"] == location.folder.uri(name)
        assert "tilthkey" not in str(error)


def test_what_stays_in_a_bucket_is_found_by_the_next_removal(bucket: FakeBucket, location: Location) -> None:
    layout = layout_in(location)
    names = [write_parts(layout, rows_of(1), txn=1, task=0, attempt=0, first_n=n)[0].file.name for n in range(50)]
    kept = {f"{location.root.prefix}/{location.folder.key(names[n])}" for n in (3, 40)}
    bucket.kept.update(kept)
    with pytest.raises(FilesLeftError) as caught:
        clean_transaction(location.root, txn_of(1))
    assert (caught.value.facts["files"], set(bucket.objects)) == ("2", kept)
    assert not caught.value.left
    bucket.kept.clear()
    assert clean_transaction(location.root, txn_of(1)) == 2
    assert bucket.objects == {}


def test_a_store_that_is_away_is_called_once_for_all(bucket: FakeBucket, location: Location) -> None:
    away = ObjectStore(parse_root(location.root.text.replace(bucket.endpoint, "http://127.0.0.1:1")), QUICK)
    paths = [f"t/data/{n}" for n in range(5000)]
    removal = away.remove(paths)
    assert (removal.gone, list(removal.failed)) == ([], paths)
    assert {type(error) for error in removal.failed.values()} == {StoreAwayError}
    store = ObjectStore(location.root, QUICK)
    write(store, paths[0], b"x")
    bucket.requests()
    bucket.plan(None, *[BucketFault.THROTTLED] * 50)
    removal = store.remove(paths)
    bucket.forget_plan()
    assert (removal.gone, list(removal.failed)) == (paths[:1000], paths[1000:])
    assert verbs(bucket)["REMOVE"] <= 6
    assert bucket.objects == {}


def test_of_a_large_part_only_what_is_needed_is_read(bucket: FakeBucket, location: Location) -> None:
    layout = layout_in(location)
    rows = pa.table({"k": pa.array(range(100_000), pa.int64()), "s": [os.urandom(100).hex() for _ in range(100_000)]})
    (part,) = write_parts(layout, rows, txn=1, task=0, attempt=0)
    assert part.file.size > 10 * MIB
    bucket.requests()
    assert read_part(location.folder, part.file, ["k"]).num_rows == 100_000
    # A thousand small row groups: neighbours come with one request.
    assert verbs(bucket)["GET"] < 2 + part.file.size // MIB


FORKED = """
import os, sys
from tilth.base.errors import TilthError
from tilth.storage.store.root import parse_root
from tilth.storage.store.stores import store_of
root = parse_root(sys.argv[1])
if sys.argv[2] == "used":
    store_of(root).put("a", b"x")
child = os.fork()
if not child:
    try:
        store_of(root).put("b", b"x")
        os._exit(0)
    except TilthError as error:
        os._exit(7 if error.code == "STORE_FORKED" else 1)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize(("how", "status"), [("fresh", 0), ("used", 7)])
def test_a_fork_of_a_process_that_used_a_store_is_refused_and_does_not_hang(
    bucket: FakeBucket, location: Location, how: str, status: int
) -> None:
    done = subprocess.run([sys.executable, "-c", FORKED, location.root.text, how], timeout=60, check=False)
    assert done.returncode == status
