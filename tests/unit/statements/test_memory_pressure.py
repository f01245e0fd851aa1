"""Memory pressure on writers: the oracle of docs/policies/throttling.md, and the refusal.

Modules: base/pressure.py.
"""

from __future__ import annotations

import pytest

from tests.oracle import Row, number, oracle
from tilth.base.errors import ErrorKind
from tilth.base.memory import MemoryReading
from tilth.base.pressure import MemoryGate, MemoryPressureError, describe_pressure, reject_chance
from tilth.base.rand import new_rng


def reading(percent: float, *, hard: int | None = 1000, soft: int = 800) -> MemoryReading:
    return MemoryReading(used=int(percent * 10), hard=hard, soft=soft)


@pytest.mark.parametrize("row", oracle("throttling", "Chance that memory refuses a write"))
def test_the_chance_grows_from_the_soft_limit_to_the_hard_one(row: Row) -> None:
    assert reject_chance(reading(number(row["used (percent)"]))) == pytest.approx(number(row["P"]))


def test_limits_that_are_equal_leave_the_hard_one_and_none_refuses_nobody() -> None:
    assert [reject_chance(reading(percent, soft=1000)) for percent in (99, 100, 101)] == [0, 0, 1]
    assert reject_chance(reading(500, hard=None)) == 0


class Draws:
    """An Rng that gives one number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value

    def shuffle(self, x: object) -> None:
        raise AssertionError("nothing is shuffled")


def test_the_gate_refuses_by_chance_and_counts() -> None:
    draws = Draws(0.26)
    gate = MemoryGate(lambda: reading(85), draws)
    gate.check()
    draws.value = 0.24
    with pytest.raises(MemoryPressureError) as caught:
        gate.check()
    assert caught.value.kind is ErrorKind.RETRY
    assert "rejecting write request: soft memory limit exceeded (at 85.0% of capacity)" in str(caught.value)
    assert gate.rejections == 1


def test_about_the_share_is_refused() -> None:
    gate = MemoryGate(lambda: reading(90), new_rng(7))
    for _ in range(1000):
        try:
            gate.check()
        except MemoryPressureError:
            continue
    assert 450 < gate.rejections < 550


def test_pressure_is_told_with_the_settings_that_decide_it() -> None:
    assert describe_pressure(reading(79)) == ""
    assert describe_pressure(reading(79, hard=None)) == ""
    told = describe_pressure(reading(90))
    assert told.startswith("50% of writes are refused, rounds of consumers wait: ")
    assert "90 % of memory_limit_hard_bytes" in told
    assert "memory_limit_soft_percentage" in told
    assert describe_pressure(reading(101)).startswith("every write is refused: ")
