"""`tilth status`: the state of a server, its components and its services. Exit code 0 if all work, else 1.

Tests: tests/acceptance/test_http_server.py.
"""

from __future__ import annotations

import sys

import typer
from rich.text import Text

from tilth.base.errors import TilthError
from tilth.client.options import UrlOption
from tilth.client.output import console_of, show_error
from tilth.client.printable import printable
from tilth.client.settings import DEFAULT_URL

ANSWER_SECONDS_MAX = 10.0


def status(url: UrlOption = DEFAULT_URL) -> None:
    """Show a server, its components and its background services; the exit code is 1 if something is wrong."""
    from tilth.client.http import connect

    console = console_of()
    try:
        with connect(url, timeout_seconds=ANSWER_SECONDS_MAX) as connection:
            health = connection.health()
            shown_url = connection.url
    except TilthError as error:
        show_error(console_of(sys.stderr), error)
        raise typer.Exit(1) from error
    failed = bool(health.failed_services)
    status = f"{health.status}, background services fail" if failed else health.status
    lines = [
        f"{shown_url}: {status} (tilth {health.version}, server {health.server})",
        *(f"  {component}: {state}" for component, state in health.components.items()),
        *(f"  note: {component}: {note}" for component, note in health.notes.items()),
        *(f"  failed: {service}: {reason}" for service, reason in health.failed_services.items()),
    ]
    for line in lines:
        console.print(Text(printable(line)))
    raise typer.Exit(0 if health.status == "ok" and not failed else 1)
