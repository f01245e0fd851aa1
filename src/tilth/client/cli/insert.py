"""`tilth insert`: the rows of a file into a table, sent piece by piece.

Covers: which format and compression a file has, the bar. Does not cover: sending (client/http.py), what a value is
(the server).
Always holds: a few pieces of the file are in memory; the bar is shown on a terminal only, and errors leave nothing in
the table.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tilth.base.errors import InvalidInputError, TilthError
from tilth.base.units import MIB
from tilth.client.exit_codes import CANCELLED, exit_code
from tilth.client.options import DatabaseOption, UrlOption
from tilth.client.output import console_of, show_cancelled, show_error, show_notices
from tilth.client.printable import printable
from tilth.client.settings import DEFAULT_URL

#: The file is read and sent in pieces of this size.
PIECE_BYTES = 1 * MIB
#: Name of the file that stands for standard input.
STANDARD_INPUT = "-"


class SentFormat(StrEnum):
    """Format of a file with rows."""

    CSV = "csv"
    CSV_WITHOUT_NAMES = "csv-without-names"
    NDJSON = "ndjson"
    ARROW = "arrow"


_MEDIA_TYPES = {
    SentFormat.CSV: "text/csv; header=present",
    SentFormat.CSV_WITHOUT_NAMES: "text/csv; header=absent",
    SentFormat.NDJSON: "application/x-ndjson",
    SentFormat.ARROW: "application/vnd.apache.arrow.stream",
}
_ENDINGS = {
    ".csv": SentFormat.CSV,
    ".ndjson": SentFormat.NDJSON,
    ".jsonl": SentFormat.NDJSON,
    ".json": SentFormat.NDJSON,
    ".arrows": SentFormat.ARROW,
    ".arrow": SentFormat.ARROW,
}
_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
#: Beginnings of formats whose index is at the end of the file, so that no row can be read before all of it is there.
_WHOLE_FILES = {b"ARROW1": "an Arrow file", b"PAR1": "a Parquet file"}


def insert(
    file: Annotated[Path, typer.Argument(help="The file, .gz and .zst as they are; `-` is standard input.")],
    table: Annotated[str, typer.Argument(help="The table, as in shop.orders.")],
    url: UrlOption = DEFAULT_URL,
    database: DatabaseOption = "default",
    file_format: Annotated[
        SentFormat | None, typer.Option("--format", help="Format of the file; by default as its name ends.")
    ] = None,
    label: Annotated[str, typer.Option(help="A name for these rows: sent again, they are not stored again.")] = "",
    setting: Annotated[
        list[str] | None, typer.Option("--setting", help="A session setting, name=value; may be given several times.")
    ] = None,
) -> None:
    """Insert the rows of a file of any size, all or none of them."""
    from tilth.client.http import connect

    errors = console_of(sys.stderr)
    try:
        form, encoding = _kind_of(file, file_format)
        settings = _settings(setting or [], label)
        with connect(url, database=database) as connection, _opened(file) as source:
            _check_beginning(source, file)
            with UploadBar(errors, _size_of(source, file)) as bar:
                result = connection.insert_body(
                    table, bar.counted(source), media_type=_MEDIA_TYPES[form], encoding=encoding, settings=settings
                )
        show_notices(errors, result.summary)
        typer.echo(printable(result.summary.message))
    except TilthError as error:
        show_error(errors, error)
        raise typer.Exit(exit_code(error)) from error
    except KeyboardInterrupt as error:
        show_cancelled(errors)
        raise typer.Exit(CANCELLED) from error


class UploadBar:
    """A bar with bytes and rate while a file is sent, then a spinner until its rows are stored."""

    def __init__(self, errors: Console, size: int | None) -> None:
        """`size`: bytes of the file; None: nobody knows."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal)
        self._task = self._progress.add_task("sending", total=size)

    def __enter__(self) -> UploadBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def counted(self, source: BinaryIO) -> Iterator[bytes]:
        """Yield the file piece by piece, and show how much of it was sent."""
        while piece := source.read(PIECE_BYTES):
            yield piece
            self._progress.update(self._task, advance=len(piece))
        self._progress.update(self._task, description="storing", total=None)


def _kind_of(file: Path, given: SentFormat | None) -> tuple[SentFormat, str]:
    """Return the format of a file, and how it is compressed; raises InvalidInputError for an unknown ending."""
    endings = [ending.lower() for ending in file.suffixes]
    encoding = _COMPRESSED.get(endings[-1], "") if endings else ""
    ending = "".join((endings[:-1] if encoding else endings)[-1:])
    form = given or _ENDINGS.get(ending)
    if form is None:
        hint = f"name it with --format: {', '.join(SentFormat)}"
        raise _unknown(file, "its name does not show it", hint)
    return form, encoding


def _opened(file: Path) -> BinaryIO:
    if str(file) == STANDARD_INPUT:
        return sys.stdin.buffer
    try:
        return file.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from error


def _size_of(source: BinaryIO, file: Path) -> int | None:
    return None if str(file) == STANDARD_INPUT else os.fstat(source.fileno()).st_size


def _check_beginning(source: BinaryIO, file: Path) -> None:
    """Raises InvalidInputError for a file whose rows cannot be read from its beginning on."""
    if str(file) == STANDARD_INPUT or not source.seekable():
        return
    begin = source.read(max(map(len, _WHOLE_FILES)))
    source.seek(0)
    for magic, what in _WHOLE_FILES.items():
        if begin.startswith(magic):
            hint = "send an Arrow stream, or read the file with pyarrow and use Connection.insert"
            raise _unknown(file, f"it is {what}, which cannot be read as it comes", hint)


def _unknown(file: Path, reason: str, hint: str) -> InvalidInputError:
    return InvalidInputError.coded(
        "UNKNOWN_FILE_FORMAT", "the rows of this file have no known format", file=file, reason=reason, hint=hint
    )


def _settings(given: list[str], label: str) -> dict[str, str]:
    """Raises BadParameter for a setting without a value."""
    found = {"insertion_label": label} if label else {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise typer.BadParameter(f"write --setting name=value, not {each!r}")
        found[name.strip()] = value.strip()
    return found
