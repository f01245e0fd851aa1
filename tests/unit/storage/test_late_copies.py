"""Copies whose writer is not waited for any more, in a bucket that answers late: whatever their threads still do, it
does nothing to the copy that somebody else has made meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tilth.model.part import DataFile
from tilth.storage import Folder, check_copies, make_copy
from tilth.storage.errors import QuorumError, StoreBusyError
from tilth.storage.store import objects
from tilth.storage.store import replica as replica_times
from tilth.storage.store.place import claim_place
from tilth.storage.store.replica import replicas_of
from tilth.storage.store.root import StoreRoot, parse_root, replicated_root
from tilth.storage.store.stores import store_of
from tilth.testing.bucket import FakeBucket

TABLE = "t0"
NAME = "1-0.0-0.parquet"
IN_BUCKET = 2
#: More than an object store sends in one piece.
BYTES = 20 << 20
SECONDS_MAX = 30.0


class Late:
    """The second piece of the first upload waits until it is let go, and fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_reached, self.may_go_on = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._pieces = 0
        send = objects._Upload.send

        def late(upload: objects._Upload, held: bytes) -> None:
            self._pieces += 1
            if self._pieces == 2:
                self._threads.append(threading.current_thread())
                self.is_reached.set()
                assert self.may_go_on.wait(SECONDS_MAX)
                raise StoreBusyError(file=NAME, because="no answer")
            send(upload, held)

        monkeypatch.setattr(objects._Upload, "send", late)

    def go_on(self) -> None:
        """Let the piece go on, and wait for the end of its thread."""
        self.may_go_on.set()
        for thread in self._threads:
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreRoot]:
    """Two folders and a bucket, of which two make a quorum."""
    monkeypatch.setattr(replica_times, "STRAGGLER_SECONDS", 0.2)
    monkeypatch.setenv("TILTH_TEST_KEY", "tilthkey")
    with FakeBucket() as bucket:
        options = f"endpoint={bucket.endpoint}&region=eu-west-1&key=env:TILTH_TEST_KEY&secret=env:TILTH_TEST_KEY"
        places = [parse_root(f"{tmp_path}/{name}") for name in ("one", "two")]
        places.append(parse_root(f"s3://tilth/p?{options}"))
        for each in places:
            claim_place(each, "owner")
        root = msgspec.structs.replace(replicated_root("r", places, 2), replica_ids=("a", "b", "c"))
        for replica in replicas_of(root):
            replica.give_sign(TABLE)
        yield root


def written(root: StoreRoot) -> DataFile:
    """Write a file in a quorum, as its commit keeps it."""
    file = store_of(root).create(f"{TABLE}/data/{NAME}")
    content = os.urandom(BYTES)
    for start in range(0, BYTES, 1 << 20):
        file.write(content[start : start + (1 << 20)])
    return msgspec.structs.replace(file.finish(fsync=False), copies=None)


def test_a_copy_that_its_writer_has_left_out_is_given_up_without_its_name(
    root: StoreRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, folder = Late(monkeypatch), Folder(root, f"{TABLE}/data")
    file = written(root)
    assert late.is_reached.is_set()
    assert make_copy(folder, file, IN_BUCKET) == BYTES
    late.go_on()
    assert check_copies(folder, file).wrong == {}


def test_a_copy_that_is_made_again_is_not_given_up_by_the_first_attempt(
    root: StoreRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(root, f"{TABLE}/data")
    file = written(root)
    store_of(root.replicas[IN_BUCKET]).remove([folder.key(NAME)]).check()
    late = Late(monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(replica_times, "HUNG_SECONDS", 0.5)
        with pytest.raises(QuorumError):
            make_copy(folder, file, IN_BUCKET)
    assert late.is_reached.is_set()
    assert make_copy(folder, file, IN_BUCKET) == BYTES
    late.go_on()
    assert check_copies(folder, file).wrong == {}


def test_the_name_of_a_file_that_is_given_up_as_a_whole_stays_taken(root: StoreRoot) -> None:
    """Whoever removes what an attempt has left goes through its numbers up to the first that is free."""
    file = store_of(root).create(f"{TABLE}/data/{NAME}")
    file.write(os.urandom(BYTES))
    file.give_up()
    assert store_of(root).exist([f"{TABLE}/data/{NAME}"]) == [True]
    assert all(store_of(each).exist([f"{TABLE}/data/{NAME}"]) == [True] for each in root.replicas)
