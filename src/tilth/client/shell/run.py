"""Runs a statement for the command line and prints what it gives, while it comes.

Covers: the forms of output, the times. Does not cover: the form of a row (client/rows.py), what is shown during a wait
(progress_bar.py).
Always holds: a result of any size needs little memory here; bytes of a format are passed on as they are, but on a
terminal, which would obey some of them.

Tests: tests/unit/client/cli/test_shell.py.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
from rich.console import Console
from rich.text import Text

from tilth.base.clock import Clock, SystemClock
from tilth.client.http import ARROW, Connection, Reply, Rows
from tilth.client.options import OutputFormat
from tilth.client.output import show_notices
from tilth.client.printable import printable_lines
from tilth.client.rows import ROWS_SHOWN_MAX, Layout, show_outcome, show_rows
from tilth.client.shell.pager import Pager
from tilth.client.shell.progress_bar import ProgressBar
from tilth.client.shell.relations import used_database

JSON = "application/json"
_ACCEPT = {
    OutputFormat.TABLE: ARROW,
    OutputFormat.CSV: "text/csv",
    OutputFormat.JSON: JSON,
    OutputFormat.NDJSON: "application/x-ndjson",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The way in which results are shown."""

    layout: Layout = Layout.GRID
    #: None: nothing is paged.
    pager: Pager | None = None
    shows_times: bool = False
    #: Settings that are sent with the statement alone.
    settings: Mapping[str, str] = field(default_factory=dict)


_PLAIN = View()


def run(
    connection: Connection,
    console: Console,
    errors: Console,
    statement: str,
    output: OutputFormat,
    view: View = _PLAIN,
) -> None:
    """Run one statement; rows go to standard output. Raises TilthErrors.

    A FORMAT in the statement wins over `output`. After a successful USE, the connection has that database.
    `errors`: for progress, where it is a terminal.
    """
    clock = SystemClock()
    began = clock.monotonic()
    with (
        ProgressBar(clock, errors, connection, statement) as waiting,
        connection.request(statement, accept=_ACCEPT[output], settings=view.settings) as reply,
    ):
        answered = clock.monotonic()
        if reply.media_type == ARROW and output is OutputFormat.TABLE:
            _show(clock, console, waiting, reply, view)
        else:
            waiting.stop()
            _pass_on(reply)
            show_notices(errors, reply.summary)
    if view.shows_times:
        text = f"answered after {answered - began:.3f} s, shown after {clock.monotonic() - began:.3f} s"
        errors.print(Text(f"{text}; the server took {reply.summary.elapsed_ms / 1000:.3f} s", style="dim"))
    connection.database = used_database(statement) or connection.database


def _show(clock: Clock, console: Console, waiting: ProgressBar, reply: Reply, view: View) -> None:
    """Show the first rows when they are there; those behind them are counted and forgotten."""
    started = clock.monotonic()
    rows, first, seen, is_shown = Rows(reply), list[pa.RecordBatch](), 0, False

    def print_rows() -> None:
        table = pa.Table.from_batches(first, rows.schema)
        if view.pager is None:
            show_rows(console, table, view.layout)
        else:
            view.pager.show(console, lambda: show_rows(console, table, view.layout))

    for batch in rows:
        seen += batch.num_rows
        waiting.count(seen)
        if is_shown:
            continue
        first.append(batch)
        if seen > ROWS_SHOWN_MAX:
            with waiting.pause():
                print_rows()
            first, is_shown = [], True
    waiting.stop()
    summary = rows.summary
    if is_shown:
        # The server's time ends where the answer begins.
        elapsed_ms = summary.elapsed_ms + 1000 * (clock.monotonic() - started)
        summary = msgspec.structs.replace(summary, elapsed_ms=elapsed_ms)
    else:
        print_rows()
    show_outcome(console, summary, rows=seen if len(rows.schema) else None)


def _pass_on(reply: Reply) -> None:
    """Write bytes as they come, so that a large result needs no memory here."""
    sys.stdout.flush()
    out = sys.stdout.buffer
    is_terminal = sys.stdout.isatty()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in reply.pieces:
        out.write(printable_lines(decoder.decode(piece)).encode() if is_terminal else piece)
    if reply.media_type == JSON:
        out.write(b"\n")
    out.flush()
