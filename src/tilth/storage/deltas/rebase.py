"""Changes of parts, brought onto the part that was made of them meanwhile.

Covers: deletes and new values of the sources' rows, as one change segment for the result. Does not cover: which changes
are new, the commit (maintenance).
Always holds: a row of the result is deleted once; what the result does not have, because it was deleted or had expired,
is passed over; of several new values of one row the newest counts.

Tests: tests/property/test_merge_changed.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tilth.model.delta import DeltaKind, PartSource, WrittenDelta
from tilth.model.part import DataFile
from tilth.storage.deltas.changes import PartChanges, Patch, load_changes
from tilth.storage.deltas.deletes import RowIndexes
from tilth.storage.deltas.deltas import (
    CHANGE_DELETE,
    CHANGE_UPDATE,
    DeltaWriter,
    deletes_of,
    presence_name,
    read_target,
    value_name,
)
from tilth.storage.parts.rowmap import find_rows
from tilth.storage.store.paths import TableLayout
from tilth.storage.values.arrow import arrow_type


class PartRebaser:
    """Rebaser of the changes of one part's sources. Calls follow one another, each for changes that are newer than
    those before.
    """

    def __init__(
        self, layout: TableLayout, partition: str, file: DataFile, *, before: Sequence[WrittenDelta] = ()
    ) -> None:
        """`file`: the result's, which has the layout's columns and a row map beside it. `before`: what other rebasers
        have written for it, in the same transaction.
        """
        self._layout = layout
        self._partition = partition
        self._file = file
        self._before = before
        self._deleted: RowIndexes = np.zeros(0, np.int64)

    def rebase(
        self, sources: Sequence[PartSource], *, txn: int, task: int, n: int, attempt: int = 0
    ) -> WrittenDelta | None:
        """Write what these changes of the sources are for the result; None, and no file, where that is nothing.

        The sources are all, in the order in which they were read; each with its new deltas alone. Raises
        PartFileNotFoundError and PartFileCorruptError of the row map, and what reading deltas raises.
        """
        changed = {index: source for index, source in enumerate(sources) if source.deltas}
        return self.rebase_some(changed, txn=txn, task=task, n=n, attempt=attempt)

    def rebase_some(
        self, changed: Mapping[int, PartSource], *, txn: int, task: int, n: int, attempt: int
    ) -> WrittenDelta | None:
        """Do as `rebase` does for the changed sources, by their numbers among all."""
        if not changed:
            return None
        self._read_before()
        folder = self._layout.folder
        changes = {index: load_changes(folder, source) for index, source in changed.items()}
        values = {index: list(_patches(source, changes[index])) for index, source in changed.items()}
        wanted = {
            index: np.unique(np.concatenate([each.deleted, *(patch.rows for _, patch in values[index])])).astype(
                np.int64
            )
            for index, each in changes.items()
        }
        positions = find_rows(folder, self._file.name, wanted)

        def moved(index: int, rows: RowIndexes) -> RowIndexes:
            return positions[index][np.searchsorted(wanted[index], rows)]

        known = {column.id for column in self._layout.schema.columns}
        deletes: list[RowIndexes] = [np.zeros(0, np.int64)]
        patches: dict[int, list[Patch]] = {}
        for index, each in changes.items():
            found = moved(index, each.deleted)
            deletes.append(found[found >= 0])
            for column, patch in values[index]:
                rows = moved(index, patch.rows)
                is_there = rows >= 0
                if column in known and is_there.any():
                    kept = patch.values.filter(pa.array(is_there))
                    patches.setdefault(column, []).append(Patch(rows=rows[is_there], values=kept))
        deleted = np.setdiff1d(np.concatenate(deletes), self._deleted)
        self._deleted = np.union1d(self._deleted, deleted)
        table = self._changes(deleted, {column: self._join(column, joined) for column, joined in patches.items()})
        if not table.num_rows:
            return None
        out = DeltaWriter(self._layout, txn=txn, task=task, attempt=attempt, first_n=n)
        return out.changes(self._partition, table)

    def _read_before(self) -> None:
        """Learn which rows of the result are deleted by what was written before, once."""
        before, self._before = self._before, ()
        for delta in before:
            if any(target.deleted for target in delta.targets):
                rows = deletes_of(read_target(self._layout.folder, delta, self._file.name, ()))
                self._deleted = np.union1d(self._deleted, rows)

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
