"""A shell at a real pseudo terminal: types keys, waits for texts."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

SECONDS_MAX = 30
#: Sequences that prompt_toolkit and rich send by themselves.
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>78]|\x1b\][^\x07]*\x07")


class Terminal:
    """A shell behind a pseudo terminal."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], *, width: int = 100) -> None:
        self._main, second = pty.openpty()
        ioctl(second, termios.TIOCSWINSZ, struct.pack("HHHH", 30, width, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tilth.client.cli", *arguments],
            stdin=second,
            stdout=second,
            stderr=second,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **environment},
            start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C needs a controlling terminal
        )
        os.close(second)
        self.raw = ""
        # A character may come in two pieces.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at = 0

    @property
    def text(self) -> str:
        """All that was shown, without sequences of the terminal."""
        return _SEQUENCE.sub("", self.raw)

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def expect(self, text: str) -> None:
        """Wait for a text behind the last one that was expected."""
        self._read_until(lambda: text in self.text[self._at :], text)
        self._at = self.text.index(text, self._at) + len(text)

    def shows(self, text: str, *, seconds: float = 1.0) -> bool:
        """Return whether a text comes within this time behind the last one that was expected."""
        end = time.monotonic() + seconds
        self._read_until(lambda: text in self.text[self._at :] or time.monotonic() > end, text)
        return text in self.text[self._at :]

    def end(self) -> int:
        self._read_until(lambda: False, "the end", until_closed=True)
        return self.process.wait(SECONDS_MAX)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(SECONDS_MAX)
        os.close(self._main)

    def _read_until(self, is_there: Callable[[], bool], wanted: str, *, until_closed: bool = False) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not is_there():
            assert time.monotonic() < deadline, f"no {wanted!r} in {self.text!r}"
            if not select.select([self._main], [], [], 0.1)[0]:
                continue
            try:
                piece = os.read(self._main, 65536)
            except OSError:
                # The other end is closed.
                piece = b""
            if not piece:
                assert until_closed, f"the shell ended before {wanted!r}: {self.text!r}"
                return
            self.raw += self._decoder.decode(piece)


@contextmanager
def shell(url: str, home: Path, *arguments: str, width: int = 100, pager: str = "cat") -> Iterator[Terminal]:
    terminal = Terminal(["sql", "--url", url, *arguments], {"HOME": str(home), "PAGER": pager}, width=width)
    try:
        yield terminal
    finally:
        terminal.close()
