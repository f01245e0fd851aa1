"""JSON objects of messages to records, in C wherever that means what value by value would be read.

Covers: the record types of a Kafka table, objects to records. Does not cover: what a value is (tilth.formats), blocks
of messages and columns (decode.py), events of Debezium (envelope.py).
Always holds: a message is read by itself. msgspec reads first what it reads without a doubt; then, with the judge for
whole numbers and times, also texts and numbers that stand for values of other types; what it refuses then, and what it
may read otherwise, is for the judge alone, whose word and reason count.
"""

from __future__ import annotations

import decimal
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Annotated, Any, TypedDict, assert_never

import msgspec
import pyarrow as pa

from tilth.formats import ABSENT, BadValueError, Reading, RowOptions, shown, to_stored
from tilth.ingest.messages.arrays import column_array, leaves_of
from tilth.ingest.messages.columns import MessageColumns, format_of, missing_value
from tilth.ingest.messages.envelope import ENVELOPE_NAMES, debezium_reader, envelope_fields
from tilth.ingest.settings import Envelope, KafkaConfig
from tilth.model.checks import ELEMENT, KEY, VALUE
from tilth.model.table import Column, Schema
from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple, Struct

_INTEGER_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
_TIMES = (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
_NTZ = Simple(Kind.TIMESTAMP_NTZ)
_PYTHON_TYPES: Mapping[Kind, Any] = {
    Kind.BOOLEAN: bool,
    Kind.FLOAT32: float,
    Kind.FLOAT64: float,
    Kind.STRING: str,
    # Base64 in JSON, as Spark's from_json and to_json have it.
    Kind.BINARY: bytes,
    Kind.DATE: date,
    Kind.TIMESTAMP: datetime,
}

#: A time with more than six fractional digits, which msgspec rounds.
_FINE_TIME = re.compile(rb'\.\d{7,}["Zz+\-]')
#: Escapes of letters of ASCII, which may hide such a time, or an underscore.
_ESCAPED_ASCII = b"\\u00"
_ESCAPED_UNDERSCORE = b"\\u005"
_DATE_LENGTH = len("2026-01-05")
_SECOND_END = len("2026-01-05T11:00:00.123456")
#: The end of a text that msgspec reads as a decimal, from its first underscore, and its begin; digits are zeros here.
_END_OF_NUMBER, _BEGIN_OF_NUMBER = re.compile(rb'0_[0_.eE+\-]*\s*"'), re.compile(rb'"\s*[0_.+\-]*\Z')
_NUMBER_CHARACTERS_MAX = 100
_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
#: A text that msgspec takes for null where it takes numbers in quotes.
_NULL_TEXT = b'"null"'

_Decoder = msgspec.json.Decoder[Any]

# Any: a decoded object is a struct type made at run time; its fields are c0, c1, ...
Record = Any


#: Reads a message, given its value and its key; raises ValueError, RecursionError or an InvalidInputError that say why.
Reader = Callable[[bytes, bytes | None], list[Record]]


class _IsJudged(type):
    def __instancecheck__(cls, value: object) -> bool:
        # What the judge makes of it is of pyarrow's types.
        return True


class _Judged(metaclass=_IsJudged):
    """Stands for whole numbers and times in the types of records where texts may be meant."""

    data_type: DataType
    reading: Reading
    #: The first whole number that is too large; 0: no whole numbers are meant.
    bound: int


class ObjectReader:
    """Reads messages of one Kafka table whose rows are JSON objects."""

    def __init__(self, schema: Schema, config: KafkaConfig, defaults: Mapping[str, object]) -> None:
        rows = _Objects(schema, config, defaults, is_older=False)
        self._rows = rows
        #: Record of a broken message in stream mode.
        self.empty: Record = rows.record()
        self._is_plain = config.envelope is Envelope.NONE
        if not self._is_plain:
            older = _Objects(schema, config, defaults, is_older=True)
            self._event = debezium_reader(rows.fast_type, rows.one, older.one)

    def reader_of(self, values: Sequence[bytes | None]) -> Reader:
        """Return a function that reads any one of these messages."""
        is_fast = self._rows.is_for_fast(b"".join(filter(None, values)))
        if self._is_plain:
            return lambda value, _: self._rows.several(value, is_fast=is_fast)
        return partial(self._event, is_fast=is_fast)

    def read_all(self, values: Sequence[bytes | None]) -> list[Record] | None:
        """Records of messages that are one object each; None if some are not, or are for the judge."""
        return self._rows.all_in_c(values) if self._is_plain else None

    def columns(self, records: Sequence[Record], positions: Sequence[int]) -> Sequence[Sequence[Any]]:
        """Values of the columns at these positions."""
        if not records or 2 * len(positions) < len(self._rows.schema.columns):
            return [list(map(operator.attrgetter(f"c{position}"), records)) for position in positions]
        # All records to tuples and those to columns: faster than reading most fields of each record.
        columns = list(zip(*map(msgspec.structs.astuple, records), strict=True))
        return [columns[position] for position in positions]

    def array(self, values: Sequence[Any], column: Column) -> pa.Array:
        """The values as the column; raises one of MISFITS where one does not fit."""
        return column_array(values, column)


class _Objects:
    """Reads objects, of rows that are deleted also such as lack columns."""

    def __init__(self, schema: Schema, config: KafkaConfig, defaults: Mapping[str, object], *, is_older: bool) -> None:
        self.schema = schema
        self._config = config
        self._defaults = {column.name: _as_value(column, defaults.get(column.name)) for column in schema.columns}
        self._is_older = is_older
        self._read = format_of(config).read
        self._columns = MessageColumns(schema, skip_unknown=config.skip_unknown)
        self._readings = [Reading(is_base64=True).of(column) for column in schema.columns]
        fields = [(f"c{index}", Any, None) for index, _ in enumerate(schema.columns)]
        has_envelope = config.envelope is Envelope.DEBEZIUM
        #: Type of records whose values the judge has read.
        self.record: Any = msgspec.defstruct("Judged", [*fields, *(envelope_fields() if has_envelope else ())])
        leaves = [leaf for column in schema.columns for leaf in leaves_of(column.type)]
        self._has_times = any(isinstance(leaf, Simple) and leaf.kind in _TIMES for leaf in leaves)
        self._has_decimals = any(isinstance(leaf, Decimal) for leaf in leaves)
        self._fast, self._exact = self._decoder(is_exact=False), self._decoder(is_exact=True)

    @property
    def fast_type(self) -> Any:
        """Record type of the fast decoder; None: there is none."""
        return None if self._fast is None else self._fast.type

    def one(self, text: bytes) -> Record:
        """The record of a text that is one object."""
        found = self.several(text)
        if len(found) != 1:
            raise BadValueError("not one JSON object", objects=len(found))
        return found[0]

    def several(self, text: bytes, *, is_fast: bool = False) -> list[Record]:
        """The records of the objects in a text. `is_fast`: it is known to be for the fast decoder."""
        found = _in_c(self._fast, text) if is_fast or self.is_for_fast(text) else None
        if found is None and self._is_for_exact(text):
            found = _in_c(self._exact, text)
        return self._judged(text) if found is None else found

    def all_in_c(self, texts: Sequence[bytes | None]) -> list[Record] | None:
        """Records of texts that are one object each, if all of them are read in C."""
        # Searched in all messages at once, which costs next to nothing.
        whole = b"".join(filter(None, texts)) if self._has_times or self._has_decimals else b""
        if self.is_for_fast(whole):
            found = _all_in_c(self._fast, texts)
            if found is not None or (texts[0] and _in_c(self._fast, texts[0])):
                # If they are none, one among them is broken, or holds several objects.
                return found
        return _all_in_c(self._exact, texts) if self._is_for_exact(b"".join(filter(None, texts))) else None

    def is_for_fast(self, text: bytes) -> bool:
        """True if the fast decoder reads nothing of the text otherwise than the judge does."""
        return self._fast is not None and not (
            (self._has_times and _has_odd_times(text)) or (self._has_decimals and _has_odd_decimals(text))
        )

    def _is_for_exact(self, text: bytes) -> bool:
        return self._exact is not None and not (
            _NULL_TEXT in text.lower() or (self._has_decimals and _has_odd_decimals(text))
        )

    def _judged(self, text: bytes) -> list[Record]:
        assert self._read is not None
        rows = self._read(text, self._columns, RowOptions(skip_unknown=self._config.skip_unknown))
        columns, readings = self.schema.columns, self._readings
        return [self.record(*map(self._stored, columns, readings, row)) for row in zip(*rows.values, strict=True)]

    # Any: a value for pyarrow.
    def _stored(self, column: Column, reading: Reading, value: Any) -> Any:
        default = self._defaults[column.name]
        if value is ABSENT:
            return None if self._is_older else missing_value(column, self._defaults)
        if value is None:
            if column.nullable or default is not None or self._is_older:
                return None if column.nullable else default
            raise BadValueError("NULL in a column that is NOT NULL", column=column.name)
        try:
            return to_stored(value, column.type, reading)
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise BadValueError(column=column.name, given=shown(value), why=error) from error

    def _decoder(self, *, is_exact: bool) -> _Decoder | None:
        """`is_exact`: numbers in quotes and their like are taken, whole ones and times by the judge.

        None: there is a type that msgspec does not know, as a map whose keys are structs.
        """
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for index, (column, reading) in enumerate(zip(self.schema.columns, self._readings, strict=True)):
            kind, default = _python_type(column.type, reading if is_exact else None), self._defaults[column.name]
            if self._is_older:
                fields.append((f"c{index}", kind | None, None))
            elif column.nullable or default is not None:
                fields.append((f"c{index}", kind | None, _as_field(default)))
            else:
                fields.append((f"c{index}", kind))
        names = {f"c{index}": column.name for index, column in enumerate(self.schema.columns)}
        if self._config.envelope is Envelope.DEBEZIUM:
            fields += envelope_fields()
            names |= ENVELOPE_NAMES
        record = msgspec.defstruct(
            "Record",
            fields,
            rename=names,
            kw_only=True,
            gc=False,
            forbid_unknown_fields=not self._config.skip_unknown,
        )
        try:
            return msgspec.json.Decoder(record, strict=not is_exact, dec_hook=_judge)
        except TypeError:
            return None


def _has_odd_times(text: bytes) -> bool:
    return _FINE_TIME.search(text) is not None or _ESCAPED_ASCII in text


def _has_odd_decimals(text: bytes) -> bool:
    """True if a number in quotes may have underscores, which msgspec passes over."""
    if _ESCAPED_UNDERSCORE in text:
        return True
    if b"_" not in text:
        return False
    text = text.translate(_AS_ZERO)
    return b"0_" in text and any(
        _BEGIN_OF_NUMBER.search(text, max(0, found.start() - _NUMBER_CHARACTERS_MAX), found.start())
        for found in _END_OF_NUMBER.finditer(text)
    )


def _all_in_c(decoder: _Decoder | None, texts: Sequence[bytes | None]) -> list[Record] | None:
    assert decoder is not None
    try:
        return list(map(decoder.decode, texts))  # type: ignore[arg-type]  # None raises TypeError
    except (ValueError, TypeError, RecursionError):
        return None


def _in_c(decoder: _Decoder | None, text: bytes) -> list[Record] | None:
    """One object, or several with or without white space between them; None where it is for the judge."""
    assert decoder is not None
    try:
        return [decoder.decode(text)]
    except msgspec.ValidationError:
        return None
    except (ValueError, RecursionError):
        pass
    try:
        return decoder.decode_lines(text)
    except (ValueError, RecursionError):
        return None


# Any: a time, or as `to_stored`.
def _judge(wanted: type[_Judged], given: Any) -> Any:
    """Read a value where a type holds `_Judged`; raises ValueError, upon which the judge reads the whole row."""
    if wanted.bound:
        # Nearly all of them, without a call.
        number = int(given) if type(given) is str and given.isdecimal() and given.isascii() else given
        if type(number) is int and -wanted.bound <= number < wanted.bound:
            return number
    if given is None or type(given) is float:
        # NULL where none may be; a number with a fraction, of which msgspec made the nearest float.
        raise ValueError(given)
    # Behind the sixth digit of the second is nothing, or no digit: msgspec rounds nothing.
    if type(given) is str and len(given) > _DATE_LENGTH and not given[_SECOND_END : _SECOND_END + 1].isdigit():
        try:
            found = msgspec.convert(given, datetime)
            # As the clock of the text shows it.
            return found.replace(tzinfo=None) if wanted.data_type == _NTZ else found
        except msgspec.ValidationError:
            pass
    return to_stored(given, wanted.data_type, wanted.reading)


# Any: a type expression made at run time.
def _python_type(data_type: DataType, reading: Reading | None) -> Any:
    """Return the type as which msgspec decodes a value; `reading`: the judge reads whole numbers and times so."""
    match data_type:
        case Simple(kind=kind) if kind is Kind.TIMESTAMP_NTZ or (
            reading is not None and (kind is Kind.TIMESTAMP or kind in _INTEGER_BITS)
        ):
            bound = 1 << _INTEGER_BITS[kind] - 1 if kind in _INTEGER_BITS else 0
            own = {"data_type": data_type, "reading": reading or Reading(), "bound": bound}
            return _IsJudged("_JudgedHere", (_Judged,), own)
        case Simple(kind=kind) if kind in _INTEGER_BITS:
            bound = 1 << (_INTEGER_BITS[kind] - 1)
            return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)]
        case Simple(kind=kind):
            return _PYTHON_TYPES[kind]
        case Decimal():
            return decimal.Decimal
        case Array(element=element):
            return list[_python_type(element, _below(reading, ELEMENT)) | None]  # type: ignore[misc]  # made at run time
        case Map(key=key, value=value):
            key_type, value_type = _python_type(key, _below(reading, KEY)), _python_type(value, _below(reading, VALUE))
            return dict[key_type, value_type | None]  # type: ignore[valid-type]  # made at run time
        case Struct(fields=fields):
            inner = {field.name: _python_type(field.type, _below(reading, field.name)) | None for field in fields}
            return TypedDict("Inner", inner, total=False)  # type: ignore[operator]  # made at run time
    assert_never(data_type)


def _below(reading: Reading | None, step: str) -> Reading | None:
    return None if reading is None else reading.below(step)


# Any: a value of the column's type.
def _as_value(column: Column, default: object) -> Any:
    """Return a default as messages bring values: of a map no pairs."""
    return dict(default) if isinstance(column.type, Map) and isinstance(default, list) else default


# Any: a value, or a field of the library that brings it.
def _as_field(default: object) -> Any:
    # Nobody changes a record's values, so that all may have the same one.
    return msgspec.field(default_factory=lambda: default) if isinstance(default, list | dict) else default
