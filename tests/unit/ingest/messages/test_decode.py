"""Decoding of single messages: what each type takes, and what is told of a message that it does not take."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.ingest.decoding import decode, decoder
from tilth.ingest import FormatError
from tilth.ingest.messages.cells import CellReader
from tilth.ingest.messages.objects import ObjectReader
from tilth.model.table import Column
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct

UTC = dt.UTC
NO_TIME = "expected a time, as in '2020-01-31 12:00:00', with at most 6 digits behind the second, given"


@pytest.mark.parametrize(
    ("data_type", "text", "value"),
    [
        (Kind.INT8, "-128", -128),
        (Kind.INT64, "9223372036854775807", 2**63 - 1),
        (Kind.FLOAT64, "3", 3.0),
        (Kind.BOOLEAN, "true", True),
        (Kind.STRING, '"\\u00e9\\n"', "é\n"),
        (Kind.BINARY, '"AP8="', b"\x00\xff"),
        (Kind.DATE, '"2025-02-28"', dt.date(2025, 2, 28)),
        (Kind.TIMESTAMP, '"2025-01-02T03:04:05.123456Z"', dt.datetime(2025, 1, 2, 3, 4, 5, 123456, UTC)),
        (Kind.TIMESTAMP, '"2025-01-02 03:04:05"', dt.datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (Kind.TIMESTAMP, '"2025-01-02T03:04:05+02:00"', dt.datetime(2025, 1, 2, 1, 4, 5, tzinfo=UTC)),
        (Kind.TIMESTAMP_NTZ, '"2025-01-02 03:04:05.5"', dt.datetime(2025, 1, 2, 3, 4, 5, 500000)),  # noqa: DTZ001
        (Decimal(10, 2), "1.25", Number("1.25")),
        (Decimal(38, 9), "12345678901234567890.123456789", Number("12345678901234567890.123456789")),
        (Decimal(10, 2), '"7"', Number("7.00")),
        (Array(Simple(Kind.INT32)), "[1,null]", [1, None]),
        (Map(Simple(Kind.STRING), Simple(Kind.INT32)), '{"a":1}', [("a", 1)]),
        (
            Struct((Field("x", Simple(Kind.DATE)), Field("y z", Simple(Kind.STRING)))),
            '{"x":"2025-01-02","q":5}',
            {"x": dt.date(2025, 1, 2), "y z": None},
        ),
    ],
)
def test_values(data_type: Kind | DataType, text: str, value: Any) -> None:
    decoded = decode({"a": data_type}, [b'{"a": %s, "unknown": [1, {"b": 2}]}' % text.encode()])
    assert decoded.rows.to_pylist() == [{"a": value}]
    assert not decoded.broken


@pytest.mark.parametrize(
    ("data_type", "text", "reason"),
    [
        (Kind.INT64, '"x"', "column `a`: expected a whole number, given 'x'"),
        (Kind.INT64, '"1.5"', "column `a`: expected a whole number, given '1.5'"),
        (Kind.INT64, '"null"', "column `a`: expected a whole number, given 'null'"),
        (Kind.INT64, '"1_0"', None),
        (Decimal(9, 2), '"1_0"', "column `a`: expected a number, given '1_0'"),
        (Decimal(9, 2), '"1\\u005f0"', None),
        (Kind.INT8, "128", "column `a`: expected a number from -128 to 127, given 128"),
        (Kind.INT64, "1.5", "column `a`: expected a whole number, given 1.5"),
        (Kind.STRING, "true", "column `a`: expected text in quotes, given True"),
        (Kind.BOOLEAN, "2", "column `a`: expected true or false, given 2"),
        (Kind.DATE, '"2025-02-30"', "column `a`: expected a date, as in '2020-01-31', given '2025-02-30'"),
        (Kind.TIMESTAMP, '"soon"', f"column `a`: {NO_TIME} 'soon'"),
        (Kind.FLOAT64, "1e400", "column `a`: expected a number that a double can hold, given 1E+400"),
        (Decimal(4, 1), "1.25", "column `a`: 1.25 does not fit decimal(4,1)"),
        (Decimal(4, 1), "12345", "column `a`: 12345 does not fit decimal(4,1)"),
        (Array(Simple(Kind.INT32)), '["x"]', "column `a`: expected a whole number, given ['x']"),
        (Kind.FLOAT64, "nix", "not JSON, row 1: Expecting value in line 1, at character 6"),
        (Kind.FLOAT32, "1e39", "column `a`: 1e+39 does not fit float"),
        (Kind.FLOAT32, "-3.5e38", "column `a`: -3.5e+38 does not fit float"),
        (Array(Simple(Kind.FLOAT32)), "[1.5, 1e300]", "column `a`: [1.5, 1e+300] does not fit array<float>"),
        (
            Struct((Field("x", Map(Simple(Kind.STRING), Simple(Kind.FLOAT32))),)),
            '{"x": {"k": 1e39}}',
            "column `a`: {'x': {'k': 1e+39}} does not fit struct<x:map<string,float>>",
        ),
        # Arrow reads beyond its tables for these: one is 0.00 to it, the other takes the process down.
        (Decimal(10, 2), "1e-77", "column `a`: 1E-77 does not fit decimal(10,2)"),
        (Decimal(10, 2), "1e-100000000", "column `a`: 1E-100000000 does not fit decimal(10,2)"),
        (Decimal(10, 2), "1e100000000", "column `a`: 1E+100000000 does not fit decimal(10,2)"),
        (Decimal(10, 2), '"NaN"', "column `a`: NaN does not fit decimal(10,2)"),
        (Decimal(10, 2), '"-Infinity"', "column `a`: -Infinity does not fit decimal(10,2)"),
        (Array(Decimal(10, 2)), "[null, 1e-100000000]", None),
        (
            Kind.TIMESTAMP,
            '"2025-01-02T03:04:05.1234567Z"',
            f"column `a`: {NO_TIME} '2025-01-02T03:04:05.1234567Z'",
        ),
        (Kind.TIMESTAMP_NTZ, '"2025-01-02 03:04:05.000000001"', None),
        (Array(Simple(Kind.TIMESTAMP)), '["2025-01-02T03:04:05.123456789+02:00"]', None),
        (Kind.TIMESTAMP, '"2025-01-02T03:04:05\\u002e1234567Z"', None),
        (Kind.TIMESTAMP, '"10000-01-01T00:00:00Z"', f"column `a`: {NO_TIME} '10000-01-01T00:00:00Z'"),
        (Kind.DATE, '"10000-01-01"', "column `a`: expected a date, as in '2020-01-31', given '10000-01-01'"),
        (Kind.STRING, '"\\ud800"', None),
        (Kind.STRING, '"\\udc00\\ud800"', None),
        (Map(Simple(Kind.STRING), Simple(Kind.INT32)), '{"\\ud800": 1}', None),
        (Kind.INT64, "1" * 5000, None),
        (Kind.FLOAT64, "1" * 5000, None),
        (Kind.FLOAT64, f"1e{2**64}", None),
        (Kind.BINARY, '"AP8"', None),
    ],
)
def test_wrong_values_name_the_column(data_type: Kind | DataType, text: str, reason: str | None) -> None:
    """None: some reason."""
    decoded = decode({"a": data_type}, [b'{"a":null}', b'{"a":%s}' % text.encode(), b"{}"])
    assert decoded.rows.to_pylist() == [{"a": None}, {"a": None}]
    [broken] = decoded.broken
    assert broken.offset == 1
    assert broken.reason == reason if reason else broken.reason
    # It is broken whether or not somebody asks for the column.
    beside = decode({"a": data_type, "b": Kind.INT64}, [b'{"a":%s,"b":1}' % text.encode()], wanted=["b"])
    assert len(beside.broken) == 1


@pytest.mark.parametrize(
    ("data_type", "text", "value"),
    [
        (Kind.FLOAT32, "3.4028234663852886e38", 3.4028234663852886e38),
        (Kind.FLOAT32, "1e-300", 0.0),
        (Decimal(10, 2), "0e-100000000", Number("0.00")),
        (Decimal(10, 2), "1.500000000000000000000000000000000000000000000000000000000000", Number("1.50")),
        (Decimal(38, 0), "1" * 38, Number("1" * 38)),
        (Kind.TIMESTAMP, '"2025-01-02T03:04:05.123456000Z"', dt.datetime(2025, 1, 2, 3, 4, 5, 123456, UTC)),
        (Kind.TIMESTAMP, '"2025-01-02T03:04:05\\u002e5Z"', dt.datetime(2025, 1, 2, 3, 4, 5, 500000, UTC)),
        (Array(Simple(Kind.TIMESTAMP)), '["2025-01-02T03:04:05.1000000Z",null]', None),
        (Kind.STRING, '"\\ud83d\\ude00\\u0000\\u2028\\u0085"', "😀\x00\u2028\x85"),
        (Kind.STRING, '"a.1234567Z"', "a.1234567Z"),
        (Kind.FLOAT64, "0.12345678901234567", 0.12345678901234567),
    ],
)
def test_values_at_the_edge(data_type: Kind | DataType, text: str, value: Any) -> None:
    decoded = decode({"a": data_type, "t": Kind.TIMESTAMP}, [b'{"a": %s}' % text.encode()])
    assert not decoded.broken
    [row] = decoded.rows.to_pylist()
    assert row["a"] == value if value is not None else row["a"]


def test_a_finer_time_does_not_touch_its_neighbours() -> None:
    values = [b'{"t": "2025-01-01T00:00:00.%dZ"}' % digits for digits in (1234567, 123456, 12345678, 1234560)]
    decoded = decode({"t": Kind.TIMESTAMP}, values, wanted=["_offset"])
    assert decoded.rows.to_pydict() == {"_offset": [1, 3]}
    assert [broken.offset for broken in decoded.broken] == [0, 2]


def test_times_in_events_and_cells_are_looked_at_too() -> None:
    event = b'{"op": "c", "after": {"t": "2025-01-01T00:00:00.1234567Z"}}'
    assert len(decode({"t": Kind.TIMESTAMP}, [event], kafka_envelope="debezium").broken) == 1
    cells = [b"2025-01-01T00:00:00.1234567Z", b"2025-01-01T00:00:00.123456Z", b'"[""2025-01-01T00:00:00.1234567Z""]"']
    assert len(decode({"t": Kind.TIMESTAMP}, cells[:2], kafka_format="CSV").broken) == 1
    assert len(decode({"t": Array(Simple(Kind.TIMESTAMP))}, cells[2:], kafka_format="CSV").broken) == 1


def test_whether_a_message_is_broken_does_not_depend_on_the_columns_asked_for() -> None:
    columns: dict[str, Kind | DataType] = {"a": Kind.INT64, "d": Decimal(4, 1)}
    decoded = decode(columns, [b'{"a":1,"d":1.25}', b'{"a":2,"d":1.5}'], wanted=["a"])
    assert decoded.rows.to_pylist() == [{"a": 2}]
    assert len(decoded.broken) == 1


@pytest.mark.parametrize("mode", ["dead_letter", "stream"])
@pytest.mark.parametrize(
    ("reader", "form", "text"),
    [(CellReader, "CSV", "1,%s"), (ObjectReader, "JSONEachRow", '{"a":1,"d":%s}')],
)
def test_few_misfits_among_many_messages_cost_little(
    reader: type[CellReader], form: str, text: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted: list[int] = []
    convert = reader.array

    def counted(self: CellReader, values: Sequence[Any], column: Column) -> pa.Array:
        converted.append(len(values))
        return convert(self, values, column)

    monkeypatch.setattr(reader, "array", counted)
    bad = {0: "1.25", 77: "12345", 4095: "nix"}
    values = [(text % bad.get(index, "1.5")).encode() for index in range(4096)]
    columns: dict[str, Kind | DataType] = {"a": Kind.INT64, "d": Decimal(4, 1)}
    options: dict[str, Any] = {"kafka_format": form, "kafka_handle_error_mode": mode}
    decoded = decode(columns, values, wanted=["_offset", "d"], required=["a", "d"], **options)
    # Each conversion of a block costs about as much as that of one value.
    assert len(converted) < 100
    assert sum(converted) < 12 * len(values)
    assert [broken.offset for broken in decoded.broken] == list(bad)
    for broken in decoded.broken:
        alone = decode(columns, [broken.raw], required=["a", "d"], **options).broken
        assert [each.reason for each in alone] == [broken.reason]
    shown = [row["_offset"] for row in decoded.rows.to_pylist() if row["d"] is not None]
    assert shown == [index for index in range(len(values)) if index not in bad]
    assert decoded.rows.num_rows == len(values) - (len(bad) if mode == "dead_letter" else 0)


@pytest.mark.parametrize(
    ("form", "text", "count"),
    [("CSV", b"x", 1), ("CSV", b"x\ny\n", 2), ("LineAsString", b"x\ny\nz", 3), ("Raw", b"x", 1)],
)
def test_messages_without_content_leave_the_others_together(
    form: str, text: bytes, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CellReader, "_rows", None)
    decoded = decode({"x": Kind.STRING}, [None, text, b"", text, None], kafka_format=form)
    assert decoded.owners is not None
    assert decoded.owners.tolist() == [1] * count + [3] * count
    assert not decoded.broken


def test_several_objects_and_none() -> None:
    values = [b'{"a":1}{"a":2}\n {"a":3}', b" \n", b"", None, b'{\n "a" :\n4 }', b'{"a":5} {"a":"x"}', b"[]", b"null"]
    decoded = decode({"a": Kind.INT64}, values, wanted=["a", "_offset"])
    assert [tuple(row.values()) for row in decoded.rows.to_pylist()] == [(1, 0), (2, 0), (3, 0), (4, 4)]
    assert [broken.offset for broken in decoded.broken] == [5, 6, 7]


def test_not_null_and_defaults() -> None:
    columns = {"a": Kind.INT64, "b": Kind.STRING, "c": Kind.INT64}
    values = [b'{"a":1}', b'{"a":2,"b":null,"c":null}', b'{"b":"x"}', b'{"a":null}']
    decoded = decode(columns, values, required=["a", "c"], defaults={"b": "dflt", "c": 9})
    assert decoded.rows.to_pylist() == [{"a": 1, "b": "dflt", "c": 9}, {"a": 2, "b": None, "c": 9}]
    reasons = [broken.reason for broken in decoded.broken]
    assert reasons == ["column `a`: it is missing", "column `a`: NULL in a column that is NOT NULL"]


def test_unknown_fields_are_errors_when_asked() -> None:
    decoded = decode({"a": Kind.INT64}, [b'{"a":1,"z":2}'], input_format_skip_unknown_fields="0")
    assert decoded.broken[0].reason == "a name is no column, name z, row 1"


@pytest.mark.parametrize(
    ("data_type", "text", "value"),
    [
        (Kind.INT64, '"12"', 12),
        (Kind.INT64, "1e3", 1000),
        (Kind.INT64, '"1.0"', 1),
        (Kind.INT64, "true", 1),
        (Kind.BOOLEAN, '"true"', True),
        (Kind.BOOLEAN, "1", True),
        (Kind.FLOAT64, '"1.5"', 1.5),
        (Kind.STRING, "1.50", "1.50"),
        (Kind.TIMESTAMP, "1700000000", dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (Kind.TIMESTAMP, '"1700000000.25"', dt.datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)),
        (Kind.TIMESTAMP, '"2025-01-02"', dt.datetime(2025, 1, 2, tzinfo=UTC)),
        (Array(Simple(Kind.TIMESTAMP)), '[1700000000, "2025-01-02T00:00:00Z"]', None),
    ],
)
def test_numbers_and_texts_that_stand_for_others(data_type: Kind | DataType, text: str, value: Any) -> None:
    """Alone, and beside messages that need no judge."""
    for others in ([], [b'{"a":null}'] * 3):
        decoded = decode({"a": data_type}, [*others, b'{"a":%s}' % text.encode()])
        assert not decoded.broken
        found = decoded.rows.column("a").to_pylist()[-1]
        assert found == value if value is not None else found


def test_infinite_numbers_and_far_years() -> None:
    rows = decode({"a": Kind.FLOAT64}, [b'{"a":NaN}', b'{"a":-Infinity}']).rows.column("a")
    assert [str(value) for value in rows.to_pylist()] == ["nan", "-inf"]
    texts = ["0000-12-31T00:00:00Z", "0001-01-01T00:00:00+02:00", "9999-12-31T23:59:59-02:00", "+10000-01-01T00:00:00Z"]
    decoded = decode({"a": Kind.TIMESTAMP}, [f'{{"a":"{text}"}}'.encode() for text in texts])
    seconds = [-62_135_683_200, -62_135_604_000, 253_402_307_999, 253_402_300_800]
    assert decoded.rows.column("a").view("int64").to_pylist() == [each * 1_000_000 for each in seconds]


def test_csv_cells() -> None:
    columns: dict[str, Kind | DataType] = {
        "a": Kind.INT64,
        "s": Kind.STRING,
        "t": Kind.TIMESTAMP,
        "l": Array(Simple(Kind.INT32)),
        "b": Kind.BOOLEAN,
    }
    values = [b'1;"x;""y""\nz";2025-01-02 03:04:05;[1,2];true', b";;;;", b"\\N;\\N;\\N;\\N;\\N", b"q;;;;", b"1;2"]
    decoded = decode(columns, values, kafka_format="CSV", format_csv_delimiter=";")
    first, second, third = decoded.rows.to_pylist()
    when = dt.datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert first == {"a": 1, "s": 'x;"y"\nz', "t": when, "l": [1, 2], "b": True}
    assert second == {"a": None, "s": "", "t": None, "l": None, "b": None}
    assert set(third.values()) == {None}
    assert [broken.offset for broken in decoded.broken] == [3, 4]


#: Characters that end a line in Python only.
NO_ENDS = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_only_line_breaks_end_a_csv_line(end: str) -> None:
    text = f'1,{NO_ENDS}{end}2,"{NO_ENDS}{end}x"{end}{end}3,y'
    decoded = decode({"a": Kind.INT64, "s": Kind.STRING}, [text.encode()], kafka_format="CSV")
    assert not decoded.broken
    assert decoded.rows.to_pydict() == {"a": [1, 2, 3], "s": [NO_ENDS, f"{NO_ENDS}{end}x", "y"]}


def test_a_csv_value_may_be_as_long_as_a_message() -> None:
    long = "x" * 1_000_000
    decoded = decode({"a": Kind.INT64, "s": Kind.STRING}, [f'1,{long}\n2,"{long},"'.encode()], kafka_format="CSV")
    assert decoded.rows.to_pydict() == {"a": [1, 2], "s": [long, f"{long},"]}


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (r"\N,\N,\N", (None, None, None)),
        (r'"\N","a""\N""b",x\N', (r"\N", r'a"\N"b', r"x\N")),
        (r'"\N",\N,"\N"', (r"\N", None, r"\N")),
        (',"",', ("", "", "")),
        ('\ue000,"\\N",\\N', ("\ue000", "\\N", None)),
    ],
)
def test_null_and_text_in_csv(cells: str, values: tuple[str | None, ...]) -> None:
    columns = {"a": Kind.STRING, "b": Kind.STRING, "c": Kind.STRING}
    decoded = decode(columns, [cells.encode()], kafka_format="CSV")
    assert [tuple(row.values()) for row in decoded.rows.to_pylist()] == [values]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (b"1.5,x,", "column `a`: expected a whole number, given '1.5'"),
        (b"1,x,[1", "column `l`: expected JSON, as of each nested value in a cell, given '[1'"),
        (b'1,x,"[""y""]"', "column `l`: expected a whole number, given ['y']"),
        (b'1,"x', "a quote is not closed, row 1: unexpected end of data"),
        (b'1,"x"y,', "not CSV, row 1: ',' expected after '\"'"),
        (b"1,\xff,", "not valid UTF-8: invalid start byte at byte 2"),
        (
            b"1",
            "a row has another number of values than there are columns, row 1, values 1, columns 3 (a, s, l)",
        ),
    ],
)
def test_broken_csv(cells: bytes, reason: str) -> None:
    columns: dict[str, Kind | DataType] = {"a": Kind.INT64, "s": Kind.STRING, "l": Array(Simple(Kind.INT32))}
    decoded = decode(columns, [b"7,before,[]", cells, b"8,after,[]"], kafka_format="CSV")
    assert decoded.rows.column("a").to_pylist() == [7, 8]
    assert [broken.reason for broken in decoded.broken] == [reason]


def test_lines_end_with_line_breaks_only() -> None:
    text = "a\x0b\x0c\x1c\x1d\x1e\x85\u2028b"
    lines = decode({"x": Kind.STRING}, [f"{text}\r\n\n{text}\r{text}".encode()], kafka_format="LineAsString")
    assert lines.rows.to_pydict() == {"x": [text, "", text, text]}


def test_each_row_knows_its_message() -> None:
    values = [b'{"a":1}', b'{"a":2}{"a":3}', b"{", b"", b'{"a":4}']
    owners = decode({"a": Kind.INT64}, values).owners
    assert owners is not None
    assert owners.tolist() == [0, 1, 1, 4]
    assert decode({"a": Kind.INT64}, [b'{"a":1}', b'{"a":2}']).owners is None


def test_raw_and_lines() -> None:
    assert decode({"x": Kind.BINARY}, [b"\xff", b"a"], kafka_format="Raw").rows.to_pydict() == {"x": [b"\xff", b"a"]}
    lines = decode({"x": Kind.STRING}, [b"a\nb\n", b"c", b"\xff"], kafka_format="LineAsString")
    assert lines.rows.to_pydict() == {"x": ["a", "b", "c"]}
    assert lines.broken[0].reason.startswith("not valid UTF-8")
    with pytest.raises(FormatError):
        decoder({"x": Kind.STRING, "y": Kind.STRING}, kafka_format="RawBLOB")


def test_virtual_columns() -> None:
    wanted = ["_topic", "_partition", "_offset", "_timestamp", "_timestamp_ms", "_key", "_headers", "_content", "a"]
    decoded = decode({"a": Kind.INT64}, [b'{"a":1}{"a":2}'], wanted=wanted)
    at = dt.datetime(2025, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    expected = ["topic", 3, 0, at.replace(microsecond=0), at, "k0", [("h", "v"), ("n", None)], '{"a":1}{"a":2}']
    assert [list(row.values()) for row in decoded.rows.to_pylist()] == [[*expected, 1], [*expected, 2]]


def test_stream_mode_keeps_a_row_for_each_broken_message() -> None:
    wanted = ["a", "_offset", "_error", "_raw_message"]
    values = [b'{"a":1}', b"\xfe", b'{"a":3}']
    decoded = decode({"a": Kind.INT64}, values, wanted=wanted, required=["a"], kafka_handle_error_mode="stream")
    told = "not valid UTF-8: invalid start byte at byte 0"
    assert [list(row.values()) for row in decoded.rows.to_pylist()][0::2] == [[1, 0, None, None], [3, 2, None, None]]
    row = decoded.rows.to_pylist()[1]
    assert (row["a"], row["_offset"], row["_raw_message"]) == (None, 1, "\\xfe")
    assert row["_error"] == told
