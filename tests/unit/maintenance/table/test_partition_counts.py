"""Oracles and rules of docs/policies/partitions.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.oracle import Row, names, number, oracle
from tilth.base.rand import new_rng
from tilth.maintenance.gc.policy import select_for_gc
from tilth.maintenance.merge.policy.partitions import BackOff, postpone, select_for_merge
from tilth.maintenance.table.partition_counts import PartitionSelection, PartitionStats, Rotation, SlotBytes
from tilth.maintenance.table.settings import GcPartitionSettings, PartitionSettings, PartitionStrategy

NOW = 1_000_000.0
FRESH = Rotation(last_time=NOW)
ALL = ("p1", "p2", "p3", "p4")


def one(partition: str, *, inserted: int = 10, merged: int = 10, ago: float = 0.0, removed: int = 0) -> PartitionStats:
    return PartitionStats(
        partition=partition,
        inserted_parts=inserted,
        merged_parts=merged,
        removed_parts=removed,
        last_insert_time=NOW - ago,
    )


def known(*stats: PartitionStats) -> dict[str, PartitionStats]:
    return {each.partition: each for each in stats}


def back_off(name: str, since: float, stats: Mapping[str, PartitionStats]) -> BackOff:
    """With what the statistics say now: nothing has happened since."""
    return BackOff(since, stats[name].inserted_parts, stats[name].merged_parts)


ORIGINAL = known(one("p1"), one("p2", ago=1), one("p3", merged=0, ago=2))


def choose(
    number: int,
    *,
    stats: Mapping[str, PartitionStats] = ORIGINAL,
    strategy: PartitionStrategy = PartitionStrategy.ADAPTIVE,
    rotation: Rotation = FRESH,
    interval: float = 10_000.0,
    postponed: Mapping[str, float] | None = None,
    counts: Mapping[str, int] | None = None,
    everything: tuple[str, ...] = ALL,
    is_ready: bool = True,
    expired: tuple[str, ...] = (),
    seed: int = 1,
) -> PartitionSelection:
    return select_for_merge(
        stats,
        all_partitions=everything,
        expired=expired,
        postponed={name: back_off(name, since, stats) for name, since in (postponed or {}).items()},
        counts=counts or {},
        rotation=rotation,
        is_ready=is_ready,
        settings=PartitionSettings(strategy=strategy, number=number, rotation_interval=interval),
        now=NOW,
        rng=new_rng(seed),
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("row", oracle("partitions", "Merges, no rotation due"))
def test_original_choice(row: Row, seed: int) -> None:
    """p4 exists but is not known."""
    selection = choose(int(row["n"]), strategy=PartitionStrategy(row["strategy"]), seed=seed)
    assert set(selection.partitions) == set(names(row["chosen"]))
    assert selection.rotation == FRESH
    assert all(each.reason for each in selection.chosen)


@pytest.mark.parametrize("number", [4, 5])
def test_original_rotation_makes_all_known(number: int) -> None:
    """After a rotation all four, now and in later calls."""
    first = choose(number, rotation=Rotation(last_time=NOW - 10_001, cursor=2))
    assert set(first.partitions) == set(ALL)
    assert first.rotation == Rotation(last_time=NOW, cursor=2)
    assert first.unknown == ("p4",)
    later = choose(number, stats=ORIGINAL | known(PartitionStats(partition="p4")), rotation=first.rotation)
    assert set(later.partitions) == set(ALL)


def test_original_rotation_without_statistics() -> None:
    """Statistics not ready, n = 1: one partition; nothing at all: a rotation that is empty."""
    selection = choose(1, is_ready=False)
    assert selection.partitions == ("p1",)
    assert selection.rotation == Rotation(last_time=NOW, cursor=1)
    empty = choose(1, stats={}, everything=())
    assert empty.chosen == ()
    assert empty.rotation.last_time == NOW


@pytest.mark.parametrize("row", oracle("partitions", "Rotation interval"))
def test_rotation_interval_is_exclusive(row: Row) -> None:
    last = Rotation(last_time=NOW - number(row["last rotation (s ago)"]))
    selection = choose(2, rotation=last, interval=number(row["interval (s)"]))
    assert (selection.rotation.last_time == NOW) is (row["rotates"] == "yes")


def test_rotation_goes_round() -> None:
    rotation = Rotation()
    seen: list[tuple[str, ...]] = []
    for _ in range(3):
        selection = choose(3, rotation=replace(rotation, last_time=0.0))
        rotation = selection.rotation
        seen.append(selection.partitions)
    assert seen == [("p1", "p2", "p3"), ("p4", "p1", "p2"), ("p3", "p4", "p1")]


def test_rotation_strategy_and_zero_rotate_always() -> None:
    assert choose(2, strategy=PartitionStrategy.ROTATION).partitions == ("p1", "p2")
    assert choose(0).partitions == ("p1",)
    assert "rotation" in choose(0).chosen[0].reason


@pytest.mark.parametrize("row", oracle("partitions", "Fill rule"))
def test_fill_rule(row: Row) -> None:
    """Too few eligible partitions are filled up by the least fast, then by those in back-off."""
    stats = known(one("p1", merged=15), one("p2", merged=13), one("p3", merged=5), one("p4", merged=8))
    selection = choose(2, stats=stats, postponed={"p3": NOW - number(row["postponed (s ago)"])})
    assert set(selection.partitions) == set(names(row["chosen"]))


def test_fill_takes_longest_postponed_last() -> None:
    stats = known(one("p1"), one("p2"), one("p3"), one("p4", merged=20))
    selection = choose(3, stats=stats, postponed={"p1": NOW - 3, "p2": NOW - 20, "p3": NOW - 9})
    assert selection.partitions == ("p4", "p2", "p3")
    assert selection.chosen[1].reason == "fill: postponed 20 s ago"


def test_most_parts_first() -> None:
    stats = {name: replace(one(name), visible_parts=count) for name, count in zip(ALL, (3, 9, 1, 7), strict=True)}
    assert choose(2, stats=stats, strategy=PartitionStrategy.PARTS).partitions == ("p2", "p4")


def test_expired_and_dropped_partitions_are_not_chosen() -> None:
    assert set(choose(5, expired=("p1",)).partitions) == {"p2", "p3"}
    assert set(choose(5, everything=("p2", "p4")).partitions) == {"p2"}


def test_only_ties_are_broken_by_chance() -> None:
    stats = known(*(one(f"p{index}") for index in range(1, 5)))
    firsts = {choose(1, stats=stats, seed=seed).partitions[0] for seed in range(40)}
    assert firsts == set(ALL)


@pytest.mark.parametrize("row", oracle("partitions", "Collecting"))
def test_original_choice_for_gc(row: Row) -> None:
    stats = known(one("p1"), one("p2", removed=5), one("p3", removed=10))
    selection = gc(stats, int(row["n"]))
    assert set(selection.partitions) == set(names(row["chosen"]))


def test_gc_adds_where_merges_finished() -> None:
    stats = known(one("p1"), one("p2", removed=5), one("p3", removed=10))
    assert gc(stats, 1, pushed=("p3", "p1", "gone", "p3")).partitions == ("p1", "p3")


def test_half_of_a_round_collects_where_most_waits() -> None:
    def waits(name: str, *, parts: int, size: int) -> PartitionStats:
        # Collecting keeps up with merges everywhere: drops have left the rest.
        return one(name, removed=10).with_end(parts=parts, size=size)

    stats = known(
        waits("large", parts=11, size=9000),
        waits("many", parts=99, size=10),
        waits("some", parts=12, size=500),
        *(one(f"slow{index}", removed=1) for index in range(3)),
        *(one(f"done{index}", removed=10) for index in range(9)),
    )
    found = gc(stats, 5)
    assert set(found.partitions) == {"slow0", "slow1", "slow2", "large", "many"}
    reasons = {each.partition: each.reason for each in found.chosen}
    assert reasons["large"].startswith("most bytes to collect, 8.8 KiB")
    assert reasons["many"].startswith("most parts to collect, 89")
    # Where nothing waits, all places go the other way.
    idle = known(*(one(f"done{index}", removed=10) for index in range(9)))
    assert len(gc(idle, 4).partitions) == 4
    # A drop of everything is collected at once: more removed than was counted is nothing that waits.
    assert one("p", removed=99).waiting_parts == one("p", removed=99).waiting_bytes == 0


def gc(stats: Mapping[str, PartitionStats], number: int, pushed: tuple[str, ...] = ()) -> PartitionSelection:
    return select_for_gc(
        stats,
        all_partitions=tuple(stats),
        pushed=pushed,
        rotation=FRESH,
        is_ready=True,
        settings=GcPartitionSettings(number=number, rotation_interval=600),
        now=NOW,
        rng=new_rng(1),
    )


def test_speeds() -> None:
    assert PartitionStats(partition="p").merge_speed == 1.0
    assert PartitionStats(partition="p").gc_speed == 1.0
    assert one("p", inserted=10, merged=15, removed=3).merge_speed == 1.5
    assert one("p", inserted=10, merged=15, removed=3).gc_speed == 0.2


def test_back_off_ends_by_itself() -> None:
    now = PartitionStats(partition="b", inserted_parts=7, merged_parts=3)
    before = {"a": BackOff(NOW - 31), "b": BackOff(NOW - 30, 7, 3)}
    postponed = postpone(before, ["c"], stats={}, now=NOW, postpone_time=30)
    assert postponed == {"b": before["b"], "c": BackOff(NOW)}
    assert postponed["b"].holds(now, now=NOW, postpone_time=30)
    assert not postponed["b"].holds(now, now=NOW + 1, postpone_time=30)


@pytest.mark.parametrize(
    ("inserted", "merged", "holds"), [(4, 0, True), (5, 0, False), (0, 1, False)], ids=["few", "many", "merged"]
)
def test_back_off_ends_when_there_is_more_to_merge(inserted: int, merged: int, holds: bool) -> None:
    """A partition that is written to is not left alone while it fills, nor after a merge has changed what it has."""
    before = PartitionStats(partition="p", inserted_parts=9, merged_parts=6)
    [each] = postpone({}, ["p"], stats={"p": before}, now=NOW, postpone_time=30).values()
    later = PartitionStats(partition="p", inserted_parts=9 + inserted, merged_parts=6 + merged)
    assert each.holds(later, now=NOW + 1, postpone_time=30) is holds


def test_crowded_partitions_go_first() -> None:
    """The fullest, at most half of a round, also where merging seems to keep up; those in back-off do not."""
    names = [f"p{number}" for number in range(10)]
    stats = known(*(one(name, merged=20 if name == "p7" else 5, ago=float(place)) for place, name in enumerate(names)))
    counts = {"p5": 12, "p6": 40, "p7": 30, "p8": 20, "p9": 99}
    selection = choose(4, stats=stats, everything=tuple(names), counts=counts, postponed={"p9": NOW - 1})
    assert selection.partitions[:2] == ("p6", "p7")
    assert selection.chosen[0].reason == "crowded, 40 parts"
    assert selection.partitions[2] == "p0"
    assert len(set(selection.partitions)) == 4


def test_slots_are_aligned_to_the_clock_and_skipped_ones_count_nothing() -> None:
    slot = SlotBytes(seconds=3600).added(now=7200, inserted=5).added(now=10_799, merged=3)
    assert (slot.at(10_799).last_inserted, slot.at(10_799).last_merged) == (0, 0)
    assert (slot.at(10_800).last_inserted, slot.at(10_800).last_merged) == (5, 3)
    assert slot.at(14_400) == SlotBytes(seconds=3600, slot=4)


def test_counters_follow_events() -> None:
    stats = PartitionStats(partition="p").with_insert(now=NOW, parts=3, size=30)
    stats = stats.with_merge(now=NOW, parts=2, size=20).with_removal(parts=1)
    assert (stats.inserted_parts, stats.merged_parts, stats.removed_parts) == (3, 2, 1)
    assert stats.last_insert_time == NOW
    assert stats.hour.at(NOW + 3600).last_inserted == 30
    assert stats.six_hours.at(NOW + 6 * 3600).last_merged == 20
