"""Choice of the partitions that are searched for merges. Pure.

Covers: the choice of a round, partitions where nothing was worth merging, the fill rule. Does not cover: counts and
rotation (table/partition_counts.py), which parts of a partition (size_tiered.py, key_range.py).
Always holds: back-off is a value in and a value out.

Tests: tests/unit/maintenance/table/test_partition_counts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilth.base.rand import Rng
from tilth.maintenance.table.partition_counts import (
    ChosenPartition,
    PartitionSelection,
    PartitionStats,
    Rotation,
    because,
    rotate,
    rotation_cause,
    whole,
)
from tilth.maintenance.table.settings import PartitionSettings, PartitionStrategy

#: Merging has caught up when it consumed this many parts for each inserted one.
MERGE_SPEED_MAX = 1.2
#: New parts that end a back-off: so many small ones are worth a merge whatever else there is.
BACK_OFF_PARTS = 5
#: A partition with at least this many visible parts goes first, the fullest before all others.
CROWDED_PARTS = 12


@dataclass(frozen=True, slots=True)
class BackOff:
    """A partition in which nothing was worth merging: others come first for a while."""

    #: Seconds since 1970.
    since: float
    #: Counts of the statistics at that time.
    inserted_parts: int = 0
    merged_parts: int = 0

    def holds(self, stats: PartitionStats, *, now: float, postpone_time: float) -> bool:
        """True until the time is over, a merge has changed what there is, or `BACK_OFF_PARTS` new parts have come."""
        is_over = now - self.since > postpone_time
        has_grown = stats.inserted_parts >= self.inserted_parts + BACK_OFF_PARTS
        return not (is_over or has_grown or stats.merged_parts != self.merged_parts)


def select_for_merge(
    stats: Mapping[str, PartitionStats],
    *,
    all_partitions: Sequence[str],
    expired: Collection[str] = (),
    postponed: Mapping[str, BackOff],
    counts: Mapping[str, int],
    rotation: Rotation,
    is_ready: bool,
    settings: PartitionSettings,
    now: float,
    rng: Rng,
) -> PartitionSelection:
    """Choose the partitions to search for merges.

    `all_partitions` is in stable catalog order, or the cursor skips some; `expired` ones are not merged any more.
    `postponed` holds when a partition was last found to give nothing, see `postpone`; `counts`: visible parts by
    partition. Of those that are ranked, at most half are there because they are crowded.
    """
    left_out = set(expired)
    everything = [partition for partition in all_partitions if partition not in left_out]
    known = [stats[partition] for partition in everything if partition in stats]
    cause = "strategy rotation" if settings.strategy is PartitionStrategy.ROTATION else None
    cause = cause or rotation_cause(known, rotation, is_ready=is_ready, settings=settings, now=now)
    if cause:
        return rotate(stats, everything, rotation, cause, number=settings.number, now=now)
    number = settings.number
    if number >= len(known):
        return PartitionSelection(chosen=whole(known, number), rotation=rotation)

    waiting: list[PartitionStats] = []
    eligible: list[PartitionStats] = []
    fast: list[PartitionStats] = []
    for one in known:
        parts = counts.get(one.partition, 0)
        back_off = postponed.get(one.partition)
        if back_off is not None and back_off.holds(one, now=now, postpone_time=settings.postpone_time):
            waiting.append(one)
        elif one.merge_speed <= MERGE_SPEED_MAX or parts >= CROWDED_PARTS:
            eligible.append(one)
        else:
            fast.append(one)
    if len(eligible) <= number:
        fast.sort(key=_merging)
        waiting.sort(key=lambda one: postponed[one.partition].since)
        fill = [because(one, f"fill: merge speed {one.merge_speed:.2f} is above {MERGE_SPEED_MAX}") for one in fast]
        fill += [because(one, f"fill: postponed {now - postponed[one.partition].since:.0f} s ago") for one in waiting]
        chosen = [because(one, "eligible, no more than the round takes") for one in eligible] + fill
        return PartitionSelection(chosen=tuple(chosen[:number]), rotation=rotation)
    rng.shuffle(eligible)
    crowded = _crowded(eligible, counts, settings)
    others = [one for one in eligible if one.partition not in crowded]
    first = tuple(ChosenPartition(name, f"crowded, {counts[name]} parts") for name in crowded)
    ranked = _ranked(others, settings, number=number - len(first), now=now)
    return PartitionSelection(chosen=first + ranked, rotation=rotation)


def postpone(
    postponed: Mapping[str, BackOff],
    partitions: Iterable[str],
    *,
    stats: Mapping[str, PartitionStats],
    now: float,
    postpone_time: float,
) -> dict[str, BackOff]:
    """The back-off map with these partitions put off from `now`; entries that are over are dropped.

    For a partition whose task lock was busy, that had no parts, or that had no range worth merging; not for one that
    merely lost the one slot which small partitions share.
    """
    running = {name: each for name, each in postponed.items() if now - each.since <= postpone_time}
    known = ((name, stats.get(name, PartitionStats(partition=name))) for name in partitions)
    return running | {name: BackOff(now, each.inserted_parts, each.merged_parts) for name, each in known}


def _crowded(
    shuffled: Sequence[PartitionStats], counts: Mapping[str, int], settings: PartitionSettings
) -> tuple[str, ...]:
    """The fullest of the crowded partitions, at most half of a round; a strategy that ranks in its own way has none."""
    if settings.strategy is not PartitionStrategy.ADAPTIVE:
        return ()
    crowded = [one.partition for one in shuffled if counts.get(one.partition, 0) >= CROWDED_PARTS]
    return tuple(sorted(crowded, key=lambda name: -counts[name])[: (settings.number + 1) // 2])


def _ranked(
    shuffled: Sequence[PartitionStats], settings: PartitionSettings, *, number: int, now: float
) -> tuple[ChosenPartition, ...]:
    def newest(one: PartitionStats) -> ChosenPartition:
        return because(one, f"newest insert, {now - one.last_insert_time:.0f} s ago")

    by_time = _top(shuffled, lambda one: -one.last_insert_time)
    if settings.strategy is PartitionStrategy.NEWEST:
        return tuple(newest(one) for one in by_time[:number])
    if settings.strategy is PartitionStrategy.PARTS:
        by_parts = _top(shuffled, lambda one: -one.visible_parts)
        return tuple(because(one, f"most parts, {one.visible_parts}") for one in by_parts[:number])
    half = (number + 1) // 2
    slow = _top(by_time[half:], _merging)[: number - half]
    return (
        *(newest(one) for one in by_time[:half]),
        *(because(one, f"slowest merging, speed {one.merge_speed:.2f}") for one in slow),
    )


def _top(items: Iterable[PartitionStats], key: Callable[[PartitionStats], float]) -> list[PartitionStats]:
    return sorted(items, key=key)


def _merging(one: PartitionStats) -> float:
    return one.merge_speed
