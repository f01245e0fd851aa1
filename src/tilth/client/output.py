"""Output for people: the console, notices, errors. Rows are in rows.py.

Tests: tests/unit/client/cli/test_shell.py.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.text import Text

from tilth.base.errors import TilthError
from tilth.client.printable import printable, printable_lines

if TYPE_CHECKING:
    from tilth.model.wire import Summary

#: Width without a screen: lines are as long as they need to be.
COLUMNS_WITHOUT_SCREEN = 100_000


def console_of(stream: TextIO | None = None) -> Console:
    """Make a console that writes to the stream (by default the standard output) and wraps lines on a screen only."""
    stream = stream or sys.stdout
    return Console(file=stream, width=None if stream.isatty() else COLUMNS_WITHOUT_SCREEN, highlight=False)


def show_notices(console: Console, summary: Summary) -> None:
    for notice in summary.notices:
        console.print(Text.assemble(("notice: ", "bold yellow"), printable_lines(notice)))


def show_error(console: Console, error: TilthError) -> None:
    """Print what went wrong, what to do, the page on its cause, and the id that the log knows."""
    console.print(Text.assemble((f"{printable(error.code)} ", "bold red"), printable_lines(error.message)))
    if error.hint:
        console.print(Text.assemble(("  what to do: ", "bold"), printable_lines(error.hint)))
    if error.page:
        console.print(Text(f"  see: {printable(error.page)}", style="dim"))
    cause_id = getattr(error, "id", "")
    if cause_id:
        console.print(Text(f"  id: {printable(cause_id)}", style="dim"))


def show_cancelled(console: Console) -> None:
    """Print the outcome of a statement that Ctrl-C has ended here."""
    console.print(Text("cancelled: the server ends the statement, unless it is being committed", style="dim"))
