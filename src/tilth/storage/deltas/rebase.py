"""Changes of parts, brought onto the part that was made of them meanwhile.

Covers: deletes and new values of the sources' rows, as one change segment for the result. Does not cover: which changes
are new, the commit (maintenance).
Always holds: a row of the result is deleted once; what the result does not have, because it was deleted or had expired,
is passed over; of several new values of one row the newest counts.

Tests: tests/property/test_merge_changed.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tilth.model.delta import DeltaKind, PartSource, WrittenDelta
from tilth.model.part import DataFile
from tilth.storage.deltas.changes import PartChanges, Patch, load_changes
from tilth.storage.deltas.deletes import RowIndexes
from tilth.storage.deltas.deltas import CHANGE_DELETE, CHANGE_UPDATE, DeltaWriter, presence_name, value_name
from tilth.storage.parts.rowmap import RowMap
from tilth.storage.store.paths import TableLayout
from tilth.storage.values.arrow import arrow_type


class PartRebaser:
    """Rebaser of the changes of one part's sources. Calls follow one another, each for changes that are newer than
    those before.
    """

    def __init__(self, layout: TableLayout, partition: str, file: DataFile) -> None:
        """`file`: the result's, which has the layout's columns and a row map beside it."""
        self._layout = layout
        self._partition = partition
        self._file = file
        self._map: RowMap | None = None
        self._deleted: RowIndexes = np.zeros(0, np.int64)

    def rebase(self, sources: Sequence[PartSource], *, txn: int, task: int, n: int) -> WrittenDelta | None:
        """Write what these changes of the sources are for the result; None, and no file, where that is nothing.

        The sources are all, in the order in which they were read; each with its new deltas alone. Raises
        PartFileNotFoundError and PartFileCorruptError of the row map, and what reading deltas raises.
        """
        changed = [(index, source) for index, source in enumerate(sources) if source.deltas]
        if not changed:
            return None
        if self._map is None:
            self._map = RowMap(self._layout.folder, self._file.name)
        known = {column.id for column in self._layout.schema.columns}
        deletes: list[RowIndexes] = [np.zeros(0, np.int64)]
        patches: dict[int, list[Patch]] = {}
        for index, source in changed:
            changes = load_changes(self._layout.folder, source)
            found = self._map.find(index, changes.deleted)
            deletes.append(found[found >= 0])
            for column, patch in _patches(source, changes):
                moved = self._map.find(index, patch.rows)
                is_there = moved >= 0
                if column in known and is_there.any():
                    values = patch.values.filter(pa.array(is_there))
                    patches.setdefault(column, []).append(Patch(rows=moved[is_there], values=values))
        deleted = np.setdiff1d(np.concatenate(deletes), self._deleted)
        self._deleted = np.union1d(self._deleted, deleted)
        table = self._changes(deleted, {column: self._join(column, found) for column, found in patches.items()})
        if not table.num_rows:
            return None
        return DeltaWriter(self._layout, txn=txn, task=task, attempt=0, first_n=n).changes(self._partition, table)

    def _join(self, column: int, patches: Sequence[Patch]) -> Patch:
        """Join the patches of one column of the sources, which change different rows, without the rows that are
        deleted.
        """
        rows = np.concatenate([patch.rows for patch in patches])
        values = pa.concat_arrays([patch.values for patch in patches])
        stays = np.isin(rows, self._deleted, invert=True)
        return Patch(rows=rows[stays], values=values.filter(pa.array(stays)))

    def _changes(self, deleted: RowIndexes, patches: dict[int, Patch]) -> pa.Table:
        """The rows of the change segment, each row of the result once."""
        patches = {column: patch for column, patch in patches.items() if len(patch.rows)}
        updated = np.unique(np.concatenate([np.zeros(0, np.int64), *(patch.rows for patch in patches.values())]))
        count = len(deleted) + len(updated)
        names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([self._file.name]))
        op = np.repeat(np.array([CHANGE_DELETE, CHANGE_UPDATE], np.int8), [len(deleted), len(updated)])
        columns = {"file": names, "row": pa.array(np.concatenate([deleted, updated])), "op": pa.array(op)}
        for column, patch in sorted(patches.items()):
            positions = len(deleted) + np.searchsorted(updated, patch.rows)
            indices = np.full(count, -1, np.int64)
            indices[positions] = np.arange(len(positions))
            is_there = indices >= 0
            columns[value_name(column)] = patch.values.take(pa.array(indices, mask=~is_there))
            columns[presence_name(column)] = pa.array(is_there)
        return pa.table(columns)


def _patches(source: PartSource, changes: PartChanges) -> Iterator[tuple[int, Patch]]:
    """All new values by column, those of whole columns too."""
    whole = {column for delta in source.deltas if delta.kind is DeltaKind.COLUMN for column in delta.columns}
    for column in source.schema.columns:
        if column.id in whole:
            rows = np.arange(source.rows, dtype=np.int64)
            nulls = pa.table({column.name: pa.nulls(source.rows, arrow_type(column.type))})
            yield column.id, Patch(rows=rows, values=changes.apply(nulls, 0, source.schema).column(0).combine_chunks())
        elif column.id in changes.patches:
            yield column.id, changes.patches[column.id]
