"""Decoding of single messages: what each type takes, and what is told of a message that it does not take."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal as Number
from typing import Any

import pytest

from tests.unit.ingest.decoding import decode, decoder
from tilth.ingest import FormatError
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct

UTC = dt.UTC


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
        (Kind.INT64, '"1"', "column `a`: expected `int | null`, got `str`"),
        (Kind.INT8, "128", "column `a`: expected `int` <= 127"),
        (Kind.INT64, "1.5", "column `a`: expected `int | null`, got `float`"),
        (Kind.STRING, "1", "column `a`: expected `str | null`, got `int`"),
        (Kind.BOOLEAN, "1", "column `a`: expected `bool | null`, got `int`"),
        (Kind.DATE, '"2025-02-30"', "column `a`: invalid RFC3339 encoded date"),
        (Kind.TIMESTAMP, "1700000000", "column `a`: expected `datetime | null`, got `int`"),
        (Kind.FLOAT64, "1e400", "column `a`: number out of range"),
        (Decimal(4, 1), "1.25", "column `a`: 1.25 does not fit decimal(4,1)"),
        (Decimal(4, 1), "12345", "column `a`: 12345 does not fit decimal(4,1)"),
        (Array(Simple(Kind.INT32)), '["x"]', "column `a`: expected `int | null`, got `str`"),
        (Kind.FLOAT64, "NaN", "JSON is malformed: invalid character (byte 5)"),
    ],
)
def test_wrong_values_name_the_column(data_type: Kind | DataType, text: str, reason: str) -> None:
    decoded = decode({"a": data_type}, [b'{"a":null}', b'{"a":%s}' % text.encode(), b"{}"])
    assert decoded.rows.to_pylist() == [{"a": None}, {"a": None}]
    assert [(broken.offset, broken.reason) for broken in decoded.broken] == [(1, reason)]


def test_whether_a_message_is_broken_does_not_depend_on_the_columns_asked_for() -> None:
    columns: dict[str, Kind | DataType] = {"a": Kind.INT64, "d": Decimal(4, 1)}
    decoded = decode(columns, [b'{"a":1,"d":1.25}', b'{"a":2,"d":1.5}'], wanted=["a"])
    assert decoded.rows.to_pylist() == [{"a": 2}]
    assert len(decoded.broken) == 1


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
    assert reasons == ["Object missing required field `a`", "column `a`: expected `int`, got `null`"]


def test_unknown_fields_are_errors_when_asked() -> None:
    decoded = decode({"a": Kind.INT64}, [b'{"a":1,"z":2}'], input_format_skip_unknown_fields="0")
    assert decoded.broken[0].reason == "Object contains unknown field `z`"


def test_numbers_in_strings_when_asked() -> None:
    values = [b'{"a":"12","b":"true"}']
    decoded = decode({"a": Kind.INT64, "b": Kind.BOOLEAN}, values, input_format_json_read_numbers_from_strings="1")
    assert decoded.rows.to_pylist() == [{"a": 12, "b": True}]


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
    assert row["_error"] in (told, "JSON is malformed: invalid character (byte 0)")
