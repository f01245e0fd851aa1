"""Small rounds, which the thread of the consumer does: what comes of them is what comes of Spark's tasks.

Over a topic of files and a catalog in memory; the topic notes which process has fetched.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.codes import WithCode
from tests.integration.ingest.message_kinds import COLUMNS, FORMATS, VIEWS, counted, good
from tests.integration.ingest.round_world import RoundWorld
from tests.integration.ingest.test_round_matrix import PARTITIONS, check_cell, run_cell
from tests.integration.ingest.test_source_tasks import PICKS, Cell
from tilth.base.errors import UnavailableError
from tilth.ingest.kafka.fetch import Fetched
from tilth.ingest.policy import ranges
from tilth.ingest.rounds import inline, source
from tilth.ingest.rounds.inline import run_small
from tilth.storage import local_root
from tilth.warehouse import TaskFailedError, WorkerSession

#: Sets of views without one that Spark computes.
FUSED = [("picks",), ("picks", "keys")]


@pytest.mark.parametrize("names", FUSED, ids="+".join)
@pytest.mark.parametrize("is_inline", [True, False], ids=["inline", "spark"])
def test_rows_letters_and_ledger_are_those_of_sparks_tasks(
    tmp_path: Path, spark: WorkerSession, names: tuple[str, ...], is_inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_inline:
        monkeypatch.setattr(ranges, "SMALL_MESSAGES_MAX", 0)
    world, plans = run_cell(tmp_path, spark, names, "json", "refused", "dead_letter")
    assert (check_cell(world, names, plans) > 0) is ("keys" in names)
    assert set(world.topic.fetched().values()) == {1}
    assert (world.topic.fetchers() == {os.getpid()}) is is_inline
    assert sum(each.messages for each in world.ledger()) == sum(map(len, plans))
    assert len(plans) == PARTITIONS


def test_a_round_whose_messages_turn_out_to_be_large_is_sparks(
    tmp_path: Path, spark: WorkerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given up before it wrote anything; the next one is known to be large."""
    monkeypatch.setattr(inline, "_BYTES_MAX", 10_000)
    monkeypatch.setattr(ranges, "SMALL_BYTES_MAX", 1 << 30)
    world = RoundWorld(tmp_path, spark)
    world.source(COLUMNS)
    world.view("picks", VIEWS["picks"].columns, VIEWS["picks"].select)
    messages = [good(number) for number in range(400)]
    world.topic.put([[FORMATS["json"].encode(each) for each in messages]])
    world.drain(1)
    assert counted(world.rows("to_picks")) == sum(
        (VIEWS["picks"].makes(each) or Counter() for each in messages), Counter()
    )
    assert set(world.topic.fetched().values()) == {2}
    assert len(world.topic.fetchers() - {os.getpid()}) == 1
    world.check()


# --- without Spark ---------------------------------------------------------------------------------------------------


@contextmanager
def noted(notes: list[str], what: str) -> Iterator[None]:
    notes.append(what)
    yield
    notes.append("")


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    made = Cell(local_root(str(tmp_path)), [good(number) for number in range(20)], "json", "dead_letter", (PICKS,))
    made.job = replace(made.job, fetch_inline=made._fetch)
    return made


def run(cell: Cell, notes: list[str] | None = None) -> Any:
    return run_small(cell.job, lambda what: noted([] if notes is None else notes, what))


def test_the_worker_knows_what_the_thread_does_meanwhile(cell: Cell) -> None:
    notes: list[str] = []
    facts = run(cell, notes)
    assert len(cell.rows(facts, "p")) == 20
    assert notes == ["reading and writing a small round", ""]


def test_rounds_beyond_those_that_run_at_once_are_sparks(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "_running", threading.BoundedSemaphore(1))
    inner: list[object] = []

    def fetch(*given: Any, **more: Any) -> Iterator[Fetched]:
        inner.append(run(cell))
        return cell._fetch(*given, **more)

    outer = replace(cell.job, fetch_inline=fetch)
    assert run_small(outer, lambda what: noted([], what)) is not None
    assert inner == [None]
    # Its place is free again.
    cell.job = replace(cell.job, txn=8)
    assert run(cell) is not None


def test_a_round_that_has_written_a_file_stays_here(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's task would write a file of the same name."""
    monkeypatch.setattr(inline, "_BYTES_MAX", 500)
    monkeypatch.setattr(source, "HELD_BYTES_MAX", 1)
    facts = run(cell)
    assert len(facts.parts) > 1
    assert len(cell.rows(facts, "p")) == 20


def test_rounds_of_several_tasks_are_sparks(cell: Cell) -> None:
    cell.job = replace(cell.job, splits=cell.job.splits * 2)
    assert run(cell) is None
    assert not list(Path(cell.root.text).rglob("*.parquet"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ZeroDivisionError("by zero"), pytest.raises(TaskFailedError, match="ZeroDivisionError: by zero")),
        (PermissionError(13, "denied", "/x/y"), pytest.raises(UnavailableError, check=WithCode("ROUND_NOT_WRITTEN"))),
        (OSError(28, "no space left", "/x/y"), pytest.raises(UnavailableError, check=WithCode("STORE_FULL"))),
    ],
    ids=["defect", "disk", "full"],
)
def test_errors_are_those_of_sparks_tasks(cell: Cell, error: Exception, expected: Any) -> None:
    def fetch(*_: Any, **__: Any) -> Iterator[Fetched]:
        raise error

    cell.job = replace(cell.job, fetch_inline=fetch)
    with expected:
        run(cell)
