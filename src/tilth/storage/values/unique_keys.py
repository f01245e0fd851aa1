"""Values of a unique key as numbers and texts that compare: hashed, compared exactly.

Covers: keys of many rows at once, their 64-bit hashes, equality. Does not cover: where keys are searched
(upsert/upsert.py), key filters (parts/key_filter.py).
Always holds: equal keys have equal hashes, in every process and for ever, because filters keep hashes in files; unequal
keys may share a hash, unless `is_exact` is true. -0.0 equals 0.0 and NaN equals NaN, as in Spark.

Tests: tests/integration/storage/test_key_filters.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.storage.errors import UnmappedTypeError

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Rows = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

#: Words hashed for all texts at once; the rest of longer texts is hashed one by one.
_WORDS_MAX = 16
_WORD_BYTES = 8
_FIRST, _SECOND, _THIRD = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0x9E3779B97F4A7C15)
#: Mask of the bytes of a word that belong to a text, by the number of its bytes that are left.
_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(_WORD_BYTES + 1)], np.uint64)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of many rows."""

    #: One or two of each column: numbers of 64 bits, or texts.
    columns: tuple[Hashes | pa.Array, ...]
    hashes: Hashes
    #: `True` if equal hashes mean equal keys.
    is_exact: bool

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        return int(self.hashes.nbytes) + sum(int(column.nbytes) for column in self.columns)

    def take(self, rows: Rows) -> Keys:
        columns = tuple(_take(column, rows) for column in self.columns)
        return Keys(columns, self.hashes[rows], self.is_exact)

    def equal(self, rows: Rows, other: Keys, other_rows: Rows) -> Mask:
        """Mark the pairs of rows, of these keys and of the others, whose keys are equal."""
        found: Mask = self.hashes[rows] == other.hashes[other_rows]
        if self.is_exact:
            return found
        for column, other_column in zip(self.columns, other.columns, strict=True):
            one, two = _take(column, rows), _take(other_column, other_rows)
            found &= one == two if isinstance(one, np.ndarray) else pc.equal(one, two).to_numpy(zero_copy_only=False)
        return found


def keys_of(columns: Sequence[pa.ChunkedArray], types: Sequence[pa.DataType]) -> Keys:
    """The keys of rows with these columns, none of which has nulls, as values of these types.

    Raises UnmappedTypeError for a type that has no equality.
    """
    parts: list[Hashes | pa.Array] = []
    for column, wanted in zip(columns, types, strict=True):
        parts.extend(_comparable(column, wanted))
    is_exact = len(parts) == 1 and isinstance(parts[0], np.ndarray)
    hashes = _mix(_hash_of(parts[0])) if is_exact else _join(parts)
    return Keys(tuple(parts), hashes, is_exact)


def ascending_numbers(columns: Sequence[pa.ChunkedArray], types: Sequence[pa.DataType]) -> Rows | None:
    """The keys of rows as whole numbers, if they are that and each is above the one before; else None.

    Arguments as those of `keys_of`.
    """
    if len(columns) != 1 or not is_number(types[0]):
        return None
    (part,) = _comparable(columns[0], types[0])
    assert isinstance(part, np.ndarray)
    numbers: Rows = part.view(np.int64)
    return numbers if np.all(numbers[1:] > numbers[:-1]) else None


def is_number(kind: pa.DataType) -> bool:
    """True if values of this type are compared as whole numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind))


def as_numbers(column: pa.ChunkedArray) -> Rows:
    """Values of a type that `is_number`, without nulls, in their order."""
    if pa.types.is_date32(column.type):
        column = pc.cast(column, pa.int32())
    if column.type != pa.int64():
        column = pc.cast(column, pa.int64())
    numbers: Rows = column.to_numpy()
    return numbers


def are_among(rows: Rows, known: Rows) -> Mask:
    """Mark the rows that are among the known ones, which are in order."""
    if not len(known):
        return np.zeros(len(rows), np.bool_)
    positions = np.minimum(np.searchsorted(known, rows), len(known) - 1)
    found: Mask = known[positions] == rows
    return found


def _comparable(column: pa.ChunkedArray, wanted: pa.DataType) -> list[Hashes | pa.Array]:
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if column.type != wanted:
        column = pc.cast(column, wanted)
    if is_number(wanted):
        return [as_numbers(column).view(np.uint64)]
    if pa.types.is_floating(wanted):
        # Adding zero makes 0.0 of -0.0; there are many NaNs.
        numbers = pc.cast(column, pa.float64()).to_numpy() + 0.0
        numbers[np.isnan(numbers)] = np.nan
        return [numbers.view(np.uint64)]
    array = _one(column)
    if pa.types.is_decimal128(wanted):
        _, values = array.buffers()
        words = np.frombuffer(values, np.uint64).reshape(-1, 2)[array.offset : array.offset + len(array)]
        return [np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])]
    if pa.types.is_string(wanted) or pa.types.is_binary(wanted):
        return [array]
    raise UnmappedTypeError("a column of this type cannot be in a UNIQUE KEY", type=wanted)


def _join(parts: Sequence[Hashes | pa.Array]) -> Hashes:
    joined = _mix(_hash_of(parts[0]))
    for part in parts[1:]:
        joined = _mix(joined * _THIRD + _hash_of(part))
    return joined


def _hash_of(part: Hashes | pa.Array) -> Hashes:
    return part if isinstance(part, np.ndarray) else _text_hashes(part)


def _mix(numbers: Hashes) -> Hashes:
    """Spread each number over all bits; no two become one."""
    mixed = numbers ^ (numbers >> np.uint64(30))
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _text_hashes(texts: pa.Array) -> Hashes:
    """Hash eight bytes of all texts at a time."""
    offsets, text = _bytes_of(texts)
    starts, lengths = offsets[:-1], np.diff(offsets)
    padded = np.zeros(len(text) + _WORD_BYTES, np.uint8)
    padded[: len(text)] = text
    # The word that starts at each byte.
    words = np.ndarray((len(text) + 1,), np.dtype("<u8"), padded, 0, (1,))
    hashes = _mix(lengths.astype(np.uint64) + _THIRD)
    longest = int(lengths.max()) if len(lengths) else 0
    for number in range(min(_WORDS_MAX, -(-longest // _WORD_BYTES))):
        at = number * _WORD_BYTES
        left = lengths - at
        rows = np.flatnonzero(left > 0)
        if len(rows) == len(lengths):
            hashes = _mix((hashes ^ (words[starts + at] & _MASKS[np.minimum(left, _WORD_BYTES)])) + _THIRD)
        else:
            word = words[starts[rows] + at] & _MASKS[np.minimum(left[rows], _WORD_BYTES)]
            hashes[rows] = _mix((hashes[rows] ^ word) + _THIRD)
    for row in np.flatnonzero(lengths > _WORDS_MAX * _WORD_BYTES).tolist():
        rest = text[offsets[row] + _WORDS_MAX * _WORD_BYTES : offsets[row + 1]]
        digest = hashlib.blake2b(rest.tobytes(), digest_size=_WORD_BYTES).digest()
        hashes[row] ^= np.uint64(int.from_bytes(digest, "little"))
    return hashes


def _bytes_of(texts: pa.Array) -> tuple[Rows, np.ndarray[Any, np.dtype[np.uint8]]]:
    """Return the start of each text, then the end of the last one, and the bytes of all."""
    _, offsets_buffer, text_buffer = texts.buffers()
    if offsets_buffer is None or not len(texts):
        return np.zeros(len(texts) + 1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(offsets_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    text = np.zeros(0, np.uint8) if text_buffer is None else np.frombuffer(text_buffer, np.uint8)[first:last]
    return offsets - first, text


def _one(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _take(column: Hashes | pa.Array, rows: Rows) -> Hashes | pa.Array:
    return column[rows] if isinstance(column, np.ndarray) else column.take(pa.array(rows))
