"""One message to records: JSONEachRow, CSV, lines, raw; and what is wrong with a message that is none.

Covers: the record types of a Kafka table, reading one message into records, the reason in plain words. Does not cover:
blocks of messages and columns (decode.py), events of Debezium (envelope.py).
Always holds: a message is read by itself; what cannot be kept as it was sent (a time finer than a microsecond) is
refused with its reason, never cut.
"""

from __future__ import annotations

import csv
import decimal
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, TypedDict, assert_never

import msgspec

from tilth.ingest.errors import FormatError
from tilth.ingest.messages.envelope import ENVELOPE_NAMES, debezium_reader, envelope_fields
from tilth.ingest.settings import Envelope, Format, KafkaConfig
from tilth.model.checks import SecondDigits
from tilth.model.table import Column, Schema
from tilth.model.text.times import SECOND_DIGITS_MAX
from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple, Struct

_STRING = Simple(Kind.STRING)
_INTEGER_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
_TIMES = (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
_PYTHON_TYPES: Mapping[Kind, Any] = {
    Kind.BOOLEAN: bool,
    Kind.FLOAT32: float,
    Kind.FLOAT64: float,
    Kind.STRING: str,
    # Base64 in JSON, as Spark's from_json and to_json have it.
    Kind.BINARY: bytes,
    Kind.DATE: date,
    Kind.TIMESTAMP: datetime,
    Kind.TIMESTAMP_NTZ: datetime,
}
_RAW_KINDS = (Kind.STRING, Kind.BINARY)
_CSV_NULL = "\\N"
_CSV_NULL_IN_QUOTES = '"\\N"'
#: Python's own limit is 131,072 characters, and holds for the whole process; no message is longer than this.
_CSV_VALUE_MAX = (1 << 31) - 1
#: Characters that stand for something else while a line is cut into values: those of a private area.
_STAND_INS = range(0xE000, 0xF900)

#: Text in a message that ends like a time and has more than six fractional digits, or hides them in escapes.
_FINE_TIME = re.compile(rb'\.\d{7,}["Zz+\-]')
_ESCAPED_ASCII = b"\\u00"
#: Nonzero digit after the sixth fractional digit of a time.
_TOO_FINE = re.compile(r"\.\d{6}\d*[1-9]")

csv.field_size_limit(_CSV_VALUE_MAX)

# Any: a decoded message is a struct type made at run time; its fields are c0, c1, ...
Record = Any
#: Function that reads one message from its value and its key; raises ValueError and its subclasses with the reason.
Reader = Callable[[bytes, bytes | None], list[Record]]


class _IsTime(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, datetime)


class _Instant(metaclass=_IsTime):
    """Stands for datetime in the types of records whose times are looked at digit by digit."""

    #: Numbers count 10^-n seconds since 1970, as in ClickHouse's DateTime64(n).
    number_digits = 0


#: Classes of instants, indexed by the digits of a DateTime64.
_INSTANTS = [_IsTime(f"_Instant{digits}", (_Instant,), {"number_digits": digits}) for digits in range(7)]
_DATETIME64 = re.compile(r"(?:nullable\s*\(\s*)?datetime64\b", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_format(schema: Schema, config: KafkaConfig) -> None:
    """Raises FormatError when the format cannot fill such columns."""
    if config.format in (Format.RAW, Format.LINES):
        fits = len(schema.columns) == 1 and schema.columns[0].type in [Simple(kind) for kind in _RAW_KINDS]
        if not fits:
            hint = "declare exactly one column, of type STRING or BINARY"
            raise FormatError(table=config.table, format=config.format.value, columns=len(schema.columns), hint=hint)
    if config.envelope is not Envelope.NONE and config.format is not Format.JSON:
        hint = "set kafka_format = 'JSONEachRow', or leave kafka_envelope out"
        raise FormatError(
            "an envelope is JSON",
            table=config.table,
            format=config.format.value,
            envelope=config.envelope.value,
            hint=hint,
        )


class MessageReader:
    """Reads messages of one Kafka table."""

    def __init__(self, schema: Schema, config: KafkaConfig, defaults: Mapping[str, object]) -> None:
        has_envelope = config.envelope is Envelope.DEBEZIUM
        self._records = _Records(schema, config, defaults)
        #: `True` if any column contains times.
        self.has_times = any(_has_time(column.type) for column in schema.columns)
        self._read = self._records.reader(is_exact=False)
        #: Reader that checks each digit of a time, which takes longer.
        self._read_exact = self._records.reader(is_exact=True) if self.has_times else self._read
        #: Decoder of one JSON object to its record; None if messages hold something else.
        self.decode_one = self._records.decoder(is_exact=False) if _is_plain_json(config) else None
        fields = [(f"c{i}", Any, None) for i, _ in enumerate(schema.columns)]
        #: The record of a broken message in stream mode.
        self.empty: Record = msgspec.defstruct("Empty", [*fields, *(envelope_fields() if has_envelope else ())])()

    def read(self, value: bytes, key: bytes | None) -> list[Record]:
        """The records of one message; raises ValueError, TypeError, RecursionError or csv.Error with the reason."""
        return (self._read_exact if self.may_be_too_fine(value) else self._read)(value, key)

    def may_be_too_fine(self, text: bytes) -> bool:
        """True if a time in these messages may have more digits than are stored."""
        return self.has_times and (_FINE_TIME.search(text) is not None or _ESCAPED_ASCII in text)


@dataclass(frozen=True, slots=True)
class _Records:
    """The struct types of one Kafka table's records, and what reads them."""

    schema: Schema
    config: KafkaConfig
    defaults: Mapping[str, object]

    def reader(self, *, is_exact: bool) -> Reader:
        match self.config.format:
            case Format.JSON if self.config.envelope is Envelope.DEBEZIUM:
                return debezium_reader(
                    self.struct(is_exact=is_exact),
                    self.struct(is_exact=is_exact, is_older=True),
                    is_strict=self.is_strict,
                    dec_hook=_instants(is_strict=self.is_strict),
                )
            case Format.JSON:
                decode_one = self.decoder(is_exact=is_exact)
                return lambda value, _: _read_json(value, decode_one)
            case Format.CSV:
                read_line, delimiter = self._line_reader(), self.config.csv_delimiter
                return lambda value, _: [read_line(cells) for cells in csv_rows(value.decode(), delimiter)]
            case Format.RAW:
                record, as_value = self.struct(is_exact=False), _raw_value(self.schema.columns[0])
                return lambda value, _: [record(c0=as_value(value))]
            case Format.LINES:
                record, as_value = self.struct(is_exact=False), _raw_value(self.schema.columns[0])
                # Of bytes: only \n, \r and \r\n end a line.
                return lambda value, _: [record(c0=as_value(line)) for line in value.splitlines()]
        assert_never(self.config.format)

    @property
    def is_strict(self) -> bool:
        return not self.config.numbers_in_strings

    def decoder(self, *, is_exact: bool) -> Callable[[bytes | None], Record]:
        hook = _instants(is_strict=self.is_strict)
        decoder = msgspec.json.Decoder(self.struct(is_exact=is_exact), strict=self.is_strict, dec_hook=hook)
        # A message without a value raises TypeError, which the caller expects.
        return decoder.decode  # type: ignore[return-value]  # None, as said

    # Any: a struct type made at run time.
    def struct(self, *, is_exact: bool, is_older: bool = False) -> Any:
        """`is_older`: of a row that is deleted, of which anything may be missing."""
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for index, column in enumerate(self.schema.columns):
            kind = self._python_type(column, is_exact=is_exact)
            if is_older:
                fields.append((f"c{index}", kind | None, None))
            elif column.nullable or column.name in self.defaults:
                fields.append((f"c{index}", kind | None, self._default(column)))
            else:
                fields.append((f"c{index}", kind))
        names = {f"c{index}": column.name for index, column in enumerate(self.schema.columns)}
        if self.config.envelope is Envelope.DEBEZIUM:
            fields += envelope_fields()
            names |= ENVELOPE_NAMES
        return msgspec.defstruct(
            "Record",
            fields,
            rename=names,
            kw_only=True,
            gc=False,
            forbid_unknown_fields=not self.config.skip_unknown,
        )

    # Any: a value of the column's type, or a field of the library that brings it.
    def _default(self, column: Column) -> Any:
        value = self.defaults.get(column.name)
        if isinstance(column.type, Map) and isinstance(value, list):
            # Arrow's pairs, as messages bring them.
            value = dict(value)
        if isinstance(value, list | dict):
            # Nobody changes a record's values, so that all may have the same one.
            return msgspec.field(default_factory=lambda: value)
        return value

    # Any: as _python_type.
    def _python_type(self, column: Column, *, is_exact: bool) -> Any:
        if self.is_strict or not _DATETIME64.match(column.declared):
            return _python_type(column.type, is_exact=is_exact)
        digits = [check.rule.digits for check in column.checks if isinstance(check.rule, SecondDigits)]
        return _INSTANTS[min(digits, default=SECOND_DIGITS_MAX)]

    def _line_reader(self) -> Callable[[Sequence[str | None]], Record]:
        columns = self.schema.columns
        record = self.struct(is_exact=True)
        is_text = [column.type == _STRING for column in columns]
        hook = _instants(is_strict=False)
        nested = {
            i: msgspec.json.Decoder(_python_type(column.type, is_exact=True), dec_hook=hook)
            for i, column in enumerate(columns)
            if is_nested(column.type)
        }

        def read_line(cells: Sequence[str | None]) -> Record:
            if len(cells) != len(columns):
                raise ValueError(f"expected {len(columns)} values, got {len(cells)}")
            given: dict[str, Any] = {}
            for index, (column, cell) in enumerate(zip(columns, cells, strict=True)):
                if cell is None:
                    given[column.name] = None
                elif cell or is_text[index]:
                    given[column.name] = _inner(column, nested[index], cell) if index in nested else cell
            return msgspec.convert(given, record, strict=False, dec_hook=hook)

        return read_line


def _is_plain_json(config: KafkaConfig) -> bool:
    return config.format is Format.JSON and config.envelope is Envelope.NONE


# --- reading one message ---------------------------------------------------------------------------------------------


def _read_json(value: bytes, decode_one: Callable[[bytes | None], Record]) -> list[Record]:
    """One object, or several with or without white space between them."""
    try:
        return [decode_one(value)]
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        pieces = _json_pieces(value)
        if pieces is None:
            raise error
        return [decode_one(piece) for piece in pieces]


def _json_pieces(value: bytes) -> list[bytes] | None:
    """The texts of the objects that follow each other in a message; None if it is something else."""
    text = value.decode()
    scanner = json.JSONDecoder()
    pieces: list[bytes] = []
    at = _after_space(text, 0)
    while at < len(text):
        try:
            _, end = scanner.raw_decode(text, at)
        except ValueError:
            return None
        pieces.append(text[at:end].encode())
        at = _after_space(text, end)
    return pieces


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def csv_rows(text: str, delimiter: str) -> list[list[str | None]]:
    r"""The values of each line that is not empty; None for \N without quotes. Raises csv.Error.

    Lines end with \n, \r\n or \r, and with nothing else; inside of quotes no line ends.
    """
    stand_in = _stand_in(text) if _CSV_NULL_IN_QUOTES in text else None
    if stand_in is not None:
        # In quotes it is a text, which the library does not report.
        text = text.replace(_CSV_NULL_IN_QUOTES, f'"{stand_in}"')
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[list[str | None]] = [[None if cell == _CSV_NULL else cell for cell in cells] for cells in lines if cells]
    if stand_in is None:
        return rows
    return [[cell and cell.replace(stand_in, _CSV_NULL) for cell in cells] for cells in rows]


def _stand_in(text: str) -> str:
    """A character that the text does not have."""
    found = next((chr(code) for code in _STAND_INS if chr(code) not in text), None)
    if found is None:
        raise ValueError(f"{_CSV_NULL_IN_QUOTES} beside every character of the private area")
    return found


def _inner(column: Column, decoder: msgspec.json.Decoder[Any], cell: str) -> Any:
    """The value of a nested column; raises ValueError naming the column."""
    try:
        return decoder.decode(cell)
    except ValueError as error:
        what = str(error).partition(" - at `$")[0]
        raise ValueError(f"column `{column.name}`: {_plain(what, column.declared_type)}") from error


def _raw_value(column: Column) -> Callable[[bytes], bytes | str]:
    return bytes.decode if column.type == _STRING else bytes


# --- types -----------------------------------------------------------------------------------------------------------


# Any: a type expression made at run time.
def _python_type(data_type: DataType, *, is_exact: bool) -> Any:
    """Return the type as which msgspec decodes a value; `is_exact`: every digit of a time is checked."""
    match data_type:
        case Simple(kind=kind) if kind in _INTEGER_BITS:
            bound = 1 << (_INTEGER_BITS[kind] - 1)
            return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)]
        case Simple(kind=kind) if is_exact and kind in _TIMES:
            return _Instant
        case Simple(kind=kind):
            return _PYTHON_TYPES[kind]
        case Decimal():
            return decimal.Decimal
        case Array(element=element):
            return list[_python_type(element, is_exact=is_exact) | None]  # type: ignore[misc]  # made at run time
        case Map(key=key, value=value):
            key_type, value_type = (_python_type(each, is_exact=is_exact) for each in (key, value))
            return dict[key_type, value_type | None]  # type: ignore[valid-type]  # made at run time
        case Struct(fields=fields):
            inner = {field.name: _python_type(field.type, is_exact=is_exact) | None for field in fields}
            return TypedDict("Inner", inner, total=False)  # type: ignore[operator]  # made at run time
    assert_never(data_type)


def _instants(*, is_strict: bool) -> Callable[[type, Any], datetime]:
    """Return the hook that msgspec calls for `_Instant`; it raises ValueError with the reason."""

    def instant(wanted: type, given: Any) -> datetime:
        assert issubclass(wanted, _Instant), wanted
        if isinstance(given, str) and _TOO_FINE.search(given):
            raise ValueError("finer than a microsecond, which is all that is stored")
        if wanted.number_digits and type(given) is int:
            return _of_number(given, wanted.number_digits)
        try:
            return msgspec.convert(given, datetime, strict=is_strict)
        except msgspec.ValidationError as error:
            # As one of its own the library would not say where it was.
            raise ValueError(str(error)) from error

    return instant


def _of_number(number: int, digits: int) -> datetime:
    """The instant so many units of the last digit after 1970."""
    try:
        return _EPOCH + timedelta(microseconds=number * 10 ** (SECOND_DIGITS_MAX - digits))
    except OverflowError as error:
        raise ValueError(f"{number} leaves the years 1 to 9999") from error


def is_nested(data_type: DataType) -> bool:
    return isinstance(data_type, Array | Map | Struct)


def leaves_of(data_type: DataType) -> Iterator[Simple | Decimal]:
    """The types without others in them that it is made of."""
    match data_type:
        case Simple() | Decimal():
            yield data_type
        case Array(element=element):
            yield from leaves_of(element)
        case Map(key=key, value=value):
            yield from leaves_of(key)
            yield from leaves_of(value)
        case Struct(fields=fields):
            for field in fields:
                yield from leaves_of(field.type)


def _has_time(data_type: DataType) -> bool:
    return any(isinstance(leaf, Simple) and leaf.kind in _TIMES for leaf in leaves_of(data_type))


# --- what is wrong with a message ------------------------------------------------------------------------------------

#: Plain words for the library's names of types.
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "str": "a text",
    "bool": "true or false",
    "datetime": "a time",
    "date": "a date",
    "bytes": "a text in base64",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_GIVEN_WORDS = _WORDS | {"float": "a number with a fraction or an exponent"}
_EXPECTED = re.compile(r"Expected `([^`]*)`(.*?)(?:, got `([^`]*)`)?")
#: Error of the library for a text where a decimal is expected.
_NO_DECIMAL = "Invalid decimal string"
_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")


def reason_of(error: Exception, schema: Schema) -> str:
    """Describe the error in plain words, with the column first if it is known."""
    if isinstance(error, UnicodeDecodeError):
        return f"not valid UTF-8: {error.reason} at byte {error.start}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    what, at, path = str(error).partition(" - at `$")
    missing, unknown = _MISSING.fullmatch(what), _UNKNOWN.fullmatch(what)
    if missing is not None:
        return f"column `{missing[1]}`: it is missing"
    if unknown is not None:
        return f"the field `{unknown[1]}` is no column"
    if not at:
        return _plain(what)
    inner = path.rstrip("`").lstrip(".")
    in_event = inner.removeprefix("payload.").removeprefix("after.")
    column = schema.find(in_event)
    if column is not None:
        return f"column `{column.name}`: {_plain(what, column.declared_type)}"
    begun = [name for name in schema.names if in_event.startswith(name)]
    return f"column `{max(begun, key=len) if begun else inner}`: {_plain(what)}"


def _plain(what: str, column_type: str = "") -> str:
    """``Expected `float | null`, got `str` `` as "expected double, got a text"."""
    if column_type and what == _NO_DECIMAL:
        return f"expected {column_type}, got a text"
    found = _EXPECTED.fullmatch(what)
    if found is None:
        # Not of "JSON is malformed".
        return f"{what[:1].lower()}{what[1:]}" if what[1:2].islower() else what
    wanted = [word for word in found[1].split(" | ") if word != "null"]
    expected = column_type or " or ".join(_WORDS.get(word, word) for word in wanted)
    given = "" if found[3] is None else f", got {_GIVEN_WORDS.get(found[3], found[3])}"
    return f"expected {expected}{found[2]}{given}"
