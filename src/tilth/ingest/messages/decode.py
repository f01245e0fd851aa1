"""Blocks of messages to Arrow.

Covers: decoding, virtual columns, and exactly which messages are broken and why. Does not cover: reading one message
(objects.py, cells.py), the compiled kernel that reads most of them (json_blocks.py), fetching (kafka/broker.py), what
views make of rows (rounds/source.py).
Always holds: each message is decoded by itself, so that a broken one never touches its neighbours; a message gives all
of its rows or none, and each row knows its message. See also: docs/design/0006-measured.md#kernels.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tilth.base.errors import InvalidInputError
from tilth.formats import BadValueError
from tilth.ingest.batch import MessageBatch
from tilth.ingest.compiled import KernelLoader
from tilth.ingest.messages.arrays import LAST_TIME, MISFITS, BrokenCheckError, array_of, may_misfit
from tilth.ingest.messages.cells import CellReader
from tilth.ingest.messages.columns import check_format, format_of, reason_of
from tilth.ingest.messages.envelope import ENVELOPE_COLUMNS, ENVELOPE_FIELDS
from tilth.ingest.messages.json_blocks import LOADER, Block, BlockReader
from tilth.ingest.messages.objects import ObjectReader
from tilth.ingest.settings import Envelope, ErrorMode, KafkaConfig
from tilth.model.table import Column, Schema
from tilth.model.types import DataType, Kind, Map, Simple
from tilth.storage import arrow_type

_STRING = Simple(Kind.STRING)

#: Columns that a view may select besides those of the Kafka table; `*` does not include them.
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
#: Virtual columns that are never NULL, even of a broken message in stream mode. `_timestamp` may be: a message may
#: lack a time.
NEVER_NULL_COLUMNS = frozenset({"_topic", "_partition", "_offset"})
#: Additional columns with kafka_handle_error_mode = stream.
ERROR_COLUMNS: Mapping[str, DataType] = {"_error": _STRING, "_raw_message": _STRING}

# A row of a reader: a record or a tuple.
Record = Any
# Rows of a reader: a list, or any value that its `columns` understands.
Records = Any
#: Index of each row's message among the decoded messages; None: every message is one row.
Owners = np.ndarray[Any, np.dtype[np.int64]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A message that cannot be decoded, or that a view cannot take: a row of the dead-letter table."""

    topic: str
    partition: int
    offset: int
    #: Time in microseconds; None: not known.
    timestamp: int | None
    key: bytes | None
    #: `database.view`; None: it cannot be decoded.
    view: str | None = None
    reason: str
    raw: bytes | None

    @property
    def text(self) -> str:
        """Text for people: `topic/partition@offset: why`."""
        view = "" if self.view is None else f"view {self.view}: "
        return f"{self.topic}/{self.partition}@{self.offset}: {view}{self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Rows and broken messages of one topic partition."""

    #: The columns that were requested, in that order.
    rows: pa.RecordBatch
    owners: Owners
    messages: int
    broken: tuple[Broken, ...]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of messages, by column."""

    arrays: dict[str, pa.Array]
    #: Rows of each message; None: every message is one row.
    counts: Sequence[int] | None
    #: Reason by index of a broken message.
    reasons: dict[int, str]


class Decoder:
    """Decodes messages of one Kafka table."""

    def __init__(
        self,
        schema: Schema,
        config: KafkaConfig,
        *,
        columns: Sequence[str],
        defaults: Mapping[str, object],
        loader: KernelLoader = LOADER,
    ) -> None:
        """`columns`: what to return, virtual columns among them; at least one. `defaults`: values of columns that have
        one. Raises FormatError when the format cannot fill such columns.
        """
        check_format(schema, config)
        # A batch without columns has no rows either.
        assert columns
        self._schema, self._config = schema, config
        self._columns = tuple(columns)
        self._defaults = defaults
        has_objects = format_of(config).is_objects
        # Columns that may misfit are converted even if no view selects them: whether a message is broken must not
        # depend on the views.
        wanted = {*self._columns}
        self._converted = [
            position
            for position, column in enumerate(schema.columns)
            if column.name in wanted or may_misfit(column) or not has_objects
        ]
        self._blocks = _block_reader(schema, config, defaults, loader)
        self.arrow_schema = pa.schema([(name, arrow_type(column_type(schema, name))) for name in self._columns])

    @cached_property
    def _reader(self) -> ObjectReader | CellReader:
        # Not before it is needed: record types of hundreds of columns take milliseconds, and the kernel reads most.
        make = ObjectReader if format_of(self._config).is_objects else CellReader
        return make(self._schema, self._config, self._defaults)

    @cached_property
    def _broken_rows(self) -> list[Record]:
        """Rows of a broken message."""
        return [self._reader.empty] if self._config.error_mode is ErrorMode.STREAM else []

    def decode(self, topic: str, partition: int, messages: MessageBatch) -> Decoded:
        """The rows of these messages, in order, and the broken ones."""
        block = self._blocks.read(messages.values, self._converted) if self._blocks else None
        rows = self._by_objects(messages) if block is None else self._by_block(block, messages)
        arrays, counts = rows.arrays, rows.counts
        owners = None if counts is None else np.repeat(np.arange(len(counts)), counts)
        for name in self._columns:
            if name not in arrays:
                column = _virtual(name, topic, partition, messages, rows.reasons)
                arrays[name] = column if owners is None else column.take(pa.array(owners))
        return Decoded(
            rows=pa.RecordBatch.from_arrays([arrays[name] for name in self._columns], schema=self.arrow_schema),
            owners=owners,
            messages=len(messages),
            broken=tuple(broken(topic, partition, messages, i, reason) for i, reason in rows.reasons.items()),
        )

    def _by_block(self, block: Block, messages: MessageBatch) -> _Rows:
        """Return the block's rows, with those of doubtful messages as `_by_objects` reads them."""
        columns = [self._schema.columns[position] for position in block.arrays]
        arrays = {
            column.name: self._filled(array, column)
            for column, array in zip(columns, block.arrays.values(), strict=True)
        }
        doubtful = block.doubtful
        if not len(doubtful):
            return _Rows(arrays, None, {})
        others = self._by_objects(messages.select(doubtful.tolist()))
        own = [1] * len(doubtful) if others.counts is None else others.counts
        counts = np.ones(len(messages), np.int64)
        counts[doubtful] = own
        pieces = _pieces(doubtful.tolist(), own, len(messages))
        merged = {
            name: pa.concat_arrays([(others.arrays[name] if is_own else array)[cut] for is_own, cut in pieces])
            for name, array in arrays.items()
        }
        return _Rows(merged, counts.tolist(), {int(doubtful[index]): why for index, why in others.reasons.items()})

    def _by_objects(self, messages: MessageBatch) -> _Rows:
        records, counts, reasons = self._read_all(messages)
        try:
            arrays = self._arrays(records)
        except (BadValueError, *MISFITS):
            records, counts, reasons = self._without_misfits(messages)
            arrays = self._arrays(records)
        for name in self._columns:
            if name not in arrays and name in ENVELOPE_FIELDS:
                values = list(map(operator.attrgetter(ENVELOPE_FIELDS[name]), records))
                arrays[name] = array_of(values, ENVELOPE_COLUMNS[name])
        return _Rows(arrays, counts, reasons)

    def _read_all(self, messages: MessageBatch) -> tuple[Records, Sequence[int] | None, dict[int, str]]:
        """Return records, rows by message (None: one each) and reasons by index of a broken message."""
        found = self._reader.read_all(messages.values.items)
        return _flat(*self._read_each(messages)) if found is None else (*found, {})

    def _read_each(self, messages: MessageBatch) -> tuple[list[Sequence[Record]], dict[int, str]]:
        """Return the rows of each message, and reasons by index of a broken one."""
        values = messages.values.items
        rows: list[Sequence[Record]] = []
        reasons: dict[int, str] = {}
        read = self._reader.reader_of(values)
        for index, value in enumerate(values):
            try:
                # A message without a value is Kafka's tombstone: no rows, and nothing wrong with it.
                rows.append(read(value, messages.key(index)) if value else ())
            except (InvalidInputError, ValueError, RecursionError) as error:
                reasons[index] = reason_of(error)
                rows.append(self._broken_rows)
        return rows, reasons

    def _without_misfits(self, messages: MessageBatch) -> tuple[list[Record], list[int], dict[int, str]]:
        """Read like `_read_all`; messages whose values the column types cannot hold are broken."""
        rows, reasons = self._read_each(messages)
        for index, reason in list(self._misfits(rows, 0, self._converted)):
            reasons[index] = reason
            rows[index] = self._broken_rows
        return _flat(rows, dict(sorted(reasons.items())))

    def _misfits(
        self, rows: Sequence[Sequence[Record]], first: int, positions: Sequence[int]
    ) -> Iterator[tuple[int, str]]:
        """Yield index and reason of each message with a value that one of these columns cannot hold.

        `rows` are those of the messages from index `first` on. They are halved until only such messages are left, so
        that a few among many cost little.
        """
        unfit = self._unfit(list(chain.from_iterable(rows)), positions)
        if unfit and len(rows) == 1:
            reason = self._misfit(rows[0], unfit)
            if reason is not None:
                yield first, reason
        elif unfit:
            half = len(rows) // 2
            yield from self._misfits(rows[:half], first, unfit)
            yield from self._misfits(rows[half:], first + half, unfit)

    def _unfit(self, records: Sequence[Record], positions: Sequence[int]) -> list[int]:
        """Return the positions of the columns that cannot hold all of these values."""
        unfit = []
        for position, values in zip(positions, self._reader.columns(records, positions), strict=True):
            try:
                self._reader.array(values, self._schema.columns[position])
            except (BadValueError, *MISFITS):
                unfit.append(position)
        return unfit

    def _misfit(self, records: Sequence[Record], positions: Sequence[int]) -> str | None:
        for position in positions:
            column = self._schema.columns[position]
            for value in self._reader.columns(records, [position])[0]:
                try:
                    self._reader.array([value], column)
                except BadValueError as error:
                    return reason_of(error)
                except BrokenCheckError as error:
                    return f"column `{column.name}`: {error}"
                except MISFITS:
                    return f"column `{column.name}`: {_shown(value)} does not fit {column.declared_type}"
        return None

    def _arrays(self, records: Records) -> dict[str, pa.Array]:
        """The columns of the table that were requested."""
        arrays = {}
        for position, values in zip(self._converted, self._reader.columns(records, self._converted), strict=True):
            column = self._schema.columns[position]
            arrays[column.name] = self._filled(self._reader.array(values, column), column)
        return arrays

    def _filled(self, array: pa.Array, column: Column) -> pa.Array:
        """Return the column with its default where NULL was given and none may be."""
        default = self._defaults.get(column.name)
        if default is None or column.nullable or not array.null_count:
            return array
        return array.fill_null(pa.scalar(default, array.type))


def column_type(schema: Schema, name: str) -> DataType:
    """The type of a column or virtual column."""
    column = schema.find(name)
    if column is not None:
        return column.type
    return VIRTUAL_COLUMNS.get(name) or ERROR_COLUMNS.get(name) or ENVELOPE_COLUMNS[name]


def _block_reader(
    schema: Schema, config: KafkaConfig, defaults: Mapping[str, object], loader: KernelLoader
) -> BlockReader | None:
    """Return the reader of blocks of such messages; None: they are read one by one."""
    if not format_of(config).is_objects or config.envelope is not Envelope.NONE:
        return None
    reader = BlockReader(schema, skip_unknown=config.skip_unknown, defaults=defaults, loader=loader)
    return reader if reader.can_read else None


def _pieces(doubtful: Sequence[int], counts: Sequence[int], messages: int) -> list[tuple[bool, slice]]:
    """Return the slices of a block's rows, in their order: `True` for those of doubtful messages, which have `counts`
    rows each, and the slice of all rows of doubtful messages, or of the block.
    """
    pieces: list[tuple[bool, slice]] = []
    ends = np.cumsum(counts).tolist()
    after = 0
    for index, count, end in zip(doubtful, counts, ends, strict=True):
        pieces += [(False, slice(after, index)), (True, slice(end - count, end))]
        after = index + 1
    return [*pieces, (False, slice(after, messages))]


def _flat(rows: Sequence[Sequence[Record]], reasons: dict[int, str]) -> tuple[list[Record], list[int], dict[int, str]]:
    return list(chain.from_iterable(rows)), list(map(len, rows)), reasons


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def broken(
    topic: str, partition: int, messages: MessageBatch, index: int, reason: str, *, view: str | None = None
) -> Broken:
    """The message at the index with what is wrong with it."""
    return Broken(
        topic=topic,
        partition=partition,
        offset=int(messages.offsets[index]),
        timestamp=micros_of(messages.time(index), 1000),
        key=messages.key(index),
        view=view,
        reason=reason,
        raw=messages.values[index],
    )


def _virtual(name: str, topic: str, partition: int, messages: MessageBatch, reasons: Mapping[int, str]) -> pa.Array:
    """A virtual column: one value for each message."""
    type_ = arrow_type(VIRTUAL_COLUMNS.get(name) or ERROR_COLUMNS[name])
    match name:
        case "_topic":
            return pa.repeat(pa.scalar(topic, type_), len(messages))
        case "_partition":
            return pa.repeat(pa.scalar(partition, type_), len(messages))
        case "_offset":
            return pa.array(messages.offsets, type_)
        case "_timestamp":
            return _times(messages, 1_000_000, type_)
        case "_timestamp_ms":
            return _times(messages, 1000, type_)
        case "_key":
            values: Iterable[Any] = map(_text, messages.keys)
        case "_headers":
            values = ([(key, _text(value)) for key, value in headers] for headers in messages.headers)
        case "_content":
            values = map(_text, messages.values.items)
        case "_error":
            values = map(reasons.get, range(len(messages)))
        case _:
            values = (_text(messages.values[i]) if i in reasons else None for i in range(len(messages)))
    return pa.array(list(values), type_)


def _times(messages: MessageBatch, unit: int, type_: pa.DataType) -> pa.Array:
    millis = messages.times
    are_valid = (millis >= 0) & (millis <= LAST_TIME // 1000)
    micros = np.where(are_valid, millis, 0) * 1000
    return pa.array(micros // unit * unit, mask=~are_valid).cast(type_)


def micros_of(millis: int, unit: int) -> int | None:
    """Return a message's time in microseconds, cut to the unit; None if the producer gave no valid time."""
    micros = millis * 1000
    return micros // unit * unit if 0 <= micros <= LAST_TIME else None


def _text(value: bytes | None) -> str | None:
    """Decode as text; bytes that are no UTF-8 are shown as \\xNN."""
    return None if value is None else value.decode(errors="backslashreplace")
