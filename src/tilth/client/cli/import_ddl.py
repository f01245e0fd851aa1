"""`tilth import-ddl FILE`: definitions of ByConity, ClickHouse, Kudu, Delta or Iceberg become tables of Tilth.

Covers: what is printed, sending the statements. Does not cover: the translation (tilth.migration). Exit codes: 0 all is
the same; 1 the file cannot be read, or a statement failed; 2 the command line was wrong; 3 something is refused, left
out or means something else.
Always holds: without `--apply` nothing is sent. With it the statements are sent one by one, none behind one that
failed, and the answer says which ran; none at all is sent where one is refused, unless `--without-refused`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from tilth.base.errors import InvalidInputError, TilthError, UnknownOutcomeError
from tilth.base.installed import require_server
from tilth.client.options import DatabaseOption, UrlOption
from tilth.client.output import console_of, show_error
from tilth.client.printable import printable_lines
from tilth.client.settings import DEFAULT_URL
from tilth.client.shell.relations import used_database

if TYPE_CHECKING:
    from tilth.client.http import Connection
    from tilth.migration import DdlReport, Translated

#: The exit code where the tables are not the same as elsewhere.
NOT_SAME = 3
#: Longest file that is read.
_BYTES_MAX = 64 << 20
#: Lines of a statement that a person sees; the script and JSON have all of them.
_LINES_SHOWN_MAX = 40
_CHARACTERS_SHOWN_MAX = 200


class DdlOrigin(StrEnum):
    """The system that a script was written for."""

    AUTO = "auto"
    BYCONITY = "byconity"
    CLICKHOUSE = "clickhouse"
    KUDU = "kudu"
    DELTA = "delta"
    ICEBERG = "iceberg"


class Fate(StrEnum):
    """Outcome of sending one statement."""

    RAN = "ran"
    FAILED = "failed"
    #: The connection broke before its answer.
    UNKNOWN = "unknown"
    NOT_SENT = "not sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One statement that was sent, or would have been."""

    line: int
    what: str
    fate: Fate
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Json:
    """Answer of `--json`."""

    is_same: bool
    statements: tuple[Translated, ...]
    #: None: nothing was to be sent.
    sent: tuple[Sent, ...] | None = None


def import_ddl(  # noqa: PLR0913  # parameters of a command are its options
    file: Annotated[Path, typer.Argument(help="A file of statements, in UTF-8; - is standard input.")],
    origin: Annotated[
        DdlOrigin, typer.Option("--from", help="The system that they are written for; auto: each statement shows it.")
    ] = DdlOrigin.AUTO,
    apply: Annotated[
        bool, typer.Option("--apply/--dry-run", help="Send the statements to the server, or report and send nothing.")
    ] = False,
    without_refused: Annotated[
        bool, typer.Option("--without-refused", help="Apply the others where some statements are refused.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the statements to this new file, for tilth sql -f.", dir_okay=False),
    ] = None,
    url: UrlOption = DEFAULT_URL,
    database: DatabaseOption = "default",
    json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Translate DDL of ByConity, ClickHouse, Kudu, Delta or Iceberg: report line by line what is not the same, and with
    --apply create the tables. The exit code is 3 where something is refused, left out or means something else.
    """
    errors = console_of(sys.stderr)
    try:
        text = _text(file)
        report = _translated(text, origin)
        if output is not None:
            _write(output, _script(report))
    except TilthError as error:
        show_error(errors, error)
        raise typer.Exit(1) from error
    if not json:
        _show(console_of(), report)
    sent = _applied(report, url, database, without_refused) if apply else None
    if json:
        answer = _Json(is_same=report.is_same, statements=report.statements, sent=sent)
        sys.stdout.write(f"{msgspec.json.encode(answer).decode()}\n")
    elif sent is not None:
        _show_sent(console_of(), sent)
    if any(each.fate in (Fate.FAILED, Fate.UNKNOWN) for each in sent or ()):
        raise typer.Exit(1)
    raise typer.Exit(0 if report.is_same else NOT_SAME)


def _text(file: Path) -> str:
    try:
        content = sys.stdin.buffer.read(_BYTES_MAX + 1) if str(file) == "-" else _bytes(file)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInputError.coded(
            "DDL_UNREADABLE", "the file of definitions cannot be read", file=file, reason=reason
        ) from error
    if len(content) > _BYTES_MAX:
        hint = "cut it into several files"
        raise InvalidInputError.coded(
            "DDL_TOO_LARGE", "the file of definitions is too large", file=file, bytes_max=_BYTES_MAX, hint=hint
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        hint = "convert it, as by iconv -t UTF-8"
        raise InvalidInputError.coded(
            "DDL_NOT_UTF8", "the file of definitions is not UTF-8 text", file=file, position=error.start, hint=hint
        ) from error


def _bytes(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(_BYTES_MAX + 1)


def _translated(text: str, origin: DdlOrigin) -> DdlReport:
    require_server("tilth import-ddl")
    # The rooms of statements take a second to load, which no other command needs.
    from tilth.migration import ForeignSystem, translate_script

    return translate_script(text, None if origin is DdlOrigin.AUTO else ForeignSystem(origin.value))


# Sending


def _applied(report: DdlReport, url: str, database: str, without_refused: bool) -> tuple[Sent, ...]:
    """Send the statements one after the other, up to the first that fails; none where one is refused."""
    from tilth.client.http import connect

    wanted = [each for each in report.statements if each.statement is not None]
    if report.has_refused and not without_refused:
        why = "a statement of the script is refused; --without-refused applies the others"
        return tuple(Sent(line=each.line, what=each.what, fate=Fate.NOT_SENT, error=why) for each in wanted)
    sent: list[Sent] = []
    with connect(url, database=database) as connection:
        for each in wanted:
            if sent and sent[-1].fate is not Fate.RAN:
                sent.append(Sent(line=each.line, what=each.what, fate=Fate.NOT_SENT))
                continue
            sent.append(_run(connection, each))
    return tuple(sent)


def _run(connection: Connection, translated: Translated) -> Sent:
    assert translated.statement is not None
    sent = Sent(line=translated.line, what=translated.what, fate=Fate.RAN)
    try:
        connection.sql(translated.statement, dict(translated.settings))
    except UnknownOutcomeError as error:
        return replace(sent, fate=Fate.UNKNOWN, error=_sentence(error))
    except TilthError as error:
        return replace(sent, fate=Fate.FAILED, error=_sentence(error))
    connection.database = used_database(translated.statement) or connection.database
    return sent


def _sentence(error: TilthError) -> str:
    return f"{error.code} {error.message}{f'; what to do: {error.hint}' if error.hint else ''}"


# Printing


def _script(report: DdlReport) -> str:
    """All statements as a script, each under the settings that it needs."""
    lines: list[str] = []
    now: dict[str, str] = {}
    for each in report.statements:
        if each.statement is None:
            continue
        wanted = dict(each.settings)
        lines += [f"SET {name} = '{wanted.get(name, _DEFAULTS[name])}';" for name in _changed(now, wanted)]
        now = wanted
        lines.append(f"{each.statement.rstrip()}\n;")
    return "\n".join(lines) + "\n"


#: Values of the settings of a statement where it has none.
_DEFAULTS = {"data_type_default_nullable": "1", "dialect": "spark"}


def _changed(now: dict[str, str], wanted: dict[str, str]) -> list[str]:
    return [name for name in _DEFAULTS if now.get(name, _DEFAULTS[name]) != wanted.get(name, _DEFAULTS[name])]


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8", newline="") as opened:
            opened.write(text)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "name a file that is not there yet"
        raise InvalidInputError.coded(
            "DDL_NOT_WRITTEN", "the statements cannot be written", file=file, reason=reason, hint=hint
        ) from error


def _show(console: Console, report: DdlReport) -> None:
    for each in report.statements:
        heading = f"line {each.line}  {printable_lines(each.what)}  ({each.source.value})  {each.verdict.value}"
        console.print(Text(heading, style="bold"), soft_wrap=True)
        for finding in each.findings:
            texts = [f"{finding.kind.value}: {finding.what}", finding.why]
            sentence = " - ".join(printable_lines(text) for text in texts if text)
            console.print(Text(f"  line {finding.line}  {sentence}"), soft_wrap=True)
            if finding.instead:
                console.print(Text(f"    what to do: {printable_lines(finding.instead)}"), soft_wrap=True)
        if each.statement and each.verdict.value == "changed":
            _show_statement(console, each.statement)
    if any(each.settings for each in report.statements):
        text = "statements of ClickHouse and ByConity are sent with data_type_default_nullable = 0, so that columns "
        text += "without Nullable are NOT NULL as there, and with dialect = 'clickhouse' for their expressions"
        console.print(Text(text), soft_wrap=True)
    counts = [each.verdict.value for each in report.statements]
    summary = ", ".join(f"{counts.count(name)} {name}" for name in dict.fromkeys(counts))
    console.print(Text(f"statements: {summary or 'none'}"))


def _show_statement(console: Console, statement: str) -> None:
    lines = statement.splitlines()
    for line in lines[:_LINES_SHOWN_MAX]:
        cut = line if len(line) <= _CHARACTERS_SHOWN_MAX else f"{line[:_CHARACTERS_SHOWN_MAX]}.."
        console.print(Text(f"  | {printable_lines(cut)}"), soft_wrap=True)
    if len(lines) > _LINES_SHOWN_MAX:
        console.print(Text(f"  | .. {len(lines) - _LINES_SHOWN_MAX} lines more; -o FILE writes all"))


def _show_sent(console: Console, sent: tuple[Sent, ...]) -> None:
    for each in sent:
        error = f": {printable_lines(each.error)}" if each.error else ""
        console.print(
            Text(f"{each.fate.value:<8}  line {each.line}  {printable_lines(each.what)}{error}"), soft_wrap=True
        )
    if any(each.fate is Fate.FAILED for each in sent):
        text = "what ran stays: mend the script behind it, and import the rest"
        console.print(Text(text))
