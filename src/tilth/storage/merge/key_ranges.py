"""Key ranges of a merge: positions in its result at which it is cut, and the rows of each source between two of them.

Covers: the choice of the positions from samples of the sources' sort keys, the rows of a source before a position. Does
not cover: the merge itself (merge.py), whether a merge is cut at all (maintenance).
Always holds: every row of every source is in exactly one range; the ranges' results laid end to end are the result of
the merge that is not cut.

A position is that of one row of one source. It needs no key in a message, and it is exact whatever the keys are: the
result is ordered by key, then by source, then by row, so that even rows of one key fall on both sides. Each task finds
the row of every other source where that position falls: by the first keys of the row groups, then in the keys of one
row group. Two tasks that share a position find the same rows.

Tests: tests/property/test_merge_key_ranges.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tilth.model.delta import PartSource
from tilth.model.table import Schema
from tilth.storage.merge.columns import columns_in_file, default_of
from tilth.storage.parts.part_files import damaged_error, exact, open_part
from tilth.storage.store.paths import TableLayout
from tilth.storage.values.arrow import shape
from tilth.storage.values.order import Codes, is_sorted, ranks_of

Floats = np.ndarray[Any, np.dtype[np.float64]]

#: Samples of keys for each range, at least; where row groups are fewer, each gives several.
SAMPLES_PER_RANGE = 16
#: Maximum number of row groups whose first key is read.
SAMPLES_MAX = 4096
#: The tasks of all ranges together read this many times the sources at most, or the ranges are fewer. A row group that
#: has rows of two ranges is read for both.
READ_SHARE_MAX = 2.0


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """Position before which a range ends and from which the next one begins: that of a row of a source."""

    #: Number of the source.
    source: int
    #: Index of the row in its file.
    row: int


class CutPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Positions at which a merge is cut, in order: one fewer than ranges."""

    cuts: tuple[Cut, ...]
    #: Reason why there are fewer ranges than wanted; empty if there are not.
    why_fewer: str = ""


class KeyRange(msgspec.Struct, frozen=True, kw_only=True):
    """One range of a merge."""

    #: None: from the first row on.
    start: Cut | None
    #: None: to the last row.
    end: Cut | None
    #: Number of ranges of the merge.
    of: int


def ranges_of(plan: CutPlan) -> tuple[KeyRange, ...]:
    """Return the ranges between the positions, in order."""
    bounds = (None, *plan.cuts, None)
    of = len(plan.cuts) + 1
    return tuple(KeyRange(start=bounds[number], end=bounds[number + 1], of=of) for number in range(of))


def plan_ranges(layout: TableLayout, sources: Sequence[PartSource], wanted: int) -> CutPlan:
    """Find the positions that cut the merge of these sources into so many ranges of about as many bytes each.

    Raises PartFileNotFoundError and PartFileCorruptError naming the file.
    """
    samples = _sample(layout, sources, wanted)
    cuts: list[int] = []
    count = wanted
    while count > 1 and samples.total:
        cuts = samples.cuts(count)
        if samples.bytes_read_twice(cuts) <= (READ_SHARE_MAX - 1) * samples.total:
            break
        cuts, count = [], count - 1
    why = ""
    if len(cuts) + 1 < wanted:
        is_for_rows = count == wanted or not samples.total
        why = "its parts have too few rows" if is_for_rows else "more would read the same row groups too often"
    return CutPlan(cuts=tuple(samples.position(cut) for cut in cuts), why_fewer=why)


def spans_of(layout: TableLayout, sources: Sequence[PartSource], within: KeyRange) -> list[range]:
    """Return the rows of each source, by their indexes in its file, that are in the range.

    Raises PartFileNotFoundError and PartFileCorruptError naming the file, also where it is not sorted.
    """
    start, end = _key_at(layout, sources, within.start), _key_at(layout, sources, within.end)
    spans: list[range] = []
    for number, source in enumerate(sources):
        with _Keys(layout, source) as keys:
            first = 0 if start is None else _rows_before(keys, number, *start)
            last = keys.starts[-1] if end is None else _rows_before(keys, number, *end)
        spans.append(range(first, max(first, last)))
    return spans


def _key_at(layout: TableLayout, sources: Sequence[PartSource], cut: Cut | None) -> tuple[Cut, pa.Table] | None:
    if cut is None:
        return None
    with _Keys(layout, sources[cut.source]) as keys:
        return cut, keys.at(cut.row)


def _rows_before(keys: _Keys, number: int, cut: Cut, key: pa.Table) -> int:
    """Count the rows of a source before a position. Of equal keys those of earlier sources come first."""
    return cut.row if number == cut.source else keys.rows_before(key, is_equal_before=number < cut.source)


class _Keys:
    """The sort keys of one source; a context manager that closes its file."""

    def __init__(self, layout: TableLayout, source: PartSource) -> None:
        names = list(dict.fromkeys(exact(layout, name) for name in layout.order_by))
        self._schema = Schema(columns=tuple(column for name in names if (column := layout.schema.find(name))))
        self._order = [self._schema.names.index(exact(layout, name)) for name in layout.order_by]
        self._layout = layout
        self._file = source.file
        self._parquet = open_part(layout.folder, source.file)
        self._columns = columns_in_file(self._schema, self._parquet.schema_arrow)
        metadata: pq.FileMetaData = self._parquet.metadata
        row_groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        #: Index of the first row of each row group, then the number of rows.
        self.starts: list[int] = np.cumsum([0, *(row_group.num_rows for row_group in row_groups)]).tolist()
        self.row_group_bytes = [bytes_of_row_group(row_group) for row_group in row_groups]

    def __enter__(self) -> _Keys:
        return self

    def __exit__(self, *_: object) -> None:
        self._parquet.close()

    def at(self, row: int) -> pa.Table:
        """Return the key of one row, as a table of one row."""
        row_group = int(np.searchsorted(self.starts, row, side="right")) - 1
        if row == self.starts[row_group]:
            return self.first(row_group)
        return self.row_group(row_group).slice(row - self.starts[row_group], 1)

    def first(self, row_group: int) -> pa.Table:
        """Return the first key of a row group; only the first pages are read for it."""
        return self._read(row_group, rows=1)

    def row_group(self, row_group: int) -> pa.Table:
        """Return the keys of a row group."""
        return self._read(row_group, rows=self.starts[row_group + 1] - self.starts[row_group])

    def rows_before(self, key: pa.Table, *, is_equal_before: bool) -> int:
        """Count the rows before a key, those of the same key among them or not."""
        low, high = 0, len(self.starts) - 1
        while low < high:
            middle = (low + high) // 2
            if self._count_before(self.first(middle), key, is_equal_before):
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return 0
        # Later row groups begin after the key, this one before it.
        return self.starts[low - 1] + self._count_before(self.row_group(low - 1), key, is_equal_before)

    def _count_before(self, keys: pa.Table, key: pa.Table, is_equal_before: bool) -> int:
        ranks = self.ranks(pa.concat_tables([keys, key]))
        if not is_sorted(ranks[:-1]):
            raise damaged_error(self._layout.folder, self._file, ValueError("a part file is not sorted"))
        return int(np.searchsorted(ranks[:-1], ranks[-1], side="right" if is_equal_before else "left"))

    def ranks(self, keys: pa.Table) -> Codes:
        return ranks_of([keys.column(index) for index in self._order], keys.num_rows)

    def _read(self, row_group: int, *, rows: int) -> pa.Table:
        if not self._columns:
            # Without a sort key all rows are equal.
            return pa.table({"": pa.nulls(rows)})
        found = self._stored(row_group, rows)
        arrays = [
            pa.repeat(default_of(column), rows) if name is None else found.column(name)
            for name, column in zip(self._columns, self._schema.columns, strict=True)
        ]
        return shape(pa.table(arrays, names=self._schema.names), self._schema)

    def _stored(self, row_group: int, rows: int) -> pa.RecordBatch:
        names = [name for name in self._columns if name is not None]
        try:
            batches = self._parquet.iter_batches(
                batch_size=rows, row_groups=[row_group], columns=names, use_threads=False
            )
            return next(batches)
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise damaged_error(self._layout.folder, self._file, error) from error


def bytes_of_row_group(row_group: pq.RowGroupMetaData) -> int:
    """Return the bytes of a row group in its file."""
    return sum(int(row_group.column(index).total_compressed_size) for index in range(row_group.num_columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Samples:
    """Rows of the sources, in the order of the merge's result."""

    #: Source and row of each, and the bytes of its row group.
    sources: Codes
    rows: Codes
    row_group_bytes: Floats
    #: Estimated bytes of the result's rows before each.
    before: Floats
    #: The samples of each source.
    by_source: Sequence[Codes]
    #: Bytes of all sources.
    total: int

    def position(self, index: int) -> Cut:
        return Cut(int(self.sources[index]), int(self.rows[index]))

    def cuts(self, count: int) -> list[int]:
        """Return the samples at which so many ranges begin, without the first one; fewer where samples are few."""
        targets = np.arange(1, count) * (self.total / count)
        after = np.searchsorted(self.before, targets).clip(0, len(self.before) - 1)
        earlier = np.maximum(after - 1, 0)
        is_nearer = targets - self.before[earlier] < self.before[after] - targets
        found = np.unique(np.where(is_nearer, earlier, after))
        return [int(index) for index in found if 0 < self.before[index] < self.total]

    def bytes_read_twice(self, cuts: Sequence[int]) -> float:
        """Estimate the bytes of the row groups that have rows on both sides of a cut, cut by cut."""
        found = 0.0
        for own in self.by_source:
            # The last sample of the source before a cut is of the row group in which the cut falls.
            inside = np.searchsorted(own, cuts) - 1
            found += float(self.row_group_bytes[own[inside[inside >= 0]]].sum())
        return found


@dataclass(slots=True)
class _Drawn:
    """Samples as they are drawn, source by source."""

    keys: list[pa.Table] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    #: Cost of the rows from each to the next one of its source, in bytes.
    weights: list[float] = field(default_factory=list)
    row_group_bytes: list[float] = field(default_factory=list)


def _sample(layout: TableLayout, sources: Sequence[PartSource], wanted: int) -> _Samples:
    drawn = _Drawn()
    size = _size_of(layout, sources)
    stride = max(1, -(-size.row_groups // SAMPLES_MAX))
    per_row_group = max(1, -(-SAMPLES_PER_RANGE * wanted // max(1, size.row_groups)))
    ranks: Callable[[pa.Table], Codes] | None = None
    for number, source in enumerate(sources):
        with _Keys(layout, source) as keys:
            _draw(drawn, keys, number, size=size, stride=stride, per_row_group=per_row_group)
            ranks = keys.ranks
    by_key = np.zeros(0, np.int64) if ranks is None or not drawn.keys else ranks(pa.concat_tables(drawn.keys))
    numbers, rows = np.array(drawn.sources, np.int64), np.array(drawn.rows, np.int64)
    order = np.lexsort((rows, numbers, by_key))
    ordered = numbers[order]
    by_source = [np.flatnonzero(ordered == number) for number in np.unique(ordered)]
    return _Samples(
        sources=ordered,
        rows=rows[order],
        row_group_bytes=np.array(drawn.row_group_bytes)[order],
        before=_bytes_before(by_source, np.array(drawn.weights)[order]),
        by_source=by_source,
        total=size.bytes,
    )


def _draw(drawn: _Drawn, keys: _Keys, number: int, *, size: _Size, stride: int, per_row_group: int) -> None:
    """Draw the samples of one source: of every so many row groups the first key, or several where these are few."""
    for row_group in range(0, len(keys.row_group_bytes), stride):
        start, end = keys.starts[row_group], keys.starts[row_group + 1]
        last = min(row_group + stride, len(keys.row_group_bytes))
        # Rows cost time whatever their bytes, as those of one key, of which files have few.
        cost = (sum(keys.row_group_bytes[row_group:last]) + (keys.starts[last] - start) * size.row_bytes) / 2
        count = min(per_row_group, end - start) if stride == 1 else 1
        offsets = [(end - start) * index // count for index in range(count)]
        drawn.keys.append(keys.first(row_group) if count == 1 else keys.row_group(row_group).take(pa.array(offsets)))
        drawn.sources += [number] * count
        drawn.rows += [start + offset for offset in offsets]
        drawn.weights += [cost / count] * count
        drawn.row_group_bytes += [float(keys.row_group_bytes[row_group])] * count


def _bytes_before(by_source: Sequence[Codes], weights: Floats) -> Floats:
    """Estimate what lies before each sample, in bytes: half of what follows a sample counts from there on, the other
    half from the next sample of the same source on.
    """
    halves = weights / 2
    more = halves.copy()
    own_rest = np.zeros(len(weights))
    for own in by_source:
        more[own[1:]] += halves[own[:-1]]
        own_rest[own[1:]] = halves[own[:-1]]
    # A cut is before the sample's own row, and after all that its source has before that.
    found: Floats = np.maximum.accumulate(np.cumsum(more) - more + own_rest)
    return found


@dataclass(frozen=True, slots=True)
class _Size:
    """Size of all sources together."""

    row_groups: int
    bytes: int
    row_bytes: float


def _size_of(layout: TableLayout, sources: Sequence[PartSource]) -> _Size:
    row_groups = size = rows = 0
    for source in sources:
        with open_part(layout.folder, source.file) as parquet:
            metadata: pq.FileMetaData = parquet.metadata
            row_groups += int(metadata.num_row_groups)
            rows += int(metadata.num_rows)
            size += sum(bytes_of_row_group(metadata.row_group(number)) for number in range(metadata.num_row_groups))
    return _Size(row_groups, size, size / max(1, rows))
