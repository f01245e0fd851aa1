"""Bounds of a sort key as bytes that compare as the keys do.

Covers: whole numbers, floats, decimals, strings, dates and times, NULL first. Does not cover: shares (key_shares.py).
Always holds: the low bytes of a part are at or below, its high bytes at or above every key of it. What is not known is
as wide as can be, so that such a part overlaps with all.

Tests: tests/unit/maintenance/merge/policy/test_key_range.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal as PyDecimal

from tilth.model.part import Bound, ColumnRange
from tilth.model.table import Schema
from tilth.model.types import DataType, Decimal

#: Below and above all keys.
LOWEST = b""
HIGHEST = b"\xff" * 9
_NULL = b"\x00"
_VALUE = b"\x01"
_INT64 = 1 << 63


def key_bounds(
    ranges: Mapping[str, ColumnRange], *, order_by: Sequence[str], schema: Schema, rows: int
) -> tuple[bytes, bytes]:
    """The smallest and the largest key of a part, of what is known of its columns.

    A column after the first one says something only while all before it have one value in the whole part.
    """
    prefix = b""
    for name in order_by:
        known, column = ranges.get(name), schema.find(name)
        if known is None or column is None:
            return prefix + LOWEST, prefix + HIGHEST
        low, high = _bounds(known, column.type, rows=rows)
        if low != high:
            return prefix + low, prefix + high + HIGHEST
        prefix += low
    return (prefix, prefix) if prefix else (LOWEST, HIGHEST)


def value_bytes(value: Bound, data_type: DataType) -> bytes:
    """Encode a value; NULL comes first. A decimal is as good as the float next to it."""
    if value is None:
        return _NULL
    if isinstance(data_type, Decimal):
        value = float(PyDecimal(str(value)))
    if isinstance(value, str):
        return _VALUE + value.encode().replace(b"\0", b"\0\xff") + b"\0\0"
    if isinstance(value, float):
        # Zero has two signs.
        (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
        ordered = bits ^ (2**64 - 1) if bits >> 63 else bits | _INT64
        return _VALUE + struct.pack(">Q", ordered)
    return _VALUE + struct.pack(">Q", min(max(int(value), -_INT64), _INT64 - 1) + _INT64)


def _bounds(known: ColumnRange, data_type: DataType, *, rows: int) -> tuple[bytes, bytes]:
    if known.nulls >= rows:
        return _NULL, _NULL
    high = HIGHEST if known.high is None else value_bytes(known.high, data_type)
    if known.nulls:
        return _NULL, high
    return _VALUE if known.low is None else value_bytes(known.low, data_type), high
