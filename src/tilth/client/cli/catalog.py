"""`tilth catalog`: work on the catalog of a folder that no node has open."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from tilth.base.errors import TilthError
from tilth.client.output import console_of, show_error

catalog = typer.Typer(help="Work on the catalog of a folder that no node has open.", no_args_is_help=True)


@catalog.callback()
def _group() -> None:
    pass


@catalog.command()
def restore(
    file: Annotated[str, typer.Argument(help="What BACKUP CATALOG has written: a path, or an address with options.")],
    data: Annotated[Path, typer.Option(help="The node's folder; it has no catalog yet.", envvar="TILTH_DATA")],
) -> None:
    """Make the catalog of a node's folder from a backup; the files of the tables are copied beside it."""
    from tilth.recovery import restore_catalog

    try:
        header, records = restore_catalog(file, data)
    except TilthError as error:
        show_error(console_of(sys.stderr), error)
        raise typer.Exit(1) from error
    created = datetime.fromtimestamp(header.created_ms / 1000, UTC)
    text = f"{records} records of {created:%Y-%m-%d %H:%M:%S} UTC, written by tilth {header.version} on {header.server}"
    console_of().print(Text(f"{text}\nnow start the node, and SYSTEM VERIFY its tables"))


@catalog.command()
def rebuild(
    root: Annotated[
        list[str],
        typer.Option(help="Where tables' files are: a folder, or an address with options; several times for several."),
    ],
    data: Annotated[Path, typer.Option(help="The node's folder; it has no catalog yet.", envvar="TILTH_DATA")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be made, and keep nothing.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Compare the sizes of files, not their bytes.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Make a catalog that was lost from the journal and the files below the roots; report what is not known."""
    from tilth.recovery import rebuild_catalog

    try:
        report = rebuild_catalog(root, data, is_dry_run=dry_run, is_quick=quick)
    except TilthError as error:
        show_error(console_of(sys.stderr), error)
        raise typer.Exit(1) from error
    if json:
        sys.stdout.write(f"{msgspec.json.encode(report).decode()}\n")
        return
    console = console_of()
    known = datetime.fromtimestamp(report.known_until_ms / 1000, UTC)
    for table in report.tables:
        console.print(Text(f"rebuilt      {table.name}: {table.rows} rows in {table.parts} parts"))
    for each in report.findings:
        where = " ".join(filter(None, (each.table, each.file)))
        rows = "" if each.rows is None else f" ({each.rows} rows)"
        console.print(Text(f"{each.kind:<12} {where}{': ' if where else ''}{each.text}{rows}"), soft_wrap=True)
    made = (
        "would be made: nothing was kept" if report.is_dry_run else "made: start the node, and SYSTEM VERIFY its tables"
    )
    text = (
        f"{report.records} records, all that was committed until {known:%Y-%m-%d %H:%M:%S} UTC; the catalog is {made}"
    )
    console.print(Text(text), soft_wrap=True)
