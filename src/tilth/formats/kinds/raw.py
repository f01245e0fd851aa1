r"""Values without any form of their own: a whole text is one, or each of its lines.

Always holds: only `\n`, `\r` and `\r\n` end a line.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilth.formats.errors import BadValueError
from tilth.formats.format import Format, RowColumns, RowOptions, TextRows, as_bytes, as_text
from tilth.model.types import Kind, Simple


def _read_whole(data: bytes | str, columns: RowColumns, _: RowOptions) -> TextRows:
    return _rows([as_bytes(data)], columns)


def _read_lines(data: bytes | str, columns: RowColumns, _: RowOptions) -> TextRows:
    # Of bytes: texts have more ends of lines.
    return _rows(as_bytes(data).splitlines(), columns)


def _rows(values: Sequence[bytes], columns: RowColumns) -> TextRows:
    if len(columns.ordered) != 1:
        hint = "name exactly one column, of type STRING or BINARY"
        raise BadValueError("the format has one value in a row", columns=len(columns.ordered), hint=hint)
    is_binary = columns.ordered[0].type == Simple(Kind.BINARY)
    return TextRows(columns.ordered, [values if is_binary else list(map(as_text, values))], len(values))


RAW = Format(name="RawBLOB", aliases=("Raw", "JSONAsString"), read=_read_whole, is_one_value=True)
LINES = Format(name="LineAsString", read=_read_lines, is_one_value=True)
