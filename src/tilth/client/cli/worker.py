"""`tilth worker`: runs a worker of a server until it is stopped. Knows the worker's composition root.

Tests: tests/integration/warehouse/test_worker_processes.py.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tilth.base.errors import TilthError
from tilth.base.importing import importing
from tilth.base.installed import require_server
from tilth.base.settings import LogSettings, SettingGroup, read_settings
from tilth.base.sources import gather
from tilth.client.cli.serve import address, bound_the_stop, named, set_by_signals, set_up_log
from tilth.client.options import LOG_FORMAT, ConfigOption, LogFormatOption, SettingsOption
from tilth.client.output import console_of, show_error
from tilth.client.settings import SERVE_SETTINGS, ServeSettings


def worker(
    server: Annotated[
        str,
        typer.Option(
            help="Address of the server, as in http://host:7411; of several of one catalog with commas between: the "
            "worker is at the first that answers, and goes on with the next one when that one is gone."
        ),
    ],
    warehouse: Annotated[str, typer.Option(help="The warehouse whose tasks it runs.")],
    all_servers: Annotated[bool, typer.Option(help="Serve all servers that --server names at once.")] = False,
    master: Annotated[
        str | None, typer.Option(help="Where Spark computes: local[N], spark://.., yarn, k8s://..")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Its name; no two have the same. Default: machine and process.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="For Spark's temporary files and logs. Default: below the system's.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the service token. Default: server.token-file, TILTH_SERVICE_TOKEN."),
    ] = None,
    listen: Annotated[
        str, typer.Option(help="Address and port on which the server calls it; port 0 selects a free one.")
    ] = "127.0.0.1:0",
    settings: SettingsOption = None,
    config: ConfigOption = None,
    log_format: LogFormatOption = None,
) -> None:
    """Run a worker: a Spark of its own that runs the tasks of a server in another process."""
    is_over, console = set_by_signals(), console_of(sys.stderr)
    shown = name or f"{socket.gethostname()}-{os.getpid()}"
    try:
        require_server("tilth worker")
        with importing():
            from tilth.begin import NODE_SETTINGS

        flags = NODE_SETTINGS.canonical(named(settings or []))
        options = {"warehouse.master": master, LOG_FORMAT.name: log_format}
        flags |= {option: text for option, text in options.items() if text is not None}
        given = gather(
            SettingGroup((*SERVE_SETTINGS.all, *NODE_SETTINGS.all)), flags=flags, environment=os.environ, file=config
        )
        set_up_log(read_settings(ServeSettings, given.texts), read_settings(LogSettings, given.texts))
        with importing():
            from tilth.worker_node import WorkerNode, WorkerOptions, worker_token

        host, port = address(listen)
        worker_options = WorkerOptions(
            server=server,
            serves_all=all_servers,
            warehouse=warehouse,
            name=shown,
            folder=folder or Path(tempfile.gettempdir()) / f"tilth-worker-{os.getuid()}" / shown,
            token=worker_token(token_file, given.texts),
            listen_host=host,
            listen_port=port,
        )
        process = WorkerNode(worker_options, given.among(NODE_SETTINGS).texts, over=is_over)
        process.start()
        console.print(Text(f"worker {shown} runs tasks of {warehouse} for {process.server} (Ctrl-C stops it)"))
        is_over.wait()
        bound_the_stop(process.kill_spark)
        process.stop("it was stopped by a signal")
        if process.refusal is not None:
            raise process.refusal
    except TilthError as error:
        show_error(console, error)
        raise typer.Exit(1) from error
