"""Avro files of users to rows, in Spark's tasks.

Covers: the columns of files, pieces of files for tasks, rows that cannot be stored. Does not cover: which values there
are (avro_arrays.py), bytes (avro_blocks.py), finding and writing files (copy_spark.py).
Always holds: a large file is read by several tasks, small ones share a task; rows are in memory by batches; a row that
cannot be stored, and an error of a file, are rows with a mark, so that they keep their file.

Tests: tests/integration/sql/test_copy_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql import types as spark_types
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from tilth.base.errors import TilthError
from tilth.base.units import MIB
from tilth.model.answer import pack
from tilth.model.loaded_file import SkippedRow
from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple, Struct
from tilth.query.errors import UnreadableFileError
from tilth.query.language.avro_types import read_avro_schema
from tilth.query.worker.avro_arrays import arrays_of, decoded_rows
from tilth.query.worker.avro_blocks import read_blocks, read_header
from tilth.query.worker.lines_spark import BAD, FILE
from tilth.storage import Folder, StoreRoot, arrow_type, open_file

#: Columns of a row's number in its piece of the file, from 0, and of the byte at which the piece begins.
ROW, PIECE_START = "__tilth_row", "__tilth_piece"
#: First byte of a mark that is an error of the whole file.
ERROR_MARK = b"!"
#: Bounds of the bytes that a task reads: its share of all files is between them.
PIECE_BYTES_MIN, PIECE_BYTES_MAX = 4 * MIB, 128 * MIB


class AvroColumn(msgspec.Struct, frozen=True, array_like=True):
    """A column of Avro files."""

    name: str
    type: DataType
    #: `True` if all its values are NULL.
    is_void: bool = False


class AvroPiece(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of a file that one task reads: the blocks behind the markers that begin there."""

    #: Number of the file.
    file: int
    start: int
    end: int


def avro_shape(file: pa.NativeFile) -> str:
    """Return the columns of a file, as `columns_of_shape` reads them. Raises UnreadableFileError."""
    record = read_avro_schema(read_header(file).schema)
    columns = [AvroColumn(name, each.type, is_void=each.decoded in ("null", ["null"])) for name, each in record.fields]
    return msgspec.json.encode(columns).decode()


def columns_of_shape(shape: str) -> list[AvroColumn]:
    return msgspec.json.decode(shape, type=list[AvroColumn])


def cut_files(sizes: Sequence[int], *, tasks: int) -> tuple[tuple[AvroPiece, ...], ...]:
    """Return the pieces of each task: all bytes of all files. `tasks`: how many run at once."""
    bytes_max = max(PIECE_BYTES_MIN, min(PIECE_BYTES_MAX, -(-sum(sizes) // max(1, tasks))))
    found: list[list[AvroPiece]] = [[]]
    filled = 0
    for number, size in enumerate(sizes):
        count = max(1, -(-size // bytes_max))
        for index in range(count):
            piece = AvroPiece(number, size * index // count, size * (index + 1) // count)
            length = piece.end - piece.start
            if found[-1] and filled + length > bytes_max:
                found.append([])
                filled = 0
            found[-1].append(piece)
            filled += length
    return tuple(map(tuple, found))


def avro_frame(session: SparkSession, reader: AvroReader) -> DataFrame:
    """Return the rows of files with the reader's columns, with FILE, BAD, ROW and PIECE_START."""
    columns = reader.columns
    fields = [StructField(f"c{number}", _spark_type(each.type)) for number, each in enumerate(columns)]
    fields += [StructField(FILE, LongType()), StructField(BAD, BinaryType())]
    fields += [StructField(ROW, LongType()), StructField(PIECE_START, LongType())]
    tasks = session.range(0, len(reader.tasks), 1, len(reader.tasks))
    frame = tasks.mapInArrow(reader, StructType(fields))
    named = [
        functions.lit(None).alias(each.name) if each.is_void else functions.col(f"c{number}").alias(each.name)
        for number, each in enumerate(columns)
    ]
    return frame.select(*named, FILE, BAD, ROW, PIECE_START)


def _spark_type(kind: DataType) -> spark_types.DataType:
    """Return the type without a text of it: names of fields are those of a file, and no parser reads them."""
    match kind:
        case Simple(kind=simple):
            return _SPARK_TYPES[simple]
        case Decimal(precision=precision, scale=scale):
            return spark_types.DecimalType(precision, scale)
        case Array(element=element):
            return spark_types.ArrayType(_spark_type(element))
        case Map(key=key, value=value):
            return spark_types.MapType(_spark_type(key), _spark_type(value))
        case Struct(fields=fields):
            return StructType([StructField(each.name, _spark_type(each.type)) for each in fields])
    assert_never(kind)


_SPARK_TYPES: Mapping[Kind, spark_types.DataType] = {
    Kind.BOOLEAN: spark_types.BooleanType(),
    Kind.INT8: spark_types.ByteType(),
    Kind.INT16: spark_types.ShortType(),
    Kind.INT32: spark_types.IntegerType(),
    Kind.INT64: LongType(),
    Kind.FLOAT32: spark_types.FloatType(),
    Kind.FLOAT64: spark_types.DoubleType(),
    Kind.STRING: spark_types.StringType(),
    Kind.BINARY: BinaryType(),
    Kind.DATE: spark_types.DateType(),
    Kind.TIMESTAMP: spark_types.TimestampType(),
    Kind.TIMESTAMP_NTZ: spark_types.TimestampNTZType(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroReader:
    """Reads pieces of files in a task of Spark; it goes there."""

    root: StoreRoot
    paths: tuple[str, ...]
    #: Number of each file in the rows.
    names: tuple[int, ...]
    columns: tuple[AvroColumn, ...]
    tasks: tuple[tuple[AvroPiece, ...], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in self.tasks[number]:
                    yield from self._piece(piece)

    def _piece(self, piece: AvroPiece) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._rows(piece)
        except TilthError as error:
            yield self._error(piece, error)
        except (OSError, pa.ArrowException) as error:
            yield self._error(piece, UnreadableFileError(because=error))

    def _rows(self, piece: AvroPiece) -> Iterator[pa.RecordBatch]:
        folder = Folder(self.root)
        with open_file(folder, self.paths[piece.file]) as file:
            header = read_header(file)
            record = read_avro_schema(header.schema)
            names = [each.name for each in self.columns]
            given = {name: each.type for name, each in record.fields}
            if [given.get(each.name) for each in self.columns] != [each.type for each in self.columns]:
                raise UnreadableFileError("the columns of the file have changed while it was read")
            for rows in decoded_rows(record, read_blocks(file, header, piece.start, piece.end)):
                arrays, problems = arrays_of(record, names, rows.values)
                marks = [
                    msgspec.msgpack.encode(
                        SkippedRow(line=rows.first + row + 1, block_start=piece.start, reason=problems[row])
                    )
                    if row in problems
                    else None
                    for row in range(len(rows.values))
                ]
                yield self._batch(piece, arrays, marks, rows.first)

    def _error(self, piece: AvroPiece, error: TilthError) -> pa.RecordBatch:
        """Return a row that stands for an error of the whole file."""
        name = Folder(self.root).uri(self.paths[piece.file])
        nulls = [pa.nulls(1, arrow_type(each.type)) for each in self.columns]
        return self._batch(piece, nulls, [ERROR_MARK + pack(error.with_facts(file=name))], 0)

    def _batch(
        self, piece: AvroPiece, arrays: Sequence[pa.Array], marks: Sequence[bytes | None], first: int
    ) -> pa.RecordBatch:
        count = len(marks)
        beside = {
            FILE: pa.repeat(pa.scalar(self.names[piece.file], pa.int64()), count),
            BAD: pa.array(marks, pa.binary()),
            ROW: pa.array(range(first, first + count), pa.int64()),
            PIECE_START: pa.repeat(pa.scalar(piece.start, pa.int64()), count),
        }
        names = [f"c{number}" for number in range(len(arrays))]
        return pa.RecordBatch.from_arrays([*arrays, *beside.values()], names=[*names, *beside])
