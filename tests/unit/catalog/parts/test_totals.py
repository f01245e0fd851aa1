"""Totals of tables: those of the snapshot at every time, read anew only for tables that have changed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.catalog_world import World
from tilth.catalog.parts.totals import NO_ROWS, TableTotals, TotalsCache, totals_of
from tilth.model.snapshot import Snapshot


@pytest.fixture
def world() -> World:
    return World()


def test_they_are_those_of_the_snapshot_after_each_commit(world: World) -> None:
    other = world.table("other")
    world.kafka()
    empty = world.table("empty")

    def check() -> None:
        for tables in (None, [world.t, other, empty, "gone"]):
            found = world.catalog.parts.totals(tables)
            for table in (world.t, other, empty):
                assert found.get(table, NO_ROWS) == totals_of(world.catalog.parts.snapshot(table))
            assert "gone" not in found

    first, second = world.insert("a", rows=7), world.insert("b")
    check()
    world.insert(table=other, rows=3)
    check()
    world.delete((first[0], 2))
    check()
    world.merge(second)
    check()


@dataclass
class Reader:
    snapshot: Snapshot
    read: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    def __call__(self, table: str) -> Snapshot | None:
        self.read.append(table)
        return None if table in self.gone else self.snapshot


def test_a_table_is_read_once_for_a_version_and_an_incarnation_of_the_store(world: World) -> None:
    world.insert(rows=5)
    reader, history = Reader(world.catalog.parts.snapshot(world.t)), ["first"]
    cache = TotalsCache(history=lambda: history[0])
    known = TableTotals(rows=5, bytes=reader.snapshot.bytes, parts=1, segments=0)
    assert cache.of(lambda: {"a": 1, "b": 1}, reader, is_all=True) == {"a": known, "b": known}
    assert cache.of(lambda: {"a": 1}, reader, is_all=False) == {"a": known}
    assert cache.of(lambda: {"a": 2, "b": 1}, reader, is_all=True) == {"a": known, "b": known}
    assert reader.read == ["a", "b", "a"]
    # A table that is not among all is forgotten, one that is gone has none.
    reader.gone.add("b")
    assert cache.of(lambda: {"a": 2}, reader, is_all=True) == {"a": known}
    assert cache.of(lambda: {"a": 2, "b": 1}, reader, is_all=True) == {"a": known}
    # The same version of another incarnation may have other parts.
    history[0] = "second"
    assert cache.of(lambda: {"a": 2}, reader, is_all=True) == {"a": known}
    assert reader.read == ["a", "b", "a", "b", "a"]


def test_versions_that_were_read_before_a_restore_are_not_kept_for_the_restored_store(world: World) -> None:
    world.insert(rows=5)
    reader, history = Reader(world.catalog.parts.snapshot(world.t)), ["first"]
    cache = TotalsCache(history=lambda: history[0])

    def restored_meanwhile() -> dict[str, int]:
        history[0] = "second"
        return {"a": 2}

    cache.of(restored_meanwhile, reader, is_all=True)
    cache.of(lambda: {"a": 2}, reader, is_all=True)
    assert reader.read == ["a", "a"]
