r"""CSV, with a line of names and without.

Always holds: `\N` without quotes is NULL, everything in quotes is a text; lines end where they do for RFC 4180: by
`\n`, `\r` or both, outside of quotes, and at no other character of Unicode; errors name the row. In answers an empty
string is `""`, nested values are JSON text, NaN and infinities `nan`, `inf`, `-inf`.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from tilth.formats.cell_values import is_text_in_json, json_cells, texts
from tilth.formats.cutters import CsvCutter
from tilth.formats.errors import BadValueError
from tilth.formats.format import (
    Cutter,
    Format,
    RowColumns,
    RowOptions,
    TextRows,
    Values,
    as_bytes,
    as_text,
    drain,
    wrong_width,
)
from tilth.model.table import Column
from tilth.model.wire import ColumnInfo, Summary

_NULL = "\\N"
_NULL_IN_QUOTES = '"\\N"'
#: Python's own limit is 131,072 characters, and holds for the whole process; no text is longer than this.
_VALUE_MAX = (1 << 31) - 1
#: Characters that stand for something else while a text is cut into values: those of a private area.
_STAND_INS = range(0xE000, 0xF900)
#: Texts that Arrow splits sooner than Python, and no longer than its largest block, as rows may be of any length.
_ARROW_BYTES_MIN, _ARROW_BYTES_MAX = 1 << 14, (1 << 31) - 2
_QUOTE = ord('"')

csv.field_size_limit(_VALUE_MAX)


def _read(data: bytes | str, columns: RowColumns, options: RowOptions) -> TextRows:
    return _rows(columns.ordered, csv_cells(data, options.csv_delimiter, has_names=False))


def _read_messages(
    texts: Sequence[bytes], columns: RowColumns, options: RowOptions
) -> tuple[TextRows, Sequence[int] | None] | None:
    joined = b"\n".join(texts)
    # Arrow would remove a byte order mark from the first text.
    if b"\r" in joined or joined.startswith(codecs.BOM_UTF8):
        return None
    if joined.count(b"\n") < len(texts):
        rows = _read(joined, columns, options)
        # Otherwise a quote is open at the end of a text.
        return (rows, None) if rows.count == len(texts) else None
    if b'"' in joined:
        return None
    counts = [sum(map(bool, text.split(b"\n"))) for text in texts]
    return _read(joined, columns, options), counts


def _read_with_names(data: bytes | str, columns: RowColumns, options: RowOptions) -> TextRows:
    cells = csv_cells(data, options.csv_delimiter, has_names=True)
    if not cells:
        return TextRows(columns.ordered, [()] * len(columns.ordered), 0, are_cells=True)
    found: dict[str, Values | pa.Array] = {}
    named: list[Column] = []
    for own in cells:
        name = str(own[0])
        column = columns.find(name, None)
        if column is None:
            continue
        if column in named:
            raise BadValueError("a column is named twice", column=name)
        named.append(column)
        found[column.name] = own[1:]
    return TextRows(tuple(named), list(found.values()), len(cells[0]) - 1, are_cells=True)


def _rows(columns: tuple[Column, ...], cells: Sequence[Values | pa.Array]) -> TextRows:
    if cells and len(cells) != len(columns):
        raise wrong_width(columns, row=1, values=len(cells))
    count = len(cells[0]) if cells else 0
    return TextRows(columns, list(cells) or [()] * len(columns), count, are_cells=True)


def csv_cells(data: bytes | str, delimiter: str, *, has_names: bool) -> Sequence[Values | pa.Array]:
    """The cells by column, None or NULL where they are; no columns where there are no rows. `has_names`: the first row
    is none of those that errors count."""
    if len(data) >= _ARROW_BYTES_MIN and delimiter.isascii():
        whole = as_bytes(data)
        if len(whole) <= _ARROW_BYTES_MAX and _is_regular(whole, ord(delimiter)):
            return _split_by_arrow(whole, delimiter, has_names=has_names)
    rows = _split(as_text(data), delimiter, has_names=has_names)
    for number, row in enumerate(rows, start=1 - has_names):
        if len(row) != len(rows[0]):
            raise _uneven(number, len(row), len(rows[0]))
    return list(zip(*rows, strict=True))


def _uneven(row: int, values: int, first: int) -> BadValueError:
    return BadValueError("a row has another number of values than the first one", row=row, values=values, first=first)


def _split(text: str, delimiter: str, *, has_names: bool) -> list[list[str | None]]:
    r"""The values of each line that is not empty; None for \N without quotes."""
    if '"' not in text and "\r" not in text:
        lines: list[list[str | None]] = [[*line.split(delimiter)] for line in text.split("\n") if line]
        return [[None if cell == _NULL else cell for cell in cells] for cells in lines] if _NULL in text else lines
    stand_in = _stand_in(text) if _NULL_IN_QUOTES in text else None
    if stand_in is not None:
        # In quotes it is a text, which the library does not report.
        text = text.replace(_NULL_IN_QUOTES, f'"{stand_in}"')
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[list[str | None]] = []
    try:
        rows.extend([None if cell == _NULL else cell for cell in cells] for cells in reader if cells)
    except csv.Error as error:
        is_open = "unexpected end" in str(error)
        what = "a quote is not closed" if is_open else "not CSV"
        hint = "" if is_open else "what stands in quotes ends with a quote; one inside is written twice"
        raise BadValueError(what, row=len(rows) + 1 - has_names, why=error, hint=hint) from error
    if stand_in is None:
        return rows
    return [[cell and cell.replace(stand_in, _NULL) for cell in cells] for cells in rows]


def _stand_in(text: str) -> str:
    """A character that the text does not have."""
    found = next((chr(code) for code in _STAND_INS if chr(code) not in text), None)
    if found is None:
        raise BadValueError(f"{_NULL_IN_QUOTES} beside every character of the private area")
    return found


def _is_regular(data: bytes, delimiter: int) -> bool:
    """True if quotes stand around whole values, or twice within such: all readers of CSV mean the same by it."""
    array = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(array == _QUOTE)
    if len(quotes) % 2:
        return False
    ends = np.zeros(256, bool)
    ends[[delimiter, ord("\n"), ord("\r"), _QUOTE]] = True
    opening, closing = quotes[::2], quotes[1::2] + 1
    opening, closing = opening[opening > 0], closing[closing < len(data)]
    return bool(ends[array[opening - 1]].all() and ends[array[closing]].all())


def _split_by_arrow(data: bytes, delimiter: str, *, has_names: bool) -> list[pa.Array]:
    wrong: list[arrow_csv.InvalidRow] = []

    def note(row: arrow_csv.InvalidRow) -> str:
        wrong.append(row)
        return "skip" if len(wrong) == 1 else "error"

    if not data.strip(b"\r\n"):
        return []
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(data if b"\n" in data else data + b"\n"),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, autogenerate_column_names=True
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note
            ),
            convert_options=arrow_csv.ConvertOptions(
                default_column_type=pa.string(),
                null_values=[_NULL],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        if not wrong:
            raise BadValueError("not CSV", why=str(error).splitlines()[0]) from error
    for row in wrong:
        raise _uneven(row.number - has_names, row.actual_columns, row.expected_columns)
    # One block makes one chunk, which combining would copy.
    return [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]


def _write(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], _: Sequence[ColumnInfo], __: Callable[[], Summary]
) -> Iterator[bytes]:
    return _written(schema, batches, has_names=False)


def _write_with_names(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], _: Sequence[ColumnInfo], __: Callable[[], Summary]
) -> Iterator[bytes]:
    return _written(schema, batches, has_names=True)


def _written(schema: pa.Schema, batches: Iterator[pa.RecordBatch], *, has_names: bool) -> Iterator[bytes]:
    if not schema.names:
        return
    sink = io.BytesIO()
    empty = _flat(pa.RecordBatch.from_pylist([], schema=schema))
    options = arrow_csv.WriteOptions(include_header=has_names, null_string=_NULL, eol="\n")
    with arrow_csv.CSVWriter(sink, empty.schema, write_options=options) as writer:
        for batch in batches:
            writer.write_batch(_flat(batch))
            yield drain(sink)
    yield drain(sink)


def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns as CSV's writer takes them: numbers, booleans and strings."""
    columns = []
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if is_text_in_json(column.type):
            columns.append(texts(column))
        elif pa.types.is_nested(column.type):
            cells = [None if cell is None else msgspec.json.encode(cell).decode() for cell in json_cells(column)]
            columns.append(pa.array(cells, pa.string()))
        elif _is_plain(column.type):
            columns.append(column)
        else:
            cells = [None if cell is None else str(cell) for cell in json_cells(column)]
            columns.append(pa.array(cells, pa.string()))
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _is_plain(arrow: pa.DataType) -> bool:
    types = pa.types
    is_number = types.is_integer(arrow) or types.is_float32(arrow) or types.is_float64(arrow)
    return bool(is_number or types.is_boolean(arrow) or types.is_string(arrow) or types.is_large_string(arrow))


def _cutter(options: RowOptions) -> Cutter:
    return CsvCutter(options.csv_delimiter)


CSV = Format(
    name="CSV",
    read=_read,
    read_messages=_read_messages,
    write=_write,
    media_type="text/csv; header=absent",
    body_type="text/csv",
    cutter=_cutter,
)
CSV_WITH_NAMES = Format(
    name="CSVWithNames",
    read=_read_with_names,
    write=_write_with_names,
    media_type="text/csv",
    body_type="text/csv; header=present",
    cutter=_cutter,
    has_names=True,
)
