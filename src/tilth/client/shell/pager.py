"""A pager for what is longer than the screen: `$PAGER`, else `less -SFRX`.

Covers: when it runs, what it gets, Ctrl-C inside of it. Does not cover: what is printed (client/rows.py).
Always holds: a pager that is not there, fails or is left early loses no more than its own view; keys typed in it do not
reach the shell.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping

from rich.console import Console

from tilth.client.shell.interrupts import left_to_child

DEFAULT_PAGER = "less -SFRX"
#: Options of `less` if `$LESS` is not set.
LESS = "FRX"
#: Words of `$PAGER` that mean none.
_NONE = ("", "cat")
#: Lines of the prompt and of the outcome below the rows.
_LINES_BELOW = 3


class Pager:
    """Prints by itself or through the user's pager."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._command = environment.get("PAGER", DEFAULT_PAGER)
        # A `PAGER=less` shows colours, too, as with Git.
        self._environment = {"LESS": LESS, **environment}
        self.is_on = self._command.strip() not in _NONE

    def show(self, console: Console, show: Callable[[], None]) -> None:
        """Run `show`, which prints to the console; the pager gets its text if that is longer than the screen."""
        if not self.is_on or not console.is_terminal:
            show()
            return
        with console.capture() as captured:
            show()
        text = captured.get()
        if text.count("\n") + _LINES_BELOW <= console.height or not self._page(text):
            console.file.write(text)
            console.file.flush()

    def _page(self, text: str) -> bool:
        """Return false if there is no such pager."""
        with left_to_child():
            try:
                pager = subprocess.Popen(shlex.split(self._command), stdin=subprocess.PIPE, env=self._environment)
            except (OSError, ValueError):
                return False
            # A pager that is left early closes its end; then communicate() stops.
            pager.communicate(text.encode("utf-8", "replace"))
        return True
