"""Oracles of docs/policies/key-range.md, and how the policy fits the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.oracle import Row, names, number, oracle
from tilth.base.units import MIB
from tilth.maintenance.merge.policy.candidates import CandidatePart, CandidateState, Effort, MergeSelection
from tilth.maintenance.merge.policy.key_bytes import HIGHEST, LOWEST, key_bounds, value_bytes
from tilth.maintenance.merge.policy.key_range import KeyRangePolicy
from tilth.maintenance.merge.policy.key_shares import key_shares
from tilth.maintenance.merge.policy.knapsack import fill_knapsack
from tilth.maintenance.table.settings import KeyRangeSettings, MergeSettings
from tilth.model.part import Bound, ColumnRange
from tilth.model.table import Column, Schema
from tilth.model.types import DataType, Decimal, Kind, Simple

#: The size of a part in the original's tests, and what it calls large enough.
MOCK = 1_000_000
T = 32 * MIB


def part(number: int, low: str, high: str, size: int = MOCK) -> CandidatePart:
    return CandidatePart(
        name=f"a_{number}_{number}_0_{number}",
        partition="a",
        size=size,
        rows=10,
        age=0.0,
        columns_commit_time=1,
        low=low.encode(),
        high=high.encode(),
    )


def layout(keys: Sequence[tuple[str, str]], size: int = MOCK) -> list[CandidatePart]:
    return [part(number, low, high, size) for number, (low, high) in enumerate(keys, start=1)]


def ask(
    parts: Sequence[CandidatePart],
    *,
    budget: int,
    gamma: float = 0.009,
    being_merged: frozenset[str] = frozenset(),
    effort: Effort = Effort.NORMAL,
    merge: MergeSettings | None = None,
) -> MergeSelection:
    wanted = KeyRangeSettings(budget=budget, small_part_gain=gamma)
    return KeyRangePolicy().select(
        parts,
        being_merged=being_merged,
        settings=replace(merge or MergeSettings(), parts_max=0, key_range=wanted),
        effort=effort,
    )


def best(parts: Sequence[CandidatePart], *, budget: int, gamma: float = 0.009) -> tuple[int, float]:
    """How many parts the chosen set has, and what it gains; zeros for none."""
    found = ask(parts, budget=budget, gamma=gamma)
    if not found.specs:
        assert found.refusals[0].reason
        return 0, 0.0
    [spec] = found.specs
    assert spec.gain is not None
    assert spec.score == -spec.gain
    return len(spec.parts), spec.gain


def height(keys: str) -> float:
    parts = layout([(each[0], each[1]) for each in keys.split(",") if each])
    return key_shares([p.low for p in parts], [p.high for p in parts], [p.size for p in parts]).average_height


def test_budgeted() -> None:
    parts = layout([("C", "c"), ("B", "a"), ("A", "b")])
    count, gain = best(parts, budget=1000, gamma=0.0)
    assert count == 3
    assert gain == pytest.approx(1.914593, abs=1e-6)
    shares = key_shares([p.low for p in parts], [p.high for p in parts], [p.size for p in parts])
    assert shares.average_height == pytest.approx(2.917593, abs=1e-6)


@pytest.mark.parametrize("count", [100, 10_000])
def test_non_overlapping_and_tiny_overlap(count: int) -> None:
    apart = layout([(f"{2 * i:010}", f"{2 * i + 1:010}") for i in range(count)])
    assert best(apart, budget=128, gamma=0.0) == (0, 0.0)
    tiny = layout([(f"{10_000 * i:09}", f"{10_000 * i + 11_000:09}") for i in range(count)])
    assert best(tiny, budget=128, gamma=0.0) == (0, 0.0)


def test_significant_overlap() -> None:
    parts = layout([(f"{10_000 * i:010}", f"{10_000 * (i + 2):010}") for i in range(100)])
    count, gain = best(parts, budget=64, gamma=0.0)
    assert count == 64
    assert gain == pytest.approx(0.633065, abs=1e-6)


@pytest.mark.parametrize("row", oracle("key-range", "Support adjust"))
def test_support_adjust(row: Row) -> None:
    """Two parts of the same keys, a third beside them that is worth taking along only if it is small."""
    size = int(number(row["share of T"]) * T)
    found = best(layout([("A", "B"), ("A", "B"), ("B", "C")], size), budget=1000)
    assert found[0] == int(row["parts"])
    assert found[1] == pytest.approx(number(row["gain"]), abs=1e-6)


def test_count_is_not_reduced_for_its_own_sake() -> None:
    """1 to 100 adjacent parts just below the target."""
    size = int(T * (1 - 1 / 99))
    for count in (1, 2, 3, 10, 50, 99, 100):
        assert best(layout([(f"{i:010}", f"{i + 1:010}") for i in range(count)], size), budget=10**6) == (0, 0.0)


@pytest.mark.parametrize("row", oracle("key-range", "Tradeoff"))
def test_tradeoff(row: Row) -> None:
    """Two adjacent parts."""
    found = best(layout([("A", "B"), ("B", "C")], T // int(row["d"])), budget=1000)
    assert found[0] == int(row["parts"])
    assert found[1] == pytest.approx(number(row["gain"]), abs=1e-9)


def test_thirds() -> None:
    count, gain = best(layout([("A", "B"), ("B", "C"), ("C", "D")], T // 3), budget=1000)
    assert count == 3
    assert gain == pytest.approx(0.015, abs=1e-6)


@pytest.mark.parametrize("row", oracle("key-range", "Knapsack"))
def test_knapsack(row: Row) -> None:
    values, weights = np.array([500.0, 110.0, 125.0, 100.0]), np.array([3, 1, 1, 1])
    items = tuple(int(item) for item in names(row["items"]))
    assert fill_knapsack(values, weights, int(row["capacity"])) == (number(row["value"]), items)


@pytest.mark.parametrize("row", oracle("key-range", "Average height"))
def test_average_height(row: Row) -> None:
    keys = ",".join(names(row["parts (smallest, largest key)"]))
    assert height(keys) == pytest.approx(number(row["height"]), abs=1e-3)


@pytest.mark.parametrize("length", [0, 7, 8, 9, 40])
def test_keys_with_a_long_common_beginning_are_told_apart(length: int) -> None:
    """Texts such as `https://example.org/..` differ behind the bytes that are compared as a number."""
    beginning = "x" * length
    parts = layout([(f"{beginning}{low}", f"{beginning}{high}") for low, high in ("AC", "BD", "CE")])
    shares = key_shares([p.low for p in parts], [p.high for p in parts], [p.size for p in parts])
    assert shares.average_height == pytest.approx(1.66667, abs=1e-3)
    assert shares.low.tolist() == pytest.approx([0, 1 / 6, 1 / 2], abs=1e-3)
    assert shares.high.tolist() == pytest.approx([1 / 2, 5 / 6, 1], abs=1e-3)
    around = layout([(f"{beginning}{low}", f"{beginning}{high}") for low, high in ("Cc", "Ba", "Ab")])
    count, gain = best(around, budget=9, gamma=0.0)
    assert count == 3
    assert gain == pytest.approx(1.914593, abs=1e-6)


def test_parts_of_other_beginnings_lie_beside_them() -> None:
    """Two that begin alike, and one around both, whose keys differ in the first byte."""
    beginning = "x" * 12
    parts = layout([(f"{beginning}A", f"{beginning}C"), (f"{beginning}B", f"{beginning}D"), ("a", "z")])
    shares = key_shares([p.low for p in parts], [p.high for p in parts], [p.size for p in parts])
    assert all(shares.low[place] < shares.high[place] for place in range(3))
    assert shares.low[2] < shares.low[0] < shares.low[1] < shares.high[0] < shares.high[1] < shares.high[2]
    assert shares.high[2] - shares.low[2] == pytest.approx(1.0)


def test_gain_grows_with_the_budget_and_the_set_keeps_it() -> None:
    parts = [part(i, f"{i * 7 % 40:03}", f"{i * 7 % 40 + 3 + i % 9:03}", (1 + i * 5 % 30) * MIB) for i in range(1, 41)]
    gains = []
    for budget in (8, 16, 32, 64, 128, 256):
        [spec] = ask(parts, budget=budget).specs
        assert sum(max(1, each.size // MIB) for each in parts if each.name in spec.parts) <= budget
        gains.append(-spec.score)
    assert all(later >= earlier / 1.05 for earlier, later in pairwise(gains))


def test_parts_that_may_not_merge_are_chosen_apart() -> None:
    parts = layout([("A", "B")] * 6)
    parts[1] = replace(parts[1], first_needed_mutation=7)
    parts[3] = replace(parts[3], first_needed_mutation=7)
    parts[5] = replace(parts[5], columns_commit_time=0)
    found = ask(parts, budget=100)
    assert [spec.parts for spec in found.specs] == [
        (parts[0].name, parts[2].name, parts[4].name),
        (parts[1].name, parts[3].name),
    ]
    busy = frozenset(each.name for each in parts[:5])
    assert ask(parts, budget=100, being_merged=busy).refusals[0].reason == "all but 1 of 6 parts are under merge"
    mutated = [parts[0], parts[1]]
    assert "separated by a pending mutation" in ask(mutated, budget=100).refusals[0].reason
    assert ask(parts[:1], budget=100).refusals[0].reason == "only one part"


def test_limits_of_rows_bytes_and_weight() -> None:
    parts = layout([("A", "B")] * 6, 2 * MIB)
    assert len(ask(parts, budget=100, merge=MergeSettings(rows_max=35)).specs[0].parts) == 3
    assert len(ask(parts, budget=100, merge=MergeSettings(bytes_max=8 * MIB)).specs[0].parts) == 4
    refused = ask(parts, budget=1)
    assert refused.specs == ()
    assert "all but 0 of 6 parts are above the budget of 1 MiB" in refused.refusals[0].reason


def test_a_part_whose_blocks_enclose_the_others_is_left_out() -> None:
    """The result would have its name, but for the level."""
    parts = layout([("A", "B")] * 4)
    parts[0] = replace(parts[0], name="a_1_9_3_1")
    [spec] = ask(parts, budget=100).specs
    assert spec.parts == tuple(each.name for each in parts[1:])
    alone = ask(parts[:2], budget=100)
    assert alone.specs == ()
    assert "would have the blocks of a_1_9_3_1" in alone.refusals[0].reason


def test_optimize_takes_what_gains_anything() -> None:
    parts = layout([("A", "B"), ("B", "C")], T // 2)
    assert ask(parts, budget=1000).specs == ()
    assert len(ask(parts, budget=1000, effort=Effort.AGGRESSIVE).specs[0].parts) == 2


def test_every_group_is_explained() -> None:
    parts = [*layout([("A", "B"), ("A", "B"), ("D", "E")], T), replace(part(9, "A", "B"), columns_commit_time=5)]
    rows = KeyRangePolicy().explain(parts, being_merged=(), settings=MergeSettings())
    assert [(row.state, len(row.parts)) for row in rows] == [
        (CandidateState.WOULD_RUN, 2),
        (CandidateState.LOST, 1),
        (CandidateState.LONE, 1),
    ]
    [refused] = KeyRangePolicy().explain(parts[1:3], being_merged=(), settings=MergeSettings())
    assert refused.state is CandidateState.REFUSED
    assert "no set within 256 MiB gains more than 0.01, on average 1.00 parts hold a key" in refused.reason


SCHEMA = Schema(
    columns=(
        Column(id=1, name="i", type=Simple(Kind.INT64)),
        Column(id=2, name="f", type=Simple(Kind.FLOAT64)),
        Column(id=3, name="s", type=Simple(Kind.STRING)),
        Column(id=4, name="d", type=Decimal(9, 2)),
    )
)


@pytest.mark.parametrize(
    ("data_type", "ascending"),
    [
        (Simple(Kind.INT64), [None, -(2**63), -1, 0, 1, 2**63 - 1]),
        (Simple(Kind.BOOLEAN), [None, False, True]),
        (Simple(Kind.FLOAT64), [None, float("-inf"), -1.5, -1e-300, 0.0, 1e-300, 2.0, float("inf")]),
        (Simple(Kind.STRING), [None, "", "\0", "\0a", "a", "a\0", "ab", "b", "ä"]),
        (Decimal(9, 2), [None, "-10.50", "-9.00", "0.00", "9.99", "10.00"]),
    ],
)
def test_bytes_compare_as_values_do(data_type: DataType, ascending: list[Bound]) -> None:
    encoded = [value_bytes(value, data_type) for value in ascending]
    assert encoded == sorted(encoded)
    assert len(set(encoded)) == len(encoded)
    assert value_bytes(-0.0, Simple(Kind.FLOAT64)) == value_bytes(0.0, Simple(Kind.FLOAT64))
    assert all(LOWEST <= each < HIGHEST for each in encoded)


def test_bounds_of_a_part() -> None:
    def bounds(ranges: dict[str, ColumnRange], *order_by: str) -> tuple[bytes, bytes]:
        return key_bounds(ranges, order_by=order_by, schema=SCHEMA, rows=10)

    int_type, string_type = Simple(Kind.INT64), Simple(Kind.STRING)
    five, seven = value_bytes(5, int_type), value_bytes(7, int_type)
    assert bounds({"i": ColumnRange(5, 7, 0)}, "i") == (five, seven + HIGHEST)
    # Nulls are the smallest; only nulls are one key.
    assert bounds({"i": ColumnRange(5, 7, 3)}, "i")[0] == value_bytes(None, int_type)
    assert bounds({"i": ColumnRange(None, None, 10)}, "i") == (b"\x00", b"\x00")
    # One value in the first column: the second one tells.
    texts = ColumnRange("a", "b", 0)
    low, high = bounds({"i": ColumnRange(5, 5, 0), "s": texts}, "i", "s")
    assert low == five + value_bytes("a", string_type)
    assert high == five + value_bytes("b", string_type) + HIGHEST
    assert bounds({"i": ColumnRange(5, 5, 0)}, "i") == (five, five)
    # Not known, or no sort key: overlaps with all.
    assert bounds({}, "i") == bounds({}) == (LOWEST, HIGHEST)
    assert bounds({"s": ColumnRange("x", None, 0)}, "s")[1] > value_bytes("zz", string_type)
