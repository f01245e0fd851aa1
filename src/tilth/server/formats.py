"""A result in the requested form: JSON, NDJSON, CSV or an Arrow stream.

Always holds: bodies come piece by piece; a piece holds at most `ROWS_PER_PIECE` rows; what INSERT reads of them is what
was there. cells.py has the form of values in JSON; CSV differs in this: NULL is `\\N` without quotes, an empty
string is `""`, nested values are JSON text, NaN and infinities `nan`, `inf`, `-inf`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import assert_never

import msgspec
import pyarrow as pa
from pyarrow import csv

from tilth.model.wire import ColumnInfo, Summary
from tilth.query.errors import UnknownFormatError
from tilth.server.cells import is_text_in_json, json_cells, texts, unique_names

ROWS_PER_PIECE = 8192


class ResponseFormat(StrEnum):
    """The value is the media type."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    #: The first line has the columns' names.
    CSV = "text/csv"
    CSV_WITHOUT_NAMES = "text/csv; header=absent"
    ARROW = "application/vnd.apache.arrow.stream"


#: Names that a user may write after FORMAT, in lower case.
NAMES = {
    "json": ResponseFormat.JSON,
    "jsoncompact": ResponseFormat.JSON,
    "jsoneachrow": ResponseFormat.NDJSON,
    "ndjson": ResponseFormat.NDJSON,
    "csv": ResponseFormat.CSV_WITHOUT_NAMES,
    "csvwithnames": ResponseFormat.CSV,
    "arrow": ResponseFormat.ARROW,
    "arrowstream": ResponseFormat.ARROW,
}

_BY_MEDIA_TYPE = {form.value: form for form in ResponseFormat}

_json = msgspec.json.Encoder()


def named_format(name: str) -> ResponseFormat:
    """Raises UnknownFormatError."""
    found = NAMES.get(name.lower())
    if found is None:
        raise UnknownFormatError(format=name, hint="use one of JSON, JSONEachRow, CSV, Arrow")
    return found


def accepted_format(accept: str) -> ResponseFormat:
    """Return the first format of an Accept header that is known; JSON when the header names none of them."""
    for item in accept.split(","):
        media_type, *parameters = (part.strip().lower() for part in item.split(";"))
        if media_type == ResponseFormat.CSV and "header=absent" in parameters:
            return ResponseFormat.CSV_WITHOUT_NAMES
        if media_type in _BY_MEDIA_TYPE:
            return _BY_MEDIA_TYPE[media_type]
    return ResponseFormat.JSON


def encode(table: pa.Table, columns: Sequence[ColumnInfo], summary: Summary, form: ResponseFormat) -> Iterator[bytes]:
    """Yield the body of the answer, piece by piece."""
    return encode_batches(table.schema, table.to_batches(), columns, lambda: summary, form)


def encode_batches(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[ColumnInfo],
    summary: Callable[[], Summary],
    form: ResponseFormat,
) -> Iterator[bytes]:
    """Encode rows that come batch by batch. `summary` is called when all rows have been written."""
    pieces = (batch.slice(at, ROWS_PER_PIECE) for batch in batches for at in range(0, batch.num_rows, ROWS_PER_PIECE))
    match form:
        case ResponseFormat.JSON:
            return _as_json(pieces, columns, summary)
        case ResponseFormat.NDJSON:
            return _as_ndjson(schema, pieces)
        case ResponseFormat.CSV:
            return _as_csv(schema, pieces, has_names=True)
        case ResponseFormat.CSV_WITHOUT_NAMES:
            return _as_csv(schema, pieces, has_names=False)
        case ResponseFormat.ARROW:
            return _as_arrow(schema, pieces)
    assert_never(form)


def _as_json(
    batches: Iterable[pa.RecordBatch], columns: Sequence[ColumnInfo], summary: Callable[[], Summary]
) -> Iterator[bytes]:
    yield b'{"columns":' + _json.encode(columns) + b',"rows":['
    separator = b""
    for batch in batches:
        rows = list(zip(*map(json_cells, batch.columns), strict=True))
        if rows:
            yield separator + _json.encode(rows)[1:-1]
            separator = b","
    yield b'],"summary":' + _json.encode(summary()) + b"}"


def _as_ndjson(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    names = unique_names(schema.names)
    for batch in batches:
        rows = zip(*map(json_cells, batch.columns), strict=True)
        yield _json.encode_lines([dict(zip(names, row, strict=True)) for row in rows])


def _as_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, has_names: bool) -> Iterator[bytes]:
    if not schema.names:
        return
    sink = io.BytesIO()
    empty = _flat(pa.RecordBatch.from_pylist([], schema=schema))
    options = csv.WriteOptions(include_header=has_names, null_string="\\N", eol="\n")
    with csv.CSVWriter(sink, empty.schema, write_options=options) as writer:
        for batch in batches:
            writer.write_batch(_flat(batch))
            yield _drain(sink)
    yield _drain(sink)


def _as_arrow(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield _drain(sink)
    yield _drain(sink)


def _drain(sink: io.BytesIO) -> bytes:
    piece = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return piece


def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns as the writer of CSV accepts them: numbers, booleans and strings."""
    columns = []
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if is_text_in_json(column.type):
            columns.append(texts(column))
        elif pa.types.is_nested(column.type):
            cells = [None if cell is None else _json.encode(cell).decode() for cell in json_cells(column)]
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
