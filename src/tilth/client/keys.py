"""Keys of a terminal, one by one, without waiting for Enter.

Covers: reading keys, their names, giving the terminal back. Does not cover: lines of text (shell/conversation.py).
Always holds: the terminal is as it was before, however the block ends.
"""

from __future__ import annotations

import os
import select
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

#: Bytes of one read; nobody presses more keys at once.
_BYTES_MAX = 64
_NAMES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"\x1b[Z": "backtab",
    b"\t": "tab",
    b"\x03": "q",
    b"\x04": "q",
}


def names_of(data: bytes) -> list[str]:
    """Return the names of keys: `up`, `tab`, or the character; those of unknown sequences are left out."""
    found: list[str] = []
    while data:
        known = next((each for each in _NAMES if data.startswith(each)), None)
        if known is not None:
            found.append(_NAMES[known])
            data = data[len(known) :]
        elif data[0] == 0x1B:
            # A sequence that nothing is bound to.
            return found
        else:
            found.append(chr(data[0]))
            data = data[1:]
    return found


class PressedKeys:
    """The keys of a terminal that is in its raw form."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._is_closed = False

    def read(self, seconds: float) -> list[str]:
        """Return the keys that were pressed, waiting so long for the first; `q` where the terminal has gone."""
        if not select.select([self._file], [], [], seconds)[0]:
            return []
        data = os.read(self._file, _BYTES_MAX)
        return names_of(data) if data else ["q"]


@contextmanager
def raw_keys(file: int) -> Iterator[PressedKeys]:
    """Let keys come one by one, and not be shown, inside of the block."""
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        yield PressedKeys(file)
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
