"""Transforms and the names of partitions."""

import datetime
import zlib

import pyarrow as pa
import pytest

from tilth.model.part import Bound, parse_part_name
from tilth.model.table import Column, Schema, Transform, TransformKind
from tilth.model.types import Array, Decimal, Kind, Simple
from tilth.storage import BadPartitionError, arrow_schema, check_partition_by, partition_id, partition_ids

K = TransformKind
SCHEMA = Schema(
    columns=(
        Column(id=1, name="s", type=Simple(Kind.STRING)),
        Column(id=2, name="t", type=Simple(Kind.TIMESTAMP)),
        Column(id=3, name="n", type=Simple(Kind.INT64)),
        Column(id=4, name="d", type=Simple(Kind.DATE)),
        Column(id=5, name="m", type=Decimal(5, 2)),
        Column(id=6, name="f", type=Simple(Kind.FLOAT64)),
        Column(id=7, name="l", type=Array(Simple(Kind.INT64))),
        Column(id=8, name="b", type=Simple(Kind.BINARY)),
        Column(id=9, name="w", type=Simple(Kind.TIMESTAMP_NTZ)),
        Column(id=10, name="i", type=Simple(Kind.INT32)),
    )
)
LATE = datetime.datetime(2013, 1, 5, 14, 3, 7)  # noqa: DTZ001  # made aware where it matters
EARLY = datetime.datetime(1969, 12, 31, 23, 59, 59)  # noqa: DTZ001


def _transform(kind: TransformKind, column: str, argument: int | None = None) -> Transform:
    return Transform(kind=kind, column=column, argument=argument)


def _ids(values: list[object], *transforms: Transform) -> list[str]:
    column = transforms[0].column
    field = arrow_schema(SCHEMA).field(column)
    rows = pa.table([pa.array(values, field.type)], schema=pa.schema([field]))
    found = partition_ids(SCHEMA, transforms, rows)
    assert len(set(found.ids)) == len(found.ids)
    return [found.ids[index] for index in found.indices]


@pytest.mark.parametrize(
    ("transform", "values", "expected"),
    [
        (_transform(K.TO_DATE, "t"), [LATE, EARLY, None], ["2013-01-05", "1969-12-31", "null"]),
        (_transform(K.TO_YYYYMM, "t"), [LATE, EARLY], ["201301", "196912"]),
        (_transform(K.TO_YYYYMMDD, "w"), [LATE, EARLY], ["20130105", "19691231"]),
        (_transform(K.TO_YYYYMM, "d"), [LATE.date()], ["201301"]),
        (_transform(K.TO_START_OF_HOUR, "t"), [LATE, EARLY], ["2013-01-05T14", "1969-12-31T23"]),
        (_transform(K.TO_MONDAY, "t"), [LATE, EARLY, None], ["2012-12-31", "1969-12-29", "null"]),
        (_transform(K.TO_MONDAY, "d"), [LATE.date()], ["2012-12-31"]),
        (_transform(K.TO_START_OF_MONTH, "t"), [LATE, EARLY, None], ["2013-01-01", "1969-12-01", "null"]),
        (_transform(K.TO_YEAR, "w"), [LATE, EARLY], ["2013", "1969"]),
        (_transform(K.TO_HOUR, "t"), [LATE, EARLY, None], ["14", "23", "null"]),
        (_transform(K.MODULO, "n", 4), [-5, 7, -(2**63), None], ["-1", "3", "0", "null"]),
        (_transform(K.IDENTITY, "d"), [LATE.date()], ["2013-01-05"]),
        (_transform(K.IDENTITY, "n"), [-5, 7], ["-5", "7"]),
        (_transform(K.IDENTITY, "s"), ["us-east", "a b", "null", None], ["us-east", "x-612062", "x-6e756c6c", "null"]),
        (_transform(K.TRUNCATE, "n", 10), [-1, -10, 0, 19], ["-10", "-10", "0", "10"]),
        (
            _transform(K.TRUNCATE, "i", 10),
            [-(2**31), -(2**31) + 8, 2**31 - 1],
            ["-2147483648", "-2147483640", "2147483640"],
        ),
        (_transform(K.TRUNCATE, "i", 2**40), [-(2**31), -1, 0], ["-2147483648", "-2147483648", "0"]),
        (_transform(K.TRUNCATE, "n", 10), [-(2**63), -(2**63) + 8, 0], [str(-(2**63)), str(-(2**63) + 8), "0"]),
        (_transform(K.TRUNCATE, "s", 2), ["abc", "abd", "äöü"], ["ab", "ab", "x-c3a4c3b6"]),
    ],
    ids=str,
)
def test_transforms(transform: Transform, values: list[object], expected: list[str]) -> None:
    assert _ids(values, transform) == expected


def test_a_bucket_is_the_checksum_of_the_text() -> None:
    assert _ids(["a", "b"], _transform(K.BUCKET, "s", 16)) == [str(zlib.crc32(text) % 16) for text in (b"a", b"b")]
    assert _ids([42], _transform(K.BUCKET, "n", 16)) == [str(zlib.crc32(b"42") % 16)]
    assert _ids([b"\xff"], _transform(K.BUCKET, "b", 16)) == [str(zlib.crc32(b"\xff") % 16)]


def test_without_partition_by_all_rows_are_one_partition() -> None:
    found = partition_ids(SCHEMA, (), pa.table({"n": [1, 2]}))
    assert (found.ids, found.values, found.indices.tolist()) == (("all",), ((),), [0, 0])
    assert partition_ids(SCHEMA, (), pa.table({"n": pa.array([], pa.int64())})).ids == ()


def test_values_are_those_of_the_catalog() -> None:
    rows = pa.table({"s": ["x", None], "t": pa.array([LATE, EARLY], pa.timestamp("us", "UTC"))})
    by = (_transform(K.IDENTITY, "s"), _transform(K.TO_START_OF_HOUR, "t"))
    found = partition_ids(SCHEMA, by, rows)
    assert dict(zip(found.ids, found.values, strict=True)) == {
        "x-78-2013-01-05T14": ("x", 1357394400000000),
        "null-1969-12-31T23": (None, -3600000000),
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a-b", "c"), ("a", "b-c")),
        (("x", "61"), ("a", None)),
        (("null", "a"), (None, "a")),
        (("", "a"), ("a", "")),
        (("x-61", "b"), ("a", "b")),
        (("a" * 100, "b"), ("a" * 101, "b")),
    ],
    ids=str,
)
def test_different_values_have_different_ids(one: tuple[Bound, ...], other: tuple[Bound, ...]) -> None:
    schema = Schema(
        columns=(Column(id=1, name="a", type=Simple(Kind.STRING)), Column(id=2, name="b", type=Simple(Kind.STRING)))
    )
    by = (_transform(K.IDENTITY, "a"), _transform(K.IDENTITY, "b"))
    ids = [partition_id(schema, by, values) for values in (one, other)]
    assert ids[0] != ids[1]
    for text in ids:
        assert parse_part_name(f"{text}_1_1_0_9").partition == text


def test_a_day_that_no_calendar_has_still_has_a_name() -> None:
    assert partition_id(SCHEMA, (_transform(K.TO_DATE, "t"),), (10_000_000,)) == "d10000000"


@pytest.mark.parametrize(
    "transform",
    [
        _transform(K.TO_DATE, "n"),
        _transform(K.TO_START_OF_HOUR, "d"),
        _transform(K.TO_MONDAY, "n"),
        _transform(K.TO_HOUR, "d"),
        _transform(K.MODULO, "n"),
        _transform(K.MODULO, "n", 1 << 63),
        _transform(K.MODULO, "f", 4),
        _transform(K.TRUNCATE, "n"),
        _transform(K.TRUNCATE, "m", 3),
        _transform(K.BUCKET, "n", 0),
        _transform(K.BUCKET, "f", 4),
        _transform(K.IDENTITY, "f"),
        _transform(K.IDENTITY, "l"),
        _transform(K.IDENTITY, "missing"),
    ],
    ids=str,
)
def test_a_transform_that_does_not_fit_is_refused_by_name(transform: Transform) -> None:
    with pytest.raises(BadPartitionError, match=f"column={transform.column}"):
        check_partition_by(SCHEMA, (transform,))
