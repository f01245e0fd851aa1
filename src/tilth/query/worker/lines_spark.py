"""Lines of files of users to rows, in Spark's tasks: JSON objects and CSV.

Covers: lines to values by the decoder of messages, lines that cannot be read, lines of names. Does not cover: finding
and writing files (copy_spark.py), what a value is (tilth.formats).
Always holds: a line means what it would mean as a message or as a row of INSERT .. FORMAT; one that cannot be read
touches no other, and is known by its block and its number there. A row ends with its line.

Tests: tests/integration/sql/test_copy_on_spark.py.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from tilth.formats import BadValueError, to_stored
from tilth.ingest.batch import MessageBatch, Texts
from tilth.ingest.messages.decode import Decoder
from tilth.ingest.settings import KafkaConfig
from tilth.model.loaded_file import SkippedRow
from tilth.model.table import OP_COLUMN, UPSERT_WORDS, Column, Schema, TableDef, full_name
from tilth.model.types import Kind, Simple, quoted, spark_name
from tilth.query.errors import UnknownColumnError
from tilth.query.language.values import literal
from tilth.query.snapshots.protocol import FileFormat, LoadFilesTask
from tilth.query.worker.target_spark import default_text
from tilth.storage.read.overlay_spark import spark_schema
from tilth.warehouse import can_count, with_small_rows

#: Column of a row's file: the hash of its name in Spark.
FILE = "__tilth_file"
#: Column of an encoded SkippedRow; NULL: the row can be stored.
BAD = "__tilth_bad"
#: Byte of the file at which the block of a line begins.
_BLOCK = "__tilth_block"
#: Name of a column of a file that is passed over.
_PASSED_OVER = "__tilth_passed_{}"
#: Maximum length of the kept beginning of a line that cannot be read.
RAW_BYTES_MAX = 1024


def lines_frame(lines: DataFrame, task: LoadFilesTask, header: str) -> tuple[DataFrame, list[tuple[str, str]]]:
    """Return the rows in the lines of a frame of Spark's text reader, and their columns, each with that of the table.

    `header`: the line of names, if the files have one. Raises UnknownColumnError and BadValueError.
    """
    table = task.insert.target
    columns = _columns(task, header)
    computed = _computed(columns)
    source, reader = marked_lines(lines), _reader(task, columns)
    fields = [*spark_schema(reader.schema).fields, StructField(FILE, LongType()), StructField(BAD, BinaryType())]
    made = StructType(fields)
    if not task.is_measured and can_count(made):
        source = with_small_rows(source)
    frame = source.mapInArrow(reader, made)
    session = lines.sparkSession
    texts = []
    for column in columns:
        name = quoted(column.name)
        if column in computed:
            default = default_text(session, column.default or "", None)
            texts.append(f"coalesce({name}, CAST(({default}\n) AS {spark_name(column.type)})) AS {name}")
        elif column.id == 0 and column.name == OP_COLUMN:
            texts.append(f"coalesce({name}, '{UPSERT_WORDS[0]}') AS {name}")
        elif table.schema.find(column.name) is not None:
            texts.append(name)
    kept = [column.name for column in columns if column.id or column.name == OP_COLUMN]
    return frame.selectExpr(*texts, quoted(FILE), quoted(BAD)), [(name, name) for name in kept]


def whole_reader(task: LoadFilesTask, header: str) -> LineReader | None:
    """Return the reader that makes whole rows of lines; None where lines lack columns of the table, or Spark must
    compute some. Raises as `lines_frame`.
    """
    columns = _columns(task, header)
    names = {column.name for column in columns if column.id}
    is_whole = len(names) == len(columns) and names == set(task.insert.target.schema.names)
    if not is_whole or _computed(columns) or any(column.expression for column in columns):
        return None
    return _reader(task, columns)


def marked_lines(lines: DataFrame) -> DataFrame:
    """Return the lines of a frame of Spark's text reader as a LineReader takes them: with their files and blocks."""
    metadata = lines.metadataColumn("_metadata")
    return lines.select(
        functions.col("value").cast("binary"),
        functions.xxhash64(metadata.getField("file_path")).alias(FILE),
        metadata.getField("file_block_start").alias(_BLOCK),
    )


def _computed(columns: Sequence[Column]) -> list[Column]:
    """Return the columns whose default Spark computes."""
    return [column for column in columns if column.is_default_computed and column.default is not None]


def _reader(task: LoadFilesTask, columns: Sequence[Column]) -> LineReader:
    # A computed default is filled in by Spark, where the value is NULL, and an expression over columns later.
    computed = _computed(columns)
    given = [
        msgspec.structs.replace(each, nullable=True, default=None) if each in computed or each.expression else each
        for each in columns
    ]
    return LineReader(
        schema=Schema(columns=tuple(given)),
        config=KafkaConfig(
            table=full_name(task.insert.target),
            format="CSV" if task.format is FileFormat.CSV else "JSONEachRow",
            csv_delimiter=task.delimiter,
            skip_unknown=task.skip_unknown,
        ),
        defaults=_defaults(given),
        has_header=task.format is FileFormat.CSV and task.has_header,
    )


def _columns(task: LoadFilesTask, header: str) -> list[Column]:
    """Return the columns of the lines in their order."""
    allowed = {name: _column(task.insert.target, name) for name in task.insert.columns}
    if not (task.format is FileFormat.CSV and task.has_header):
        return list(allowed.values())
    names = next(csv.reader([header], delimiter=task.delimiter), [])
    by_name = {name.lower(): column for name, column in allowed.items()}
    columns: list[Column] = []
    for position, name in enumerate(names):
        column = by_name.get(name.strip().lower())
        if column is None and not task.skip_unknown:
            raise unknown_column(name, allowed)
        if column in columns:
            raise BadValueError("the line of names has a column twice", column=name)
        columns.append(column or Column(id=0, name=_PASSED_OVER.format(position), type=Simple(Kind.STRING)))
    return columns


def unknown_column(name: str, allowed: Iterable[str]) -> UnknownColumnError:
    """Return the error of a column of a file that is none of the table's."""
    hint = f"the columns are: {', '.join(allowed)}; input_format_skip_unknown_fields = 1 passes over it"
    return UnknownColumnError(column=name, hint=hint)


def _column(table: TableDef, name: str) -> Column:
    return table.schema.find(name) or Column(id=0, name=OP_COLUMN, type=Simple(Kind.STRING))


def _defaults(columns: list[Column]) -> dict[str, object]:
    """Return the values of constant defaults as they are stored."""
    found: dict[str, object] = {}
    for column in columns:
        value = literal(column.default) if column.default is not None else None
        if value is not None and value[0] is not None:
            found[column.name] = to_stored(value[0], column.type)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    """Reads lines in a task of Spark; it goes there."""

    schema: Schema
    config: KafkaConfig
    defaults: Mapping[str, object]
    has_header: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(
            self.schema, self.config, columns=[each.name for each in self.schema.columns], defaults=self.defaults
        )
        at, before = (0, -1), 0
        for batch in batches:
            found: list[pa.RecordBatch] = []
            for first, end in _runs(batch):
                here = (batch.column(1)[first].as_py(), batch.column(2)[first].as_py())
                before = before if here == at else 0
                at = here
                lines = batch.column(0).slice(first, end - first).to_pylist()
                found.append(self._rows(decoder, lines, file=here[0], block=here[1], before=before))
                before += len(lines)
            # Files may be as small as a line each.
            yield from pa.Table.from_batches(found).combine_chunks().to_batches() if len(found) > 1 else found

    def _rows(self, decoder: Decoder, lines: list[bytes], *, file: int, block: int, before: int) -> pa.RecordBatch:
        """Return the rows of lines of one block, `before` lines behind its beginning."""
        skipped = 1 if self.has_header and not block and not before else 0
        numbers = [number for number, line in enumerate(lines) if line and number >= skipped]
        # A line's offset is its number among the lines that came with it.
        messages = MessageBatch(Texts([lines[number] for number in numbers]), offsets=np.array(numbers, np.int64))
        found = decoder.decode("", 0, messages)
        bad = [
            msgspec.msgpack.encode(
                SkippedRow(
                    line=before + each.offset + 1,
                    block_start=block,
                    reason=each.reason,
                    raw=(each.raw or b"")[:RAW_BYTES_MAX],
                )
            )
            for each in found.broken
        ]
        good, rows = found.rows, found.rows.num_rows
        columns = [pa.concat_arrays([each, pa.nulls(len(bad), each.type)]) if bad else each for each in good.columns]
        marks = pa.concat_arrays([pa.nulls(rows, pa.binary()), pa.array(bad, pa.binary())])
        files = pa.repeat(pa.scalar(file, pa.int64()), rows + len(bad))
        return pa.RecordBatch.from_arrays([*columns, files, marks], names=[*good.schema.names, FILE, BAD])


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Yield first and end of each run of lines of one block."""
    files, blocks = (batch.column(number).to_numpy(zero_copy_only=False) for number in (1, 2))
    changes = np.flatnonzero((np.diff(files) != 0) | (np.diff(blocks) != 0)) + 1
    borders = [0, *changes.tolist(), batch.num_rows]
    yield from ((first, end) for first, end in pairwise(borders) if end > first)
