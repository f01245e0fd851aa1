"""Parts that a predicate rules out, by the ranges that the catalog keeps of each part. Pure.

Always holds: a part that holds a matching row is never ruled out. A predicate is true, false or null for a row, and
only rows for which it is true are wanted: so both "may be true" and "may be false" are followed, and NOT changes them
over.

Tests: tests/property/test_sql_prune.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, assert_never

import msgspec

from tilth.model.part import Bound, ColumnRange, Part
from tilth.model.table import TableDef
from tilth.model.types import DataType
from tilth.model.types import Decimal as DecimalType
from tilth.query.snapshots.predicates import (
    AllOf,
    AnyOf,
    Compare,
    Comparison,
    HasPrefix,
    IsIn,
    IsNull,
    Negation,
    Predicate,
    Undecided,
)
from tilth.query.snapshots.simplify import bounded, joined

Keep = Callable[[Part], bool]

_OPPOSITE = {
    Comparison.LESS: Comparison.GREATER_OR_EQUAL,
    Comparison.LESS_OR_EQUAL: Comparison.GREATER,
    Comparison.GREATER: Comparison.LESS_OR_EQUAL,
    Comparison.GREATER_OR_EQUAL: Comparison.LESS,
}


def keeper(predicate: Predicate, table: TableDef) -> Keep:
    """The test that a part must pass to be read; the predicate names the table's present columns.

    A list is sorted once: n values cost n log n, and then each part log n.
    """
    may_be_true = range_test(predicate, {column.name: column.type for column in table.schema.columns})

    def keep(part: Part) -> bool:
        return may_be_true(as_present(part, table))

    return keep


def range_test(predicate: Predicate, types: Mapping[str, DataType]) -> Keep:
    """The test of rows whose number and ranges a part has, under the names that the predicate uses."""
    return _test(bounded(joined(predicate)), types, wanted=True)


def as_present(part: Part, table: TableDef) -> Part:
    """The part with its ranges under the present names. A range counts only for the column (by id) that it was made of,
    and only while its type is the same."""
    if part.schema_version == table.schema_version:
        return part
    written = table.schema_of(part.schema_version)
    before = {} if written is None else {column.id: column for column in written.columns}
    ranges: dict[str, ColumnRange] = {}
    for column in table.schema.columns:
        old = before.get(column.id)
        if old is not None and old.type == column.type and old.name in part.ranges:
            ranges[column.name] = part.ranges[old.name]
    return msgspec.structs.replace(part, ranges=ranges)


def _test(predicate: Predicate, types: Mapping[str, DataType], *, wanted: bool) -> Keep:
    """Test if some row of a part may make the predicate true (or false, when that is wanted)."""
    match predicate:
        case Undecided():
            return _always
        case AllOf(items=items):
            return _combined(items, types, wanted=wanted, needs_all=wanted)
        case AnyOf(items=items):
            return _combined(items, types, wanted=wanted, needs_all=not wanted)
        case Negation(item=item):
            return _test(item, types, wanted=not wanted)
        case IsNull(column=column):
            return _null_test(column, wanted=wanted)
        case Compare(column=column) | IsIn(column=column) | HasPrefix(column=column):
            data_type = types.get(column)
            return _always if data_type is None else _column_test(predicate, data_type, wanted=wanted)
    assert_never(predicate)


def _always(part: Part) -> bool:
    return True


def _combined(items: Sequence[Predicate], types: Mapping[str, DataType], *, wanted: bool, needs_all: bool) -> Keep:
    tests = [_test(item, types, wanted=wanted) for item in items]
    if needs_all:
        return lambda part: all(test(part) for test in tests)
    return lambda part: any(test(part) for test in tests)


def _null_test(column: str, *, wanted: bool) -> Keep:
    def may_be(part: Part) -> bool:
        known = part.ranges.get(column)
        return known is None or (known.nulls > 0 if wanted else known.nulls < part.rows)

    return may_be


def _column_test(predicate: Compare | IsIn | HasPrefix, data_type: DataType, *, wanted: bool) -> Keep:
    column, may_hold = predicate.column, _bounds_test(predicate, data_type, wanted=wanted)

    def may_be(part: Part) -> bool:
        known = part.ranges.get(column)
        if known is None:
            return True
        if known.nulls >= part.rows:
            return False  # NULL compared with anything is neither true nor false.
        return may_hold(*_bounds(known, data_type))

    return may_be


def _bounds_test(
    predicate: Compare | IsIn | HasPrefix, data_type: DataType, *, wanted: bool
) -> Callable[[Any, Any], bool]:
    """Test of a column whose values are from low to high; None: no bound on that side."""
    match predicate:
        case Compare(comparison=comparison, value=value):
            single = _readable(value, data_type)
            return lambda low, high: _may_hold(comparison, single, low, high, wanted=wanted)
        case IsIn(values=values):
            ordered = sorted(_readable(value, data_type) for value in values if value is not None)
            if wanted:
                return lambda low, high: _is_any_within(ordered, low, high)
            if None in values:
                return lambda low, high: False
            # A range of one value that is in the list has nothing outside of the list.
            return lambda low, high: low is None or low != high or not _is_any_within(ordered, low, high)
        case HasPrefix(prefix=prefix):
            if not wanted:
                return lambda low, high: True
            return lambda low, high: (high is None or high >= prefix) and (low is None or low[: len(prefix)] <= prefix)
    assert_never(predicate)


def _is_any_within(ordered: Sequence[Any], low: Any, high: Any) -> bool:
    """True if one of the values, which are in order, is from low to high."""
    first = 0 if low is None else bisect_left(ordered, low)
    return first < len(ordered) and (high is None or bool(ordered[first] <= high))


# Any: bounds and values of one column are of one type that has an order, whichever it is.
def _may_hold(comparison: Comparison, value: Any, low: Any, high: Any, *, wanted: bool) -> bool:
    """True if `x <comparison> value` may be true (or false) for an x from low to high; None: no bound on that side."""
    if comparison is Comparison.EQUAL and not wanted:
        return low is None or high is None or not (low == value == high)
    if not wanted:
        comparison = _OPPOSITE[comparison]
    match comparison:
        case Comparison.EQUAL:
            return (low is None or bool(low <= value)) and (high is None or bool(value <= high))
        case Comparison.LESS:
            return low is None or bool(low < value)
        case Comparison.LESS_OR_EQUAL:
            return low is None or bool(low <= value)
        case Comparison.GREATER:
            return high is None or bool(high > value)
        case Comparison.GREATER_OR_EQUAL:
            return high is None or bool(high >= value)
    assert_never(comparison)


def _bounds(known: ColumnRange, data_type: DataType) -> tuple[Any, Any]:
    """Bounds as values with an order; where NaNs are, which Spark sorts above all numbers, ranges have no high."""
    return _readable(known.low, data_type), _readable(known.high, data_type)


def _readable(value: Bound, data_type: DataType) -> Any:
    return Decimal(value) if isinstance(data_type, DecimalType) and isinstance(value, str) else value
