"""Which parts a predicate rules out, decided from the ranges that the catalog keeps of each part. Pure.

Always holds: a part that holds a matching row is never ruled out. A predicate is true, false or null for a row, and
only rows for which it is true are wanted: so both "may be true" and "may be false" are followed, and NOT changes them
over.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, assert_never

import msgspec

from tilth.model.part import Bound, ColumnRange, Part
from tilth.model.table import TableDef
from tilth.model.types import DataType
from tilth.model.types import Decimal as DecimalType
from tilth.sql.predicates import (
    AllOf,
    AnyOf,
    Compare,
    Comparison,
    HasPrefix,
    IsIn,
    IsNull,
    Negation,
    Predicate,
    Unknown,
)

_OPPOSITE = {
    Comparison.LESS: Comparison.GREATER_OR_EQUAL,
    Comparison.LESS_OR_EQUAL: Comparison.GREATER,
    Comparison.GREATER: Comparison.LESS_OR_EQUAL,
    Comparison.GREATER_OR_EQUAL: Comparison.LESS,
}


def keeper(predicate: Predicate, table: TableDef) -> Callable[[Part], bool]:
    """The test that a part must pass to be read; the predicate names the table's present columns."""
    types = {column.name: column.type for column in table.schema.columns}

    def keep(part: Part) -> bool:
        return _may_be(predicate, as_present(part, table), types, wanted=True)

    return keep


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


def _may_be(predicate: Predicate, part: Part, types: dict[str, DataType], *, wanted: bool) -> bool:
    """Whether some row of the part may make the predicate true (or false, when that is wanted)."""
    match predicate:
        case Unknown():
            return True
        case AllOf(items=items):
            answers = (_may_be(item, part, types, wanted=wanted) for item in items)
            return all(answers) if wanted else any(answers)
        case AnyOf(items=items):
            answers = (_may_be(item, part, types, wanted=wanted) for item in items)
            return any(answers) if wanted else all(answers)
        case Negation(item=item):
            return _may_be(item, part, types, wanted=not wanted)
        case IsNull(column=column):
            known = part.ranges.get(column)
            return known is None or (known.nulls > 0 if wanted else known.nulls < part.rows)
        case Compare() | IsIn() | HasPrefix():
            return _may_compare(predicate, part, types, wanted=wanted)
    assert_never(predicate)


def _may_compare(
    predicate: Compare | IsIn | HasPrefix, part: Part, types: dict[str, DataType], *, wanted: bool
) -> bool:
    known, data_type = part.ranges.get(predicate.column), types.get(predicate.column)
    if known is None or data_type is None:
        return True
    if known.nulls >= part.rows:
        return False  # NULL compared with anything is neither true nor false.
    low, high = _bounds(known, data_type)
    match predicate:
        case Compare(comparison=comparison, value=value):
            return _may_hold(comparison, _readable(value, data_type), low, high, wanted=wanted)
        case IsIn(values=values):
            readable = [_readable(value, data_type) for value in values if value is not None]
            if wanted:
                return any(_may_hold(Comparison.EQUAL, value, low, high, wanted=True) for value in readable)
            return None not in values and all(
                _may_hold(Comparison.EQUAL, value, low, high, wanted=False) for value in readable
            )
        case HasPrefix(prefix=prefix):
            if not wanted:
                return True
            return (high is None or high >= prefix) and (low is None or low[: len(prefix)] <= prefix)
    assert_never(predicate)


# Any: bounds and values of one column are of one type that has an order, whichever it is.
def _may_hold(comparison: Comparison, value: Any, low: Any, high: Any, *, wanted: bool) -> bool:
    """Whether `x <comparison> value` may be true (or false) for an x from low to high; None: no bound on that side."""
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
    """The bounds as values with an order; where NaNs are, which Spark sorts above all numbers, ranges have no high."""
    return _readable(known.low, data_type), _readable(known.high, data_type)


def _readable(value: Bound, data_type: DataType) -> Any:
    return Decimal(value) if isinstance(data_type, DecimalType) and isinstance(value, str) else value
