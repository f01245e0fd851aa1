import os
import pty
import termios

import pytest

from tilth.client.keys import names_of, raw_keys


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[B\x1bOC\x1b[D", ["up", "down", "right", "left"]),
        (b"\t\x1b[Zs", ["tab", "backtab", "s"]),
        (b"\x03", ["q"]),
        (b"p\x1b[15~q", ["p"]),
        (b"\x1b", []),
        (b"\xff", ["\xff"]),
    ],
)
def test_names_of_keys(data: bytes, names: list[str]) -> None:
    assert names_of(data) == names


def test_keys_come_at_once_and_the_terminal_is_given_back() -> None:
    keyboard, terminal = pty.openpty()
    try:
        before = termios.tcgetattr(terminal)
        with raw_keys(terminal) as keys:
            os.write(keyboard, b"s\x1b[A")
            assert keys.read(5) == ["s", "up"]
            assert keys.read(0) == []
        assert termios.tcgetattr(terminal) == before
    finally:
        os.close(keyboard)
        os.close(terminal)
