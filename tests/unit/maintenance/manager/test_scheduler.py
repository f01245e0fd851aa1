"""Oracles and rules of docs/policies/scheduling.md that concern the choice itself."""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence
from dataclasses import replace

import pytest

from tests.oracle import Row, number, oracle
from tilth.base.memory import MemoryReading
from tilth.base.rand import Rng, new_rng
from tilth.base.units import MIB
from tilth.maintenance.kinds import Choice, ChoiceRule, IoUsage, OpKind, OpStats, OpView, op_name
from tilth.maintenance.manager.ranking import Ranking, adjusted_score
from tilth.maintenance.manager.scheduler import choose, is_flush_due
from tilth.maintenance.settings import SchedulerSettings

SETTINGS = SchedulerSettings()
CALM = MemoryReading(used=0, hard=1000)


class Draws:
    """Gives the numbers it was given, and no more."""

    def __init__(self, *numbers: float) -> None:
        self.left = list(numbers)

    def random(self) -> float:
        return self.left.pop(0)

    def shuffle(self, x: MutableSequence[object]) -> None:
        raise AssertionError("nothing here is put in a random order")


def op(
    name: str,
    *,
    ram: int = 0,
    logs: int = 0,
    data: int = 0,
    perf: float = 0.0,
    io: IoUsage = IoUsage.HIGH,
    table: str = "",
    is_runnable: bool = True,
) -> OpView:
    stats = OpStats(
        is_runnable=is_runnable,
        io=io,
        ram_anchored_bytes=ram,
        logs_retained_bytes=logs,
        data_retained_bytes=data,
        perf_improvement=perf,
    )
    return OpView(name=name, table=table or name, stats=stats)


def used(percent: float) -> MemoryReading:
    return MemoryReading(used=int(percent * 100), hard=10_000)


def pick(
    ops: Iterable[OpView],
    *,
    memory: MemoryReading = CALM,
    settings: SchedulerSettings = SETTINGS,
    rng: Rng | None = None,
    free_workers: int = 1,
    last_served: dict[str, int] | None = None,
) -> Choice:
    return choose(
        [Ranking(settings, ops)],
        free_workers=free_workers,
        memory=memory,
        settings=settings,
        rng=rng or Draws(),
        last_served=last_served,
    )


OP1 = op("op1", logs=100 * MIB, io=IoUsage.LOW)
OP2 = op("op2", ram=100, logs=100 * MIB)
OP3 = op("op3", ram=200, logs=100 * MIB)


def test_log_is_freed_first() -> None:
    choice = pick([OP1, OP2, OP3])
    assert (choice.op_name, choice.reason) == ("op1", "free 104857600 bytes of WAL")
    nothing = pick([OP2, OP3])
    assert (nothing.op_name, nothing.reason) == (None, "no ops with positive improvement")


def test_replay_size() -> None:
    settings = replace(SETTINGS, log_target_replay_size_mb=50)
    choice = pick([OP2, OP3], settings=settings)
    assert choice.op_name == "op3"
    assert choice.reason == "104857600 bytes log retention, and flush 200 bytes memory"
    assert pick([OP2], settings=settings).op_name == "op2"


@pytest.mark.parametrize(
    ("logs", "rule"),
    [(int(1023.99 * MIB), "nothing_to_gain"), (1024 * MIB - 1, "nothing_to_gain"), (1024 * MIB, "replay_size")],
)
def test_replay_size_is_in_whole_mib(logs: int, rule: str) -> None:
    assert pick([op("a", logs=logs)]).rule == rule


def test_order_under_pressure() -> None:
    """70 %: log first and memory second."""
    ops = [op("op3", logs=99, ram=101), op("op1", logs=100, ram=100), op("op2", logs=100, ram=99)]
    order = []
    while ops:
        choice = pick(ops, memory=used(70), rng=Draws(0.0))
        order.append(choice.op_name)
        ops = [each for each in ops if each.name != choice.op_name]
    assert order == ["op1", "op2", "op3"]
    assert pick([op("a", logs=7, ram=9)], memory=used(70.5), rng=Draws(0.0)).reason == (
        "under memory pressure (70.50% used), 7 bytes log retention, and flush 9 bytes memory"
    )


def test_memory_alone_may_win_under_pressure() -> None:
    """0 log bytes with memory can win."""
    assert pick([op("a", ram=5)], memory=used(90)).rule is ChoiceRule.MEMORY_PRESSURE
    assert pick([op("a", ram=5)]).rule is ChoiceRule.NOTHING_TO_GAIN


def test_what_frees_no_memory_does_not_win_by_pressure() -> None:
    ops = [op("a", logs=100 * MIB), op("b", logs=1, ram=1), op("c", perf=0.5)]
    assert pick(ops, memory=used(90)).op_name == "b"
    assert pick([ops[0], ops[2]], memory=used(90)).rule is ChoiceRule.READ_GAIN


def test_pressure_without_anything_to_flush_falls_through() -> None:
    assert pick([op("a", perf=0.5)], memory=used(99)).rule is ChoiceRule.READ_GAIN


@pytest.mark.parametrize("row", oracle("scheduling", "Adjusted score"))
def test_adjusted_score(row: Row) -> None:
    priority, expected = int(row["priority"]), number(row["score"])
    stats = OpStats(is_runnable=True, perf_improvement=1.0, priority=priority)
    assert adjusted_score(stats, SETTINGS) == 1.1 ** max(-5, min(priority, 5)) == pytest.approx(expected, abs=1e-6)
    assert adjusted_score(replace(stats, perf_improvement=0.0, workload_score=3.0), SETTINGS) == 0
    assert adjusted_score(replace(stats, workload_score=1.0), SETTINGS) == pytest.approx(2 * expected, abs=2e-6)


def test_data_must_be_more_than_the_minimum() -> None:
    settings = replace(SETTINGS, data_gc_min_size_mb=1)
    assert pick([op("a", data=MIB)], settings=settings).op_name is None
    choice = pick([op("a", data=MIB + 1)], settings=settings)
    assert (choice.rule, choice.reason) == (ChoiceRule.FREE_DATA, "1048577 bytes on disk")


@pytest.mark.parametrize("row", oracle("scheduling", "Data against gain"))
def test_data_against_gain(row: Row) -> None:
    settings = replace(SETTINGS, data_gc_prioritization_prob=number(row["data_gc_prioritization_prob"]))
    rule = {"data": ChoiceRule.FREE_DATA, "gain": ChoiceRule.READ_GAIN}[row["runs"]]
    assert pick([op("c", data=1), op("d", perf=0.1)], settings=settings, rng=Draws(number(row["U"]))).rule is rule


def test_data_and_gain_take_about_turns() -> None:
    """At 0.5 about half, within 3 sigma over 4000 trials."""
    rng, trials = new_rng(11), 4000
    ops = [op("c", data=1), op("d", perf=0.1)]
    share = sum(pick(ops, rng=rng).rule is ChoiceRule.FREE_DATA for _ in range(trials)) / trials
    assert abs(share - 0.5) <= 3 * (0.25 / trials) ** 0.5


def test_without_a_gain_data_needs_no_draw() -> None:
    never = replace(SETTINGS, data_gc_prioritization_prob=0.0)
    assert pick([op("c", data=1), op("d", perf=-1.0)], settings=never).rule is ChoiceRule.FREE_DATA


def test_draws_are_made_in_order_and_only_when_needed() -> None:
    """docs/policies/scheduling.md#choice"""
    both = [op("b", ram=1), op("c", data=1), op("d", perf=0.1)]
    settings = replace(SETTINGS, run_non_memory_ops_prob=1.0)
    draws = Draws(0.0, 0.9)
    assert pick(both, memory=used(70), settings=settings, rng=draws).rule is ChoiceRule.READ_GAIN
    assert draws.left == []
    calm = Draws(0.9)
    assert pick(both, rng=calm).rule is ChoiceRule.READ_GAIN
    assert calm.left == []
    assert pick([op("c", data=1)]).rule is ChoiceRule.FREE_DATA


@pytest.mark.parametrize("row", oracle("scheduling", "Chance of other ops inside the band"))
def test_skip_rate_inside_the_band(row: Row) -> None:
    """Within 3 sigma over 4000 trials."""
    percent, share, probability = number(row["used (percent)"]), number(row["factor"]), 0.4
    settings = replace(SETTINGS, run_non_memory_ops_prob=probability)
    rng, trials = new_rng(7), 4000
    skipped = sum(not is_flush_due(used(percent), settings=settings, rng=rng) for _ in range(trials)) / trials
    expected = probability * share
    assert abs(skipped - expected) <= 3 * (expected * (1 - expected) / trials) ** 0.5


def test_no_pressure_below_the_band_or_without_a_limit() -> None:
    """docs/policies/scheduling.md#memory-pressure"""
    assert not is_flush_due(used(59.99), settings=SETTINGS, rng=Draws())
    assert not is_flush_due(MemoryReading(used=10**12), settings=SETTINGS, rng=Draws())
    narrow = replace(SETTINGS, memory_limit_soft_percentage=60.0)
    assert is_flush_due(used(60), settings=narrow, rng=Draws())


def test_other_work_at_the_lower_border() -> None:
    """60 %, probability 0.2: other work runs between 0.1 and 0.6 times as often."""
    settings = replace(SETTINGS, run_non_memory_ops_prob=0.2)
    rng, counts = new_rng(3), {"flush": 0, "gain": 0}
    for _ in range(1000):
        choice = pick([op("flush", ram=1, logs=1), op("gain", perf=1.0)], memory=used(60), settings=settings, rng=rng)
        counts[str(choice.op_name)] += 1
    assert 0.1 * counts["flush"] <= counts["gain"] <= 0.6 * counts["flush"]


def test_what_is_passed_over() -> None:
    """Not runnable; no free worker."""
    idle = [op("a", perf=9.0, is_runnable=False), op("d", perf=0.25)]
    choice = pick(idle)
    assert (choice.op_name, choice.reason) == ("d", "perf score=0.250000")
    refused = pick(idle, free_workers=0)
    assert (refused.op_name, refused.reason) == (None, "no free threads")
    assert pick([op("a", perf=-1.0)]).rule is ChoiceRule.NOTHING_TO_GAIN
    assert pick([]).rule is ChoiceRule.NOTHING_TO_GAIN


def test_ties_go_to_the_first_name() -> None:
    assert pick([op("b", perf=1.0), op("a", perf=1.0)]).op_name == "a"
    assert pick([op("b", data=5), op("a", data=5)]).op_name == "a"
    assert pick([op("b", logs=5, io=IoUsage.LOW), op("a", logs=5, io=IoUsage.LOW)]).op_name == "a"


def test_tables_of_about_equal_gain_take_turns() -> None:
    """One table cannot take every slot while others have work: docs/policies/scheduling.md#choice."""
    ops = [op("MERGE(x)", perf=1.0, table="x"), op("MERGE(y)", perf=0.95, table="y"), op("MERGE(z)", perf=0.5)]
    assert pick(ops).op_name == "MERGE(x)"
    served: dict[str, int] = {}
    taken = []
    for turn in range(6):
        choice = pick(ops, last_served=served)
        taken.append(choice.op_name)
        served[str(choice.op_name)[6]] = turn
    assert taken == ["MERGE(x)", "MERGE(y)"] * 3


def test_a_step_of_priority_is_not_levelled_by_turns() -> None:
    """Whatever the rounding of score / 1.1."""
    for sevenths in range(1, 200):
        low = op("MERGE(y)", perf=sevenths / 7, table="y")
        high = op("MERGE(x)", perf=sevenths / 7, table="x")
        assert high.stats is not None
        high = replace(high, stats=replace(high.stats, priority=1))
        assert pick([low, high], last_served={"x": 5}).op_name == "MERGE(x)"


def test_op_name() -> None:
    assert op_name(OpKind.MERGE, "db.t") == "MERGE(db.t)"
