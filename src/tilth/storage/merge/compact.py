"""Compactions of deltas: many files with changes of rows become few. Nothing but deltas is read, but for columns.

Covers: change segments to deltas of their parts, deltas of one part to one of each kind, updates to columns. Does not
cover: which deltas are compacted and when (tilth.maintenance), the files themselves (deltas/deltas.py).
Always holds: what was written has the content of all its sources together, applied in their order; it has the time of
the newest of them that changes the same part, so that changes that come meanwhile apply after it; row indexes stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.model.delta import Delta, DeltaKind, PartSource, WrittenDelta, applied_order
from tilth.model.table import Schema
from tilth.storage.deltas.deletes import RowIndexes
from tilth.storage.deltas.deltas import (
    CHANGE_DELETE,
    CHANGE_UPDATE,
    DeltaWriter,
    presence_name,
    read_changes,
    read_deletes,
    read_updates,
    value_name,
)
from tilth.storage.deltas.sources import iter_source
from tilth.storage.store.root import Folder

#: Rows of a part that are read at a time.
_BLOCK_ROWS = 64 * 1024


@dataclass(slots=True)
class _Collected:
    """Changes of one part in change segments."""

    change_ts: int = 0
    deleted: list[RowIndexes] = field(default_factory=list)
    #: Tables of new values, in the order in which they apply.
    updates: list[pa.Table] = field(default_factory=list)

    def rows(self) -> tuple[RowIndexes, pa.Table | None]:
        """Return the deleted rows, in their order, and new values of the others."""
        gone = np.unique(np.concatenate(self.deleted)) if self.deleted else np.empty(0, np.int64)
        if not self.updates:
            return gone, None
        updates = fold_updates(self.updates)
        stays = ~np.isin(_row_indexes(updates), gone, assume_unique=True)
        updates = updates.filter(pa.array(stays))
        return gone, updates if updates.num_rows else None


def compact_changes(
    out: DeltaWriter,
    partition: str,
    sources: Sequence[Delta],
    targets: Sequence[PartSource],
    *,
    kept: Collection[str],
) -> tuple[WrittenDelta, ...]:
    """Combine change segments into one DELETE and one UPDATE delta for each target, those that have
    content.

    What changes those whose data files are named in `kept` goes into a new change segment, what changes no target is
    left out. Raises DeltaFileNotFoundError and DeltaFileCorruptError naming the file.
    """
    found = _collect(out.folder, sources, {target.file.name for target in targets})
    written: list[WrittenDelta] = []
    left: dict[Schema, list[tuple[str, _Collected]]] = {}
    for target in targets:
        name, schema = target.file.name, target.schema
        collected = found.get(name)
        if collected is None:
            continue
        if name in kept:
            left.setdefault(schema, []).append((name, collected))
            continue
        deleted, updates = collected.rows()
        if len(deleted):
            written.append(out.deletes(partition, name, deleted, change_ts=collected.change_ts))
        if updates is not None:
            written.append(out.updates(partition, name, updates, change_ts=collected.change_ts, schema=schema))
    # Each file has parts of one schema: a column's type may differ between two schemas.
    for schema, by_file in left.items():
        changes = out.changes(partition, _as_changes(by_file), schema=schema)
        written.append(msgspec.structs.replace(changes, change_ts=max(each.change_ts for _, each in by_file)))
    return tuple(written)


def compact_minor(out: DeltaWriter, source: PartSource) -> tuple[WrittenDelta, ...]:
    """Combine the part's DELETE deltas into one and its UPDATE deltas into one; the part itself is not read.

    Raises DeltaFileNotFoundError and DeltaFileCorruptError naming the file.
    """
    partition, name = source.name.partition, source.file.name
    written: list[WrittenDelta] = []
    deletes = _of_kind(source, DeltaKind.DELETE)
    if deletes:
        rows = [read_deletes(out.folder, delta, name) for delta in deletes]
        gone = np.unique(np.concatenate(rows))
        written.append(out.deletes(partition, name, gone, change_ts=_newest(deletes)))
    updates = _of_kind(source, DeltaKind.UPDATE)
    if updates:
        folded = fold_updates([read_updates(out.folder, delta, delta.columns) for delta in updates])
        written.append(out.updates(partition, name, folded, change_ts=_newest(updates), schema=source.schema))
    return tuple(written)


def compact_major(out: DeltaWriter, source: PartSource, columns: Collection[int]) -> tuple[WrittenDelta, ...]:
    """Combine the values that the UPDATE and COLUMN deltas of a part have of these columns into one COLUMN delta.

    No other columns are read and written. Its time is that of the newest delta that has one of them. Raises
    DeltaFileNotFoundError, DeltaFileCorruptError and, of the part, PartFileNotFoundError and PartFileCorruptError
    naming the file.
    """
    wanted = set(columns)
    updates = applied_order([*_of_kind(source, DeltaKind.UPDATE), *_of_kind(source, DeltaKind.COLUMN)])
    deltas = [delta for delta in updates if not wanted.isdisjoint(delta.columns)]
    read = [column for column in source.schema.columns if column.id in wanted]
    # Without its deletes, so that no row is left out.
    updated = msgspec.structs.replace(source, deltas=tuple(deltas))
    names, new_names = [column.name for column in read], [value_name(column.id) for column in read]
    blocks = (
        table.rename_columns(new_names)
        for table, _ in iter_source(out.folder, updated, columns=names, block_rows=_BLOCK_ROWS)
    )
    partition, name = source.name.partition, source.file.name
    return (out.columns(partition, name, blocks, change_ts=_newest(deltas), schema=source.schema),)


def fold_updates(updates: Sequence[pa.Table]) -> pa.Table:
    """New values of rows of one part, given in the order in which they apply, as one: of each row and column the last
    that is given. Columns are `row`, and for each column id `i` `p{i}` and `c{i}`; rows are in their order.
    """
    rows = [_row_indexes(table) for table in updates]
    everything = np.unique(np.concatenate(rows))
    ids = sorted({_id_of(name) for table in updates for name in table.column_names if name.startswith("c")})
    arrays: dict[str, pa.Array | pa.ChunkedArray] = {"row": pa.array(everything)}
    for column in ids:
        having = [
            (table, own) for table, own in zip(updates, rows, strict=True) if value_name(column) in table.column_names
        ]
        chosen = np.full(len(everything), -1, np.int64)
        offset = 0
        for table, own in having:
            is_given = table.column(presence_name(column)).to_numpy(zero_copy_only=False).astype(bool)
            # Where a row stands twice the last position is kept, which is the later one.
            chosen[np.searchsorted(everything, own[is_given])] = offset + np.flatnonzero(is_given)
            offset += table.num_rows
        values = pa.chunked_array([chunk for table, _ in having for chunk in table.column(value_name(column)).chunks])
        is_given = chosen >= 0
        arrays[presence_name(column)] = pa.array(is_given)
        arrays[value_name(column)] = values.take(pa.array(chosen, mask=~is_given))
    return pa.table(arrays)


def _collect(folder: Folder, sources: Sequence[Delta], wanted: Collection[str]) -> dict[str, _Collected]:
    """Collect the changes of each data file from the change segments, by the file's name."""
    found: dict[str, _Collected] = {}
    for source in applied_order(sources):
        for file, rows in _by_file(read_changes(folder, source.file), wanted):
            collected = found.setdefault(file, _Collected())
            collected.change_ts = max(collected.change_ts, source.change_ts)
            op = rows.column("op").to_numpy()
            if (op == CHANGE_DELETE).any():
                collected.deleted.append(_row_indexes(rows)[op == CHANGE_DELETE])
            if (op == CHANGE_UPDATE).any():
                collected.updates.append(_select_given(rows.filter(pa.array(op == CHANGE_UPDATE))))
    return found


def _by_file(table: pa.Table, wanted: Collection[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of a change segment for each part that they change."""
    if not table.num_rows:
        return
    encoded = table.unify_dictionaries().combine_chunks().column("file").chunk(0)
    codes = encoded.indices.to_numpy()
    names = encoded.dictionary.to_pylist()
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    start = 0
    for name, end in zip(names, ends.tolist(), strict=True):
        if end > start and name in wanted:
            yield name, table.take(pa.array(order[start:end]))
        start = end


def _select_given(rows: pa.Table) -> pa.Table:
    """Drop the columns in which no row has a new value."""
    ids = [_id_of(name) for name in rows.column_names if name.startswith("c")]
    given = [column for column in ids if pc.any(rows.column(presence_name(column))).as_py()]
    return rows.select(["row", *(name for column in given for name in (presence_name(column), value_name(column)))])


def _as_changes(by_file: Sequence[tuple[str, _Collected]]) -> pa.Table:
    """Return the rows of a change segment again."""
    tables = []
    for file, collected in by_file:
        deleted, updates = collected.rows()
        if len(deleted):
            tables.append(_changes(file, CHANGE_DELETE, {"row": pa.array(deleted)}))
        if updates is not None:
            columns = dict(zip(updates.column_names, updates.columns, strict=True))
            tables.append(_changes(file, CHANGE_UPDATE, columns))
    # Columns that a delete lacks are null, and their presence flags are false.
    return pa.concat_tables(tables, promote_options="default").unify_dictionaries()


def _changes(file: str, op: int, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    rows = len(columns["row"])
    files = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([file]))
    return pa.table(
        {
            "file": files,
            "row": columns["row"],
            "op": pa.array(np.full(rows, op, np.int8)),
            **{name: column for name, column in columns.items() if name != "row"},
        }
    )


def _of_kind(source: PartSource, kind: DeltaKind) -> list[Delta]:
    return [delta for delta in applied_order(source.deltas) if delta.kind is kind]


def _newest(deltas: Sequence[Delta]) -> int:
    return max(delta.change_ts for delta in deltas)


def _row_indexes(table: pa.Table) -> RowIndexes:
    rows: RowIndexes = table.column("row").to_numpy()
    return rows


def _id_of(name: str) -> int:
    return int(name[1:])
