"""Filters of Spark as predicates: a part with a row that the filters match is never ruled out."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from tests.long import examples
from tilth.datasource.filters import bound_in, predicate_of
from tilth.model.part import Bound, ColumnRange, DataFile, Part, PartName
from tilth.model.types import DataType, Decimal, Kind, Simple
from tilth.query.snapshots.predicates import AllOf, Compare, Comparison, IsNull, Negation, Undecided
from tilth.query.snapshots.prune import range_test

_FILE = DataFile(name="1-0.0-0.parquet", size=1, checksum=0)
_ATTRIBUTE = ("c",)
_VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    Simple(Kind.INT64): st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]),
    Simple(Kind.FLOAT64): st.sampled_from([math.nan, -0.0, 0.0, 1.5, math.inf, -math.inf]),
    Simple(Kind.STRING): st.sampled_from(["", "a", "ab", "b", "\x00", "ü", "'\"`", "\U0001f600"]),
    Simple(Kind.BOOLEAN): st.booleans(),
    Decimal(10, 2): st.sampled_from([Number("-1.00"), Number("0"), Number("99999999.99")]),
    Simple(Kind.DATE): st.sampled_from([date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    Simple(Kind.TIMESTAMP): st.sampled_from([datetime(1970, 1, 1, tzinfo=UTC), datetime(2262, 4, 12, tzinfo=UTC)]),
}
_BINARY = (
    spark.EqualTo,
    spark.EqualNullSafe,
    spark.GreaterThan,
    spark.GreaterThanOrEqual,
    spark.LessThan,
    spark.LessThanOrEqual,
)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[DataType, Any, spark.Filter]:
    data_type = draw(st.sampled_from(list(_VALUES)))
    values = _VALUES[data_type]
    row = draw(st.none() | values)
    kinds: list[st.SearchStrategy[spark.Filter]] = [
        st.builds(lambda of, value: of(_ATTRIBUTE, value), st.sampled_from(_BINARY), values),
        st.builds(lambda of: of(_ATTRIBUTE), st.sampled_from((spark.IsNull, spark.IsNotNull))),
        st.builds(
            lambda value: spark.In(_ATTRIBUTE, tuple(value)), st.lists(st.none() | values, min_size=1, max_size=3)
        ),
    ]
    if data_type == Simple(Kind.STRING):
        kinds.append(st.builds(lambda value: spark.StringStartsWith(_ATTRIBUTE, value), values))
    found = draw(st.one_of(kinds))
    return data_type, row, spark.Not(found) if draw(st.booleans()) else found


@given(_cases())
@settings(max_examples=examples(300))
def test_a_row_that_matches_is_never_ruled_out(case: tuple[DataType, Any, spark.Filter]) -> None:
    data_type, row, found = case
    keep = range_test(predicate_of([found], {"c": data_type}), {"c": data_type})
    if _truth(found, row):
        assert keep(_part(row, data_type))


def test_what_a_range_excludes_is_ruled_out() -> None:
    types: dict[str, DataType] = {"c": Simple(Kind.INT64)}
    part = _part(5, types["c"])
    kept = [
        range_test(predicate_of([each], types), types)(part)
        for each in (
            spark.EqualTo(_ATTRIBUTE, 4),
            spark.Not(spark.EqualTo(_ATTRIBUTE, 5)),
            spark.In(_ATTRIBUTE, (1, 2)),
            spark.IsNull(_ATTRIBUTE),
            spark.EqualNullSafe(_ATTRIBUTE, 4),
            spark.Not(spark.EqualNullSafe(_ATTRIBUTE, 5)),
            spark.EqualTo(_ATTRIBUTE, 5),
        )
    ]
    assert kept == [False, False, False, False, False, False, True]


def test_all_filters_are_one_predicate() -> None:
    types: dict[str, DataType] = {"c": Simple(Kind.INT64), "s.f": Simple(Kind.STRING)}
    found = predicate_of(
        [spark.GreaterThan(_ATTRIBUTE, 1), spark.IsNotNull(("s.f",)), spark.EqualTo(("s", "f"), "x")], types
    )
    assert found == AllOf((Compare("c", Comparison.GREATER, 1), Negation(IsNull("s.f")), Undecided()))


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        (True, Simple(Kind.INT64)),
        (1, Simple(Kind.BOOLEAN)),
        (1, Simple(Kind.STRING)),
        ("1", Simple(Kind.INT64)),
        (math.nan, Simple(Kind.FLOAT64)),
        (Number("NaN"), Decimal(3, 1)),
        (datetime(2026, 1, 1, tzinfo=UTC), Simple(Kind.DATE)),
        (datetime(2026, 1, 1, tzinfo=UTC), Simple(Kind.TIMESTAMP_NTZ)),
        (b"a", Simple(Kind.BINARY)),
        ([1], Simple(Kind.INT64)),
    ],
)
def test_a_value_of_another_type_decides_nothing(value: object, data_type: DataType) -> None:
    assert bound_in(value, data_type) is None


def test_times_are_days_and_microseconds() -> None:
    assert bound_in(date(1969, 12, 31), Simple(Kind.DATE)) == -1
    assert bound_in(datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC), Simple(Kind.TIMESTAMP)) == 1_000_005
    assert bound_in(datetime(1970, 1, 1, 0, 0, 1, 5), Simple(Kind.TIMESTAMP_NTZ)) == 1_000_005  # noqa: DTZ001


def _part(row: Any, data_type: DataType) -> Part:
    """A part of one row, with the ranges that its writer would note."""
    if row is None:
        known = ColumnRange(None, None, 1)
    else:
        bound: Bound = bound_in(row, data_type)
        known = ColumnRange(bound, bound, 0)
    return Part(name=PartName("all", 1, 1, 0, 1), schema_version=1, rows=1, file=_FILE, ranges={"c": known})


def _truth(found: Any, row: Any) -> bool | None:
    """What Spark says of the row: true, false, or None for NULL. NaN equals NaN and is above all numbers."""
    if isinstance(found, spark.Not):
        truth = _truth(found.child, row)
        return None if truth is None else not truth
    if isinstance(found, spark.IsNull | spark.IsNotNull):
        return (row is None) is isinstance(found, spark.IsNull)
    if isinstance(found, spark.EqualNullSafe):
        return row is not None and _compare(row, found.value) == 0
    if row is None:
        return None
    if isinstance(found, spark.In):
        if any(value is not None and _compare(row, value) == 0 for value in found.value):
            return True
        return None if None in found.value else False
    if isinstance(found, spark.StringStartsWith):
        return bool(row.startswith(found.value))
    order = _compare(row, found.value)
    return {
        spark.EqualTo: order == 0,
        spark.GreaterThan: order > 0,
        spark.GreaterThanOrEqual: order >= 0,
        spark.LessThan: order < 0,
        spark.LessThanOrEqual: order <= 0,
    }[type(found)]


def _compare(left: Any, right: Any) -> int:
    if isinstance(left, float):
        nans = math.isnan(left), math.isnan(right)
        if any(nans):
            return int(nans[0]) - int(nans[1])
    return int(left > right) - int(left < right)
