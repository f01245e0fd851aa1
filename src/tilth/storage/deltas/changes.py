"""Changes of one part's rows since it was written, laid over them.

Covers: loading all deltas of a part, which rows stay, new values. Does not cover: the files (deltas.py), reading the
part's own rows (sources.py).
Always holds: of several new values of one row the newest counts, whatever kind of delta brought it; deletes are
independent of their order; rows are counted from 0 in the part's file. No step takes Python time by rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tilth.model.delta import Delta, DeltaKind, PartSource
from tilth.model.table import Schema
from tilth.storage.deltas.deletes import RowIndexes
from tilth.storage.deltas.deltas import (
    CHANGE_UPDATE,
    deletes_of,
    open_values,
    presence_name,
    read_deletes,
    read_target,
    read_updates,
    value_name,
)
from tilth.storage.parts.part_files import damaged_error
from tilth.storage.store.files.files import corrupt_error
from tilth.storage.store.root import Folder
from tilth.storage.values.arrow import one_chunk

#: Fewer deleted rows than one in so many are sorted; more are marked among all rows.
_SPARSE_SHARE = 64

_Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """New values of one column for some rows."""

    #: Row indexes in ascending order, each once.
    rows: RowIndexes
    #: One value for each row.
    values: pa.Array


class PartChanges:
    """All that has changed in a part, for those columns that it was loaded for."""

    def __init__(
        self, *, deleted: RowIndexes, patches: Mapping[int, Patch], columns: Mapping[int, _WholeColumn]
    ) -> None:
        #: Rows that are gone, in their order, each once.
        self.deleted = deleted
        self._patches = patches
        self._columns = columns

    @property
    def is_empty(self) -> bool:
        return not len(self.deleted) and not self.has_updates

    @property
    def patches(self) -> Mapping[int, Patch]:
        """New values for some rows, by the ids of the columns; of columns with new values for all rows those after."""
        return self._patches

    @property
    def has_updates(self) -> bool:
        return bool(self._patches or self._columns)

    def touched(self) -> RowIndexes | None:
        """Return the rows that changed, in their order; None: all of them."""
        if self._columns:
            return None
        found: list[RowIndexes] = [self.deleted, *(patch.rows for patch in self._patches.values())]
        return np.unique(np.concatenate(found)).astype(np.int64)

    def keep(self, first_row: int, count: int) -> _Mask | None:
        """Mark the rows from the first one on that are not deleted; None: all of them."""
        start, end = np.searchsorted(self.deleted, (first_row, first_row + count))
        if start == end:
            return None
        stays = np.ones(count, bool)
        stays[self.deleted[start:end] - first_row] = False
        return stays

    def apply(self, table: pa.Table, first_row: int, schema: Schema) -> pa.Table:
        """The rows from the first one on, none left out yet, with their new values in those columns that they have.

        `schema`: the ids of the columns. Raises DeltaFileCorruptError naming the file.
        """
        if not self.has_updates or not table.num_rows:
            return table
        positions = {name: position for position, name in enumerate(table.column_names)}
        for column in schema.columns:
            position = positions.get(column.name)
            if position is None or (column.id not in self._patches and column.id not in self._columns):
                continue
            values = self._laid_over(column.id, table.column(position), first_row)
            table = table.set_column(position, table.schema.field(position), values)
        return table

    def live(self, table: pa.Table, first_row: int, schema: Schema) -> tuple[pa.Table, RowIndexes]:
        """Apply the changes, without the deleted rows; also return the index of each row that is left."""
        table = self.apply(table, first_row, schema)
        rows = np.arange(first_row, first_row + table.num_rows, dtype=np.int64)
        stays = self.keep(first_row, table.num_rows)
        return (table, rows) if stays is None else (table.filter(pa.array(stays)), rows[stays])

    def _laid_over(self, column: int, values: pa.ChunkedArray, first_row: int) -> pa.ChunkedArray:
        if column in self._columns:
            whole = self._columns[column].read(first_row, len(values))
            values = _as_type(whole, values.type)
        patch = self._patches.get(column)
        if patch is None:
            return values
        start, end = np.searchsorted(patch.rows, (first_row, first_row + len(values)))
        if start == end:
            return values
        return _replace(values, patch.rows[start:end] - first_row, patch.values.slice(start, end - start))


def load_changes(folder: Folder, source: PartSource, columns: Collection[int] | None = None) -> PartChanges:
    """All that the part's deltas change, new values only of the columns with these ids; None: of all.

    Raises DeltaFileNotFoundError and DeltaFileCorruptError naming the file.
    """
    loading = _Loading(folder, source, columns)
    for delta in source.deltas:
        loading.add(delta)
    return loading.result()


class _WholeColumn:
    """Values of one column for all rows of a part, read by row groups as they are needed."""

    def __init__(self, folder: Folder, delta: Delta, parquet: pq.ParquetFile, column: int) -> None:
        self._folder = folder
        self._delta = delta
        self._parquet = parquet
        self._name = value_name(column)
        row_groups = parquet.metadata.num_row_groups
        sizes = [parquet.metadata.row_group(number).num_rows for number in range(row_groups)]
        self._starts = np.cumsum([0, *sizes])
        #: The row groups that were read last, and their values.
        self._held: tuple[tuple[int, int], pa.ChunkedArray] | None = None

    def read(self, first_row: int, count: int) -> pa.ChunkedArray:
        first = int(np.searchsorted(self._starts, first_row, side="right")) - 1
        end = int(np.searchsorted(self._starts, first_row + count, side="left"))
        if self._held is None or self._held[0] != (first, end):
            try:
                table = self._parquet.read_row_groups(range(first, end), columns=[self._name], use_threads=False)
            except (pa.ArrowException, OSError) as error:
                raise damaged_error(self._folder, self._delta.file, error, is_delta=True) from error
            self._held = (first, end), table.column(0)
        return self._held[1].slice(first_row - int(self._starts[first]), count)


class _Loading:
    """Takes deltas in the order in which they apply."""

    def __init__(self, folder: Folder, source: PartSource, columns: Collection[int] | None) -> None:
        self._folder = folder
        self._source = source
        self._wanted = None if columns is None else frozenset(columns)
        self._deletes: list[RowIndexes] = []
        self._patches: dict[int, list[Patch]] = {}
        self._columns: dict[int, _WholeColumn] = {}

    def add(self, delta: Delta) -> None:
        columns = [column for column in delta.columns if self._wanted is None or column in self._wanted]
        file = self._source.file.name
        match delta.kind:
            case DeltaKind.DELETE:
                self._add_deletes(delta, read_deletes(self._folder, delta, file))
            case DeltaKind.CHANGES:
                changes = read_target(self._folder, delta, file, columns)
                self._add_deletes(delta, deletes_of(changes))
                if columns:
                    updated = changes.filter(pc.equal(changes.column("op"), CHANGE_UPDATE))
                    self._add_patches(delta, updated, columns)
            case DeltaKind.UPDATE if columns:
                self._add_patches(delta, read_updates(self._folder, delta, columns), columns)
            case DeltaKind.COLUMN if columns:
                self._add_columns(delta, columns)

    def result(self) -> PartChanges:
        deleted = _all_of(self._deletes, self._source.rows)
        patches = {column: _join(patches) for column, patches in self._patches.items()}
        return PartChanges(deleted=deleted, patches=patches, columns=self._columns)

    def _add_deletes(self, delta: Delta, rows: RowIndexes) -> None:
        self._check_rows(delta, rows)
        if len(rows):
            self._deletes.append(rows)

    def _add_patches(self, delta: Delta, updates: pa.Table, columns: Sequence[int]) -> None:
        rows: RowIndexes = updates.column("row").to_numpy()
        self._check_rows(delta, rows)
        for column in columns:
            present = updates.column(presence_name(column)).to_numpy()
            if not present.any():
                continue
            values = one_chunk(updates.column(value_name(column)))
            if present.all():
                patch = Patch(rows=rows, values=values)
            else:
                patch = Patch(rows=rows[present], values=values.filter(pa.array(present)))
            self._patches.setdefault(column, []).append(patch)

    def _add_columns(self, delta: Delta, columns: Sequence[int]) -> None:
        parquet = open_values(self._folder, delta)
        if parquet.metadata.num_rows != self._source.rows:
            self._fail(delta, rows=parquet.metadata.num_rows, expected_rows=self._source.rows)
        for column in columns:
            self._patches.pop(column, None)
            self._columns[column] = _WholeColumn(self._folder, delta, parquet, column)

    def _check_rows(self, delta: Delta, rows: RowIndexes) -> None:
        if len(rows) and not (rows[0] >= 0 and rows[-1] < self._source.rows):
            self._fail(delta, first_row=rows[0], last_row=rows[-1], rows=self._source.rows)

    def _fail(self, delta: Delta, **facts: object) -> None:
        because = "it does not fit its part"
        raise corrupt_error(
            self._folder, delta.file.name, is_delta=True, because=because, part=self._source.name, **facts
        )


def _all_of(deletes: Sequence[RowIndexes], rows: int) -> RowIndexes:
    """Return all of these in their order, each once; none is greater than `rows`."""
    if len(deletes) == 1:
        return deletes[0]
    if sum(map(len, deletes)) * _SPARSE_SHARE < rows:
        return np.unique(np.concatenate([np.zeros(0, np.int64), *deletes]))
    is_deleted = np.zeros(rows, bool)
    for each in deletes:
        is_deleted[each] = True
    return np.flatnonzero(is_deleted)


def _join(patches: Sequence[Patch]) -> Patch:
    """Join the patches of one column: for each row the last value."""
    rows = np.concatenate([patch.rows for patch in patches])
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    is_last = np.append(ordered[1:] != ordered[:-1], True)
    if len(patches) == 1 and is_last.all():
        return patches[0]
    values = pa.chunked_array([patch.values for patch in patches])
    return Patch(rows=ordered[is_last], values=one_chunk(values.take(pa.array(order[is_last]))))


def _replace(values: pa.ChunkedArray, positions: RowIndexes, new: pa.Array) -> pa.ChunkedArray:
    kind = values.type
    if pa.types.is_dictionary(kind):
        spelled = pc.cast(values, kind.value_type)
        return _replace(spelled, positions, new).dictionary_encode().cast(kind)
    fresh = _as_type(pa.chunked_array([new]), kind)
    if not pa.types.is_nested(kind):
        mask = np.zeros(len(values), bool)
        mask[positions] = True
        return pc.replace_with_mask(values, pa.array(mask), one_chunk(fresh))
    indices = np.arange(len(values), dtype=np.int64)
    indices[positions] = len(values) + np.arange(len(positions))
    return pa.chunked_array([*values.chunks, *fresh.chunks]).take(pa.array(indices))


def _as_type(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if values.type == kind:
        return values
    if pa.types.is_dictionary(kind):
        return values.dictionary_encode().cast(kind)
    return pc.cast(values, kind)
