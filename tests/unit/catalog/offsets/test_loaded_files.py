"""The ledger of files that were loaded into tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pytest

from tests.catalog_world import Racing, World
from tilth.base.errors import ErrorKind
from tilth.base.hybrid import milliseconds
from tilth.catalog import DelegatingKV, FileTakenError, InsertBatch, InsertLabel, InsertPart, LoadFile, MemoryKV
from tilth.catalog.kv import ReadView, Versioned, ViewUse
from tilth.catalog.offsets import loaded_files
from tilth.catalog.records.keys import Space, pack
from tilth.model.loaded_file import LoadedFile


@pytest.fixture
def world() -> World:
    return World()


def a_file(name: str = "/in/a.json", *, size: int = 10, tag: str = "", modified_ms: int = 7) -> LoadedFile:
    return LoadedFile(file=name, size=size, tag=tag, modified_ms=modified_ms, rows=3, query_id="q")


def load(world: World, loaded: LoadedFile, before: LoadedFile | None = None) -> LoadedFile:
    world.commit(
        InsertPart(table=world.t, written=world.written()), LoadFile(table=world.t, loaded=loaded, before=before)
    )
    return world.catalog.loaded_files.find(world.t, [loaded.file])[loaded.file]


def test_a_file_is_loaded_once(world: World) -> None:
    files, loaded = world.catalog.loaded_files, a_file()
    assert files.find(world.t, ["/in/a.json"]) == {}
    known = load(world, loaded)
    assert (known.rows, known.commit_ts) == (3, world.catalog.parts.version(world.t).last_commit_ts)
    assert known.txn
    assert world.catalog.stats().files_loaded == 1
    with pytest.raises(FileTakenError) as refused:
        load(world, loaded)
    assert (refused.value.code, refused.value.kind) == ("FILE_TAKEN", ErrorKind.CONFLICT)
    assert refused.value.facts["file"] == "/in/a.json"
    assert len(world.names()) == 1
    other = world.table("other")
    world.commit(LoadFile(table=other, loaded=loaded))
    assert [each.file for each in files.all(other)] == ["/in/a.json"]


def test_a_file_is_loaded_again_by_who_knows_of_its_record(world: World) -> None:
    first = load(world, a_file())
    second = load(world, a_file(size=11), first)
    assert (second.size, second.commit_ts > first.commit_ts) == (11, True)
    with pytest.raises(FileTakenError):
        load(world, a_file(size=12), first)


def test_of_two_at_once_one_loads_the_file() -> None:
    kv = Racing()
    world = World(kv)
    txn = world.catalog.transactions.open("copy")
    kv.before = lambda: World(kv).commit(LoadFile(table=world.t, loaded=a_file()))
    with pytest.raises(FileTakenError):
        txn.commit([LoadFile(table=world.t, loaded=a_file())])


def test_two_files_of_one_name_are_not_in_one_commit(world: World) -> None:
    with pytest.raises(FileTakenError):
        world.commit(LoadFile(table=world.t, loaded=a_file()), LoadFile(table=world.t, loaded=a_file()))


class Noting(DelegatingKV):
    """Notes the keys that are read one by one, a request each in a store behind a network."""

    def __init__(self) -> None:
        super().__init__(MemoryKV())
        self.single: list[bytes] = []

    @contextmanager
    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> Iterator[ReadView]:
        with self._inner.view(keys, use) as view:
            yield NotingView(view, keys, self.single)


class NotingView:
    def __init__(self, view: ReadView, keys: Collection[bytes], single: list[bytes]) -> None:
        self.scan = view.scan
        self._view = view
        self._keys = keys
        self._single = single

    def get(self, key: bytes) -> Versioned | None:
        if key not in self._keys:
            self._single.append(key)
        return self._view.get(key)


def test_records_of_what_is_stored_already_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_files, "_FIND_BATCH", 2)
    kv = Noting()
    world = World(kv)
    names = [f"/in/{number}" for number in range(5)]
    world.commit(
        InsertLabel(table=world.t, label="l", rows=1),
        InsertBatch(table=world.t, stream="s", query="q", batch=0, rows=1),
        *(LoadFile(table=world.t, loaded=a_file(name)) for name in names),
    )
    assert set(world.catalog.loaded_files.find(world.t, [*names, "/in/none"])) == set(names)
    spaces = tuple(pack(each) for each in (Space.LABEL, Space.LOADED_FILE, Space.STREAM))
    assert [key for key in kv.single if key.startswith(spaces)] == []


def test_any_address_has_a_record(world: World) -> None:
    names = ["s3://b/" + "x" * 9000, "/in/a'b\nc%20", "/in/\x00", "/in/ü"]
    for name in names:
        load(world, a_file(name))
    assert set(world.catalog.loaded_files.find(world.t, [*names, "/in/none"])) == set(names)


def test_old_files_are_forgotten_and_the_time_stays(world: World) -> None:
    files = world.catalog.loaded_files
    times = [load(world, a_file(f"/in/{number}")).commit_ts for number in range(3)]
    assert (files.trim(times[0]), files.forgotten_ms(world.t)) == (0, 0)
    assert files.trim(times[2]) == 2
    assert files.forgotten_ms(world.t) == milliseconds(times[2])
    assert [each.file for each in files.all(world.t)] == ["/in/2"]
    assert files.forgotten_ms(world.table("other")) == 0
    # An earlier time changes nothing.
    assert files.trim(times[0]) == 0
    assert files.forgotten_ms(world.t) == milliseconds(times[2])


def test_a_file_has_its_content_by_tag_or_by_time() -> None:
    assert a_file(tag="a").is_like(a_file(tag="a", modified_ms=8))
    assert not a_file(tag="a").is_like(a_file(tag="b"))
    assert not a_file().is_like(a_file(modified_ms=8))
    assert not a_file().is_like(a_file(size=11))
    assert a_file(tag="a").is_like(a_file())
