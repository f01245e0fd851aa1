"""Values of Avro files as Arrow arrays, with the rows whose values cannot be stored.

Covers: decoding blocks, values of each type. Does not cover: bytes of files (avro_blocks.py), which type a schema has
(query/language/avro_types.py).
Always holds: a value keeps its meaning, or its row is among those that cannot be stored, with the name of its field and
the reason; such a row touches no other. Bytes that are no records of the schema are an UnreadableFileError. A batch has
no more rows and bytes than its bounds, unless a single row has more.
"""

from __future__ import annotations

import io
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tilth.base.units import MIB
from tilth.model.types import Decimal
from tilth.query.errors import UnreadableFileError
from tilth.query.language.avro_types import (
    AvroEntries,
    AvroItems,
    AvroLeaf,
    AvroReading,
    AvroRecord,
    AvroType,
    field_key,
)
from tilth.query.worker.avro_blocks import AvroBlock
from tilth.storage import arrow_type

#: Maximum number of rows and of encoded bytes in a batch: a value is many times larger as an object of Python.
BATCH_ROWS_MAX = 4096
BATCH_BYTES_MAX = 4 * MIB
#: The marker of what the decoder reads: a file of its own, without compression.
_MARKER = bytes(16)
#: Errors of the decoder for bytes that are no records.
_NO_RECORDS = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error)
_DECIMAL_BYTES = 16

#: Problems of rows, by their number in the batch.
Problems = dict[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroRows:
    """Rows of a file in a batch, as decoded."""

    values: list[Mapping[str, Any]]
    #: Number of the first one in its piece, from 0.
    first: int


def decoded_rows(record: AvroRecord, blocks: Iterator[AvroBlock]) -> Iterator[AvroRows]:
    """Decode the records of blocks. Raises UnreadableFileError."""
    stream = _Blocks(record.decoded, blocks)
    # Any: its types know neither the content of a block nor a stream that can only be read.
    source: Any = stream
    first = 0
    try:
        block: Any
        for block in fastavro.block_reader(source, handle_unicode_errors="surrogateescape"):
            content: io.BytesIO = block.bytes_
            values: list[Mapping[str, Any]] = []
            begin = 0
            for value in block:
                values.append(value)
                if len(values) >= BATCH_ROWS_MAX or content.tell() - begin >= BATCH_BYTES_MAX:
                    yield AvroRows(values=values, first=first)
                    first += len(values)
                    begin, values = content.tell(), []
            if content.read(1):
                raise UnreadableFileError("a block of the file has more than its records", block_start=stream.start)
            if values:
                yield AvroRows(values=values, first=first)
                first += len(values)
    except _NO_RECORDS as error:
        because = f"{type(error).__name__}: {error}"
        message = "a block of the file has no records of its schema"
        raise UnreadableFileError(message, block_start=stream.start, because=because) from error


class _Blocks:
    """A file for the decoder: the blocks as they were before they were compressed."""

    def __init__(self, schema: object, blocks: Iterator[AvroBlock]) -> None:
        self._blocks = blocks
        self._held = io.BytesIO(_header(msgspec.json.encode(schema)))
        #: Byte of the real file at which the block begins that is read now.
        self.start = 0

    def read(self, size: int) -> bytes:
        found = self._held.read(size)
        if found or not size:
            return found
        block = next(self._blocks, None)
        if block is None:
            return b""
        self.start = block.start
        self._held = io.BytesIO(b"".join((_number(block.records), _number(len(block.data)), block.data, _MARKER)))
        return self._held.read(size)

    def tell(self) -> int:
        return self.start


def _header(schema: bytes) -> bytes:
    entries = ((b"avro.schema", schema), (b"avro.codec", b"null"))
    texts = b"".join(_number(len(text)) + text for entry in entries for text in entry)
    return b"".join((b"Obj\x01", _number(len(entries)), texts, _number(0), _MARKER))


def _number(value: int) -> bytes:
    """Encode a number from 0 on as Avro does."""
    value <<= 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def arrays_of(
    record: AvroRecord, names: Sequence[str], values: Sequence[Mapping[str, Any]]
) -> tuple[list[pa.Array], Problems]:
    """Return the columns with these names, in their order; in rows with problems their values are NULL or arbitrary."""
    problems: Problems = {}
    rows = range(len(values))
    known = {name: (position, each) for position, (name, each) in enumerate(record.fields)}
    arrays = []
    for name in names:
        position, each = known[name]
        key = field_key(position)
        arrays.append(_array(each, [value[key] for value in values], _Noting(problems, rows, name)))
    return arrays, problems


@dataclass(frozen=True, slots=True)
class _Noting:
    """Notes the problems of values: each belongs to a row."""

    problems: Problems
    rows: Sequence[int]
    #: The field, for people.
    name: str

    def note(self, position: int, why: str) -> None:
        self.problems.setdefault(self.rows[position], f"column `{self.name}`: {why}")

    def below(self, rows: Sequence[int], name: str) -> _Noting:
        return _Noting(self.problems, rows, f"{self.name}{name}")


# Any: values are of all types that Avro has.
def _array(kind: AvroType, values: Sequence[Any], noting: _Noting) -> pa.Array:
    match kind:
        case AvroLeaf():
            return _READERS[kind.reading](kind, values, noting)
        case AvroRecord():
            return _records(kind, values, noting)
        case AvroItems():
            return _items(kind, values, noting)
        case AvroEntries():
            return _entries(kind, values, noting)
    assert_never(kind)


def _records(kind: AvroRecord, values: Sequence[Any], noting: _Noting) -> pa.Array:
    target = arrow_type(kind.type)
    arrays = []
    for position, (name, each) in enumerate(kind.fields):
        key = field_key(position)
        # A member of a union is a record without the others.
        inner = [None if value is None else value.get(key) for value in values]
        arrays.append(_array(each, inner, noting.below(noting.rows, f".{name}")))
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=list(target), mask=mask)


def _items(kind: AvroItems, values: Sequence[Any], noting: _Noting) -> pa.Array:
    offsets = _offsets(values)
    inner = [each for value in values if value is not None for each in value]
    element = _array(kind.element, inner, noting.below(_repeated(noting.rows, values), "[]"))
    return pa.ListArray.from_arrays(offsets, element, type=arrow_type(kind.type), mask=_nulls(values))


def _entries(kind: AvroEntries, values: Sequence[Any], noting: _Noting) -> pa.Array:
    offsets = _offsets(values)
    below = noting.below(_repeated(noting.rows, values), "[]")
    keys = [_utf8(key) for value in values if value is not None for key in value]
    inner = [each for value in values if value is not None for each in value.values()]
    texts = [text if text is not None else "" for text in keys]
    for position, text in enumerate(keys):
        if text is None:
            below.note(position, "a key is not UTF-8")
    arrays = pa.array(texts, pa.string()), _array(kind.value, inner, below)
    return pa.MapArray.from_arrays(offsets, *arrays, type=arrow_type(kind.type), mask=_nulls(values))


def _utf8(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


def _offsets(values: Sequence[Any]) -> pa.Array:
    ends, end = [0], 0
    for value in values:
        end += 0 if value is None else len(value)
        ends.append(end)
    return pa.array(ends, pa.int32())


def _repeated(rows: Sequence[int], values: Sequence[Any]) -> list[int]:
    return [row for row, value in zip(rows, values, strict=True) if value is not None for _ in value]


def _nulls(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _converted(
    values: Sequence[Any], noting: _Noting, convert: Callable[[Any], Any], target: pa.DataType, why: str
) -> pa.Array:
    """Return what each value is converted to; one that is refused by ValueError is noted with the reason."""
    found: list[Any] = []
    for position, value in enumerate(values):
        try:
            found.append(None if value is None else convert(value))
        except (ValueError, OverflowError):
            noting.note(position, f"{why}: {_shown(value)}")
            found.append(None)
    return pa.array(found, target)


def _shown(value: Any) -> str:
    return repr(value)[:60]


def _plain(kind: AvroLeaf, values: Sequence[Any], noting: _Noting) -> pa.Array:
    return _whole(values, arrow_type(kind.type), noting)


def _whole(values: Sequence[Any], target: pa.DataType, noting: _Noting) -> pa.Array:
    """Return the values; raises UnreadableFileError for a number of more bits than its type has."""
    try:
        return pa.array(values, target)
    except (pa.ArrowInvalid, OverflowError) as error:
        message = "a block of the file has no records of its schema"
        raise UnreadableFileError(message, field=noting.name, because=error) from error


def _text(kind: AvroLeaf, values: Sequence[Any], noting: _Noting) -> pa.Array:
    found = pa.array(values, pa.binary())
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return _converted(values, noting, bytes.decode, pa.string(), "a text is not UTF-8")


def _date(kind: AvroLeaf, values: Sequence[Any], noting: _Noting) -> pa.Array:
    return _whole(values, pa.int32(), noting).view(pa.date32())


def _micros(kind: AvroLeaf, values: Sequence[Any], noting: _Noting) -> pa.Array:
    return pa.array(values, pa.int64()).view(arrow_type(kind.type))


def _millis(kind: AvroLeaf, values: Sequence[Any], noting: _Noting) -> pa.Array:
    target = arrow_type(kind.type)
    try:
        return pc.multiply_checked(pa.array(values, pa.int64()), 1000).view(target)
    except pa.ArrowInvalid:
        return _converted(values, noting, _micros_of_millis, pa.int64(), "out of range").view(target)


def _micros_of_millis(value: int) -> int:
    if not -(1 << 63) <= value * 1000 < 1 << 63:
        raise ValueError(value)
    return value * 1000


def _nanos(kind: AvroLeaf, values: Sequence[Any], noting: _Noting) -> pa.Array:
    why = "a time is finer than a microsecond"
    return _converted(values, noting, _micros_of_nanos, pa.int64(), why).view(arrow_type(kind.type))


def _micros_of_nanos(value: int) -> int:
    whole, rest = divmod(value, 1000)
    if rest:
        raise ValueError(value)
    return whole


def _decimal(kind: AvroLeaf, values: Sequence[Any], noting: _Noting) -> pa.Array:
    assert isinstance(kind.type, Decimal)
    limit = 10**kind.type.precision

    def read(value: bytes) -> bytes:
        number = int.from_bytes(value, "big", signed=True)
        if abs(number) >= limit:
            raise ValueError(number)
        return number.to_bytes(_DECIMAL_BYTES, "little", signed=True)

    why = f"more than {kind.type.precision} digits"
    return _converted(values, noting, read, pa.binary(_DECIMAL_BYTES), why).view(arrow_type(kind.type))


def _uuid(kind: AvroLeaf, values: Sequence[Any], noting: _Noting) -> pa.Array:
    return pa.array([None if value is None else str(uuid.UUID(bytes=value)) for value in values], pa.string())


def _enum(kind: AvroLeaf, values: Sequence[Any], noting: _Noting) -> pa.Array:
    for value in values:
        if value is not None and not 0 <= value < len(kind.words):
            raise UnreadableFileError("an enum has no such symbol", field=noting.name, symbol=value)
    texts = [None if value is None else kind.words[value] for value in values]
    return pa.array(texts, pa.string())


_READERS: Mapping[AvroReading, Callable[[AvroLeaf, Sequence[Any], _Noting], pa.Array]] = {
    AvroReading.PLAIN: _plain,
    AvroReading.TEXT: _text,
    AvroReading.DATE: _date,
    AvroReading.MICROS: _micros,
    AvroReading.MILLIS: _millis,
    AvroReading.NANOS: _nanos,
    AvroReading.DECIMAL: _decimal,
    AvroReading.UUID: _uuid,
    AvroReading.ENUM: _enum,
}
