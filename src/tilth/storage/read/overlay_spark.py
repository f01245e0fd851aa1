"""Reads of a snapshot in Python by Spark's tasks: parts with new values, row segments, the rows that are deleted.

Covers: the functions that are shipped to executors, and the frames of what they give. Does not cover: which parts are
read so (scan_paths.py), the native scan (spark.py).
Always holds: a task gets only what it reads, as bytes, and hands on one block of rows at a time; several small files
share a task; an error of a file is a letter in the mailbox, from which the driver has its type and facts. See also:
deltas/sources.py, masks.py.

Tests: tests/integration/storage/test_read_scan_paths.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tilth.base.errors import TilthError
from tilth.base.mailbox import Mailbox
from tilth.model.answer import pack
from tilth.model.delta import PartSource
from tilth.model.table import Schema
from tilth.storage.deltas.deltas import read_deletes
from tilth.storage.deltas.sources import iter_source
from tilth.storage.merge.rewrite import ordered_source
from tilth.storage.read.masks import BLOCK_DDL, blocks
from tilth.storage.read.scan_paths import Masked, read_columns, split_by_cost
from tilth.storage.store.paths import TableLayout
from tilth.storage.store.root import Folder
from tilth.storage.values.arrow import arrow_schema, nullable

#: Location of a row: the name of its data file, and its index there, deleted rows counted.
FILE_COLUMN, ROW_COLUMN = "__file", "__row"
#: Spark's own name for the tasks of a scan; the warehouse sets it by the executors of its cluster, users may.
_SCAN_TASKS = "spark.sql.leafNodeDefaultParallelism"
#: Rows of a file that a task holds.
BLOCK_ROWS = 128 * 1024
_LOCATION = pa.schema([pa.field(FILE_COLUMN, pa.string()), pa.field(ROW_COLUMN, pa.int64())])
T = TypeVar("T", Masked, PartSource)


def live_rows(
    session: SparkSession,
    *,
    folder: Folder,
    sources: Sequence[PartSource],
    columns: Schema,
    is_located: bool,
    mailbox: Mailbox | None = None,
) -> DataFrame:
    """The rows that the sources have now, in these of the stored columns; located: and where each is.

    The sources' own schemas lack some of the columns at most. A column that a source lacks is NULL.
    """
    schema = spark_schema(columns, is_located=is_located)
    tasks = _chunks(session, sources, [source.bytes for source in sources])
    reader = _RowReader(folder=folder, tasks=tasks, columns=columns, is_located=is_located, mailbox=mailbox)
    return _in_tasks(session, len(tasks)).mapInArrow(reader, schema)


def ordered_rows(
    session: SparkSession,
    *,
    layout: TableLayout,
    sources: Sequence[PartSource],
    stored: Schema,
    file_column: str,
    row_column: str,
    mailbox: Mailbox | None = None,
) -> DataFrame:
    """The rows that the sources have now, in the stored columns and in the order of the layout's sort key: a Spark
    partition for each source, where a row is in the columns of these names behind the others.
    """
    location = [StructField(file_column, StringType()), StructField(row_column, LongType())]
    schema = StructType([*spark_schema(stored).fields, *location])
    tasks = tuple(msgspec.msgpack.encode(source) for source in sources)
    reader = _OrderedReader(layout=layout, tasks=tasks, file_column=file_column, row_column=row_column, mailbox=mailbox)
    return _in_tasks(session, len(tasks)).mapInArrow(reader, schema)


def mask_blocks(
    session: SparkSession, *, folder: Folder, parts: Sequence[Masked], mailbox: Mailbox | None = None
) -> DataFrame:
    """The blocks of the parts' deleted rows."""
    tasks = _chunks(session, parts, [part.bytes for part in parts])
    reader = _MaskReader(folder=folder, tasks=tasks, mailbox=mailbox)
    return _in_tasks(session, len(tasks)).mapInArrow(reader, BLOCK_DDL)


def part_blocks(folder: Folder, part: Masked) -> list[pa.RecordBatch]:
    """Read the deleted rows of a part: its blocks, as one batch or none. Raises what reading a delta raises."""
    deleted = [read_deletes(folder, delta, part.file) for delta in part.deltas]
    return [blocks(part.first_block, deleted)] if any(len(rows) for rows in deleted) else []


def spark_schema(schema: Schema, *, is_located: bool = False) -> StructType:
    """The columns as of any files: nullable, for a column may be younger than a file."""
    # Any: its result is declared as any type.
    declared: Any = StructType.fromDDL(schema.spark_ddl)
    fields = [StructField(field.name, field.dataType) for field in declared.fields]
    if is_located:
        fields += [StructField(FILE_COLUMN, StringType()), StructField(ROW_COLUMN, LongType())]
    return StructType(fields)


def _chunks(session: SparkSession, items: Sequence[T], costs: Sequence[int]) -> tuple[bytes, ...]:
    """Share the items out to tasks and encode each task's items."""
    chunks = split_by_cost(costs, tasks=_scan_tasks(session))
    return tuple(msgspec.msgpack.encode(items[chunk.start : chunk.stop]) for chunk in chunks)


def _scan_tasks(session: SparkSession) -> int:
    """Return how many tasks share a scan: by Spark's setting, where one is there, else by its cores."""
    given = session.conf.get(_SCAN_TASKS, None)
    return max(1, int(given or session.sparkContext.defaultParallelism))


def _in_tasks(session: SparkSession, count: int) -> DataFrame:
    """Each number below the count in a task of its own."""
    return session.range(0, count, 1, count)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowReader:
    """Runs in Spark's tasks: numbers of tasks in, rows of their sources out."""

    folder: Folder
    #: Lists of PartSource.
    tasks: tuple[bytes, ...]
    columns: Schema
    is_located: bool
    mailbox: Mailbox | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _read(batches, self._of, self.mailbox)

    def _of(self, number: int) -> Iterator[pa.RecordBatch]:
        for source in msgspec.msgpack.decode(self.tasks[number], type=list[PartSource]):
            yield from self._rows_of(source)

    def _rows_of(self, source: PartSource) -> Iterator[pa.RecordBatch]:
        wanted = arrow_schema(nullable(self.columns), field_ids=False)
        stored = {column.name for column in source.schema.columns}
        names = [name for name in wanted.names if name in stored]
        # Rows are counted by any column.
        read = names or list(read_columns(source.schema, ()).names)
        for table, rows in iter_source(self.folder, source, columns=read, block_rows=BLOCK_ROWS):
            if not table.num_rows:
                continue
            arrays = [
                table.column(field.name) if field.name in names else pa.nulls(table.num_rows, field.type)
                for field in wanted
            ]
            schema = wanted
            if self.is_located:
                arrays += [pa.repeat(pa.scalar(source.file.name), table.num_rows), pa.array(rows)]
                schema = pa.schema([*wanted, *_LOCATION])
            yield from pa.table(arrays, schema=schema).combine_chunks().to_batches()


@dataclass(frozen=True, slots=True, kw_only=True)
class _OrderedReader:
    """Runs in Spark's tasks: the number of a source in, its rows out."""

    layout: TableLayout
    #: A PartSource each.
    tasks: tuple[bytes, ...]
    file_column: str
    row_column: str
    mailbox: Mailbox | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _read(batches, self._of, self.mailbox)

    def _of(self, number: int) -> Iterator[pa.RecordBatch]:
        source = msgspec.msgpack.decode(self.tasks[number], type=PartSource)
        for table, rows in ordered_source(self.layout, source):
            table = table.append_column(self.file_column, pa.repeat(pa.scalar(source.file.name), len(rows)))
            yield from table.append_column(self.row_column, pa.array(rows)).combine_chunks().to_batches()


@dataclass(frozen=True, slots=True, kw_only=True)
class _MaskReader:
    """Runs in Spark's tasks: numbers of tasks in, blocks of deleted rows out."""

    folder: Folder
    #: Lists of Masked.
    tasks: tuple[bytes, ...]
    mailbox: Mailbox | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _read(batches, self._of, self.mailbox)

    def _of(self, number: int) -> Iterator[pa.RecordBatch]:
        for part in msgspec.msgpack.decode(self.tasks[number], type=list[Masked]):
            yield from part_blocks(self.folder, part)


def _read(
    batches: Iterator[pa.RecordBatch], of: Callable[[int], Iterator[pa.RecordBatch]], mailbox: Mailbox | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `of` for each number in the batches; an error is raised as a letter of the mailbox."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            try:
                yield from of(number)
            except TilthError as error:
                letter = None if mailbox is None else mailbox.letter(pack(error))
                if letter is None:
                    # Spark's message is all there is.
                    raise
                raise letter from error
