"""Key ranges as candidates, and the number of ranges."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from tilth.base.units import GIB, MIB
from tilth.maintenance.merge.policy.candidates import (
    CandidatePart,
    CandidateState,
    MergeSelection,
    MergeSpec,
    candidate_of,
)
from tilth.maintenance.merge.policy.joined_ranges import MERGE_RANGES_MAX, join_candidates, ranges_wanted, why_cut


def part(name: str, *, size: int = 100, age: float = 10.0, deltas: int = 0, mutation: int = 0) -> CandidatePart:
    return CandidatePart(
        name=name,
        partition="p",
        size=size,
        rows=size // 10,
        age=age,
        chain_depth=deltas,
        columns_commit_time=1,
        mutation_effective_time=mutation,
    )


def spec(*parts: CandidatePart) -> MergeSpec:
    return MergeSpec(
        partition="p",
        parts=tuple(each.name for each in parts),
        size=sum(each.size for each in parts),
        rows=sum(each.rows for each in parts),
        score=inf,
        reason="because",
    )


ONE, TWO, THREE, OTHER = part("1"), part("2", size=300, age=5.0, deltas=2), part("3"), part("4")
CUTS = {"1": 7, "2": 7, "3": 7}


def test_the_ranges_of_a_merge_are_one_candidate() -> None:
    joined = join_candidates([ONE, TWO, THREE, OTHER], CUTS, being_merged=(), damaged=())
    [one, other] = joined.candidates
    assert (one.name, one.size, one.rows, one.age, one.chain_depth) == ("1", 500, 50, 5.0, 2)
    assert (other, joined.busy) == (OTHER, frozenset())
    [found] = joined.with_parts(MergeSelection(specs=(spec(one, other),))).specs
    assert (found.parts, found.size, found.counted_parts) == (("1", "2", "3", "4"), 600, 2)
    assert found.reason == "because; 1 of them in 3 key ranges"
    [row] = joined.explained([candidate_of([one], CandidateState.LONE, "alone")])
    assert (row.parts, row.reason) == (("1", "2", "3"), "alone; in 3 key ranges")


def test_ranges_of_two_merges_are_two_candidates_and_whole_parts_their_own() -> None:
    joined = join_candidates([ONE, TWO, THREE, OTHER], {"1": 7, "2": 7, "3": 8, "4": 8}, being_merged=(), damaged=())
    assert [each.name for each in joined.candidates] == ["1", "3"]
    alone = join_candidates([ONE, OTHER], {"1": 7}, being_merged=(), damaged=())
    assert (alone.candidates, dict(alone.members)) == ((ONE, OTHER), {})


def test_ranges_are_busy_together() -> None:
    assert join_candidates([ONE, TWO, THREE], CUTS, being_merged={"3"}, damaged=()).busy == {"1"}
    # A mutation has reached one of them.
    found = join_candidates([ONE, replace(TWO, mutation_effective_time=9), THREE], CUTS, being_merged=(), damaged=())
    assert found.busy == {"1"}


def test_a_damaged_range_does_not_hold_up_the_others() -> None:
    found = join_candidates([ONE, TWO, THREE], CUTS, being_merged={"1"}, damaged={"1"})
    assert [(each.name, each.size) for each in found.candidates] == [("1", 100), ("2", 400)]
    assert found.busy == frozenset()


def test_changes_of_one_range_are_folded_into_it_alone() -> None:
    joined = join_candidates([ONE, TWO, THREE], CUTS, being_merged=(), damaged=())
    [found] = joined.with_parts(MergeSelection(specs=(spec(joined.candidates[0]),))).specs
    assert (found.parts, found.size, found.rows) == (("2",), 300, 30)


@pytest.mark.parametrize(
    ("parts", "size", "least", "ranges"),
    [
        (5, GIB, 0, 1),
        (5, GIB + 1, 0, 2),
        (5, 20 * GIB, 0, 20),
        (5, 150 * GIB, 0, MERGE_RANGES_MAX),
        # A part alone.
        (1, 2 * GIB - 1, 0, 1),
        (1, 2 * GIB, 0, 2),
        # Ranges of `key_range` have a minimum size.
        (5, 20 * GIB, 5 * GIB, 4),
        (5, 3 * GIB, 5 * GIB, 1),
    ],
)
def test_number_of_ranges(parts: int, size: int, least: int, ranges: int) -> None:
    assert ranges_wanted(parts, size, task_bytes=GIB, range_bytes_min=least) == ranges


def test_why_a_merge_is_cut() -> None:
    assert why_cut(1, task_bytes=MIB) == ""
    assert why_cut(3, task_bytes=MIB) == "; cut into 3 key ranges, a task each: more than merge_task_bytes, 1.0 MiB"
