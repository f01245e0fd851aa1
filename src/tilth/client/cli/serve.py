"""`tilth serve`: runs a node until it is asked to stop. The only place of the client that knows the node."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tilth.base import logs
from tilth.base.errors import InvalidInputError, TilthError, UnavailableError
from tilth.base.settings import LogSettings, log_settings
from tilth.client.output import console_of, show_error

if TYPE_CHECKING:
    from tilth.node import Node

DEFAULT_LISTEN = "127.0.0.1:7411"
#: How long a stop may take, whatever runs; a crash leaves nothing that the next start does not clean up.
STOP_SECONDS_MAX = 25.0
LOG_LEVELS = ("debug", "info", "warning", "error")
PORT_MAX = 65_535
#: Python does not read numbers of any length.
_PORT_DIGITS_MAX = 20


def serve(
    data: Annotated[Path, typer.Option(help="The node's folder; made if it is not there.")],
    listen: Annotated[
        str, typer.Option(help="Address and port of the HTTP door; port 0 takes a free one.")
    ] = DEFAULT_LISTEN,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A node setting, name=value; may be given several times.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.", envvar="TILTH_LOG_LEVEL")] = "info",
    log_file: Annotated[str | None, typer.Option(help="Where the log goes; standard error when not given.")] = None,
) -> None:
    """Run a node: catalog, Spark, background services and the HTTP door in one process."""
    from tilth.node import bind, open_node

    is_over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_over.set())
    console = console_of(sys.stderr)
    try:
        given = _given(settings or [])
        _set_up_log(log_level, log_file, log_settings(given))
        host, port = _address(listen)
        # Before Spark is started for nothing.
        door = bind(host, port)
        with door, open_node(data, given) as node:
            server = node.listen(host, port, door)
            console.print(Text(f"tilth serves {data} at {server.url} (Ctrl-C stops it)"))
            is_over.wait()
            console.print(Text("stopping: running rounds and merges end or are cleaned up at the next start"))
            _bound_the_stop(node)
    except TilthError as error:
        show_error(console, error)
        raise typer.Exit(1) from error


def _bound_the_stop(node: Node) -> None:
    """End this process soon, also when something in it hangs."""

    def leave() -> None:
        node.kill_spark()
        print("the stop takes too long: the process ends now", file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(STOP_SECONDS_MAX, leave)
    timer.daemon = True
    timer.start()


def _set_up_log(level: str, path: str | None, bounds: LogSettings) -> None:
    if level.lower() not in LOG_LEVELS:
        raise InvalidInputError("not a log level", level=level, hint=f"use one of {', '.join(LOG_LEVELS)}")
    try:
        logs.set_up(level=level, path=path, settings=bounds)
    except OSError as error:
        hint = "choose a file that can be written with --log-file"
        raise UnavailableError("the log cannot be written", file=path, reason=error.strerror, hint=hint) from error


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()):
        raise InvalidInputError("not an address to listen on", listen=listen, hint="write it as 127.0.0.1:7411")
    if len(port) > _PORT_DIGITS_MAX or int(port) > PORT_MAX:
        hint = f"a port is a number from 0 to {PORT_MAX}; 0 takes a free one"
        raise InvalidInputError("the port is out of range", listen=listen, port=port[:20], hint=hint)
    return host.strip("[]"), int(port)


def _given(items: list[str]) -> dict[str, str]:
    given = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise InvalidInputError("not a setting", given=item, hint="write --set name=value")
        given[name.strip()] = value.strip()
    return given
