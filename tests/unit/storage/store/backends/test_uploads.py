"""Large objects that go up in pieces: what is left of those that are given up, and answers that are lost."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.bucket_roots import bucket_root, set_keys
from tilth.base.clock import SystemClock
from tilth.base.errors import TilthError
from tilth.storage.errors import StoreBusyError
from tilth.storage.store.backends.objects import ObjectStore
from tilth.storage.store.backends.uploads import Upload
from tilth.testing import BucketFault, FakeBucket

#: Size of a piece, in bytes.
PIECE = 1000


class Location:
    """A bucket and the store that writes into it."""

    def __init__(self, bucket: FakeBucket) -> None:
        self.bucket = bucket
        self.store = ObjectStore(bucket_root(bucket.endpoint, prefix="p"))

    def lose_the_last_answer(self, pieces: int) -> None:
        """Lose the answer to the request that ends an upload of so many pieces."""
        begun = [None, None]
        self.bucket.plan(*begun, *([None] * pieces), BucketFault.ANSWER_LOST)


@pytest.fixture
def location(monkeypatch: pytest.MonkeyPatch) -> Iterator[Location]:
    set_keys(monkeypatch)
    monkeypatch.setattr("tilth.storage.store.backends.objects.HELD_BYTES_MAX", PIECE)
    monkeypatch.setattr("tilth.storage.store.backends.streams.HELD_BYTES_MAX", PIECE)
    with FakeBucket() as bucket:
        yield Location(bucket)


def wait(is_so: Callable[[], bool], what: str) -> None:
    clock = SystemClock()
    began = clock.monotonic()
    while not is_so():
        assert clock.monotonic() - began < 20, f"no {what}"
        clock.wait(threading.Event(), 0.01)


def write_all(write: Callable[[bytes], object], pieces: Sequence[bytes]) -> None:
    for each in pieces:
        write(each)


def threads() -> int:
    return sum(each.name == "tilth-upload" for each in threading.enumerate())


def test_a_large_object_is_what_was_written(location: Location) -> None:
    data = bytes(range(256)) * 40
    file = location.store.create("t/a")
    for start in range(0, len(data), 700):
        file.write(data[start : start + 700])
    written = file.finish(fsync=True)
    assert (written.size, location.bucket.objects) == (len(data), {"p/t/a": data})
    assert location.bucket.uploads == 0
    wait(lambda: threads() == 0, "the end of its thread")


@pytest.mark.parametrize("how", ["give_up", "abandon", "dropped"])
def test_nothing_of_one_that_is_given_up_stays(location: Location, how: str) -> None:
    file = location.store.create("t/a")
    for _ in range(5):
        file.write(b"x" * PIECE)
    wait(lambda: location.bucket.uploads > 0, "an upload")
    match how:
        case "give_up":
            file.give_up()
        case "abandon":
            file.abandon()
    del file
    gc.collect()
    wait(lambda: location.bucket.uploads == 0 and threads() == 0, "its end")
    # A file that was given up keeps its name.
    assert location.bucket.objects == ({"p/t/a": b""} if how == "give_up" else {})


def test_a_lost_answer_to_the_end_of_an_upload_is_no_failure(location: Location) -> None:
    location.lose_the_last_answer(pieces=5)
    file = location.store.create("t/a")
    for _ in range(5):
        file.write(b"x" * PIECE)
    assert file.finish(fsync=True).size == 5 * PIECE
    assert location.bucket.objects == {"p/t/a": b"x" * 5 * PIECE}


def test_an_object_of_another_size_is_a_failure(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    location.lose_the_last_answer(pieces=5)
    file = location.store.create("t/a")
    for _ in range(5):
        file.write(b"x" * PIECE)
    monkeypatch.setattr(ObjectStore, "size", lambda *_: 4 * PIECE)
    with pytest.raises(TilthError):
        file.finish(fsync=True)


def test_an_error_of_the_store_is_raised_by_the_next_call_and_the_upload_ends(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.storage.store.backends.buckets.ObjectTimes.retries_max", 0)
    file = location.store.create("t/a")
    file.write(b"x" * PIECE * 2)
    wait(lambda: location.bucket.uploads > 0, "an upload")
    location.bucket.plan(*[BucketFault.THROTTLED] * 40)
    with pytest.raises(StoreBusyError):
        write_all(file.write, [b"x" * PIECE * 2] * 50)
    location.bucket.forget_plan()
    file.abandon()
    wait(lambda: threads() == 0, "the end of its thread")
    assert location.bucket.objects == {}


def test_a_slow_store_makes_the_writer_wait_and_no_more() -> None:
    taken: list[bytes] = []
    may_go_on = threading.Event()

    def put(pieces: Iterator[bytes]) -> None:
        may_go_on.wait(20)
        taken.extend(pieces)

    upload = Upload(put)
    upload.write(b"1")
    writer = threading.Thread(target=write_all, args=(upload.write, [b"2", b"3"]))
    writer.start()
    writer.join(0.2)
    assert writer.is_alive()
    may_go_on.set()
    writer.join(20)
    upload.close()
    assert taken == [b"1", b"2", b"3"]


def test_a_defect_of_the_client_is_raised_and_blocks_nobody() -> None:
    def put(_: Iterator[bytes]) -> None:
        raise SystemExit(3)

    upload = Upload(put)
    with pytest.raises(TilthError, match="SystemExit"):
        write_all(upload.write, [b"1"] * 3)
    with pytest.raises(TilthError, match="SystemExit"):
        upload.close()
    upload.give_up()
