"""Deleted rows as blocks of bits, for a join of Spark that tests one bit for each row. Pure.

Covers: rows to blocks, the expressions that find a row's bit. Does not cover: where the rows come from
(deltas/deltas.py), the join (spark.py).
Always holds: a file has a number that no other file of the same scan has, so that blocks of two files are never taken
for each other; a block is there once.

A block has the bits of 1,024 rows of one file. Neighbouring rows find the same block again, which is why this is faster
than a join by the rows themselves: the table of blocks stays small and in the processor's caches.

Tests: tests/unit/storage/read/test_scan_paths.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tilth.storage.deltas.deletes import RowIndexes

_ROW_BITS = 10
_WORD_BITS = 6
_WORDS = 1 << (_ROW_BITS - _WORD_BITS)
#: Bits of a key that number the blocks of one file.
_BLOCK_BITS = 32

#: Columns of the table of blocks.
MASK_SCHEMA = pa.schema([pa.field("__tilth_block", pa.int64()), pa.field("__tilth_bits", pa.list_(pa.int64()))])
MASK_DDL = "__tilth_block bigint, __tilth_bits array<bigint>"
#: Columns that a scan adds to its own: the row's block, with the file number from the file's time, and the row index.
KEY, POSITION = "__tilth_key", "__tilth_position"
_WORD = f"get(__tilth_bits, CAST(shiftright({POSITION}, {_WORD_BITS}) & {_WORDS - 1} AS INT))"
_BIT = f"CAST({POSITION} & {(1 << _WORD_BITS) - 1} AS INT)"
#: Spark SQL condition that is true for a deleted row.
IS_DELETED = f"{KEY} = __tilth_block AND (shiftright({_WORD}, {_BIT}) & 1) = 1"


def key_expression(number: str, position: str) -> str:
    """Spark SQL for a row's block, from the SQL for its file's number and its index in the file."""
    return f"shiftleft({number}, {_BLOCK_BITS}) | shiftright({position}, {_ROW_BITS})"


def blocks_at_most(rows: int, deleted: int) -> int:
    """Return the greatest number of blocks that a part of so many rows can have."""
    return min(deleted, (rows >> _ROW_BITS) + 1)


def blocks(number: int, deleted: Sequence[RowIndexes]) -> pa.RecordBatch:
    """The blocks of the file of that number; `deleted`: its rows in any order, at least one."""
    rows = np.unique(np.concatenate(deleted))
    words, first = np.unique(rows >> _WORD_BITS, return_index=True)
    bits: np.ndarray[Any, np.dtype[np.uint64]] = np.left_shift(
        np.uint64(1), (rows & ((1 << _WORD_BITS) - 1)).astype(np.uint64)
    )
    found, block = np.unique(words >> (_ROW_BITS - _WORD_BITS), return_inverse=True)
    table = np.zeros((len(found), _WORDS), np.uint64)
    table[block, words & (_WORDS - 1)] = np.bitwise_or.reduceat(bits, first)
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(len(found) + 1, dtype=np.int32) * _WORDS), pa.array(table.view(np.int64).reshape(-1))
    )
    return pa.record_batch([pa.array((number << _BLOCK_BITS) | found), lists], schema=MASK_SCHEMA)
