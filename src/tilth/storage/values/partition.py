"""Partitions of rows: kernels of the transforms, and the text that names a partition.

Covers: transforms on Arrow columns, partition ids. Does not cover: pruning by them (sql).
Always holds: two rows have the same id if and only if all elements of PARTITION BY have equal values (long strings: but
for a collision of SHA-256); an id consists of letters, digits and `-`. Times are taken in UTC.

Values as text: dates `2013-01-05`, hours `2013-01-05T14`, numbers as they are, strings as they are if they consist of
letters, digits and (with a single element) `-`; NULL `null`. Any other text is `x-` and its UTF-8 bytes in hexadecimal,
or `h-` and a hash if it is long. Elements are joined by `-`.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.model.part import Bound
from tilth.model.table import Column, Schema, Transform, TransformKind
from tilth.model.types import INTEGER_BITS, DataType, Decimal, Kind, Simple
from tilth.storage.errors import BadPartitionError
from tilth.storage.store.paths import WHOLE_TABLE
from tilth.storage.values.arrow import arrow_type
from tilth.storage.values.bounds import bound_of

#: Longer texts are hashed.
TEXT_BYTES_MAX = 64
_HASH_DIGITS = 32
_PLAIN = re.compile(r"[A-Za-z0-9]+")
_PLAIN_WITH_DASH = re.compile(r"[A-Za-z0-9-]+")
#: Texts that mean something else.
_RESERVED = frozenset({"null", "x", "h"})
_NULL = "null"

_FLOATS = frozenset({Kind.FLOAT32, Kind.FLOAT64})
_TIMES = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ})
_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
#: Days of 0001-01-01 and 9999-12-31, between which a day is written as a date.
_DAYS = (datetime.date.min.toordinal() - 719_163, datetime.date.max.toordinal() - 719_163)


#: Numbers are counted, which takes memory for each possible one, up to so many or the number of rows; else sorted.
_COUNTED_MAX = 1 << 16

Indices = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioned:
    """Split the rows of a table by partition."""

    #: Position in `ids` for each row.
    indices: Indices
    #: Partition ids, each once.
    ids: tuple[str, ...]
    #: Values of PARTITION BY's elements for each id.
    values: tuple[tuple[Bound, ...], ...]


def partition_ids(schema: Schema, partition_by: Sequence[Transform], rows: pa.Table) -> Partitioned:
    """Return the partition of each row; raises BadPartitionError naming a transform that does not fit its column."""
    count = rows.num_rows
    indices = np.zeros(count, np.int64)
    if not count:
        return Partitioned(indices=indices, ids=(), values=())
    if not partition_by:
        return Partitioned(indices=indices, ids=(WHOLE_TABLE,), values=((),))
    encoded = []
    size = 1
    for transform in partition_by:
        column = column_of(schema, transform)
        dictionary, codes = _encode(transform_array(transform, column, rows.column(column.name)))
        encoded.append((dictionary, codes))
        # Made dense again each time, so that the product stays below 2**63 by orders of magnitude.
        indices = _dense(indices * len(dictionary) + codes, size * len(dictionary))
        size = int(indices.max()) + 1
    firsts = np.empty(size, np.int64)
    # The row that is assigned last stays: the first of the partition.
    firsts[indices[::-1]] = np.arange(count - 1, -1, -1)
    values = tuple(tuple(dictionary[codes[row]] for dictionary, codes in encoded) for row in firsts)
    ids = tuple(partition_id(schema, partition_by, of_one) for of_one in values)
    return Partitioned(indices=indices, ids=ids, values=values)


def _dense(numbers: Indices, size: int) -> Indices:
    """Renumber from 0 without gaps, in the order of the numbers, all of which are below `size`."""
    if size > max(len(numbers), _COUNTED_MAX):
        return np.unique(numbers, return_inverse=True)[1]
    used = np.flatnonzero(np.bincount(numbers, minlength=size))
    if len(used) == size:
        return numbers
    renumbered = np.zeros(size, np.int64)
    renumbered[used] = np.arange(len(used))
    return renumbered[numbers]


def partition_id(schema: Schema, partition_by: Sequence[Transform], values: Sequence[Bound]) -> str:
    """The id of the partition whose elements have these values (as in `WrittenPart.values`)."""
    if not partition_by:
        return WHOLE_TABLE
    texts = []
    for transform, value in zip(partition_by, values, strict=True):
        kind = result_type(transform, column_of(schema, transform))
        texts.append(_text(value, kind, transform.kind, is_only=len(partition_by) == 1))
    return "-".join(texts)


def column_of(schema: Schema, transform: Transform) -> Column:
    """Return the column of a transform; raises BadPartitionError."""
    column = schema.find(transform.column)
    if column is None:
        raise BadPartitionError("no such column in PARTITION BY", column=transform.column)
    return column


def check_partition_by(schema: Schema, partition_by: Sequence[Transform]) -> None:
    """Raises BadPartitionError naming a transform that does not fit its column."""
    for transform in partition_by:
        result_type(transform, column_of(schema, transform))


def result_type(transform: Transform, column: Column) -> DataType:
    """The type of a transform's values; raises BadPartitionError when it does not fit the column."""
    of = column.type
    kind = of.kind if isinstance(of, Simple) else None
    match transform.kind:
        case TransformKind.IDENTITY:
            fits, result = isinstance(of, Decimal) or (isinstance(of, Simple) and kind not in _FLOATS), of
        case TransformKind.TO_DATE:
            fits, result = kind in _TIMES, Simple(Kind.DATE)
        case TransformKind.TO_MONDAY | TransformKind.TO_START_OF_MONTH:
            fits, result = kind in _TIMES, Simple(Kind.DATE)
        case TransformKind.TO_YYYYMM | TransformKind.TO_YYYYMMDD | TransformKind.TO_YEAR:
            fits, result = kind in _TIMES, Simple(Kind.INT32)
        case TransformKind.TO_HOUR:
            fits, result = kind in _TIMES - {Kind.DATE}, Simple(Kind.INT32)
        case TransformKind.MODULO:
            fits, result = kind in INTEGER_BITS or (isinstance(of, Decimal) and of.scale == 0), Simple(Kind.INT64)
        case TransformKind.TO_START_OF_HOUR:
            fits, result = kind in _TIMES - {Kind.DATE}, of
        case TransformKind.TRUNCATE:
            fits, result = kind in INTEGER_BITS.keys() | {Kind.STRING}, of
        case TransformKind.BUCKET:
            fits = isinstance(of, Decimal) or (isinstance(of, Simple) and kind not in _FLOATS | {Kind.BOOLEAN})
            result = Simple(Kind.INT32)
        case _:
            assert_never(transform.kind)
    needs_argument = transform.kind in (TransformKind.TRUNCATE, TransformKind.BUCKET, TransformKind.MODULO)
    if not fits or (needs_argument and (transform.argument is None or not 1 <= transform.argument < 1 << 63)):
        raise BadPartitionError(
            transform=transform.kind,
            column=transform.column,
            type=column.declared_type,
            argument=transform.argument,
            hint="see the reference of CREATE TABLE for what each transform takes",
        )
    return result


def transform_array(transform: Transform, column: Column, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The transform's value for each value; null for null."""
    of = column.type
    target = arrow_type(result_type(transform, column))
    match transform.kind:
        case TransformKind.IDENTITY:
            return values
        case TransformKind.TO_DATE:
            return pc.cast(_days(values), target)
        case TransformKind.TO_YYYYMM:
            days = _days(values)
            return pc.cast(pc.add(pc.multiply(pc.year(days), 100), pc.month(days)), target)
        case TransformKind.TO_YYYYMMDD:
            days = _days(values)
            month = pc.add(pc.multiply(pc.year(days), 100), pc.month(days))
            return pc.cast(pc.add(pc.multiply(month, 100), pc.day(days)), target)
        case TransformKind.TO_YEAR:
            return pc.cast(pc.year(_days(values)), target)
        case TransformKind.TO_MONDAY:
            # 1970-01-05 is the first Monday.
            days = pc.subtract(pc.cast(pc.cast(_days(values), pa.int32()), pa.int64()), 4)
            return pc.cast(pc.cast(pc.add(_down(days, 7), 4), pa.int32()), target)
        case TransformKind.TO_START_OF_MONTH:
            days = _days(values)
            numbers = pc.subtract(pc.cast(days, pa.int32()), pc.cast(pc.subtract(pc.day(days), 1), pa.int32()))
            return pc.cast(numbers, target)
        case TransformKind.TO_HOUR:
            hours = pc.divide(_down(pc.cast(values, pa.int64()), _HOUR_US), _HOUR_US)
            return pc.cast(pc.subtract(hours, _down(hours, 24)), target)
        case TransformKind.MODULO:
            assert transform.argument is not None
            return _modulo(values, transform.argument)
        case TransformKind.TO_START_OF_HOUR:
            return pc.cast(_down(pc.cast(values, pa.int64()), _HOUR_US), target)
        case TransformKind.TRUNCATE if of == Simple(Kind.STRING):
            try:
                return pc.utf8_slice_codeunits(values, 0, transform.argument)
            except pa.ArrowInvalid as error:
                raise _not_text() from error
        case TransformKind.TRUNCATE:
            assert transform.argument is not None
            return pc.cast(_down(pc.cast(values, pa.int64()), transform.argument, bits=target.bit_width), target)
        case TransformKind.BUCKET:
            assert transform.argument is not None
            return _bucket(values, transform.argument)
    assert_never(transform.kind)


def _days(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_date32(values.type):
        return values
    days = pc.divide(_down(pc.cast(values, pa.int64()), _DAY_US), _DAY_US)
    return pc.cast(pc.cast(days, pa.int32()), pa.date32())


def _down(values: pa.ChunkedArray, width: int, *, bits: int = 64) -> pa.ChunkedArray:
    """Down to a multiple of the width, below zero too; Arrow's own division goes towards zero.

    Where that multiple is less than the least number of so many bits, down to that number: no other value leads there.
    """
    numbers = pc.fill_null(values, 0).to_numpy()
    lowered = numbers - np.mod(numbers, np.int64(width))
    # In 64 bits it has wrapped.
    least = -(1 << bits - 1)
    lowered = np.where((lowered > numbers) | (lowered < least), np.int64(least), lowered)
    return pa.chunked_array([pa.array(lowered, pa.int64(), mask=pc.is_null(values).to_numpy())])


def _modulo(values: pa.ChunkedArray, divisor: int) -> pa.ChunkedArray:
    """Remainder of the division towards zero, as `%` in Spark and ClickHouse."""
    if not pa.types.is_decimal(values.type):
        numbers = pc.fill_null(pc.cast(values, pa.int64()), 0).to_numpy()
        return pa.chunked_array([pa.array(np.fmod(numbers, np.int64(divisor)), mask=pc.is_null(values).to_numpy())])
    # UInt64 is stored as a decimal; NumPy has no such numbers.
    rests = [None if value is None else _rest(int(value), divisor) for value in values.to_pylist()]
    return pa.chunked_array([pa.array(rests, pa.int64())])


def _rest(number: int, divisor: int) -> int:
    return number % divisor if number >= 0 else -(-number % divisor)


def _bucket(values: pa.ChunkedArray, buckets: int) -> pa.ChunkedArray:
    """CRC-32 of the value's text modulo the number; in Spark: `pmod(crc32(cast(c AS string)), n)`."""
    encoded = values.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    distinct = encoded.dictionary
    if pa.types.is_timestamp(distinct.type):
        distinct = pc.cast(distinct, pa.int64())
    if not pa.types.is_binary(distinct.type):
        distinct = pc.cast(pc.cast(distinct, pa.string()), pa.binary())
    hashed = pa.array([zlib.crc32(text) % buckets for text in distinct.to_pylist()], pa.int32())
    return pa.chunked_array([hashed.take(encoded.indices)])


def _encode(values: pa.ChunkedArray) -> tuple[list[Bound], Indices]:
    """Return the distinct values and the index of each row's value among them."""
    encoded = pc.dictionary_encode(values, null_encoding="encode").unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    if pa.types.is_binary(values.type):
        dictionary: list[Bound] = [None if v is None else v.hex() for v in encoded.dictionary.to_pylist()]
    else:
        dictionary = [bound_of(scalar) for scalar in encoded.dictionary]
        if any(bound is None and scalar.is_valid for bound, scalar in zip(dictionary, encoded.dictionary, strict=True)):
            raise _not_text()
    return dictionary, encoded.indices.to_numpy().astype(np.int64)


def _not_text() -> BadPartitionError:
    return BadPartitionError(
        "a string that is not UTF-8 cannot name a partition",
        hint="keep bytes in a BINARY column, or leave such rows out",
    )


def _text(value: Bound, of: DataType, transform: TransformKind, *, is_only: bool) -> str:
    if value is None:
        return _NULL
    kind = of.kind if isinstance(of, Simple) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind is Kind.DATE and isinstance(value, int):
        return _date_text(value)
    if kind in _TIMES and isinstance(value, int):
        days, rest = divmod(value, _DAY_US)
        if transform is TransformKind.TO_START_OF_HOUR:
            return f"{_date_text(days)}T{rest // _HOUR_US:02d}"
        return f"{_date_text(days)}T{rest}"
    if isinstance(value, int):
        return str(value)
    assert isinstance(value, str)
    return _string_text(value, is_only=is_only)


def _date_text(days: int) -> str:
    if not _DAYS[0] <= days <= _DAYS[1]:
        return f"d{days}"
    return (datetime.date(1970, 1, 1) + datetime.timedelta(days=days)).isoformat()


def _string_text(text: str, *, is_only: bool) -> str:
    plain = _PLAIN_WITH_DASH if is_only else _PLAIN
    is_reserved = text in _RESERVED or text.startswith(("x-", "h-"))
    if len(text) <= TEXT_BYTES_MAX and not is_reserved and plain.fullmatch(text):
        return text
    encoded = text.encode()
    if len(encoded) <= TEXT_BYTES_MAX:
        return f"x-{encoded.hex()}"
    return f"h-{hashlib.sha256(encoded).hexdigest()[:_HASH_DIGITS]}"
