"""The command line's entry: one typer application, a file for each command."""

from __future__ import annotations

import typer

from tilth.client.cli.serve import serve
from tilth.client.cli.sql import sql
from tilth.client.cli.status import status

app = typer.Typer(
    name="tilth",
    help="Self-maintaining real-time tables for Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(sql)
app.command()(status)
