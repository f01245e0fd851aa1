"""The rows that an upsert reads, and what it does to them: the values between upsert.py and fill.py.

Covers: fresh rows by their keys, rows that are there, changes as tables. Does not cover: who wins (upsert.py).
Always holds: a change table has each row of a file once at most.

Tests: tests/property/test_upsert_resolve.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tilth.model.delta import PartSource
from tilth.model.table import Schema
from tilth.storage.deltas.deltas import CHANGE_DELETE, CHANGE_UPDATE, presence_name, value_name
from tilth.storage.values.arrow import arrow_type
from tilth.storage.values.unique_keys import Mask, Rows


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Changes of some rows of one file."""

    partition: str
    file: str
    rows: Rows
    #: New values by column id, null where a row gets none; without any column the rows are deleted.
    values: dict[int, pa.Array] = field(default_factory=dict)
    #: Rows that get a value, by column id.
    is_given: dict[int, Mask] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """The rows that come in."""

    sources: tuple[PartSource, ...]
    #: Rows of all sources, one source after the other.
    rows: pa.Table
    #: The row with which each source starts.
    firsts: Rows
    is_delete: Mask
    #: None where the table has no version column.
    versions: pa.ChunkedArray | None
    #: Equal for rows with equal keys only.
    codes: Rows

    def by_source(self, rows: Rows) -> Iterator[tuple[PartSource, slice, Rows]]:
        """Yield the sources of these rows, which are in order, each with its slice of `rows` and its row numbers."""
        ends = np.append(self.firsts[1:], len(self.codes))
        for source, first, end in zip(self.sources, self.firsts.tolist(), ends.tolist(), strict=True):
            start, stop = np.searchsorted(rows, [first, end]).tolist()
            if start < stop:
                yield source, slice(start, stop), rows[start:stop] - first

    def deletes(self, rows: Rows) -> Iterator[RowChanges]:
        for source, _, inside in self.by_source(rows):
            yield RowChanges(source.name.partition, source.file.name, inside)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsByKey:
    """The fresh rows by their keys, those of each key weakest first."""

    #: Rows, those of a key together.
    order: Rows
    #: Position in `order` at which the rows of each key start.
    starts: Rows
    #: The strongest row of each key.
    winners: Rows
    #: `True` for each key with a delete that has no version, and so is stronger than whatever is there.
    is_forced: Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """Rows that are there and have keys of fresh rows; one after the other, those of a source in order."""

    all_sources: tuple[PartSource, ...]
    #: The number of each row's source among all.
    sources: Rows
    #: Each row's index in its file.
    rows: Rows
    #: The index of each row's key, as in `RowsByKey.starts`.
    keys: Rows
    #: None where the table has no version column.
    versions: pa.ChunkedArray | None

    def by_source(self, positions: Rows) -> Iterator[tuple[PartSource, slice, Rows]]:
        """The sources of the rows at these positions, which are in order: where in `positions` each one's stand, and
        what they are in its file.
        """
        numbers = self.sources[positions]
        starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])) if len(numbers) else numbers
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(numbers)], strict=False):
            yield self.all_sources[numbers[start]], slice(start, stop), self.rows[positions[start:stop]]

    def deletes(self, positions: Rows) -> Iterator[RowChanges]:
        for source, _, inside in self.by_source(positions):
            yield RowChanges(source.name.partition, source.file.name, inside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Rows that win and rows that go."""

    #: `True` for each fresh row that stays.
    is_kept: Mask
    #: Indexes of the existing rows to delete.
    deleted: Rows
    #: Number of fresh rows of each key whose version is smaller than that of the existing row: they come too late.
    late: Rows


def change_tables(schema: Schema, changes: Iterable[RowChanges]) -> Iterator[tuple[str, pa.Table]]:
    """Yield for each partition one table of changes, in the form of change segments."""
    by_partition: dict[str, list[RowChanges]] = {}
    for each in changes:
        by_partition.setdefault(each.partition, []).append(each)
    for partition, in_partition in by_partition.items():
        yield partition, _table(schema, in_partition)


def _table(schema: Schema, changes: Sequence[RowChanges]) -> pa.Table:
    columns = [column for column in schema.columns if any(column.id in each.values for each in changes)]
    files = list(dict.fromkeys(each.file for each in changes))
    codes = np.concatenate([np.full(len(each.rows), files.index(each.file), np.int32) for each in changes])
    ops = np.concatenate(
        [np.full(len(each.rows), CHANGE_UPDATE if each.values else CHANGE_DELETE, np.int8) for each in changes]
    )
    arrays: dict[str, Any] = {
        "file": pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(files, pa.string())),
        "row": np.concatenate([each.rows for each in changes]),
        "op": ops,
    }
    for column in columns:
        kind, id_ = arrow_type(column.type), column.id
        arrays[value_name(id_)] = pa.chunked_array(
            [each.values.get(id_, pa.nulls(len(each.rows), kind)) for each in changes], kind
        )
        arrays[presence_name(id_)] = np.concatenate(
            [each.is_given.get(id_, np.zeros(len(each.rows), np.bool_)) for each in changes]
        )
    return pa.table(arrays)
