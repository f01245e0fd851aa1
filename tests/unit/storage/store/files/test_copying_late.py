"""Dropped copies in a bucket that answers late: nothing that their threads still do affects the copy that was made
meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.unit.storage.bucket_replicas import IN_BUCKET, root_with_bucket
from tilth.model.part import DataFile
from tilth.storage import Folder, make_copy, read_copies
from tilth.storage.errors import QuorumError, StoreBusyError
from tilth.storage.store.backends import objects
from tilth.storage.store.replicas import replica as replica_times
from tilth.storage.store.root import StoreRoot
from tilth.storage.store.stores import store_of
from tilth.testing.bucket import FakeBucket

TABLE = "t0"
NAME = "1-0.0-0.parquet"
#: More than an object store sends in one piece.
BYTES = 20 << 20
SECONDS_MAX = 30.0


class Late:
    """Patch by which the second piece of the first upload waits for `go_on`, and then fails. Once it waits, time limits
    are those of `seconds`: a machine that is merely slow reaches it too.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
        self.is_reached, self.may_go_on = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._pieces = 0
        send = objects._Upload.send

        def late(upload: objects._Upload, held: bytes) -> None:
            self._pieces += 1
            if self._pieces == 2:
                self._threads.append(threading.current_thread())
                for name, limit in seconds.items():
                    monkeypatch.setattr(replica_times, name, limit)
                self.is_reached.set()
                assert self.may_go_on.wait(SECONDS_MAX)
                raise StoreBusyError(file=NAME, because="no answer")
            send(upload, held)

        monkeypatch.setattr(objects._Upload, "send", late)

    def go_on(self) -> None:
        """Let the piece continue, and wait for the end of its thread."""
        self.may_go_on.set()
        for thread in self._threads:
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreRoot]:
    """Two folders and a bucket, of which two make a quorum, none of them late but for `Late`."""
    for name in ("STRAGGLER_SECONDS", "SLOW_SECONDS"):
        monkeypatch.setattr(replica_times, name, SECONDS_MAX)
    monkeypatch.setenv("TILTH_TEST_KEY", "tilthkey")
    with FakeBucket() as bucket:
        yield root_with_bucket(tmp_path, bucket, TABLE)


def written(root: StoreRoot, late: Late | None = None) -> DataFile:
    """Write a file to a quorum of replicas, ended when `late` is reached; return it as its commit stores it."""
    file = store_of(root).create(f"{TABLE}/data/{NAME}")
    content = os.urandom(BYTES)
    for start in range(0, BYTES, 1 << 20):
        file.write(content[start : start + (1 << 20)])
    assert late is None or late.is_reached.wait(SECONDS_MAX)
    return msgspec.structs.replace(file.finish(fsync=False), copies=None)


def test_a_copy_that_its_writer_has_left_out_is_given_up_without_its_name(
    root: StoreRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, folder = Late(monkeypatch, STRAGGLER_SECONDS=0.2), Folder(root, f"{TABLE}/data")
    file = written(root, late)
    assert make_copy(folder, file, IN_BUCKET) == BYTES
    late.go_on()
    assert read_copies(folder, file).wrong == {}


def test_a_copy_that_is_made_again_is_not_given_up_by_the_first_attempt(
    root: StoreRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(root, f"{TABLE}/data")
    file = written(root)
    store_of(root.replicas[IN_BUCKET]).remove([folder.key(NAME)]).check()
    with monkeypatch.context() as patched:
        late = Late(patched, HUNG_SECONDS=0.5, STRAGGLER_SECONDS=0.2)
        with pytest.raises(QuorumError):
            make_copy(folder, file, IN_BUCKET)
    assert late.is_reached.is_set()
    assert make_copy(folder, file, IN_BUCKET) == BYTES
    late.go_on()
    assert read_copies(folder, file).wrong == {}


def test_the_name_of_a_file_that_is_given_up_as_a_whole_stays_taken(root: StoreRoot) -> None:
    """The removal of an attempt's files goes through their numbers up to the first that is free."""
    file = store_of(root).create(f"{TABLE}/data/{NAME}")
    file.write(os.urandom(BYTES))
    file.give_up()
    assert store_of(root).exist([f"{TABLE}/data/{NAME}"]) == [True]
    assert all(store_of(each).exist([f"{TABLE}/data/{NAME}"]) == [True] for each in root.replicas)
