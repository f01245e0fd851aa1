"""Runs a statement for the command line and prints what it gives, while it comes.

Covers: the forms of output, what is shown during a wait. Does not cover: the form of a row (client/output.py).
Always holds: a result of any size needs little memory here; progress is shown on a terminal only, and never between
rows.

Tests: tests/unit/client/cli/test_shell.py.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pyarrow as pa
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tilth.client.cli.options import OutputFormat
from tilth.client.http import ARROW, Connection, Reply, Rows
from tilth.client.output import show_notices
from tilth.client.rows import ROWS_SHOWN_MAX, show_outcome, show_rows

JSON = "application/json"


_ACCEPT = {
    OutputFormat.TABLE: ARROW,
    OutputFormat.CSV: "text/csv",
    OutputFormat.JSON: JSON,
    OutputFormat.NDJSON: "application/x-ndjson",
}
_USE = re.compile(r"\s*USE\s+(?:`((?:[^`]|``)+)`|(\w+))\s*;?\s*", re.IGNORECASE)


def run(connection: Connection, console: Console, errors: Console, statement: str, output: OutputFormat) -> None:
    """Run one statement; rows go to standard output. Raises TilthErrors.

    A FORMAT in the statement wins over `output`. After a successful USE, the connection has that database.
    `errors`: for progress, where it is a terminal.
    """
    with _Waiting(errors) as waiting, connection.request(statement, accept=_ACCEPT[output]) as reply:
        if reply.media_type == ARROW and output is OutputFormat.TABLE:
            _show(console, waiting, reply)
        else:
            waiting.stop()
            _pass_on(reply)
            show_notices(errors, reply.summary)
    used = _USE.fullmatch(statement)
    if used is not None:
        connection.database = used[2] or used[1].replace("``", "`")


class _Waiting:
    """Progress line of a terminal while an answer is on its way: the time so far, and the rows that have come."""

    def __init__(self, errors: Console) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal)
        self._task = self._progress.add_task("running", total=None)

    def __enter__(self) -> _Waiting:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop without a trace on the screen."""
        self._progress.stop()

    def count(self, rows: int) -> None:
        self._progress.update(self._task, description=f"{rows:,} rows")

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Let others print inside."""
        self._progress.stop()
        yield
        self._progress.start()


def _show(console: Console, waiting: _Waiting, reply: Reply) -> None:
    """Show the first rows when they are there; those behind them are counted and forgotten."""
    started = time.monotonic()  # noqa: TID251  # a command line has no clock handed in
    rows, first, seen, is_shown = Rows(reply), list[pa.RecordBatch](), 0, False
    for batch in rows:
        seen += batch.num_rows
        waiting.count(seen)
        if is_shown:
            continue
        first.append(batch)
        if seen > ROWS_SHOWN_MAX:
            with waiting.pause():
                show_rows(console, pa.Table.from_batches(first, rows.schema))
            first, is_shown = [], True
    waiting.stop()
    summary = rows.summary
    if is_shown:
        # The server's time ends where the answer begins.
        elapsed_ms = summary.elapsed_ms + 1000 * (time.monotonic() - started)  # noqa: TID251
        summary = msgspec.structs.replace(summary, elapsed_ms=elapsed_ms)
    else:
        show_rows(console, pa.Table.from_batches(first, rows.schema))
    show_outcome(console, summary, rows=seen if len(rows.schema) else None)


def _pass_on(reply: Reply) -> None:
    """Write bytes as they come, so that a large result needs no memory here."""
    out = sys.stdout.buffer
    for piece in reply.pieces:
        out.write(piece)
    if reply.media_type == JSON:
        out.write(b"\n")
    out.flush()
