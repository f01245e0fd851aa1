"""Choice of the partitions that are looked at in this round.

Covers: what is counted per partition, how fast merging and collecting keep up, the choice for merges and for garbage
collection, rotation, back-off, the fill rule. Does not cover: which parts of a partition (size_tiered.py).
Always holds: rotation, step and back-off are values in and values out; every chosen partition has its reason; no
partition is chosen that is not in the list of all.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilth.base.rand import Rng
from tilth.base.units import show_bytes
from tilth.maintenance.policy.settings import GcPartitionSettings, PartitionSettings, PartitionStrategy

HOUR = 3600.0
SIX_HOURS = 6 * HOUR

#: Merging has caught up when it consumed this many parts for each inserted one.
MERGE_SPEED_MAX = 1.2
#: Collecting has caught up when it removed this many parts for each merged one.
GC_SPEED_MAX = 0.95
#: New parts that end a back-off: so many small ones are worth a merge whatever else there is.
BACK_OFF_PARTS = 5
#: A partition with at least this many visible parts goes first, the fullest before all others.
CROWDED_PARTS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotBytes:
    """Bytes inserted and merged in the running and in the last complete slot of the clock."""

    #: Length of a slot in seconds.
    seconds: float
    #: Number of the running slot since 1970.
    slot: int = 0
    inserted: int = 0
    merged: int = 0
    #: The same of the slot before; zero if that slot was skipped.
    last_inserted: int = 0
    last_merged: int = 0

    def at(self, now: float) -> SlotBytes:
        """The same counters as seen at `now`: a slot that is over has become the last one."""
        slot = int(now // self.seconds)
        if slot <= self.slot:
            return self
        if slot == self.slot + 1:
            return SlotBytes(seconds=self.seconds, slot=slot, last_inserted=self.inserted, last_merged=self.merged)
        return SlotBytes(seconds=self.seconds, slot=slot)

    def added(self, *, now: float, inserted: int = 0, merged: int = 0) -> SlotBytes:
        seen = self.at(now)
        return replace(seen, inserted=seen.inserted + inserted, merged=seen.merged + merged)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStats:
    """Counts of one partition since the statistics began."""

    partition: str
    inserted_parts: int = 0
    #: Source parts consumed by merges.
    merged_parts: int = 0
    #: Parts with rows that were moved to the trash.
    removed_parts: int = 0
    #: Parts that merges, mutations and drops have replaced or hidden, which can be collected after a while.
    ended_parts: int = 0
    ended_bytes: int = 0
    removed_bytes: int = 0
    #: Seconds since 1970; 0 if none was seen.
    last_insert_time: float = 0.0
    #: Visible parts at the last look; ranks the strategy `parts`.
    visible_parts: int = 0
    hour: SlotBytes = field(default=SlotBytes(seconds=HOUR))
    six_hours: SlotBytes = field(default=SlotBytes(seconds=SIX_HOURS))

    @property
    def merge_speed(self) -> float:
        return self.merged_parts / self.inserted_parts if self.inserted_parts else 1.0

    @property
    def gc_speed(self) -> float:
        return self.removed_parts / self.merged_parts if self.merged_parts else 1.0

    @property
    def waiting_parts(self) -> int:
        """Parts that have ended and are not collected yet, as far as was counted."""
        return max(0, self.ended_parts - self.removed_parts)

    @property
    def waiting_bytes(self) -> int:
        return max(0, self.ended_bytes - self.removed_bytes)

    def with_insert(self, *, now: float, parts: int, size: int) -> PartitionStats:
        """After `parts` parts of `size` bytes in all were inserted at `now`."""
        return replace(
            self,
            inserted_parts=self.inserted_parts + parts,
            last_insert_time=max(self.last_insert_time, now),
            hour=self.hour.added(now=now, inserted=size),
            six_hours=self.six_hours.added(now=now, inserted=size),
        )

    def with_merge(self, *, now: float, parts: int, size: int) -> PartitionStats:
        """After `parts` source parts of `size` bytes in all were merged at `now`."""
        return replace(
            self,
            merged_parts=self.merged_parts + parts,
            ended_parts=self.ended_parts + parts,
            ended_bytes=self.ended_bytes + size,
            hour=self.hour.added(now=now, merged=size),
            six_hours=self.six_hours.added(now=now, merged=size),
        )

    def with_end(self, *, parts: int, size: int) -> PartitionStats:
        """After `parts` parts of `size` bytes in all were replaced or hidden otherwise."""
        return replace(self, ended_parts=self.ended_parts + parts, ended_bytes=self.ended_bytes + size)

    def with_removal(self, *, parts: int, size: int = 0) -> PartitionStats:
        return replace(self, removed_parts=self.removed_parts + parts, removed_bytes=self.removed_bytes + size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """Position of the rotation through all partitions."""

    #: Seconds since 1970.
    last_time: float = 0.0
    #: Index in the list of all partitions where the next rotation begins.
    cursor: int = 0


@dataclass(frozen=True, slots=True)
class BackOff:
    """A partition in which nothing was worth merging: others are looked at first for a while."""

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


@dataclass(frozen=True, slots=True)
class ChosenPartition:
    partition: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSelection:
    """The partitions of this round and what to remember for the next."""

    chosen: tuple[ChosenPartition, ...]
    rotation: Rotation
    #: Partitions that the caller adds to its statistics, with zero counters.
    unknown: tuple[str, ...] = ()

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(one.partition for one in self.chosen)


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
    """The partitions to look for merges in.

    `all_partitions` is in stable catalog order, or the cursor skips some; `expired` ones are not merged any more.
    `postponed` holds when a partition was last found to give nothing, see `postpone`; `counts`: visible parts by
    partition. Of those that are ranked, at most half are there because they are crowded.
    """
    left_out = set(expired)
    everything = [partition for partition in all_partitions if partition not in left_out]
    known = [stats[partition] for partition in everything if partition in stats]
    cause = "strategy rotation" if settings.strategy is PartitionStrategy.ROTATION else None
    cause = cause or _rotation_cause(known, rotation, is_ready=is_ready, settings=settings, now=now)
    if cause:
        return _rotate(stats, everything, rotation, cause, number=settings.number, now=now)
    number = settings.number
    if number >= len(known):
        return PartitionSelection(chosen=_whole(known, number), rotation=rotation)

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
        fill = [_because(one, f"fill: merge speed {one.merge_speed:.2f} is above {MERGE_SPEED_MAX}") for one in fast]
        fill += [_because(one, f"fill: postponed {now - postponed[one.partition].since:.0f} s ago") for one in waiting]
        chosen = [_because(one, "eligible, no more than the round takes") for one in eligible] + fill
        return PartitionSelection(chosen=tuple(chosen[:number]), rotation=rotation)
    rng.shuffle(eligible)
    crowded = _crowded(eligible, counts, settings)
    others = [one for one in eligible if one.partition not in crowded]
    first = tuple(ChosenPartition(name, f"crowded, {counts[name]} parts") for name in crowded)
    ranked = _ranked(others, settings, number=number - len(first), now=now)
    return PartitionSelection(chosen=first + ranked, rotation=rotation)


def select_for_gc(
    stats: Mapping[str, PartitionStats],
    *,
    all_partitions: Sequence[str],
    pushed: Iterable[str] = (),
    rotation: Rotation,
    is_ready: bool,
    settings: GcPartitionSettings,
    now: float,
    rng: Rng,
) -> PartitionSelection:
    """Select the partitions to collect in: half of them the slowest collected ones, the others those with the most
    bytes and the most parts to collect, by turns; plus those that finished merges `pushed`.
    """
    known = [stats[partition] for partition in all_partitions if partition in stats]
    cause = _rotation_cause(known, rotation, is_ready=is_ready, settings=settings, now=now)
    if cause:
        selection = _rotate(stats, all_partitions, rotation, cause, number=settings.number, now=now)
    else:
        selection = PartitionSelection(chosen=_to_collect(known, settings.number, rng), rotation=rotation)
    there = set(all_partitions)
    return with_partitions(selection, [name for name in pushed if name in there], "a merge finished here")


def with_partitions(selection: PartitionSelection, partitions: Iterable[str], reason: str) -> PartitionSelection:
    """Add these partitions, each with the reason, where the selection does not have them."""
    taken = set(selection.partitions)
    extra = [partition for partition in dict.fromkeys(partitions) if partition not in taken]
    return replace(selection, chosen=selection.chosen + tuple(ChosenPartition(name, reason) for name in extra))


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


def _rotation_cause(
    known: Sequence[PartitionStats],
    rotation: Rotation,
    *,
    is_ready: bool,
    settings: PartitionSettings | GcPartitionSettings,
    now: float,
) -> str | None:
    if settings.number == 0:
        return "rotation: one by one"
    if not is_ready:
        return "rotation: statistics are not ready"
    if not known:
        return "rotation: no partition is known"
    # A rotation in the future comes from a clock that was ahead.
    if not 0 <= now - rotation.last_time <= settings.rotation_interval:
        return f"rotation: the last one is {now - rotation.last_time:.0f} s past"
    return None


def _rotate(
    stats: Mapping[str, PartitionStats],
    everything: Sequence[str],
    rotation: Rotation,
    cause: str,
    *,
    number: int,
    now: float,
) -> PartitionSelection:
    step = max(1, number)
    cursor = rotation.cursor
    taken = list(everything)
    if len(everything) > step:
        taken = [everything[(cursor + index) % len(everything)] for index in range(step)]
        cursor = (cursor + step) % len(everything)
    return PartitionSelection(
        chosen=tuple(ChosenPartition(partition, cause) for partition in taken),
        rotation=Rotation(last_time=now, cursor=cursor),
        unknown=tuple(partition for partition in everything if partition not in stats),
    )


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
        return _because(one, f"newest insert, {now - one.last_insert_time:.0f} s ago")

    by_time = _top(shuffled, lambda one: -one.last_insert_time)
    if settings.strategy is PartitionStrategy.NEWEST:
        return tuple(newest(one) for one in by_time[:number])
    if settings.strategy is PartitionStrategy.PARTS:
        by_parts = _top(shuffled, lambda one: -one.visible_parts)
        return tuple(_because(one, f"most parts, {one.visible_parts}") for one in by_parts[:number])
    half = (number + 1) // 2
    slow = _top(by_time[half:], _merging)[: number - half]
    return (
        *(newest(one) for one in by_time[:half]),
        *(_because(one, f"slowest merging, speed {one.merge_speed:.2f}") for one in slow),
    )


def _to_collect(known: Sequence[PartitionStats], number: int, rng: Rng) -> tuple[ChosenPartition, ...]:
    if number >= len(known):
        return _whole(known, number)
    mixed = list(known)
    rng.shuffle(mixed)
    full = _fullest(mixed, number // 2)
    taken = {one.partition for one in full}
    others = [one for one in mixed if one.partition not in taken]
    return (*_slowest_collected(others, number - len(full)), *full)


def _fullest(mixed: Sequence[PartitionStats], number: int) -> tuple[ChosenPartition, ...]:
    """Partitions with the most bytes to collect and those with the most parts, by turns; none that has nothing."""
    by_bytes = heapq.nlargest(number, mixed, key=lambda one: one.waiting_bytes)
    by_parts = heapq.nlargest(number, mixed, key=lambda one: one.waiting_parts)
    found: dict[str, ChosenPartition] = {}
    for large, many in zip(by_bytes, by_parts, strict=True):
        if large.waiting_bytes:
            text = f"most bytes to collect, {show_bytes(large.waiting_bytes)}"
            found.setdefault(large.partition, _because(large, text))
        if many.waiting_parts:
            found.setdefault(many.partition, _because(many, f"most parts to collect, {many.waiting_parts}"))
    return tuple(found.values())[:number]


def _slowest_collected(mixed: Sequence[PartitionStats], number: int) -> tuple[ChosenPartition, ...]:
    # Those that keep up come last by themselves, so the same order also fills a round that lacks eligible ones.
    slow = _top(mixed, lambda one: one.gc_speed)[:number]
    return tuple(
        _because(
            one,
            f"slowest collecting, speed {one.gc_speed:.2f}"
            if one.gc_speed <= GC_SPEED_MAX
            else f"fill: collecting speed {one.gc_speed:.2f} is above {GC_SPEED_MAX}",
        )
        for one in slow
    )


def _whole(known: Sequence[PartitionStats], number: int) -> tuple[ChosenPartition, ...]:
    return tuple(_because(one, f"all {len(known)} known partitions, a round takes {number}") for one in known)


def _top(items: Iterable[PartitionStats], key: Callable[[PartitionStats], float]) -> list[PartitionStats]:
    return sorted(items, key=key)


def _merging(one: PartitionStats) -> float:
    return one.merge_speed


def _because(one: PartitionStats, reason: str) -> ChosenPartition:
    return ChosenPartition(one.partition, reason)
