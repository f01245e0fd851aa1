"""`tilth doctor`: what is wrong with this machine's set-up, or with a server, and what to do about it.

Covers: arguments, output, exit codes. Does not cover: the checks (tilth.doctor).
Exit codes: 0 nothing needs a person, 1 something does, 2 the command line was wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from tilth.base.errors import InvalidInputError, TilthError, UnavailableError
from tilth.base.installed import require_server
from tilth.client.cli.serve import address, named
from tilth.client.options import ConfigOption, SettingsOption
from tilth.client.output import console_of
from tilth.client.printable import printable
from tilth.client.settings import DEFAULT_URL, SERVE_SETTINGS
from tilth.model.diagnosis import Diagnosis, Grade

if TYPE_CHECKING:
    from tilth.client.http import Connection

#: Time that all checks of one half have together.
SECONDS_MAX = 20.0
_STYLES = {Grade.OK: "green", Grade.WARNING: "bold yellow", Grade.ERROR: "bold red"}


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """All findings, as `--json` prints them."""

    #: `ok`, or the worst grade of a finding.
    status: Grade
    version: str
    findings: list[Diagnosis]


def doctor(
    url: Annotated[
        str | None,
        typer.Option(help=f"Check the server at this address, too; without --data it alone. As in {DEFAULT_URL}."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="The folder of the node that would be started.")] = None,
    listen: Annotated[str | None, typer.Option(help="Address and port on which it would listen.")] = None,
    settings: SettingsOption = None,
    config: ConfigOption = None,
    broker: Annotated[
        list[str] | None, typer.Option(help="A broker of Kafka to reach, host:port; may be given several times.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as one JSON object.")] = False,
    seconds: Annotated[float, typer.Option(help="Time that the checks have together.", min=1, max=600)] = SECONDS_MAX,
) -> None:
    """Check this machine and the set-up of a node before it starts, or with --url a server that runs; say what is
    wrong and what to do. Nothing is changed. The exit code is 1 where a finding needs a person.
    """
    flags = node_flags(settings, {"data": data, "listen": listen})
    findings: list[Diagnosis] = []
    is_local = url is None or data is not None
    if is_local:
        brokers = ",".join(broker or [])
        findings += diagnose_machine(
            flags, os.environ, config, brokers=brokers, is_running=url is not None, seconds_max=seconds
        )
    if url is not None:
        findings += diagnose_server(url, seconds_max=seconds)
    report = DoctorReport(status=worst(findings), version=own_version(), findings=findings)
    if json:
        # In ASCII: a path may have bytes that are no text in UTF-8.
        sys.stdout.write(f"{dumps(msgspec.to_builtins(report))}\n")
    else:
        show_report(console_of(), report)
    sys.stdout.flush()
    raise typer.Exit(0 if report.status is Grade.OK else 1)


def node_flags(settings: list[str] | None, options: Mapping[str, str | None]) -> dict[str, str]:
    """Return the settings of `--set` and the options that are given, by name. Raises BadParameter."""
    try:
        flags = named(settings or [])
    except InvalidInputError as error:
        raise typer.BadParameter(str(error), param_hint="--set") from error
    return flags | {name: text for name, text in options.items() if text is not None}


def diagnose_machine(
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    config: Path | None,
    *,
    brokers: str,
    is_running: bool,
    seconds_max: float,
) -> list[Diagnosis]:
    """Check the machine and the set-up of a node; `flags`: settings of the command line by name."""
    from tilth.base.clock import SystemClock

    try:
        require_server("tilth doctor without --url")
        from tilth.doctor import LocalSetup, local_checks, read_setup, run_checks

        given = read_setup(SERVE_SETTINGS.all, flags=flags, environment=environment, file=config)
        findings = list(given.findings)
        listen, wrong = _address(given.texts.get("listen", SERVE_SETTINGS.find("listen").default))
        findings += wrong
        folder = given.texts.get("data")
        setup = LocalSetup(
            folder=Path(folder) if folder else None,
            address=listen,
            texts=given.texts,
            environment=environment,
            brokers=brokers,
            is_running=is_running,
        )
        clock = SystemClock()
        checks = local_checks(clock, setup, seconds_max=seconds_max)
    except UnavailableError as error:
        return [
            Diagnosis(check="libraries", grade=Grade.ERROR, sentence=error.message, todo=error.hint, page=_LIBRARIES)
        ]
    except ImportError as error:
        sentence = f"a library that a server needs cannot be imported: {error}"
        todo = "install it anew: pip install --force-reinstall 'tilth[server]'"
        return [Diagnosis(check="libraries", grade=Grade.ERROR, sentence=sentence, todo=todo, page=_LIBRARIES)]
    return [*findings, *run_checks(clock, checks, seconds_max=seconds_max)]


_LIBRARIES = "docs/operate/doctor.md#python-libraries-and-spark"


def _address(listen: str) -> tuple[tuple[str, int] | None, list[Diagnosis]]:
    try:
        return address(listen), []
    except InvalidInputError as error:
        page = "docs/operate/doctor.md#port"
        return None, [Diagnosis(check="port", grade=Grade.ERROR, sentence=error.message, todo=error.hint, page=page)]


class _Calls:
    """A connection, as the checks of a server use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.health = connection.health
        self.ready = connection.ready

    @property
    def url(self) -> str:
        return self._connection.url

    # Any: a cell is whatever the column's type is in Python.
    def rows(self, statement: str, settings: Mapping[str, str]) -> list[tuple[Any, ...]]:
        return self._connection.sql(statement, settings).rows


def diagnose_server(url: str, *, seconds_max: float) -> list[Diagnosis]:
    """Check the server at the address."""
    from tilth.base.clock import SystemClock
    from tilth.client.http import connect
    from tilth.doctor import CALL_SHARE, check_server

    try:
        connection = connect(url, timeout_seconds=seconds_max * CALL_SHARE)
    except TilthError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from error
    with connection:
        return check_server(SystemClock(), _Calls(connection), own_version(), seconds_max=seconds_max)


def own_version() -> str:
    """Return the version of this program; empty: it runs from its sources."""
    try:
        return version("tilth")
    except PackageNotFoundError:
        return ""


def worst(findings: Sequence[Diagnosis]) -> Grade:
    """Return the worst grade."""
    grades = {each.grade for each in findings}
    return next((grade for grade in (Grade.ERROR, Grade.WARNING) if grade in grades), Grade.OK)


def show_report(console: Console, report: DoctorReport) -> None:
    """Print each finding, what needs a person last, and a summary."""
    width = max((len(each.check) for each in report.findings), default=0)
    indent = " " * (width + 10)
    # The last lines are those that one sees.
    for each in sorted(report.findings, key=lambda one: list(Grade).index(one.grade)):
        mark = (f"{each.grade:<7}", _STYLES[each.grade])
        console.print(Text.assemble(mark, f"  {each.check:<{width}}  {printable(each.sentence)}"), soft_wrap=True)
        if each.since:
            console.print(Text(f"{indent}since: {printable(each.since)}"), soft_wrap=True)
        if each.todo:
            console.print(Text.assemble(indent, ("what to do: ", "bold"), printable(each.todo)), soft_wrap=True)
        if each.page:
            console.print(Text(f"{indent}page: {printable(each.page)}", style="dim"), soft_wrap=True)
    count = {grade: sum(each.grade is grade for each in report.findings) for grade in Grade}
    if report.status is Grade.OK:
        console.print(Text(f"nothing needs a person: {_counted(count[Grade.OK], 'finding')} without fault"))
        return
    counted = (_counted(count[Grade.ERROR], "error"), _counted(count[Grade.WARNING], "warning"))
    console.print(Text(f"{', '.join(counted)}; {_counted(count[Grade.OK], 'finding')} without fault"))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
