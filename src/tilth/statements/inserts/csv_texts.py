"""CSV as INSERT takes it: columns of texts, and these as columns of a table.

Covers: splitting, NULL, texts as values of a type without a loop in Python where Arrow means the same. Does not cover:
which columns there are (formats.py), values that Arrow does not read (language/values.py).
Always holds: `\\N` without quotes is NULL, everything in quotes is a text; lines end where they do for RFC 4180: by
`\\n`, `\\r` or both, outside of quotes, and at no other character of Unicode; errors name the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tilth.model.table import Column
from tilth.model.types import Decimal, Kind, Simple
from tilth.query.errors import BadValueError, InsertTooLargeError
from tilth.query.language.values import Reading, check_array, column_array, from_json
from tilth.storage import arrow_type, exact_cast

NULL = "\\N"
#: Maximum block size of Arrow, as rows may be of any length.
_BYTES_MAX = (1 << 31) - 2
_TEXTS = (Simple(Kind.STRING), Simple(Kind.BINARY))
_INTEGERS = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64)


def csv_texts(text: str, *, has_names: bool) -> list[pa.Array]:
    """The cells by column, NULL where they are; no columns where there are no rows. `has_names`: the first row is none
    of those that errors count."""
    if not text.strip("\r\n"):
        return []
    data = text.encode()
    if len(data) > _BYTES_MAX:
        raise InsertTooLargeError(bytes=len(data), bytes_max=_BYTES_MAX, hint="send it in pieces")
    table = _split(data if b"\n" in data else data + b"\n", has_names=has_names)
    if data.count(b'"') % 2:
        # A row more, unless a quote that is not closed takes it in.
        more = b"\n" + b",".join([NULL.encode()] * table.num_columns) + b"\n"
        if _split(data + more, has_names=has_names).num_rows == table.num_rows:
            raise BadValueError("a quote is not closed", row=table.num_rows - has_names)
    # One block makes one chunk, which combining would copy.
    return [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]


def _split(data: bytes, *, has_names: bool) -> pa.Table:
    wrong: list[csv.InvalidRow] = []

    def note(row: csv.InvalidRow) -> str:
        wrong.append(row)
        return "skip" if len(wrong) == 1 else "error"

    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(use_threads=False, block_size=len(data) + 1, autogenerate_column_names=True),
            parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
            convert_options=csv.ConvertOptions(
                default_column_type=pa.string(),
                null_values=[NULL],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        if not wrong:
            raise BadValueError("not CSV", why=str(error).splitlines()[0], hint="is a quote closed?") from error
    for row in wrong:
        raise BadValueError(
            "a row has another number of values than the first one",
            row=row.number - has_names,
            values=row.actual_columns,
            first=row.expected_columns,
        )
    return table


def texts_array(
    column: Column, texts: pa.Array, *, reading: Reading, position: int, optional: Sequence[int] = ()
) -> pa.Array:
    """Texts as values of the column, an empty one as NULL unless it is a text; errors and arguments as those of
    `column_array`."""
    if column.type not in _TEXTS and pc.any(pc.equal(texts, "")).as_py():
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    found = _cast(texts, column, reading.of(column)) if column.nullable or not texts.null_count else None
    if found is not None:
        check_array(column, found, position=position)
        return found
    values = texts.to_pylist()
    if not isinstance(column.type, Simple | Decimal):
        values = [None if text is None else _nested(text, column, row) for row, text in enumerate(values, start=1)]
    return column_array(column, values, reading=reading, position=position, optional=optional)


def _cast(texts: pa.Array, column: Column, reading: Reading) -> pa.Array | None:
    """Return the values where Arrow reads all of the texts, and as `to_stored` does; else None."""
    data_type = column.type
    kind = data_type.kind if isinstance(data_type, Simple) else None
    if data_type == Simple(Kind.STRING):
        return texts
    if kind is Kind.BINARY or (kind is None and not isinstance(data_type, Decimal)):
        return None
    if kind in _INTEGERS and _has_x(texts):
        # Arrow takes hexadecimal digits.
        return None
    try:
        if kind is not Kind.TIMESTAMP:
            return exact_cast(texts, arrow_type(data_type))
        if pc.all(pc.ends_with(texts, "Z")).as_py() is not False:
            return exact_cast(texts, arrow_type(data_type))
        has_zone = pc.match_substring_regex(texts, r"(?:[Zz]|[+-]\d\d(?::?\d\d)?)$")
        if pc.all(has_zone).as_py() is not False:
            return exact_cast(texts, arrow_type(data_type))
        if not pc.any(has_zone).as_py() and reading.zones.get((), reading.zone) is UTC:
            return exact_cast(exact_cast(texts, pa.timestamp("us")), arrow_type(data_type))
    except pa.ArrowInvalid:
        return None
    return None


def _has_x(texts: pa.Array) -> bool:
    """True if one of the texts has an `x`. Most columns of numbers have none anywhere in their bytes."""
    letters = texts.buffers()[2]
    data = b"" if letters is None else letters.to_pybytes()
    if b"x" not in data and b"X" not in data:
        return False
    # It may be in bytes that are no text's: those of a header.
    return bool(pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py())


# Any: whatever JSON says.
def _nested(text: str, column: Column, row: int) -> Any:
    try:
        return from_json(text)
    except ValueError as error:
        given = text if len(text) <= 60 else f"{text[:57]}..."
        raise BadValueError(
            "a nested value in CSV is written as JSON", row=row, column=column.name, given=given
        ) from error
