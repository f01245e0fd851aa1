"""Oracles of the controller (docs/policies/size-tiered.md#controller), and its effect on a selection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilth.base.units import MIB
from tilth.maintenance.merge.policy.adaptive import Hold, Pace, pace, write_amplification
from tilth.maintenance.merge.policy.candidates import CandidatePart, Effort, MergeSelection
from tilth.maintenance.merge.policy.size_tiered import select_merges
from tilth.maintenance.table.partition_counts import HOUR, SIX_HOURS, PartitionStats, SlotBytes
from tilth.maintenance.table.settings import MergeSettings

NOW = 100 * SIX_HOURS + 10
SETTINGS = MergeSettings(expected_parts=10)
MEASURED = PartitionStats(
    partition="a",
    inserted_parts=200,
    merged_parts=100,
    last_insert_time=NOW,
    hour=SlotBytes(seconds=HOUR, slot=600, last_inserted=100 * MIB, last_merged=400 * MIB),
    six_hours=SlotBytes(seconds=SIX_HOURS, slot=100, last_inserted=600 * MIB, last_merged=1200 * MIB),
)


def parts(count: int, *, rows: int = 100_000) -> list[CandidatePart]:
    return [
        CandidatePart(name=f"a_{index}_{index}_0_1", partition="a", size=MIB, rows=rows, age=0.0, columns_commit_time=1)
        for index in range(count)
    ]


def found(
    count: int,
    *,
    stats: PartitionStats | None = None,
    settings: MergeSettings = SETTINGS,
    workers: int = 3,
    effort: Effort = Effort.NORMAL,
) -> Pace | Hold:
    members = parts(count)
    return pace(members, selectable=members, stats=stats, workers=workers, now=NOW, settings=settings, effort=effort)


def test_oracle_caps() -> None:
    """Expected 10, current 12, rows 1 200 000, smallest 5000: reduction 2, at most 3 parts, row cap 124 999"""
    members = parts(12)
    members[0] = replace(members[0], rows=5_000)
    members[1] = replace(members[1], rows=195_000)
    result = pace(members, selectable=members, stats=None, workers=1, now=NOW, settings=SETTINGS, effort=Effort.NORMAL)
    assert result == Pace(base=5.0, parts_max=3, rows_max=124_999, reduction_max=2)


def test_oracle_hold() -> None:
    assert found(10) == Hold("10 parts, 10 are expected")


def test_oracle_write_amplification() -> None:
    """1 h 100 in / 400 merged MiB, 6 h 600 / 1200 MiB, merged_parts 100: wa 3.0, r 0.214675, b0 8.220120"""
    assert write_amplification(MEASURED, now=NOW) == pytest.approx(3.0)
    result = found(12, stats=MEASURED)
    assert isinstance(result, Pace)
    assert result.base == pytest.approx(8.220120, rel=1e-6)


@pytest.mark.parametrize(
    "stats",
    [
        replace(MEASURED, last_insert_time=NOW - SIX_HOURS),
        replace(MEASURED, inserted_parts=9),
        replace(MEASURED, merged_parts=1),
        replace(MEASURED, hour=SlotBytes(seconds=HOUR), six_hours=SlotBytes(seconds=SIX_HOURS)),
    ],
)
def test_base_is_not_raised(stats: PartitionStats) -> None:
    result = found(12, stats=stats)
    assert isinstance(result, Pace)
    assert result.base == 5.0


def test_base_is_not_raised_when_there_are_too_many_parts() -> None:
    raised, plain = found(40, stats=MEASURED), found(41, stats=MEASURED)
    off = found(12, stats=MEASURED, settings=replace(SETTINGS, write_amplification_threshold=0.0))
    assert isinstance(raised, Pace)
    assert raised.base > 5.0
    assert isinstance(plain, Pace)
    assert plain.base == 5.0
    assert isinstance(off, Pace)
    assert off.base == 5.0


def test_write_amplification_is_clamped() -> None:
    quiet = replace(MEASURED, six_hours=SlotBytes(seconds=SIX_HOURS), merged_parts=3)
    assert write_amplification(quiet, now=NOW) == 1.0
    without_inserts = replace(quiet, hour=replace(quiet.hour, last_inserted=0), merged_parts=100)
    assert write_amplification(without_inserts, now=NOW) == 1.0


def test_off_and_zero() -> None:
    assert found(4, settings=replace(SETTINGS, expected_parts=-1)) == Pace(base=5.0)
    assert isinstance(found(3, settings=replace(SETTINGS, expected_parts=0)), Hold)
    assert isinstance(found(4, settings=replace(SETTINGS, expected_parts=0)), Pace)
    assert found(4, effort=Effort.AGGRESSIVE) == Pace(base=1.0)


def test_all_ranges_of_a_round_share_the_reduction() -> None:
    """The best range uses it up too: docs/policies/size-tiered.md#why-so."""
    for expected in (100, 150, 240, 295):
        members = parts(300, rows=1)
        selection = _select(members, replace(SETTINGS, expected_parts=expected, rows_max=0))
        reduced = sum(len(spec.parts) - 1 for spec in selection.specs)
        assert 0 < reduced <= 300 - expected or not selection.specs


def test_reduction_is_used_up_by_several_ranges() -> None:
    members = [replace(part, rows=0) for part in parts(300)]
    members[0] = replace(members[0], rows=10_000)
    selection = _select(members, replace(SETTINGS, expected_parts=50))
    assert sum(len(spec.parts) - 1 for spec in selection.specs) == 250


def test_parts_under_merge_count() -> None:
    members = parts(12)
    busy = {part.name for part in members[:6]}
    selection = select_merges(
        members, being_merged=busy, stats={}, workers=1, now=NOW, settings=replace(SETTINGS, expected_parts=12)
    )
    assert selection.refusals[0].reason == "12 parts, 12 are expected"


def _select(members: list[CandidatePart], settings: MergeSettings) -> MergeSelection:
    return select_merges(members, being_merged=set(), stats={}, workers=1, now=NOW, settings=settings)
