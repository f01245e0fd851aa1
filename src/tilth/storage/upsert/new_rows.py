"""Rows that a round or an INSERT brings, written as their table wants them to land.

Covers: how many are held, segments or parts, and the order of rows with one key that go to several partitions. Does not
cover: the files (parts/segments.py, parts/part_files.py), which older rows they replace (upsert.py).
Always holds: of the segments, in their order, a later row of a key stands behind the earlier one.

Tests: tests/integration/storage/test_segment_files.py, tests/integration/sql/test_upsert_threads.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.base.units import MIB
from tilth.model.part import WrittenPart
from tilth.model.table import OP_COLUMN, OP_DELETE
from tilth.storage.parts.key_filter import key_names, key_types
from tilth.storage.parts.part_files import write_parts
from tilth.storage.parts.segments import shape_rows, write_segments
from tilth.storage.store.paths import TableLayout
from tilth.storage.upsert.upsert import key_codes, newest_rows
from tilth.storage.values.partition import partition_ids

#: Bytes of rows that a task of a large INSERT holds before it writes them.
BUFFER_BYTES = 256 * MIB


def stretches(batches: Iterable[pa.RecordBatch], *, bytes_max: int) -> Iterator[pa.Table]:
    """Yield the rows in as few tables as memory allows; each exceeds `bytes_max` by one batch at most."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= bytes_max:
            yield pa.Table.from_batches(held)
            held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def write_rows(
    layout: TableLayout, rows: pa.Table, *, txn: int, task: int, attempt: int, first_n: int = 0
) -> list[WrittenPart]:
    """Write the rows as row segments, or as sorted parts; raises what `write_segments` and `write_parts` do."""
    if not layout.is_buffered:
        return write_parts(layout, rows, txn=txn, task=task, attempt=attempt, first_n=first_n)
    written: list[WrittenPart] = []
    for piece in _pieces(layout, rows) if layout.is_keyed_across else (rows,):
        written += write_segments(layout, piece, txn=txn, task=task, attempt=attempt, first_n=first_n + len(written))
    return written


def write_many(
    layout: TableLayout, rows: pa.Table, *, txn: int, task: int, attempt: int, first_n: int
) -> list[WrittenPart]:
    """Write rows of a large INSERT; raises what `write_rows` does."""
    # Rows with keys are found again by where they were written; all others are best sorted at once.
    write = write_rows if layout.unique_key else write_parts
    return write(layout, rows, txn=txn, task=task, attempt=attempt, first_n=first_n)


def _pieces(layout: TableLayout, rows: pa.Table) -> list[pa.Table]:
    """The rows in pieces, each to be written at once; rows that cannot count may be left out.

    Each partition has a segment of its own, so a row whose key was in another partition before goes into a later piece:
    there are as many as the busiest key has moves, and one more. Where one row of a key is all that counts, the others
    are left out instead.
    """
    shaped = shape_rows(layout, rows)
    partitions = partition_ids(layout.schema, layout.partition_by, shaped)
    if len(partitions.ids) <= 1:
        return [shaped]
    if not layout.is_partial and not _has_bare_deletes(layout, shaped):
        return [newest_rows(layout, shaped)]
    codes = key_codes([shaped.column(name) for name in key_names(layout)], key_types(layout))
    # The rows of each key, in their order: a move is a partition that differs from that of the row before.
    order = np.argsort(codes, kind="stable")
    partition_indexes = np.asarray(partitions.indices)[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = codes[order][1:] != codes[order][:-1]
    has_moved = np.zeros(len(order), np.int64)
    has_moved[1:] = (partition_indexes[1:] != partition_indexes[:-1]) & ~is_first[1:]
    moves = np.cumsum(has_moved)
    # Counted anew for each key.
    moves -= np.repeat(moves[is_first], np.diff(np.append(np.flatnonzero(is_first), len(order))))
    piece = np.empty(len(order), np.int64)
    piece[order] = moves
    return [shaped.take(pa.array(np.flatnonzero(piece == number))) for number in range(int(moves.max()) + 1)]


def _has_bare_deletes(layout: TableLayout, rows: pa.Table) -> bool:
    """True if a row deletes its key whatever the version of what is there: that counts even if a later row wins."""
    if layout.version_column is None or OP_COLUMN not in rows.column_names:
        return False
    version = layout.schema.find(layout.version_column)
    assert version is not None
    is_delete = pc.equal(rows.column(OP_COLUMN), OP_DELETE)
    return bool(pc.any(pc.and_(is_delete, pc.is_null(rows.column(version.name)))).as_py())
