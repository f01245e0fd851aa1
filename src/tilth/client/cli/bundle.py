"""`tilth bundle`: an archive for a bug report, shown before it is written.

Covers: arguments, what is collected, the list, the question, exit codes. Does not cover: secrets (tilth.doctor),
content (client/bundle.py).
Exit codes: 0 it was written, 1 it was not, 2 the command line was wrong.
"""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from tilth.base.errors import TilthError, UnavailableError
from tilth.base.installed import require_server
from tilth.base.units import show_bytes
from tilth.client.bundle import README, ROWS_MAX, BundleEntry, cleaned, server_entries, write_archive
from tilth.client.cli.doctor import DoctorReport, diagnose_machine, diagnose_server, node_flags, own_version, worst
from tilth.client.options import ConfigOption, SettingsOption, UrlOption
from tilth.client.output import console_of, show_error
from tilth.client.printable import printable
from tilth.client.settings import DEFAULT_URL, SERVE_SETTINGS

#: Time for one answer of the server, in seconds.
ANSWER_SECONDS_MAX = 10.0
#: Time of the doctor's checks, in seconds.
CHECKS_SECONDS_MAX = 20.0


def bundle(
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The archive to write. Default: named after the time, here.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    data: Annotated[str | None, typer.Option(help="The node's folder; needed while the server is down.")] = None,
    settings: SettingsOption = None,
    config: ConfigOption = None,
    log_file: Annotated[str | None, typer.Option(help="The node's log, as given to `tilth serve`.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the texts, not only their names and sizes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write it without a question.")] = False,
) -> None:
    """Collect what a bug report needs: versions, settings, the doctor's findings, system tables, ends of logs; without
    secrets and without rows of tables. It is listed before it is written, and written when you say so.
    """
    console, errors = console_of(), console_of(sys.stderr)
    if not yes and not sys.stdin.isatty():
        raise typer.BadParameter("a question needs a terminal: give --yes, after --show perhaps", param_hint="--yes")
    flags = node_flags(settings, {"data": data, "log-file": log_file})
    try:
        require_server("tilth bundle")
    except UnavailableError as error:
        show_error(errors, error)
        raise typer.Exit(1) from error
    entries = _collect(url, flags, config)
    _list(console, entries, is_whole=show)
    now = datetime.now(UTC)
    path = output or Path(f"tilth-bundle-{now:%Y%m%d-%H%M%S}.tar.gz")
    if not yes and not typer.confirm(f"write it to {path}?"):
        console.print(Text("nothing was written"))
        raise typer.Exit(1)
    try:
        write_archive(str(path), entries, at=int(now.timestamp()))
    except OSError as error:
        errors.print(Text(f"the bundle cannot be written: {path}: {error.strerror}"))
        raise typer.Exit(1) from error
    console.print(Text(f"written: {path}, {show_bytes(path.stat().st_size)}"))


def _collect(url: str, flags: dict[str, str], config: Path | None) -> list[BundleEntry]:
    from tilth.client.http import connect
    from tilth.doctor import folder_sizes, read_setup, shown_and_secrets, tails, without_any_secret

    given = read_setup(SERVE_SETTINGS.all, flags=flags, environment=os.environ, file=config)
    shown, secrets = shown_and_secrets(given.texts, os.environ)
    entries = [BundleEntry("README.txt", README.format(rows=ROWS_MAX)), BundleEntry("versions.json", _versions())]
    entries.append(BundleEntry("settings.json", _json(shown)))
    folder = given.texts.get("data")
    findings = []
    try:
        with connect(url, timeout_seconds=ANSWER_SECONDS_MAX) as connection:
            of_server = list(server_entries(connection))
    except TilthError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from error
    is_running = any(each.name == "server/health.json" for each in of_server)
    if folder is not None or not is_running:
        findings += diagnose_machine(
            flags, os.environ, config, brokers="", is_running=is_running, seconds_max=CHECKS_SECONDS_MAX
        )
    if is_running:
        findings += diagnose_server(url, seconds_max=CHECKS_SECONDS_MAX)
    report = DoctorReport(status=worst(findings), version=own_version(), findings=findings)
    entries.append(BundleEntry("doctor.json", _json(report)))
    entries += of_server
    if folder is not None:
        entries.append(BundleEntry("node/files.txt", folder_sizes(Path(folder))))
        found = tails(Path(folder), given.texts.get("log-file", ""))
        entries += [BundleEntry(f"node/log/{name}", text) for name, text in found]
    return cleaned(entries, lambda text: without_any_secret(text, secrets))


def _versions() -> str:
    from importlib.metadata import distributions

    libraries = {each.name: each.version for each in distributions() if each.name}
    facts = {
        "tilth": own_version(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "libraries": dict(sorted(libraries.items())),
    }
    return _json(facts)


def _json(value: object) -> str:
    # In ASCII: a path may have bytes that are no text in UTF-8.
    return f"{dumps(msgspec.to_builtins(value), indent=2)}\n"


def _list(console: Console, entries: list[BundleEntry], *, is_whole: bool) -> None:
    for each in entries:
        if is_whole:
            console.print(Text(f"--- {each.name}", style="bold"))
            for line in each.text.splitlines():
                console.print(Text(printable(line)), soft_wrap=True)
    for each in entries:
        console.print(Text(f"{show_bytes(each.size):>12}  {printable(each.name)}"))
    total = show_bytes(sum(each.size for each in entries))
    console.print(Text(f"{len(entries)} files, {total}; no rows of tables, no secrets"))
