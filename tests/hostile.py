"""Values that break things, for every type of column: what any test of rows may draw from.

Covers: values of each type by themselves and in columns, drawn from an Rng or by Hypothesis; their text as a literal of
Spark SQL. Does not cover: text formats (JSON, CSV), which have values of their own.

A value is what pyarrow makes an array of: dates are days and times microseconds since 1970, because Python's own dates
end with the year 9999; a map is a list of pairs, a struct a dict. NULL is None.
"""

from __future__ import annotations

import datetime
import math
import os
import secrets
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal as Number
from functools import cache
from typing import Any, TypeVar, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from tilth.base.rand import Rng
from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple, Struct
from tilth.storage.values.arrow import arrow_type

T = TypeVar("T")
# The values that there are of a type without nested ones.
Values = Callable[[DataType], Sequence[Any]]

#: Sets the seed that is otherwise new in each run.
SEED_VARIABLE = "TILTH_HOSTILE_SEED"
NULL_SHARE = 0.12
_EPOCH = datetime.date(1970, 1, 1)
_DAY_US = 86_400_000_000
#: Longer than what statistics keep of a text in some engines, and than what the catalog keeps of it.
_SHORT_PREFIX, _LONG_PREFIX = "p" * 64, "ü" + "q" * 299

_FLOATS = (
    math.nan,
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    1.0,
    -1.0,
    0.1,
    5.0,
    16_777_217.0,
    9_007_199_254_740_993.0,
)
_TEXTS = (
    "",
    " ",
    "a",
    "A",
    "a ",
    "a\0",
    "a\0b",
    "\0",
    "ab",
    "z",
    "~",
    "\x7f",
    "null",
    "NaN",
    "'",
    '"',
    "\\",
    "\\n",
    "%",
    "_",
    "a%b_c",
    "\n",
    "\r\n",
    "\t",
    "a\u2028b",
    "\u2029",
    "\x85",
    "\x0b",
    "\x0c",
    "\x1c",
    "\ufeff",
    "\ufffd",
    "\uffff",
    "\ue000",
    # One letter, in two ways to write it.
    "\u00e9",
    "e\u0301",
    "\u00df",
    "\u0130",
    "\U0001f600",
    "\U00010000",
    "\U0010ffff",
    "a\U0001f600",
    _SHORT_PREFIX,
    _SHORT_PREFIX + "a",
    _SHORT_PREFIX + "b",
    _SHORT_PREFIX + "\U0001f600",
    _LONG_PREFIX,
    _LONG_PREFIX + "a",
    _LONG_PREFIX + "b",
    _LONG_PREFIX + "\uffff",
)
_BINARIES = (
    b"",
    b"\0",
    b"\0\0",
    b"a",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\xff" * 64,
    b"\xff" * 64 + b"\0",
    b"\0" * 300,
    b"\0" * 300 + b"\1",
    "\U0001f600".encode(),
    b"\xed\xa0\x80",
)
#: Year, month, day.
_DATES = (
    (1, 1, 1),
    (1, 1, 2),
    (999, 12, 31),
    (1000, 2, 28),
    (1500, 3, 1),
    *((1582, 10, day) for day in range(3, 17)),
    (1582, 12, 31),
    (1600, 2, 29),
    (1883, 11, 18),
    (1899, 12, 31),
    (1900, 1, 1),
    (1900, 1, 2),
    (1969, 12, 31),
    (1970, 1, 1),
    (1970, 1, 2),
    (2000, 2, 29),
    (2016, 12, 31),
    (2038, 1, 19),
    (2262, 4, 12),
    (9999, 12, 31),
)
#: Times of a day, in microseconds.
_TIMES = (0, 1, 999_999, 43_200_000_000, _DAY_US - 1)
_INTEGER_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}


def seed_of_run() -> int:
    """The seed that the environment names, else a new one; whoever uses it prints it."""
    return int(os.environ.get(SEED_VARIABLE, "0")) or secrets.randbelow(1 << 40)


# Any, here and below: a value of the type.
@cache
def values_of(data_type: DataType) -> tuple[Any, ...]:
    """Every hostile value of a type without nested ones, NULL not among them."""
    match data_type:
        case Simple(kind=kind):
            return _of_kind(kind)
        case Decimal(precision=precision, scale=scale):
            most = 10**precision - 1
            unscaled = dict.fromkeys((0, 1, -1, 10 ** (precision // 2), most - 1, most, 1 - most, -most))
            return tuple(_decimal(number, scale) for number in unscaled)
        case Array() | Map() | Struct():
            raise TypeError(data_type)
    assert_never(data_type)


def choice(rng: Rng, items: Sequence[T]) -> T:
    """One of the items."""
    return items[int(rng.random() * len(items))]


def value(rng: Rng, data_type: DataType, null_share: float = NULL_SHARE, values: Values = values_of) -> Any:
    """A value of the type, NULL with that chance, also inside of nested ones; `values`: which there are of a type."""
    return None if rng.random() < null_share else _present(rng, data_type, null_share, values)


def narrowed(rng: Rng) -> Values:
    """Few values of each type, so that a file with them has narrow ranges and what is outside of them rules it out."""
    few: dict[DataType, tuple[Any, ...]] = {}

    def values(data_type: DataType) -> tuple[Any, ...]:
        if data_type not in few:
            count = 1 + int(rng.random() * 3)
            few[data_type] = tuple(choice(rng, values_of(data_type)) for _ in range(count))
        return few[data_type]

    return values


def array(rng: Rng, data_type: DataType, rows: int, null_share: float = NULL_SHARE) -> pa.Array:
    """A column of values."""
    return pa.array([value(rng, data_type, null_share) for _ in range(rows)], arrow_type(data_type))


def strategy(data_type: DataType) -> st.SearchStrategy[Any]:
    """Values of the type and NULL, also inside of nested ones, for Hypothesis."""
    match data_type:
        case Simple() | Decimal():
            present = st.sampled_from(values_of(data_type))
        case Array(element=element):
            present = st.lists(strategy(element), max_size=3)
        case Map(key=key, value=of):
            pairs = st.tuples(st.sampled_from(values_of(key)), strategy(of))
            present = st.lists(pairs, max_size=3, unique_by=lambda pair: key_of(pair[0]))
        case Struct(fields=fields):
            present = st.fixed_dictionaries({field.name: strategy(field.type) for field in fields})
        case _:
            assert_never(data_type)
    return st.none() | present


def spark_literal(given: Any, data_type: Simple | Decimal) -> str:
    """The value as an expression of Spark SQL that has no column and exactly this type."""
    if given is None:
        return f"CAST(NULL AS {_spark_type(data_type)})"
    match data_type:
        case Simple(kind=Kind.BOOLEAN):
            return str(given).lower()
        case Simple(kind=Kind.STRING):
            return f"CAST(X'{given.encode().hex()}' AS STRING)"
        case Simple(kind=Kind.BINARY):
            return f"X'{given.hex()}'"
        case _:
            return f"CAST('{text_of(given, data_type)}' AS {_spark_type(data_type)})"


def text_of(given: Any, data_type: Simple | Decimal) -> str:
    """A number, date or time as engines of SQL write and read it."""
    match data_type:
        case Simple(kind=Kind.DATE):
            return (_EPOCH + datetime.timedelta(days=given)).isoformat()
        case Simple(kind=Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ):
            days, rest = divmod(given, _DAY_US)
            time = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=rest)
            return f"{(_EPOCH + datetime.timedelta(days=days)).isoformat()} {time.time().isoformat()}"
        case Simple(kind=Kind.FLOAT32) if math.isfinite(given):
            return str(np.float32(given))
        case Simple(kind=Kind.FLOAT32 | Kind.FLOAT64):
            return "NaN" if math.isnan(given) else repr(given).replace("inf", "Infinity")
        case Decimal():
            return format(given, "f")
        case _:
            return str(given)


def key_of(given: Any) -> Any:
    """Equal for values that Spark holds for equal: NaN is NaN, and zero has one sign."""
    if isinstance(given, float):
        return "NaN" if math.isnan(given) else given + 0.0
    return given


def bits_of(given: Any) -> Any:
    """Equal for values that are the same to the bit, all NaNs being one; hashable."""
    match given:
        case float():
            return "NaN" if math.isnan(given) else struct.pack(">d", given)
        case dict():
            return tuple((name, bits_of(each)) for name, each in given.items())
        case list() | tuple():
            return tuple(bits_of(each) for each in given)
        case _:
            return given


def plain(values: pa.Array) -> list[Any]:
    """The values of an array as those here are, whatever year they name."""
    kind = values.type
    if pa.types.is_date32(kind):
        return plain(values.cast(pa.int32()))
    if pa.types.is_timestamp(kind):
        return plain(values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()))
    if pa.types.is_struct(kind):
        fields = [plain(field) for field in values.flatten()]
        rows = [dict(zip((field.name for field in kind), row, strict=True)) for row in zip(*fields, strict=True)]
        return [row if is_there else None for row, is_there in zip(rows, _valid(values), strict=True)]
    if pa.types.is_map(kind):
        return _nested(values, list(zip(plain(values.keys), plain(values.items), strict=True)))
    if pa.types.is_list(kind):
        return _nested(values, plain(values.values))
    found: list[Any] = values.to_pylist()
    return found


def _of_kind(kind: Kind) -> tuple[Any, ...]:
    match kind:
        case Kind.BOOLEAN:
            return (False, True)
        case Kind.INT8 | Kind.INT16 | Kind.INT32 | Kind.INT64:
            most = 1 << (_INTEGER_BITS[kind] - 1)
            return (-most, -most + 1, -1, 0, 1, 5, 100, most - 2, most - 1)
        case Kind.FLOAT32:
            small = (1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 1.0000001)
            return tuple(float(np.float32(each)) for each in (*_FLOATS, *small))
        case Kind.FLOAT64:
            large = 1.7976931348623157e308
            return (*_FLOATS, 5e-324, -5e-324, 2.2250738585072014e-308, large, -large, 1.0000000000000002)
        case Kind.STRING:
            return _TEXTS
        case Kind.BINARY:
            return _BINARIES
        case Kind.DATE:
            return tuple(map(_days, _DATES))
        case Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ:
            return tuple(_days(day) * _DAY_US + time for day in _DATES for time in _TIMES)
    assert_never(kind)


def _present(rng: Rng, data_type: DataType, null_share: float, values: Values) -> Any:
    match data_type:
        case Simple() | Decimal():
            return choice(rng, values(data_type))
        case Array(element=element):
            return [value(rng, element, null_share, values) for _ in range(choice(rng, (0, 1, 2, 3)))]
        case Map(key=key, value=of):
            drawn = [choice(rng, values(key)) for _ in range(choice(rng, (0, 1, 2)))]
            keys = {key_of(each): each for each in drawn}
            return [(each, value(rng, of, null_share, values)) for each in keys.values()]
        case Struct(fields=fields):
            return {field.name: value(rng, field.type, null_share, values) for field in fields}
    assert_never(data_type)


def _decimal(unscaled: int, scale: int) -> Number:
    """Exact, whatever the precision of the context."""
    return Number((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _nested(values: pa.Array, inner: list[Any]) -> list[Any]:
    ends = values.offsets.to_pylist()
    return [
        inner[start:end] if is_there else None
        for start, end, is_there in zip(ends, ends[1:], _valid(values), strict=False)
    ]


def _valid(values: pa.Array) -> list[bool]:
    found: list[bool] = pc.is_valid(values).to_pylist()
    return found


def _days(date: tuple[int, int, int]) -> int:
    return (datetime.date(*date) - _EPOCH).days


def _spark_type(data_type: Simple | Decimal) -> str:
    if isinstance(data_type, Decimal):
        return f"DECIMAL({data_type.precision}, {data_type.scale})"
    return data_type.kind.value
