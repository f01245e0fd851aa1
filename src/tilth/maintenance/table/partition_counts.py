"""Counts of a table's partitions, and the choice of partitions in turn. Pure.

Covers: counts by partition, how fast merging and collecting keep up, rotation, the partitions of a round. Does not
cover: the choice for merges (merge/policy/partitions.py) and for collecting (gc/policy.py).
Always holds: counts and rotation are values in and values out; every chosen partition has its reason; no partition is
chosen that is not in the list of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilth.maintenance.table.settings import GcPartitionSettings, PartitionSettings

HOUR = 3600.0
SIX_HOURS = 6 * HOUR


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
    #: Visible parts at the last refresh; ranks the strategy `parts`.
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
        """Parts that were counted as ended and not as removed."""
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


def with_partitions(selection: PartitionSelection, partitions: Iterable[str], reason: str) -> PartitionSelection:
    """Add these partitions, each with the reason, where the selection does not have them."""
    chosen = set(selection.partitions)
    extra = [partition for partition in dict.fromkeys(partitions) if partition not in chosen]
    return replace(selection, chosen=selection.chosen + tuple(ChosenPartition(name, reason) for name in extra))


def rotation_cause(
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


def rotate(
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
    chosen = list(everything)
    if len(everything) > step:
        chosen = [everything[(cursor + index) % len(everything)] for index in range(step)]
        cursor = (cursor + step) % len(everything)
    return PartitionSelection(
        chosen=tuple(ChosenPartition(partition, cause) for partition in chosen),
        rotation=Rotation(last_time=now, cursor=cursor),
        unknown=tuple(partition for partition in everything if partition not in stats),
    )


def whole(known: Sequence[PartitionStats], number: int) -> tuple[ChosenPartition, ...]:
    return tuple(because(one, f"all {len(known)} known partitions, a round takes {number}") for one in known)


def because(one: PartitionStats, reason: str) -> ChosenPartition:
    return ChosenPartition(one.partition, reason)
