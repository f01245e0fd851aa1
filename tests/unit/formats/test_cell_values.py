"""Values and whole results in each of the four forms."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.codes import WithCode
from tilth.base.errors import InvalidInputError
from tilth.formats import (
    FORMATS,
    ROWS_PER_PIECE,
    Format,
    accepted_format,
    answer_format,
    body_format,
)
from tilth.formats.cell_values import json_cells, unique_names
from tilth.formats.kinds.arrow import ARROW
from tilth.formats.kinds.csv import CSV, CSV_WITH_NAMES
from tilth.formats.kinds.json import JSON, JSON_ROWS
from tilth.model.wire import ColumnInfo, Summary

WRITTEN = [form for form in FORMATS if form.write is not None]
SUMMARY = Summary(query_id="q", elapsed_ms=1.5, rows=0, message="ä")
DAY_US = 86_400_000_000


def body(table: pa.Table, form: Format) -> bytes:
    columns = [ColumnInfo(field.name, str(field.type)) for field in table.schema]
    return b"".join(form.encode(table, columns, SUMMARY))


def rows_of(table: pa.Table) -> list[list[Any]]:
    answer: dict[str, Any] = json.loads(body(table, JSON))
    return list(answer["rows"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, None, -(2**63)], pa.int64()), [1, None, -(2**63)]),
        (pa.array([1.5, None, float("nan"), float("inf"), float("-inf")]), [1.5, None, "NaN", "Infinity", "-Infinity"]),
        (pa.array([1.5, None], pa.float32()), [1.5, None]),
        (pa.array([float("nan")], pa.float16()), ["NaN"]),
        (
            pa.array([Decimal("12.50"), Decimal("0.0000001"), Decimal("0"), None], pa.decimal128(38, 18)),
            ["12.500000000000000000", "0.000000100000000000", "0.000000000000000000", None],
        ),
        (pa.array([b"\x00\xff", b"", None]), ["AP8=", "", None]),
        (pa.array([date(2026, 1, 5), None]), ["2026-01-05", None]),
        (pa.array([True, None]), [True, None]),
        (pa.array([None, None]), [None, None]),
        (pa.array(['ä\n"', None]), ['ä\n"', None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.array([timedelta(seconds=1.5)]), ["0:00:01.500000"]),
        (pa.array([], pa.int32()), []),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_simple_values(values: pa.Array, expected: list[object]) -> None:
    assert json_cells(values) == expected


@pytest.mark.parametrize(
    ("microseconds", "in_utc"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_500_000, "1970-01-01T00:00:01.5Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (100_000_000, "1970-01-01T00:01:40Z"),
        (253_402_300_800_000_000, "+10000-01-01T00:00:00Z"),
    ],
)
def test_timestamps_have_a_zone_or_none(microseconds: int, in_utc: str) -> None:
    assert json_cells(pa.array([microseconds, None], pa.timestamp("us", "UTC"))) == [in_utc, None]
    assert json_cells(pa.array([microseconds], pa.timestamp("us"))) == [in_utc.removesuffix("Z")]
    assert json_cells(pa.array([microseconds * 1000 % 2**62], pa.timestamp("ns", "UTC")))[0].endswith("Z")


def test_timestamps_of_other_zones_are_told_in_utc() -> None:
    noon = datetime(2026, 1, 5, 12, tzinfo=timezone(timedelta(hours=1)))
    assert json_cells(pa.array([noon], pa.timestamp("us", "Europe/Berlin"))) == ["2026-01-05T11:00:00Z"]


def test_nested_values() -> None:
    inner = pa.struct([("a", pa.decimal128(5, 2)), ("b", pa.timestamp("us"))])
    lists = pa.array([[{"a": Decimal("1.00"), "b": 1_500_000}, None], None, []], pa.list_(inner))
    assert json_cells(lists) == [[{"a": "1.00", "b": "1970-01-01T00:00:01.5"}, None], None, []]
    assert json_cells(lists[1:]) == [None, []]
    maps = pa.array([[("x", b"1")], None, [("y", b"2"), ("z", None)]], pa.map_(pa.string(), pa.binary()))
    assert json_cells(maps) == [{"x": "MQ=="}, None, {"y": "Mg==", "z": None}]
    assert json_cells(maps[2:]) == [{"y": "Mg==", "z": None}]
    by_number = pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.int32()))
    assert json_cells(by_number) == [{"1": 2}]
    fixed = pa.array([[1.0, float("nan")], None, [3.0, 4.0]], pa.list_(pa.float64(), 2))
    assert json_cells(fixed) == [[1.0, "NaN"], None, [3.0, 4.0]]
    structs = pa.array([{"a": Decimal("2.00"), "b": None}, None], inner)
    assert json_cells(structs[1:]) == [None]


def test_names_become_unique() -> None:
    assert unique_names(["a", "a", "b", "a"]) == ["a", "a_2", "b", "a_3"]
    assert unique_names(["a", "a_2", "a"]) == ["a", "a_2", "a_3"]


def test_json_keeps_columns_of_one_name_and_the_summary() -> None:
    table = pa.table([pa.array([1]), pa.array(["x"])], names=["a", "a"])
    answer = json.loads(body(table, JSON))
    assert answer["columns"] == [{"name": "a", "type": "int64"}, {"name": "a", "type": "string"}]
    assert answer["rows"] == [[1, "x"]]
    assert answer["summary"]["message"] == "ä"


def test_ndjson_tells_columns_of_one_name_apart() -> None:
    table = pa.table([pa.array([1, 2]), pa.array(["x", None])], names=["a", "a"])
    lines = body(table, JSON_ROWS).splitlines()
    assert [json.loads(line) for line in lines] == [{"a": 1, "a_2": "x"}, {"a": 2, "a_2": None}]


def test_csv_tells_null_from_an_empty_string_and_quotes_what_needs_it() -> None:
    table = pa.table(
        {
            "text, with comma": ["x", "", None, 'q"u,\n'],
            "number": [1.5, None, float("nan"), -2.0],
            "at": pa.array([0, None, 1, 2], pa.timestamp("s", "UTC")),
            "bytes": [b"\xff", None, b"", b"a"],
            "list": [[1], None, [], [2, 3]],
        }
    )
    text = body(table, CSV_WITH_NAMES).decode()
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["text, with comma", "number", "at", "bytes", "list"],
        ["x", "1.5", "1970-01-01T00:00:00Z", "/w==", "[1]"],
        ["", "\\N", "\\N", "\\N", "\\N"],
        ["\\N", "nan", "1970-01-01T00:00:01Z", "", "[]"],
        ['q"u,\n', "-2", "1970-01-01T00:00:02Z", "YQ==", "[2,3]"],
    ]
    assert text.splitlines()[2:4] == [
        '"",\\N,\\N,\\N,\\N',
        '\\N,nan,"1970-01-01T00:00:01Z","","[]"',
    ]
    assert body(table, CSV).decode() == text.partition("\n")[2]


def test_arrow_is_untouched() -> None:
    table = pa.table({"a": pa.array([Decimal("1.5")], pa.decimal128(3, 1)), "b": [[1, 2]]})
    with pa.ipc.open_stream(body(table, ARROW)) as reader:
        assert reader.read_all().equals(table)


@pytest.mark.parametrize("form", WRITTEN, ids=lambda form: form.name)
def test_a_result_without_rows(form: Format) -> None:
    table = pa.table({"a": pa.array([], pa.int64()), "t": pa.array([], pa.timestamp("us", "UTC"))})
    content = body(table, form)
    match form.name:
        case "JSON":
            assert json.loads(content)["rows"] == []
        case "JSONEachRow" | "CSV":
            assert content == b""
        case "CSVWithNames":
            assert content == b'"a","t"\n'
        case "Arrow":
            with pa.ipc.open_stream(content) as reader:
                assert reader.read_all().schema == table.schema


@pytest.mark.parametrize("form", WRITTEN, ids=lambda form: form.name)
def test_a_statement_without_a_result(form: Format) -> None:
    content = body(pa.table({}), form)
    if form is JSON:
        assert json.loads(content)["rows"] == []
    if form in (JSON_ROWS, CSV_WITH_NAMES, CSV):
        assert content == b""


@pytest.mark.parametrize("form", WRITTEN, ids=lambda form: form.name)
def test_large_results_come_in_pieces(form: Format) -> None:
    count = 3 * ROWS_PER_PIECE + 1
    table = pa.table({"a": pa.array(range(count), pa.int64())})
    pieces = list(form.encode(table, [ColumnInfo("a", "bigint")], SUMMARY))
    assert len([piece for piece in pieces if len(piece) > 1000]) == 3
    if form is JSON:
        assert rows_of(table) == [[number] for number in range(count)]
    if form is CSV_WITH_NAMES:
        assert b"".join(pieces).splitlines()[1:] == [str(number).encode() for number in range(count)]


def test_formats_by_name_and_by_accept() -> None:
    assert answer_format("jsoneachrow") is JSON_ROWS
    assert answer_format("CSVWithNames") is CSV_WITH_NAMES
    assert answer_format("csv") is CSV
    with pytest.raises(InvalidInputError, check=WithCode("UNKNOWN_OUTPUT_FORMAT"), match="Parquet"):
        answer_format("Parquet")
    assert accepted_format("text/html, text/csv;q=0.5, application/json") is CSV_WITH_NAMES
    assert accepted_format("text/csv; header=absent") is CSV
    assert accepted_format("*/*") is JSON
    assert accepted_format("") is JSON


def test_bodies_of_rows_by_their_content_type() -> None:
    assert body_format("text/csv; charset=utf-8") is CSV
    assert body_format("text/csv;header=present") is CSV_WITH_NAMES
    assert body_format("Application/JSON") is JSON
    assert body_format("application/vnd.apache.arrow.stream") is ARROW
    assert body_format("text/html") is None


@pytest.mark.parametrize(("length", "is_cached"), [(200, True), (201, False), (100_000, False)])
@pytest.mark.parametrize("find", [accepted_format, body_format])
def test_long_headers_are_not_cached(find: Callable[[str], Format | None], length: int, *, is_cached: bool) -> None:
    header = f"text/csv; header=present; n={length}".ljust(length)
    before = sys.getrefcount(header)
    assert find(header) is CSV_WITH_NAMES
    assert (sys.getrefcount(header) > before) == is_cached


def test_names_are_of_one_format_each() -> None:
    names = [name.lower() for form in FORMATS for name in (form.name, *form.aliases)]
    assert len(names) == len(set(names))
    assert all(form.read or form.write for form in FORMATS)


def test_json_can_be_decoded_by_the_wire_types() -> None:
    answer = json.loads(body(pa.table({"a": [1]}), JSON))
    assert msgspec.convert(answer["columns"], list[ColumnInfo]) == [ColumnInfo("a", "int64")]
    assert msgspec.convert(answer["summary"], Summary) == SUMMARY
