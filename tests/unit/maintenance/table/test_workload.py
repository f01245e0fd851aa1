"""The workload score (docs/policies/scheduling.md#workload); the memory meter, which the same choice asks."""

from __future__ import annotations

import pytest

from tilth.base.units import GIB
from tilth.maintenance.kinds import LoadScore
from tilth.maintenance.memory.meter import LIMIT_SHARE, MemoryMeter, ProcessMemory, limit_of, machine_bytes
from tilth.maintenance.settings import WorkloadSettings
from tilth.maintenance.table.workload import Rates, Workload, load_score
from tilth.testing import ManualClock

ON = WorkloadSettings(is_enabled=True)


@pytest.mark.parametrize(
    ("scans", "rows", "flush", "merge"),
    [
        (0.0, 0.0, 0.0, 0.0),
        (0.5, 0.0, 0.5, 0.5),
        (1.0, 0.0, 1.0, 1.0),
        (7.0, 0.0, 1.0, 1.0),
        (0.0, 250.0, 0.0, 0.25),
        (0.5, 250.0, 0.5, 0.75),
        (0.5, 5000.0, 0.5, 1.0),
    ],
)
def test_score(scans: float, rows: float, flush: float, merge: float) -> None:
    """docs/policies/scheduling.md#workload"""
    rates = Rates(scans_per_second=scans, rows_per_second=rows)
    assert [load_score(load, rates, ON) for load in (LoadScore.READ, LoadScore.USED, None)] == [flush, merge, 0]
    assert {load_score(load, rates, WorkloadSettings()) for load in LoadScore} == {0}
    double = WorkloadSettings(is_enabled=True, upper_bound=2.0)
    assert load_score(LoadScore.USED, rates, double) == 2 * merge


def test_rates_are_made_anew_after_a_minute_and_the_baseline_after_five() -> None:
    """docs/policies/scheduling.md#workload"""
    workload = Workload()
    assert workload.rates(0) == Rates()
    workload.add(scans=61, rows=6100)
    assert workload.rates(60_000) == Rates(), "not more than a minute"
    assert workload.rates(61_000) == Rates(scans_per_second=1.0, rows_per_second=100.0)
    workload.add(scans=1000)
    assert workload.rates(121_000) == Rates(scans_per_second=1.0, rows_per_second=100.0)
    assert workload.rates(305_000) == Rates(scans_per_second=1061 / 305, rows_per_second=20.0)
    # From here on only what comes after counts.
    workload.add(rows=122)
    assert workload.rates(366_000) == Rates(scans_per_second=0.0, rows_per_second=2.0)


def test_memory_is_sampled_at_most_every_50_ms() -> None:
    clock = ManualClock()
    samples = [10, 20, 98, 99, 50, 98]
    meter = MemoryMeter(clock, hard_limit=100, soft_percentage=80.0, warn_percentage=98.0, read=lambda: samples.pop(0))
    assert meter.use().percent == 10
    clock.advance(0.04)
    assert meter.use().used == 10
    clock.advance(0.02)
    assert meter.use().used == meter.last.used == 20


def test_the_log_warns_once_each_time_that_memory_comes_near_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    samples = [97, 98, 99, 50, 98]
    meter = MemoryMeter(clock, hard_limit=100, soft_percentage=80.0, warn_percentage=98.0, read=lambda: samples.pop(0))
    warnings = []
    with caplog.at_level("WARNING", logger="tilth.maintenance"):
        while samples:
            meter.use()
            clock.advance(1)
            warnings.append(sum("memory_near_limit" in record.getMessage() for record in caplog.records))
    assert warnings == [0, 1, 1, 1, 2]


def test_without_a_limit_memory_is_not_looked_at() -> None:
    def fail() -> int:
        raise AssertionError("not asked for")

    meter = MemoryMeter(ManualClock(), hard_limit=limit_of(-1), soft_percentage=80.0, warn_percentage=98.0, read=fail)
    assert meter.use().percent == 0


def test_the_limit() -> None:
    assert limit_of(5 * GIB) == 5 * GIB
    assert limit_of(-1) is None
    assert limit_of(0) == int(machine_bytes() * LIMIT_SHARE)
    assert ProcessMemory(ManualClock())() > 1 << 20
