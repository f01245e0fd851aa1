"""Rows as Avro files, read back by COPY INTO's reader and by another library."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tilth.formats import BadValueError
from tilth.query.language.avro_types import read_avro_schema
from tilth.query.worker.avro_arrays import arrays_of, decoded_rows
from tilth.query.worker.avro_blocks import read_blocks, read_header
from tilth.query.worker.avro_encode import write_avro

Row = dict[str, Any]


def rows_of(file: bytes) -> list[Row]:
    """The rows of a file, as COPY INTO reads it."""
    source = io.BytesIO(file)
    header = read_header(source)
    record = read_avro_schema(header.schema)
    names = [name for name, _ in record.fields]
    found: list[Row] = []
    for rows in decoded_rows(record, read_blocks(source, header, 0, len(file))):
        arrays, problems = arrays_of(record, names, rows.values)
        assert not problems
        found += pa.table(arrays, names=names).to_pylist()
    return found


COLUMNS = pa.schema(
    [
        ("a", pa.int64()),
        ("i", pa.int8()),
        ("f", pa.float32()),
        ("m", pa.decimal128(38, 2)),
        ("s", pa.string()),
        ("y", pa.binary()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("l", pa.list_(pa.date32())),
        ("x", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("p", pa.struct([("u", pa.decimal128(4, 1)), ("v", pa.list_(pa.struct([("z", pa.bool_())])))])),
        ("z", pa.null()),
    ]
)
FULL: Row = {
    "a": -(1 << 63),
    "i": -128,
    "f": math.inf,
    "m": Decimal("-" + "9" * 36 + ".99"),
    "s": "a\0é",
    "y": b"\xff\0",
    "d": date(1, 1, 1),
    "t": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "n": datetime(1, 1, 1, tzinfo=UTC).replace(tzinfo=None),
    "l": [date(9999, 12, 31), None],
    "x": [("k.1", [1, None]), ("", None)],
    "p": {"u": Decimal("-0.1"), "v": [{"z": True}, None, {"z": None}]},
    "z": None,
}
EMPTY: Row = {**dict.fromkeys(COLUMNS.names), "m": Decimal("0.00"), "s": "", "y": b"", "l": [], "x": []}


def encoded(rows: Sequence[pa.Table], schema: pa.Schema = COLUMNS) -> bytes:
    file = WriteOnly()
    # Any: it has no more than an encoder may use.
    sink: Any = file
    write_avro(rows, schema, sink)
    return b"".join(file.pieces)


class WriteOnly:
    """A new file of a store, which can be neither read nor sought."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self.pieces.append(bytes(data))
        return len(data)


def test_what_is_written_is_read_back_and_by_another_library() -> None:
    rows = [FULL, dict.fromkeys(COLUMNS.names), EMPTY] * 700
    table = pa.Table.from_pylist(rows, COLUMNS)
    # Slices of nested columns have offsets of their own.
    file = encoded([table.slice(1, 1300), table.slice(1301)])
    assert rows_of(file) == rows[1:]
    others = list(fastavro.reader(io.BytesIO(file)))
    plain = [{**each, "x": None if each["x"] is None else dict(each["x"])} for each in rows[1:]]
    assert others == plain


def test_a_file_without_rows_has_columns() -> None:
    file = encoded([COLUMNS.empty_table()])
    assert read_avro_schema(read_header(io.BytesIO(file)).schema).fields[0][0] == "a"
    assert list(fastavro.reader(io.BytesIO(file))) == []


@pytest.mark.parametrize(
    ("name", "kind", "column"),
    [
        ("a.b", pa.int64(), "a.b"),
        ("ü", pa.int64(), "ü"),
        ("1a", pa.int64(), "1a"),
        ("", pa.int64(), ""),
        ("a\n", pa.int64(), "a\n"),
        ("m", pa.map_(pa.int64(), pa.int64()), "m"),
        ("s", pa.struct([("x", pa.list_(pa.duration("us")))]), "s.x[]"),
        ("s", pa.struct([("x y", pa.int64())]), "s.x y"),
    ],
)
def test_what_avro_cannot_carry_is_refused_by_name(name: str, kind: pa.DataType, column: str) -> None:
    schema = pa.schema([(name, kind)])
    with pytest.raises(BadValueError) as caught:
        encoded([schema.empty_table()], schema)
    assert (caught.value.facts["column"], bool(caught.value.hint)) == (column, True)
