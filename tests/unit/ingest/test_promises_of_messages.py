"""What the declared types of a Kafka table promise: a message that breaks it is broken, and says why.

Modules: ingest/messages/decode.py, storage/values/checks.py.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Mapping, Sequence

import pytest

from tests.unit.ingest.decoding import batch_of
from tilth.grammar.statements import CreateTable
from tilth.ingest.messages.decode import Decoded, Decoder
from tilth.ingest.settings import read_config
from tilth.model.table import KafkaDef, Schema
from tilth.statements.definitions.columns import column_of
from tilth.statements.registry import parse


def decode(
    columns: str, values: Sequence[bytes], defaults: Mapping[str, object] | None = None, **settings: str
) -> Decoded:
    """The rows of these messages of a Kafka table with these columns, `c Type, ..`."""
    statement = parse(f"CREATE TABLE k ({columns}) ENGINE = Kafka")
    assert isinstance(statement, CreateTable)
    schema = Schema(columns=tuple(column_of(spec, n) for n, spec in enumerate(statement.columns, start=1)))
    given = {
        "kafka_broker_list": "b:1",
        "kafka_topic_list": "t",
        "kafka_group_name": "g",
        "kafka_format": "JSONEachRow",
    } | settings
    kafka = KafkaDef(uuid="u", database="d", name="k", schema=schema, settings=given)
    decoder = Decoder(schema, read_config(kafka), columns=schema.names, defaults=defaults or {})
    return decoder.decode("t", 0, batch_of(values))


def reasons(decoded: Decoded) -> Mapping[int, str]:
    return {broken.offset: broken.reason for broken in decoded.broken}


@pytest.mark.parametrize(
    ("declared", "good", "bad", "why"),
    [
        ("UInt8", "255", "256", "column `c`: 256, but expected a number from 0 to 255"),
        ("Enum('a')", '"a"', '"b"', "column `c`: b, but expected one of 'a'"),
        ("UUID", '"61F0C404-5CB3-11E7-907B-A6006AD3DBA0"', '"x"', "column `c`: x, but expected a UUID"),
        ("DateTime", '"2026-01-01T00:00:00Z"', '"2026-01-01T00:00:00.5Z"', "but expected whole seconds"),
        ("Array(VARCHAR(1))", '["a"]', '["a", "bc"]', "column `c`: bc, but expected at most 1 characters"),
        ("Float32", "1e38", "1e39", "column `c`: 1e+39 does not fit Float32"),
        ("Array(Float32)", "[1.5]", "[1, 1e39]", "does not fit Array(Float32)"),
        ("UInt64", "18446744073709551615", '"x"', "column `c`: expected a number, given 'x'"),
        ("LowCardinality(String)", '"a"', "[]", "column `c`: expected text in quotes, given []"),
        ("Decimal64(1)", "1.5", "1.25", "column `c`: 1.25 does not fit Decimal64(1)"),
    ],
)
def test_a_message_that_breaks_a_promise_is_broken(declared: str, good: str, bad: str, why: str) -> None:
    lines = [b'{"c":%s}' % text.encode() for text in (good, bad, good)]
    decoded = decode(f"c {declared}", lines)
    assert decoded.rows.num_rows == 2
    assert list(reasons(decoded)) == [1]
    assert why in reasons(decoded)[1]


@pytest.mark.parametrize(
    ("declared", "given", "read"),
    [
        ("Float64", '"1.5"', 1.5),
        ("Float32", '"-0.5"', -0.5),
        ("Int32", '"12"', 12),
        ("UInt8", '"255"', 255),
        ("UInt64", '"18446744073709551615"', 2**64 - 1),
        ("Decimal(10, 2)", '"1.25"', decimal.Decimal("1.25")),
        ("Float64", '"x"', "column `c`: expected a number, given 'x'"),
        ("UInt8", '"256"', "column `c`: 256, but expected a number from 0 to 255"),
        ("DateTime", "1700000000", dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)),
        ("DateTime", '"1700000000"', dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)),
        ("DateTime64", "1700000000123", dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=dt.UTC)),
        ("Nullable(DateTime64(6))", "1700000000123456", dt.datetime(2023, 11, 14, 22, 13, 20, 123_456, tzinfo=dt.UTC)),
        ("DateTime64(3)", "-1", dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)),
        ("DateTime64(3)", '"2023-11-14T22:13:20Z"', dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)),
        ("DateTime64(3)", "null", None),
        ("DateTime64(3)", "9223372036854775807", "column `c`: expected a time within 64 bits of microseconds"),
        ("DateTime64(3)", "99999999999999999999999999", "column `c`: "),
        ("DateTime64(3)", "true", "column `c`: expected a time"),
        ("TIMESTAMP", "1700000000", dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)),
    ],
)
def test_numbers_in_quotes_and_numbers_of_times(declared: str, given: str, read: object) -> None:
    decoded = decode(f"c {declared}", [b'{"c":%s}' % given.encode()])
    found = decoded.rows.column("c").to_pylist()
    if isinstance(read, str):
        assert not found
        assert reasons(decoded)[0].startswith(read)
    else:
        assert (found, reasons(decoded)) == ([read], {})


@pytest.mark.parametrize(
    ("declared", "default", "read"),
    [
        ("Array(UInt8)", [1, 2], [1, 2]),
        ("Array(Decimal(4, 1))", [], []),
        ("Map(String, Decimal(4, 1))", [("a", decimal.Decimal("1.5"))], [("a", decimal.Decimal("1.5"))]),
        ("Map(String, Int8)", [], []),
        ("Tuple(a Int8, b Array(String))", {"a": 0, "b": ["x"]}, {"a": 0, "b": ["x"]}),
    ],
)
@pytest.mark.parametrize("not_null", ["", " NOT NULL"])
def test_what_is_missing_gets_a_default_with_others_in_it(
    declared: str, not_null: str, default: object, read: object
) -> None:
    decoded = decode(f"c {declared}{not_null}", [b"{}", b'{"c": null}', b"{}"], {"c": default})
    found = [read, read if not_null else None, read]
    assert (decoded.rows.column("c").to_pylist(), reasons(decoded)) == (found, {})


FINE = "2026-01-01T00:00:00.1234567Z"


@pytest.mark.parametrize("wrap", ["{}", "[{}]", '{{"x":{}}}', "[[{}]]"])
def test_digits_below_the_microsecond_break_a_message(wrap: str) -> None:
    declared = {
        "{}": "TIMESTAMP",
        "[{}]": "Array(TIMESTAMP)",
        '{{"x":{}}}': "Tuple(x TIMESTAMP)",
        "[[{}]]": "Array(Array(TIMESTAMP_NTZ))",
    }
    zeros = "2026-01-01T00:00:00.123456000Z".removesuffix("Z" if "NTZ" in declared[wrap] else "")
    lines = [f'{{"c":{wrap.format(json.dumps(text))}}}'.encode() for text in (zeros, FINE, zeros)]
    decoded = decode(f"c {declared[wrap]}", lines)
    assert list(reasons(decoded)) == [1]
    assert "with at most 6 digits behind the second" in reasons(decoded)[1]
    assert decoded.rows.num_rows == 2


def test_digits_elsewhere_break_nothing() -> None:
    line = b'{"c":"2026-01-01T00:00:00Z","s":"%s","f":0.12345678901}' % FINE.encode()
    decoded = decode("c TIMESTAMP, s String, f Float64", [line])
    assert (decoded.rows.num_rows, decoded.broken) == (1, ())


def test_several_objects_of_a_message_and_an_envelope_are_looked_at_too() -> None:
    good, bad = '{"c":"2026-01-01T00:00:00Z"}', f'{{"c":"{FINE}"}}'
    decoded = decode("c TIMESTAMP", [f"{good}{bad}".encode(), f"{good}{good}".encode()])
    assert (list(reasons(decoded)), decoded.rows.num_rows) == ([0], 2)
    event = f'{{"payload":{{"op":"c","before":null,"after":{bad}}}}}'.encode()
    decoded = decode("c TIMESTAMP", [event, event.replace(b"567Z", b"Z")], kafka_envelope="debezium")
    assert (list(reasons(decoded)), decoded.rows.num_rows) == ([0], 1)


def test_a_zone_is_that_of_times_without_one() -> None:
    lines = [b'{"c":"2026-01-01 08:00:00","l":[{"m":"2026-01-01 08:00:00"},null]}', b'{"c":"2026-01-01T00:00:00Z"}']
    decoded = decode("c DateTime('Asia/Shanghai'), l Array(Map(String, DateTime64(3, 'Asia/Shanghai')))", lines)
    instant = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert decoded.rows.column("c").to_pylist() == [instant, instant]
    assert decoded.rows.column("l").to_pylist() == [[[("m", instant)], None], None]


def test_csv_cells_keep_what_they_hold() -> None:
    long = "z" * 200_000
    cells = f'"a\u2028b\x0b\x85\nc",AAE=,"[""2026-01-01T00:00:00Z""]"\n"{long}",,\\N\nx,,{FINE}'
    decoded = decode("s String, x Binary, l Array(TIMESTAMP)", [cells.encode()], kafka_format="CSV")
    assert list(reasons(decoded)) == [0]
    decoded = decode("s String, x Binary, l Array(TIMESTAMP)", [cells.rpartition("\n")[0].encode()], kafka_format="CSV")
    first, second = decoded.rows.to_pylist()
    assert (first["s"], first["x"]) == ("a\u2028b\x0b\x85\nc", b"\x00\x01")
    assert (second["s"], second["x"], second["l"]) == (long, b"", None)
    fine = f'x,,"[""{FINE}""]"'.encode()
    decoded = decode("s String, x Binary, l Array(TIMESTAMP)", [fine], kafka_format="CSV")
    assert "with at most 6 digits behind the second" in reasons(decoded)[0]
