"""The progress bar: its numbers, and that it delays nothing."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from rich.console import Console

from tests.unit.app_transport import AppTransport
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.clock import SystemClock
from tilth.client import Connection
from tilth.client.shell import progress_bar
from tilth.client.shell.progress_bar import ProgressBar, StatementProgressReader, numbers
from tilth.client.shell.statement_progress import StatementProgress
from tilth.control.running import Origin
from tilth.query.results.answer import Answer
from tilth.server import build_app
from tilth.testing.clock import ManualClock

MINE = "SELECT count(*) FROM trips"
PROCESS = {
    "query": [MINE, MINE, "SELECT 1"],
    "database": ["default", "other", "default"],
    "state": ["running in \x1b[31mSpark", "x", "y"],
    "elapsed": [8.0, 1.0, 1.0],
    "read_rows": [250, 1, 1],
    "read_bytes": [1 << 20, 1, 1],
    "total_rows_approx": [1000, 1, 1],
    "tasks_done": [1, 1, 1],
    "tasks_total": [4, 1, 1],
}


@dataclass
class WorkingRooms(FakeRooms):
    """Answers questions about a statement under way; its other statements run until they may end."""

    table: pa.Table = field(default_factory=lambda: pa.table(PROCESS))
    may_answer: threading.Event = field(default_factory=threading.Event)
    answered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def run(
        self, text: str, *, database: str, settings: Mapping[str, str], origin: Origin, streams: bool = False
    ) -> Answer:
        self._answered("run", text, database, dict(settings))
        assert self.may_answer.wait(10)
        self.answered.release()
        return Answer(query_id="q", columns=[], table=self.table)


@pytest.fixture
def rooms() -> WorkingRooms:
    return WorkingRooms()


@pytest.fixture
def connection(rooms: WorkingRooms) -> Iterator[Connection]:
    yield Connection("http://tilth.test", transport=AppTransport(build_app(context_of(rooms))))
    rooms.may_answer.set()


def test_a_statement_is_found_by_its_beginning_and_its_database(connection: Connection, rooms: WorkingRooms) -> None:
    rooms.may_answer.set()
    progress = StatementProgressReader(ManualClock(), connection, MINE).read()
    assert progress is not None
    assert (progress.rows, progress.total_rows, progress.done, progress.seconds_left) == (250, 1000, 0.25, 24.0)
    assert StatementProgressReader(ManualClock(), connection, "SELECT 2").read() is None
    # Another statement runs with which this one begins.
    assert StatementProgressReader(ManualClock(), connection, "SELECT 1 FROM trips").read() is None
    assert rooms.calls[0][3] == {"readonly": "1", "log_queries": "0"}


@pytest.mark.parametrize(
    ("statement", "table", "where", "state"),
    [
        (
            "OPTIMIZE TABLE shop.`it's` FINAL",
            {"task": ["a"], "is_mutation": [False], "progress": [0.5], "input_bytes": [100]},
            "FROM system.merges WHERE database = 'shop' AND \"table\" = 'it''s'",
            "1 of 1 merges under way",
        ),
        (
            "/* now */ alter table trips UPDATE a = 1 WHERE b",
            {"parts_to_do": [3], "parts_done": [1], "state_reason": ["x"]},
            "FROM system.mutations WHERE database = 'default' AND \"table\" = 'trips' AND NOT is_done",
            "1 of 4 parts rewritten",
        ),
    ],
)
def test_merges_and_mutations_are_those_of_the_table(
    connection: Connection,
    rooms: WorkingRooms,
    statement: str,
    table: dict[str, list[object]],
    where: str,
    state: str,
) -> None:
    rooms.table = pa.table(table)
    rooms.may_answer.set()
    progress = StatementProgressReader(ManualClock(), connection, statement).read()
    assert progress is not None
    assert progress.state == state
    assert where in " ".join(str(rooms.texts[0]).split())


def test_numbers_have_their_units() -> None:
    progress = StatementProgress(rows=1_234_567, total_rows=9_000_000, bytes=5 << 20, done=0.137, seconds_left=0.2)
    assert numbers(progress) == "1,234,567 of 9,000,000 rows, 5.0 MiB, 14%, 1 s left"
    assert numbers(StatementProgress(seconds_left=150, done=0.5)) == "50%, 2 min left"
    assert numbers(StatementProgress(seconds_left=5400, done=0.5)) == "50%, 1.5 h left"
    # Rows of a table that is read twice.
    assert numbers(StatementProgress(rows=20, total_rows=10)) == "20 rows"
    assert numbers(StatementProgress(total_rows=10)) == "0 of 10 rows"
    assert numbers(StatementProgress(state="waiting")) == ""


@contextmanager
def waiting(
    connection: Connection, *, is_terminal: bool = True, width: int = 120
) -> Iterator[tuple[ProgressBar, io.StringIO]]:
    screen = io.StringIO()
    errors = Console(file=screen, width=width, force_terminal=is_terminal)
    with ProgressBar(SystemClock(), errors, connection, MINE) as bar:
        yield bar, screen


def eventually(screen: io.StringIO, text: str) -> None:
    deadline = time.monotonic() + 10  # noqa: TID251  # the bar is drawn in real time
    while text not in screen.getvalue():
        assert time.monotonic() < deadline, screen.getvalue()  # noqa: TID251
        threading.Event().wait(0.01)


def test_the_bar_shows_numbers_and_nothing_that_a_terminal_obeys(
    connection: Connection, rooms: WorkingRooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_bar, "BEGIN_SECONDS", 0.0)
    rooms.may_answer.set()
    with waiting(connection) as (bar, screen):
        eventually(screen, "250 of 1,000 rows, 1.0 MiB, 25%, 24 s left")
        assert "running in \\x1b[31mSpark" in screen.getvalue()
        bar.count(7)
        eventually(screen, "7 rows")


def test_a_server_that_hangs_delays_nothing(
    connection: Connection, rooms: WorkingRooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_bar, "BEGIN_SECONDS", 0.0)
    with waiting(connection) as (_, screen):
        eventually(screen, "running")
    assert not rooms.may_answer.is_set()


def test_without_a_terminal_nobody_is_questioned(
    connection: Connection, rooms: WorkingRooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_bar, "BEGIN_SECONDS", 0.0)
    rooms.may_answer.set()
    with waiting(connection, is_terminal=False) as (bar, screen):
        bar.count(3)
        assert not rooms.answered.acquire(timeout=0.05)
    assert (screen.getvalue(), rooms.calls) == ("", [])


def test_short_statements_are_not_watched(connection: Connection, rooms: WorkingRooms) -> None:
    rooms.may_answer.set()
    with waiting(connection):
        pass
    assert rooms.calls == []
