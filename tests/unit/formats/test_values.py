"""The same text means the same as a message of Kafka and as a row of an INSERT: a value, a default, or none."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.ingest.decoding import decode
from tilth.formats import BadValueError, Reading, RowOptions
from tilth.model.table import Column, Schema
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Simple, Struct
from tilth.statements.inserts.rows import InsertTarget, read_rows

UTC = dt.UTC
NOON = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
REFUSED = "refused"


def inserted(column: Column, form: str, text: str, **options: Any) -> object:
    def nothing_computed(columns: Any, rows: int | pa.Table) -> dict[str, pa.Array]:
        raise AssertionError(columns)

    target = InsertTarget(Schema(columns=(column, Column(id=2, name="z", type=Simple(Kind.STRING)))))
    names = ("a",) if form == "CSV" else ()
    try:
        rows = read_rows(
            target, names, form, text, reading=Reading(), compute=nothing_computed, options=RowOptions(**options)
        )
    except BadValueError:
        return REFUSED
    return rows.column("a").to_pylist()[0]


def consumed(column: Column, form: str, text: str) -> object:
    defaults = {} if column.default is None else {"a": 7}
    required = [] if column.nullable else ["a"]
    decoded = decode({"a": column.type}, [text.encode()], required=required, defaults=defaults, kafka_format=form)
    return REFUSED if decoded.broken else decoded.rows.column("a").to_pylist()[0]


@pytest.mark.parametrize(
    ("data_type", "text", "value"),
    [
        (Kind.INT64, '"1"', 1),
        (Kind.INT64, '"1.0"', 1),
        (Kind.INT64, "1e3", 1000),
        (Kind.INT64, "9007199254740993.0", 2**53 + 1),
        (Kind.INT64, '"9007199254740993.0"', 2**53 + 1),
        (Kind.INT64, "1.5", REFUSED),
        (Kind.INT64, '"1.5"', REFUSED),
        (Kind.INT64, "1e-400", REFUSED),
        (Kind.INT64, "9223372036854775808", REFUSED),
        (Kind.INT64, '"null"', REFUSED),
        (Kind.INT64, '""', REFUSED),
        (Kind.INT64, "true", 1),
        (Kind.INT8, "128", REFUSED),
        (Kind.FLOAT64, '"1.5"', 1.5),
        (Kind.FLOAT64, "1e400", REFUSED),
        (Kind.BOOLEAN, "1", True),
        (Kind.BOOLEAN, '"false"', False),
        (Kind.BOOLEAN, "2", REFUSED),
        (Kind.STRING, "1.50", "1.50"),
        (Kind.STRING, '"null"', "null"),
        (Kind.STRING, "{}", REFUSED),
        (Kind.BINARY, '"AP8="', b"\x00\xff"),
        (Kind.BINARY, '"AP8"', REFUSED),
        (Kind.TIMESTAMP, "1e-999999999", REFUSED),
        (Kind.TIMESTAMP, "-1E-999999999", REFUSED),
        (Kind.TIMESTAMP, "0e-999999999", dt.datetime(1970, 1, 1, tzinfo=UTC)),
        (Kind.TIMESTAMP, "1e999999999", REFUSED),
        (Kind.TIMESTAMP, "1699999999.9999999", REFUSED),
        (Kind.TIMESTAMP, "1700000000.0000000", NOON),
        (Kind.INT64, "1e-999999999", REFUSED),
        (Kind.TIMESTAMP, "1700000000", NOON),
        (Kind.TIMESTAMP, '"1700000000"', NOON),
        (Kind.TIMESTAMP, "1700000000.25", NOON.replace(microsecond=250_000)),
        (Kind.TIMESTAMP, "1700000000.1234567", REFUSED),
        (Kind.TIMESTAMP, '"2023-11-14T22:13:20.1234567Z"', REFUSED),
        (Kind.TIMESTAMP, '"2023-11-14 22:13:20"', NOON),
        (Kind.TIMESTAMP, '"2023-11-15T00:13:20+02:00"', NOON),
        (Kind.TIMESTAMP_NTZ, '"2023-11-14T22:13:20+02:00"', NOON.replace(tzinfo=None)),
        (Kind.DATE, '"2023-11-14T00:00:00"', dt.date(2023, 11, 14)),
        (Kind.DATE, "5", REFUSED),
        (Decimal(4, 1), '"1.5"', Number("1.5")),
        (Decimal(4, 1), "1.25", REFUSED),
        (Decimal(4, 1), '"1_0"', REFUSED),
        (Array(Simple(Kind.INT32)), '["1", 2.0, null]', [1, 2, None]),
        (Struct((Field("x", Simple(Kind.INT8)),)), '{"x": "1", "y": 2}', {"x": 1}),
    ],
)
def test_json_values(data_type: Kind | DataType, text: str, value: object) -> None:
    column = Column(id=1, name="a", type=Simple(data_type) if isinstance(data_type, Kind) else data_type)
    row = f'{{"a": {text}}}'
    assert [inserted(column, "JSONEachRow", row), consumed(column, "JSONEachRow", row)] == [value, value]


@pytest.mark.parametrize(
    ("data_type", "cell", "value"),
    [
        (Kind.INT64, "", None),
        (Kind.INT64, "\\N", None),
        (Kind.INT64, "1.0", 1),
        (Kind.INT64, "0x1", REFUSED),
        (Kind.STRING, "", ""),
        (Kind.STRING, '"\\N"', "\\N"),
        (Kind.BINARY, "", b""),
        (Kind.TIMESTAMP, "1700000000", NOON),
        (Kind.BOOLEAN, "true", True),
        (Decimal(10, 2), "1e-100000000", REFUSED),
        (Array(Simple(Kind.INT32)), '"[1, ""2""]"', [1, 2]),
        (Kind.STRING, '"x"y', REFUSED),
        (Kind.STRING, 'x"y', 'x"y'),
        (Kind.STRING, '"x', REFUSED),
    ],
)
def test_cells(data_type: Kind | DataType, cell: str, value: object) -> None:
    column = Column(id=1, name="a", type=Simple(data_type) if isinstance(data_type, Kind) else data_type)
    # With a cell behind it, for an empty line is no row.
    if cell:
        assert [inserted(column, "CSV", cell), consumed(column, "CSV", cell)] == [value, value]
    with_names = "a\n" + (cell or '""')
    assert [inserted(column, "CSVWithNames", with_names), consumed(column, "CSVWithNames", with_names)] == [value] * 2


@pytest.mark.parametrize(("form", "text"), [("JSONEachRow", '{"a": null}'), ("JSONEachRow", "{}"), ("CSV", "\\N")])
@pytest.mark.parametrize(("default", "is_nullable"), [("7", True), ("7", False), (None, True), (None, False)])
def test_null_and_defaults(form: str, text: str, default: str | None, *, is_nullable: bool) -> None:
    column = Column(id=1, name="a", type=Simple(Kind.INT64), nullable=is_nullable, default=default)
    is_missing = text == "{}"
    if default is None or (is_nullable and not is_missing):
        value: object = None if is_nullable else REFUSED
    else:
        value = 7
    assert [inserted(column, form, text), consumed(column, form, text)] == [value, value]


def test_the_last_of_a_name_counts() -> None:
    column = Column(id=1, name="a", type=Simple(Kind.INT64))
    for text in ('{"a": 1, "a": 2}', '{"a": "1", "a": "2"}'):
        assert [inserted(column, "JSONEachRow", text), consumed(column, "JSONEachRow", text)] == [2, 2]


def test_lines_and_whole_texts_are_rows_of_both() -> None:
    column = Column(id=1, name="a", type=Simple(Kind.STRING))
    schema = Schema(columns=(column,))
    rows = read_rows(InsertTarget(schema), (), "LineAsString", "x\ny", reading=Reading(), compute=lambda *_: {})
    assert rows.column("a").to_pylist() == ["x", "y"]
    raw = read_rows(InsertTarget(schema), (), "RawBLOB", "x\ny", reading=Reading(), compute=lambda *_: {})
    assert raw.column("a").to_pylist() == ["x\ny"]
    two = InsertTarget(Schema(columns=(column, Column(id=2, name="b", type=Simple(Kind.STRING)))))
    with pytest.raises(BadValueError, match="one value in a row"):
        read_rows(two, (), "RawBLOB", "x", reading=Reading(), compute=lambda *_: {})


def test_settings_of_rows() -> None:
    column = Column(id=1, name="a", type=Simple(Kind.INT64))
    assert inserted(column, "JSONEachRow", json.dumps({"a": 1, "q": 2}), skip_unknown=True) == 1
    assert inserted(column, "CSVWithNames", "q;a\n5;6", csv_delimiter=";", skip_unknown=True) == 6
