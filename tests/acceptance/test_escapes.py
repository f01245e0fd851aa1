"""Statements that try to reach the host, on a node of their own: none springs a trap (tools/escapes.py)."""

from __future__ import annotations

import socket

import pytest

from tools.escapes import attempts, run, traps

pytestmark = pytest.mark.acceptance


def test_no_attempt_reaches_the_host() -> None:
    tried = run(500)
    assert [(each.escaped, each.text, each.answer) for each in tried if each.escaped] == []
    # The node went on, and most were refused for what they are.
    assert sum(each.code in ("NOT_ALLOWED", "UNKNOWN_FUNCTION", "UNSUPPORTED_SYNTAX") for each in tried) > 250


def test_each_trap_springs() -> None:
    for spring in range(4):
        with traps() as trap:
            assert trap.sprung("nothing") == ""
            if spring == 0:
                assert "secret" in trap.sprung(f"[('{trap.secrets[0]}',)]")
                continue
            if spring == 1:
                (trap.folder / "out" / "made").touch()
            elif spring == 2:
                exec((trap.folder / "tilth_trap.py").read_text(), {})
            else:
                socket.create_connection(("127.0.0.1", trap.port)).close()
            while not (sprung := trap.sprung("nothing")):
                pass
            assert ["", "files", "module", "connection"][spring] in sprung


def test_attempts_are_many_and_differ() -> None:
    with traps() as trap:
        assert len({*attempts(2000, trap.names)}) > 1990
