"""Literals and decoded text as values of a column's type. Pure.

Always holds: a value that does not fit is refused, never cut, rounded or wrapped; refusals tell row, position and
column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar, assert_never

import pyarrow as pa

from tilth.model.part import Bound
from tilth.model.row_op import OP_COLUMN, op_of
from tilth.model.table import Column
from tilth.model.types import Array, DataType, Kind, Map, Simple, Struct, spark_name
from tilth.model.types import Decimal as DecimalType
from tilth.sql.errors import BadValueError
from tilth.sql.grammar import ArrayValue, InsertValues, MapValue, SqlSyntaxError, TupleValue, parse
from tilth.storage import arrow_type, bound_of

_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
_WORDS = {"true": True, "false": False, "1": True, "0": False}
#: Of the largest whole number that a column holds.
_INTEGER_DIGITS_MAX = 19
_SHOWN_LENGTH_MAX = 60

T = TypeVar("T")

# A literal of the grammar or of JSON: numbers, text, dates, and lists, maps and tuples of them.
Given = Any
# What pyarrow takes as a value of the column's type.
Stored = Any


def column_array(
    column: Column, values: Sequence[Given], *, zone: tzinfo, position: int, optional: Sequence[int] = ()
) -> pa.Array:
    """One column of an INSERT; raises BadValueError naming the row, both counted from 1.

    `optional`: for each row whether it may be NULL in a column that is NOT NULL; empty: none may.
    """
    stored: list[Stored] = []
    for row, value in enumerate(values, start=1):
        if value is None and not column.nullable and not (optional and optional[row - 1]):
            raise BadValueError("NULL in a column that is NOT NULL", row=row, value=position, column=column.name)
        try:
            stored.append(to_stored(value, column.type, zone))
        except (ValueError, InvalidOperation, OverflowError) as error:
            raise BadValueError(
                row=row,
                value=position,
                column=column.name,
                type=spark_name(column.type),
                given=_shown(value),
                why=error,
            ) from error
    return pa.array(stored, arrow_type(column.type))


def op_numbers(values: Sequence[Given], *, position: int) -> list[int]:
    """What each row does, of a column `_op`; raises BadValueError naming the row."""
    ops: list[int] = []
    for row, value in enumerate(values, start=1):
        try:
            ops.append(op_of(value))
        except ValueError as error:
            raise BadValueError(row=row, value=position, column=OP_COLUMN, given=_shown(value), why=error) from error
    return ops


def to_stored(value: Given, data_type: DataType, zone: tzinfo = UTC) -> Stored:
    """The value for pyarrow; raises ValueError that says what was expected."""
    if value is None:
        return None
    match data_type:
        case Simple(kind=kind):
            return _simple(value, kind, zone)
        case DecimalType(precision=precision, scale=scale):
            return _decimal(value, precision, scale)
        case Array(element=element):
            return [to_stored(item, element, zone) for item in _items(value)]
        case Map():
            return [
                (_key(to_stored(key, data_type.key, zone)), to_stored(item, data_type.value, zone))
                for key, item in _entries(value)
            ]
        case Struct():
            return _struct(value, data_type, zone)
    assert_never(data_type)


def _simple(value: Given, kind: Kind, zone: tzinfo) -> Stored:
    match kind:
        case Kind.BOOLEAN:
            return _boolean(value)
        case Kind.INT8 | Kind.INT16 | Kind.INT32 | Kind.INT64:
            return _integer(value, _BITS[kind])
        case Kind.FLOAT32 | Kind.FLOAT64:
            _refuse(value, bool, date, "a number")
            return _read(float, value, "a number") if not isinstance(value, list | dict) else _wrong("a number")
        case Kind.STRING:
            _refuse(value, bool, date, "text in quotes")
            return str(value) if isinstance(value, str | int | float | Decimal) else _wrong("text in quotes")
        case Kind.BINARY:
            return value.encode() if isinstance(value, str) else _wrong("text in quotes")
        case Kind.DATE:
            return _date(value)
        case Kind.TIMESTAMP:
            moment = _moment(value, zone)
            return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
        case Kind.TIMESTAMP_NTZ:
            return _moment(value, zone).replace(tzinfo=None)
    assert_never(kind)


def _boolean(value: Given) -> bool:
    known = _WORDS.get(str(value).lower())
    return known if known is not None else _wrong("true or false")


def _integer(value: Given, bits: int) -> int:
    _refuse(value, date, date, "a whole number")
    allowed = f"a number from {-(1 << bits - 1)} to {(1 << bits - 1) - 1}"
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() >= _INTEGER_DIGITS_MAX:
        # Before it is spelled out: 1e1000000 would take minutes.
        _wrong(allowed)
    if isinstance(value, float | Decimal) and (not math.isfinite(value) or value != int(value)):
        _wrong("a whole number")
    is_known = isinstance(value, str | int | float | Decimal)
    number = _read(int, value, "a whole number") if is_known else _wrong("a whole number")
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        _wrong(allowed)
    return number


def _decimal(value: Given, precision: int, scale: int) -> Decimal:
    _refuse(value, bool, date, "a number")
    is_known = isinstance(value, str | int | float | Decimal)
    number = _read(Decimal, str(value), "a number") if is_known else _wrong("a number")
    if not number.is_finite():
        _wrong("a number")
    exponent = number.normalize().as_tuple().exponent
    if isinstance(exponent, int) and -exponent > scale:
        raise ValueError(f"expected at most {scale} digits behind the point")
    if abs(number) >= Decimal(10) ** (precision - scale):
        raise ValueError(f"expected at most {precision - scale} digits before the point")
    return number


def _date(value: Given) -> date:
    if isinstance(value, str):
        read = datetime.fromisoformat if len(value) > len("2020-01-01") else date.fromisoformat
        value = _read(read, value, "a date, as in '2020-01-31'")
    if isinstance(value, datetime):
        return value.date() if value == value.replace(hour=0, minute=0, second=0, microsecond=0) else _wrong("a date")
    return value if isinstance(value, date) else _wrong("a date, as in '2020-01-31'")


def _moment(value: Given, zone: tzinfo) -> datetime:
    """A bare number is seconds since 1970, as in ClickHouse."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001 - the caller's zone is added
    if isinstance(value, str):
        return _read(datetime.fromisoformat, value.strip(), "a time, as in '2020-01-31 12:00:00'")
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise ValueError("expected a time, as in '2020-01-31 12:00:00'")
    return datetime.fromtimestamp(float(value), zone)


def _items(value: Given) -> Sequence[Given]:
    if isinstance(value, ArrayValue):
        return value.items
    return value if isinstance(value, list) else _wrong("an array, as in [1, 2]")


def _entries(value: Given) -> Sequence[tuple[Given, Given]]:
    if isinstance(value, MapValue):
        return value.entries
    return list(value.items()) if isinstance(value, dict) else _wrong("a map, as in {'a': 1}")


def _key(value: Stored) -> Stored:
    return value if value is not None else _wrong("a map's keys to be there")


def _struct(value: Given, data_type: Struct, zone: tzinfo) -> Stored:
    if isinstance(value, TupleValue):
        if len(value.items) != len(data_type.fields):
            raise ValueError(f"expected {len(data_type.fields)} values in brackets")
        given = dict(zip((field.name for field in data_type.fields), value.items, strict=True))
    elif isinstance(value, dict):
        given = value
    else:
        return _wrong("a tuple, as in (1, 'a')")
    unknown = set(given) - {field.name for field in data_type.fields}
    if unknown:
        raise ValueError(f"there is no field {sorted(unknown)[0]}")
    return {field.name: to_stored(given.get(field.name), field.type, zone) for field in data_type.fields}


def to_bound(value: Given, data_type: DataType) -> Bound:
    """The value as the catalog keeps bounds; raises ValueError."""
    return bound_of(pa.scalar(to_stored(value, data_type), arrow_type(data_type)))


def literal(text: str) -> tuple[Given] | None:
    """The value of an expression that is a literal, in a tuple of its own; None for any other expression."""
    try:
        statement = parse(f"INSERT INTO t VALUES ({text})")
    except SqlSyntaxError:
        return None
    if not isinstance(statement, InsertValues) or len(statement.rows) != 1 or len(statement.rows[0]) != 1:
        return None
    return (statement.rows[0][0],)


def check_default(column: str, data_type: DataType, text: str | None) -> None:
    """Raises BadValueError for a literal that is no value of the column's type."""
    known = literal(text) if text is not None else None
    if known is None:
        return
    try:
        to_stored(known[0], data_type)
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise BadValueError(
            "the default does not fit the column", column=column, type=spark_name(data_type), default=text, why=error
        ) from error


def _refuse(value: Given, one: type, other: type, expected: str) -> None:
    if isinstance(value, one | other):
        _wrong(expected)


def _read(read: Callable[[Given], T], value: Given, expected: str) -> T:
    """What the function makes of the value; raises ValueError in our words, not in Python's."""
    try:
        return read(value)
    except (ValueError, TypeError, InvalidOperation) as error:
        raise ValueError(f"expected {expected}") from error


# Any: never returns, so that it can stand in expressions.
def _wrong(expected: str) -> Any:
    raise ValueError(f"expected {expected}")


def _shown(value: Given) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_LENGTH_MAX else text[: _SHOWN_LENGTH_MAX - 3] + "..."
