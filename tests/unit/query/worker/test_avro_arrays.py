"""Values of Avro files as columns, and back; files are written and read by another library on one side."""

from __future__ import annotations

import io
import json
import math
import uuid
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.avro_files import avro_file, avro_file_of_values, flat
from tilth.base.rand import new_rng
from tilth.query.errors import UnreadableFileError
from tilth.query.language.avro_types import read_avro_schema
from tilth.query.worker import avro_arrays
from tilth.query.worker.avro_arrays import arrays_of, decoded_rows
from tilth.query.worker.avro_blocks import read_blocks, read_header

Row = dict[str, Any]


def logical(kind: str, logical_type: str, **facts: object) -> dict[str, object]:
    return {"type": kind, "logicalType": logical_type, **facts}


def table_of(file: bytes) -> tuple[pa.Table, dict[int, str]]:
    """The rows of a file, and problems by the number of the row."""
    source = io.BytesIO(file)
    header = read_header(source)
    record = read_avro_schema(header.schema)
    names = [name for name, _ in record.fields]
    problems: dict[int, str] = {}
    batches = []
    for rows in decoded_rows(record, read_blocks(source, header, 0, len(file))):
        arrays, found = arrays_of(record, names, rows.values)
        problems |= {rows.first + row: why for row, why in found.items()}
        batches.append(pa.table(arrays, names=names))
    return pa.concat_tables(batches), problems


def rows_of(file: bytes) -> list[Row]:
    table, problems = table_of(file)
    assert not problems
    found: list[Row] = table.to_pylist()
    return found


ENUM = {"type": "enum", "name": "E", "symbols": ["x", "y"]}
PAIR = {"type": "record", "name": "P", "fields": [{"name": "e", "type": ["null", ENUM]}, {"name": "n", "type": "int"}]}


def test_values_keep_their_meaning() -> None:
    schema = flat(
        a="long",
        f=["null", "float"],
        d=logical("int", "date"),
        t=logical("long", "timestamp-millis"),
        n=logical("long", "local-timestamp-micros"),
        m=logical("bytes", "decimal", precision=38, scale=38),
        h=["null", logical("fixed", "decimal", name="D", size=9, precision=20, scale=0)],
        i=logical("string", "uuid"),
        y="bytes",
        u=["int", "null", "string", PAIR],
        l={"type": "array", "items": ["P", "null"]},
        x={"type": "map", "values": ["null", {"type": "array", "items": "E"}]},
    )
    key = uuid.UUID(int=1)
    small = Decimal("0." + "9" * 38)
    first: Row = {
        "a": -(1 << 63),
        "f": None,
        "d": date(1, 1, 1),
        "t": datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        "n": datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC).replace(tzinfo=None),
        "m": Decimal(f"-{small}"),
        "h": Decimal(-(10**20) + 1),
        "i": key,
        "y": b"\0\xff",
        "u": {"e": "y", "n": 5},
        "l": [None, {"e": None, "n": -1}],
        "x": {"": None, "ü": ["x", "y"]},
    }
    second = {**first, "f": -0.0, "h": None, "m": small, "u": "text", "l": [], "x": {}}
    found = rows_of(avro_file(schema, [first, second, {**second, "u": None}, {**second, "u": 7}]))
    members = {"member0": None, "member1": None, "member2": None}
    expected = {**first, "i": str(key), "u": {**members, "member2": {"e": "y", "n": 5}}, "x": list(first["x"].items())}
    assert found[0] == expected
    assert math.copysign(1, found[1]["f"]) == -1
    assert [each["u"] for each in found[1:]] == [{**members, "member1": "text"}, None, {**members, "member0": 7}]
    assert (found[1]["h"], found[1]["m"], found[1]["l"], found[1]["x"]) == (None, small, [], [])


@pytest.mark.parametrize(
    ("kind", "stored", "good", "bad", "why"),
    [
        ("string", "bytes", b"ok", b"\xed\xa0\x80", "not UTF-8"),
        ({"type": "array", "items": "string"}, {"type": "array", "items": "bytes"}, [b"ok"], [b"", b"\xff"], "UTF-8"),
        (logical("long", "timestamp-millis"), "long", 1, (1 << 63) - 1, "out of range"),
        (logical("long", "timestamp-millis"), "long", 1, -(1 << 60), "out of range"),
        (logical("long", "timestamp-nanos"), "long", -5000, -5001, "finer"),
        (logical("bytes", "decimal", precision=3, scale=1), "bytes", b"\x03\xe7", b"\x03\xe8", "more than 3 digits"),
        (logical("bytes", "decimal", precision=38, scale=0), "bytes", b"", b"\x7f" * 16, "more than 38 digits"),
        (logical("bytes", "decimal", precision=38, scale=0), "bytes", b"\xff", b"\x80" * 40, "more than 38 digits"),
    ],
)
def test_a_value_that_does_not_fit_touches_its_row_alone(
    kind: object, stored: object, good: object, bad: object, why: str
) -> None:
    rows = [{"a": {"v": value}} for value in (good, bad, good)]
    inner = {"type": "record", "name": "I", "fields": [{"name": "v", "type": kind}]}
    other = {"type": "record", "name": "I", "fields": [{"name": "v", "type": stored}]}
    table, problems = table_of(avro_file_of_values(flat(a=inner), flat(a=other), rows))
    assert list(problems) == [1]
    assert problems[1].startswith("column `a.v")
    assert why in problems[1]
    assert table.slice(0, 1).equals(table.slice(2, 1))


def test_nulls_fit_every_type() -> None:
    types = ["int", logical("long", "timestamp-nanos"), PAIR, {"type": "map", "values": "int"}, ENUM["name"]]
    names = "abcde"
    schema = flat(**{name: ["null", kind] for name, kind in zip(names, types, strict=True)})
    assert rows_of(avro_file(schema, [dict.fromkeys(names)] * 3)) == [dict.fromkeys(names)] * 3


def test_rows_come_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    file = avro_file(
        flat(a="long", s="string"), [{"a": each, "s": "x" * 20} for each in range(1000)], sync_interval=4000
    )
    source = io.BytesIO(file)
    header = read_header(source)
    record = read_avro_schema(header.schema)

    def sizes() -> list[tuple[int, int]]:
        found = decoded_rows(record, read_blocks(source, header, 0, len(file)))
        return [(rows.first, len(rows.values)) for rows in found]

    for name, value, largest in (("BATCH_ROWS_MAX", 10, 10), ("BATCH_BYTES_MAX", 230, 11)):
        with monkeypatch.context() as patch:
            patch.setattr(avro_arrays, name, value)
            found = sizes()
        assert max(count for _, count in found) == largest
        assert [first for first, _ in found] == [sum(count for _, count in found[:at]) for at in range(len(found))]
        assert sum(count for _, count in found) == 1000


def test_a_truncated_stream_of_zstandard_is_refused() -> None:
    data = b"".join(fastavro_long(each) for each in range(1000))
    packed = pa.Codec("zstd").compress(data, asbytes=True)
    for part in (packed, packed[: len(packed) // 2], b""):
        head = io.BytesIO()
        metadata = {"avro.schema": json.dumps(flat(a="long")).encode(), "avro.codec": b"zstandard"}
        fastavro.schemaless_writer(head, {"type": "map", "values": "bytes"}, metadata)
        block = fastavro_long(1000) + fastavro_long(len(part)) + part
        file = b"Obj\x01" + head.getvalue() + bytes(16) + block + bytes(16)
        if part is packed:
            assert table_of(file)[0].num_rows == 1000
            continue
        with pytest.raises(UnreadableFileError):
            table_of(file)


def fastavro_long(value: int) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, "long", value)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "stored", "value"),
    [
        ("long", "bytes", b"abc"),
        (flat(x="int") | {"name": "X"}, "int", 1 << 31),
        (ENUM, "int", 2),
        (ENUM, "int", -1),
        (["null", "int"], "long", 5),
        ("string", "long", -5),
        ("string", "long", 1 << 40),
        ({"type": "array", "items": "int"}, "long", 1 << 60),
    ],
)
def test_bytes_that_are_no_records_are_refused(kind: object, stored: object, value: object) -> None:
    file = avro_file_of_values(flat(a=kind), flat(a="long" if stored == "int" else stored), [{"a": value}])
    with pytest.raises(UnreadableFileError):
        table_of(file)


def test_damaged_records_are_an_error_or_other_values() -> None:
    schema = flat(
        a="long", s=["null", "string"], p=PAIR, l={"type": "array", "items": "P"}, x={"type": "map", "values": "E"}
    )
    pair = {"e": "x", "n": 3}
    good = avro_file(
        schema, [{"a": each, "s": "text", "p": pair, "l": [pair] * 3, "x": {"k": "y"}} for each in range(20)]
    )
    rand = new_rng(3)
    for _ in range(1500):
        bad = bytearray(good)
        bad[int((1 + 2 * rand.random()) / 3 * len(bad))] ^= 1 << int(8 * rand.random())
        with suppress(UnreadableFileError):
            table_of(bytes(bad))[0].validate(full=True)
