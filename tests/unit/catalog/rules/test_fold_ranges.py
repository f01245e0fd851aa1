"""Merges that are cut into key ranges: names, visibility and counts of the ranges. The world checks the invariants of
every commit.
"""

from __future__ import annotations

import pytest

from tests.catalog_world import World
from tilth.catalog import (
    HidePartition,
    InsertPart,
    PartsBelow,
    PartsChangedError,
    ReplaceParts,
    RestorePartition,
    TooManyPartsError,
)
from tilth.model.part import Part


@pytest.fixture
def world() -> World:
    return World()


def shown(world: World) -> list[Part]:
    return world.catalog.parts.visible(world.t, "a")


def counted(world: World) -> tuple[int, int, int]:
    """Visible parts of partition a, and as what they count there and in the table."""
    parts = world.catalog.parts
    return len(shown(world)), parts.counts(world.t)["a"], parts.version(world.t).counted_parts


def cut(world: World, sources: list[Part], ranges: int) -> list[Part]:
    """A merge into so many ranges; 1: it is not cut."""
    made = tuple(world.written("a", rows=7) for _ in range(ranges))
    update = ReplaceParts(
        table=world.t,
        sources=tuple(part.name for part in sources),
        written=made[0],
        more=made[1:],
        seen=tuple((part.file.name, 0) for part in sources),
    )
    parts = world.commit(update)
    assert [part.file for part in parts] == [written.file for written in made]
    return parts


def test_ranges_replace_the_sources_and_count_as_one_part(world: World) -> None:
    sources = world.insert("a", "a", "a", rows=7)
    before = world.catalog.parts.snapshot(world.t)
    ranges = cut(world, sources, 3)
    assert shown(world) == ranges
    assert counted(world) == (3, 1, 1)
    assert {(part.name.min_block, part.name.level) for part in ranges} == {(sources[0].name.min_block, 1)}
    [group] = {part.cut for part in ranges}
    assert group == ranges[0].name.mutation
    [event] = world.catalog.part_log.recent(limit=1)
    assert (event.event, event.part, event.rows, event.sources) == ("merge", str(ranges[0].name), 21, 3)
    # The past reads as before, also after a restart.
    assert world.reopened().parts.snapshot(world.t, at=before.ts).parts == before.parts
    assert world.reopened().parts.visible(world.t, "a") == ranges
    # New parts lie behind them.
    [newer] = world.insert("a")
    assert shown(world) == [*ranges, newer]
    assert counted(world) == (4, 2, 2)


def test_ranges_are_merged_with_a_part_and_are_whole_again(world: World) -> None:
    ranges = cut(world, world.insert("a", "a"), 4)
    [newer] = world.insert("a")
    [merged] = cut(world, [*ranges, newer], 1)
    assert merged.cut == 0
    assert shown(world) == [merged]
    assert counted(world) == (1, 1, 1)
    again = cut(world, [merged], 2)
    assert counted(world) == (2, 1, 1)
    assert {part.cut for part in again} == {again[0].name.mutation}


def test_a_range_that_is_written_anew_is_still_one_of_its_merge(world: World) -> None:
    first, second = cut(world, world.insert("a", "a"), 2)
    [anew] = cut(world, [second], 1)
    assert anew.name.blocks == second.name.blocks
    assert anew.cut == first.cut
    assert counted(world) == (2, 1, 1)
    # It is cut further.
    more = cut(world, [anew], 2)
    assert {part.cut for part in more} == {first.cut}
    assert counted(world) == (3, 1, 1)


def test_a_range_without_rows_hides_nothing_that_comes_later(world: World) -> None:
    first, second, third = cut(world, world.insert("a", "a"), 3)
    for _ in range(4):
        [second] = cut(world, [second], 1)
    world.commit(ReplaceParts(table=world.t, sources=(second.name,), written=None, event="remove_deleted"))
    assert counted(world) == (2, 1, 1)
    # Though the mark of the second range has a higher level than all that is left.
    again = cut(world, [first, third], 3)
    assert shown(world) == again
    [whole] = cut(world, again, 1)
    assert shown(world) == [whole]
    # Nor does it once everything that has ended is collected.
    assert world.collect() > 0
    assert shown(world) == [whole]
    assert [entry.name for entry in world.catalog.parts.entries(world.t, "a") if isinstance(entry, Part)] == [
        whole.name
    ]


def test_a_merge_takes_some_ranges_and_leaves_others(world: World) -> None:
    ranges = cut(world, world.insert("a", "a"), 3)
    [newer] = world.insert("a")
    [merged] = cut(world, [ranges[1], newer], 1)
    assert merged.cut == 0
    assert sorted(part.name for part in shown(world)) == sorted([ranges[0].name, merged.name, ranges[2].name])
    assert counted(world) == (3, 2, 2)


def test_a_drop_hides_all_ranges_and_undrop_brings_them_back(world: World) -> None:
    ranges = cut(world, world.insert("a", "a"), 3)
    world.commit(HidePartition(table=world.t, partition="a"))
    assert counted(world) == (0, 0, 0)
    world.commit(RestorePartition(table=world.t, partition="a"))
    assert shown(world) == ranges
    assert counted(world) == (3, 1, 1)
    # An insert after the drop is not hidden by it.
    world.commit(HidePartition(table=world.t, partition="a"))
    [newer] = world.insert("a")
    assert shown(world) == [newer]


def test_a_change_of_a_source_refuses_all_ranges(world: World) -> None:
    [source, other] = world.insert("a", "a")
    world.delete((source, 2))
    with pytest.raises(PartsChangedError):
        cut(world, [source, other], 3)
    assert shown(world) == [source, other]


def test_writers_are_limited_by_what_ranges_count_as(world: World) -> None:
    cut(world, world.insert("a", "a"), 5)
    limit = PartsBelow(table=world.t, per_partition=2, total=2)

    def insert() -> None:
        txn = world.catalog.transactions.open("insert")
        txn.commit([InsertPart(table=world.t, written=world.written("a"))], [limit])

    insert()
    with pytest.raises(TooManyPartsError):
        insert()
