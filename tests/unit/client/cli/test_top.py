"""The command `tilth top`: one frame, keys, a server that is away or comes back, a real terminal. Cost: 2 s."""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.unit.app_transport import AppTransport
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.errors import NotFoundError
from tilth.client import Connection
from tilth.client.cli.main import app
from tilth.client.cli.top import Reader, after_key, read
from tilth.client.top import SECTIONS, TopAnswers, TopView
from tilth.query.results.answer import Answer
from tilth.server import build_app


def closed_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return f"http://127.0.0.1:{door.getsockname()[1]}"


def test_one_frame_of_a_server_that_is_away() -> None:
    ran = CliRunner().invoke(app, ["top", "--once", "--url", closed_url()])
    assert ran.exit_code == 1
    assert "the server does not answer; it is tried again: the Tilth server does not answer" in ran.stdout


def test_a_live_view_needs_a_terminal() -> None:
    ran = CliRunner().invoke(app, ["top", "--url", closed_url()])
    assert ran.exit_code == 2
    assert CliRunner().invoke(app, ["top", "--once", "--url", "ftp://x"]).exit_code == 2


def test_reading_changes_nothing_and_an_error_of_one_statement_is_its_own() -> None:
    rooms = FakeRooms(answer=Answer(query_id="q", columns=[], table=pa.table({"a": []}), elapsed_ms=1.0))
    connection = Connection("http://tilth.test", transport=AppTransport(build_app(context_of(rooms))))
    found = read(connection, TopAnswers(url="u"))
    assert (found.is_well, found.trouble, set(found.rows)) == (True, "", set(range(len(SECTIONS))))
    settings = [call[3] for call in rooms.calls if call[0] == "run"]
    assert settings == [{"readonly": "1", "log_queries": "0", "max_execution_time": "10"}] * len(SECTIONS)
    rooms.error = NotFoundError("no such column", column="x")
    assert set(read(connection, found).rows.values()) == {"no such column: column=x"}


def test_keys() -> None:
    view = TopView()
    assert after_key(view, "q") is None
    assert after_key(view, "p") == TopView(is_paused=True)
    assert after_key(view, "tab") == TopView(section=1)
    assert after_key(view, "left") == TopView(section=len(SECTIONS) - 1)
    assert after_key(TopView(first=3), "up") == TopView(first=2)
    assert after_key(view, "up") == view
    assert after_key(view, "4") == TopView(section=3)
    assert after_key(view, "9") == view
    assert after_key(view, "\xff") == view
    sorted_by = []
    for _ in range(len(SECTIONS[0].columns) + 1):
        after = after_key(view, "s")
        assert after is not None
        view = after
        sorted_by.append(view.sorted_by.get(0))
    assert sorted_by == [*range(len(SECTIONS[0].columns)), None]


def test_the_reader_goes_on_when_a_reading_hangs_or_is_paused() -> None:
    count, may_end = threading.Semaphore(0), threading.Event()

    def once(before: TopAnswers) -> TopAnswers:
        count.release()
        may_end.wait(10)
        return TopAnswers(url="u", at="now")

    reader = Reader(once, TopAnswers(url="u"), every=0.001)
    reader.start()
    assert count.acquire(timeout=10)
    assert reader.answers.at == ""
    reader.pause(True)
    may_end.set()
    while not reader.answers.at:
        threading.Event().wait(0.001)
    reader.pause(False)
    assert count.acquire(timeout=10)
    reader.stop()


def shown_until(keyboard: int, end: bytes) -> bytes:
    """Return what the terminal shows up to these bytes, or until it is closed or 30 seconds have passed."""
    seen, deadline = b"", time.monotonic() + 30  # noqa: TID251  # a process lives in real time
    while end not in seen and time.monotonic() < deadline:  # noqa: TID251
        if select.select([keyboard], [], [], 0.1)[0]:
            try:
                seen += os.read(keyboard, 65536)
            except OSError:
                break
    return seen


@pytest.mark.parametrize("leaves_by", ["q", "Ctrl-C"])
def test_a_terminal(leaves_by: str) -> None:
    keyboard, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "60", "LINES": "20", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "tilth.client.cli", "top", "--url", closed_url()]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        try:
            assert b"does not answer" in shown_until(keyboard, b"does not answer")
            if leaves_by == "q":
                os.write(keyboard, b"q")
            else:
                process.send_signal(signal.SIGINT)
            # The screen of before is back.
            assert b"\x1b[?1049l" in shown_until(keyboard, b"\x1b[?1049l")
            assert process.wait(10) == 0
        finally:
            process.kill()
            os.close(keyboard)
