"""Deleted rows as bits, for a filter of Spark that tests one bit for each row. Pure.

Covers: rows to blocks, blocks to two arrays, the Spark SQL that finds a row's bit in them. Does not cover: where the
rows come from (deltas/deltas.py), the filter (spark.py).
Always holds: each file has blocks of its own, which no other file of the same scan has; a block without deleted rows
has no bit set.

A block has the bits of 1,024 rows of one file. The blocks of all files are numbered from 0 on, so that a row's block
follows from the number of its file's first block, by which the scan knows the file, and its index there. The first
array has the position of each block's bits in the second one; all blocks without deleted rows share the same bits. A
row so costs two accesses to arrays, neighbours the same ones. A join, which finds blocks in a hash table, costs
several times as much.

Tests: tests/unit/storage/read/test_scan_paths.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from tilth.storage.deltas.deletes import RowIndexes

_ROW_BITS = 10
_WORD_BITS = 6
_WORDS = 1 << (_ROW_BITS - _WORD_BITS)
_NUMBER_BYTES = 8

Numbers = np.ndarray[Any, np.dtype[np.int64]]

#: Columns of a table of blocks: the number of each, and its bits.
BLOCK_SCHEMA = pa.schema([pa.field("block", pa.int64()), pa.field("bits", pa.list_(pa.int64()))])
BLOCK_DDL = "block bigint, bits array<bigint>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Masks:
    """The deleted rows of files."""

    #: Position of the first word of each block.
    starts: Numbers
    words: Numbers


def mask_bytes_max(rows: int, deleted: int) -> int:
    """Return the greatest number of bytes that the mask of a part of so many rows can have."""
    return (blocks_in(rows) + min(deleted, blocks_in(rows)) * _WORDS) * _NUMBER_BYTES


def blocks_in(rows: int) -> int:
    """Return the number of blocks of a file of so many rows."""
    return (rows + (1 << _ROW_BITS) - 1) >> _ROW_BITS


def first_blocks(rows: Iterable[int]) -> list[int]:
    """Return the number of each file's first block, by the files' rows, and the number of all blocks."""
    return [0, *accumulate(map(blocks_in, rows))]


def blocks(first_block: int, deleted: Sequence[RowIndexes]) -> pa.RecordBatch:
    """The blocks, of one file, that have deleted rows; `deleted`: these in any order, at least one."""
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
    return pa.record_batch([pa.array(first_block + found), lists], schema=BLOCK_SCHEMA)


def masks_of(tables: Iterable[pa.RecordBatch], count: int) -> Masks:
    """Join the blocks of several files; `count`: the number of all blocks, with those that have no deleted rows."""
    starts = np.zeros(count, np.int64)
    words = [np.zeros(_WORDS, np.int64)]
    end = _WORDS
    for table in tables:
        bits = table.column(1).flatten().to_numpy()
        assert len(bits) == table.num_rows * _WORDS, (len(bits), table.num_rows)
        starts[table.column(0).to_numpy()] = end + np.arange(table.num_rows) * _WORDS
        words.append(bits)
        end += len(bits)
    return Masks(starts=starts, words=np.concatenate(words))


def block_expression(first_block: str, position: str) -> str:
    """Spark SQL for the index of a row's block in the first array, from the SQL for the number of its file's first
    block and for the row's index there.
    """
    return f"CAST({first_block} + shiftright({position}, {_ROW_BITS}) AS INT)"


def word_expression(position: str) -> str:
    """Spark SQL for the index of a row's word among those of its block."""
    return f"(shiftright({position}, {_WORD_BITS}) & {_WORDS - 1})"


def bit_expression(position: str) -> str:
    """Spark SQL for the number of a row's bit in its word."""
    return f"CAST({position} & {(1 << _WORD_BITS) - 1} AS INT)"
