"""Which values Parquet's filters misjudge, and how parts on which they must not be used are distinguished."""

from __future__ import annotations

import datetime
import math
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tilth.model.part import DataFile, Part, PartName
from tilth.model.table import Column, Schema, SchemaVersion, TableDef
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct
from tilth.storage.values.arrow import arrow_type
from tilth.storage.values.scan_options import UNFILTERABLE_KINDS, can_filter
from tilth.storage.values.shapes import scans_of
from tilth.storage.values.unfilterable import (
    DAYS_MIN,
    MICROSECONDS_MIN,
    NOTHING,
    Unfilterable,
    leaves_of,
    unfilterable_in,
    unfilterable_paths,
)

DOUBLE, DATE, TIME = Simple(Kind.FLOAT64), Simple(Kind.DATE), Simple(Kind.TIMESTAMP)
BOTH = Unfilterable(statistics=frozenset({"x"}), dictionary=frozenset({"x"}))
STATISTICS, DICTIONARY = Unfilterable(statistics=frozenset({"x"})), Unfilterable(dictionary=frozenset({"x"}))
DEEP = Struct((Field("a", Simple(Kind.STRING)), Field("b", Array(Map(Simple(Kind.STRING), DOUBLE)))))


@pytest.mark.parametrize("kind", Kind)
def test_both_worlds_of_types_agree(kind: Kind) -> None:
    paths = unfilterable_paths(pa.schema([("x", arrow_type(Simple(kind))), ("y", pa.float64())]), {"x"})
    assert paths == ({"x"} if kind in UNFILTERABLE_KINDS else set())


def test_a_path_of_two_leaves_is_never_trusted() -> None:
    schema = pa.schema([("a.b", pa.string()), ("a", pa.struct([("b", pa.string()), ("c", pa.string())]))])
    assert unfilterable_paths(schema, ()) == {"a.b"}
    assert unfilterable_paths(schema, {"a"}) == {"a.b"}


def test_leaves_are_spelled_as_parquet_spells_them() -> None:
    kind = arrow_type(Struct((Field("m", Map(Simple(Kind.STRING), Array(DATE))), Field("d", Decimal(9, 2)))))
    leaves = [(leaf.column, leaf.path) for leaf in leaves_of(pa.schema([("x", kind), ("y", pa.int64())]))]
    assert leaves == [
        ("x", "x.m.key_value.key"),
        ("x", "x.m.key_value.value.list.element"),
        ("x", "x.d"),
        ("y", "y"),
    ]


@pytest.mark.parametrize(
    ("of", "values", "expected"),
    [
        (DOUBLE, [1.0, None, math.inf, 5e-324], NOTHING),
        (DOUBLE, [1.0, math.nan], STATISTICS),
        (DOUBLE, [1.0, 0.0], DICTIONARY),
        (DOUBLE, [-0.0, math.nan], BOTH),
        (Simple(Kind.FLOAT32), [-0.0], DICTIONARY),
        (DATE, [DAYS_MIN, None, 2932896], NOTHING),
        (DATE, [DAYS_MIN, DAYS_MIN - 1], BOTH),
        (TIME, [MICROSECONDS_MIN, None], NOTHING),
        (TIME, [MICROSECONDS_MIN - 1], BOTH),
        (Simple(Kind.TIMESTAMP_NTZ), [-(2**62)], NOTHING),
        (Simple(Kind.INT64), [0], NOTHING),
        (Simple(Kind.STRING), ["NaN"], NOTHING),
        (DOUBLE, [], NOTHING),
        (DOUBLE, [None, None], NOTHING),
        (Struct((Field("a", DOUBLE), Field("b", DATE))), [{"a": 1.0, "b": 0}, None], NOTHING),
        (Struct((Field("a", DOUBLE), Field("b", DATE))), [{"a": 1.0, "b": -200_000}], BOTH),
        (Array(DOUBLE), [[], None, [1.0, None], [math.nan]], STATISTICS),
        (Map(DOUBLE, Simple(Kind.INT64)), [[(0.0, 1)]], DICTIONARY),
        (DEEP, [{"a": "", "b": [[("k", 1.0)], None, []]}, None], NOTHING),
        (DEEP, [{"a": "", "b": [[("k", 1.0)], [("k", math.nan)]]}], STATISTICS),
    ],
    ids=str,
)
def test_values_that_are_unfilterable(of: DataType, values: list[Any], expected: Unfilterable) -> None:
    array = pa.array(values, arrow_type(of))
    assert unfilterable_in(pa.table({"x": array, "y": pa.nulls(len(values), pa.float64())})) == expected
    # In stretches too, each of which has its own rows only.
    chunks = pa.chunked_array([array.slice(index, 1) for index in range(len(values))], arrow_type(of))
    assert unfilterable_in(pa.table({"x": chunks})) == expected


def test_a_stretch_is_judged_by_its_own_rows() -> None:
    rows = pa.table({"x": pa.array([[math.nan], [1.0], [0.0]], pa.list_(pa.float64()))})
    assert [unfilterable_in(rows.slice(index, 1)) for index in range(3)] == [STATISTICS, NOTHING, DICTIONARY]


def test_the_bounds_are_days() -> None:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert (epoch + datetime.timedelta(days=DAYS_MIN)).isoformat() == "1583-01-01T00:00:00+00:00"
    assert (epoch + datetime.timedelta(microseconds=MICROSECONDS_MIN)).isoformat() == "1900-01-02T00:00:00+00:00"


def test_a_file_of_which_it_is_not_known_is_filtered_where_no_value_misleads() -> None:
    file = DataFile(name="1-0.0-0.parquet", size=10, checksum=7)
    plain = Schema(columns=(Column(id=1, name="s", type=Map(Simple(Kind.STRING), Decimal(9, 2))),))
    assert can_filter(plain, file)
    for of in (DOUBLE, Array(DATE), DEEP, Map(TIME, Simple(Kind.STRING))):
        schema = Schema(columns=(*plain.columns, Column(id=2, name="x", type=of)))
        assert not can_filter(schema, file)
        assert can_filter(schema, msgspec.structs.replace(file, is_filterable=True))


def _part(number: int, version: int, *, is_filterable: bool) -> Part:
    file = DataFile(name=f"{number}.parquet", size=1, checksum=0, is_filterable=is_filterable)
    return Part(name=PartName("all", number, number, 0, number), schema_version=version, rows=1, file=file)


def test_one_part_does_not_take_the_filters_from_others() -> None:
    before = Schema(columns=(Column(id=1, name="k", type=Simple(Kind.INT64)),))
    now = Schema(columns=(*before.columns, Column(id=2, name="x", type=DOUBLE)))
    table = TableDef(
        uuid="a",
        database="d",
        name="t",
        schema=now,
        schema_version=2,
        older_schemas=(SchemaVersion(version=1, schema=before),),
    )
    parts = [
        _part(1, 1, is_filterable=False),
        _part(2, 2, is_filterable=True),
        _part(3, 2, is_filterable=False),
        _part(4, 1, is_filterable=True),
    ]
    scans = scans_of(table, parts)
    # The first one's file has no column whose values could be unfilterable.
    assert [(scan.is_filterable, [file.name for file in scan.files]) for scan in scans] == [
        (False, ["3.parquet"]),
        (True, ["1.parquet", "2.parquet", "4.parquet"]),
    ]
