"""`tilth sql`: a shell, `-c` and `-f` for scripts, or statements on standard input.

Rows go to standard output, errors to standard error. The exit code says what went wrong (client/exit_codes.py); the
statements behind one that failed are not sent.

Tests: tests/unit/client/cli/test_shell.py, tests/acceptance/test_http_server.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tilth.base.errors import InvalidInputError, TilthError
from tilth.client.exit_codes import CANCELLED, OUTPUT_CLOSED, exit_code
from tilth.client.options import DatabaseOption, OutputFormat, UrlOption
from tilth.client.output import console_of, show_cancelled, show_error
from tilth.client.script import ScriptStatement, statements
from tilth.client.settings import DEFAULT_URL

if TYPE_CHECKING:
    from tilth.client.http import Connection


def sql(
    command: Annotated[str | None, typer.Option("-c", "--command", help="Run these statements and leave.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", exists=True, dir_okay=False, help="Run the statements of a file and leave."),
    ] = None,
    url: UrlOption = DEFAULT_URL,
    database: DatabaseOption = "default",
    output: Annotated[OutputFormat, typer.Option("--format", help="How rows are printed.")] = OutputFormat.TABLE,
) -> None:
    """Run statements: in a shell, or with -c, -f or standard input."""
    from tilth.client.http import connect

    if command is not None and file is not None:
        raise typer.BadParameter("give -c or -f, not both")
    errors = console_of(sys.stderr)
    try:
        with connect(url, database=database) as connection:
            if command is not None:
                _run_all(connection, errors, statements(command), output)
            elif file is not None:
                _run_all(connection, errors, statements(_text(file.read_bytes(), str(file))), output)
            elif not sys.stdin.isatty():
                _run_all(connection, errors, statements(_text(sys.stdin.buffer.read(), "standard input")), output)
            else:
                # Its libraries are imported for a conversation alone.
                from tilth.client.shell.conversation import converse

                converse(connection, console_of(), errors, output)
    except TilthError as error:
        show_error(errors, error)
        raise typer.Exit(exit_code(error)) from error
    except KeyboardInterrupt as error:
        show_cancelled(errors)
        raise typer.Exit(CANCELLED) from error
    except BrokenPipeError as error:
        # The reader of our output has left, as `head` does; Python's flush at the end has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(OUTPUT_CLOSED) from error


def _run_all(connection: Connection, errors: Console, given: Iterable[ScriptStatement], output: OutputFormat) -> None:
    from tilth.client.rows import Layout
    from tilth.client.shell.interrupts import reaching
    from tilth.client.shell.run import View, run

    console = console_of()
    for statement in given:
        view = View(layout=Layout.UPRIGHT if statement.is_upright else Layout.GRID)
        with reaching():
            run(connection, console, errors, statement.text, output, view)
    sys.stdout.flush()


def _text(content: bytes, source: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError.coded(
            "BAD_SCRIPT", "the script is not UTF-8 text", source=source, position=error.start
        ) from error
