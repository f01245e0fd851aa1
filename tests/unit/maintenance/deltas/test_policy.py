"""Oracles of docs/policies/flush.md and delta-compaction.md; what of a log may go."""

from __future__ import annotations

import pytest

from tests.oracle import Row, number, oracle
from tilth.base.units import MIB
from tilth.maintenance.deltas.policy import (
    COLUMN_SHARES_MAX,
    DeltaStore,
    best_delta_store,
    column_shares,
    major_gain,
    minor_gain,
)
from tilth.maintenance.gains import flush_gain
from tilth.maintenance.settings import DeltaSettings, FlushSettings
from tilth.model.delta import Delta, DeltaKind, PartSource, Target
from tilth.model.part import DataFile, PartName
from tilth.model.table import Column, Schema
from tilth.model.types import Kind, Simple


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


@pytest.mark.parametrize(
    ("columns", "task_bytes", "groups"),
    [
        # Two of four columns of 1000 bytes and 200 bytes of deltas are 600.
        ({2, 5}, 600, ((2, 5),)),
        ({2, 5}, 599, ((2,), (5,))),
        ({2, 5}, 1, ((2,), (5,))),
        ({1, 2, 5}, 450, ((1, 5), (2,))),
        ({7}, 1, ((7,),)),
        (set(range(1, 41)), 1, tuple(tuple(range(first, 41, COLUMN_SHARES_MAX)) for first in range(1, 17))),
    ],
)
def test_columns_are_dealt_by_their_share_of_the_bytes(
    columns: set[int], task_bytes: int, groups: tuple[tuple[int, ...], ...]
) -> None:
    def file(name: str, size: int) -> DataFile:
        return DataFile(name=name, size=size, checksum=0)

    known = [Column(id=number, name=f"c{number}", type=Simple(Kind.INT64)) for number in (1, 2, 5, 7)]
    delta = Delta(
        kind=DeltaKind.UPDATE,
        partition="a",
        file=file("d", 200),
        targets=(Target(file="x", updated=1),),
        columns=tuple(columns),
        change_ts=1,
        commit_ts=1,
    )
    source = PartSource(
        name=PartName("a", 1, 1, 0, 1),
        file=file("x", 1000),
        rows=1,
        is_segment=False,
        schema=Schema(columns=tuple(known)),
        deltas=(delta,),
    )
    assert column_shares(source, task_bytes=task_bytes) == groups


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
