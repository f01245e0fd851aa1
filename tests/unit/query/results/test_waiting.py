"""Results that wait for their clients: how long, and on how much of the disk."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tilth.base.cancel import Cancellation
from tilth.base.units import MIB
from tilth.query.results.waiting import OpenResults, ResultLimits, ResultNotReadError, bytes_in
from tilth.testing import ManualClock

BATCH = pa.record_batch([pa.array([1])], names=["a"])


def written(folder: Path, size: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "000000.000000.arrow").write_bytes(bytes(size))
    return folder


def test_a_client_that_reads_nothing_loses_its_result_and_one_that_waits_for_rows_does_not(tmp_path: Path) -> None:
    clock = ManualClock()
    results = OpenResults(clock, ResultLimits(read_seconds_max=10))
    result = results.open("q1", partial(bytes_in, written(tmp_path / "q1", 3)), Cancellation())
    rows = results.followed(result, iter([BATCH, BATCH]))
    clock.advance(60)
    results.check()
    assert results.state("q1") == "its client waits for rows, 3 B of its rows on disk"
    next(rows)
    clock.advance(9)
    next(rows)
    clock.advance(9)
    results.check()
    result.cancellation.raise_if_cancelled()
    clock.advance(2)
    results.check()
    assert results.state("q1") == "its client has not read for 11 s, 3 B of its rows on disk"
    error = result.cancellation.error
    assert isinstance(error, ResultNotReadError)
    assert "not read for 11 s" in error.message
    assert "server.result-read-timeout" in error.hint
    results.close("q1")
    assert results.state("q1") == ""
    results.close("q1")


def test_the_largest_result_gives_way_when_there_are_too_many_bytes(tmp_path: Path) -> None:
    results = OpenResults(ManualClock(), ResultLimits(bytes_max=4 * MIB))
    cancellations = {}
    for name, size in (("q1", 1), ("q2", 3), ("q3", 2)):
        cancellations[name] = Cancellation()
        results.open(name, partial(bytes_in, written(tmp_path / name, size * MIB)), cancellations[name])
    results.check()
    assert [name for name, each in cancellations.items() if each.error is not None] == ["q2"]
    assert "3.0 MiB of them this one" in str(cancellations["q2"].error)
    # One that ends counts no more, though its files are there until its job has ended.
    results.check()
    written(tmp_path / "q1", 3 * MIB)
    results.check()
    assert [name for name, each in cancellations.items() if each.error is not None] == ["q1", "q2"]


@pytest.mark.parametrize("size", [0, 10 * MIB])
def test_without_limits_nothing_is_cancelled(tmp_path: Path, size: int) -> None:
    clock = ManualClock()
    results = OpenResults(clock, ResultLimits(bytes_max=0, read_seconds_max=0))
    folder = tmp_path / "gone" if not size else written(tmp_path / "q1", size)
    result = results.open("q1", partial(bytes_in, folder), Cancellation())
    next(results.followed(result, iter([BATCH])))
    clock.advance(1e6)
    results.check()
    assert (result.cancellation.error, result.bytes) == (None, size)
