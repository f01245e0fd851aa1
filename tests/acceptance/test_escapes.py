"""Statements that try to reach the host, on a node of their own: none springs a trap (tools/escapes.py)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from tests.long import examples
from tools.escapes import Traps, attempts, run, traps

pytestmark = pytest.mark.acceptance

ATTEMPTS = examples(600)


def test_no_attempt_reaches_the_host() -> None:
    tried = run(ATTEMPTS)
    assert [(each.escaped, each.text, each.answer) for each in tried if each.escaped] == []
    # The node was there until the end, and refused most of them for the right reason.
    assert sum(each.code in ("NOT_ALLOWED", "UNKNOWN_FUNCTION", "UNSUPPORTED_SYNTAX") for each in tried) > ATTEMPTS // 2


SPRINGS: dict[str, Callable[[Traps], object]] = {
    "files": lambda trap: (trap.folder / "out" / "made").touch(),
    "module": lambda trap: exec((trap.folder / "tilth_trap.py").read_text(), {}),
    "connection": lambda trap: socket.create_connection(("127.0.0.1", trap.port)).close(),
}


def test_a_secret_in_an_answer_is_found() -> None:
    with traps() as trap:
        assert trap.sprung("nothing") == ""
        assert "secret" in trap.sprung(f"[('{trap.secrets[0]}',)]")


@pytest.mark.parametrize("what", SPRINGS)
def test_each_trap_springs(what: str) -> None:
    with traps() as trap:
        assert trap.sprung("nothing") == ""
        SPRINGS[what](trap)
        deadline = time.monotonic() + 30
        # Another thread notes a connection.
        while not trap.sprung("nothing") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert what in trap.sprung("nothing")


def test_attempts_are_many_and_differ() -> None:
    with traps() as trap:
        assert len({*attempts(2000, trap.names)}) > 1990
