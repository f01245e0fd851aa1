"""`tilth catalog`: work on the catalog of a folder that no node has open.

Tests: tests/acceptance/test_lost_catalog.py.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from tilth.base.errors import TilthError
from tilth.base.installed import require_server
from tilth.client.output import console_of, show_error

if TYPE_CHECKING:
    from tilth.recovery import RebuildReport

#: The exit code where a catalog was made, and something of its tables is not known.
NOT_SURE = 3


class Uncommitted(StrEnum):
    """Choice of files that may never have been committed."""

    KEEP = "keep"
    LEAVE = "leave"


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
    try:
        require_server("tilth catalog")
        from tilth.recovery import restore_catalog

        header, records = restore_catalog(file, data)
    except TilthError as error:
        show_error(console_of(sys.stderr), error)
        raise typer.Exit(1) from error
    created = datetime.fromtimestamp(header.created_ms / 1000, UTC)
    text = f"{records} records of {created:%Y-%m-%d %H:%M:%S} UTC, written by tilth {header.version} on {header.server}"
    console_of().print(Text(f"{text}\nnow start the node, and SYSTEM VERIFY its tables"))


@catalog.command()
def copy(
    source: Annotated[str, typer.Argument(help="Where the catalog is: a node's folder, or postgresql://...")],
    target: Annotated[str, typer.Argument(help="Where it is to be, and is none yet: likewise.")],
    keep_source: Annotated[
        bool, typer.Option("--keep-source", help="Leave the source usable, for a copy that is only read.")
    ] = False,
) -> None:
    """Move a catalog between a node's folder and a database, and compare both; the files of tables stay where they
    are. No server may use it. A server refuses the old location from then on.
    """
    try:
        require_server("tilth catalog")
        from tilth.recovery import copy_catalog

        report = copy_catalog(source, target, keeps_source=keep_source)
    except TilthError as error:
        show_error(console_of(sys.stderr), error)
        raise typer.Exit(1) from error
    text = f"{report.records} records, {report.bytes} bytes, the same in both catalogs"
    console_of().print(Text(f"{text}\nnow start the server with its catalog there"))


@catalog.command()
def rebuild(
    root: Annotated[
        list[str],
        typer.Option(help="Where tables' files are: a folder, or an address with options; several times for several."),
    ],
    data: Annotated[Path, typer.Option(help="The node's folder; it has no catalog yet.", envvar="TILTH_DATA")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be made, and keep nothing.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Compare the sizes of files, not their bytes.")] = False,
    files_only: Annotated[bool, typer.Option("--files-only", help="Pass over a journal, as one that is old.")] = False,
    uncommitted: Annotated[
        Uncommitted, typer.Option(help="Of files alone: those of which it is not known whether they were committed.")
    ] = Uncommitted.LEAVE,
    json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Make a catalog that was lost from the journal and the files below the roots, or from the files alone where there
    is no journal; report what is not known. The exit code is 3 where something is not known, with a catalog made.
    """
    try:
        require_server("tilth catalog")
        from tilth.recovery import RebuildOptions, rebuild_catalog

        options = RebuildOptions(
            is_dry_run=dry_run,
            is_quick=quick,
            is_files_only=files_only,
            keeps_uncommitted=uncommitted is Uncommitted.KEEP,
        )
        report = rebuild_catalog(root, data, options)
    except TilthError as error:
        show_error(console_of(sys.stderr), error)
        raise typer.Exit(1) from error
    if json:
        sys.stdout.write(f"{msgspec.json.encode(report).decode()}\n")
    else:
        _show(report)
    if not report.is_sure:
        raise typer.Exit(NOT_SURE)


def _show(report: RebuildReport) -> None:
    console = console_of()
    for table in report.tables:
        console.print(Text(f"rebuilt      {table.name}: {table.rows} rows in {table.parts} parts"))
    for each in report.findings:
        where = " ".join(filter(None, (each.table, each.file)))
        rows = "" if each.rows is None else f" ({each.rows} rows)"
        console.print(Text(f"{each.kind:<12} {where}{': ' if where else ''}{each.text}{rows}"), soft_wrap=True)
    known = "the notes in the files alone, without a journal"
    if report.known_until_ms:
        until = datetime.fromtimestamp(report.known_until_ms / 1000, UTC)
        known = f"all that was committed until {until:%Y-%m-%d %H:%M:%S} UTC"
    made = (
        "would be made: nothing was kept" if report.is_dry_run else "made: start the node, and SYSTEM VERIFY its tables"
    )
    console.print(Text(f"{report.records} records, {known}; the catalog is {made}"), soft_wrap=True)
