"""Filters that Spark offers a data source, as predicates over the ranges that the catalog keeps of parts.

Covers: which filters rule parts and row groups out. Does not cover: leaving rows out, which Spark does itself with each
of these filters: a filter that is not understood costs time and no row. Always holds: a value that is not of its
column's type, and one that Spark orders otherwise than Python, decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as PyDecimal
from typing import Any

from pyspark.sql import datasource as spark

from tilth.model.part import Bound
from tilth.model.types import DataType, Decimal, Kind, Simple
from tilth.query.snapshots.predicates import (
    AllOf,
    Compare,
    Comparison,
    HasPrefix,
    IsIn,
    IsNull,
    Negation,
    Predicate,
    Undecided,
)

_COMPARISONS: Mapping[type[spark.Filter], Comparison] = {
    spark.EqualTo: Comparison.EQUAL,
    spark.GreaterThan: Comparison.GREATER,
    spark.GreaterThanOrEqual: Comparison.GREATER_OR_EQUAL,
    spark.LessThan: Comparison.LESS,
    spark.LessThanOrEqual: Comparison.LESS_OR_EQUAL,
}
_INTEGERS = frozenset({Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64})
_FLOATS = frozenset({Kind.FLOAT32, Kind.FLOAT64})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def predicate_of(filters: Iterable[spark.Filter], types: Mapping[str, DataType]) -> Predicate:
    """All of the filters as one predicate over columns of these types."""
    return AllOf(tuple(_predicate(each, types) for each in filters))


# A filter's values are of any type that Spark has in Python.
def _predicate(given: Any, types: Mapping[str, DataType]) -> Predicate:
    if isinstance(given, spark.Not):
        return Negation(_predicate(given.child, types))
    path = given.attribute
    if len(path) != 1 or path[0] not in types:
        # A field of a struct.
        return Undecided()
    column, data_type = path[0], types[path[0]]
    match given:
        case spark.IsNull():
            return IsNull(column)
        case spark.IsNotNull():
            return Negation(IsNull(column))
        case spark.EqualNullSafe(value=None):
            return IsNull(column)
        case spark.EqualNullSafe(value=value):
            # False and not NULL for a NULL, so that its negation is true there.
            return AllOf((_compared(column, Comparison.EQUAL, value, data_type), Negation(IsNull(column))))
        case spark.In(value=values):
            return _in(column, values, data_type)
        case spark.StringStartsWith(value=prefix) if data_type == Simple(Kind.STRING):
            return HasPrefix(column, prefix)
    comparison = _COMPARISONS.get(type(given))
    return Undecided() if comparison is None else _compared(column, comparison, given.value, data_type)


def _compared(column: str, comparison: Comparison, value: object, data_type: DataType) -> Predicate:
    bound = bound_in(value, data_type)
    return Undecided() if bound is None else Compare(column, comparison, bound)


def _in(column: str, values: Iterable[object], data_type: DataType) -> Predicate:
    bounds: list[Bound] = []
    for value in values:
        bound = None if value is None else bound_in(value, data_type)
        if bound is None and value is not None:
            return Undecided()
        bounds.append(bound)
    return IsIn(column, tuple(bounds))


def bound_in(value: object, data_type: DataType) -> Bound:
    """Return a value as the catalog keeps bounds of a column; None: it decides nothing there."""
    if isinstance(data_type, Decimal):
        return format(value, "f") if isinstance(value, PyDecimal) and value.is_finite() else None
    if not isinstance(data_type, Simple):
        return None
    kind = data_type.kind
    # In Python a truth value is a number, and a time a day.
    if isinstance(value, bool):
        return value if kind is Kind.BOOLEAN else None
    if isinstance(value, int):
        return value if kind in _INTEGERS else None
    if isinstance(value, float):
        return value if kind in _FLOATS and not math.isnan(value) else None
    if isinstance(value, str):
        return value if kind is Kind.STRING else None
    if isinstance(value, datetime):
        return _micros(value, kind)
    if isinstance(value, date):
        return value.toordinal() - _EPOCH.toordinal() if kind is Kind.DATE else None
    return None


def _micros(value: datetime, kind: Kind) -> int | None:
    if (kind is Kind.TIMESTAMP_NTZ) != (value.tzinfo is None) or kind not in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ):
        return None
    return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
