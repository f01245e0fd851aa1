"""Row segments: Arrow IPC files of rows in the order in which they came, written once.

Covers: writing rows as segments, reading a segment. Does not cover: sorting them into parts (merge/flush.py), what
changed in them since (deltas/changes.py).
Always holds: a file is complete and on the disk before its WrittenPart exists; it has rows of one partition; size and
checksum of the whole file are verified before any of it is read.

Tests: tests/integration/storage/test_segment_files.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.model.part import Bound, DataFile, WrittenPart
from tilth.model.table import OP_COLUMN, OP_UPSERT, Column, Schema
from tilth.storage.errors import BadColumnError, UniqueKeyNullError
from tilth.storage.parts.notes import new_note
from tilth.storage.parts.part_files import damaged_error, exact, ranged_columns
from tilth.storage.store.files.files import FileFinisher, make_folder, new_file, read_verified
from tilth.storage.store.paths import SEGMENT_EXTENSION, TableLayout, file_name
from tilth.storage.store.protocol import NewFile
from tilth.storage.store.root import Folder
from tilth.storage.values.arrow import arrow_schema, conform, nullable
from tilth.storage.values.bounds import range_of
from tilth.storage.values.partition import partition_ids

#: Size of a record batch before compression; a reader decodes at least one batch.
BATCH_BYTES_MAX = 16 << 20
#: Size of the write buffer: the small buffers of a wide row become one write.
_WRITE_BYTES = 1 << 20


def write_segments(
    layout: TableLayout, rows: pa.Table, *, txn: int, task: int, attempt: int, first_n: int = 0
) -> list[WrittenPart]:
    """Write the rows in their order, by partition in the order in which partitions first appear: one segment for each,
    and further ones from `layout.segment_bytes` on.

    The rows are brought into the table's shape first. They may have one more column, `_op`, whose value is 1 in rows
    that only name a key to delete: those may lack values in columns that are NOT NULL. Raises BadColumnError,
    BadPartitionError and UniqueKeyNullError; a part of the files may then be there, under names that follow from the
    arguments.
    """
    table = shape_rows(layout, rows).combine_chunks()
    if not table.num_rows:
        return []
    make_folder(layout.folder, fsync=layout.fsync)
    written = []
    with FileFinisher(layout.folder, fsync=layout.fsync) as endings:
        for number, (partition, values, content, size) in enumerate(_roll(layout, _by_partition(layout, table))):
            name = file_name(txn=txn, task=task, attempt=attempt, n=first_n + number, extension=SEGMENT_EXTENSION)
            ranges = {column: range_of(content.column(column)) for column in ranged_columns(layout)}
            note = new_note(layout, partition=partition, values=values, rows=content.num_rows, ranges=ranges)
            noted = content.replace_schema_metadata(note)
            written.append(
                WrittenPart(
                    partition=partition,
                    values=values,
                    rows=content.num_rows,
                    file=write_ipc(layout.folder, name, noted, _batches(noted, size), end=endings.end),
                    ranges=ranges,
                    is_segment=True,
                )
            )
    return written


def shape_rows(layout: TableLayout, rows: pa.Table, *, is_numbered: bool = False) -> pa.Table:
    """The rows in the table's columns, with `_op` behind them where it was given, as they are written to a segment.

    Raises BadColumnError, and UniqueKeyNullError for a row without its key. `is_numbered`: as in `conform`.
    """
    if not any(_is_op(name, layout.schema) for name in rows.column_names):
        if layout.unique_key:
            # First, for its error is more precise than that a column is NOT NULL.
            _check_key(layout, conform(rows, nullable(layout.schema), is_numbered=is_numbered))
        return conform(rows, layout.schema, is_numbered=is_numbered).replace_schema_metadata()
    table = conform(rows.drop_columns([OP_COLUMN]), nullable(layout.schema), is_numbered=is_numbered)
    _check_key(layout, table)
    op = pc.cast(rows.column(OP_COLUMN), pa.int8())
    if op.null_count:
        raise BadColumnError("nulls in a column that is NOT NULL", column=OP_COLUMN, nulls=op.null_count)
    kept = pc.equal(op, OP_UPSERT)
    for column in layout.schema.columns:
        values = table.column(column.name)
        if not column.nullable and values.null_count:
            _check_present(column, values.filter(kept))
    return table.append_column(pa.field(OP_COLUMN, pa.int8()), op)


def read_segment(
    folder: Folder, file: DataFile, schema: Schema, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """All rows of a segment, deleted ones among them, in its batches.

    `schema` is that of the file; the columns are those named, else all of it. `_op` may be named too: 0 where the
    segment has none. Raises PartFileNotFoundError and PartFileCorruptError naming the file.
    """
    wanted = wanted_schema(schema, columns)
    buffer = read_verified(folder, file)
    try:
        # Field numbers are known only once the file is open.
        names = pa.ipc.open_file(buffer).schema.names
        # None would mean all; rows are counted by any column.
        positions = [names.index(name) for name in wanted.names if name in names] or [0]
        options = pa.ipc.IpcReadOptions(included_fields=positions, use_threads=False)
        reader = pa.ipc.open_file(buffer, options=options)
        for number in range(reader.num_record_batches):
            yield as_wanted(pa.Table.from_batches([reader.get_batch(number)]), wanted)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damaged_error(folder, file, error) from error


def wanted_schema(schema: Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema that a reader of a part's file gets for these columns; None: all of them."""
    stored = arrow_schema(schema, field_ids=False)
    if columns is None:
        return stored
    op = pa.field(OP_COLUMN, pa.int8())
    return pa.schema([op if _is_op(name, schema) else stored.field(name) for name in columns])


def _batches(table: pa.Table, size: int) -> list[pa.RecordBatch]:
    """Return the batches of a table with one chunk a column and so many bytes, which wide ones take long to count."""
    rows = max(1, BATCH_BYTES_MAX * table.num_rows // max(1, size))
    batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=rows)
    return batches


def write_ipc(
    folder: Folder,
    name: str,
    table: pa.Table,
    batches: Collection[pa.RecordBatch],
    *,
    end: Callable[[NewFile], DataFile],
) -> DataFile:
    """Write batches with the table's schema to an Arrow IPC file, which `end` ends."""
    file = new_file(folder, name)
    try:
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        with (
            pa.BufferedOutputStream(pa.PythonFile(file, mode="w"), _WRITE_BYTES) as sink,
            pa.ipc.new_file(sink, table.schema, options=options) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
    except BaseException:
        file.give_up()
        raise
    return end(file)


def _check_key(layout: TableLayout, table: pa.Table) -> None:
    for name in layout.unique_key:
        nulls = table.column(exact(layout, name)).null_count
        if nulls:
            raise UniqueKeyNullError(
                column=name, rows=nulls, hint="give each row a value in each column of the UNIQUE KEY"
            )


def _check_present(column: Column, values: pa.ChunkedArray) -> None:
    if values.null_count:
        raise BadColumnError("nulls in a column that is NOT NULL", column=column.name, nulls=values.null_count)


def _by_partition(layout: TableLayout, table: pa.Table) -> Iterator[tuple[str, tuple[Bound, ...], pa.Table]]:
    found = partition_ids(layout.schema, layout.partition_by, table)
    if len(found.ids) == 1:
        yield found.ids[0], found.values[0], table
        return
    order = np.argsort(found.indices, kind="stable")
    table = table.take(pa.array(order))
    start = 0
    ends = np.cumsum(np.bincount(found.indices, minlength=len(found.ids)))
    for partition, values, end in zip(found.ids, found.values, ends.tolist(), strict=True):
        yield partition, values, table.slice(start, end - start)
        start = end


def _roll(
    layout: TableLayout, partitions: Iterable[tuple[str, tuple[Bound, ...], pa.Table]]
) -> Iterator[tuple[str, tuple[Bound, ...], pa.Table, int]]:
    """Cut the rows of a partition into segments of like size, none above the limit unless one row is; yield these with
    their bytes.
    """
    for partition, values, content in partitions:
        size = content.nbytes
        count = max(1, math.ceil(size / layout.segment_bytes) if layout.segment_bytes else 1)
        rows = math.ceil(content.num_rows / count)
        for start in range(0, content.num_rows, rows):
            yield partition, values, content if count == 1 else content.slice(start, rows), size // count


def _is_op(name: str, schema: Schema) -> bool:
    """True if the name means the operations of rows; a table may have a column of that name."""
    return name == OP_COLUMN and schema.find(name) is None


def as_wanted(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Return the rows in the wanted columns; without an `_op` of their own they have 0 there."""
    arrays = []
    for field in wanted:
        if field.name == OP_COLUMN and OP_COLUMN not in rows.column_names:
            arrays.append(pa.chunked_array([np.zeros(rows.num_rows, np.int8)], pa.int8()))
        else:
            arrays.append(rows.column(field.name))
    return pa.table(arrays, schema=wanted)
