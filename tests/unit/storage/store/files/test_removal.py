"""Names that the removal of a transaction's files tries in each replica of a storage: two folders and a bucket.

They are counted in the removals of the stores. The marker of the table is older than the transaction, except where a
test writes a newer one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.unit.storage.bucket_replicas import IN_BUCKET, root_with_bucket
from tilth.base.clock import SystemClock
from tilth.base.hybrid import pack
from tilth.model.txn import Txn, TxnOutput, TxnState
from tilth.storage import (
    clean_transaction,
    count_left,
    data_folder,
    replicas_of,
)
from tilth.storage.errors import FilesLeftError
from tilth.storage.store.backends.local import LocalStore
from tilth.storage.store.backends.objects import ObjectStore
from tilth.storage.store.files.files import new_file
from tilth.storage.store.protocol import Removal
from tilth.storage.store.replicas.replica import table_marker
from tilth.storage.store.stores import store_of
from tilth.testing import FakeBucket

TASKS = 50
HOUR_MS = 3_600_000


class Storage:
    """A storage with a table `t`, and the names that are removed in each replica."""

    def __init__(self, folder: Path, bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bucket = bucket
        self.root = root_with_bucket(folder, bucket, "t")
        self.tried: Counter[str] = Counter()
        self._watch(monkeypatch)

    def _watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        local, objects = LocalStore.remove, ObjectStore.remove

        def from_folder(store: LocalStore, paths: Sequence[str]) -> Removal:
            self.tried[Path(store._folder).name] += len(paths)
            return local(store, paths)

        def from_bucket(store: ObjectStore, paths: Sequence[str]) -> Removal:
            self.tried["bucket"] += len(paths)
            return objects(store, paths)

        monkeypatch.setattr(LocalStore, "remove", from_folder)
        monkeypatch.setattr(ObjectStore, "remove", from_bucket)

    def txn(self, *, quorum: int = 2, begun_ms: int = 0) -> Txn:
        outputs = (TxnOutput(table="t", tasks=TASKS, quorum=quorum),)
        txn = pack(begun_ms or SystemClock().now_ms() + HOUR_MS)
        return Txn(id=txn, actor="test", state=TxnState.ABORTED, fences=(), outputs=outputs, server="s")

    def write(self, txn: Txn, *names: str, without: int | None = None) -> None:
        """Write files of the transaction, in all replicas but one."""
        for name in names:
            new_file(data_folder(self.root, "t"), f"{txn.id}-{name}").finish(fsync=False)
            if without is not None:
                assert not store_of(self.root.replicas[without]).remove([f"t/data/{txn.id}-{name}"]).failed

    def left(self) -> list[int]:
        """Return the number of files in each replica."""
        return [sum("/data/" in each.path for each in store_of(location).files("t")) for location in self.root.replicas]


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    monkeypatch.setenv("TILTH_TEST_KEY", "tilthkey")
    with FakeBucket() as bucket:
        yield Storage(tmp_path, bucket, monkeypatch)


def test_a_transaction_of_fifty_tasks_tries_few_names(storage: Storage) -> None:
    """In the folders they are those of its files and the sidecars of the next part of each attempt, in the bucket those
    that it lists.
    """
    txn = storage.txn()
    storage.write(txn, *(f"{task}.0-0.parquet" for task in range(TASKS)))
    storage.tried.clear()
    storage.bucket.requests()
    assert clean_transaction(storage.root, txn) == TASKS
    attempts = TASKS * 8
    assert storage.tried == {
        "one": attempts * 2 + TASKS * 3,
        "two": attempts * 2 + TASKS * 3,
        "bucket": TASKS,
    }
    verbs = Counter(each.verb for each in storage.bucket.requests())
    assert verbs == {"LIST": 1, "REMOVE": 1}
    assert storage.left() == [0, 0, 0]
    # If the folders may not know all files, 16 names of each kind are tried in them.
    storage.tried.clear()
    assert clean_transaction(storage.root, storage.txn(quorum=1)) == 0
    assert storage.tried == {"one": attempts * (2 + 16 * 5), "two": attempts * (2 + 16 * 5)}


@pytest.mark.parametrize("without", [0, 1, 2])
def test_files_with_holes_in_a_replica_and_more_than_sixteen_go(storage: Storage, without: int) -> None:
    txn = storage.txn()
    storage.write(txn, *(f"3.1-{number}.arrow" for number in range(10)), without=without)
    storage.write(txn, *(f"3.1-{number}.arrow" for number in range(10, 40)))
    storage.write(txn, *(f"4.0-{number}.parquet" for number in range(20)), without=without)
    clean_transaction(storage.root, txn)
    assert storage.left() == [0, 0, 0]


def test_the_one_file_that_no_quorum_has_begun_goes_from_the_bucket(storage: Storage) -> None:
    txn = storage.txn()
    storage.write(txn, "3.0-0.parquet")
    for name in ("3.0-1.parquet", "5.7-0.arrow", "3.0-1.map"):
        store_of(storage.root.replicas[IN_BUCKET]).put(f"t/data/{txn.id}-{name}", b"x")
    clean_transaction(storage.root, txn)
    assert storage.left() == [0, 0, 0]


@pytest.mark.parametrize(
    "why", ["quorum of one", "a new folder", "another replica's folder", "a folder without a marker"]
)
def test_where_the_folders_may_not_know_all_files_sixteen_names_are_tried(storage: Storage, why: str) -> None:
    txn = storage.txn(quorum=1 if why == "quorum of one" else 2)
    folder = storage.root.replicas[0]
    match why:
        case "a new folder":
            # The transaction had begun before the folder was made.
            txn = storage.txn(begun_ms=SystemClock().now_ms() - HOUR_MS)
        case "another replica's folder":
            storage.root = msgspec.structs.replace(storage.root, replica_ids=("d", "b", "c"))
        case "a folder without a marker":
            store_of(folder).remove([table_marker("t")]).check()
            replicas_of(storage.root)[0].health.marked_tables.clear()
        case _:
            pass
    # The other folder was away while these were written, and the first one is empty.
    for number in range(12):
        store_of(storage.root.replicas[IN_BUCKET]).put(f"t/data/{txn.id}-3.0-{number}.arrow", b"x")
    clean_transaction(storage.root, txn)
    assert storage.left() == [0, 0, 0]


def test_what_the_bucket_refuses_goes_by_the_next_removal_although_no_folder_names_it(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn = storage.txn()
    storage.write(txn, *(f"3.0-{number}.arrow" for number in range(40)))
    storage.write(txn, "4.0-0.arrow")

    def failing(store: ObjectStore, paths: Sequence[str]) -> Removal:
        removal = Removal()
        refused = [path for path in paths if "-3.0-" in path]
        removal.fail(refused, PermissionError("no"))
        removal.gone = [path for path in paths if path not in removal.failed]
        return removal

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "remove", failing)
        with pytest.raises(FilesLeftError) as caught:
            clean_transaction(storage.root, txn)
    assert list(caught.value.left) == []
    assert storage.left()[:2] == [0, 0]
    clean_transaction(storage.root, txn)
    assert storage.left() == [0, 0, 0]


def test_what_an_attempt_writes_on_is_found_behind_what_is_gone(storage: Storage) -> None:
    txn = storage.txn()
    storage.write(txn, *(f"3.0-{number}.parquet" for number in range(20)))
    names = count_left(storage.root, txn)
    names.remove()
    storage.write(txn, *(f"3.0-{number}.parquet" for number in range(20, 45)))
    count_left(storage.root, txn, runs=names.runs).remove()
    assert storage.left() == [0, 0, 0]
