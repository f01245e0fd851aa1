"""Python values to Arrow columns; a value that its type cannot hold is an error, never another value.

Covers: decimals with exponents for which Arrow reads beyond its tables, the zones that a column declares for times
without one, what the declared type promises. Does not cover: reading messages (objects.py), columns of stored tables
(tilth.storage).
Always holds: what `array_of` returns reads back equal to what it was given, to the nearest float for FLOAT.

Tests: tests/unit/ingest/messages/test_decode.py.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from tilth.model.checks import KEY, Path
from tilth.model.table import Column
from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple, Struct, leaves_of
from tilth.storage import array_of as stored_array
from tilth.storage import misfits

# A decoded value of any type.
Value = Any


def in_zones(values: Sequence[Value], column: Column) -> Sequence[Value]:
    """The values, with the zones that the column declares for times without one."""
    for path, zone in column.zones:
        values = [_in_zone(value, column.type, path, ZoneInfo(zone)) for value in values]
    return values


def _in_zone(value: Value, data_type: DataType, path: Path, zone: ZoneInfo) -> Value:
    match data_type:
        # Values that `to_stored` has made are numbers and lists of pairs, to which their zone was applied.
        case Array(element=element) if isinstance(value, list):
            return [_in_zone(item, element, path[1:], zone) for item in value]
        case Map(key=key, value=of) if isinstance(value, dict):
            is_key = path[0] == KEY
            return {
                _in_zone(one, key, path[1:], zone) if is_key else one: item
                if is_key
                else _in_zone(item, of, path[1:], zone)
                for one, item in value.items()
            }
        case Struct(fields=fields) if isinstance(value, dict):
            inner = next(field.type for field in fields if field.name == path[0])
            return {**value, path[0]: _in_zone(value.get(path[0]), inner, path[1:], zone)}
    return value.replace(tzinfo=zone) if isinstance(value, datetime) and value.tzinfo is None else value


#: Exceptions that `array_of` raises for a value that does not fit.
MISFITS = (pa.ArrowException, ArithmeticError, ValueError, TypeError)

_FLOAT = Simple(Kind.FLOAT32)
_TIMES = (Simple(Kind.TIMESTAMP), Simple(Kind.TIMESTAMP_NTZ))
#: End of the year 9999, in microseconds.
LAST_TIME = 253_402_300_799_999_999


class BrokenCheckError(ValueError):
    """a value that the declared type does not have"""


def checked_array(values: Sequence[Any], column: Column) -> pa.Array:
    """The values as the column; raises one of MISFITS where one does not fit, BrokenCheckError among them."""
    array = array_of(in_zones(values, column), column.type)
    for wrong in misfits(array, column)[:1] if column.checks else ():
        raise BrokenCheckError(f"{wrong.value}, but {wrong.why}")
    return array


def array_of(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """The values as a column; raises one of MISFITS where one does not fit."""
    if any(isinstance(leaf, Decimal) for leaf in leaves_of(data_type)):
        fitted = _fitting(data_type)
        values = [None if value is None else fitted(value) for value in values]
    return stored_array(values, data_type)


def may_misfit(column: Column) -> bool:
    """True if a value that was decoded as the column's type may still not fit it."""
    kind = column.type
    return bool(column.checks) or isinstance(kind, Decimal) or is_nested(kind) or kind in (_FLOAT, *_TIMES)


def _fitting(data_type: DataType) -> Callable[[Any], Any]:
    """Bring the decimals of a value to the scale of their type; raises ArithmeticError for one that would change.

    For very small exponents Arrow reads beyond the end of a table, and takes the process down.
    """
    match data_type:
        case Decimal(precision=precision, scale=scale):
            traps = [decimal.Inexact, decimal.InvalidOperation]
            context = decimal.Context(prec=precision, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=traps)
            unit = decimal.Decimal((0, (1,), -scale))
            return lambda value: context.quantize(value, unit)
        case Array(element=element):
            inner = _optional(element)
            return lambda value: [inner(each) for each in value]
        case Map(key=key, value=item):
            inner_key, inner_item = _optional(key), _optional(item)
            return lambda value: [(inner_key(name), inner_item(each)) for name, each in _pairs(value)]
        case Struct(fields=fields):
            inners = {field.name: _optional(field.type) for field in fields}
            return lambda value: {name: inners[name](each) for name, each in value.items()}
    return lambda value: value


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    """The entries of a map: a dict, or pairs, among which two keys may be one value."""
    return value.items() if isinstance(value, dict) else value


def _optional(data_type: DataType) -> Callable[[Any], Any]:
    fitted = _fitting(data_type)
    return lambda value: None if value is None else fitted(value)


def is_nested(data_type: DataType) -> bool:
    return isinstance(data_type, Array | Map | Struct)
