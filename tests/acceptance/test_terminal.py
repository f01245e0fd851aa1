"""The shell at a real pseudo terminal, over a real HTTP server and fake rooms: what a user sees and types.

Each test starts one shell, which costs a second.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.acceptance.terminal import SECONDS_MAX, shell
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.clock import SystemClock
from tilth.client.exit_codes import CANCELLED
from tilth.control.running import Origin
from tilth.query.results.answer import Answer
from tilth.server import HttpServer, build_app

pytestmark = pytest.mark.acceptance

HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31mred"
PROCESS = pa.table(
    {
        "query": ["SELECT slow"],
        "database": ["default"],
        "state": ["running in Spark"],
        "elapsed": [6.0],
        "read_rows": [2_500_000],
        "read_bytes": [64 << 20],
        "total_rows_approx": [10_000_000],
        "tasks_done": [1],
        "tasks_total": [4],
    }
)


@dataclass
class TerminalRooms(FakeRooms):
    """Answers by the first word behind SELECT; `slow` runs until it is cancelled."""

    has_begun: threading.Event = field(default_factory=threading.Event)
    was_cancelled: threading.Event = field(default_factory=threading.Event)

    def run(
        self, text: str, *, database: str, settings: Mapping[str, str], origin: Origin, streams: bool = False
    ) -> Answer:
        self._answered("run", text, database, dict(settings))
        if text.startswith("SELECT slow"):
            self.has_begun.set()
            deadline = time.monotonic() + SECONDS_MAX
            while time.monotonic() < deadline and origin.cancellation.error is None:
                time.sleep(0.01)
            self.was_cancelled.set()
            origin.cancellation.raise_if_cancelled()
        tables = {
            "SELECT wide": pa.table(
                {f"column_{number}": [HOSTILE if number == 3 else "x" * 20] for number in range(9)}
            ),
            "SELECT long": pa.table({"n": range(500)}),
            "SELECT substring": PROCESS,
            "SELECT database": pa.table({"database": ["default"], "name": ["trips"], "engine": ["MergeTree"]}),
            "SHOW": pa.table({"name": ["default"]}),
        }
        found = next((table for begin, table in tables.items() if text.startswith(begin)), pa.table({"a": [1]}))
        return Answer(query_id="q1", columns=[], table=found, elapsed_ms=2.0)

    def wait_until_named(self) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not any("FROM system.settings" in str(call[1]) for call in self.calls):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # The answer is on its way.
        time.sleep(0.3)

    def sent(self) -> list[object]:
        """The statements of the user."""
        return [call[1] for call in self.calls if "log_queries" not in str(call[3])]


@pytest.fixture
def rooms() -> TerminalRooms:
    return TerminalRooms()


@pytest.fixture
def url(rooms: TerminalRooms) -> Iterator[str]:
    context = replace(context_of(rooms), listen_host="127.0.0.1")
    server = HttpServer(SystemClock(), build_app(context), host="127.0.0.1", port=0)
    server.start()
    yield server.url
    server.stop()


def test_statements_are_typed_completed_searched_and_shown(url: str, rooms: TerminalRooms, tmp_path: Path) -> None:
    paged = tmp_path / "paged"
    pager = f"{sys.executable} -S -c \"import sys; open('{paged}', 'w').write(sys.stdin.read())\""
    with shell(url, tmp_path, pager=pager) as terminal:
        terminal.expect("default>")
        # A statement over two lines; the name of the table is completed once it is known.
        rooms.wait_until_named()
        terminal.type("SELECT *\rFROM tri")
        terminal.expect("MergeTree")
        terminal.type("\t\r;\r")
        terminal.expect("1 row, 0.002 s")
        assert [str(text).split() for text in rooms.sent()] == [["SELECT", "*", "FROM", "trips"]]
        terminal.expect("default>")
        # Wide rows are upright, and what a terminal would obey is shown.
        terminal.type("SELECT wide;\r")
        terminal.expect("column_8 │ " + "x" * 20)
        assert "column_3 │ \\x1b[2J\\x1b]0;title\\x07\\x9b31mred" in terminal.text
        assert "\x1b[2J\x1b]0;" not in terminal.raw
        terminal.expect("default>")
        # Long ones are in the pager.
        terminal.type("SELECT long;\r")
        terminal.expect("500 rows, 0.002 s")
        assert paged.read_text().split()[-1] == "499"
        # Ctrl-R finds what was typed before.
        terminal.expect("default>")
        terminal.type("\x12wid\r\r")
        terminal.expect("column_8 │ ")
        terminal.expect("default>")
        terminal.type("exit\r")
        assert terminal.end() == 0
    assert "SELECT wide;" in (tmp_path / ".tilth_history").read_text()
    assert (tmp_path / ".tilth_history").stat().st_mode & 0o777 == 0o600


def test_progress_and_ctrl_c(url: str, rooms: TerminalRooms, tmp_path: Path) -> None:
    """The first Ctrl-C cancels the statement on the server, two within a second leave."""
    with shell(url, tmp_path) as terminal:
        terminal.expect("default>")
        terminal.type("SELECT slow;\r")
        assert rooms.has_begun.wait(SECONDS_MAX)
        terminal.expect("2,500,000 of 10,000,000 rows, 64.0 MiB, 25%, 18 s left")
        terminal.type("\x03")
        terminal.expect("cancelled: the server ends the statement")
        assert rooms.was_cancelled.wait(SECONDS_MAX)
        time.sleep(1.1)
        terminal.expect("default>")
        terminal.type("SELECT 1;\r")
        terminal.expect("1 row, 0.002 s")
        terminal.expect("default>")
        rooms.has_begun.clear()
        terminal.type("SELECT slow;\r")
        assert rooms.has_begun.wait(SECONDS_MAX)
        terminal.type("\x03")
        terminal.expect("cancelled: the server")
        terminal.type("\x03")
        assert terminal.end() == 0


def test_a_script_at_a_terminal(url: str, rooms: TerminalRooms, tmp_path: Path) -> None:
    """It prints a grid as ever, sends no escapes of values to the terminal, and ends with 130 by Ctrl-C."""
    with shell(url, tmp_path, "--format", "csv", "-c", "SELECT wide; SELECT slow") as terminal:
        terminal.expect("\\x1b[2J\\x1b]0;title\\x07\\x9b31mred")
        assert "\x1b]0;" not in terminal.raw
        assert rooms.has_begun.wait(SECONDS_MAX)
        terminal.type("\x03")
        assert terminal.end() == CANCELLED
        assert "Traceback" not in terminal.text


@pytest.mark.parametrize("width", [8, 24])
def test_a_narrow_terminal_and_a_server_that_is_away(tmp_path: Path, width: int) -> None:
    with shell("http://127.0.0.1:9", tmp_path, width=width) as terminal:
        terminal.expect("default")
        terminal.type("SELECT 1;\r")
        terminal.expect("SERVER_")
        terminal.expect("default")
        terminal.type("\\q\r")
        assert terminal.end() == 0
        assert "Traceback" not in terminal.text
