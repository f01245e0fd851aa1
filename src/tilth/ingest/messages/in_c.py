"""JSON values of messages in C, by msgspec, wherever it means what `tilth.formats` does.

Covers: the types that values are decoded as, texts that msgspec may read otherwise. Does not cover: what a value is
(tilth.formats), records (objects.py), cells (cells.py).
Always holds: what msgspec reads in a text without doubts is what `to_stored` reads; what it refuses is for `to_stored`,
whose verdict and reason count.

Tests: tests/unit/ingest/messages/test_decode.py.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Annotated, Any, TypedDict, assert_never

import msgspec
import numpy as np

from tilth.formats import Reading, to_stored
from tilth.model.checks import ELEMENT, KEY, VALUE
from tilth.model.types import INTEGER_BITS, Array, DataType, Decimal, Kind, Map, Simple, Struct, leaves_of

_TIMES = (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
_PYTHON_TYPES: Mapping[Kind, Any] = {
    Kind.BOOLEAN: bool,
    Kind.FLOAT32: float,
    Kind.FLOAT64: float,
    Kind.STRING: str,
    # Base64 in JSON, as in Spark's from_json and to_json.
    Kind.BINARY: bytes,
    Kind.DATE: date,
    Kind.TIMESTAMP: datetime,
}
#: A float that no number satisfies. Beside whole numbers it makes msgspec refuse a number with a fraction or an
#: exponent, which it would read as the nearest float, and that as a whole number.
_NO_FLOAT = Annotated[float, msgspec.Meta(gt=1, lt=0)]

#: A time with more than six fractional digits, which msgspec rounds.
_FINE_TIME = re.compile(rb'\.\d{7,}["Zz+\-]')
#: Escapes of ASCII letters, which may hide such a time, or an underscore.
_ESCAPED_ASCII = b"\\u00"
_ESCAPED_UNDERSCORE = b"\\u005"
_DATE_LENGTH = len("2026-01-05")
_SECOND_END = len("2026-01-05T11:00:00.123456")
#: The end of a text that msgspec reads as a decimal, from an underscore behind a digit, and its beginning.
_END_OF_NUMBER, _BEGIN_OF_NUMBER = re.compile(rb'_[\d_.eE+\-]*\s*"'), re.compile(rb'"\s*[\d_.+\-]*\Z')
_NUMBER_CHARACTERS_MAX = 100
#: Texts that msgspec takes for null and for zero where it takes numbers in quotes.
_LAX_TEXTS = (b'"null"', b'"-0"')

Decoder = msgspec.json.Decoder[Any]


class Doubts:
    """Texts that msgspec may read otherwise than `to_stored`, by the types of the values in them."""

    def __init__(self, types: Iterable[DataType]) -> None:
        leaves = [leaf for data_type in types for leaf in leaves_of(data_type)]
        self._has_times = any(isinstance(leaf, Simple) and leaf.kind in _TIMES for leaf in leaves)
        self._has_decimals = any(isinstance(leaf, Decimal) for leaf in leaves)

    def exist_in(self, texts: Iterable[bytes], *, is_lax: bool = False) -> bool:
        """Return whether a text may be read otherwise; `is_lax`: by a decoder that takes numbers in quotes."""
        if not (is_lax or self._has_times or self._has_decimals):
            return False
        # One search in all of them costs next to nothing.
        whole = b"\n".join(texts)
        if self._has_decimals and _has_odd_decimals(whole):
            return True
        if is_lax:
            lower = whole.lower()
            return any(text in lower for text in _LAX_TEXTS)
        return self._has_times and _has_odd_times(whole)


def _has_odd_times(text: bytes) -> bool:
    return _FINE_TIME.search(text) is not None or _has(text, _ESCAPED_ASCII)


def _has_odd_decimals(text: bytes) -> bool:
    """True if a number in quotes may have underscores, which msgspec passes over."""
    if _has(text, _ESCAPED_UNDERSCORE):
        return True
    if b"_" not in text:
        return False
    codes = np.frombuffer(text, np.uint8)
    underscores = np.flatnonzero(codes[1:] == ord("_")) + 1
    before = codes[underscores - 1]
    behind_digits = underscores[(before >= ord("0")) & (before <= ord("9"))]
    return any(
        _END_OF_NUMBER.match(text, position)
        and _BEGIN_OF_NUMBER.search(text, max(0, position - _NUMBER_CHARACTERS_MAX), position)
        for position in behind_digits.tolist()
    )


def _has(text: bytes, escape: bytes) -> bool:
    # Most texts have no backslash, for which a search costs a tenth.
    return b"\\" in text and escape in text


class _AnyValue(type):
    # A method would be a call of Python for each value.
    __instancecheck__ = object.__instancecheck__


class _Time(metaclass=_AnyValue):
    """Stands for times that are read by `_read_time`, in types that msgspec decodes as."""

    data_type: DataType
    reading: Reading
    #: `True` if the time is what the clock of the text shows, without its zone.
    is_wall: bool


def can_decode(data_type: DataType) -> bool:
    """Return whether values are decoded as they are. msgspec loses entries of maps with keys that are one value in two
    spellings, as `"1.0"` and `"1"`; texts have one.
    """
    match data_type:
        case Array(element=element):
            return can_decode(element)
        case Map(key=key, value=value):
            return key == Simple(Kind.STRING) and can_decode(value)
        case Struct(fields=fields):
            return all(can_decode(field.type) for field in fields)
    return True


def value_decoder(data_type: DataType, *, is_nullable: bool = False) -> Decoder | None:
    """Return a decoder of JSON values of a type; None: they must be read by `to_stored`."""
    if not can_decode(data_type):
        return None
    own = python_type(data_type)
    return decoder_of(own | None if is_nullable else own)


def decoder_of(python_type: Any, *, is_lax: bool = False) -> Decoder | None:
    """Return a decoder of one type; None: msgspec does not know it, as a map whose keys are structs."""
    try:
        return msgspec.json.Decoder(python_type, strict=not is_lax, dec_hook=_read_time)
    except TypeError:
        return None


# Any: a time, or as `to_stored`.
def _read_time(wanted: type[_Time], given: Any) -> Any:
    """Read a value where a type holds `_Time`; raises ValueError for one that `to_stored` must read in its text."""
    if type(given) is str:
        # Without a seventh digit of the second, msgspec rounds nothing.
        if len(given) > _DATE_LENGTH and not given[_SECOND_END : _SECOND_END + 1].isdigit():
            try:
                found = msgspec.convert(given, datetime)
                return found.replace(tzinfo=None) if wanted.is_wall else found
            except msgspec.ValidationError:
                pass
    elif given is None or type(given) is float:
        # NULL where none may be; a number with a fraction, of which msgspec made the nearest float.
        raise ValueError(given)
    return to_stored(given, wanted.data_type, wanted.reading)


# Any: a type expression made at run time.
def python_type(data_type: DataType, *, lax: Reading | None = None) -> Any:
    """Return the type that msgspec decodes values as; `lax`: for a decoder that takes numbers in quotes, which reads
    times so."""
    match data_type:
        case Simple(kind=kind) if kind is Kind.TIMESTAMP_NTZ or (kind is Kind.TIMESTAMP and lax is not None):
            own = {"data_type": data_type, "reading": lax or Reading(), "is_wall": kind is Kind.TIMESTAMP_NTZ}
            return _AnyValue("_OneTime", (_Time,), own)
        case Simple(kind=kind) if kind in INTEGER_BITS:
            bound = 1 << (INTEGER_BITS[kind] - 1)
            whole = Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)]
            return whole if lax is None else whole | _NO_FLOAT
        case Simple(kind=kind):
            return _PYTHON_TYPES[kind]
        case Decimal():
            return decimal.Decimal
        case Array(element=element):
            return list[python_type(element, lax=_below(lax, ELEMENT)) | None]  # type: ignore[misc]  # made at run time
        case Map(key=key, value=value):
            key_type, value_type = python_type(key, lax=_below(lax, KEY)), python_type(value, lax=_below(lax, VALUE))
            return dict[key_type, value_type | None]  # type: ignore[valid-type]  # made at run time
        case Struct(fields=fields):
            inner = {field.name: python_type(field.type, lax=_below(lax, field.name)) | None for field in fields}
            return TypedDict("Inner", inner, total=False)  # type: ignore[operator]  # made at run time
    assert_never(data_type)


def _below(reading: Reading | None, step: str) -> Reading | None:
    return None if reading is None else reading.below(step)
