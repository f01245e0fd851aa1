"""The rows of a part as they are now: those of its file, with all that has changed since.

Covers: reading a part or a segment with its deltas, at once and in blocks; parts of a snapshot as sources. Does not
cover: Spark's way to the same rows (read/spark.py).
Always holds: rows come in the order of the file, each with its index there; what is damaged or missing names the file.

Tests: tests/integration/storage/test_segment_files.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tilth.model.delta import Delta, PartSource, by_file, source_of
from tilth.model.part import Part
from tilth.model.table import OP_COLUMN, TableDef
from tilth.storage.deltas.changes import load_changes
from tilth.storage.deltas.deletes import RowIndexes
from tilth.storage.parts.part_files import damaged_error, open_part, read_part
from tilth.storage.parts.segments import as_wanted, read_segment, wanted_schema
from tilth.storage.store.files.files import corrupt_error
from tilth.storage.store.root import Folder
from tilth.storage.values.shapes import stored_schema


def sources_of(table: TableDef, parts: Iterable[Part], deltas: Iterable[Delta]) -> list[PartSource]:
    """Join the parts with those of the deltas that change them; raises PartShapeUnknownError naming a part."""
    changes = by_file(deltas)
    return [source_of(part, stored_schema(table, part), changes.get(part.file.name, ())) for part in parts]


def read_source(
    folder: Folder, source: PartSource, columns: Sequence[str] | None = None
) -> tuple[pa.Table, RowIndexes]:
    """The live rows of a part in its stored columns, those named or all, with their indexes in the file.

    Name at least one; `_op` may be named too: 0 in all that is no segment of a table with a unique key. Raises
    PartFileNotFoundError, PartFileCorruptError, DeltaFileNotFoundError and DeltaFileCorruptError naming the file.
    """
    wanted = wanted_schema(source.schema, columns)
    changes = load_changes(folder, source, _ids(source, wanted))
    if source.is_segment:
        table = pa.concat_tables(read_segment(folder, source.file, source.schema, columns))
    else:
        table = as_wanted(read_part(folder, source.file, _in_parquet(source, wanted)), wanted)
    _check_rows(folder, source, table.num_rows)
    return changes.live(table, 0, source.schema)


def iter_source(
    folder: Folder, source: PartSource, *, columns: Sequence[str] | None = None, block_rows: int
) -> Iterator[tuple[pa.Table, RowIndexes]]:
    """`read_source` in blocks of at most so many rows of the file, some of them perhaps empty."""
    wanted = wanted_schema(source.schema, columns)
    changes = load_changes(folder, source, _ids(source, wanted))
    first = 0
    for rows in _blocks(folder, source, columns, wanted, block_rows):
        yield changes.live(rows, first, source.schema)
        first += rows.num_rows
    _check_rows(folder, source, first)


def iter_row_groups(
    folder: Folder,
    source: PartSource,
    *,
    columns: Sequence[str],
    rows: range,
    block_rows: int,
    keep: Callable[[pq.RowGroupMetaData, int], bool] | None = None,
) -> Iterator[tuple[pa.Table, RowIndexes]]:
    """`iter_source` for the row groups of a part's Parquet file whose first row is in the range; `keep`: only those
    that it is true for; it gets the number of the first row, too.

    Ranges that cover the part without overlap read each row once.
    """
    wanted = wanted_schema(source.schema, columns)
    changes = load_changes(folder, source, _ids(source, wanted))
    with open_part(folder, source.file) as parquet:
        if parquet.metadata.num_rows != source.rows:
            raise corrupt_error(folder, source.file.name, rows=parquet.metadata.num_rows, expected_rows=source.rows)
        first = 0
        for number in range(parquet.metadata.num_row_groups):
            described = parquet.metadata.row_group(number)
            begin, first = first, first + described.num_rows
            if begin not in rows or (keep is not None and not keep(described, begin)):
                continue
            for batch in _batches(folder, source, parquet, wanted, block_rows, [number]):
                yield changes.live(as_wanted(pa.Table.from_batches([batch]), wanted), begin, source.schema)
                begin += batch.num_rows
            if begin != first:
                raise corrupt_error(folder, source.file.name, row_group=number, rows=begin, expected_rows=first)


def _ids(source: PartSource, wanted: pa.Schema) -> list[int]:
    names = set(wanted.names)
    return [column.id for column in source.schema.columns if column.name in names]


def _in_parquet(source: PartSource, wanted: pa.Schema) -> list[str]:
    """Return the columns to read of a part's file; `_op` is in no part, and rows are counted by any column."""
    names = [name for name in wanted.names if name != OP_COLUMN or source.schema.find(name) is not None]
    return names or [source.schema.columns[0].name]


def _blocks(
    folder: Folder, source: PartSource, columns: Sequence[str] | None, wanted: pa.Schema, block_rows: int
) -> Iterator[pa.Table]:
    if source.is_segment:
        for batch in read_segment(folder, source.file, source.schema, columns):
            for start in range(0, batch.num_rows, block_rows):
                yield batch.slice(start, block_rows)
        return
    with open_part(folder, source.file) as parquet:
        for batch in _batches(folder, source, parquet, wanted, block_rows, None):
            yield as_wanted(pa.Table.from_batches([batch]), wanted)


def _batches(
    folder: Folder,
    source: PartSource,
    parquet: pq.ParquetFile,
    wanted: pa.Schema,
    block_rows: int,
    row_groups: Sequence[int] | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the stored rows of these row groups; None: of all."""
    batches = parquet.iter_batches(
        block_rows, row_groups=row_groups, columns=_in_parquet(source, wanted), use_threads=False
    )
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as error:
            raise damaged_error(folder, source.file, error) from error
        if batch is None:
            return
        yield batch


def _check_rows(folder: Folder, source: PartSource, rows: int) -> None:
    if rows != source.rows:
        raise corrupt_error(folder, source.file.name, rows=rows, expected_rows=source.rows)
