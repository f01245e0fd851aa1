"""Merging sorted parts into one: k-way, in blocks, with bounded memory.

Covers: the merge of parts of one partition with all that changed them, leaving out rows that are deleted or have
expired, or of one of its key ranges. Does not cover: choosing what to merge (maintenance), where a merge is cut
(key_ranges.py), when a row expires (model/ttl.py), segments (flush.py).
Always holds: the result is the stable sort of the parts' present rows laid end to end in the given order, without those
that have expired; memory is bounded by parts times block, plus one row group. Without a sort key the parts are laid end
to end.

How: of each part a block is in hand. The *watermark* is the smallest last key of those blocks that are not the last of
their part; what lies at or below it can not be undercut by rows still on disk. So those rows leave in order, and parts
that run short are read on. Among equal keys the earlier part goes first: parts after the watermark's own give only
what is below it.

Columns with few distinct values stay dictionaries from file to file: their values are never spelled out, and columns
without a dictionary need no lookup in one. That, and numbers instead of keys (values/order.py), is where the speed
is from. A part without changes costs nothing for them: its rows are numbered as they come, for the map of the result.

Tests: tests/property/test_merge_content.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tilth.model.delta import PartSource
from tilth.model.part import WrittenPart
from tilth.model.table import Schema
from tilth.model.types import Kind, Simple
from tilth.storage.deltas.changes import load_changes
from tilth.storage.errors import BadColumnError, PartFileCorruptError
from tilth.storage.merge.columns import columns_in_file, default_of
from tilth.storage.merge.key_ranges import KeyRange, bytes_of_row_group, spans_of
from tilth.storage.parts.key_filter import write_filter
from tilth.storage.parts.part_files import NewPart, PartWriter, damaged_error, open_part
from tilth.storage.parts.rowmap import RowMapWriter, Rows, SourceNumbers
from tilth.storage.store.paths import TableLayout, file_name
from tilth.storage.values.arrow import arrow_schema, shape
from tilth.storage.values.order import Codes, is_sorted, ranks_of, stable_order
from tilth.storage.values.unfilterable import NOTHING, unfilterable_in_file

#: Rows that are read of a part at a time; fewer where they are wide or the parts are many.
BLOCK_ROWS = 32 * 1024
BLOCK_ROWS_MIN = 1024
#: A block that holds more by estimate may have fewer rows than that.
BLOCK_BYTES_MIN = 256 << 10
#: Limit of the estimated memory of all open blocks together.
WINDOW_BYTES = 64 << 20
#: A string column is read as dictionaries if its values take no more than this in the files, before compression.
DICTIONARY_VALUE_BYTES_MAX = 2.0
_VARIABLE_BYTES = 4
#: Types of the columns by which rows can expire; the first counts in days.
_TIMES = (Simple(Kind.DATE), Simple(Kind.TIMESTAMP), Simple(Kind.TIMESTAMP_NTZ))


class MergeResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a merge."""

    #: None if no row was left.
    written: WrittenPart | None
    #: Rows in the files, those of the range if there is one.
    rows_in: int
    #: Bytes of the parts and of their deltas; with a range, of the row groups that have rows of it, and of the deltas
    #: of their parts.
    bytes_in: int
    #: Left out because their time had passed.
    rows_expired: int = 0
    #: Left out because they were deleted.
    rows_deleted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """Rows that a merge leaves out: those whose column is below the bound; a null never expires."""

    #: A column of dates or times.
    column: str
    #: Days since 1970 for dates, microseconds for times.
    below: int


def merge_parts(
    new: NewPart,
    sources: Sequence[PartSource],
    *,
    task: int,
    attempt: int,
    expired: Expiry | None = None,
    within: KeyRange | None = None,
    block_rows: int = BLOCK_ROWS,
) -> MergeResult:
    """Merge parts of one partition, none of them a segment, into one new part, the rows of equal keys in their order.

    Deleted rows are left out, new values are written; with `expired` more rows are left out, with `within` all that are
    not in the range. The part has its row map and its key filter. Raises PartFileNotFoundError and PartFileCorruptError
    naming the file, those of deltas likewise.
    """
    layout = new.layout
    assert not any(source.is_segment for source in sources)
    dictionaries = _dictionaries(layout, sources)
    readers = _readers(layout, sources, dictionaries, within)
    is_past = None if expired is None else _past(layout.schema, expired)
    rows_expired = 0
    block = min(block_rows, _block_rows(layout, readers))
    name = file_name(txn=new.txn, task=task, attempt=attempt, n=0)
    unfilterable = reduce(or_, (reader.unfilterable for reader in readers), NOTHING)
    try:
        with (
            PartWriter(
                layout,
                name=name,
                partition=new.partition,
                values=new.values,
                unfilterable=unfilterable,
                sources=sources,
                pieces=1 if within is None else within.of,
            ) as writer,
            RowMapWriter(layout, name) as row_map,
        ):
            for piece in _merge_sources(layout, readers, block):
                if is_past is not None:
                    past = is_past(piece.table)
                    count = pc.sum(past).as_py() or 0
                    rows_expired += count
                    piece = piece.without(past) if count else piece
                if piece.table.num_rows:
                    writer.write(piece.table)
                    row_map.write(piece.sources, piece.rows)
            row_map.close()
            written = writer.close()
        if written is not None:
            write_filter(layout, written.file)
    finally:
        for reader in readers:
            reader.close()
    rows_in = sum(reader.rows for reader in readers)
    rows_deleted = sum(reader.rows_deleted for reader in readers)
    rows_out = 0 if written is None else written.rows
    assert rows_out + rows_expired + rows_deleted == rows_in, (rows_out, rows_expired, rows_deleted, rows_in)
    return MergeResult(
        written=written,
        rows_in=rows_in,
        bytes_in=sum(reader.bytes for reader in readers),
        rows_expired=rows_expired,
        rows_deleted=rows_deleted,
    )


def _readers(
    layout: TableLayout, sources: Sequence[PartSource], dictionaries: Sequence[str], within: KeyRange | None
) -> list[_Source]:
    """Open the sources, those without rows in the range left out."""
    if within is None:
        return [_Source(layout, number, source, dictionaries) for number, source in enumerate(sources)]
    spans = spans_of(layout, sources, within)
    return [
        _Source(layout, number, source, dictionaries, span)
        for number, (source, span) in enumerate(zip(sources, spans, strict=True))
        if span
    ]


def _past(schema: Schema, expired: Expiry) -> Callable[[pa.Table], pa.ChunkedArray]:
    column = schema.find(expired.column)
    if column is None or column.type not in _TIMES:
        raise BadColumnError("rows cannot expire by this column", column=expired.column)
    name, number = column.name, pa.int32() if column.type == _TIMES[0] else pa.int64()

    def is_past(rows: pa.Table) -> pa.ChunkedArray:
        numbers = pc.cast(pc.cast(rows.column(name), number), pa.int64())
        return pc.fill_null(pc.less(numbers, expired.below), False)

    return is_past


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of the result, and where each came from."""

    table: pa.Table
    #: Number of the source of each row.
    sources: SourceNumbers
    rows: Rows

    def without(self, mask: pa.ChunkedArray) -> _Piece:
        kept = pc.invert(mask)
        chosen = kept.to_numpy()
        return _Piece(self.table.filter(kept), self.sources[chosen], self.rows[chosen])


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows of one source, and their indexes in its file."""

    table: pa.Table
    rows: Rows

    def after(self, count: int) -> _Block | None:
        return None if count == len(self.rows) else _Block(self.table.slice(count), self.rows[count:])

    def with_more(self, more: _Block) -> _Block:
        return _Block(pa.concat_tables([self.table, more.table]), np.concatenate([self.rows, more.rows]))


class _Source:
    """One part, or a stretch of its rows, read block by block in the table's present shape, without its deleted
    rows.
    """

    def __init__(
        self,
        layout: TableLayout,
        number: int,
        source: PartSource,
        dictionaries: Sequence[str],
        span: range | None = None,
    ) -> None:
        """`span`: the rows that are read; None: all."""
        self.number = number
        self._folder = layout.folder
        self._file = source.file
        self._schema = layout.schema
        self._stored = source.schema
        self._changes = load_changes(layout.folder, source) if source.deltas else None
        self._parquet = open_part(layout.folder, source.file, dictionaries=dictionaries)
        self._wanted = _wanted(layout.schema, dictionaries)
        self._columns = columns_in_file(layout.schema, self._parquet.schema_arrow)
        self._defaults = [
            default_of(column) if name is None else None
            for name, column in zip(self._columns, layout.schema.columns, strict=True)
        ]
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self.metadata: pq.FileMetaData = self._parquet.metadata
        self.unfilterable = unfilterable_in_file(layout.schema, source, self.metadata)
        self._span = range(int(self.metadata.num_rows)) if span is None else span
        self._row_groups, self._next_row = self._row_groups_of_span()
        self.rows = len(self._span)
        self.rows_deleted = 0
        self.bytes = source.bytes if span is None else self._bytes_of_span(source)

    @property
    def is_at_end(self) -> bool:
        return self._next_row >= self._span.stop

    def start(self, block_rows: int) -> None:
        names = [name for name in self._columns if name is not None]
        self._batches = self._parquet.iter_batches(
            batch_size=block_rows, row_groups=self._row_groups, columns=names, use_threads=False
        )

    def next_block(self) -> _Block | None:
        """Return the next rows that are left; None where the end comes before any."""
        while not self.is_at_end:
            first, batch = self._next_batch()
            if not batch.num_rows:
                continue
            rows = np.arange(first, first + batch.num_rows, dtype=np.uint32)
            if self._changes is None:
                return _Block(self._shape_block(batch), rows)
            table = pa.Table.from_batches([batch])
            if self._changes.has_updates:
                table = self._changes.apply(table, first, self._stored)
            kept = self._changes.keep(first, batch.num_rows)
            if kept is not None:
                table, rows = table.filter(pa.array(kept)), rows[kept]
                self.rows_deleted += batch.num_rows - len(rows)
            if len(rows):
                return _Block(self._shape_block(table), rows)
        return None

    def _row_groups_of_span(self) -> tuple[list[int], int]:
        """Return the row groups that have rows of the span, and the index of their first row."""
        row_groups: list[int] = []
        first = start = 0
        for number in range(self.metadata.num_row_groups):
            end = start + int(self.metadata.row_group(number).num_rows)
            if start < self._span.stop and end > self._span.start:
                first = first if row_groups else start
                row_groups.append(number)
            start = end
        return row_groups, first

    def _bytes_of_span(self, source: PartSource) -> int:
        read = sum(bytes_of_row_group(self.metadata.row_group(number)) for number in self._row_groups)
        return read + sum(delta.bytes for delta in source.deltas)

    def _next_batch(self) -> tuple[int, pa.RecordBatch]:
        """Return the next rows of the span, perhaps none, and the index of the first of them."""
        first = self._next_row
        try:
            batch = next(self._batches)
        except StopIteration:
            raise PartFileCorruptError(
                file=f"{self._folder}/{self._file.name}", rows=first, expected_rows=self._span.stop
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise damaged_error(self._folder, self._file, error) from error
        self._next_row += batch.num_rows
        start = max(0, self._span.start - first)
        end = min(batch.num_rows, self._span.stop - first)
        return first + start, batch.slice(start, max(0, end - start))

    def unsorted_error(self) -> PartFileCorruptError:
        return PartFileCorruptError("a part file is not sorted", file=f"{self._folder}/{self._file.name}")

    def close(self) -> None:
        self._batches = iter(())
        self._parquet.close()

    def _shape_block(self, batch: pa.RecordBatch | pa.Table) -> pa.Table:
        arrays = []
        for name, default in zip(self._columns, self._defaults, strict=True):
            arrays.append(pa.repeat(default, batch.num_rows) if name is None else batch.column(name))
        if all(array.type == field.type for array, field in zip(arrays, self._wanted, strict=True)):
            return pa.table(arrays, schema=self._wanted)
        # Written under an earlier type of a column; types only ever widen.
        return shape(pa.table(arrays, names=self._schema.names), self._schema).cast(self._wanted)


class _Window:
    """The blocks in hand, in the order of the parts."""

    def __init__(self, layout: TableLayout, sources: Sequence[_Source], block_rows: int) -> None:
        self._sources = [source for source in sources if source.rows]
        self._blocks: list[_Block | None] = [None] * len(self._sources)
        self._block_rows = block_rows
        self._keys = list(map(_position_in(layout.schema), layout.order_by))
        for source in self._sources:
            source.start(block_rows)

    def fill(self) -> bool:
        """Read on where less than half a block is left; False when no row is left anywhere."""
        for number, source in enumerate(self._sources):
            block = self._blocks[number]
            if not source.is_at_end and (block is None or len(block.rows) < self._block_rows // 2):
                more = source.next_block()
                if more is not None:
                    self._blocks[number] = more if block is None else block.with_more(more)
        return any(block is not None for block in self._blocks)

    def pop(self) -> _Piece:
        """Remove the rows up to the watermark from the window and return them, in order."""
        live = [number for number, block in enumerate(self._blocks) if block is not None]
        blocks = [block for block in self._blocks if block is not None]
        table = pa.concat_tables([block.table for block in blocks]).unify_dictionaries().combine_chunks()
        ranks = ranks_of([table.column(key) for key in self._keys], table.num_rows)
        bounds = np.cumsum([0, *(len(block.rows) for block in blocks)]).tolist()
        stretches = [ranks[start:end] for start, end in pairwise(bounds)]
        for number, stretch in zip(live, stretches, strict=True):
            if not is_sorted(stretch):
                raise self._sources[number].unsorted_error()
        cuts = self._cuts(live, stretches)
        indices = np.concatenate([np.arange(start, start + cut) for start, cut in zip(bounds, cuts, strict=False)])
        order = stable_order(ranks[indices])
        rows = np.concatenate([block.rows[:cut] for block, cut in zip(blocks, cuts, strict=True)])
        numbers = np.repeat(np.array([self._sources[number].number for number in live], np.uint16), cuts)
        for number, block, cut in zip(live, blocks, cuts, strict=True):
            self._blocks[number] = block.after(cut)
        # In bounds by construction; not to check that saves a quarter.
        numbers, rows = numbers.take(order, mode="clip"), rows.take(order, mode="clip")
        return _Piece(table.take(pa.array(indices[order])), numbers, rows)

    def _cuts(self, live: Sequence[int], stretches: Sequence[Codes]) -> list[int]:
        """Count the rows of each block that lie at or below the watermark."""
        lasts = [
            (int(stretch[-1]), index)
            for index, (number, stretch) in enumerate(zip(live, stretches, strict=True))
            if not self._sources[number].is_at_end
        ]
        if not lasts:
            return [len(stretch) for stretch in stretches]
        watermark, owner = min(lasts)
        return [
            int(np.searchsorted(stretch, watermark, side="right" if index <= owner else "left"))
            for index, stretch in enumerate(stretches)
        ]


def _merge_sources(layout: TableLayout, sources: Sequence[_Source], block_rows: int) -> Iterator[_Piece]:
    if not layout.order_by:
        yield from _laid_end_to_end(sources, block_rows)
        return
    window = _Window(layout, sources, block_rows)
    while window.fill():
        yield window.pop()


def _laid_end_to_end(sources: Sequence[_Source], block_rows: int) -> Iterator[_Piece]:
    for source in sources:
        source.start(block_rows)
        while (block := source.next_block()) is not None:
            yield _Piece(block.table, np.full(len(block.rows), source.number, np.uint16), block.rows)


def _dictionaries(layout: TableLayout, sources: Sequence[PartSource]) -> list[str]:
    """The string columns that every file keeps as a small dictionary, and that have no new values beside the files."""
    stored: dict[str, int] = {}
    values: dict[str, int] = {}
    changed = {identity for source in sources for delta in source.deltas for identity in delta.columns}
    spelled = {column.name for column in layout.schema.columns if column.id in changed}
    for source in sources:
        with open_part(layout.folder, source.file) as parquet:
            metadata = parquet.metadata
            for row_group in range(metadata.num_row_groups):
                for index in range(metadata.num_columns):
                    chunk = metadata.row_group(row_group).column(index)
                    path = chunk.path_in_schema
                    stored[path] = stored.get(path, 0) + chunk.total_uncompressed_size
                    values[path] = values.get(path, 0) + chunk.num_values
                    if not chunk.has_dictionary_page:
                        spelled.add(path)
    return [
        column.name
        for column, field in zip(layout.schema.columns, arrow_schema(layout.schema), strict=True)
        if (pa.types.is_string(field.type) or pa.types.is_binary(field.type))
        and column.name in stored
        and column.name not in spelled
        and stored[column.name] <= DICTIONARY_VALUE_BYTES_MAX * values[column.name]
    ]


def _block_rows(layout: TableLayout, sources: Sequence[_Source]) -> int:
    rows = max(1, sum(source.rows for source in sources))
    stored = sum(
        source.metadata.row_group(row_group).total_byte_size
        for source in sources
        for row_group in range(source.metadata.num_row_groups)
    )
    in_memory = sum(_width(field.type) for field in arrow_schema(layout.schema))
    row_bytes: int = max(in_memory, stored // rows, 1)
    return block_rows_for(row_bytes, len(sources))


def block_rows_for(row_bytes: int, parts: int) -> int:
    fewest = min(BLOCK_ROWS_MIN, max(1, BLOCK_BYTES_MIN // row_bytes))
    return max(fewest, WINDOW_BYTES // (row_bytes * max(1, parts)))


def _width(kind: pa.DataType) -> int:
    try:
        width: int = kind.bit_width // 8
    except ValueError:
        return _VARIABLE_BYTES
    return max(1, width)


def _wanted(schema: Schema, dictionaries: Sequence[str]) -> pa.Schema:
    """Return the table's schema with some columns as dictionaries."""
    return pa.schema(
        [
            pa.field(field.name, pa.dictionary(pa.int32(), field.type) if field.name in dictionaries else field.type)
            for field in arrow_schema(schema)
        ]
    )


def _position_in(schema: Schema) -> Callable[[str], int]:
    lowered = [name.lower() for name in schema.names]
    return lambda name: lowered.index(name.lower())
