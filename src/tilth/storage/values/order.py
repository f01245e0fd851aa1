"""The order of rows by a sort key, as numbers that numpy can compare.

Covers: codes of columns, one rank out of several keys, stable sorting. Does not cover: merging (merge/merge.py).
Always holds: ranks compare as the keys do in Spark, ascending, nulls first: NaN above every number, -0.0 equal to 0.0,
strings and binaries by their bytes. Ranks of one call compare with each other only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Codes = np.ndarray[Any, np.dtype[np.int64]]

_INT64 = np.iinfo(np.int64)
#: Codes are packed into one number only below this, so that no sum can overflow.
_PACKED_MAX = 1 << 62


def ranks_of(keys: Sequence[pa.ChunkedArray], rows: int) -> Codes:
    """Return a number for each row; rows compare by it as they do by the keys, equal keys have equal numbers."""
    if not keys or not rows:
        return np.zeros(rows, np.int64)
    codes = [_codes_of(key) for key in keys]
    return codes[0] if len(codes) == 1 else _pack(codes)


def stable_order(ranks: Codes) -> Codes:
    """The positions of the rows in order of rank; rows of equal rank keep theirs."""
    # Timsort finds the sorted stretches that are already there, so that sorted parts are merged, not sorted.
    return np.argsort(ranks, kind="stable")


def is_sorted(ranks: Codes) -> bool:
    return bool(np.all(ranks[1:] >= ranks[:-1]))


class OrderCheck:
    """Check that stretches of rows, each following the one before, are in order; holds one row."""

    def __init__(self) -> None:
        self._last: list[pa.ChunkedArray] | None = None

    def continues(self, keys: Sequence[pa.ChunkedArray], rows: int) -> bool:
        """True if the next rows are in order and do not belong before those that came."""
        if not keys or not rows:
            return True
        last = self._last
        self._last = [key.slice(rows - 1) for key in keys]
        if last is None:
            return is_sorted(ranks_of(keys, rows))
        both = [pa.chunked_array([*one.chunks, *key.chunks], key.type) for one, key in zip(last, keys, strict=True)]
        return is_sorted(ranks_of(both, rows + 1))


def _pack(codes: list[Codes]) -> Codes:
    """Join several keys into one number: by arithmetic where the ranges allow it, else by sorting."""
    packed = codes[0]
    for code in codes[1:]:
        low, high = int(code.min()), int(code.max())
        width = high - low + 1
        packed_low, packed_high = int(packed.min()), int(packed.max())
        if (packed_high - packed_low + 1) * width > _PACKED_MAX:
            return _dense(codes)
        packed = (packed - packed_low) * width + (code - low)
    return packed


def _dense(codes: list[Codes]) -> Codes:
    order = np.lexsort(codes[::-1])
    is_new = np.zeros(len(order), np.bool_)
    for code in codes:
        ordered = code[order]
        is_new[1:] |= ordered[1:] != ordered[:-1]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(is_new)
    return ranks


def _codes_of(key: pa.ChunkedArray) -> Codes:
    kind = key.type
    if pa.types.is_floating(kind):
        codes = _float_codes(key)
    elif pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind):
        codes = _integer_codes(key)
    else:
        return _text_codes(key)
    return _nulls_first(codes, key) if key.null_count else codes


def _integer_codes(key: pa.ChunkedArray) -> Codes:
    if pa.types.is_date32(key.type):
        key = pc.cast(key, pa.int32())
    filled = pc.fill_null(pc.cast(key, pa.int64()), 0) if key.null_count else pc.cast(key, pa.int64())
    codes: Codes = filled.to_numpy()
    return codes


def _float_codes(key: pa.ChunkedArray) -> Codes:
    numbers = pc.fill_null(pc.cast(key, pa.float64()), 0.0).to_numpy() + 0.0
    numbers[np.isnan(numbers)] = np.nan
    bits = numbers.view(np.int64)
    # Negative numbers count backwards: flip all their bits but the sign.
    codes: Codes = bits ^ ((bits >> 63) & _INT64.max)
    return codes


def _text_codes(key: pa.ChunkedArray) -> Codes:
    """Rank each value among the distinct ones; null before all."""
    encoded = key if pa.types.is_dictionary(key.type) else pc.dictionary_encode(key)
    merged = encoded.unify_dictionaries().combine_chunks()
    if isinstance(merged, pa.ChunkedArray):
        merged = merged.chunk(0)
    order = pc.sort_indices(merged.dictionary).to_numpy()
    positions = np.empty(len(order) + 1, np.int64)
    positions[order] = np.arange(len(order))
    positions[-1] = -1
    indices = pc.fill_null(merged.indices, len(order)).to_numpy()
    codes: Codes = positions[indices]
    return codes


def _nulls_first(codes: Codes, key: pa.ChunkedArray) -> Codes:
    is_null = pc.is_null(key).to_numpy()
    present = codes[~is_null]
    low = int(present.min()) if len(present) else 0
    if low == _INT64.min:
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        low = 0
    ordered = codes.copy()
    ordered[is_null] = low - 1
    return ordered
