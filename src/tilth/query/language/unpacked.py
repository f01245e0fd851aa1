"""Rows that come as an Arrow stream, from clients, workers and other servers, in no more memory than they may take.

A few kilobytes may become gigabytes: buffers are compressed, columns refer to dictionaries, and columns of NULL have no
bytes at all. Sizes are therefore read from the heads of the stream's messages before anything is unpacked,
and those of decoded columns before they are decoded.

Covers: the sizes, reading. Does not cover: limits and their errors, what becomes of the rows.

Tests: tests/unit/query/results/test_spark.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

#: Bytes in a column of a value that takes none in the stream, such as a NULL without a type.
_VALUE_BYTES = 8
# Numbers of fields, and kinds of messages, in Arrow's Message.fbs. It is a FlatBuffer: a table refers to its vtable,
# which has the offset of each field.
_KIND, _HEAD, _BODY_BYTES = 1, 2, 3
_SCHEMA, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3
_BUFFERS, _COMPRESSION, _DICTIONARY, _BATCH_OF_DICTIONARY, _IS_DELTA = 2, 3, 0, 1, 2


class MessageKind(Enum):
    """Kind of a message of a stream."""

    SCHEMA = auto()
    DICTIONARY = auto()
    BATCH = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFacts:
    """Facts about a message of a stream, as its head has them."""

    kind: MessageKind
    #: Size of the message behind its head.
    body_bytes: int
    #: Id of a dictionary, and whether the message adds to it.
    dictionary: int = 0
    is_delta: bool = False


_KINDS = {_SCHEMA: MessageKind.SCHEMA, _DICTIONARY_BATCH: MessageKind.DICTIONARY, _RECORD_BATCH: MessageKind.BATCH}


def message_facts(head: memoryview) -> MessageFacts:
    """Read the head of a message. Raises struct.error and IndexError for what is none."""
    root = _target(head, 0)
    kind_at, size_at = _field(head, root, _KIND), _field(head, root, _BODY_BYTES)
    kind = _KINDS.get(int(head[kind_at]) if kind_at else 0, MessageKind.OTHER)
    size = int(struct.unpack_from("<q", head, size_at)[0]) if size_at else 0
    if size < 0:
        raise struct.error("a message has a negative size")
    if kind is not MessageKind.DICTIONARY:
        return MessageFacts(kind=kind, body_bytes=size)
    batch = _table(head, root, _HEAD)
    id_at, delta_at = _field(head, batch, _DICTIONARY), _field(head, batch, _IS_DELTA)
    return MessageFacts(
        kind=kind,
        body_bytes=size,
        dictionary=int(struct.unpack_from("<q", head, id_at)[0]) if id_at else 0,
        is_delta=bool(delta_at and head[delta_at]),
    )


def read_stream(stream: bytes, bytes_max: int, error: Callable[[int], Exception]) -> pa.Table:
    """Return the rows of a stream.

    Raises `error` of their bytes before they take more than `bytes_max`, and Arrow's errors for what is no such stream.
    """

    def check(size: int) -> None:
        if size > bytes_max:
            raise error(size)

    size = 0
    for message in _messages(stream):
        size += _unpacked_bytes(message)
        check(size)
    with pa.ipc.open_stream(pa.BufferReader(stream)) as reader:
        table = reader.read_all()
    # Lengths and offsets come from outside; kernels trust them.
    table.validate(full=True)
    # The bound costs a tenth of the sum, and suffices for nearly all.
    if decoded_bound(table, size) > bytes_max:
        check(decoded_bytes(table))
    return table


def read_own(stream: bytes, bytes_max: int, error: Callable[[int], Exception]) -> pa.Table:
    """Return the rows of a stream that another process of Tilth has written, which compresses none.

    Raises `error` of a size above `bytes_max`, and Arrow's errors. What is there in memory already may be as large as
    it is: who has written it counts a little less, for the buffers of a stream are padded.
    """

    return read_stream(stream, max(bytes_max, len(stream)), error)


def decoded_bound(table: pa.Table, size: int) -> int:
    """Return bytes that the rows of buffers with so many bytes in all do not exceed, with each value written out."""
    if not all(map(_is_plain, table.schema.types)):
        return decoded_bytes(table)
    # Each buffer of a column, three at most, is somewhere in them; several may be the same bytes.
    return int(max(3 * table.num_columns * size, table.num_rows))


@lru_cache(1024)
def _is_plain(kind: pa.DataType) -> bool:
    """Return whether the values of an array take the bytes of its three buffers at most."""
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    is_large_text = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return bool(pa.types.is_primitive(kind) or is_text or is_large_text)


def decoded_bytes(table: pa.Table) -> int:
    """Return the bytes of the rows with each value written out, at least one for each row."""
    more = sum(_hidden_bytes(chunk) for column in table.columns for chunk in column.chunks)
    return max(int(table.nbytes) + more, int(table.num_rows))


def _hidden_bytes(array: pa.Array) -> int:
    """Return the bytes that the values of an array take beside its own, once they are written out."""
    kind = array.type
    if pa.types.is_null(kind):
        return _VALUE_BYTES * len(array)
    if pa.types.is_dictionary(kind):
        return _dictionary_bytes(array)
    if pa.types.is_struct(kind):
        return sum(_hidden_bytes(array.field(index)) for index in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _hidden_bytes(array.keys) + _hidden_bytes(array.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _hidden_bytes(array.values)
    return 0


def _dictionary_bytes(array: pa.DictionaryArray) -> int:
    values = array.dictionary
    if not len(values):
        return 0
    if pa.types.is_binary(values.type) or pa.types.is_string(values.type):
        lengths = pc.binary_length(values).cast(pa.int64())
        return int(pc.sum(lengths.take(array.indices)).as_py() or 0)
    # Sizes of single values are not known here, so each counts as the whole dictionary. Only texts are common.
    is_plain = pa.types.is_primitive(values.type)
    return len(array) * (_VALUE_BYTES if is_plain else int(values.nbytes) + _hidden_bytes(values))


def _messages(stream: bytes) -> Iterator[pa.Message]:
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(stream))
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _unpacked_bytes(message: pa.Message) -> int:
    """Return the bytes of the message's buffers once they are unpacked, as its head says."""
    body = message.body
    if body is None:
        return 0
    head = memoryview(message.metadata)
    try:
        return _sum_of_buffers(head, memoryview(body))
    except (struct.error, IndexError) as error:
        raise pa.ArrowInvalid(f"the head of a message is damaged: {error}") from error


def _sum_of_buffers(head: memoryview, body: memoryview) -> int:
    root = _target(head, 0)
    kind_at = _field(head, root, _KIND)
    kind = int(head[kind_at]) if kind_at else 0
    batch = _table(head, root, _HEAD)
    if kind == _DICTIONARY_BATCH and batch:
        batch = _table(head, batch, _BATCH_OF_DICTIONARY)
    elif kind != _RECORD_BATCH:
        return len(body)
    buffers = _table(head, batch, _BUFFERS) if batch else 0
    if not buffers or not _field(head, batch, _COMPRESSION):
        return len(body)
    (count,) = struct.unpack_from("<I", head, buffers)
    size = 0
    for index in range(count):
        start, length = struct.unpack_from("<qq", head, buffers + 4 + 16 * index)
        # A compressed buffer begins with its unpacked size; -1: it is not compressed.
        unpacked = struct.unpack_from("<q", body, start)[0] if length else 0
        size += length if unpacked < 0 else unpacked
    return size


def _target(head: memoryview, position: int) -> int:
    """Return the position that the relative offset at a position refers to."""
    return position + int(struct.unpack_from("<I", head, position)[0])


def _field(head: memoryview, table: int, number: int) -> int:
    """Return the position of a field of a table; 0: the table does not have it."""
    vtable = table - int(struct.unpack_from("<i", head, table)[0])
    (size,) = struct.unpack_from("<H", head, vtable)
    entry = 4 + 2 * number
    offset = int(struct.unpack_from("<H", head, vtable + entry)[0]) if entry < size else 0
    return table + offset if offset else 0


def _table(head: memoryview, table: int, number: int) -> int:
    """Return the position of the table or vector that a field refers to; 0: the table does not have the field."""
    field = _field(head, table, number)
    return _target(head, field) if field else 0
