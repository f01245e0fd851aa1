"""Lookup of rows with given keys in the files of a table with a unique key.

Covers: which row groups are read, finding keys in them, exact comparison. Does not cover: which of the rows found are
still there, and what becomes of them (upsert.py).
Always holds: every row of a source whose key is wanted is found, deleted ones too; a row that is found has exactly the
key. Only columns of the key are read, and the version where a key was found. See also: parts/key_filter.py,
values/unique_keys.py.

Tests: tests/integration/storage/test_key_filters.py.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tilth.model.delta import PartSource
from tilth.storage.deltas.sources import iter_source
from tilth.storage.errors import PartShapeUnknownError
from tilth.storage.parts.key_filter import key_names, key_types, read_filter
from tilth.storage.parts.part_files import damaged_error, open_part
from tilth.storage.parts.segments import read_segment
from tilth.storage.store.paths import TableLayout
from tilth.storage.upsert.cache import HELD
from tilth.storage.values.arrow import arrow_type
from tilth.storage.values.unique_keys import (
    Hashes,
    Keys,
    Mask,
    Rows,
    as_numbers,
    ascending_numbers,
    is_number,
    keys_of,
)

T = TypeVar("T")
R = TypeVar("R")

#: Files and row groups that are searched at a time; Arrow and numpy let other threads run meanwhile.
THREADS_MAX = 4
#: A part's filter is used when it has at least so many times the rows of the keys that are searched; else some key is
#: there.
FILTER_ROWS_PER_KEY = 32
#: More texts than these are not put in order, only to see which row groups may have one of them.
TEXTS_ORDERED_MAX = 50_000
#: Row groups of so many rows together are one chunk.
_RUN_ROWS = 512 * 1024
#: The share of marks in the table that rules out most keys by one access.
_MARKS_PER_KEY = 8
_MARKS_BITS_MIN = 12
_MARKS_BITS_MAX = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRows:
    """Rows of one source that have wanted keys."""

    #: The source's number among those that were searched.
    source: int
    #: Row indexes in the file.
    rows: Rows
    #: The number of each row's key among the wanted ones.
    keys: Rows
    #: The rows' versions; None where the table has no version column.
    versions: pa.ChunkedArray | None


@dataclass(slots=True)
class WantedKeys:
    """Different keys, prepared for being searched."""

    keys: Keys
    #: Numbers by which the caller identifies the keys.
    numbers: Rows
    #: Values of each key column, numbers or texts; None where they are not compared with ranges.
    values: tuple[Rows | pa.Array | None, ...]
    _order: Rows = field(init=False)
    _hashes: Hashes = field(init=False)
    _ordered: tuple[Rows | list[Any] | None, ...] = field(init=False)
    #: Positions of the keys by their first column, where that has numbers.
    _ascending: Rows = field(init=False)
    #: True at the first bits of each wanted hash.
    _marks: Mask = field(init=False)
    _shift: np.uint64 = field(init=False)

    def __post_init__(self) -> None:
        self._order = np.argsort(self.keys.hashes, kind="stable")
        self._hashes = self.keys.hashes[self._order]
        self._ordered = tuple(_ordered(values) for values in self.values)
        first = self.values[0]
        self._ascending = np.argsort(first) if isinstance(first, np.ndarray) else self._order[:0]
        bits = max(_MARKS_BITS_MIN, min(_MARKS_BITS_MAX, (len(self.keys) * _MARKS_PER_KEY).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._marks = np.zeros(1 << bits, np.bool_)
        self._marks[self._hashes >> self._shift] = True

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, keys: Keys) -> tuple[Rows, Rows]:
        """Find the wanted ones among these keys: their rows, in order, and the number of each."""
        rows = np.flatnonzero(self._marks[keys.hashes >> self._shift])
        hashes = keys.hashes[rows]
        positions = np.searchsorted(self._hashes, hashes)
        found_rows, found_numbers = [rows[:0]], [self.numbers[:0]]
        # Different keys may share a hash: what is not equal to the first of them is compared with the next.
        while len(rows):
            is_same = self._hashes[np.minimum(positions, len(self._hashes) - 1)] == hashes
            is_same &= positions < len(self._hashes)
            rows, hashes, positions = rows[is_same], hashes[is_same], positions[is_same]
            wanted = self._order[positions]
            is_equal = keys.equal(rows, self.keys, wanted)
            found_rows.append(rows[is_equal])
            found_numbers.append(self.numbers[wanted[is_equal]])
            rows, hashes, positions = rows[~is_equal], hashes[~is_equal], positions[~is_equal] + 1
        every_row, every_number = np.concatenate(found_rows), np.concatenate(found_numbers)
        order = np.argsort(every_row, kind="stable")
        return every_row[order], every_number[order]

    def find_ascending(self, numbers: Rows) -> tuple[Rows, Rows]:
        """Find the wanted ones among keys that are one column of whole numbers, each above the one before: as `find`.

        Nothing is computed for each of them, as it is for hashes: the wanted ones are fewer.
        """
        ordered = self._ordered[0]
        assert isinstance(ordered, np.ndarray)
        if not len(numbers):
            return self.numbers[:0], self.numbers[:0]
        low, high = np.searchsorted(ordered, numbers[0]), np.searchsorted(ordered, numbers[-1], side="right")
        wanted = ordered[low:high]
        rows = np.searchsorted(numbers, wanted)
        is_there = numbers[rows] == wanted
        return rows[is_there], self.numbers[self._ascending[low:high][is_there]]

    def only(self, kept: Mask) -> WantedKeys:
        rows = np.flatnonzero(kept)
        values = tuple(
            each.take(pa.array(rows)) if isinstance(each, pa.Array) else None if each is None else each[rows]
            for each in self.values
        )
        return WantedKeys(self.keys.take(rows), self.numbers[rows], values)

    def may_be_in(self, column: int, low: pa.Scalar, high: pa.Scalar) -> bool:
        """True if the column of a wanted key may have a value from low to high, by the ordered values of the keys;
        without these it may.
        """
        ordered = self._ordered[column]
        if ordered is None:
            return True
        if isinstance(ordered, list):
            lowest, highest = (each.cast(pa.binary()).as_py() for each in (low, high))
            return bisect_left(ordered, lowest) < bisect_right(ordered, highest)
        first, last = as_numbers(pa.chunked_array([pa.array([low, high])])).tolist()
        return bool(np.searchsorted(ordered, first) < np.searchsorted(ordered, last, side="right"))


def wanted_keys(layout: TableLayout, table: pa.Table) -> WantedKeys:
    """Prepare the keys of these rows, which must be different."""
    types = key_types(layout)
    columns = [table.column(name) for name in key_names(layout)]
    values = tuple(_comparable(column, kind) for column, kind in zip(columns, types, strict=True))
    return WantedKeys(keys_of(columns, types), np.arange(table.num_rows), values)


def find_keys(layout: TableLayout, wanted: WantedKeys, sources: Sequence[PartSource]) -> list[FoundRows]:
    """All rows of the sources that have wanted keys, in the order of the sources.

    Raises what reading a part raises.
    """
    if not len(wanted):
        return []
    planned = in_threads(lambda number: _lookups(layout, wanted, number, sources[number]), range(len(sources)))
    found = in_threads(_run_all, _bundles([lookup for lookups in planned for lookup in lookups]))
    return [each for rows in found for each in rows]


def _bundles(lookups: Iterable[_Lookup]) -> list[list[_Lookup]]:
    """Join small chunks: a thread costs more than one of them."""
    bundles: list[list[_Lookup]] = []
    held = 0
    for lookup in lookups:
        size = lookup.source.rows if lookup.source.is_segment else _RUN_ROWS
        if not bundles or held + size > _RUN_ROWS:
            bundles.append([])
            held = 0
        bundles[-1].append(lookup)
        held += size
    return bundles


def _run_all(lookups: Iterable[_Lookup]) -> list[FoundRows]:
    return [found for lookup in lookups for found in lookup.run()]


def repeated_keys(layout: TableLayout, sources: Sequence[PartSource]) -> int:
    """Count the sources' live rows whose key an earlier row has. Keys are compared by their hashes, two of which are
    hardly ever equal by chance. Raises what reading a part raises.
    """
    hashes = np.sort(np.concatenate([np.zeros(0, np.uint64), *in_threads(partial(_all_hashes, layout), sources)]))
    return int(np.count_nonzero(hashes[1:] == hashes[:-1]))


def in_threads(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return the function's result for each item, in their order; several run at a time. Raises the error of the first
    that fails.
    """
    everything = list(items)
    threads = min(THREADS_MAX, os.cpu_count() or 1, len(everything))
    if threads <= 1:
        return [function(item) for item in everything]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, everything))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lookup:
    """A chunk of a search: a segment, or some row groups of a part."""

    layout: TableLayout
    wanted: WantedKeys
    number: int
    source: PartSource
    #: Row groups, each with the number of its first row; a segment has none.
    row_groups: tuple[tuple[int, int], ...] = ()

    def run(self) -> list[FoundRows]:
        return self._in_segment() if self.source.is_segment else self._in_part()

    def _in_segment(self) -> list[FoundRows]:
        layout, source = self.layout, self.source
        names, types = stored_names(layout, source, key_names(layout)), key_types(layout)
        version = version_name(layout, source)
        columns = [*names, *([] if version is None or version in names else [version])]

        def read() -> tuple[Keys, pa.ChunkedArray | None]:
            table = pa.concat_tables(read_segment(layout.folder, source.file, source.schema, columns))
            keys = keys_of([table.column(name) for name in names], types)
            return keys, None if version is None else table.column(version)

        # The key of the cache: the columns' present names, and the types as which they are compared.
        kind = (str(layout.folder), "keys", *names, version or "", *map(str, types))
        keys, versions = HELD.get(kind, source.file, read, _held_bytes)
        rows, numbers = self.wanted.find(keys)
        if not len(rows):
            return []
        found = None if versions is None else versions.take(pa.array(rows))
        return [FoundRows(source=self.number, rows=rows, keys=numbers, versions=found)]

    def _in_part(self) -> list[FoundRows]:
        names = stored_names(self.layout, self.source, key_names(self.layout))
        version = version_name(self.layout, self.source)
        found = []
        with open_part(self.layout.folder, self.source.file) as parquet:
            try:
                for row_group, first in self.row_groups:
                    table = parquet.read_row_group(row_group, columns=names, use_threads=False)
                    rows, numbers = self._wanted_in(table, names)
                    if not len(rows):
                        continue
                    versions = None
                    if version is not None:
                        read = parquet.read_row_group(row_group, columns=[version], use_threads=False)
                        versions = read.column(version).take(pa.array(rows))
                    found.append(FoundRows(source=self.number, rows=first + rows, keys=numbers, versions=versions))
            except (pa.ArrowException, OSError) as error:
                raise damaged_error(self.layout.folder, self.source.file, error) from error
        return found

    def _wanted_in(self, table: pa.Table, names: Sequence[str]) -> tuple[Rows, Rows]:
        columns, types = [table.column(name) for name in names], key_types(self.layout)
        ascending = ascending_numbers(columns, types)
        return self.wanted.find(keys_of(columns, types)) if ascending is None else self.wanted.find_ascending(ascending)


def _held_bytes(read: tuple[Keys, pa.ChunkedArray | None]) -> int:
    keys, versions = read
    return keys.nbytes + (0 if versions is None else versions.nbytes)


def live_hashes(layout: TableLayout, source: PartSource) -> Iterator[Hashes]:
    """Yield the hashes of the keys of the source's live rows, block by block. Raises what reading a part raises."""
    names, types = stored_names(layout, source, key_names(layout)), key_types(layout)
    for rows, _ in iter_source(layout.folder, source, columns=names, block_rows=_RUN_ROWS):
        yield keys_of([rows.column(name) for name in names], types).hashes


def _all_hashes(layout: TableLayout, source: PartSource) -> Hashes:
    return np.concatenate([np.zeros(0, np.uint64), *live_hashes(layout, source)])


def stored_names(layout: TableLayout, source: PartSource, names: Iterable[str]) -> list[str]:
    """Return the names of these columns of the table in the source's file; raises PartShapeUnknownError."""
    stored = {column.id: column.name for column in source.schema.columns}
    found = []
    for name in names:
        column = layout.schema.find(name)
        if column is None or column.id not in stored:
            raise PartShapeUnknownError("a part lacks a column of the unique key", part=source.name, column=name)
        found.append(stored[column.id])
    return found


def version_name(layout: TableLayout, source: PartSource) -> str | None:
    """Return the name of the version column in the source's file; None: the table has none."""
    return None if layout.version_column is None else stored_names(layout, source, [layout.version_column])[0]


def _comparable(column: pa.ChunkedArray, kind: pa.DataType) -> Rows | pa.Array | None:
    if is_number(kind):
        return as_numbers(column)
    if not _is_text(kind) or len(column) > TEXTS_ORDERED_MAX:
        return None
    # Keys are compared as bytes: texts and binaries then have the same order, and any string has a position in it.
    return pc.cast(pa.concat_arrays(column.chunks), pa.binary())


def _ordered(values: Rows | pa.Array | None) -> Rows | list[Any] | None:
    return sorted(values.to_pylist()) if isinstance(values, pa.Array) else None if values is None else np.sort(values)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _lookups(layout: TableLayout, wanted: WantedKeys, number: int, source: PartSource) -> list[_Lookup]:
    """Split one source into chunks."""
    if source.is_segment:
        return [_Lookup(layout=layout, wanted=wanted, number=number, source=source)]
    if len(wanted) * FILTER_ROWS_PER_KEY <= source.rows:
        known = read_filter(layout, source.file)
        if known is not None:
            wanted = wanted.only(known.may_have(wanted.keys.hashes))
    if not len(wanted):
        return []
    with open_part(layout.folder, source.file) as parquet:
        row_groups = list(_row_groups(layout, wanted, source, parquet.metadata))
    return [
        _Lookup(layout=layout, wanted=wanted, number=number, source=source, row_groups=tuple(run))
        for run in _runs(row_groups)
    ]


def _row_groups(
    layout: TableLayout, wanted: WantedKeys, source: PartSource, metadata: pq.FileMetaData
) -> Iterator[tuple[int, int, int]]:
    """Yield the row groups that may have wanted keys: number, first row, rows."""
    names = stored_names(layout, source, key_names(layout))
    kinds = [arrow_type(column.type) for name in names if (column := source.schema.find(name)) is not None]
    first = 0
    for number in range(metadata.num_row_groups):
        row_group = metadata.row_group(number)
        statistics: dict[str, pq.Statistics | None] = {}
        for chunk in (row_group.column(position) for position in range(row_group.num_columns)):
            if chunk.path_in_schema in names:
                # The path of a column called `a.b` may be that of a field, too.
                is_first = chunk.path_in_schema not in statistics
                statistics[chunk.path_in_schema] = chunk.statistics if is_first else None
        if all(
            _may_be_in(wanted, column, statistics.get(name), kind)
            for column, (name, kind) in enumerate(zip(names, kinds, strict=True))
        ):
            yield number, first, row_group.num_rows
        first += row_group.num_rows


def _may_be_in(wanted: WantedKeys, column: int, statistics: pq.Statistics | None, kind: pa.DataType) -> bool:
    if statistics is None or not statistics.has_min_max or not (is_number(kind) or _is_text(kind)):
        return True
    try:
        return wanted.may_be_in(column, pa.scalar(statistics.min, kind), pa.scalar(statistics.max, kind))
    except (OverflowError, ValueError):
        # Times beyond the years that Python knows.
        return True


def _runs(row_groups: Iterable[tuple[int, int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield row groups, as many together as make a chunk."""
    run: list[tuple[int, int]] = []
    held = 0
    for number, first, rows in row_groups:
        run.append((number, first))
        held += rows
        if held >= _RUN_ROWS:
            yield run
            run, held = [], 0
    if run:
        yield run
