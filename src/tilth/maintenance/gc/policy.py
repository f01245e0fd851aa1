"""Limits and verdicts of garbage collection, in its two phases: record to trash, trash to nothing.

Covers: what holds collection back, the partitions of a round, the verdict on each entry and each item of trash, batch
sizes and pauses. Does not cover: end times of entries (tilth.catalog), when a partition ends (table/ttl.py), the
deletion itself (gc).
Always holds: an entry that a reader, a running transaction or an allowed read of the past may still need stays; every
verdict has its reason. Times that end in `_ts` are hybrid times, see tilth.base.hybrid. What a dead transaction left
has no record in the catalog, so the verdicts know only entries that were committed.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tilth.base.hybrid import milliseconds, pack
from tilth.base.rand import Rng
from tilth.base.units import show_bytes
from tilth.maintenance.table.partition_counts import (
    ChosenPartition,
    PartitionSelection,
    PartitionStats,
    Rotation,
    because,
    rotate,
    rotation_cause,
    whole,
    with_partitions,
)
from tilth.maintenance.table.settings import GcPartitionSettings, GcSettings
from tilth.maintenance.table.ttl import ExpiryBound, TableTtl, shown
from tilth.model.ttl import ends_ms

#: A reader that is older holds collection back no more.
READER_HOLD_SECONDS_MAX = 7200.0
#: Rounds in a row with work after which the number of deleters grows no more.
HITS_MAX = 15
#: Empty partitions are forgotten at the earliest after this.
EMPTY_PARTITION_SECONDS_MIN = 1800.0
#: Collecting has caught up when it removed this many parts for each merged one.
GC_SPEED_MAX = 0.95


class GcHold(StrEnum):
    """The bound that holds collection back most."""

    LIFETIME = "old_parts_lifetime"
    TRANSACTION = "the oldest active transaction"
    READER = "the oldest reader"
    NAMED_READER = "a reader of changes"
    HISTORY = "the ancient history mark"
    #: Bound of phase 2.
    TRASH_LIFETIME = "ttl_for_trash_items"
    SNAPSHOT = "a snapshot that is read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutoff:
    """The time before which an entry must have ended to go."""

    #: Hybrid time; exclusive.
    before_ts: int
    #: The same without history: what intermediate entries are judged by, and what decides whether a round is worth it.
    gc_ts: int
    hold: GcHold


@dataclass(frozen=True, slots=True, kw_only=True)
class GcEntry:
    """A record with its end time as the catalog computed it."""

    name: str
    commit_ts: int
    #: Time when it was hidden for good; none while something needs it.
    end_ts: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashRecord:
    """A record in the trash."""

    name: str
    commit_ts: int
    #: 0 for what a dead transaction left.
    end_ts: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict on one entry or trashed part: it goes now or not, and why."""

    name: str
    goes: bool
    reason: str
    #: Bound that retains it, if any.
    hold: GcHold | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashState:
    """The memory of phase 2 between rounds."""

    #: Name after which the next round begins; none for the beginning.
    cursor: str | None = None
    #: Rounds in a row that had work.
    hits: int = 0


def cutoff(
    *,
    now_ms: int,
    oldest_txn: int | None,
    oldest_reader: int | None,
    oldest_named: int | None = None,
    ahm: int | None,
    settings: GcSettings,
) -> Cutoff:
    """Return the limit of collection: the start of the oldest active transaction over all servers (none if there is
    none), the snapshots of the oldest reader and of the oldest one that follows changes, and the ancient history mark
    (none if history is not retained)."""
    reader_floor = _before(now_ms, READER_HOLD_SECONDS_MAX)
    marks = [(_before(now_ms, settings.old_parts_lifetime), GcHold.LIFETIME)]
    if oldest_txn is not None:
        marks.append((oldest_txn, GcHold.TRANSACTION))
    if oldest_reader is not None:
        marks.append((max(oldest_reader, reader_floor), GcHold.READER))
    if oldest_named is not None:
        # However old: it renews its lease, and has nowhere else to read the changes.
        marks.append((oldest_named, GcHold.NAMED_READER))
    gc_ts = min(mark for mark, _ in marks)
    if ahm is not None:
        marks.append((ahm, GcHold.HISTORY))
    before, hold = min(marks, key=lambda mark: mark[0])
    return Cutoff(before_ts=before, gc_ts=gc_ts, hold=hold)


def is_round_due(limit: Cutoff, *, last_gc_ts: int) -> bool:
    """True if phase 1 could find anything that its last observation of the same entries could not."""
    return limit.gc_ts > last_gc_ts


def kept_ms(settings: GcSettings) -> int:
    """Return how long after its end an entry stays at least."""
    return round(max(settings.old_parts_lifetime, settings.history, 0.0) * 1000)


def judge_entry(entry: GcEntry, limit: Cutoff) -> Verdict:
    """Phase 1: whether a record moves to the trash."""
    if entry.end_ts is None:
        return Verdict(entry.name, False, "nothing hides it for good")
    if entry.end_ts >= limit.before_ts:
        late = (milliseconds(entry.end_ts) - milliseconds(limit.before_ts)) / 1000
        return Verdict(entry.name, False, f"held back by {limit.hold}: ended {late:.3f} s after it", limit.hold)
    return Verdict(entry.name, True, "hidden, and nothing needs it any more")


def plan_moves(entries: Iterable[GcEntry], limit: Cutoff, *, settings: GcSettings) -> tuple[Verdict, ...]:
    """Phase 1: the verdicts on all entries; those above the limit of one round stay for the next."""
    verdicts: list[Verdict] = []
    moved = 0
    for entry in entries:
        verdict = judge_entry(entry, limit)
        if verdict.goes and settings.move_max and moved >= settings.move_max:
            verdict = Verdict(entry.name, False, f"gc_trash_part_limit={settings.move_max} is reached in this round")
        moved += verdict.goes
        verdicts.append(verdict)
    return tuple(verdicts)


def judge_trash(item: TrashRecord, *, now_ms: int, snapshots: Sequence[int], settings: GcSettings) -> Verdict:
    """Phase 2: whether an item's files are deleted. `snapshots` are the times still read, in ascending order."""
    if item.end_ts == 0:
        return Verdict(item.name, True, "left by a dead transaction")
    if item.commit_ts > item.end_ts:
        return Verdict(item.name, True, "hidden before it was committed")
    if item.end_ts >= _before(now_ms, settings.trash_lifetime):
        age = (now_ms - milliseconds(item.end_ts)) / 1000
        text = f"hidden {age:.0f} s ago, {GcHold.TRASH_LIFETIME}={settings.trash_lifetime:.0f}"
        return Verdict(item.name, False, text, GcHold.TRASH_LIFETIME)
    held = judge_snapshots(item.name, commit_ts=item.commit_ts, end_ts=item.end_ts, snapshots=snapshots)
    return held or Verdict(item.name, True, "its time in the trash is over")


def judge_ended(entry: GcEntry, limit: Cutoff, snapshots: Sequence[int]) -> Verdict:
    """Judge whether a file that nobody brings back is deleted without having been in the trash: phase 1 and phase 2 at
    once. `snapshots` are the times still read, in ascending order."""
    verdict = judge_entry(entry, limit)
    if not verdict.goes or entry.end_ts is None:
        return verdict
    return judge_snapshots(entry.name, commit_ts=entry.commit_ts, end_ts=entry.end_ts, snapshots=snapshots) or verdict


def judge_snapshots(name: str, *, commit_ts: int, end_ts: int, snapshots: Sequence[int]) -> Verdict | None:
    """Return the verdict that a snapshot still needs it; None: no one does."""
    first = bisect_left(snapshots, commit_ts)
    if first < len(snapshots) and snapshots[first] < end_ts:
        return Verdict(name, False, f"the snapshot at {snapshots[first]} reads it", GcHold.SNAPSHOT)
    return None


def deleters(hits: int, *, deleters_max: int) -> int:
    """Return how many deleters work at once after so many rounds in a row with work."""
    return max(1, min(2 << min(hits, HITS_MAX), deleters_max))


def trash_limit(hits: int, *, settings: GcSettings) -> int:
    """Return how many items of trash the next round reads."""
    return deleters(hits, deleters_max=settings.deleters_max) * max(settings.remove_batch, 2)


def after_trash_round(state: TrashState, *, last_seen: str | None, is_at_end: bool, had_work: bool) -> TrashState:
    """Return the state to remember after a round: it went up to `last_seen`, and begins anew after the end."""
    return TrashState(cursor=None if is_at_end else last_seen, hits=state.hits + 1 if had_work else 0)


def move_pause(*, has_moved: bool, settings: GcSettings, rng: Rng) -> float:
    """Seconds until the next round of phase 1."""
    return (0.0 if has_moved else settings.pause) + rng.random() * settings.pause_random


def trash_pause(state: TrashState, *, has_removed: bool, settings: GcSettings, rng: Rng) -> float:
    """Seconds until the next round of phase 2."""
    if state.cursor is not None or has_removed:
        return rng.random() * settings.pause_random
    return settings.pause_max


def judge_empty_partition(
    partition: str, *, empty_since: float, has_trash: bool, now: float, settings: GcSettings
) -> Verdict:
    """Judge whether a partition that was marked as empty is forgotten."""
    if has_trash:
        return Verdict(partition, False, "it still has trash")
    wait = max(2 * settings.trash_lifetime, EMPTY_PARTITION_SECONDS_MIN)
    return Verdict(partition, now - empty_since > wait, f"empty for {now - empty_since:.0f} s, {wait:.0f} s needed")


def judge_expiry(partition: str, end: ExpiryBound, table: TableTtl, *, now_ms: int) -> Verdict:
    """Return the verdict whether a whole partition has expired."""
    if end.last is None:
        return Verdict(partition, False, end.reason)
    at = shown(ends_ms(table.ttl, end.last, table.column.type))
    if end.last < table.below(now_ms):
        return Verdict(partition, True, f"all its rows expired at {at}, {end.reason}")
    return Verdict(partition, False, f"its last row expires at {at}, {end.reason}")


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
    cause = rotation_cause(known, rotation, is_ready=is_ready, settings=settings, now=now)
    if cause:
        selection = rotate(stats, all_partitions, rotation, cause, number=settings.number, now=now)
    else:
        selection = PartitionSelection(chosen=_to_collect(known, settings.number, rng), rotation=rotation)
    there = set(all_partitions)
    return with_partitions(selection, [name for name in pushed if name in there], "a merge finished here")


def _before(now_ms: int, seconds: float) -> int:
    return pack(max(0, now_ms - round(seconds * 1000)))


def _to_collect(known: Sequence[PartitionStats], number: int, rng: Rng) -> tuple[ChosenPartition, ...]:
    if number >= len(known):
        return whole(known, number)
    mixed = list(known)
    rng.shuffle(mixed)
    full = _fullest(mixed, number // 2)
    chosen = {one.partition for one in full}
    others = [one for one in mixed if one.partition not in chosen]
    return (*_slowest_collected(others, number - len(full)), *full)


def _fullest(mixed: Sequence[PartitionStats], number: int) -> tuple[ChosenPartition, ...]:
    """Partitions with the most bytes to collect and those with the most parts, by turns; none that has nothing."""
    by_bytes = heapq.nlargest(number, mixed, key=lambda one: one.waiting_bytes)
    by_parts = heapq.nlargest(number, mixed, key=lambda one: one.waiting_parts)
    found: dict[str, ChosenPartition] = {}
    for large, many in zip(by_bytes, by_parts, strict=True):
        if large.waiting_bytes:
            text = f"most bytes to collect, {show_bytes(large.waiting_bytes)}"
            found.setdefault(large.partition, because(large, text))
        if many.waiting_parts:
            found.setdefault(many.partition, because(many, f"most parts to collect, {many.waiting_parts}"))
    return tuple(found.values())[:number]


def _slowest_collected(mixed: Sequence[PartitionStats], number: int) -> tuple[ChosenPartition, ...]:
    # Partitions that keep up come last by themselves, so the same order also fills a round that lacks eligible ones.
    slow = sorted(mixed, key=lambda one: one.gc_speed)[:number]
    return tuple(
        because(
            one,
            f"slowest collecting, speed {one.gc_speed:.2f}"
            if one.gc_speed <= GC_SPEED_MAX
            else f"fill: collecting speed {one.gc_speed:.2f} is above {GC_SPEED_MAX}",
        )
        for one in slow
    )
