"""Runs a statement for the command line and prints what it gives."""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from enum import StrEnum

from rich.console import Console

from tilth.client.http import ARROW, Connection, Reply, Result, table_of
from tilth.client.output import console_of, show, show_notices

JSON = "application/json"


class OutputFormat(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    NDJSON = "ndjson"


_ACCEPT = {
    OutputFormat.TABLE: ARROW,
    OutputFormat.CSV: "text/csv",
    OutputFormat.JSON: JSON,
    OutputFormat.NDJSON: "application/x-ndjson",
}
_USE = re.compile(r"\s*USE\s+(?:`((?:[^`]|``)+)`|(\w+))\s*;?\s*", re.IGNORECASE)


def run(
    connection: Connection,
    console: Console,
    statement: str,
    output: OutputFormat,
    progress: AbstractContextManager[object] | None = None,
) -> None:
    """Runs one statement; rows go to standard output. Raises TilthErrors.

    A FORMAT in the statement wins over `output`. After a USE that the server took, the connection has that database.
    """
    result: Result | None = None
    with ExitStack() as stack:
        with progress or nullcontext():
            reply = stack.enter_context(connection.ask(statement, accept=_ACCEPT[output]))
            if reply.media_type == ARROW and output is OutputFormat.TABLE:
                result = Result(table_of(b"".join(reply.pieces)), reply.summary)
        if result is None:
            _pass_on(reply)
            show_notices(console_of(sys.stderr), reply.summary)
    if result is not None:
        show(console, result.arrow(), result.summary)
    used = _USE.fullmatch(statement)
    if used is not None:
        connection.database = used[2] or used[1].replace("``", "`")


def _pass_on(reply: Reply) -> None:
    """Bytes as they come, so that a large result needs no memory here."""
    out = sys.stdout.buffer
    for piece in reply.pieces:
        out.write(piece)
    if reply.media_type == JSON:
        out.write(b"\n")
    out.flush()
