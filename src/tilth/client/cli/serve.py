"""`tilth serve`: runs a node until it is stopped. Beside catalog.py the only module that knows the node."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tilth.base import logs
from tilth.base.errors import InvalidInputError, TilthError, UnavailableError
from tilth.base.importing import importing
from tilth.base.installed import require_server
from tilth.base.settings import LogSettings, SettingGroup, read_settings, setting_of
from tilth.base.sources import CONFIG_VARIABLE, GivenSettings, gather
from tilth.client.options import LOG_FORMAT, LogFormatOption, SettingsOption
from tilth.client.output import console_of, show_error
from tilth.client.settings import SERVE_SETTINGS, ServeSettings

if TYPE_CHECKING:
    from tilth.node import Node

#: Maximum time of a stop, whatever runs; after a crash, the next start cleans up everything.
STOP_SECONDS_MAX = 25.0
PORT_MAX = 65_535
#: Python does not read numbers of any length.
_PORT_DIGITS_MAX = 20


def _option(field: str) -> Any:  # Any: typer's type of an option
    return typer.Option(help=setting_of(ServeSettings, field).doc)


def serve(
    data: Annotated[str | None, _option("data")] = None,
    listen: Annotated[str | None, _option("listen")] = None,
    settings: SettingsOption = None,
    config: Annotated[
        Path | None,
        typer.Option(help="A file in TOML with node settings and these options.", envvar=CONFIG_VARIABLE),
    ] = None,
    log_level: Annotated[str | None, _option("log_level")] = None,
    log_file: Annotated[str | None, _option("log_file")] = None,
    log_format: LogFormatOption = None,
) -> None:
    """Run a node: catalog, Spark, background services and the HTTP server in one process.

    Options and node settings can also stand in the environment (TILTH_LISTEN) and in a config file.
    """
    is_over = set_by_signals()
    console = console_of(sys.stderr)
    options = {"data": data, "listen": listen, "log-level": log_level, "log-file": log_file}
    try:
        require_server("tilth serve")
        with importing():
            from tilth.begin import NODE_SETTINGS, bind

        flags = NODE_SETTINGS.canonical(named(settings or []))
        flags |= {name: text for name, text in options.items() if text is not None}
        flags |= {} if log_format is None else {LOG_FORMAT.name: log_format}
        every = SettingGroup((*SERVE_SETTINGS.all, *NODE_SETTINGS.all))
        given = gather(every, flags=flags, environment=os.environ, file=config)
        options_read = read_settings(ServeSettings, given.texts)
        set_up_log(options_read, read_settings(LogSettings, given.texts))
        folder = _folder(options_read)
        host, port = address(options_read.listen)
        # Before Spark is started for nothing.
        door = bind(host, port)
        with door, _node(folder, given.among(NODE_SETTINGS)) as node:
            server = node.listen(host, port, door)
            console.print(Text(f"tilth serves {folder} at {server.url} (Ctrl-C stops it)"))
            is_over.wait()
            console.print(Text("stopping: running rounds and merges end or are cleaned up at the next start"))
            bound_the_stop(node.kill_spark)
    except TilthError as error:
        show_error(console, error)
        raise typer.Exit(1) from error


def _node(folder: Path, given: GivenSettings) -> Node:
    """Start the node; its JVM starts while this process imports the rest."""
    from tilth.begin import begin_spark

    session = begin_spark(folder, given.texts)
    with importing():
        from tilth.node import open_node

    return open_node(folder, given, session)


def set_by_signals() -> threading.Event:
    """Return an event that Ctrl-C and SIGTERM set."""
    is_over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_over.set())
    return is_over


def bound_the_stop(kill_spark: Callable[[], None]) -> None:
    """End this process soon, also when something in it hangs."""

    def leave() -> None:
        kill_spark()
        print("the stop lasts too long: the process ends now", file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(STOP_SECONDS_MAX, leave)
    timer.daemon = True
    timer.start()


def set_up_log(options: ServeSettings, bounds: LogSettings) -> None:
    """Send the log to the destination of the options. Raises UnavailableError."""
    path = options.log_file or None
    try:
        logs.set_up(level=options.log_level, path=path, settings=bounds)
    except OSError as error:
        hint = "choose a file that can be written with --log-file"
        raise UnavailableError("the log cannot be written", file=path, reason=error.strerror, hint=hint) from error


def _folder(options: ServeSettings) -> Path:
    if not options.data:
        ways = "write --data FOLDER, set TILTH_DATA, or put data = 'FOLDER' at the top of the config file"
        raise typer.BadParameter(f"no folder for the node's data is given: {ways}", param_hint="--data")
    return Path(options.data)


def address(listen: str) -> tuple[str, int]:
    """Return host and port. Raises InvalidInputError."""
    host, colon, port = listen.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()):
        raise InvalidInputError("not an address to listen on", listen=listen, hint="write it as 127.0.0.1:7411")
    if len(port) > _PORT_DIGITS_MAX or int(port) > PORT_MAX:
        hint = f"a port is a number from 0 to {PORT_MAX}; 0 selects a free one"
        raise InvalidInputError("the port is out of range", listen=listen, port=port[:20], hint=hint)
    return host.strip("[]"), int(port)


def named(items: list[str]) -> dict[str, str]:
    """Return the settings of flags by name. Raises InvalidInputError."""
    given = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise InvalidInputError("not a setting", given=item, hint="write --set name=value")
        given[name.strip()] = value.strip()
    return given
