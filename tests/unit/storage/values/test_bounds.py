"""Bounds of columns, and the order of rows as numbers."""

import datetime
from decimal import Decimal as Number

import pyarrow as pa
import pytest

from tilth.model.part import ColumnRange
from tilth.storage.values.bounds import join_ranges, range_of
from tilth.storage.values.order import ranks_of, stable_order

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([3, None, 1]), ColumnRange(1, 3, 1)),
        (pa.array([None, None], pa.int64()), ColumnRange(None, None, 2)),
        (pa.array(["b", "a"]).dictionary_encode(), ColumnRange("a", "b", 0)),
        (pa.array([datetime.date(1970, 1, 3)]), ColumnRange(2, 2, 0)),
        (pa.array([7], pa.timestamp("us", "UTC")), ColumnRange(7, 7, 0)),
        (pa.array([Number("1.50"), Number("-2.00")]), ColumnRange("-2.00", "1.50", 0)),
        (pa.array([1.0, NAN]), ColumnRange(1.0, None, 0)),
        (pa.array([NAN]), ColumnRange(None, None, 0)),
        (pa.array(["a" * 300, "b" * 300]), ColumnRange("a" * 256, None, 0)),
        (pa.array([b"x"]), ColumnRange(None, None, 0)),
        (pa.array([[1], None]), ColumnRange(None, None, 1)),
        (pa.array([True, False]), ColumnRange(False, True, 0)),
    ],
    ids=str,
)
def test_ranges(values: pa.Array, expected: ColumnRange) -> None:
    assert range_of(pa.chunked_array([values])) == expected


def test_ranges_join() -> None:
    one, other, unknown = ColumnRange(1, 3, 1), ColumnRange(2, 9, 0), ColumnRange(None, None, 0)
    assert join_ranges(one, other, one_rows=5, other_rows=5) == ColumnRange(1, 9, 1)
    assert join_ranges(one, unknown, one_rows=5, other_rows=5) == ColumnRange(None, None, 1)
    assert join_ranges(ColumnRange(None, None, 2), other, one_rows=2, other_rows=5) == ColumnRange(2, 9, 2)
    assert join_ranges(other, ColumnRange(None, None, 2), one_rows=5, other_rows=2) == ColumnRange(2, 9, 2)


def test_decimal_bounds_join_by_value_only_when_known_to() -> None:
    nine, ten = ColumnRange("9.0", "9.0", 0), ColumnRange("10.0", "10.0", 0)
    joined = join_ranges(nine, ten, one_rows=1, other_rows=1, is_decimal=True)
    assert joined == ColumnRange("9.0", "10.0", 0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2, None, 1], [None, 1, 2]),
        ([-(2**63), None, 5], [None, -(2**63), 5]),
        (["b", None, "B", "", "ä"], [None, "", "B", "b", "ä"]),
        ([float("inf"), -1.0, None, -float("inf"), 0.0], [None, -float("inf"), -1.0, 0.0, float("inf")]),
        ([b"\xff", b"\x00", None], [None, b"\x00", b"\xff"]),
        ([Number("10.5"), Number("9.5")], [Number("9.5"), Number("10.5")]),
        ([True, None, False], [None, False, True]),
    ],
    ids=str,
)
def test_nulls_come_first_then_values_ascend(values: list[object], expected: list[object]) -> None:
    array = pa.chunked_array([pa.array(values)])
    order = stable_order(ranks_of([array], len(values)))
    assert array.take(pa.array(order)).to_pylist() == expected


def test_nan_is_above_all_and_zero_has_one_sign() -> None:
    array = pa.chunked_array([pa.array([NAN, float("inf"), 0.0, -0.0])])
    ranks = ranks_of([array], 4).tolist()
    assert ranks[2] == ranks[3]
    assert ranks[0] > ranks[1] > ranks[2]


def test_keys_too_wide_for_one_number_still_compare() -> None:
    wide = pa.chunked_array([pa.array([2**62, -(2**62), 2**62, 0])])
    other = pa.chunked_array([pa.array([2**62, 5, -(2**62), 0])])
    assert stable_order(ranks_of([wide, other], 4)).tolist() == [1, 3, 2, 0]


def test_without_keys_the_order_stays() -> None:
    assert stable_order(ranks_of([], 3)).tolist() == [0, 1, 2]
