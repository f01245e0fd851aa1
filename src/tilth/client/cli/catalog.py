"""`tilth catalog`: work on the catalog of a folder that no node has open."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

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
