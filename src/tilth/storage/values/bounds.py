"""Bounds of a column's values in a part, for the catalog: the smallest, the largest, the number of nulls.

Covers: values as bounds, ranges of Arrow columns, joining ranges. Does not cover: pruning (sql).
Always holds: a bound that is not None is true for every value; None means not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal as PyDecimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tilth.model.part import Bound, ColumnRange

#: Maximum length of a string bound: a longer string has a prefix as the low bound, and no high bound.
STRING_CHARACTERS_MAX = 256


def range_of(values: pa.ChunkedArray) -> ColumnRange:
    """Range of a column; types without an order have none."""
    nulls = values.null_count
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = pc.cast(values, kind.value_type), kind.value_type
    if nulls == len(values) or pa.types.is_nested(kind) or pa.types.is_binary(kind):
        return ColumnRange(None, None, nulls)
    found = pc.min_max(values)
    low, high = bound_of(found["min"]), bound_of(found["max"])
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(values)).as_py():
        # NaN is greater than all else in Spark; Arrow leaves it out.
        return ColumnRange(None if _is_nan(low) else low, None, nulls)
    if isinstance(low, str) and isinstance(high, str) and pa.types.is_string(kind):
        return ColumnRange(low[:STRING_CHARACTERS_MAX], high if len(high) <= STRING_CHARACTERS_MAX else None, nulls)
    return ColumnRange(low, high, nulls)


def join_ranges(
    one: ColumnRange, other: ColumnRange, *, one_rows: int, other_rows: int, is_decimal: bool = False
) -> ColumnRange:
    """Join the ranges of two stretches of one column, given how many rows each has."""
    nulls = one.nulls + other.nulls
    if one.nulls == one_rows:
        return ColumnRange(other.low, other.high, nulls)
    if other.nulls == other_rows:
        return ColumnRange(one.low, one.high, nulls)
    # Decimals are kept as text, which does not compare as they do.
    key: Callable[[Any], Any] = PyDecimal if is_decimal else _as_it_is
    low = None if one.low is None or other.low is None else min(one.low, other.low, key=key)
    high = None if one.high is None or other.high is None else max(one.high, other.high, key=key)
    return ColumnRange(low, high, nulls)


def bound_of(scalar: pa.Scalar) -> Bound:
    """A value as the catalog keeps it: dates as days, timestamps as microseconds, decimals as text; no binary, and no
    string that is not UTF-8."""
    kind = scalar.type
    if not scalar.is_valid or pa.types.is_binary(kind) or pa.types.is_nested(kind):
        return None
    if pa.types.is_temporal(kind):
        number: int = scalar.value
        return number
    try:
        value = scalar.as_py()
    except UnicodeDecodeError:
        # Spark's strings are any bytes; the catalog's are text.
        return None
    if isinstance(value, PyDecimal):
        return format(value, "f")
    assert isinstance(value, bool | int | float | str)
    return value


# Any: bounds of one column are all of one type, and that type compares.
def _as_it_is(bound: Any) -> Any:
    return bound


def _is_nan(bound: Bound) -> bool:
    return isinstance(bound, float) and math.isnan(bound)
