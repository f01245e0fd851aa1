"""Properties of docs/policies/key-range.md: the set found is within the budget and as good as promised by brute force,
more budget gains more, and doing what the policy says again and again comes to an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long import examples
from tilth.base.rand import Rng, new_rng
from tilth.base.units import MIB
from tilth.maintenance.merge.policy import knapsack
from tilth.maintenance.merge.policy.candidates import CandidatePart, MergeSpec
from tilth.maintenance.merge.policy.key_range import KeyRangePolicy
from tilth.maintenance.merge.policy.key_shares import key_shares
from tilth.maintenance.merge.policy.knapsack import EXACT_ITEMS_MAX, Items, choose
from tilth.maintenance.table.settings import KeyRangeSettings, MergeSettings

KEYS = 1 << 32
RATIO = 1.05

ITEM = st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 30), st.integers(1, 6))


def items_of(drawn: Sequence[tuple[int, int, int, int]]) -> Items:
    low = np.array([min(a, b) / 20 for a, b, _, _ in drawn])
    high = np.array([max(a, b) / 20 for a, b, _, _ in drawn])
    extra = np.array([value / 100 for _, _, value, _ in drawn])
    weights = np.array([weight for _, _, _, weight in drawn], dtype=np.int64)
    return Items(low=low, high=high, values=high - low + extra, weights=weights)


def gain_of(items: Items, chosen: Sequence[int]) -> float:
    value = float(items.values[list(chosen)].sum())
    width = float(items.high[list(chosen)].max() - items.low[list(chosen)].min())
    return value - width * (1.0 if value <= width else 1.003)


def swept(items: Items, budget: int, gain_min: float) -> float:
    """What the sweep alone finds."""
    ranked, best = knapsack._Ranked(items, budget), knapsack._Best()
    knapsack._sweep(ranked, ranked.borders(gain_min), best, gain_min=gain_min)
    return best.gain


@given(st.lists(ITEM, min_size=2, max_size=9), st.integers(6, 20), st.sampled_from([0.01, 0.2, 0.5, 1.0]))
@settings(max_examples=examples(300))
def test_the_set_is_as_good_as_promised(drawn: list[tuple[int, int, int, int]], budget: int, gain_min: float) -> None:
    items = items_of(drawn)
    found = choose(items, budget=budget, gain_min=gain_min, ratio=RATIO)
    best = max(
        gain_of(items, chosen)
        for count in range(1, len(drawn) + 1)
        for chosen in combinations(range(len(drawn)), count)
        if int(items.weights[list(chosen)].sum()) <= budget
    )
    by_sweep = swept(items, budget, gain_min)
    if not found.items:
        assert found.gain == 0
        assert best <= gain_min * RATIO + 1e-9 or 2 * by_sweep <= gain_min
        return
    assert int(items.weights[list(found.items)].sum()) <= budget
    assert gain_of(items, found.items) >= found.gain - 1e-9
    assert found.gain > gain_min
    assert found.gain >= by_sweep
    assert best / RATIO - 1e-9 <= found.gain <= best + 1e-9


@pytest.mark.parametrize(("count", "is_exact"), [(1024, True), (1025, False)])
def test_up_to_1024_items_every_border_counts(count: int, is_exact: bool) -> None:
    rng = np.random.default_rng(0)
    low = rng.random(count)
    high = np.minimum(1.0, low + rng.random(count) * 0.5)
    items = Items(low=low, high=high, values=high - low, weights=rng.integers(1, 30, count))
    assert (len(knapsack._Ranked(items, 256).borders(0.01)) == len(np.unique(low))) is is_exact


@pytest.mark.parametrize("seed", range(4))
def test_many_items_give_nearly_what_all_borders_would(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond EXACT_ITEMS_MAX borders that lie close together count as one."""
    rng = np.random.default_rng(seed)
    count = EXACT_ITEMS_MAX + 200
    low = rng.random(count)
    high = np.minimum(1.0, low + rng.random(count) * (0.01 if seed % 2 else 0.5))
    weights = rng.integers(1, 30, count)
    items = Items(low=low, high=high, values=high - low, weights=weights)
    rough = choose(items, budget=256, gain_min=0.01, ratio=RATIO)
    monkeypatch.setattr("tilth.maintenance.merge.policy.knapsack.EXACT_ITEMS_MAX", count)
    exact = choose(items, budget=256, gain_min=0.01, ratio=RATIO)
    assert rough.gain >= exact.gain / (RATIO * 1.03)
    assert int(weights[list(rough.items)].sum()) <= 256


def _between(rng: Rng, low: int, high: int) -> int:
    return rng.randint(low, high)  # type: ignore[attr-defined, no-any-return]  # random.Random has it


def drawn_parts(rng: Rng, *, size_max: int) -> list[CandidatePart]:
    """5 to 60 parts with bounds and sizes at random."""
    parts = []
    for number in range(_between(rng, 5, 60)):
        low = _between(rng, 0, KEYS - 1)
        high = _between(rng, low, min(KEYS, low + KEYS // 3))
        parts.append(part(number, low, high, _between(rng, MIB, size_max)))
    return parts


def part(number: int, low: int, high: int, size: int) -> CandidatePart:
    return CandidatePart(
        name=f"a_{number}_{number}_0_{number}",
        partition="a",
        size=size,
        rows=1,
        age=0.0,
        columns_commit_time=1,
        low=low.to_bytes(8, "big"),
        high=high.to_bytes(8, "big"),
    )


def height(parts: Sequence[CandidatePart]) -> float:
    shares = key_shares([each.low for each in parts], [each.high for each in parts], [each.size for each in parts])
    return shares.average_height


def merge_of(parts: Sequence[CandidatePart], budget: int) -> MergeSpec | None:
    wanted = MergeSettings(parts_max=0, key_range=KeyRangeSettings(budget=budget))
    specs = KeyRangePolicy().select(parts, being_merged=(), settings=wanted).specs
    return specs[0] if specs else None


@pytest.mark.parametrize("seed", range(40))
def test_it_stops_and_leaves_little_overlap(seed: int) -> None:
    """calc: with parts rolled at 32 MiB at most 9 merges, then a key is in about one part; each merge helps"""
    parts = drawn_parts(new_rng(seed), size_max=32 * MIB)
    number = 1000
    merges = 0
    while (spec := merge_of(parts, 256)) is not None:
        merges += 1
        assert merges <= 9
        sources = [each for each in parts if each.name in spec.parts]
        assert sum(max(1, each.size // MIB) for each in sources) <= 256
        assert spec.gain is not None
        assert spec.gain > 0.01
        low = int.from_bytes(min(each.low for each in sources), "big")
        high = int.from_bytes(max(each.high for each in sources), "big")
        count = -(-spec.size // (32 * MIB))
        edges = [low + (high - low) * place // count for place in range(count + 1)]
        parts = [each for each in parts if each.name not in spec.parts]
        parts += [part(number + n, edges[n], edges[n + 1], spec.size // count) for n in range(count)]
        number += count
    assert height(parts) < 1.2


@pytest.mark.parametrize("seed", range(10))
def test_it_stops_where_a_merge_makes_one_part(seed: int) -> None:
    parts = drawn_parts(new_rng(seed), size_max=60 * MIB)
    for number in range(len(parts)):
        spec = merge_of(parts, 256)
        if spec is None:
            return
        sources = [each for each in parts if each.name in spec.parts]
        low = int.from_bytes(min(each.low for each in sources), "big")
        high = int.from_bytes(max(each.high for each in sources), "big")
        before = height(parts)
        parts = [each for each in parts if each.name not in spec.parts]
        parts.append(part(1000 + number, low, high, spec.size))
        # Only small parts are merged for their own sake.
        assert height(parts) <= before + 0.05
    raise AssertionError("it does not stop")


@pytest.mark.parametrize("seed", range(10))
def test_more_budget_gains_more(seed: int) -> None:
    parts = drawn_parts(new_rng(100 + seed), size_max=32 * MIB)
    gains = [0.0 if (spec := merge_of(parts, budget)) is None else -spec.score for budget in (32, 64, 128, 256, 1024)]
    assert all(more >= less / RATIO for less, more in pairwise(gains))
