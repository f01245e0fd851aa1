"""The conversation of `tilth sql`: statements and commands are typed, run and shown, until the user leaves.

Covers: the prompt, commands, Ctrl-C. Does not cover: running a statement (run.py), when one has ended
(client/script.py), what a command means (meta_commands.py).
Always holds: no error and no Ctrl-C ends it, but two Ctrl-C within a second.

Tests: tests/unit/client/cli/test_shell.py, tests/acceptance/test_terminal.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import assert_never

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from rich.console import Console
from rich.text import Text

from tilth.base.clock import SystemClock
from tilth.base.errors import TilthError
from tilth.client.http import Connection
from tilth.client.options import OutputFormat
from tilth.client.output import show_cancelled, show_error
from tilth.client.printable import printable, printable_lines
from tilth.client.rows import Layout
from tilth.client.script import ScriptStatement, cut, first_word
from tilth.client.settings import READING
from tilth.client.shell.completion import SqlCompleter
from tilth.client.shell.editor import edited
from tilth.client.shell.history import history_of
from tilth.client.shell.interrupts import Interrupts, Left
from tilth.client.shell.keys import bindings
from tilth.client.shell.lexer import STYLE, SqlLexer
from tilth.client.shell.meta_commands import (
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
from tilth.client.shell.names import Names
from tilth.client.shell.pager import Pager
from tilth.client.shell.run import View, run

_CONTINUED = "   ... "
#: Statements after which names are read again.
_DEFINING = frozenset(("CREATE", "DROP", "ALTER", "RENAME", "UNDROP"))


def converse(connection: Connection, console: Console, errors: Console, output: OutputFormat) -> None:
    """Return when the user leaves."""
    console.print(Text(f"Tilth at {connection.url}. A statement ends with ; and \\? helps.", style="dim"))
    _Conversation(connection, console, errors, output).hold()


class _Conversation:
    """State of a conversation from statement to statement."""

    def __init__(self, connection: Connection, console: Console, errors: Console, output: OutputFormat) -> None:
        self._clock = SystemClock()
        self._connection = connection
        self._console = console
        self._errors = errors
        self._output = output
        self._pager = Pager()
        self._view = View(layout=Layout.AUTO, pager=self._pager)
        self._interrupts = Interrupts(self._clock)
        #: The last statement, for `\\watch` and `\\e`.
        self._last = ScriptStatement("")
        #: Text with which the next prompt begins.
        self._begun = ""
        self._names = Names(self._clock, connection, changed=self._redraw)
        self._session: PromptSession[str] = PromptSession(
            multiline=True,
            history=history_of(),
            auto_suggest=AutoSuggestFromHistory(),
            completer=SqlCompleter(self._names, lambda: connection.database),
            complete_while_typing=True,
            enable_open_in_editor=True,
            tempfile_suffix=".sql",
            key_bindings=bindings(),
            lexer=SqlLexer(),
            style=STYLE,
            prompt_continuation=_CONTINUED,
        )

    def hold(self) -> None:
        with suppress(Left, EOFError), self._interrupts.watched(), self._named():
            while True:
                # Python raises a Ctrl-C also where a loop goes back: the inner one does so inside of the `try`.
                try:
                    while True:
                        self._obey(self._prompt())
                except KeyboardInterrupt:
                    self._interrupts.caught()

    def _prompt(self) -> str:
        begun, self._begun = self._begun, ""
        return self._session.prompt(f"{printable(self._connection.database)}> ", default=begun)

    @contextmanager
    def _named(self) -> Iterator[None]:
        self._names.start()
        try:
            yield
        finally:
            self._names.stop()

    def _obey(self, text: str) -> None:
        if is_command(text):
            self._do(meaning(text))
            return
        statements, rest = cut(f"{text}\n")
        # An editor may give back what has not ended.
        self._begun = rest.rstrip("\n")
        for statement in statements:
            if not self._run(statement, self._view):
                return

    def _do(self, meant: Meaning) -> None:
        match meant:
            case Leave():
                raise Left
            case Say():
                self._say(meant.text)
            case Send():
                self._run(ScriptStatement(meant.statement), self._view)
            case SetLayout():
                toggled = Layout.AUTO if self._view.layout is Layout.UPRIGHT else Layout.UPRIGHT
                self._view = replace(self._view, layout=meant.layout or toggled)
                self._say(f"rows upright: {_LAYOUT_WORDS[self._view.layout]}")
            case SetTiming():
                is_on = not self._view.shows_times if meant.is_on is None else meant.is_on
                self._view = replace(self._view, shows_times=is_on)
                self._say(f"times: {'on' if is_on else 'off'}")
            case SetPager():
                self._pager.is_on = not self._pager.is_on if meant.is_on is None else meant.is_on
                self._say(f"pager: {'on' if self._pager.is_on else 'off'}")
            case Watch():
                self._watch(meant.seconds)
            case EditLast():
                self._edit()
            case _:
                assert_never(meant)

    def _run(self, statement: ScriptStatement, view: View) -> bool:
        """Run a statement; return false when the later statements of the text must not be sent."""
        self._last = statement
        view = replace(view, layout=Layout.UPRIGHT) if statement.is_upright else view
        try:
            with self._interrupts.reaching():
                run(self._connection, self._console, self._errors, statement.text, self._output, view)
        except TilthError as error:
            show_error(self._errors, error)
            return False
        except KeyboardInterrupt:
            self._interrupts.caught()
            show_cancelled(self._errors)
            return False
        if first_word(statement.text) in _DEFINING:
            self._names.refresh()
        return True

    def _watch(self, seconds: float) -> None:
        """Repeat the last statement until it fails or Ctrl-C; one that changes something is refused by the server."""
        if not self._last.text:
            self._say("there is no statement to repeat yet")
            return
        view = replace(self._view, pager=None, settings=READING)
        try:
            while self._run(self._last, view):
                self._say(f"again in {seconds:g} s; Ctrl-C ends it")
                self._clock.sleep(seconds)
        except KeyboardInterrupt:
            self._interrupts.caught()

    def _edit(self) -> None:
        try:
            text = edited(f"{self._last.text};\n" if self._last.text else "")
        except TilthError as error:
            show_error(self._errors, error)
            return
        # The user sees what is sent, and sends it with Enter.
        self._begun = text

    def _say(self, text: str) -> None:
        self._console.print(Text(printable_lines(text)))

    def _redraw(self) -> None:
        """Show below the prompt what hinders completion, and nothing where all is well."""
        self._session.bottom_toolbar = printable(self._names.problem) or None
        self._session.app.invalidate()


_LAYOUT_WORDS = {
    Layout.UPRIGHT: "on",
    Layout.GRID: "off",
    Layout.AUTO: "auto, where they are wider than the terminal",
}
