"""JSON: an object for each row, and one object for a whole answer.

Covers: objects one behind the other, answers. Does not cover: the form of values in answers (cell_values.py), messages
as msgspec reads them (ingest/messages/objects.py).

Tests: tests/unit/formats/test_cell_values.py, tests/unit/ingest/messages/test_decode.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from tilth.formats.cell_values import json_cells, unique_names
from tilth.formats.cutters import ObjectCutter
from tilth.formats.errors import BadValueError
from tilth.formats.format import ABSENT, Cutter, Format, RowColumns, RowOptions, TextRows, Values, as_text
from tilth.model.wire import ColumnInfo, Summary

_encoder = msgspec.json.Encoder()


def _read(data: bytes | str, columns: RowColumns, _: RowOptions) -> TextRows:
    positions = {column.name: index for index, column in enumerate(columns.named)}
    rows: list[Values] = []
    for number, record in enumerate(_objects(as_text(data)), start=1):
        row: list[Any] = [ABSENT] * len(positions)
        for name, value in record.items():
            index = positions.get(name)
            if index is None:
                column = columns.find(name, number)
                if column is None:
                    continue
                index = positions[column.name]
            row[index] = value
        rows.append(row)
    return TextRows(columns.named, list(zip(*rows, strict=True)) or [()] * len(positions), len(rows))


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield objects one behind the other, with blanks, line ends or commas between."""
    decoder = json.JSONDecoder(parse_float=Decimal)
    at, number = _after_blanks(text, 0), 0
    while at < len(text):
        number += 1
        start = at
        try:
            record, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            where = f"{error.msg} in line {error.lineno}, at character {error.colno}"
            raise BadValueError("not JSON", row=number, why=where) from error
        except (ValueError, ArithmeticError, RecursionError) as error:
            # Numbers of thousands of digits, exponents that are out of range for Decimal, thousands of brackets.
            raise BadValueError("not JSON that can be read", row=number, why=error) from error
        if not isinstance(record, dict):
            raise BadValueError("a row is not a JSON object", row=number)
        if text.find("\\u", start, at) >= 0:
            _check_unicode(record, number)
        yield record
        at = _after_blanks(text, at)


def _check_unicode(record: dict[str, Any], row: int) -> None:
    """Raises BadValueError for half of a surrogate pair, `"\\ud800"`, anywhere in names and values."""
    try:
        json.dumps(record, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        raise BadValueError("half of a surrogate pair is not valid Unicode", row=row) from error


def _after_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _write_rows(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], _: Sequence[ColumnInfo], __: Callable[[], Summary]
) -> Iterator[bytes]:
    names = unique_names(schema.names)
    for batch in batches:
        rows = zip(*map(json_cells, batch.columns), strict=True)
        yield _encoder.encode_lines([dict(zip(names, row, strict=True)) for row in rows])


def _write_answer(
    _: pa.Schema, batches: Iterator[pa.RecordBatch], columns: Sequence[ColumnInfo], summary: Callable[[], Summary]
) -> Iterator[bytes]:
    yield b'{"columns":' + _encoder.encode(columns) + b',"rows":['
    separator = b""
    for batch in batches:
        rows = list(zip(*map(json_cells, batch.columns), strict=True))
        if rows:
            yield separator + _encoder.encode(rows)[1:-1]
            separator = b","
    yield b'],"summary":' + _encoder.encode(summary()) + b"}"


def _cutter(_: RowOptions) -> Cutter:
    return ObjectCutter()


JSON_ROWS = Format(
    name="JSONEachRow",
    aliases=("JSONLines", "NDJSON"),
    read=_read,
    write=_write_rows,
    media_type="application/x-ndjson",
    is_objects=True,
    cutter=_cutter,
)
JSON = Format(
    name="JSON",
    aliases=("JSONCompact",),
    read=_read,
    write=_write_answer,
    media_type="application/json",
    is_objects=True,
    cutter=_cutter,
)
