"""Oracles and rules of docs/policies/size-tiered.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.oracle import Row, number, numbers, oracle
from tilth.base.units import GIB, KIB, MIB
from tilth.maintenance.merge.policy.candidates import CandidatePart, Effort, MergeSelection, MergeSpec, split_runs
from tilth.maintenance.merge.policy.scoring import Limits, RunScores
from tilth.maintenance.merge.policy.size_tiered import read_gain, select_merges, submittable
from tilth.maintenance.table.settings import MergeSettings

DAY = 86_400.0
#: Without the controller.
PLAIN = MergeSettings(expected_parts=-1)


def part(index: int, size: float, *, age: float = 0.0, partition: str = "a", depth: int = 0) -> CandidatePart:
    return CandidatePart(
        name=f"{partition}_{index}_{index}_0_{index}",
        partition=partition,
        size=int(size),
        rows=1000,
        age=age,
        chain_depth=depth,
        columns_commit_time=1,
    )


def row(sizes_mib: Iterable[float], *, age: float = 0.0, partition: str = "a") -> list[CandidatePart]:
    return [part(index, size * MIB, age=age, partition=partition) for index, size in enumerate(sizes_mib, start=1)]


def select(
    parts: list[CandidatePart],
    *,
    settings: MergeSettings = PLAIN,
    effort: Effort = Effort.NORMAL,
    being_merged: frozenset[str] = frozenset(),
    workers: int = 1,
) -> MergeSelection:
    return select_merges(
        parts,
        being_merged=being_merged,
        stats={},
        workers=workers,
        now=1e9,
        settings=settings,
        effort=effort,
    )


def only(selection: MergeSelection) -> MergeSpec:
    assert len(selection.specs) == 1
    return selection.specs[0]


@pytest.mark.parametrize("line", oracle("size-tiered", "Ranges"))
def test_range_oracle(line: Row) -> None:
    """A large part at the end keeps the exception for whole runs out of it."""
    parts = row(numbers(line["sizes (MiB)"]), age=number(line["youngest age (s)"]))
    stranger = part(99, 200 * GIB)
    scores = RunScores([*parts, stranger], Limits(base=5.0))
    found = scores.of(0, len(parts))
    assert found.ratio == pytest.approx(number(line["ratio"]), rel=1e-3)
    assert found.base == pytest.approx(number(line["b"]), rel=1e-4)
    assert (found.score < float("inf")) is (line["allowed"] == "yes")
    forced = RunScores([*parts, stranger], Limits(base=1.0)).of(0, len(parts))
    assert forced.score == pytest.approx(number(line["score"]), rel=1e-6)


@pytest.mark.parametrize("line", oracle("size-tiered", "Score by number of parts"))
def test_score_by_number_of_parts(line: Row) -> None:
    count = int(line["parts"])
    found = RunScores(row([1] * count), Limits(base=1.0)).of(0, count)
    assert found.score / MIB == pytest.approx(number(line["score (MiB)"]), rel=1e-3)


def test_score_falls_up_to_a_hundred_parts() -> None:
    scores = RunScores(row([1] * 101), Limits(base=1.0))
    values = [scores.of(0, count).score for count in range(2, 101)]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("line", oracle("size-tiered", "Base lowered with age"))
def test_base_falls_with_age(line: Row) -> None:
    total, age = int(number(line["S (MiB)"])) * MIB, number(line["age (days)"]) * DAY
    halves = [part(1, total // 2, age=age), part(2, total - total // 2, age=age)]
    assert RunScores(halves, Limits(base=5.0)).of(0, 2).base == pytest.approx(number(line["b"]), rel=1e-6)


@pytest.mark.parametrize("line", oracle("size-tiered", "Chosen ranges"))
def test_chosen_range(line: Row) -> None:
    parts, first, count = row(numbers(line["sizes (MiB)"])), int(line["first"]), int(line["parts"])
    spec = only(select(parts))
    assert spec.parts == tuple(each.name for each in parts[first : first + count])
    assert spec.score == pytest.approx(number(line["score"]), rel=1e-6)


def test_whole_run_exception() -> None:
    """Ages 7200 all / last 3599 / 0 with final."""
    assert len(only(select(row([1] * 4, age=7200))).parts) == 4
    late = row([1] * 4, age=7200)
    late[-1] = replace(late[-1], age=3599)
    refused = select(late)
    assert refused.specs == ()
    assert "4.00 times its largest" in refused.refusals[0].reason
    fresh = row([1] * 4)
    assert select(fresh).specs == ()
    assert len(only(select(fresh, effort=Effort.FINAL)).parts) == 4


def test_whole_run_exception_ends_at_a_hundred_parts() -> None:
    sizes = [8.0**index for index in range(6)]
    assert len(only(select(row(sizes, age=3600))).parts) == 6
    grown = [part(index, KIB * 1.2**index, age=3600) for index in range(101)]
    assert len(grown) == 101
    assert all(len(spec.parts) < 101 for spec in select(grown).specs)


def test_aggressive() -> None:
    spec = only(select(row([1, 1, 1]), effort=Effort.AGGRESSIVE))
    assert len(spec.parts) == 3
    assert spec.score == pytest.approx(16914954.365, rel=1e-6)


@pytest.mark.parametrize("line", oracle("size-tiered", "Tiny last part"))
def test_penalty_for_a_tiny_last_part(line: Row) -> None:
    """As a share of the sum, from ten parts on."""
    before = int(line["parts of 1 MiB before a part of 1 KiB"])
    found = RunScores([*row([1] * before), part(before + 1, KIB)], Limits(base=1.0)).of(0, before + 1)
    assert found.score == pytest.approx(number(line["score"]), rel=1e-6)


def test_runs_are_cut() -> None:
    parts = row([1] * 12)
    parts[2] = replace(parts[2], columns_commit_time=2)
    parts[4] = replace(parts[4], columns_commit_time=0)
    parts[6] = replace(parts[6], mutation_effective_time=9)
    parts[8] = replace(parts[8], first_needed_mutation=200)
    runs = split_runs(parts, being_merged={parts[10].name})
    assert [[each.name.split("_")[1] for each in run.parts] for run in runs] == [
        ["1", "2"],
        ["3"],
        ["4"],
        ["5"],
        ["6"],
        ["7"],
        ["8"],
        ["9"],
        ["10"],
        ["12"],
    ]
    assert [run.cut.split(" ")[-1] for run in runs][:3] == ["part", "versions", "versions"]
    assert runs[-1].cut == f"{parts[10].name} is under merge or left out"


def test_two_unknown_schema_versions_do_not_merge() -> None:
    parts = [replace(each, columns_commit_time=0) for each in row([1] * 5)]
    refusal = select(parts).refusals[0]
    assert "schema version" in refusal.reason
    assert refusal.should_postpone


def test_parts_under_merge_are_left_alone() -> None:
    parts = row([1] * 6)
    busy = frozenset(each.name for each in parts)
    assert select(parts, being_merged=busy).refusals[0].reason == "all but 0 of 6 parts are under merge"
    assert select(parts[:1]).refusals[0].reason == "only one part"


def test_limits_while_widening() -> None:
    parts = row([1] * 30)
    assert len(only(select(parts, settings=replace(PLAIN, parts_max=12))).parts) == 12
    assert len(only(select(parts, settings=replace(PLAIN, rows_max=7000))).parts) == 7
    assert len(only(select(parts, settings=replace(PLAIN, bytes_max=9 * MIB))).parts) == 9
    unlimited = replace(PLAIN, parts_max=0, rows_max=0, bytes_max=0)
    assert len(only(select(row([1] * 150), settings=unlimited)).parts) == 150
    tight = select(parts, settings=replace(PLAIN, bytes_max=MIB))
    assert "limits" in tight.refusals[0].reason


def test_small_partitions_share_one_range() -> None:
    parts = [*row([1] * 5, partition="a"), *row([1] * 9, partition="b"), *row([1] * 3, partition="c")]
    selection = select(parts)
    assert only(selection).partition == "b"
    assert {refusal.partition: refusal.should_postpone for refusal in selection.refusals} == {"a": False, "c": True}


def test_large_partitions_give_several_disjoint_ranges() -> None:
    parts = [*row([1] * 450, partition="a"), *row([1] * 5, partition="b")]
    selection = select(parts)
    mine = [spec for spec in selection.specs if spec.partition == "a"]
    assert len(mine) == (450 - 1) // 100 + 1
    names = [name for spec in mine for name in spec.parts]
    assert len(names) == len(set(names)) == 450
    assert [spec.partition for spec in selection.specs].count("b") == 1
    assert [spec.score for spec in selection.specs] == sorted(spec.score for spec in selection.specs)


def test_each_run_of_a_large_partition_has_its_quota() -> None:
    sizes = [size for _ in range(60) for size in (1, 1, 1, 1, 1, 1000)]
    parts = row(sizes)
    assert len(select(parts).specs) == (360 - 1) // 100 + 3


def test_a_round_has_a_thousand_ranges_at_most() -> None:
    parts: list[CandidatePart] = []
    for group in range(340):
        for schema in (1, 2, 3):
            mine = [part(10 * schema + index, MIB, partition=f"p{group:03}") for index in range(5)]
            parts += [replace(each, columns_commit_time=schema) for each in mine]
    selection = select(parts, settings=replace(PLAIN, batch_select_parts_min=2))
    assert len(selection.specs) == 1000
    assert [refusal.partition for refusal in selection.refusals] == [f"p{number}" for number in range(334, 340)]
    assert not any(refusal.should_postpone for refusal in selection.refusals)


def test_without_batch_selection_one_range_a_round() -> None:
    assert len(select(row([1] * 450), settings=replace(PLAIN, is_batch_select=False)).specs) == 1


def test_lone_chain() -> None:
    lone = part(1, MIB, age=4 * 3600, depth=2)
    spec = only(select([lone]))
    assert spec.is_lone
    assert spec.parts == (lone.name,)
    assert select([replace(lone, age=4 * 3600 - 1)]).specs == ()
    assert select([replace(lone, chain_depth=0)]).specs == ()
    assert only(select([replace(lone, age=0.0)], effort=Effort.FINAL)).is_lone


def test_lone_chains_come_last() -> None:
    lone = part(1, MIB, age=4 * 3600, depth=2, partition="z")
    selection = select([*row([1] * 5), lone])
    assert [spec.is_lone for spec in selection.specs] == [False, True]


@pytest.mark.parametrize(
    ("workers", "pending", "running", "expected"),
    [(1, 0, 0, 10), (1, 20, 8, 4), (1, 30, 2, 0), (4, 40, 20, 4), (20, 0, 0, 20), (20, 0, 32, 0)],
)
def test_submittable(workers: int, pending: int, running: int, expected: int) -> None:
    """Per round at most max(workers, 10), open at most max(16 * workers, 32), 32 running:
    docs/policies/size-tiered.md#ranges-of-a-round."""
    assert submittable(workers=workers, pending=pending, running=running, settings=PLAIN) == expected


def test_read_gain() -> None:
    assert read_gain(parts=11, bytes_share=0.1, inserts_share=0.5) == 5.0
    assert read_gain(parts=2, bytes_share=0.001, inserts_share=0.0) == 0.01
