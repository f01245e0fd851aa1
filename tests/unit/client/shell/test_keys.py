"""Enter: whether it runs what is typed."""

from __future__ import annotations

import pytest

from tilth.client.shell.keys import bindings, has_ended


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("  \n", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1\\G", True),
        ("SELECT 1; SELECT", False),
        ("SELECT ';", False),
        ("SELECT 1; -- done", True),
        ("INSERT INTO t FORMAT CSV\n1,2", False),
        ("INSERT INTO t FORMAT CSV\n1,2\n", True),
        ("\\d", True),
        ("exit", True),
        ("exit now", False),
    ],
)
def test_a_text_that_has_ended(text: str, expected: bool) -> None:
    assert has_ended(text) is expected


def test_keys_that_are_ours() -> None:
    assert {tuple(str(key) for key in one.keys) for one in bindings().bindings} == {
        ("Keys.ControlM",),
        ("Keys.Escape", "Keys.ControlM"),
    }
