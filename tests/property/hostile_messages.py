"""Texts for values of every type, such that hurt, and what a value is that was made of a text.

The oracle parses texts by its own rules: Python's json with exact numbers, and times digit by digit.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal as Number
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct

TYPES: Mapping[str, DataType] = {
    **{kind.value: Simple(kind) for kind in Kind},
    "decimal": Decimal(10, 2),
    "decimal38": Decimal(38, 10),
    "array": Array(Simple(Kind.FLOAT32)),
    "array of decimals": Array(Decimal(10, 2)),
    "map": Map(Simple(Kind.STRING), Simple(Kind.TIMESTAMP)),
    "struct": Struct((Field("a", Simple(Kind.INT8)), Field("b c", Array(Simple(Kind.DATE))))),
}

#: Words of JSON's numbers that are not finite, by Python's.
_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt _](\d\d:\d\d:\d\d)(?:\.(\d*))?([Zz]|[+-]\d\d:?\d\d)?")

_numbers = st.one_of(
    st.sampled_from(
        [0, 1, -1, 127, 128, -128, -129, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**40]
    ),
    st.integers(-(2**70), 2**70),
).map(str)
_fractions = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.builds("{}.{}e{}".format, st.integers(-99, 99), st.integers(0, 10**12), st.integers(-420, 420)),
    st.sampled_from(
        [
            "1e39",
            "-3.5e38",
            "1e400",
            "1e-100000000",
            "0e-100000000",
            "1E+100000000",
            "1e-77",
            "0.10",
            "1.25",
            "-0",
            "-0.0",
        ]
    ),
)
_words = st.sampled_from(["true", "false", "null", "NaN", "Infinity", "-Infinity", "nul", "[]", "{}", '""'])
_texts = st.text(max_size=12).map(json.dumps)
_escapes = st.sampled_from(
    [r'"\ud800"', r'"\udc00\ud800"', r'"\ud83d\ude00"', r'"\u0000"', '"\u2028\u0085\x1c"', r'"\N"']
)
_base64 = st.binary(max_size=6).map(lambda raw: json.dumps(base64.b64encode(raw).decode()))
_days = st.one_of(
    # Days that Python's dates can show in any zone.
    st.dates(dt.date(2, 1, 1), dt.date(9998, 12, 31)).map(str),
    st.sampled_from(["10000-01-01", "2025-02-30", "1582-10-10", "9998-12-31"]),
)
_instants = st.builds(
    "{}{}{}{}{}".format,
    _days,
    st.sampled_from("Tt _"),
    st.times().map(lambda time: time.strftime("%H:%M:%S")),
    st.one_of(st.just(""), st.text("0123456789", max_size=12).map(lambda digits: f".{digits}")),
    st.sampled_from(["", "Z", "z", "+00:00", "+14:00", "-02:00", "-0330", "+25:00", "X"]),
)
_scalars = st.one_of(
    _numbers, _fractions, _words, _texts, _escapes, _base64, _days.map(json.dumps), _instants.map(json.dumps)
)


def _object(pairs: Mapping[str, str]) -> str:
    return "{{{}}}".format(",".join(f"{json.dumps(name)}:{text}" for name, text in pairs.items()))


#: JSON of any type, some of it none.
_any = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.dictionaries(st.sampled_from(["a", "b c", "k"]), inner, max_size=3).map(_object),
    ),
    max_leaves=5,
)


def json_texts(data_type: DataType) -> st.SearchStrategy[str]:
    """JSON for a value of the type: mostly such that might be one."""
    return st.one_of(_likely(data_type), _likely(data_type), _any)


def _likely(data_type: DataType) -> st.SearchStrategy[str]:
    match data_type:
        case Simple(kind=Kind.BOOLEAN):
            return _words
        case Simple(kind=Kind.STRING):
            return st.one_of(_texts, _escapes, _instants.map(json.dumps))
        case Simple(kind=Kind.BINARY):
            return st.one_of(_base64, _texts)
        case Simple(kind=Kind.DATE):
            return _days.map(json.dumps)
        case Simple(kind=Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ):
            return _instants.map(json.dumps)
        case Simple(kind=Kind.FLOAT32 | Kind.FLOAT64) | Decimal():
            return st.one_of(_numbers, _fractions)
        case Simple():
            return st.one_of(st.integers(-200, 200).map(str), _numbers, _fractions)
        case Array(element=element):
            return st.lists(_likely(element), max_size=3).map(lambda items: f"[{','.join(items)}]")
        case Map(value=value):
            return st.dictionaries(st.text(max_size=3), _likely(value), max_size=3).map(_object)
        case Struct(fields=fields):
            return st.fixed_dictionaries({}, optional={field.name: _likely(field.type) for field in fields}).map(
                _object
            )
    assert_never(data_type)


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a decoded column, its times in microseconds: times go on where Python's years end."""
    values: list[Any] = column.cast(_without_times(column.type)).to_pylist()
    return values


def _without_times(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(arrow):
        return pa.int64()
    if pa.types.is_list(arrow):
        return pa.list_(_without_times(arrow.value_type))
    if pa.types.is_map(arrow):
        return pa.map_(_without_times(arrow.key_type), _without_times(arrow.item_type))
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(_without_times(field.type)) for field in arrow])
    return arrow


def is_made_of(text: str, value: Any, data_type: DataType) -> bool:
    """Return whether the value, as `values_of` returns it, is exactly what the JSON says; of FLOAT the nearest one."""
    given = json.loads(text, parse_float=Number, parse_int=Number, parse_constant=float)
    return _is_made_of(given, value, data_type)


def _is_made_of(given: Any, value: Any, data_type: DataType) -> bool:
    if given is None or value is None:
        return given is None and value is None
    match data_type:
        case Simple(kind=Kind.STRING):
            if isinstance(given, float):
                return bool(value == _WORDS[str(given)])
            return bool(value == given if isinstance(given, str) else Number(value) == given)
        case Simple(kind=Kind.BOOLEAN):
            # JSON's -0 is a whole number, and zero.
            return value is {"true": True, "1": True, "false": False, "0": False, "-0": False}.get(str(given).lower())
        case Simple(kind=Kind.BINARY):
            return bool(value == base64.b64decode(given, validate=True))
        case Simple(kind=Kind.DATE):
            return bool(str(value) == given)
        case Simple(kind=Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ):
            is_wall = data_type == Simple(Kind.TIMESTAMP_NTZ)
            said = micros_in(given, is_wall=is_wall) if isinstance(given, str) else given * 1_000_000
            return bool(value == said)
        case Simple(kind=Kind.FLOAT32):
            return _is_float(given, value) and bool(np.array_equal(np.float32(float(given)), np.float32(value), True))
        case Simple(kind=Kind.FLOAT64):
            return _is_float(given, value) and bool(np.array_equal(value, float(given), True))
        case Simple() | Decimal():
            return bool(Number(given) == value)
        case Array(element=element):
            return len(given) == len(value) and all(
                _is_made_of(one, other, element) for one, other in zip(given, value, strict=True)
            )
        case Map(key=key, value=item):
            pairs = dict(value)
            return pairs.keys() == given.keys() and all(
                _is_made_of(name, name, key) and _is_made_of(given[name], pairs[name], item) for name in pairs
            )
        case Struct(fields=fields):
            return all(_is_made_of(given.get(field.name), value[field.name], field.type) for field in fields)
    assert_never(data_type)


def micros_of(value: dt.datetime) -> int:
    aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // dt.timedelta(microseconds=1)


def micros_in(text: str, *, is_wall: bool = False) -> Number:
    """The microseconds that a time's text says, all digits of them; `is_wall`: whatever zone it says."""
    if re.fullmatch(r"-?\d{5,}(\.\d+)?", text):
        return Number(text) * 1_000_000
    found = _TIME.fullmatch(text if ":" in text else f"{text}T00:00:00")
    assert found is not None, text
    day, time, digits, zone = found.groups()
    whole = dt.datetime.fromisoformat(f"{day}T{time}+00:00")
    shift = 0
    if zone and zone not in "Zz" and not is_wall:
        minutes = int(zone[1:3]) * 60 + int(zone[-2:])
        shift = minutes if zone[0] == "+" else -minutes
    fraction = Number(f"0.{digits or 0}") * 1_000_000
    return micros_of(whole) - Number(shift) * 60_000_000 + fraction


def _is_float(given: Any, value: float) -> bool:
    """True if the value is finite where what was given is."""
    is_word = isinstance(given, float) or (isinstance(given, str) and not re.search(r"\d", given))
    return math.isfinite(value) or is_word
