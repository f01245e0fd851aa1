"""Rows of a stream of changes: what a version did with the rows of a part, as rows before and after it.

Covers: inserts, deletes, updates; comparing a part before and after a version. Does not cover: reading (rows.py).
Always holds: the rows of a version are those of the version before it, without the rows `delete` and `update_before`,
with the rows `insert` and `update_after`; a row that looks the same before and after is in none of them.

Tests: tests/unit/datasource/test_stream_reads.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.datasource.pieces import PartPiece, ReadTask
from tilth.datasource.rows import BLOCK_ROWS, Keep, located_rows
from tilth.model.change_feed import PartChangeKind
from tilth.model.delta import PartSource, deleted_rows
from tilth.storage.deltas.changes import load_changes

#: Columns of a stream that say what happened to a row, and in which version.
CHANGE_COLUMN, VERSION_COLUMN = "_change", "_version"
INSERTED, DELETED = "insert", "delete"
BEFORE, AFTER = "update_before", "update_after"

Change = tuple[str, pa.Table]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def changed_batches(task: ReadTask, pieces: Sequence[PartPiece]) -> Iterator[pa.RecordBatch]:
    """Return the rows of the pieces with two more columns. Raises what `batches_of_pieces` raises."""
    schema = pa.ipc.read_schema(pa.py_buffer(task.schema))
    for piece in pieces:
        for change, table in _changes(task, piece, schema):
            yield from _said(table, change, piece.version).combine_chunks().to_batches()


def _said(table: pa.Table, change: str, version: int) -> pa.Table:
    rows = table.num_rows
    arrays = [*table.columns, pa.repeat(pa.scalar(change), rows), pa.repeat(pa.scalar(version, pa.int64()), rows)]
    return pa.table(arrays, names=[*table.column_names, CHANGE_COLUMN, VERSION_COLUMN])


def _changes(task: ReadTask, piece: PartPiece, schema: pa.Schema) -> Iterator[Change]:
    if piece.after is None:
        word = DELETED if piece.change is PartChangeKind.DELETE else INSERTED
        for table, _ in located_rows(task, piece, schema):
            yield word, table
        return
    after = msgspec.structs.replace(piece, source=piece.after, wanted=piece.wanted_after or piece.wanted)
    if piece.change is PartChangeKind.CHANGE:
        yield from _changed(task, piece, after, schema)
        return
    after = msgspec.structs.replace(after, first=0, end=after.source.rows)
    old = _blocks_of(table for table, _ in located_rows(task, piece, schema))
    new = _blocks_of(table for table, _ in located_rows(task, after, schema))
    if _live(piece.source) == _live(after.source):
        for before, now in zip(old, new, strict=True):
            yield from _updated(before, now)
    else:
        yield from subsequence(old, new)


def _live(source: PartSource) -> int:
    return source.rows - deleted_rows(source.file.name, source.deltas)


def _changed(task: ReadTask, piece: PartPiece, after: PartPiece, schema: pa.Schema) -> Iterator[Change]:
    """Compare the rows of one file before and after a version, block by block."""
    keep = _touched_groups(task, after, known={delta.file.name for delta in piece.source.deltas})
    blocks = zip(located_rows(task, piece, schema, keep), located_rows(task, after, schema, keep), strict=True)
    for (before, old_rows), (now, new_rows) in blocks:
        # A deleted row stays deleted, and each row is there once.
        stays = np.isin(old_rows, new_rows, assume_unique=True)
        yield DELETED, before.filter(pa.array(~stays))
        yield from _updated(before.filter(pa.array(stays)), now)


def _touched_groups(task: ReadTask, after: PartPiece, known: set[str]) -> Keep:
    """Return the test of row groups in which the new deltas change a row."""
    added = tuple(delta for delta in after.source.deltas if delta.file.name not in known)
    source = msgspec.structs.replace(after.source, deltas=added)
    rows = load_changes(task.folder, source, task.columns).touched()

    def keep(group: Any, first: int) -> bool:
        if rows is None:
            return True
        begin, end = np.searchsorted(rows, (first, first + group.num_rows))
        return bool(begin < end)

    return keep


def _updated(before: pa.Table, now: pa.Table) -> Iterator[Change]:
    """Return the rows that differ, of two tables with the same rows in the same order."""
    changed = pa.array(differing(before, now))
    yield BEFORE, before.filter(changed)
    yield AFTER, now.filter(changed)


def differing(before: pa.Table, now: pa.Table) -> Mask:
    """Mark the rows that differ, as Spark compares rows: NULL is like NULL, NaN like NaN, -0.0 like 0.0."""
    found = np.zeros(before.num_rows, bool)
    for old, new in zip(before.columns, now.columns, strict=True):
        if pa.types.is_nested(old.type):
            pairs = zip(_comparable(old), _comparable(new), strict=True)
            found |= np.fromiter((a != b for a, b in pairs), bool, len(old))
            continue
        same = pc.fill_null(pc.equal(old, new), False)
        same = pc.or_(same, pc.and_(pc.is_null(old), pc.is_null(new)))
        if pa.types.is_floating(old.type):
            both = pc.and_(pc.is_nan(old), pc.is_nan(new))
            same = pc.or_(same, pc.fill_null(both, False))
        found |= ~np.asarray(same)
    return found


def subsequence(old: Iterator[pa.Table], new: Iterator[pa.Table]) -> Iterator[Change]:
    """Return the rows that are only before; the others came through in their order, as those that a mutation left."""
    pending: list[str] = []
    table: pa.Table | None = None
    at = 0
    for before in old:
        gone = np.zeros(before.num_rows, bool)
        for row, text in enumerate(_row_texts(before)):
            if at == len(pending):
                table, at = next(new, None), 0
                pending = [] if table is None else _row_texts(table)
            if at < len(pending) and pending[at] == text:
                at += 1
            else:
                gone[row] = True
        yield DELETED, before.filter(pa.array(gone))
    if table is not None:
        yield INSERTED, table.slice(at)
    for rest in new:
        yield INSERTED, rest


def _row_texts(table: pa.Table) -> list[str]:
    columns = [_comparable(column) for column in table.columns]
    return [repr(row) for row in zip(*columns, strict=True)]


def _comparable(values: pa.ChunkedArray) -> list[str]:
    """Return texts that are equal where the values are."""
    return [repr(value) for value in values.cast(_counted(values.type)).to_pylist()]


def _counted(kind: pa.DataType) -> pa.DataType:
    """Return the type with numbers for times: Python has no times after the year 9999."""
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_counted(kind.value_type)))
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_counted(key.type)), item.with_type(_counted(item.type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_counted(field.type)) for field in kind])
    return kind


def _blocks_of(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Cut the rows into blocks of one size, wherever the tables end."""
    held: pa.Table | None = None
    for table in tables:
        held = table if held is None else pa.concat_tables([held, table])
        while held.num_rows >= BLOCK_ROWS:
            yield held.slice(0, BLOCK_ROWS)
            held = held.slice(BLOCK_ROWS)
    if held is not None and held.num_rows:
        yield held
