"""Literals and decoded text as values of a column's type: the one judge of what a value is. Pure.

Covers: what each type takes, in which zone times are read, numbers that stand for times. Does not cover: formats
(kinds/), checks of the declared type beyond those of the stored one (tilth.storage).
Always holds: what ClickHouse reads is the same value here; a value that does not fit is refused, never cut, rounded or
wrapped; floats become the nearest floats; refusals name row, position and column.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar, assert_never
from zoneinfo import ZoneInfo

import pyarrow as pa

from tilth.formats.errors import BadValueError
from tilth.model.checks import ELEMENT, KEY, VALUE, Path, SecondDigits
from tilth.model.literal import ArrayValue, CastValue, MapValue, StructValue, TupleValue
from tilth.model.table import Column
from tilth.model.text.literals import float_text
from tilth.model.text.times import DAY_US, SECOND_DIGITS_MAX, in_zone, micros_of, read_date, read_time
from tilth.model.types import INTEGER_BITS, Array, DataType, Kind, Map, Simple, Struct
from tilth.model.types import Decimal as DecimalType
from tilth.storage import array_of, misfits

#: Python's types of values that Arrow takes as they are.
_PYTHON_TYPES = {Kind.STRING: str, Kind.BINARY: bytes, Kind.BOOLEAN: bool, **dict.fromkeys(INTEGER_BITS, int)}
_WORDS = {"true": True, "false": False, "1": True, "0": False}
#: Digits of the largest integer that a column holds.
_INTEGER_DIGITS_MAX = 19
_SHOWN_LENGTH_MAX = 60

_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)
_DATETIME64 = re.compile(r"(?:nullable\s*\(\s*)?datetime64\b", re.IGNORECASE)
#: Seconds since 1970 as a text; a shorter one would be a year.
_EPOCH_SECONDS = re.compile(r"-?[0-9]{5,}(?:\.[0-9]+)?", re.ASCII)
#: Spellings of an infinite float.
_INFINITIES = frozenset({"inf", "infinity"})
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
#: Half a step above the greatest 32-bit float: from here on, the nearest one is infinity.
_FLOAT32_END = float((1 << 128) - (1 << 103))

_json = json.JSONDecoder(parse_float=Decimal)
#: First characters of arrays, objects and texts; a JSON text that begins so has no whitespace to skip.
_BEGINS = ("[", "{", '"')

T = TypeVar("T")

# A literal of the grammar or of JSON: numbers, text, dates, and lists, maps and tuples of them.
Given = Any
# A value of which pyarrow makes an array of the column's type; dates and times are days and microseconds since 1970.
Stored = Any


@dataclass(frozen=True, slots=True)
class Reading:
    """Rules for values whose text leaves open what it means."""

    #: The zone of times without one.
    zone: tzinfo = UTC
    #: The same by path in the type; other paths have the zone above.
    zones: Mapping[Path, tzinfo] = field(default_factory=dict)
    #: `True` if text in a column of bytes is base64, as in JSON and CSV; else its UTF-8 bytes are meant.
    is_base64: bool = False
    #: Whole numbers where a time is expected count 10^-n seconds since 1970, as those of ClickHouse's DateTime64(n).
    number_digits: int = 0

    def of(self, column: Column) -> Reading:
        zones = {path: ZoneInfo(zone) for path, zone in column.zones}
        digits = number_digits(column)
        return replace(self, zones=zones or self.zones, number_digits=digits) if zones or digits else self

    def below(self, step: str) -> Reading:
        """Return the reading of the values at a step into the type."""
        if not self.zones and not self.number_digits:
            return self
        zones = {path[1:]: zone for path, zone in self.zones.items() if path[:1] == (step,)}
        return replace(self, zones=zones, number_digits=0)


def number_digits(column: Column) -> int:
    """Return the digits behind the second of a column that is declared as a DateTime64; of all others 0."""
    if not _DATETIME64.match(column.declared):
        return 0
    digits = [check.rule.digits for check in column.checks if isinstance(check.rule, SecondDigits)]
    return min(digits, default=SECOND_DIGITS_MAX)


#: Reading of values that need no context.
_PLAIN = Reading()


def column_array(
    column: Column, values: Sequence[Given], *, reading: Reading, position: int, optional: Sequence[int] = ()
) -> pa.Array:
    """The values as the column; raises BadValueError naming the row, both counted from 1.

    `optional`: for each row whether it may be NULL in a column that is NOT NULL; empty: none may.
    """
    array = _as_they_are(column, values)
    if array is None:
        stored: list[Stored] = []
        own = reading.of(column)
        for row, value in enumerate(values, start=1):
            if value is None and not column.nullable and not (optional and optional[row - 1]):
                raise BadValueError("NULL in a column that is NOT NULL", row=row, value=position, column=column.name)
            try:
                stored.append(to_stored(value, column.type, own))
            except (ValueError, InvalidOperation, OverflowError) as error:
                raise _refused(column, row=row, position=position, given=shown(value), why=error) from error
        try:
            array = array_of(stored, column.type)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise BadValueError(value=position, column=column.name, type=column.declared_type, why=error) from error
    check_array(column, array, position=position)
    return array


def _as_they_are(column: Column, values: Sequence[Given]) -> pa.Array | None:
    """Return the values, without a loop in Python, if all are of the one type that Arrow takes as `to_stored` does."""
    known = _PYTHON_TYPES.get(column.type.kind) if isinstance(column.type, Simple) else None
    if known is None or not {known, type(None) if column.nullable else known}.issuperset(map(type, values)):
        return None
    try:
        return array_of(values, column.type)
    except (pa.ArrowException, ValueError, OverflowError):
        # A number out of range, half of a surrogate pair: which one, the loop finds.
        return None


def check_array(column: Column, values: pa.Array | pa.ChunkedArray, *, position: int) -> None:
    """Raises BadValueError naming the first row, counted from 1, whose value breaks a check of the column."""
    for wrong in misfits(values, column)[:1]:
        raise _refused(column, row=wrong.row + 1, position=position, given=wrong.value, why=wrong.why)


def _refused(column: Column, *, row: int, position: int, given: str, why: object) -> BadValueError:
    return BadValueError(row=row, value=position, column=column.name, type=column.declared_type, given=given, why=why)


def to_stored(value: Given, data_type: DataType, reading: Reading = _PLAIN) -> Stored:
    """Return the value for pyarrow; raises ValueError that names what was expected."""
    if value is None:
        return None
    if isinstance(value, CastValue):
        return to_stored(_cast(value, reading), data_type, reading)
    match data_type:
        case Simple(kind=kind):
            return _simple(value, kind, reading)
        case DecimalType(precision=precision, scale=scale):
            return _decimal(value, precision, scale)
        case Array(element=element):
            below = reading.below(ELEMENT)
            return [to_stored(item, element, below) for item in _items(value)]
        case Map():
            of_keys, of_values = reading.below(KEY), reading.below(VALUE)
            return [
                (_key(to_stored(key, data_type.key, of_keys)), to_stored(item, data_type.value, of_values))
                for key, item in _entries(value, data_type.key)
            ]
        case Struct():
            return _struct(value, data_type, reading)
    assert_never(data_type)


def _cast(value: CastValue, reading: Reading) -> Given:
    """Return the literal, which must be a value of the type that it names."""
    inner = value.value
    if isinstance(inner, bytes) and value.type == Simple(Kind.STRING):
        return _read(bytes.decode, inner, "the bytes of a text")
    to_stored(inner, value.type, reading)
    return inner


def _simple(value: Given, kind: Kind, reading: Reading) -> Stored:
    match kind:
        case Kind.BOOLEAN:
            return _boolean(value)
        case Kind.INT8 | Kind.INT16 | Kind.INT32 | Kind.INT64:
            return _integer(value, INTEGER_BITS[kind])
        case Kind.FLOAT32 | Kind.FLOAT64:
            return _float(value, kind)
        case Kind.STRING:
            _refuse(value, (bool, date), "text in quotes")
            return _text(value)
        case Kind.BINARY:
            return _binary(value, is_base64=reading.is_base64)
        case Kind.DATE:
            return _date(value)
        case Kind.TIMESTAMP:
            wall, offset = _parse_time(value, reading.number_digits)
            own = reading.zones.get((), reading.zone)
            return _in_range(in_zone(wall, own) if offset is None else wall - offset)
        case Kind.TIMESTAMP_NTZ:
            return _parse_time(value, reading.number_digits)[0]
    assert_never(kind)


def _float(value: Given, kind: Kind) -> float:
    _refuse(value, (bool, date), "a number")
    if not isinstance(value, str | int | float | Decimal):
        _wrong("a number")
    number = _read(float, _spelled(value) if isinstance(value, str) else value, "a number")
    if math.isinf(number) and not _is_infinite(value):
        _wrong("a number that a double can hold")
    if kind is Kind.FLOAT32 and math.isfinite(number) and abs(number) >= _FLOAT32_END:
        _wrong("a number that a float can hold")
    return number


def _spelled(number: str) -> str:
    """Return the number's text; raises ValueError for what only Python takes for a number: `1_000`, other digits."""
    return number if number.isascii() and "_" not in number else _wrong("a number")


def _is_infinite(value: Given) -> bool:
    if isinstance(value, str):
        return value.strip().lstrip("+-").lower() in _INFINITIES
    return value.is_infinite() if isinstance(value, Decimal) else math.isinf(value)


def _text(value: Given) -> str:
    if isinstance(value, float):
        return float_text(value)
    if not isinstance(value, str):
        return str(value) if isinstance(value, int | Decimal) else _wrong("text in quotes")
    if not value.isascii():
        _read(str.encode, value, "Unicode text, without halves of surrogate pairs")
    return value


def _binary(value: Given, *, is_base64: bool) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        expected = "base64" if is_base64 else "X'00ff', or text"
        raise ValueError(f"expected {expected} in quotes")
    if not is_base64:
        return _text(value).encode()
    try:
        return base64.b64decode(value.encode(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("expected base64") from error


def _boolean(value: Given) -> bool:
    known = _WORDS.get(str(value).lower())
    return known if known is not None else _wrong("true or false")


def _integer(value: Given, bits: int) -> int:
    _refuse(value, (date,), "a whole number")
    if isinstance(value, str) and not _INTEGER.fullmatch(value):
        value = _read(Decimal, _spelled(value), "a whole number")
    allowed = f"a number from {-(1 << bits - 1)} to {(1 << bits - 1) - 1}"
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() >= _INTEGER_DIGITS_MAX:
        # Before it is spelled out: 1e1000000 would last minutes.
        _wrong(allowed)
    if isinstance(value, float | Decimal) and (not math.isfinite(value) or value != int(value)):
        _wrong("a whole number")
    is_known = isinstance(value, int | float | Decimal | str)
    number = _read(int, value, "a whole number") if is_known else _wrong("a whole number")
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        _wrong(allowed)
    return number


def _decimal(value: Given, precision: int, scale: int) -> Decimal:
    _refuse(value, (bool, date), "a number")
    is_known = isinstance(value, str | int | float | Decimal)
    number = _read(Decimal, value, "a number") if is_known and "_" not in str(value) else _wrong("a number")
    if not number.is_finite():
        _wrong("a number")
    if number and number.adjusted() >= precision - scale:
        raise ValueError(f"expected at most {precision - scale} digits before the point")
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    zeros = next((count for count, digit in enumerate(reversed(digits)) if digit), 0)
    if number and -exponent - zeros > scale:
        raise ValueError(f"expected at most {scale} digits behind the point")
    return number if number else Decimal(0)


def _date(value: Given) -> int:
    """Days since 1970."""
    if isinstance(value, str):
        return _read(read_date, value.strip(), "a date, as in '2020-01-31'")
    if isinstance(value, datetime):
        days, rest = divmod(_parse_time(value, 0)[0], DAY_US)
        return days if not rest else _wrong("a date")
    return value.toordinal() - _EPOCH_DAY if isinstance(value, date) else _wrong("a date, as in '2020-01-31'")


def _parse_time(value: Given, digits: int) -> tuple[int, int | None]:
    """Return microseconds since 1970 on the value's own clock, and its offset from UTC if it has one.

    A bare number is seconds since 1970, as in ClickHouse; a whole one counts units of 10^-`digits` seconds.
    """
    expected = "a time, as in '2020-01-31 12:00:00', with at most 6 digits behind the second"
    if isinstance(value, datetime):
        offset = value.utcoffset()
        return micros_of(value.replace(tzinfo=UTC)), None if offset is None else offset // _MICROSECOND
    if isinstance(value, date):
        return (value.toordinal() - _EPOCH_DAY) * DAY_US, None
    if isinstance(value, str):
        text = value.strip()
        if not _EPOCH_SECONDS.fullmatch(text):
            return _read(read_time, text, expected)
        value, digits = Decimal(text), 0
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        _wrong(expected)
    if not math.isfinite(value) or Decimal(value).adjusted() >= _INTEGER_DIGITS_MAX:
        _wrong(expected)
    if isinstance(value, int):
        return _in_range(value * 10 ** (SECOND_DIGITS_MAX - digits)), 0
    micros = _micros(value)
    return _wrong(expected) if micros is None else _in_range(micros), 0


def _micros(seconds: Decimal) -> int | None:
    """Return the microseconds of less than 10^19 seconds, exactly; None: there are digits behind them.

    By the digits: a Decimal rounds to those of its context, and a Fraction of 1e-999999999 is computed for hours.
    """
    sign, digits, exponent = seconds.as_tuple()
    assert isinstance(exponent, int)
    behind = -SECOND_DIGITS_MAX - exponent
    if behind > 0:
        if any(digits[-behind:]):
            return None
        digits, behind = digits[:-behind], 0
    micros = int("".join(map(str, digits)) or "0")
    return (-micros if sign else micros) * 10**-behind if micros else 0


def _in_range(micros: int) -> int:
    return micros if -(1 << 63) <= micros < 1 << 63 else _wrong("a time within 64 bits of microseconds")


def _items(value: Given) -> Sequence[Given]:
    if isinstance(value, ArrayValue):
        return value.items
    return value if isinstance(value, list) else _wrong("an array, as in [1, 2]")


def _entries(value: Given, key_type: DataType) -> Sequence[tuple[Given, Given]]:
    if isinstance(value, MapValue):
        return value.entries
    if not isinstance(value, dict):
        raise ValueError("expected a map, as in {'a': 1}")
    # Keys of JSON are texts; a key of a nested type is JSON within its text.
    is_plain = isinstance(key_type, Simple | DecimalType)
    return [(key if is_plain else _read(from_json, key, "JSON as the key"), item) for key, item in value.items()]


def from_json(text: str) -> Given:
    """Parse a JSON text, numbers exactly; raises ValueError."""
    value, end = _json.raw_decode(text) if text[:1] in _BEGINS else (None, -1)
    return value if end == len(text) else _json.decode(text)


def _key(value: Stored) -> Stored:
    return value if value is not None else _wrong("a map's keys to be there")


def _struct(value: Given, data_type: Struct, reading: Reading) -> Stored:
    if isinstance(value, TupleValue):
        if len(value.items) != len(data_type.fields):
            raise ValueError(f"expected {len(data_type.fields)} values in brackets")
        given = dict(zip((field.name for field in data_type.fields), value.items, strict=True))
    elif isinstance(value, StructValue):
        given = dict(value.fields)
        unknown = set(given) - {field.name for field in data_type.fields}
        if unknown:
            raise ValueError(f"there is no field {sorted(unknown)[0]}")
    elif isinstance(value, dict):
        given = value
    else:
        return _wrong("a tuple, as in (1, 'a')")
    # Other fields of a JSON object are ignored.
    return {
        each.name: to_stored(given.get(each.name), each.type, reading.below(each.name)) for each in data_type.fields
    }


def _refuse(value: Given, types: tuple[type, ...], expected: str) -> None:
    if isinstance(value, types):
        _wrong(expected)


def _read(read: Callable[[Given], T], value: Given, expected: str) -> T:
    """Apply the function to the value; raises ValueError in our words, not in Python's."""
    try:
        return read(value)
    except (ValueError, TypeError, InvalidOperation) as error:
        raise ValueError(f"expected {expected}") from error


# Any: never returns, so that it can stand in expressions.
def _wrong(expected: str) -> Any:
    raise ValueError(f"expected {expected}")


def shown(value: Given) -> str:
    """Return the value for an error, cut where it is long."""
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= _SHOWN_LENGTH_MAX else text[: _SHOWN_LENGTH_MAX - 3] + "..."
