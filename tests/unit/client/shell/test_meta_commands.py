"""Commands behind a backslash."""

from __future__ import annotations

import pytest

from tilth.client.rows import Layout
from tilth.client.shell.meta_commands import (
    COMMANDS,
    HELP,
    SERVICES,
    EditLast,
    Leave,
    Meaning,
    Say,
    Send,
    SetLayout,
    SetPager,
    SetTiming,
    Watch,
    is_command,
    meaning,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\d", Send("SHOW TABLES")),
        ("\\d `my db`.t;", Send("DESCRIBE `my db`.t")),
        ("\\l", Send("SHOW DATABASES")),
        ("\\c shop", Send("USE shop")),
        ("\\c", Send("USE default")),
        ("\\s", Send(SERVICES)),
        ("\\x", SetLayout(None)),
        ("\\x on", SetLayout(Layout.UPRIGHT)),
        ("\\x OFF;", SetLayout(Layout.GRID)),
        ("\\x auto", SetLayout(Layout.AUTO)),
        ("\\timing", SetTiming(None)),
        ("\\timing off", SetTiming(False)),
        ("\\pager on", SetPager(True)),
        ("\\watch", Watch(2.0)),
        ("\\watch 0.5", Watch(0.5)),
        ("\\e", EditLast()),
        ("\\q", Leave()),
        (" exit ; ", Leave()),
        ("QUIT", Leave()),
        ("\\?", Say(HELP)),
    ],
)
def test_meanings(text: str, expected: Meaning) -> None:
    assert is_command(text)
    assert meaning(text) == expected


@pytest.mark.parametrize(
    "text",
    ["\\nonsense", "\\", "\\x maybe", "\\timing auto", "\\watch soon", "\\watch nan", "\\watch -1", "\\watch 1e9"],
)
def test_what_cannot_be_obeyed_is_said(text: str) -> None:
    said = meaning(text)
    assert isinstance(said, Say)
    assert text.split()[-1] in said.text


def test_statements_are_no_commands() -> None:
    assert not any(map(is_command, ("SELECT 1", "", "exit 1", "SELECT '\\q'")))


def test_help_has_each_command() -> None:
    assert all(name in HELP for name in COMMANDS)
