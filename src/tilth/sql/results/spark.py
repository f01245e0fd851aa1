"""A query's rows from Spark into Arrow, whatever types and texts they have.

Covers: collecting within a bound, types that Arrow has not, texts that are no UTF-8, Arrow streams. Does not cover: the
query (sql/spark.py), its form for a client (server).
Always holds: the rows are never larger than allowed in this process; what comes out can be read by every client.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, functions
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.serializers import ArrowCollectSerializer, ArrowStreamSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import _load_from_socket

from tilth.model.wire import ColumnInfo
from tilth.sql.errors import ResultTooLargeError
from tilth.sql.protocol import COLUMNS_KEY
from tilth.storage import valid_texts


def collected(frame: DataFrame, bytes_max: int) -> pa.Table:
    """The rows as Arrow, the columns' Spark types in the schema's metadata. Raises ResultTooLargeError."""
    given = frame.schema.fields
    frame = _without_voids(frame)
    schema = to_arrow_schema(_all_nullable(frame.schema), timezone="UTC")
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
    columns = [ColumnInfo(f.name, f.dataType.simpleString()) for f in given]
    table = pa.Table.from_batches(batches) if batches else schema.empty_table()
    return _readable(table.cast(schema)).replace_schema_metadata({COLUMNS_KEY: msgspec.json.encode(columns)})


def _readable(table: pa.Table) -> pa.Table:
    """The rows with texts that everybody can read: Spark also makes texts of bytes that are none."""
    for position, column in enumerate(table.columns):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            texts = pa.chunked_array([valid_texts(chunk) for chunk in column.chunks], column.type)
            table = table.set_column(position, table.field(position), texts)
    return table


def _without_voids(frame: DataFrame) -> DataFrame:
    """The rows with texts where a type has void inside, as array() does: Arrow has no such arrays and maps."""
    fields = frame.schema.fields
    types = [_with_texts(field.dataType) for field in fields]
    if all(one is field.dataType for one, field in zip(types, fields, strict=True)):
        return frame
    numbered = frame.toDF(*(str(index) for index in range(len(fields))))
    cast = [functions.col(str(index)).cast(one) for index, one in enumerate(types)]
    return numbered.select(*cast).toDF(*(field.name for field in fields))


def _all_nullable(schema: spark_types.StructType) -> spark_types.StructType:
    """Without columns of void that are not null, of which Arrow has none."""
    fields = [
        spark_types.StructField(
            field.name, field.dataType, field.nullable or isinstance(field.dataType, spark_types.NullType)
        )
        for field in schema.fields
    ]
    return spark_types.StructType(fields)


def _with_texts(kind: spark_types.DataType, *, is_inside: bool = False) -> spark_types.DataType:
    """The type itself where it has no void inside."""
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
                raise ResultTooLargeError(
                    bytes_max=self._bytes_max,
                    hint="ask for fewer rows or columns, add a LIMIT, or raise the setting max_result_bytes",
                )
            yield batch


class _BoundedCollection(ArrowCollectSerializer, _BoundedStream):
    """Puts the batches in order like the first, reads them from the second."""


def to_stream(table: pa.Table) -> bytes:
    """The table as an Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
