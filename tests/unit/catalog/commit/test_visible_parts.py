"""What is kept of what is visible: only whoever reads the version that it belongs to gets it."""

from __future__ import annotations

from tests.catalog_world import Racing, World
from tilth.catalog import HideEverything, HidePartition, InsertPart, RestorePartition, Update, visibility
from tilth.catalog.commit.visible_parts import VisiblePartsCache
from tilth.catalog.records.nouns import TableVersion
from tilth.catalog.rules.changes import TableChange
from tilth.model.part import DataFile, Part, PartName


def part(block: int, partition: str = "a") -> Part:
    file = DataFile(name=f"f{block}", size=1, checksum=0)
    return Part(name=PartName(partition, block, block, 0, block), schema_version=1, rows=1, file=file, commit_ts=1)


def added(*parts: Part) -> TableChange:
    return TableChange(version=TableVersion(), added=list(parts))


def test_it_is_found_for_its_version_only() -> None:
    shown = VisiblePartsCache()
    shown.keep("t", "a", (part(1),), stored=5)
    assert shown.find("t", "a", stored=5) == (part(1),)
    assert shown.find("t", "a", stored=6) is None
    assert shown.find("t", "b", stored=5) is None
    assert shown.find("u", "a", stored=5) is None
    # Parts that an older view found are not cached; those that a newer one found replace all.
    shown.keep("t", "b", (), stored=4)
    assert shown.find("t", "b", stored=4) is None
    shown.keep("t", "b", (), stored=6)
    assert shown.find("t", "a", stored=5) is None
    assert shown.find("t", "b", stored=6) == ()


def test_a_commit_carries_it_on() -> None:
    shown = VisiblePartsCache()
    shown.keep("t", "a", (part(1),), stored=5)
    shown.keep("t", "b", (part(2, "b"),), stored=5)
    shown.apply("t", added(part(3), part(4, "c")), before=5, after=8)
    assert shown.find("t", "a", stored=8) == (part(1), part(3))
    assert shown.find("t", "b", stored=8) == (part(2, "b"),)
    assert shown.find("t", "c", stored=8) is None
    # An update that changed nothing wrote no version.
    shown.apply("t", added(), before=8, after=9)
    assert shown.find("t", "b", stored=8) == (part(2, "b"),)
    # Somebody else has committed in between.
    shown.apply("t", added(part(5)), before=9, after=10)
    assert shown.find("t", "a", stored=10) is None


def test_it_is_bounded() -> None:
    shown = VisiblePartsCache(parts_max=3)
    shown.keep("t", "a", (part(1), part(2)), stored=1)
    shown.keep("u", "a", (part(3),), stored=2)
    assert shown.find("t", "a", stored=1) is not None
    shown.keep("v", "a", (part(4),), stored=3)
    assert shown.find("u", "a", stored=2) is None
    assert shown.find("t", "a", stored=1) is not None
    shown.apply("v", added(part(5)), before=3, after=4)
    assert shown.find("v", "a", stored=4) is None
    assert shown.find("t", "a", stored=1) is not None
    shown.keep("w", "a", tuple(part(number) for number in range(4)), stored=5)
    assert shown.find("w", "a", stored=5) is None


def test_every_commit_is_seen_at_once_and_by_all() -> None:
    """Of two catalogs over one store each sees what the other did."""
    kv = Racing()
    worlds = World(kv), World(kv)
    t = worlds[0].t

    def check() -> None:
        expected = visibility.visible(worlds[0].catalog.parts.all_entries(t))
        for world in worlds:
            assert list(world.catalog.parts.snapshot(t).parts) == expected
            assert world.catalog.parts.visible(t, "a") == [each for each in expected if each.name.partition == "a"]

    for number in range(6):
        world = worlds[number % 2]
        world.clock.advance(1)
        world.commit(*(InsertPart(table=t, written=world.written(partition)) for partition in "ab"[: 1 + number % 2]))
        check()
    updates: list[Update] = [
        HidePartition(table=t, partition="b"),
        RestorePartition(table=t, partition="b"),
        HideEverything(table=t),
        RestorePartition(table=t, partition="a"),
    ]
    for number, update in enumerate(updates):
        worlds[number % 2].clock.advance(1)
        worlds[number % 2].commit(update)
        check()
    worlds[1].merge(worlds[1].catalog.parts.visible(t, "a"))
    check()
    worlds[0].collect()
    check()


def test_nothing_of_a_lost_history_is_found_or_keeps_others_out() -> None:
    histories = [1]
    shown = VisiblePartsCache(history=lambda: histories[-1])
    shown.keep("t", "a", (part(1),), stored=5)
    histories.append(2)
    assert shown.find("t", "a", stored=5) is None
    # The database has failed over to a standby with an earlier version of the table.
    shown.keep("t", "a", (), stored=3)
    assert shown.find("t", "a", stored=3) == ()
