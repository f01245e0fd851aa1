"""Eagerness of merges in a partition, from its parts and from what merging cost lately.

Covers: the number of parts that is good enough, the caps that follow from it, the base raised against write
amplification. Does not cover: the choice of ranges (size_tiered.py).
Always holds: with the controller off, or in an OPTIMIZE, only the base of the settings or of the effort counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from tilth.base.units import MIB
from tilth.maintenance.merge.policy.candidates import CandidatePart, Effort
from tilth.maintenance.table.partition_counts import SIX_HOURS, PartitionStats
from tilth.maintenance.table.settings import MergeSettings

#: Base in an OPTIMIZE.
AGGRESSIVE_BASE = 1.0
#: Parts of one merge that the controller counts on.
MERGE_PARTS_MAX = 100
#: The highest base is what a merge of all those parts reaches when they are split by this many.
BASE_DIVISOR = 5
#: Below these the measured write amplification says nothing.
MERGED_BYTES_MIN = MIB
MERGED_PARTS_MIN = 2
INSERTED_PARTS_MIN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Pace of one partition's merges in this round; none is no limit."""

    base: float
    parts_max: int | None = None
    rows_max: int | None = None
    #: Maximum reduction of the partition by all merges of the round together, in parts.
    reduction_max: int | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """The partition has few enough parts."""

    reason: str


def pace(
    parts: Sequence[CandidatePart],
    *,
    selectable: Sequence[CandidatePart],
    stats: PartitionStats | None,
    workers: int,
    now: float,
    settings: MergeSettings,
    effort: Effort,
) -> Pace | Hold:
    """The pace of a partition: all its visible `parts`, of which `selectable` are not under merge."""
    if effort is not Effort.NORMAL:
        return Pace(base=AGGRESSIVE_BASE)
    if settings.expected_parts < 0:
        return Pace(base=settings.base)
    expected = settings.expected_parts or max(1, workers)
    current = len(parts)
    if current <= expected:
        return Hold(f"{current} parts, {expected} are expected")
    rows = sum(part.rows for part in parts)
    smallest = min((part.rows for part in selectable), default=0)
    is_measured = stats is not None and current <= settings.write_amplification_threshold * expected
    return Pace(
        base=_raised_base(stats, now=now, base=settings.base) if stats is not None and is_measured else settings.base,
        parts_max=min(current - expected + 1, MERGE_PARTS_MAX),
        rows_max=max(0, rows // expected + smallest - 1),
        reduction_max=current - expected,
    )


def write_amplification(stats: PartitionStats, *, now: float) -> float | None:
    """Merged over inserted bytes of the last complete slots, within what the merged parts allow; none if unknown."""
    slots = (stats.hour.at(now), stats.six_hours.at(now))
    if sum(slot.last_merged for slot in slots) < MERGED_BYTES_MIN or stats.merged_parts < MERGED_PARTS_MIN:
        return None
    ratios = [slot.last_merged / slot.last_inserted for slot in slots if slot.last_inserted and slot.last_merged]
    measured = sum(ratios) / len(ratios) if ratios else 0.0
    return min(max(measured, _amplification_min(stats)), _amplification_max(stats))


def _raised_base(stats: PartitionStats, *, now: float, base: float) -> float:
    measured = write_amplification(stats, now=now)
    if measured is None or measured <= _amplification_min(stats):
        return base
    if now - stats.last_insert_time >= SIX_HOURS or stats.inserted_parts < INSERTED_PARTS_MIN:
        return base
    low = log(1 + _amplification_min(stats))
    high = log(1 + _amplification_max(stats))
    share = min(1.0, max(0.0, (log(1 + measured) - low) / (high - low)))
    return base + (max(base, MERGE_PARTS_MAX / BASE_DIVISOR) - base) * share


def _amplification_min(stats: PartitionStats) -> float:
    """Lower bound: every merge takes as many parts as it may."""
    return log(stats.merged_parts) / log(MERGE_PARTS_MAX)


def _amplification_max(stats: PartitionStats) -> float:
    """Upper bound: every merge adds one part to a growing one."""
    return (stats.merged_parts - 1) / 2
