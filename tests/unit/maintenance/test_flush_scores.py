"""Oracles of POLICIES 6.7 that need no flush: scores, replay sizes, what of a log may go."""

from __future__ import annotations

import pytest

from tilth.base.units import MIB
from tilth.maintenance.policy.flush_scores import (
    DeltaSettings,
    DeltaStore,
    FlushSettings,
    best_delta_store,
    flush_gain,
    major_gain,
    minor_gain,
)


@pytest.mark.parametrize(
    ("ram", "elapsed_ms", "expected"),
    [
        (64 * MIB, 1, 1.0),
        (2 * MIB, 180_000, 0.05),
        (128 * MIB, 1, 64),
        (1, 3_000_000, 0.8333333),
        (63 * MIB, 180_000, 0.984375),
    ],
)
def test_flush_with_a_threshold_of_64_mib(ram: int, elapsed_ms: int, expected: float) -> None:
    """POLICIES.md 6.7 row 1 (orig)"""
    assert flush_gain(ram, elapsed_ms, FlushSettings(threshold_mb=64)) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    ("mb", "elapsed_ms", "expected"),
    [
        (1024, 0, 1.0),
        (1023.99, 0, 0),
        (1024.5, 0, 1.0),
        (1026, 0, 2),
        (100, 120_000, 0),
        (100, 120_001, 0.09765625),
        (100, 1_800_000, 0.5),
        (1, 7_200_000, 1.0),
    ],
)
def test_flush_with_the_defaults(mb: float, elapsed_ms: int, expected: float) -> None:
    """POLICIES.md 6.7 row 2 (calc)"""
    assert flush_gain(int(mb * MIB), elapsed_ms, FlushSettings()) == pytest.approx(expected)


@pytest.mark.parametrize(("used", "best"), [(0, 0), (60, 1), (70, 1), (90, 1), (50, 1), (140, 1)])
def test_best_delta_store(used: float, best: int) -> None:
    """POLICIES.md 6.7 row 3 (calc)"""
    a = DeltaStore(bytes=10 * MIB, replay_bytes=50 * MIB)
    b = DeltaStore(bytes=40 * MIB, replay_bytes=20 * MIB)
    assert best_delta_store([a, b], used_percent=used) == best
    assert best_delta_store([b, a], used_percent=used) == 1 - best


def test_the_larger_of_two_stores_with_equal_replay() -> None:
    """POLICIES.md 6.7 row 3 (calc)"""
    for replay in (0, 7 * MIB):
        small, large = DeltaStore(bytes=1, replay_bytes=replay), DeltaStore(bytes=2, replay_bytes=replay)
        assert best_delta_store([small, large], used_percent=0) == 1
        assert best_delta_store([large, small], used_percent=0) == 0
    assert best_delta_store([], used_percent=0) is None


def test_minor_and_major_of_few_files() -> None:
    """POLICIES.md 6.7 row 4 (orig): most files 3, least ratio 0.0001"""
    settings = DeltaSettings(minor_files_max=3, major_ratio_min=0.0001)
    minor = [minor_gain({"update": files}, settings) for files in range(4)]
    assert minor[:2] == [0, 0]
    assert 0 < minor[2] < 1
    assert minor[3] == 1
    major = [
        major_gain(update_files=files, delta_bytes=10 * files, base_bytes=1000, settings=settings) for files in range(4)
    ]
    assert major[0] == 0
    assert all(0 < gain < 1 for gain in major[1:])


def test_minor_and_major_with_the_defaults() -> None:
    """POLICIES.md 6.7 row 5"""
    settings = DeltaSettings()
    assert minor_gain({"update": 2}, settings) == 0.002
    assert minor_gain({"update": 1000}, settings) == minor_gain({"delete": 5000}, settings) == 1
    assert minor_gain({"update": 1, "delete": 1}, settings) == 0, "the two kinds do not merge"

    def major(ratio_10000: int, updates: int = 1) -> float:
        return major_gain(update_files=updates, delta_bytes=ratio_10000, base_bytes=10_000, settings=settings)

    assert [major(999), major(1000), major(17_000), major(5000, updates=0)] == [0, 0.1, 1, 0]
