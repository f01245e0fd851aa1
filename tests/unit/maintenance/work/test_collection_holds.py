"""What holds collection back, read once for all tables."""

from __future__ import annotations

import pytest

from tests.catalog_world import World
from tests.counted_kv import CountedKV
from tilth.maintenance.work.collection_holds import FRESH_SECONDS, CollectionHolds
from tilth.model.lease import ReaderLease


def test_one_reading_serves_all_for_a_moment_and_is_judged_by_its_own_time() -> None:
    counted = CountedKV()
    world = World(counted)
    holds = CollectionHolds(world.clock, world.catalog)
    first = holds.lately()
    counted.taken()
    assert holds.lately() is first
    assert not counted.taken()
    world.clock.advance(FRESH_SECONDS)
    second = holds.lately()
    assert second.now_ms == first.now_ms + FRESH_SECONDS * 1000
    assert sum(counted.taken().values()) == 2


def test_who_comes_later_is_seen_by_the_next_reading_and_a_command_reads_at_once() -> None:
    world = World()
    holds = CollectionHolds(world.clock, world.catalog)
    assert holds.lately().oldest_txn is None
    txn = world.catalog.transactions.open("insert")
    world.catalog.readers.open(world.t, 7, "r", 60_000)
    world.catalog.readers.open(world.t, 5, "r", 60_000, name="stream")
    assert holds.lately().oldest_txn is None
    assert holds.now().oldest_txn == txn.id
    world.clock.advance(FRESH_SECONDS)
    seen = holds.lately()
    assert (seen.oldest_txn, seen.oldest_reader(world.t), seen.oldest_reader(world.t, is_named=True)) == (txn.id, 7, 5)
    assert seen.oldest_reader("another") is None
    # Leases end by themselves.
    world.clock.advance(61)
    assert holds.lately().oldest_reader(world.t) is None


def test_a_slow_reading_is_judged_by_the_time_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever begins in the middle of it is not seen, and needs what ends after that time."""
    world = World()
    readers, began_ms = world.catalog.readers, world.clock.now_ms()
    read = readers.list

    def slow() -> list[ReaderLease]:
        found = read()
        readers.open(world.t, 7, "r", 60_000)
        world.clock.advance(5)
        return found

    monkeypatch.setattr(readers, "list", slow)
    seen = CollectionHolds(world.clock, world.catalog).now()
    assert (seen.now_ms, seen.oldest_reader(world.t)) == (began_ms, None)
