"""JSON objects of messages to records.

Covers: the record types of a Kafka table, objects to records. Does not cover: values in C (in_c.py), what a value is
(tilth.formats), blocks of messages and columns (decode.py), events of Debezium (envelope.py).
Always holds: a message is read by itself. A strict decoder of msgspec reads it first, then a lax one that takes numbers
in quotes and numbers as times; what both refuse or may read otherwise is read by `to_stored`, value by value.

Tests: tests/unit/ingest/messages/test_decode.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from tilth.formats import ABSENT, BadValueError, Reading, RowOptions, shown, to_stored
from tilth.ingest.messages.arrays import checked_array
from tilth.ingest.messages.columns import MessageColumns, format_of, missing_value
from tilth.ingest.messages.envelope import ENVELOPE_NAMES, debezium_reader, envelope_fields
from tilth.ingest.messages.in_c import Decoder, Doubts, can_decode, decoder_of, python_type
from tilth.ingest.settings import Envelope, KafkaConfig
from tilth.model.table import Column, Schema
from tilth.model.types import Map

# Any: a decoded object is a struct type made at run time; its fields are c0, c1, ...
Record = Any


#: Reads a message, given its value and its key; raises ValueError, RecursionError or an InvalidInputError that say why.
Reader = Callable[[bytes, bytes | None], list[Record]]


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
            self._event = debezium_reader(rows.strict_type, rows.one, older.one)

    def reader_of(self, values: Sequence[bytes | None]) -> Reader:
        """Return a function that reads any one of these messages."""
        is_clear = self._rows.are_clear(values)
        if self._is_plain:
            return lambda value, _: self._rows.several(value, is_clear=is_clear)
        return partial(self._event, is_clear=is_clear)

    def in_c(self, text: bytes) -> list[Record] | None:
        """Return the records of the plain objects in a text; None: they must be read by value."""
        return self._rows.in_c(text)

    def read_all(self, values: Sequence[bytes | None]) -> tuple[list[Record], None] | None:
        """Return the records of messages that are one object each; None: they must be read one by one."""
        records = self._rows.all_in_c(values) if self._is_plain else None
        return None if records is None else (records, None)

    def columns(self, records: Sequence[Record], positions: Sequence[int]) -> Sequence[Sequence[Any]]:
        """Values of the columns at these positions."""
        if not records or 2 * len(positions) < len(self._rows.schema.columns):
            return [list(map(operator.attrgetter(f"c{position}"), records)) for position in positions]
        # All records to tuples and those to columns: faster than reading most fields of each record.
        columns = list(zip(*map(msgspec.structs.astuple, records), strict=True))
        return [columns[position] for position in positions]

    def array(self, values: Sequence[Any], column: Column) -> pa.Array:
        """The values as the column; raises one of MISFITS where one does not fit."""
        return checked_array(values, column)


class _Objects:
    """Reads objects. `is_older`: they are rows that were deleted, which may lack any column."""

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
        #: Type of records whose values `to_stored` has read.
        self.record: Any = msgspec.defstruct("Stored", [*fields, *(envelope_fields() if has_envelope else ())])
        self._doubts = Doubts(column.type for column in schema.columns)
        self._strict, self._lax = self._decoder(is_lax=False), self._decoder(is_lax=True)

    @property
    def strict_type(self) -> Any:
        """Record type of the strict decoder; None: there is none."""
        return None if self._strict is None else self._strict.type

    def one(self, text: bytes) -> Record:
        """The record of a text that is one object."""
        found = self.several(text)
        if len(found) != 1:
            raise BadValueError("not one JSON object", objects=len(found))
        return found[0]

    def several(self, text: bytes, *, is_clear: bool = False) -> list[Record]:
        """Return the records of the objects in a text. `is_clear`: it is known to be clear for the strict decoder."""
        found = self.in_c(text, is_clear=is_clear)
        return self._by_value(text) if found is None else found

    def in_c(self, text: bytes, *, is_clear: bool = False) -> list[Record] | None:
        """Return the records of the objects in a text; None: they must be read by value."""
        found = _in_c(self._strict, text) if is_clear or self.are_clear([text]) else None
        if found is None and self._are_clear_if_lax([text]):
            found = _in_c(self._lax, text)
        return found

    def all_in_c(self, texts: Sequence[bytes | None]) -> list[Record] | None:
        """Return the records of texts that are one object each, if all of them are read in C."""
        if self.are_clear(texts):
            found = _all_in_c(self._strict, texts)
            if found is not None or (texts[0] and _in_c(self._strict, texts[0])):
                # Numbers in quotes are in all messages or in none: one of these is broken, or holds several objects.
                return found
        return _all_in_c(self._lax, texts) if self._are_clear_if_lax(texts) else None

    def are_clear(self, texts: Sequence[bytes | None]) -> bool:
        """Return whether the strict decoder reads no value of the texts otherwise than `to_stored`."""
        return self._strict is not None and not self._doubts.exist_in(filter(None, texts))

    def _are_clear_if_lax(self, texts: Sequence[bytes | None]) -> bool:
        return self._lax is not None and not self._doubts.exist_in(filter(None, texts), is_lax=True)

    def _by_value(self, text: bytes) -> list[Record]:
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

    def _decoder(self, *, is_lax: bool) -> Decoder | None:
        if not all(can_decode(column.type) for column in self.schema.columns):
            return None
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for index, (column, reading) in enumerate(zip(self.schema.columns, self._readings, strict=True)):
            kind, default = python_type(column.type, lax=reading if is_lax else None), self._defaults[column.name]
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
        return decoder_of(record, is_lax=is_lax)


def _all_in_c(decoder: Decoder | None, texts: Sequence[bytes | None]) -> list[Record] | None:
    assert decoder is not None
    try:
        return list(map(decoder.decode, texts))  # type: ignore[arg-type]  # None raises TypeError
    except (ValueError, TypeError, RecursionError):
        return None


def _in_c(decoder: Decoder | None, text: bytes) -> list[Record] | None:
    """Return the record of one object, or of several with or without white space between; None: msgspec refuses it."""
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


# Any: a value of the column's type.
def _as_value(column: Column, default: object) -> Any:
    """Return a default as msgspec decodes such values: maps as dicts."""
    return dict(default) if isinstance(column.type, Map) and isinstance(default, list) else default


# Any: a value, or a field of the library that brings it.
def _as_field(default: object) -> Any:
    # All records may have the same one, as nobody changes their values.
    return msgspec.field(default_factory=lambda: default) if isinstance(default, list | dict) else default
