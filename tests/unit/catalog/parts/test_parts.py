"""Snapshots, the way into the trash and out of it, partition records."""

from __future__ import annotations

import pytest

from tests.catalog_world import World
from tilth.base.errors import FencedError
from tilth.catalog import HideEverything, TableNotFoundError, WrongEngineError, visibility
from tilth.model.part import Mark


@pytest.fixture
def world() -> World:
    return World()


def test_snapshots(world: World) -> None:
    empty = world.catalog.parts.snapshot(world.t)
    assert (empty.ts, empty.version, empty.parts, empty.rows) == (0, 0, (), 0)
    first = world.insert("a", "b", "c")
    second = world.insert("b", rows=5)
    now = world.catalog.parts.snapshot(world.t)
    assert (now.ts, now.version, now.rows) == (second[0].commit_ts, 2, 35)
    assert [part.name for part in now.parts] == world.names()
    assert world.catalog.parts.snapshot(world.t, at=now.ts) == now
    past = world.catalog.parts.snapshot(world.t, at=first[0].commit_ts)
    assert past.parts == tuple(first)
    assert past.version == -past.ts
    some = world.catalog.parts.snapshot(world.t, partitions=["c", "b", "none"], keep=lambda part: part.rows > 5)
    assert [part.name.partition for part in some.parts] == ["b", "c"]
    assert some.pruned == 1
    with pytest.raises(TableNotFoundError):
        world.catalog.parts.snapshot("none")
    with pytest.raises(WrongEngineError):
        world.catalog.parts.snapshot(world.kafka())


def test_collection_step_by_step(world: World) -> None:
    parts = [*world.insert("a"), *world.insert("a")]
    merged = world.merge(parts)
    catalog = world.catalog
    ended = visibility.end_times(catalog.parts.entries(world.t, "a"))
    assert [entry for entry, _ in ended] == parts
    version = catalog.parts.version(world.t)
    assert catalog.parts.move_to_trash(world.t, ended, now_ms=77) == 2
    assert catalog.parts.move_to_trash(world.t, ended, now_ms=78) == 0
    assert catalog.parts.version(world.t) == version
    items, cursor = catalog.trash.items(world.t, limit=10)
    assert cursor is None
    assert [each.item.part for each in items] == parts
    assert {(each.item.end_ts, each.item.moved_ms, each.table) for each in items} == {(merged.commit_ts, 77, world.t)}
    marks = visibility.end_times(catalog.parts.entries(world.t, "a"))
    assert all(isinstance(entry, Mark) for entry, _ in marks)
    assert catalog.parts.move_to_trash(world.t, marks, now_ms=79) == 2
    assert len(catalog.trash.items(world.t, limit=10)[0]) == 2
    assert catalog.parts.entries(world.t, "a") == [merged]
    assert catalog.trash.remove(world.t, items) == 2
    assert catalog.trash.remove(world.t, items) == 0
    assert catalog.trash.items(limit=10) == ([], None)
    events = [event.event for event in catalog.part_log.recent(limit=99)]
    assert sorted(events) == sorted(["new", "new", "merge", "trash", "trash", "remove", "remove"])


def test_the_trash_is_read_page_by_page(world: World) -> None:
    other = world.table("other")
    for table in (world.t, other):
        world.insert("a", "b", "c", table=table)
        world.commit(HideEverything(table=table))
        world.collect(table)
    seen: list[tuple[str, str]] = []
    cursor: bytes | None = None
    while True:
        items, cursor = world.catalog.trash.items(after=cursor, limit=4)
        seen.extend((each.table, each.item.part.name.partition) for each in items)
        if cursor is None:
            break
    assert seen == [(table, partition) for table in sorted([world.t, other]) for partition in "abc"]
    assert len(world.catalog.trash.items(other, limit=2)[0]) == 2
    assert world.catalog.trash.items(world.t, limit=3)[1] is not None


def test_a_fenced_collector_moves_nothing(world: World) -> None:
    lease = world.catalog.leases.acquire("table/t", "s1")
    parts = world.insert()
    world.catalog.leases.acquire("table/t", "s2")
    with pytest.raises(FencedError):
        world.catalog.parts.move_to_trash(world.t, [(parts[0], 1)], fence=lease.fence, now_ms=1)
    assert world.names() == [parts[0].name]


def test_records_of_partitions_go_when_nothing_is_left(world: World) -> None:
    catalog = world.catalog
    world.insert("a")
    assert not catalog.parts.drop_partition_record(world.t, "a")
    world.commit(HideEverything(table=world.t))
    world.collect()
    assert not catalog.parts.drop_partition_record(world.t, "a")
    catalog.trash.remove(world.t, catalog.trash.items(world.t, limit=9)[0])
    assert catalog.parts.partitions(world.t) == ["a"]
    assert catalog.parts.drop_partition_record(world.t, "a")
    assert catalog.parts.partitions(world.t) == []
    assert catalog.parts.drop_partition_record(world.t, "a")
    world.insert("a")
    assert catalog.parts.partitions(world.t) == ["a"]
