r"""Formats without a syntax: a message or file is one value, or each of its lines is.

Always holds: only `\n`, `\r` and `\r\n` end a line.

Tests: tests/unit/ingest/messages/test_decode.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from tilth.formats.cutters import LineCutter
from tilth.formats.errors import BadValueError
from tilth.formats.format import Cutter, Format, RowColumns, RowOptions, TextRows, as_bytes, as_texts
from tilth.model.types import Kind, Simple

_BINARY = Simple(Kind.BINARY)


def _read_whole(data: bytes | str, columns: RowColumns, _: RowOptions) -> TextRows:
    return _rows([as_bytes(data)], columns)


def _read_wholes(texts: Sequence[bytes], columns: RowColumns, _: RowOptions) -> tuple[TextRows, None]:
    return _rows(texts, columns), None


def _read_lines(data: bytes | str, columns: RowColumns, _: RowOptions) -> TextRows:
    # Bytes are split, because str.splitlines() splits at further characters, such as U+2028.
    return _rows(as_bytes(data).splitlines(), columns)


def _read_lines_of_all(texts: Sequence[bytes], columns: RowColumns, _: RowOptions) -> tuple[TextRows, Sequence[int]]:
    lines = list(map(bytes.splitlines, texts))
    return _rows(list(chain.from_iterable(lines)), columns), list(map(len, lines))


def _rows(values: Sequence[bytes], columns: RowColumns) -> TextRows:
    if len(columns.ordered) != 1:
        hint = "name exactly one column, of type STRING or BINARY"
        raise BadValueError("the format has one value in a row", columns=len(columns.ordered), hint=hint)
    is_binary = columns.ordered[0].type == _BINARY
    return TextRows(columns.ordered, [values if is_binary else as_texts(values)], len(values))


RAW = Format(
    name="RawBLOB",
    aliases=("Raw", "JSONAsString"),
    read=_read_whole,
    read_messages=_read_wholes,
    is_one_value=True,
)


def _line_cutter(_: RowOptions) -> Cutter:
    return LineCutter()


LINES = Format(
    name="LineAsString",
    read=_read_lines,
    read_messages=_read_lines_of_all,
    is_one_value=True,
    cutter=_line_cutter,
)
