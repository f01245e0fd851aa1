"""Upserts that give only some values: what is NULL in a winner is taken from the rows before it.

Covers: which row each value comes from, the updates of fresh rows that record it. Does not cover: who wins (upsert.py).
Always holds: NULL in the winner is filled from the newest fresh row of its key that has a value, else from the row that
is there, unless a delete stands between. Columns of the partition, the sort key, the unique key, the version and the
TTL are never filled, because the file's ranges and order depend on them: there NULL is a value.

Tests: tests/property/test_upsert_resolve.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.base.errors import RetryError
from tilth.model.delta import PartSource
from tilth.model.table import Column
from tilth.storage.deltas.sources import iter_source
from tilth.storage.parts.part_files import ranged_columns
from tilth.storage.store.paths import TableLayout
from tilth.storage.store.root import Folder
from tilth.storage.upsert.rows import Existing, Fresh, Judged, RowChanges, RowsByKey
from tilth.storage.values.arrow import arrow_type
from tilth.storage.values.unique_keys import Mask, Rows, are_among

#: Rows of an older file that are read at a time.
_BLOCK_ROWS = 256 * 1024
_NONE = -1


def filled_rows(
    layout: TableLayout, fresh: Fresh, by_key: RowsByKey, existing: Existing, judged: Judged
) -> Iterator[RowChanges]:
    """The new values of winners that have NULL where there is a value before them.

    Raises RetryError where the row that is there lacks a column that an ALTER still has to bring to its part.
    """
    protected = {*ranged_columns(layout), layout.version_column}
    columns = [
        column
        for column in layout.schema.columns
        if column.nullable and column.name not in protected and fresh.rows.column(column.name).null_count
    ]
    # Keys whose winner stays, in the order of the winners' rows.
    kept = np.flatnonzero(judged.is_kept[by_key.winners])
    kept = kept[np.argsort(by_key.winners[kept])]
    starts, bases = _reach(fresh, by_key, existing, judged)
    givers = {column.id: _givers(fresh, by_key, column, starts)[kept] for column in columns}
    needing = {
        column.id: (givers[column.id] == _NONE)
        & (bases[kept] != _NONE)
        & fresh.rows.column(column.name).is_null().to_numpy()[by_key.winners[kept]]
        for column in columns
    }
    wanted = [column for column in columns if needing[column.id].any()]
    older = _older_values(layout, existing, bases[kept], wanted, needing)
    values: dict[int, pa.Array] = {}
    is_given: dict[int, Mask] = {}
    for column in columns:
        indices = np.where(needing[column.id], np.arange(len(kept)) + fresh.rows.num_rows, givers[column.id])
        pool = pa.chunked_array([*fresh.rows.column(column.name).chunks, *older.get(column.id, ())])
        filled = pool.take(pa.array(indices, mask=indices == _NONE)).combine_chunks()
        if filled.null_count < len(filled):
            values[column.id], is_given[column.id] = filled, filled.is_valid().to_numpy(zero_copy_only=False)
    yield from _updates(fresh, by_key.winners[kept], values, is_given)


def _reach(fresh: Fresh, by_key: RowsByKey, existing: Existing, judged: Judged) -> tuple[Rows, Rows]:
    """Return for each key where in `order` the rows start that its winner may take values of, and the position of the
    existing row, if it may give values too.
    """
    bases = np.full(len(by_key.starts), _NONE)
    bases[existing.keys[judged.deleted]] = judged.deleted
    bases[by_key.is_forced] = _NONE
    starts = by_key.starts + np.where(bases == _NONE, 0, judged.late)
    positions = np.where(fresh.is_delete[by_key.order], np.arange(len(by_key.order)), _NONE)
    deletes = np.maximum.reduceat(positions, by_key.starts)
    is_cut = deletes >= starts
    return np.where(is_cut, deletes + 1, starts), np.where(is_cut, _NONE, bases)


def _givers(fresh: Fresh, by_key: RowsByKey, column: Column, starts: Rows) -> Rows:
    """Return for each key the fresh row that its winner's NULL in the column is filled from."""
    is_null = fresh.rows.column(column.name).is_null().to_numpy()
    positions = np.where(is_null[by_key.order], _NONE, np.arange(len(by_key.order)))
    last = np.maximum.reduceat(positions, by_key.starts)
    return np.where(is_null[by_key.winners] & (last >= starts), by_key.order[last], _NONE)


def _older_values(
    layout: TableLayout, existing: Existing, bases: Rows, columns: Sequence[Column], needing: dict[int, Mask]
) -> dict[int, list[pa.Array]]:
    """Return the values of each column at these positions of existing rows, by column id; null where nobody needs
    them.
    """
    if not columns:
        return {}
    is_needed = np.logical_or.reduce([needing[column.id] for column in columns])
    needed_rows = np.unique(bases[is_needed])
    found: dict[int, list[pa.Array]] = {column.id: [] for column in columns}
    for source, _, rows in existing.by_source(needed_rows):
        for table in _read(layout.folder, source, rows, columns):
            for column in columns:
                found[column.id].extend(table.column(column.name).chunks)
    indices = np.searchsorted(needed_rows, np.where(is_needed, bases, needed_rows[0]))
    masked = pa.array(indices, mask=~is_needed)
    return {
        column.id: pa.chunked_array(found[column.id], arrow_type(column.type)).take(masked).chunks for column in columns
    }


def _read(folder: Folder, source: PartSource, rows: Rows, columns: Sequence[Column]) -> Iterator[pa.Table]:
    """These rows of a source, which are in order and not deleted, in the columns' present names and types."""
    stored = {column.id: column.name for column in source.schema.columns}
    for column in columns:
        if column.id not in stored and column.default is not None:
            hint = "wait for the ALTER's mutation, which brings the column to all parts"
            raise RetryError("a part lacks a column that a row keeps", part=source.name, column=column.name, hint=hint)
    names = [stored[column.id] for column in columns if column.id in stored]
    if not names:
        nulls = [pa.nulls(len(rows), arrow_type(column.type)) for column in columns]
        yield pa.table(nulls, names=[column.name for column in columns])
        return
    count = 0
    for table, indices in iter_source(folder, source, columns=names, block_rows=_BLOCK_ROWS):
        positions = np.flatnonzero(are_among(indices, rows))
        if not len(positions):
            continue
        count += len(positions)
        wanted = table.take(pa.array(positions))
        arrays = [
            pc.cast(wanted.column(stored[column.id]), arrow_type(column.type))
            if column.id in stored
            else pa.chunked_array([pa.nulls(len(positions), arrow_type(column.type))])
            for column in columns
        ]
        yield pa.table(arrays, names=[column.name for column in columns])
    assert count == len(rows), source.file.name


def _updates(
    fresh: Fresh, winners: Rows, values: dict[int, pa.Array], is_given: dict[int, Mask]
) -> Iterator[RowChanges]:
    if not values:
        return
    kept = np.flatnonzero(np.logical_or.reduce(list(is_given.values())))
    for source, where, inside in fresh.by_source(winners[kept]):
        indices = kept[where]
        yield RowChanges(
            source.name.partition,
            source.file.name,
            inside,
            {id_: array.take(pa.array(indices)) for id_, array in values.items()},
            {id_: mask[indices] for id_, mask in is_given.items()},
        )
