"""Python values to Arrow columns; a value that its type cannot hold is an error, never another value.

Covers: what Arrow itself takes too easily: decimals with exponents for which it reads beyond its tables, numbers that
become infinite as FLOAT, times that leave the years 1 to 9999 when they are brought to UTC. Does not cover: reading
messages (formats.py), columns of stored tables (tilth.storage).
Always holds: what `array_of` returns reads back equal to what it was given, to the nearest float for FLOAT.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tilth.ingest.formats import is_nested, leaves_of
from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple, Struct
from tilth.storage import arrow_type

#: What `array_of` raises for a value that does not fit.
MISFITS = (pa.ArrowException, ArithmeticError, ValueError, TypeError)

_FLOAT = Simple(Kind.FLOAT32)
_TIMES = (Simple(Kind.TIMESTAMP), Simple(Kind.TIMESTAMP_NTZ))
#: In microseconds, the first moment of the year 1 and the last of 9999.
FIRST_TIME, LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999


def array_of(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """The values as a column; raises one of MISFITS where one does not fit."""
    leaves = list(leaves_of(data_type))
    if any(isinstance(leaf, Decimal) for leaf in leaves):
        fitted = _fitting(data_type)
        values = [None if value is None else fitted(value) for value in values]
    array = pa.array(values, arrow_type(data_type))
    if _FLOAT in leaves and any(pc.any(pc.is_inf(each)).as_py() for each in _leaves(array, pa.types.is_float32)):
        for value in values:
            _check_finite(value, data_type)
    if any(leaf in _TIMES for leaf in leaves):
        for each in _leaves(array, pa.types.is_timestamp):
            _check_years(each)
    return array


def may_overflow(data_type: DataType) -> bool:
    """Whether a value that was decoded as this type may still not fit it."""
    return isinstance(data_type, Decimal) or is_nested(data_type) or data_type in (_FLOAT, *_TIMES)


def _fitting(data_type: DataType) -> Callable[[Any], Any]:
    """Brings the decimals of a value to the scale of their type; raises ArithmeticError for one that would change.

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
            return lambda value: {inner_key(name): inner_item(each) for name, each in value.items()}
        case Struct(fields=fields):
            inners = {field.name: _optional(field.type) for field in fields}
            return lambda value: {name: inners[name](each) for name, each in value.items()}
    return lambda value: value


def _optional(data_type: DataType) -> Callable[[Any], Any]:
    fitted = _fitting(data_type)
    return lambda value: None if value is None else fitted(value)


def _leaves(array: pa.Array, is_wanted: Callable[[pa.DataType], bool]) -> Iterator[pa.Array]:
    """The arrays of such a type in it, or itself."""
    if is_wanted(array.type):
        yield array
    elif pa.types.is_map(array.type):
        yield from _leaves(array.keys, is_wanted)
        yield from _leaves(array.items, is_wanted)
    elif pa.types.is_struct(array.type):
        for field in array.flatten():
            yield from _leaves(field, is_wanted)
    elif pa.types.is_list(array.type):
        yield from _leaves(array.flatten(), is_wanted)


def _check_years(times: pa.Array) -> None:
    """Raises OverflowError for a time that is in no year that calendars and Python know."""
    found = pc.min_max(times.view(pa.int64()))
    first, last = found["min"].as_py(), found["max"].as_py()
    if first is not None and (first < FIRST_TIME or last > LAST_TIME):
        raise OverflowError(first, last)


def _check_finite(value: Any, data_type: DataType) -> None:
    """Raises OverflowError for a finite number that is none as FLOAT."""
    match data_type:
        case _ if value is None:
            return
        case Simple(kind=Kind.FLOAT32):
            if math.isfinite(value) and math.isinf(pa.scalar(value, pa.float32()).as_py()):
                raise OverflowError(value)
        case Array(element=element):
            for each in value:
                _check_finite(each, element)
        case Map(key=key, value=item):
            for name, each in value.items():
                _check_finite(name, key)
                _check_finite(each, item)
        case Struct(fields=fields):
            for field in fields:
                _check_finite(value.get(field.name), field.type)
