"""Removals in a container of Azure, where one request removes up to 256 names.

The container is a stand-in that answers as Azurite does: every name is tried, and the error has
the first that failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from tilth.storage import parse_root
from tilth.storage.errors import StoreAwayError, StoreRefusedError
from tilth.storage.store.backends.objects import ObjectStore

NAMES = [f"t/data/{number}.parquet" for number in range(100)]


class Container:
    """The requests of a store, and why it refuses names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TILTH_TEST_KEY", "a2V5")
        self.store = ObjectStore(parse_root("az://container/p?account=tilth1&key=env:TILTH_TEST_KEY"))
        self.bucket = MemoryStore()
        monkeypatch.setattr(self.store, "_bucket", self.bucket)
        self.requests: list[str] = []
        self.refused: dict[str, str] = {}
        self._list, self._remove, self._head = obstore.list, obstore.delete, obstore.head
        monkeypatch.setattr(obstore, "delete", self._delete)
        monkeypatch.setattr(obstore, "list", self._listing)
        monkeypatch.setattr(obstore, "head", self._heading)

    def put(self, names: Sequence[str]) -> None:
        for name in names:
            obstore.put(self.bucket, name, b"x")

    def left(self) -> list[str]:
        return sorted(each["path"] for each in self._list(self.bucket).collect())

    def _delete(self, bucket: MemoryStore, names: Sequence[str]) -> None:
        self.requests.append("DELETE")
        there, errors = self.left(), list[str]()
        for name in names:
            code = self.refused.get(name, "404" if name not in there else "")
            if code:
                errors.append(f"Bulk delete request failed for key p/{name}: not removed. (code: {code})")
            else:
                self._remove(bucket, name)
        if errors:
            raise (FileNotFoundError if "404" in errors[0] else GenericError)(errors[0])

    def _heading(self, bucket: MemoryStore, name: str) -> Any:
        self.requests.append("HEAD")
        return self._head(bucket, name)

    def _listing(self, bucket: MemoryStore, prefix: str | None = None, **options: Any) -> Any:
        self.requests.append("LIST")
        if self.refused.get(str(prefix)):
            raise GenericError("error sending request, kind: Connect, refused")
        return self._list(bucket, prefix, **options)


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> Container:
    return Container(monkeypatch)


def test_names_that_are_missing_cost_one_listing(container: Container) -> None:
    container.put(NAMES[::2])
    removal = container.store.remove(NAMES)
    assert (sorted(removal.gone), removal.failed, container.left()) == (sorted(NAMES), {}, [])
    assert container.requests == ["DELETE", "LIST"]


def test_one_missing_name_is_gone_at_once(container: Container) -> None:
    removal = container.store.remove(NAMES[:1])
    assert (removal.gone, container.requests) == (NAMES[:1], ["DELETE"])


def test_few_names_are_checked_one_by_one(container: Container) -> None:
    """The folder may have many files that nobody named."""
    container.put(NAMES[:9])
    container.refused = {NAMES[1]: "409"}
    removal = container.store.remove([NAMES[90], *NAMES[:3]])
    assert (sorted(removal.gone), set(removal.failed)) == (sorted([NAMES[90], NAMES[0], NAMES[2]]), {NAMES[1]})
    assert container.left() == [NAMES[1], *NAMES[3:9]]
    assert container.requests == ["DELETE", "HEAD", "HEAD", "HEAD", "HEAD", "DELETE"]


def test_refused_names_stay_and_the_others_go(container: Container) -> None:
    """One refused before and one behind a missing name."""
    container.put(NAMES[:9])
    container.refused = {NAMES[0]: "403", NAMES[8]: "409"}
    removal = container.store.remove(NAMES[:20])
    assert container.left() == [NAMES[0], NAMES[8]]
    assert sorted(removal.gone) == sorted(set(NAMES[:20]) - {NAMES[0], NAMES[8]})
    assert {name: type(error) for name, error in removal.failed.items()} == {
        NAMES[0]: StoreRefusedError,
        NAMES[8]: StoreRefusedError,
    }
    assert container.requests == ["DELETE", "DELETE", "LIST", "DELETE"]


def test_a_listing_that_fails_leaves_all_names_to_a_later_try(container: Container) -> None:
    container.put(NAMES[:2])
    container.refused = {"t/data/": "away"}
    removal = container.store.remove(NAMES[:9])
    assert not removal.gone
    assert set(removal.failed) == set(NAMES[:9])
    assert all(isinstance(error, StoreAwayError) for error in removal.failed.values())
    assert not container.left()
