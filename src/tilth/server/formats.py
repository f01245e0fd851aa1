"""A result in the form that the caller asked for: JSON, NDJSON, CSV or an Arrow stream."""

from __future__ import annotations

import io
from collections.abc import Iterator
from enum import StrEnum

import msgspec
import pyarrow as pa
from pyarrow import csv

from tilth.base.errors import InvalidInputError
from tilth.model.wire import ColumnInfo, SqlAnswer, Summary

ROWS_PER_BATCH = 8192


class UnknownFormatError(InvalidInputError):
    """unknown output format"""

    code = "UNKNOWN_FORMAT"


class Format(StrEnum):
    """The value is the media type."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    CSV = "text/csv"
    ARROW = "application/vnd.apache.arrow.stream"


#: What a user may write behind FORMAT.
NAMES = {
    "json": Format.JSON,
    "jsoncompact": Format.JSON,
    "jsoneachrow": Format.NDJSON,
    "ndjson": Format.NDJSON,
    "csv": Format.CSV,
    "csvwithnames": Format.CSV,
    "arrow": Format.ARROW,
    "arrowstream": Format.ARROW,
}


def named_format(name: str) -> Format:
    """The format that a statement's FORMAT names; raises UnknownFormatError."""
    found = NAMES.get(name.lower())
    if found is None:
        raise UnknownFormatError(format=name, hint="use one of JSON, JSONEachRow, CSV, Arrow")
    return found


def accepted_format(accept: str) -> Format:
    """The first format of an Accept header that is known; JSON when the header names none of them."""
    for item in accept.split(","):
        media_type = item.split(";")[0].strip().lower()
        if media_type in Format:
            return Format(media_type)
    return Format.JSON


def encode(table: pa.Table, columns: list[ColumnInfo], summary: Summary, form: Format) -> Iterator[bytes]:
    """Yields the body of the answer, piece by piece."""
    match form:
        case Format.JSON:
            rows = [list(row.values()) for row in _unique(table).to_pylist()]
            yield msgspec.json.encode(SqlAnswer(columns=columns, rows=rows, summary=summary), enc_hook=_plain)
        case Format.NDJSON:
            for batch in table.to_batches(max_chunksize=ROWS_PER_BATCH):
                lines = [msgspec.json.encode(row, enc_hook=_plain) for row in batch.to_pylist()]
                yield b"".join(line + b"\n" for line in lines)
        case Format.CSV:
            sink = io.BytesIO()
            csv.write_csv(_flat(table), sink)
            yield sink.getvalue()
        case Format.ARROW:
            buffer = io.BytesIO()
            with pa.ipc.new_stream(buffer, table.schema) as writer:
                for batch in table.to_batches(max_chunksize=ROWS_PER_BATCH * 8):
                    writer.write_batch(batch)
                    yield buffer.getvalue()
                    buffer.seek(0)
                    buffer.truncate()
            yield buffer.getvalue()


def _unique(table: pa.Table) -> pa.Table:
    """Rows become dicts on the way, so columns of one name (`SELECT 1, 1`) must be told apart."""
    return table.rename_columns([str(index) for index in range(table.num_columns)])


def _flat(table: pa.Table) -> pa.Table:
    """CSV has no nesting: nested values become JSON text, binary values text."""
    columns = []
    for column in table.columns:
        if pa.types.is_nested(column.type):
            values = [None if value is None else msgspec.json.encode(value, enc_hook=_plain).decode() for value in column.to_pylist()]
            columns.append(pa.chunked_array([pa.array(values, pa.string())]))
        elif pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            values = [None if value is None else value.decode("utf-8", "replace") for value in column.to_pylist()]
            columns.append(pa.chunked_array([pa.array(values, pa.string())]))
        else:
            columns.append(column)
    return pa.table(columns, names=table.column_names)


def _plain(value: object) -> object:
    """What msgspec does not know by itself, for instance numpy's numbers."""
    if hasattr(value, "item"):
        return value.item()
    return str(value)
