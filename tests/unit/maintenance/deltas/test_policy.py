"""Oracles of docs/policies/flush.md and delta-compaction.md; what of a log may go."""

from __future__ import annotations

import pytest

from tests.oracle import Row, number, oracle
from tilth.base.units import MIB
from tilth.maintenance.deltas.policy import DeltaStore, best_delta_store, major_gain, minor_gain
from tilth.maintenance.gains import flush_gain
from tilth.maintenance.settings import DeltaSettings, FlushSettings


@pytest.mark.parametrize("row", oracle("flush", "Score with a threshold of 64 MiB"))
def test_flush_with_a_threshold_of_64_mib(row: Row) -> None:
    ram, elapsed_ms = round(number(row["MiB"]) * MIB), int(row["elapsed (ms)"])
    expected = pytest.approx(number(row["score"]), abs=1e-7)
    assert flush_gain(ram, elapsed_ms, FlushSettings(threshold_mb=64)) == expected


@pytest.mark.parametrize("row", oracle("flush", "Score with the defaults"))
def test_flush_with_the_defaults(row: Row) -> None:
    ram, elapsed_ms = int(number(row["MiB"]) * MIB), int(row["elapsed (ms)"])
    assert flush_gain(ram, elapsed_ms, FlushSettings()) == pytest.approx(number(row["score"]))


@pytest.mark.parametrize("row", oracle("flush", "Best of two stores"))
def test_best_delta_store(row: Row) -> None:
    used, best = number(row["w"]), "AB".index(row["best"])
    a = DeltaStore(bytes=10 * MIB, replay_bytes=50 * MIB)
    b = DeltaStore(bytes=40 * MIB, replay_bytes=20 * MIB)
    assert best_delta_store([a, b], used_percent=used) == best
    assert best_delta_store([b, a], used_percent=used) == 1 - best


def test_the_larger_of_two_stores_with_equal_replay() -> None:
    for replay in (0, 7 * MIB):
        small, large = DeltaStore(bytes=1, replay_bytes=replay), DeltaStore(bytes=2, replay_bytes=replay)
        assert best_delta_store([small, large], used_percent=0) == 1
        assert best_delta_store([large, small], used_percent=0) == 0
    assert best_delta_store([], used_percent=0) is None


@pytest.mark.parametrize("row", oracle("delta-compaction", "Few files"))
def test_minor_and_major_of_few_files(row: Row) -> None:
    settings, files = DeltaSettings(minor_files_max=3, major_ratio_min=0.0001), int(row["files"])
    minor = minor_gain({"update": files}, settings)
    major = major_gain(update_files=files, delta_bytes=10 * files, base_bytes=1000, settings=settings)
    for gain, expected in ((minor, row["minor"]), (major, row["major"])):
        assert (0 < gain < 1) if expected == "between" else gain == number(expected)


@pytest.mark.parametrize("row", oracle("delta-compaction", "Defaults"))
def test_minor_and_major_with_the_defaults(row: Row) -> None:
    settings = DeltaSettings()
    updates, deletes = int(row["update files"]), int(row["delete files"])
    delta_bytes = round(number(row["ratio"]) * 10_000)
    assert minor_gain({"update": updates, "delete": deletes}, settings) == number(row["minor"])
    major = major_gain(update_files=updates, delta_bytes=delta_bytes, base_bytes=10_000, settings=settings)
    assert major == number(row["major"])
