"""A query's rows from Spark into Arrow, whatever types and texts they have.

Covers: collecting within a bound, writing large results to files here or in a storage, types that Arrow has not, texts
that are no UTF-8, Arrow streams. Does not cover: the query (query/worker/spark.py), its form for a client (server).
Always holds: the rows are never larger than allowed in this process; what comes out can be read by every client.

Tests: tests/integration/sql/test_results_stream.py.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.serializers import ArrowCollectSerializer, ArrowStreamSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import _load_from_socket

from tilth.base.units import MIB
from tilth.model.wire import ColumnInfo
from tilth.query.errors import ResultTooLargeError
from tilth.query.language.explained import explains, with_tasks, without_locations
from tilth.query.results.files import COLLECTED_BYTES_WITHOUT_LIMIT, TOO_LARGE_HINT, write_partition, write_schema
from tilth.query.results.stored import ResultFile, StoredRows, store_partition
from tilth.query.snapshots.protocol import COLUMNS_KEY, QueryTask
from tilth.storage import Folder, valid_texts
from tilth.warehouse import Parallelism, run_tasks, schema_of

#: Results that Spark takes for larger are streamed through files; collecting is faster for small ones.
COLLECTED_BYTES_MAX = 16 * MIB
#: Maximum that is collected when Spark's estimate was too low.
COLLECTED_BYTES_LIMIT = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRoad:
    """The way of a query's rows to its server."""

    #: The function of the task's context.
    fit: Callable[[], Parallelism]
    #: Opens a folder in a table's storage; None: the tasks of Spark see the folder on the server's disk.
    open_folder: Callable[[], Folder] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRows:
    """The rows of a query that has ended."""

    #: None: they are in files that the server follows. `StoredRows`: names of their files.
    rows: pa.Table | StoredRows | None
    #: Size of the rows in Arrow's form.
    bytes: int


def rows_of(frame: DataFrame, task: QueryTask, road: ResultRoad, *, answer_bytes: int | None = None) -> QueryRows:
    """Run the query. `answer_bytes`: bytes of the same rows when they were computed before; None: not known.

    Raises ResultTooLargeError.
    """
    bytes_max = task.result_bytes_max or COLLECTED_BYTES_WITHOUT_LIMIT
    if explains(task.text):
        plan = _plan_for_people(collected(frame, bytes_max), frame.sparkSession, road.fit())
        return QueryRows(rows=plan, bytes=plan.nbytes)
    if not task.folder:
        return _all_collected(frame, bytes_max)
    # Spark's estimate multiplies the tables of each join, too high for most results.
    if not (is_large(frame) if answer_bytes is None else answer_bytes > COLLECTED_BYTES_MAX):
        try:
            return _all_collected(frame, min(bytes_max, COLLECTED_BYTES_LIMIT))
        except ResultTooLargeError:
            if bytes_max <= COLLECTED_BYTES_LIMIT:
                raise
    if road.open_folder is None:
        return QueryRows(rows=None, bytes=write_files(frame, task.folder, task.result_bytes_max))
    limits = [each for each in (task.result_bytes_max, task.stored_bytes_max) if each]
    return store_rows(frame, road.open_folder(), min(limits, default=0))


def _all_collected(frame: DataFrame, bytes_max: int) -> QueryRows:
    table = collected(frame, bytes_max)
    return QueryRows(rows=table, bytes=table.nbytes)


def _plan_for_people(answer: pa.Table, session: SparkSession, parallelism: Parallelism) -> pa.Table:
    shuffle_tasks = int(session.conf.get("spark.sql.shuffle.partitions") or 0)
    plans = [
        None
        if plan is None
        else with_tasks(
            without_locations(plan),
            tasks=parallelism.tasks,
            reason=parallelism.reason,
            shuffle_tasks=shuffle_tasks,
        )
        for plan in answer.column(0).to_pylist()
    ]
    return pa.table([pa.array(plans, answer.schema.field(0).type)], schema=answer.schema)


def is_large(frame: DataFrame) -> bool:
    """True if the rows may be too many to be collected, by the estimate of Spark's optimizer, which is too high rather
    than too low, except for what makes many rows of one."""
    # Any: a handle of the JVM.
    plan: Any = frame._jdf.queryExecution().optimizedPlan()
    size = int(plan.stats().sizeInBytes())
    return size > COLLECTED_BYTES_MAX or "Generate " in plan.toString()


def write_files(frame: DataFrame, folder: str, bytes_max: int) -> int:
    """Write the rows to files in the folder, one for each partition, in the tasks of one job; return their bytes.
    `bytes_max` 0: no limit.

    Raises ResultTooLargeError where one task has more rows than allowed.
    """
    schema = described(frame)
    frame = without_voids(frame)
    write_schema(folder, schema)
    return sum(run_tasks(frame, partial(_write_file, folder, schema, bytes_max), int))


def store_rows(frame: DataFrame, folder: Folder, bytes_max: int) -> QueryRows:
    """Write the rows to files in a table's storage, in the tasks of one job; raises as `write_files`."""
    schema = described(frame)
    store = partial(_store_files, folder, schema, bytes_max)
    answers = run_tasks(without_voids(frame), store, tuple[list[ResultFile], int])
    files = tuple(file for stored, _ in answers for file in stored)
    rows = StoredRows(columns=schema.serialize().to_pybytes(), files=files)
    return QueryRows(rows=rows, bytes=sum(size for _, size in answers))


def _store_files(
    folder: Folder, schema: pa.Schema, bytes_max: int, rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int
) -> tuple[list[ResultFile], int]:
    """Store the rows of one of Spark's tasks; return the files, and the bytes of the rows before compression."""
    checked = _CheckedRows(rows, schema, bytes_max)
    files = store_partition(folder, task, schema, checked.batches(), attempt=_unique_attempt())
    return files, checked.bytes


def _write_file(
    folder: str, schema: pa.Schema, bytes_max: int, rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int
) -> int:
    """Write the rows of one of Spark's tasks to a file; return their bytes."""
    checked = _CheckedRows(rows, schema, bytes_max)
    write_partition(folder, task, schema, checked.batches(), attempt=_unique_attempt())
    return checked.bytes


def _unique_attempt() -> int:
    """Return the number of this attempt among all: those of a task begin anew when Spark runs a stage once more."""
    spark_task = TaskContext.get()
    assert spark_task is not None
    return spark_task.taskAttemptId()


class _CheckedRows:
    """The rows of a task, in the form of the result and within its bound."""

    def __init__(self, rows: Iterator[pa.RecordBatch], schema: pa.Schema, bytes_max: int) -> None:
        self._rows = rows
        self._schema = schema
        self._bytes_max = bytes_max
        #: Size of the batches that have come.
        self.bytes = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raises ResultTooLargeError."""
        for batch in self._rows:
            self.bytes += batch.nbytes
            if self._bytes_max and self.bytes > self._bytes_max:
                raise ResultTooLargeError(bytes_max=self._bytes_max, hint=TOO_LARGE_HINT)
            table = pa.Table.from_arrays(batch.columns, names=self._schema.names)
            yield from readable(table.cast(self._schema.remove_metadata())).to_batches()


def described(frame: DataFrame) -> pa.Schema:
    """Return the columns as clients get them: times in UTC, Spark's types in the metadata."""
    columns = [ColumnInfo(field.name, field.dataType.simpleString()) for field in schema_of(frame).fields]
    schema = to_arrow_schema(_all_nullable(schema_of(without_voids(frame))), timezone="UTC")
    return schema.with_metadata({COLUMNS_KEY: msgspec.json.encode(columns)})


def collected(frame: DataFrame, bytes_max: int) -> pa.Table:
    """The rows as Arrow, the columns' Spark types in the schema's metadata. Raises ResultTooLargeError."""
    schema = described(frame)
    frame = without_voids(frame)
    port, secret, server = frame._jdf.collectAsArrowToPython()
    is_read = False
    try:
        with _load_from_socket((port, secret), _BoundedCollection(bytes_max)) as stream:
            batches = list(stream)
        is_read = True
    except ResultTooLargeError:
        is_read = True
        raise
    finally:
        if not is_read:
            # The reason why the stream broke off.
            server.getResult()
    server.getResult()
    table = pa.Table.from_batches(batches) if batches else schema.remove_metadata().empty_table()
    return readable(table.cast(schema.remove_metadata())).replace_schema_metadata(schema.metadata)


def readable(table: pa.Table) -> pa.Table:
    """Return the rows with valid texts: Spark also makes texts of bytes that are none."""
    for position, column in enumerate(table.columns):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            texts = pa.chunked_array([valid_texts(chunk) for chunk in column.chunks], column.type)
            table = table.set_column(position, table.field(position), texts)
    return table


def without_voids(frame: DataFrame) -> DataFrame:
    """Return the rows with texts where a type has void inside, as array() does: Arrow has no such arrays and maps."""
    fields = schema_of(frame).fields
    types = [_with_texts(field.dataType) for field in fields]
    if all(one is field.dataType for one, field in zip(types, fields, strict=True)):
        return frame
    numbered = frame.toDF(*(str(index) for index in range(len(fields))))
    cast = [functions.col(str(index)).cast(one) for index, one in enumerate(types)]
    return numbered.select(*cast).toDF(*(field.name for field in fields))


def _all_nullable(schema: spark_types.StructType) -> spark_types.StructType:
    """Make columns of void nullable: Arrow has no others."""
    fields = [
        spark_types.StructField(
            field.name, field.dataType, field.nullable or isinstance(field.dataType, spark_types.NullType)
        )
        for field in schema.fields
    ]
    return spark_types.StructType(fields)


def _with_texts(kind: spark_types.DataType, *, is_inside: bool = False) -> spark_types.DataType:
    """Return the type itself where it has no void inside."""
    if isinstance(kind, spark_types.NullType):
        return spark_types.StringType() if is_inside else kind
    if isinstance(kind, spark_types.ArrayType):
        element = _with_texts(kind.elementType, is_inside=True)
        return kind if element is kind.elementType else spark_types.ArrayType(element)
    if isinstance(kind, spark_types.MapType):
        key, value = _with_texts(kind.keyType, is_inside=True), _with_texts(kind.valueType, is_inside=True)
        is_same = key is kind.keyType and value is kind.valueType
        return kind if is_same else spark_types.MapType(key, value)
    if isinstance(kind, spark_types.StructType):
        types = [_with_texts(field.dataType, is_inside=True) for field in kind.fields]
        if all(one is field.dataType for one, field in zip(types, kind.fields, strict=True)):
            return kind
        pairs = zip(kind.fields, types, strict=True)
        return spark_types.StructType([spark_types.StructField(field.name, one) for field, one in pairs])
    return kind


class _BoundedStream(ArrowStreamSerializer):
    """Stops to read when the batches together are too large."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self._bytes_max = bytes_max

    def load_stream(self, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
        size = 0
        for batch in super().load_stream(stream):
            size += batch.nbytes
            if size > self._bytes_max:
                raise ResultTooLargeError(bytes_max=self._bytes_max, hint=TOO_LARGE_HINT)
            yield batch


class _BoundedCollection(ArrowCollectSerializer, _BoundedStream):
    """Puts the batches in order like the first, reads them from the second."""


def to_stream(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
