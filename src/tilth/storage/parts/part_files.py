"""Part files: Parquet, sorted, written once.

Covers: writing rows as parts, reading a part, checking a file. Does not cover: merging (merge/merge.py), Spark
(read/spark.py).
Always holds: a file is complete and on the disk before its WrittenPart exists; rows are in the order of the sort key,
nulls first; the footer declares that order, the columns carry field ids, the pages carry checksums.

Tests: tests/property/test_storage_parts.py, tests/integration/storage/test_storage_files.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.structs import replace

from tilth.model.delta import PartSource
from tilth.model.part import Bound, ColumnRange, DataFile, WrittenPart
from tilth.storage.errors import DeltaFileCorruptError, PartFileCorruptError
from tilth.storage.parts.notes import Replaced, new_note
from tilth.storage.store.files.files import (
    FileFinisher,
    call_good_copy,
    check_bytes,
    corrupt_error,
    end_file,
    make_folder,
    new_file,
    open_sized,
)
from tilth.storage.store.paths import TableLayout, file_name
from tilth.storage.store.protocol import NewFile
from tilth.storage.store.root import Folder
from tilth.storage.values.arrow import FIELD_ID, conform
from tilth.storage.values.bounds import join_ranges, range_of
from tilth.storage.values.order import is_sorted, ranks_of, stable_order
from tilth.storage.values.partition import Indices, Partitioned, partition_ids
from tilth.storage.values.unfilterable import (
    NOTHING,
    Unfilterable,
    leaves_of,
    note_of,
    unfilterable_in,
    unfilterable_paths,
)

#: Rows by which it is decided whether a column has few distinct values.
SAMPLE_ROWS = 64 * 1024
#: A column with a larger share of distinct values is stored without a dictionary, which saves one lookup for each
#: value.
DISTINCT_SHARE_MAX = 0.25
#: A dictionary that came in with the rows is cut down to what they use when it has more entries.
DICTIONARY_ENTRIES_MAX = 64 * 1024
#: Page size before compression; a reader decodes at least one page. A merge of many wide files holds a page of each
#: column of each file, so wide tables get smaller pages.
PAGE_BYTES_MAX = 1 << 20
PAGE_BYTES_MIN = 64 << 10
PAGES_BYTES_MAX = 16 << 20


def write_parts(
    layout: TableLayout, rows: pa.Table, *, txn: int, task: int, attempt: int, first_n: int = 0
) -> list[WrittenPart]:
    """Write the rows as sorted parts, one file for each partition, in the order in which partitions first appear.

    The rows are brought into the table's shape first. Raises BadColumnError and BadPartitionError; a part of the files
    may then be there, under names that follow from the arguments.
    """
    table = conform(rows, layout.schema)
    if not table.num_rows:
        return []
    found = partition_ids(layout.schema, layout.partition_by, table)
    order = _order(layout, table, found)
    if order is not None:
        table = table.combine_chunks().take(pa.array(order))
    ends = np.cumsum(np.bincount(found.indices, minlength=len(found.ids)))
    written = []
    start = 0
    with FileFinisher(layout.folder, fsync=layout.fsync) as endings:
        for number, (partition, values, end) in enumerate(zip(found.ids, found.values, ends.tolist(), strict=True)):
            name = file_name(txn=txn, task=task, attempt=attempt, n=first_n + number)
            with PartWriter(layout, name=name, partition=partition, values=values) as writer:
                writer.write(table.slice(start, end - start))
                part = writer.close(endings)
            assert part is not None
            written.append(part)
            start = end
    return written


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPart:
    """The one part that a task makes of others."""

    layout: TableLayout
    partition: str
    #: Values of the partition expression.
    values: tuple[Bound, ...]
    #: Its transaction, after which the file is named.
    txn: int


class PartWriter:
    """Writes one part from sorted batches, holding one row group; a context manager that gives up on an error."""

    def __init__(
        self,
        layout: TableLayout,
        *,
        name: str,
        partition: str,
        values: tuple[Bound, ...],
        unfilterable: Unfilterable = NOTHING,
        sources: Sequence[PartSource] = (),
        pieces: int = 1,
    ) -> None:
        """`unfilterable`: what is known of the values of all rows before they come; `sources`: parts that this
        one replaces, as one of so many `pieces`.
        """
        self._sources = sources
        self._pieces = pieces
        self._layout = layout
        self._expected = unfilterable
        self._found = NOTHING
        #: Columns with a dictionary that could misjudge values.
        self._dictionaries: frozenset[str] = frozenset()
        self._is_filterable = True
        self._name = name
        self._partition = partition
        self._values = values
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._row_group_rows = 0
        self._rows = 0
        self._ranges: dict[str, ColumnRange] = {}
        self._file: NewFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._schema: pa.Schema | None = None

    def write(self, rows: pa.Table) -> None:
        """Append rows that follow those before; their columns are the table's, some of them perhaps as dictionaries."""
        if not rows.num_rows:
            return
        if not self._row_group_rows:
            row_bytes = max(1, rows.nbytes // rows.num_rows)
            self._row_group_rows = max(1, min(self._layout.row_group_rows, self._layout.row_group_bytes // row_bytes))
        self._judge(unfilterable_in(rows))
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        if self._pending_rows >= self._row_group_rows:
            self._flush(keep_rows=self._pending_rows % self._row_group_rows)

    def close(self, endings: FileFinisher | None = None) -> WrittenPart | None:
        """End the file; None, and no file, if no row was written. With `endings` these wait for it."""
        if self._pending_rows:
            self._flush(keep_rows=0)
        if self._writer is None or self._file is None:
            return None
        layout = self._layout
        note = new_note(
            layout,
            partition=self._partition,
            values=self._values,
            rows=self._rows,
            ranges=self._ranges,
            is_filterable=self._is_filterable,
            replaced=Replaced(sources=[source.file.name for source in self._sources], pieces=self._pieces),
        )
        self._writer.add_key_value_metadata(note_of(self._found) | note)
        self._writer.close()
        ended = endings.end(self._file) if endings else end_file(layout.folder, self._file, fsync=layout.fsync)
        file = replace(ended, is_filterable=self._is_filterable)
        self._writer = self._file = None
        return WrittenPart(
            partition=self._partition, values=self._values, rows=self._rows, file=file, ranges=self._ranges
        )

    def abort(self) -> None:
        """Give up; the file's name stays, empty, until its transaction is cleaned. Does nothing after `close`."""
        if self._file is not None:
            self._file.give_up()
        if self._writer is not None:
            # Into the file that takes nothing any more; its error was raised before, and would be raised again.
            with suppress(pa.ArrowException, OSError):
                self._writer.close()
        self._writer = self._file = None
        self._pending.clear()
        self._pending_rows = 0

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abort()

    def _flush(self, *, keep_rows: int) -> None:
        table = pa.concat_tables(self._pending)
        rows = table.num_rows - keep_rows
        self._pending = [table.slice(rows)] if keep_rows else []
        self._pending_rows = keep_rows
        for start in range(0, rows, self._row_group_rows):
            self._write_row_group(_compact(table.slice(start, min(self._row_group_rows, rows - start))))

    def _judge(self, found: Unfilterable) -> None:
        """Note values that Parquet's filters misjudge, before any of their rows is written."""
        self._found |= found
        if self._writer is None:
            self._expected |= found
        elif found.statistics - self._expected.statistics or found.dictionary & self._dictionaries:
            # Too late to leave statistics or dictionaries out.
            self._is_filterable = False

    def _write_row_group(self, row_group: pa.Table) -> None:
        if self._writer is None:
            make_folder(self._layout.folder, fsync=self._layout.fsync)
            self._file = new_file(self._layout.folder, self._name)
            self._schema = _file_schema(self._layout, row_group.schema)
            dictionaries = _with_dictionary(row_group, self._expected)
            known = set(dictionaries)
            self._dictionaries = frozenset(
                leaf.column for leaf in leaves_of(row_group.schema) if leaf.is_unfilterable and leaf.path in known
            )
            self._writer = _parquet_writer(
                self._file,
                self._layout,
                self._schema,
                statistics=_with_statistics(row_group.schema, self._expected),
                dictionaries=dictionaries,
            )
        self._writer.write_table(pa.table(row_group.columns, schema=self._schema), row_group_size=row_group.num_rows)
        for name in ranged_columns(self._layout):
            found = range_of(row_group.column(name))
            if self._rows:
                found = join_ranges(
                    self._ranges[name],
                    found,
                    one_rows=self._rows,
                    other_rows=row_group.num_rows,
                    is_decimal=pa.types.is_decimal(row_group.schema.field(name).type),
                )
            self._ranges[name] = found
        self._rows += row_group.num_rows


def read_part(folder: Folder, file: DataFile, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a part, pages verified; raises PartFileNotFoundError and PartFileCorruptError naming the file."""
    with open_part(folder, file) as parquet:
        try:
            table = parquet.read(columns=None if columns is None else list(columns), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise damaged_error(folder, file, error) from error
    return table.replace_schema_metadata()


def check_file(folder: Folder, file: DataFile, *, is_delta: bool = False) -> None:
    """Read the whole file, of whatever kind; raises PartFileNotFoundError, or PartFileCorruptError where size or
    checksum of no copy are right; of a delta's file DeltaFileNotFoundError and DeltaFileCorruptError.
    """
    call_good_copy(folder, lambda store: check_bytes(store, folder, file, is_delta=is_delta))


def footer_of(folder: Folder, file: DataFile) -> pq.FileMetaData:
    """The Parquet footer; errors as those of `read_part`."""
    with open_part(folder, file) as parquet:
        return parquet.metadata


def footer_rows(folder: Folder, file: DataFile) -> int:
    """Number of rows in the file's footer; errors as those of `read_part`."""
    return int(footer_of(folder, file).num_rows)


def open_part(folder: Folder, file: DataFile, *, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    """The file, open, its size checked; columns named as dictionaries are read without spelling their values out."""
    try:
        return pq.ParquetFile(
            open_sized(folder, file),
            read_dictionary=list(dictionaries) or None,
            pre_buffer=False,
            page_checksum_verification=True,
        )
    except (pa.ArrowException, OSError) as error:
        raise damaged_error(folder, file, error) from error


def damaged_error(
    folder: Folder, file: DataFile, error: Exception, *, is_delta: bool = False
) -> PartFileCorruptError | DeltaFileCorruptError:
    because = (str(error).splitlines() or [""])[0]
    return corrupt_error(folder, file.name, is_delta=is_delta, because=because)


def _order(layout: TableLayout, table: pa.Table, found: Partitioned) -> Indices | None:
    """Return the positions of the rows by partition and then by sort key; None: they are in this order."""
    ranks = ranks_of([table.column(exact(layout, name)) for name in layout.order_by], table.num_rows)
    by_key = None if is_sorted(ranks) else stable_order(ranks)
    if len(found.ids) == 1:
        return by_key
    partitions = found.indices if by_key is None else found.indices[by_key]
    if is_sorted(partitions):
        return by_key
    # NumPy sorts numbers of 16 bits without comparing them.
    small = partitions.astype(np.uint16) if len(found.ids) <= 1 << 16 else partitions
    by_partition = np.argsort(small, kind="stable")
    return by_partition if by_key is None else by_key[by_partition]


def exact(layout: TableLayout, name: str) -> str:
    column = layout.schema.find(name)
    assert column is not None, name
    return column.name


def ranged_columns(layout: TableLayout) -> list[str]:
    """The columns whose ranges are kept of each file."""
    names = [*layout.order_by, *(transform.column for transform in layout.partition_by), *layout.unique_key]
    if layout.ttl_column is not None:
        names.append(layout.ttl_column)
    return list(dict.fromkeys(exact(layout, name) for name in names))


def _compact(row_group: pa.Table) -> pa.Table:
    """Return one chunk a column; dictionaries in one, without entries that are not used if they are many."""
    if not any(pa.types.is_dictionary(field.type) for field in row_group.schema):
        return row_group.combine_chunks()
    row_group = row_group.unify_dictionaries().combine_chunks()
    for position, column in enumerate(row_group.columns):
        if pa.types.is_dictionary(column.type) and len(column.chunk(0).dictionary) > DICTIONARY_ENTRIES_MAX:
            used = pc.dictionary_encode(pc.cast(column, column.type.value_type))
            row_group = row_group.set_column(position, row_group.schema.field(position), used)
    return row_group


def _file_schema(layout: TableLayout, given: pa.Schema) -> pa.Schema:
    """The table's columns, ids and nullability, with what is a dictionary in the given schema."""
    return pa.schema(
        [
            pa.field(column.name, field.type, column.nullable, {FIELD_ID: str(column.id).encode()})
            for column, field in zip(layout.schema.columns, given, strict=True)
        ]
    )


def _parquet_writer(
    file: NewFile, layout: TableLayout, schema: pa.Schema, *, statistics: list[str], dictionaries: list[str]
) -> pq.ParquetWriter:
    order = [(exact(layout, name), "ascending") for name in layout.order_by]
    return pq.ParquetWriter(
        pa.PythonFile(file, mode="w"),
        schema,
        version="2.6",
        compression="zstd",
        compression_level=layout.zstd_level,
        use_dictionary=dictionaries,
        # A leaf without statistics has no column index either.
        write_statistics=statistics,
        write_page_index=True,
        write_page_checksum=True,
        data_page_version="1.0",
        data_page_size=max(PAGE_BYTES_MIN, min(PAGE_BYTES_MAX, PAGES_BYTES_MAX // len(schema))),
        # Spark reads small decimals faster so.
        store_decimal_as_integer=True,
        # Arrow's own schema would make readers of dictionaries out of readers of strings.
        store_schema=False,
        sorting_columns=pq.SortingColumn.from_ordering(schema, order, null_placement="at_start") if order else None,
    )


def _with_statistics(schema: pa.Schema, unfilterable: Unfilterable) -> list[str]:
    """Return the paths of the leaves that get statistics: all but those with unfilterable values."""
    left_out = unfilterable_paths(schema, unfilterable.statistics)
    return [leaf.path for leaf in leaves_of(schema) if leaf.path not in left_out]


def _with_dictionary(row_group: pa.Table, unfilterable: Unfilterable) -> list[str]:
    """Paths of the leaves that get a dictionary: those of columns with few distinct values, and all nested ones, whose
    values it does not misjudge."""
    few = {
        field.name
        for field, column in zip(row_group.schema, row_group.columns, strict=True)
        if pa.types.is_nested(field.type) or pa.types.is_dictionary(field.type) or _has_few_values(column)
    }
    left_out = unfilterable_paths(row_group.schema, unfilterable.dictionary)
    return [
        leaf.path
        for leaf in leaves_of(row_group.schema)
        if leaf.column in few and not pa.types.is_boolean(leaf.type) and leaf.path not in left_out
    ]


def _has_few_values(column: pa.ChunkedArray) -> bool:
    if pa.types.is_boolean(column.type):
        return False
    sample = column.slice(0, SAMPLE_ROWS)
    distinct: int = pc.count_distinct(sample).as_py()
    return distinct <= max(1.0, len(sample) * DISTINCT_SHARE_MAX)
