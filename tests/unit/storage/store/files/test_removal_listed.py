"""Files of a transaction that a removal finds: in a bucket by listing their names, in a folder by trying them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.bucket_roots import bucket_root, gcs_root, set_keys
from tilth.model.txn import Txn, TxnOutput, TxnState
from tilth.storage import StoreRoot, clean_transaction, local_root
from tilth.storage.store.paths import name_of
from tilth.storage.store.stores import store_of
from tilth.testing import FakeBucket

TABLE = "1" * 32
TXN = Txn(
    id=777,
    actor="x",
    state=TxnState.ABORTED,
    fences=(),
    outputs=(TxnOutput(table=TABLE, tasks=2),),
    server="s",
)


class Bucket:
    """A bucket with the folder of a table, and the root that names it."""

    def __init__(self, bucket: FakeBucket, root: StoreRoot) -> None:
        self.bucket = bucket
        self.root = root

    def put(self, *names: str) -> None:
        for name in names:
            self.bucket.objects[f"p/{TABLE}/data/{name}"] = b"x"

    def left(self) -> list[str]:
        return sorted(map(name_of, self.bucket.objects))

    def clean(self, *, keep: set[str] | None = None) -> tuple[int, Counter[str]]:
        """Return how many files were found, and the requests."""
        self.bucket.requests()
        found = clean_transaction(self.root, TXN, keep=keep or ())
        return found, Counter(each.verb for each in self.bucket.requests())


@pytest.fixture(params=["s3", "gs"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bucket]:
    set_keys(monkeypatch)
    is_gcs = request.param == "gs"
    with FakeBucket(is_gcs=is_gcs) as fake:
        root = gcs_root(fake.endpoint, tmp_path, prefix="p") if is_gcs else bucket_root(fake.endpoint, prefix="p")
        yield Bucket(fake, root)


@pytest.mark.parametrize("hole", [0, 16, 32])
def test_files_above_a_hole_go(bucket: Bucket, hole: int) -> None:
    """An object that was never ended left the hole."""
    bucket.put(*(f"777-0.0-{n}.parquet" for n in range(40) if n != hole))
    found, _ = bucket.clean()
    assert found == 39
    assert bucket.left() == []


def test_a_refused_try_with_more_files_than_the_landed_one_goes(bucket: Bucket) -> None:
    bucket.put(*(f"777-0.0-{n}.arrow" for n in range(40)), "777-9.0-0.arrow")
    bucket.clean(keep={"777-9.0-0.arrow"})
    assert bucket.left() == ["777-9.0-0.arrow"]


def test_any_attempt_of_any_task_goes_and_what_others_wrote_stays(bucket: Bucket) -> None:
    kept = ["777-1.12-0.filter", "777-1.12-0.map", "777-1.12-0.parquet"]
    others = ["77-0.0-0.parquet", "776-0.0-0.parquet", "7770-0.0-0.parquet", "7777-0.0-0.map", "778-0.0-0.parquet"]
    foreign = ["777-0.0", "777-backup.parquet", "777-1.0-0"]
    bucket.put(*kept, *others, *foreign)
    bucket.put("777-0.8-0.parquet", "777-0.31-3.arrow", "777-99.0-0.parquet", "777-1.11-0.map", "777-1.12-1.parquet")
    found, _ = bucket.clean(keep={"777-1.12-0.parquet"})
    assert found == 4
    assert bucket.left() == sorted([*kept, *others, *foreign])


def test_what_was_never_there_costs_one_request_and_leaves_no_marker(bucket: Bucket) -> None:
    bucket.put(*(f"{txn}-0.0-0.parquet" for txn in range(700, 777)), *(f"8{n}-0.0-0.parquet" for n in range(5000)))
    found, requests = bucket.clean()
    assert found == 0
    assert requests == {"LIST": 1}


def test_more_files_than_a_page_go(bucket: Bucket) -> None:
    bucket.put(*(f"777-0.0-{n}.arrow" for n in range(1001)), *(f"778-0.0-{n}.arrow" for n in range(2500)))
    found, requests = bucket.clean()
    assert found == 1001
    assert len(bucket.left()) == 2500
    assert requests["LIST"] == 2


def test_a_bucket_that_lists_in_another_order_is_read_to_its_end(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["777-0.0-0.arrow", "9-0.0-0.arrow", "8-0.0-0.arrow", "777-1.0-0.arrow"]
    at = datetime.now(UTC)
    page = [{"path": f"{TABLE}/data/{name}", "size": 1, "last_modified": at, "e_tag": None} for name in names]
    monkeypatch.setattr(
        "tilth.storage.store.backends.objects.obstore.list", lambda *_, **__: iter([page[:3], page[3:]])
    )
    found = store_of(bucket.root).list_prefix(f"{TABLE}/data/777-")
    assert found == [f"{TABLE}/data/777-0.0-0.arrow", f"{TABLE}/data/777-1.0-0.arrow"]


def root_of(folder: Path, names: list[str]) -> StoreRoot:
    data = folder / TABLE / "data"
    data.mkdir(parents=True)
    for name in names:
        (data / name).touch()
    return local_root(folder)


def test_attempts_of_executors_that_were_taken_away_are_found_in_a_folder(tmp_path: Path) -> None:
    """Spark counts no failure for them, so that attempts have any number."""
    names = [f"777-1.{attempt}-0.parquet" for attempt in (0, 3, 7, 9, 13, 17)]
    root = root_of(tmp_path, names)
    assert clean_transaction(root, TXN) == len(names)


def test_attempts_around_the_one_that_landed_are_found_in_a_folder(tmp_path: Path) -> None:
    names = [f"777-1.{attempt}-0.parquet" for attempt in (20, 27, 30, 32)]
    root = root_of(tmp_path, [*names, "777-1.30-1.parquet"])
    assert clean_transaction(root, TXN, keep={"777-1.30-0.parquet"}) == 4
    assert [each.name for each in (tmp_path / TABLE / "data").iterdir()] == ["777-1.30-0.parquet"]
