"""Messages to Arrow: JSONEachRow, CSV, raw.

Covers: decoding, virtual columns, and telling exactly which messages are broken and why. Does not cover: fetching
(kafka.py), what becomes of broken messages (spark.py). Always holds: each message is decoded by itself, so that a
broken one never touches its neighbours; a message gives all of its rows or none. See also: MEASURED.md, "Kernels".
"""

from __future__ import annotations

import csv
import decimal
import io
import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum, auto
from itertools import chain, repeat
from typing import Annotated, Any, Protocol, TypedDict, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.ingest.envelope import ENVELOPE_COLUMNS, ENVELOPE_FIELDS, ENVELOPE_NAMES, debezium_reader, envelope_fields
from tilth.ingest.errors import FormatError
from tilth.ingest.ops import are_deletes, bad_ops
from tilth.ingest.settings import Envelope, ErrorMode, Format, KafkaConfig
from tilth.ingest.times import check_cell, check_digits, has_times, in_zones, may_be_fine
from tilth.model.table import Column, Schema
from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple, Struct, spark_name
from tilth.storage import array_of, arrow_type, misfits

_STRING = Simple(Kind.STRING)

#: What a view may select beside the columns of the Kafka table; `*` does not stand for them.
VIRTUAL_COLUMNS: Mapping[str, DataType] = {
    "_topic": _STRING,
    "_partition": Simple(Kind.INT32),
    "_offset": Simple(Kind.INT64),
    "_timestamp": Simple(Kind.TIMESTAMP),
    "_timestamp_ms": Simple(Kind.TIMESTAMP),
    "_key": _STRING,
    "_headers": Map(_STRING, _STRING),
    "_content": _STRING,
}
#: Those of kafka_handle_error_mode = stream.
ERROR_COLUMNS: Mapping[str, DataType] = {"_error": _STRING, "_raw_message": _STRING}

_INTEGER_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
_PYTHON_TYPES: Mapping[Kind, Any] = {
    Kind.BOOLEAN: bool,
    Kind.FLOAT32: float,
    Kind.FLOAT64: float,
    Kind.STRING: str,
    # Base64 in JSON, as Spark's from_json and to_json have it.
    Kind.BINARY: bytes,
    Kind.DATE: date,
}
_RAW_KINDS = (Kind.STRING, Kind.BINARY)
_CSV_NULL = "\\N"
# Cells may be as long as messages.
csv.field_size_limit((1 << 31) - 1)

_value_of = operator.methodcaller("value")

# Any: a decoded message is a struct type made at run time; its fields are c0, c1, ...
Record = Any


class Message(Protocol):
    """What is needed of a message of the Kafka client."""

    def value(self) -> bytes | None: ...
    def key(self) -> bytes | None: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A message that cannot be decoded: a row of the dead-letter table."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    reason: str
    raw: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What became of some messages of one topic partition."""

    #: The columns that were asked for, in that order.
    rows: pa.RecordBatch
    messages: int
    broken: tuple[Broken, ...]


class Wanted(Enum):
    #: A value.
    PRESENT = auto()
    #: A word that says what the row does.
    OP = auto()
    #: A value, in rows that delete.
    PLACE = auto()


@dataclass(frozen=True, slots=True)
class RowCheck:
    """What a column's values must be; a message with others is broken."""

    column: str
    wanted: Wanted
    #: Because of whom, in words.
    because: str
    #: The column that says what rows do; of PLACE.
    op: str = ""


class Decoder:
    """Decodes messages of one Kafka table."""

    def __init__(
        self,
        schema: Schema,
        config: KafkaConfig,
        *,
        columns: Sequence[str],
        defaults: Mapping[str, object],
        checks: Sequence[RowCheck] = (),
    ) -> None:
        """`columns`: what to return, virtual columns among them. `defaults`: values of columns that have one.

        Raises FormatError when the format cannot fill such columns.
        """
        check_format(schema, config)
        self._schema = schema
        self._checks = tuple(checks)
        self._record = _record_type(schema, config, defaults)
        has_envelope = config.envelope is Envelope.DEBEZIUM
        fields = [(f"c{i}", Any, None) for i, _ in enumerate(schema.columns)]
        self._empty = msgspec.defstruct("Empty", [*fields, *(envelope_fields() if has_envelope else ())])()
        self._read = _reader(schema, config, self._record)
        #: Reads what has an envelope around it; None: nothing has.
        self._read_event = _event_reader(schema, config, defaults) if has_envelope else None
        self._is_json = config.format is Format.JSON and not has_envelope
        self._timed = [(f"c{i}", column) for i, column in enumerate(schema.columns) if has_times(column.type)]
        #: Reads a message with its times as they are written; None: it has none, or they are seen cell by cell.
        self._read_texts = _texts_reader(schema, config, defaults) if self._timed else None
        self._is_streaming = config.error_mode is ErrorMode.STREAM
        self._columns = tuple(columns)
        self._defaults = defaults
        by_name = {column.name: (f"c{i}", column) for i, column in enumerate(schema.columns)}
        self._places = {column.name: i for i, column in enumerate(schema.columns)}
        # Those that may overflow are converted even when nobody wants them: whether a message is broken must not depend
        # on what the views select.
        wanted = {*self._columns, *_checked_columns(checks)}
        self._converted = [pair for pair in by_name.values() if pair[1].name in wanted or _may_overflow(pair[1])]
        self.arrow_schema = pa.schema([(name, arrow_type(column_type(schema, name))) for name in self._columns])

    def decode(self, topic: str, partition: int, messages: Sequence[Message]) -> Decoded:
        """The rows of these messages, in order, and the broken ones."""
        records, counts, reasons = self._read_all(messages)
        try:
            arrays = self._arrays(records)
        except (pa.ArrowException, OverflowError, ValueError):
            records, counts, reasons = self._without_misfits(messages)
            arrays = self._arrays(records)
        sources = messages if counts is None else list(chain.from_iterable(map(repeat, messages, counts)))
        for name in (*self._columns, *_checked_columns(self._checks)):
            if name not in arrays and self._read_event is not None and name in ENVELOPE_FIELDS:
                values = list(map(operator.attrgetter(ENVELOPE_FIELDS[name]), records))
                arrays[name] = _array(values, ENVELOPE_COLUMNS[name])
            elif name not in arrays:
                arrays[name] = _virtual(name, topic, partition, sources, reasons, messages)
        rows = pa.RecordBatch.from_arrays([arrays[name] for name in self._columns], schema=self.arrow_schema)
        if self._checks:
            rows, reasons = self._checked(rows, arrays, counts, reasons)
        broken = tuple(_broken(topic, partition, messages[i], reason) for i, reason in reasons.items())
        return Decoded(rows=rows, messages=len(messages), broken=broken)

    def _checked(
        self, rows: pa.RecordBatch, arrays: Mapping[str, pa.Array], counts: list[int] | None, reasons: dict[int, str]
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Without the messages that have a row with a value that is not as it must be."""
        wrong: dict[int, str] = {}
        for check in self._checks:
            array = arrays[check.column]
            match check.wanted:
                case Wanted.PRESENT:
                    found = array.is_null()
                case Wanted.OP:
                    found = bad_ops(array)
                case Wanted.PLACE:
                    found = pc.and_(array.is_null(), are_deletes(arrays[check.op]))
            for row in np.flatnonzero(found.to_numpy(zero_copy_only=False)).tolist():
                wrong.setdefault(row, f"column `{check.column}`: {_shown(array[row].as_py())}, but {check.because}")
        if not wrong:
            return rows, reasons
        owners = np.repeat(np.arange(len(counts)), counts) if counts is not None else np.arange(rows.num_rows)
        broken = reasons | {int(owners[row]): reason for row, reason in wrong.items()}
        return rows.filter(pa.array(~np.isin(owners, list(broken)))), dict(sorted(broken.items()))

    def _read_all(self, messages: Sequence[Message]) -> tuple[list[Record], list[int] | None, dict[int, str]]:
        """Records, rows by message (None: one each) and reasons by index of a broken message."""
        values = list(map(_value_of, messages))
        if self._is_json and not (self._timed and may_be_fine(values)):
            try:
                # Nearly always every message is one object: the whole list in C.
                return list(map(self._record.decode_one, values)), None, {}
            except (ValueError, TypeError, RecursionError):
                pass
        return self._read_each(values, messages)

    def _read_each(
        self, values: Sequence[bytes | None], messages: Sequence[Message]
    ) -> tuple[list[Record], list[int], dict[int, str]]:
        records: list[Record] = []
        counts: list[int] = []
        reasons: dict[int, str] = {}
        for index, value in enumerate(values):
            try:
                # A message without a value is Kafka's tombstone: no rows, and nothing wrong with it.
                if not value:
                    found = []
                elif self._read_event is None:
                    found = self._read(value)
                else:
                    found = self._read_event(value, messages[index].key())
                if value and self._read_texts is not None and may_be_fine([value]):
                    for record in self._read_texts(value, messages[index].key()):
                        for field, column in self._timed:
                            check_digits(column, getattr(record, field))
            except (ValueError, TypeError, RecursionError, csv.Error) as error:
                reasons[index] = _reason(error, self._schema)
                found = [self._empty] if self._is_streaming else []
            records.extend(found)
            counts.append(len(found))
        return records, counts, reasons

    def _without_misfits(self, messages: Sequence[Message]) -> tuple[list[Record], list[int], dict[int, str]]:
        """As `_read_each`, with those messages broken whose values the column types cannot hold (rare, slow)."""
        records, counts, reasons = self._read_each(list(map(_value_of, messages)), messages)
        kept: list[Record] = []
        start = 0
        for index, count in enumerate(counts):
            mine = records[start : start + count]
            start += count
            reason = None if index in reasons else self._misfit(mine)
            if reason is not None:
                reasons[index] = reason
                mine = [self._empty] if self._is_streaming else []
                counts[index] = len(mine)
            kept.extend(mine)
        return kept, counts, dict(sorted(reasons.items()))

    def _misfit(self, records: Sequence[Record]) -> str | None:
        for field, column in self._converted:
            for record in records:
                value = getattr(record, field)
                try:
                    _column_array([value], column)
                except _BrokenCheckError as error:
                    return f"column `{column.name}`: {error}"
                except (pa.ArrowException, OverflowError, ValueError):
                    return f"column `{column.name}`: {_shown(value)} does not fit {spark_name(column.type)}"
        return None

    def _arrays(self, records: Sequence[Record]) -> dict[str, pa.Array]:
        """The columns of the table that were asked for."""
        arrays = {}
        for column, values in self._values(records):
            array = _column_array(values, column)
            default = self._defaults.get(column.name)
            if default is not None and not column.nullable and array.null_count:
                array = array.fill_null(pa.scalar(default, array.type))
            arrays[column.name] = array
        return arrays

    def _values(self, records: Sequence[Record]) -> Iterable[tuple[Column, Sequence[Any]]]:
        """The values of each column that is converted."""
        if not records or 2 * len(self._converted) < len(self._schema.columns):
            return [(column, list(map(operator.attrgetter(field), records))) for field, column in self._converted]
        # All records to tuples and those to columns: faster than asking each record for most of its fields.
        columns = list(zip(*map(msgspec.structs.astuple, records), strict=True))
        return [(column, columns[self._places[column.name]]) for _, column in self._converted]


def _checked_columns(checks: Sequence[RowCheck]) -> list[str]:
    return [name for check in checks for name in (check.column, check.op) if name]


def column_type(schema: Schema, name: str) -> DataType:
    """The type of a column or virtual column."""
    column = schema.find(name)
    if column is not None:
        return column.type
    return VIRTUAL_COLUMNS.get(name) or ERROR_COLUMNS.get(name) or ENVELOPE_COLUMNS[name]


# --- reading one message ---------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class _RecordType:
    """A struct type with a field for each column, and how JSON becomes one."""

    type: Any
    decode_one: Callable[[bytes | None], Record]


def _record_type(
    schema: Schema, config: KafkaConfig, defaults: Mapping[str, object], times: Any = datetime
) -> _RecordType:
    made = _record_struct(schema, config, defaults, times)
    decoder = msgspec.json.Decoder(made, strict=not config.numbers_in_strings)
    # A message without a value raises TypeError, which the caller expects.
    return _RecordType(made, decoder.decode)  # type: ignore[arg-type]  # None, as said


# Any: a struct type made at run time.
def _record_struct(
    schema: Schema, config: KafkaConfig, defaults: Mapping[str, object], times: Any, *, is_older: bool = False
) -> Any:
    """`times`: what they are decoded as. `is_older`: of a row that is deleted, of which anything may be missing."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for index, column in enumerate(schema.columns):
        kind = _python_type(column.type, times)
        if is_older:
            fields.append((f"c{index}", kind | None, None))
        elif column.nullable or column.name in defaults:
            fields.append((f"c{index}", kind | None, defaults.get(column.name)))
        else:
            fields.append((f"c{index}", kind))
    names = {f"c{index}": column.name for index, column in enumerate(schema.columns)}
    if config.envelope is Envelope.DEBEZIUM:
        fields += envelope_fields()
        names |= ENVELOPE_NAMES
    return msgspec.defstruct(
        "Record", fields, rename=names, kw_only=True, gc=False, forbid_unknown_fields=not config.skip_unknown
    )


def _texts_reader(
    schema: Schema, config: KafkaConfig, defaults: Mapping[str, object]
) -> Callable[[bytes, bytes | None], list[Record]] | None:
    """Reads a message of JSON with its times as texts."""
    if config.envelope is Envelope.DEBEZIUM:
        return _event_reader(schema, config, defaults, str)
    if config.format is not Format.JSON:
        return None
    decode_one = _record_type(schema, config, defaults, str).decode_one
    return lambda value, _: _read_json(value, decode_one)


def _event_reader(
    schema: Schema, config: KafkaConfig, defaults: Mapping[str, object], times: Any = datetime
) -> Callable[[bytes, bytes | None], list[Record]]:
    return debezium_reader(
        _record_struct(schema, config, defaults, times),
        _record_struct(schema, config, defaults, times, is_older=True),
        is_strict=not config.numbers_in_strings,
    )


def _reader(schema: Schema, config: KafkaConfig, record: _RecordType) -> Callable[[bytes], list[Record]]:
    """Reads one message into its records; raises ValueError with the reason."""
    match config.format:
        case Format.JSON:
            return lambda value: _read_json(value, record.decode_one)
        case Format.CSV:
            return _csv_reader(schema, record.type, config.csv_delimiter)
        case Format.RAW:
            as_value = _raw_value(schema.columns[0])
            return lambda value: [record.type(c0=as_value(value))]
        case Format.LINES:
            as_value = _raw_value(schema.columns[0])
            return lambda value: [record.type(c0=as_value(line)) for line in value.splitlines()]
    assert_never(config.format)


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


def _csv_reader(schema: Schema, record: Any, delimiter: str) -> Callable[[bytes], list[Record]]:
    columns = schema.columns
    is_text = [column.type == _STRING for column in columns]
    nested = {i: msgspec.json.Decoder(_python_type(c.type)) for i, c in enumerate(columns) if _is_nested(c.type)}

    def read_line(cells: list[str]) -> Record:
        if len(cells) != len(columns):
            raise ValueError(f"expected {len(columns)} values, got {len(cells)}")
        given: dict[str, Any] = {}
        for index, (column, cell) in enumerate(zip(columns, cells, strict=True)):
            check_cell(column, cell)
            if cell == _CSV_NULL:
                given[column.name] = None
            elif cell or is_text[index]:
                given[column.name] = nested[index].decode(cell) if index in nested else cell
        return msgspec.convert(given, record, strict=False)

    def read(value: bytes) -> list[Record]:
        lines = csv.reader(io.StringIO(value.decode(), newline=""), delimiter=delimiter, strict=True)
        return [read_line(cells) for cells in lines if cells]

    return read


def _raw_value(column: Column) -> Callable[[bytes], bytes | str]:
    return bytes.decode if column.type == _STRING else bytes


# --- types -----------------------------------------------------------------------------------------------------------


# Any: a type expression made at run time.
def _python_type(data_type: DataType, times: Any = datetime) -> Any:
    """What msgspec decodes a value of this type as; `times`: the same of timestamps."""
    match data_type:
        case Simple(kind=kind) if kind in _INTEGER_BITS:
            bound = 1 << (_INTEGER_BITS[kind] - 1)
            return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)]
        case Simple(kind=Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ):
            return times
        case Simple(kind=kind):
            return _PYTHON_TYPES[kind]
        case Decimal():
            return decimal.Decimal
        case Array(element=element):
            return list[_python_type(element, times) | None]  # type: ignore[misc]  # made at run time
        case Map(key=key, value=value):
            of = _python_type(value, times) | None
            return dict[_python_type(key, times), of]  # type: ignore[misc]  # made at run time
        case Struct(fields=fields):
            inner = {field.name: _python_type(field.type, times) | None for field in fields}
            return TypedDict("Inner", inner, total=False)  # type: ignore[operator]  # made at run time
    assert_never(data_type)


def _array(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """Raises ArrowInvalid or OverflowError when a value does not fit."""
    return array_of(values, data_type)


class _BrokenCheckError(ValueError):
    """A value that the declared type does not have."""


def _column_array(values: Sequence[Any], column: Column) -> pa.Array:
    """As `_array`, with the zones and the checks of the declared type."""
    array = _array(in_zones(values, column), column.type)
    for wrong in misfits(array, column)[:1]:
        raise _BrokenCheckError(f"{wrong.value}, but {wrong.why}")
    return array


def _is_nested(data_type: DataType) -> bool:
    return isinstance(data_type, Array | Map | Struct)


def _may_overflow(column: Column) -> bool:
    """Whether a decoded value may still not fit the column."""
    is_float = column.type == Simple(Kind.FLOAT32)
    return isinstance(column.type, Decimal) or _is_nested(column.type) or is_float or bool(column.checks)


# --- what is told of a message ---------------------------------------------------------------------------------------


def _reason(error: Exception, schema: Schema) -> str:
    """The decoder's words, with the column first where they name one."""
    if isinstance(error, UnicodeDecodeError):
        return f"not valid UTF-8: {error.reason} at byte {error.start}"
    text = str(error)
    what, at, path = text.partition(" - at `$")
    if not at:
        return text
    inner = path.rstrip("`").lstrip(".")
    in_event = inner.removeprefix("payload.").removeprefix("after.")
    names = sorted((n for n in schema.names if inner.startswith(n) or in_event.startswith(n)), key=len, reverse=True)
    return f"column `{names[0] if names else inner}`: {what[:1].lower()}{what[1:]}"


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _broken(topic: str, partition: int, message: Message, reason: str) -> Broken:
    return Broken(
        topic=topic,
        partition=partition,
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        reason=reason,
        raw=message.value(),
    )


def _virtual(
    name: str,
    topic: str,
    partition: int,
    sources: Sequence[Message],
    reasons: Mapping[int, str],
    messages: Sequence[Message],
) -> pa.Array:
    """A virtual column: one value for each row, from the message that the row came with."""
    type_ = arrow_type(VIRTUAL_COLUMNS.get(name) or ERROR_COLUMNS[name])
    match name:
        case "_topic":
            return pa.repeat(pa.scalar(topic, type_), len(sources))
        case "_partition":
            return pa.repeat(pa.scalar(partition, type_), len(sources))
        case "_offset":
            values: Iterable[Any] = (message.offset() for message in sources)
        case "_timestamp":
            values = (message.timestamp()[1] // 1000 * 1_000_000 for message in sources)
        case "_timestamp_ms":
            values = (message.timestamp()[1] * 1000 for message in sources)
        case "_key":
            values = (_text(message.key()) for message in sources)
        case "_headers":
            values = ([(key, _text(value)) for key, value in message.headers() or []] for message in sources)
        case "_content":
            values = (_text(message.value()) for message in sources)
        case "_error":
            told = {id(messages[index]): reason for index, reason in reasons.items()}
            values = (told.get(id(message)) for message in sources)
        case _:
            broken = {id(messages[index]) for index in reasons}
            values = (_text(message.value()) if id(message) in broken else None for message in sources)
    return pa.array(list(values), type_)


def _text(value: bytes | None) -> str | None:
    """As text; bytes that are no UTF-8 are shown as \\xNN."""
    return None if value is None else value.decode(errors="backslashreplace")
