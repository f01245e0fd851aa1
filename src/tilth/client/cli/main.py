"""The command line's entry: one typer application, a file for each command.

Tests: tests/unit/client/cli/test_shell.py.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tilth.client.cli.bundle import bundle
from tilth.client.cli.catalog import catalog
from tilth.client.cli.doctor import doctor, own_version
from tilth.client.cli.import_ddl import import_ddl
from tilth.client.cli.insert import insert
from tilth.client.cli.serve import serve
from tilth.client.cli.sql import sql
from tilth.client.cli.status import status
from tilth.client.cli.top import top
from tilth.client.cli.worker import worker

app = typer.Typer(
    name="tilth",
    help="Self-maintaining real-time tables for Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(is_wanted: bool) -> None:
    if not is_wanted:
        return
    typer.echo(f"tilth {own_version() or 'from its sources, not installed'}")
    raise typer.Exit


@app.callback()
def main(
    shows_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Self-maintaining real-time tables for Spark."""


app.command()(serve)
app.command()(worker)
app.command()(sql)
app.command()(insert)
app.command()(status)
app.command()(import_ddl)
app.command()(doctor)
app.command()(top)
app.command()(bundle)
app.add_typer(catalog, name="catalog")
