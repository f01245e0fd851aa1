"""`tilth status`: is the server well, component by component. Exit code 0 if it is, 1 if not."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from tilth.base.errors import TilthError
from tilth.client.http import DEFAULT_URL, connect
from tilth.client.output import show_error


def status(url: Annotated[str, typer.Option(help="The server's address.", envvar="TILTH_URL")] = DEFAULT_URL) -> None:
    """Tell how a server and its components are."""
    console = Console()
    try:
        with connect(url, timeout_seconds=10) as connection:
            health = connection.health()
    except TilthError as error:
        show_error(Console(stderr=True), error)
        raise typer.Exit(1) from error
    console.print(f"{url}: {health.status} (tilth {health.version}, server {health.server})")
    for component, state in health.components.items():
        console.print(f"  {component}: {state}")
    raise typer.Exit(0 if health.status == "ok" else 1)
