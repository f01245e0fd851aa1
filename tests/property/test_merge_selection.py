"""Any layout of parts: the choice is the best one by brute force, ranges are disjoint and within limits, and doing what
the policy says again and again comes to an end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, log, log2

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long import examples
from tilth.maintenance.merge.policy.candidates import CandidatePart, Effort, MergeSpec, split_runs
from tilth.maintenance.merge.policy.scoring import Limits, RunScores
from tilth.maintenance.merge.policy.size_tiered import ripening, select_merges
from tilth.maintenance.table.settings import MergeSettings

PLAIN = MergeSettings(expected_parts=-1)
F = 5 * 2**20


def build(partition: str, facts: Sequence[tuple[int, int, float, int, int]]) -> list[CandidatePart]:
    return [
        CandidatePart(
            name=f"{partition}_{index}_{index}_0_{index}",
            partition=partition,
            size=size,
            rows=rows,
            age=age,
            chain_depth=depth,
            columns_commit_time=columns,
        )
        for index, (size, rows, age, depth, columns) in enumerate(facts)
    ]


FACTS = st.tuples(
    st.integers(0, 36).map(lambda power: 2**power - 1),
    st.integers(0, 10_000_000),
    st.sampled_from([0.0, 60.0, 3599.0, 3600.0, 7200.0, 86_400.0, 30 * 86_400.0]),
    st.integers(0, 2),
    st.sampled_from([1, 1, 1, 1, 1, 1, 1, 2, 0]),
)
LAYOUT = st.lists(FACTS, min_size=1, max_size=40)


def brute_score(run: Sequence[CandidatePart], begin: int, end: int, limits: Limits) -> float:
    """docs/policies/size-tiered.md#score, word by word."""
    parts = run[begin:end]
    n, total, largest = len(parts), sum(part.size for part in parts), max(part.size for part in parts)
    if limits.bytes_max is not None and total > limits.bytes_max:
        return inf
    if limits.rows_max is not None and sum(part.rows for part in parts) > limits.rows_max:
        return inf
    s = min(max((log(1 + total) - 13) / (25 - 13), 0), 1)
    t = 3600 + s * (30 * 86_400 - 3600)
    a = min(max((min(part.age for part in parts) - 10) / (t - 10), 0), 1)
    base = limits.base if limits.base <= 2 else limits.base - (limits.base - 2) * a
    is_whole = n == len(run) <= 100 and run[-1].age >= 3600
    if (total + F * n) / (largest + F) < base and not is_whole:
        return inf
    score = float((total + F * n) / (n - 1.9) ** 1.15)
    left = run[begin - 1].size if begin else 0
    if total and left > 0.9 * total and abs(log2(total / left)) < 0.5:
        score *= 0.75 + 0.25 * abs(log2(total / left)) / 0.5
    if n >= 10 and parts[-1].size < (0.001 + 0.1 / n) * total:
        score *= 1.15
    return score


def older(parts: Sequence[CandidatePart], seconds: float) -> list[CandidatePart]:
    return [replace(part, age=part.age + seconds) for part in parts]


@given(LAYOUT, st.sampled_from([-1, 0, 3]))
@settings(max_examples=examples(200))
def test_age_alone_makes_a_merge_worth_it_exactly_when_it_is_said(
    facts: list[tuple[int, int, float, int, int]], expected_parts: int
) -> None:
    parts, rules = build("a", facts), MergeSettings(expected_parts=expected_parts)

    def specs(seconds: float) -> Sequence[MergeSpec]:
        grown = older(parts, seconds)
        return select_merges(grown, being_merged=(), stats={}, workers=2, now=1e9, settings=rules).specs

    if specs(0):
        return
    found = ripening(parts, being_merged=(), workers=2, settings=rules)
    if found.seconds == inf:
        assert not specs(60 * 86_400.0)
    else:
        assert found.seconds == 0 or not specs(found.seconds - min(1.0, found.seconds / 2))
        assert specs(found.seconds + 1)
    if found.is_held:
        assert len(parts) <= (expected_parts or 2)


@given(LAYOUT, st.integers(2, 12), st.sampled_from([1.0, 2.0, 5.0, 8.0]), st.data())
@settings(max_examples=examples(150))
def test_best_range_is_that_of_brute_force(
    facts: list[tuple[int, int, float, int, int]], parts_max: int, base: float, data: st.DataObject
) -> None:
    run = build("a", facts)
    limits = Limits(base=base, bytes_max=150 << 30, rows_max=50_000_000, parts_max=parts_max)
    scores = RunScores(run, limits)
    begin = data.draw(st.integers(0, len(run)))
    end = data.draw(st.integers(begin, len(run)))
    narrow = data.draw(st.one_of(st.none(), st.integers(0, parts_max)))
    widest = parts_max if narrow is None else min(narrow, parts_max)
    all_scores = [
        brute_score(run, first, last, limits)
        for first in range(begin, end)
        for last in range(first + 2, min(first + widest, end) + 1)
    ]
    expected = min(all_scores, default=inf)
    found = scores.best(begin, end, parts_max=narrow)
    if found is None:
        assert expected == inf
        return
    assert abs(found.score - expected) <= 1e-9 * expected
    assert begin <= found.begin < found.end <= end
    assert found.length <= widest


@given(st.lists(LAYOUT, min_size=1, max_size=4), st.sampled_from(list(Effort)), st.integers(-1, 30), st.data())
@settings(max_examples=examples(100))
def test_ranges_are_disjoint_and_lawful(
    layouts: list[list[tuple[int, int, float, int, int]]], effort: Effort, expected: int, data: st.DataObject
) -> None:
    parts = [part for index, facts in enumerate(layouts) for part in build(f"p{index}", facts)]
    busy = data.draw(st.sets(st.sampled_from([part.name for part in parts]), max_size=5))
    policy = replace(PLAIN, expected_parts=expected, batch_select_parts_min=data.draw(st.sampled_from([2, 10, 200])))
    selection = select_merges(parts, being_merged=busy, stats={}, workers=2, now=1e9, settings=policy, effort=effort)
    names = [name for spec in selection.specs for name in spec.parts]
    assert len(names) == len(set(names))
    assert not busy.intersection(names)
    answered = {spec.partition for spec in selection.specs} | {refusal.partition for refusal in selection.refusals}
    assert answered == {part.partition for part in parts}
    by_name = {part.name: part for part in parts}
    for spec in selection.specs:
        members = [by_name[name] for name in spec.parts]
        assert spec.size == sum(part.size for part in members)
        if spec.is_lone:
            assert members[0].chain_depth > 0
            continue
        assert len(members) <= policy.parts_max
        assert spec.size <= policy.bytes_max
        assert spec.rows <= policy.rows_max
        mine = [part for part in parts if part.partition == spec.partition]
        runs = [tuple(part.name for part in run.parts) for run in split_runs(mine, being_merged=busy)]
        assert any(spec.parts == run[at : at + len(spec.parts)] for run in runs for at in range(len(run)))


@given(LAYOUT, st.sampled_from(list(Effort)), st.sampled_from([2, 200]))
@settings(max_examples=examples(60))
def test_policy_and_ideal_merge_come_to_an_end(
    facts: list[tuple[int, int, float, int, int]], effort: Effort, batch_from: int
) -> None:
    """Each merge makes fewer parts or folds a chain, so no more rounds are needed than there are of both."""
    parts = build("a", facts)
    policy = replace(PLAIN, batch_select_parts_min=batch_from)
    rounds_max = len(parts) + sum(part.chain_depth > 0 for part in parts)
    for number in range(rounds_max + 1):
        specs = select_merges(
            parts, being_merged=set(), stats={}, workers=1, now=1e9, settings=policy, effort=effort
        ).specs
        if not specs:
            return
        assert number < rounds_max
        for spec in specs:
            parts = merged(parts, spec, f"{number}_{spec.parts[0]}")


@given(st.lists(st.integers(1, 2**30), min_size=2, max_size=300))
@settings(max_examples=examples(25))
def test_a_quiet_partition_becomes_one_part(sizes: list[int]) -> None:
    """All parts are old, nothing is above the limits: what the policy leaves is one part."""
    parts = build("a", [(min(size, 2**27), 1, 30 * 86_400.0, 0, 1) for size in sizes])
    while specs := select_merges(parts, being_merged=set(), stats={}, workers=1, now=1e9, settings=PLAIN).specs:
        for spec in specs:
            parts = [replace(part, age=30 * 86_400.0) for part in merged(parts, spec, f"m_{spec.parts[0]}")]
    assert len(parts) == 1


def merged(parts: Sequence[CandidatePart], spec: MergeSpec, name: str) -> list[CandidatePart]:
    """The parts with those of the spec replaced by one new part in their place."""
    taken = set(spec.parts)
    result: list[CandidatePart] = []
    for part in parts:
        if part.name == spec.parts[0]:
            result.append(replace(part, name=name, size=spec.size, rows=spec.rows, age=0.0, chain_depth=0))
        elif part.name not in taken:
            result.append(part)
    return result
