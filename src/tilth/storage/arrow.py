"""Column types in Arrow's words, and bringing rows into a table's shape.

Covers: types, schemas, casts. Does not cover: Parquet (parts.py), decoding of messages.
Always holds: `conform` either returns exactly the table's schema or names the column that does not fit.
"""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tilth.model.table import Column, Schema
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct, spark_name
from tilth.storage.errors import BadColumnError, UnmappedTypeError

#: Under this key of a field's metadata Arrow keeps the Parquet field id.
FIELD_ID = b"PARQUET:field_id"

_SIMPLE: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT8: pa.int8(),
    Kind.INT16: pa.int16(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.FLOAT32: pa.float32(),
    Kind.FLOAT64: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.TIMESTAMP_NTZ: pa.timestamp("us"),
}
_KINDS = {arrow: kind for kind, arrow in _SIMPLE.items()}
#: Types that others use for what we store; unsigned ones widen.
_KINDS |= {
    pa.uint8(): Kind.INT16,
    pa.uint16(): Kind.INT32,
    pa.uint32(): Kind.INT64,
    pa.float16(): Kind.FLOAT32,
    pa.large_string(): Kind.STRING,
    pa.string_view(): Kind.STRING,
    pa.large_binary(): Kind.BINARY,
    pa.binary_view(): Kind.BINARY,
    pa.date64(): Kind.DATE,
    pa.null(): Kind.STRING,
}


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type that stores this type."""
    match data_type:
        case Simple(kind=kind):
            return _SIMPLE[kind]
        case Decimal(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case Array(element=element):
            return pa.list_(pa.field("element", arrow_type(element)))
        case Map(key=key, value=value):
            return pa.map_(arrow_type(key), arrow_type(value))
        case Struct(fields=fields):
            return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in fields])
    assert_never(data_type)


def arrow_field(column: Column, *, has_field_id: bool) -> pa.Field:
    """The Arrow field that stores this column."""
    metadata = {FIELD_ID: str(column.id).encode()} if has_field_id else None
    return pa.field(column.name, arrow_type(column.type), nullable=column.nullable, metadata=metadata)


def arrow_schema(schema: Schema, *, field_ids: bool = True) -> pa.Schema:
    """The Arrow schema of the table's files, with Parquet field ids or without."""
    return pa.schema([arrow_field(column, has_field_id=field_ids) for column in schema.columns])


def type_from_arrow(arrow: pa.DataType) -> DataType:
    """The type that can hold what this Arrow type holds; raises UnmappedTypeError naming it."""
    if arrow in _KINDS:
        return Simple(_KINDS[arrow])
    if pa.types.is_timestamp(arrow):
        return Simple(Kind.TIMESTAMP_NTZ if arrow.tz is None else Kind.TIMESTAMP)
    if arrow == pa.uint64():
        return Decimal(20, 0)
    if pa.types.is_decimal(arrow) and arrow.precision <= 38:
        return Decimal(arrow.precision, arrow.scale)
    if pa.types.is_dictionary(arrow):
        return type_from_arrow(arrow.value_type)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return Array(type_from_arrow(arrow.value_type))
    if pa.types.is_map(arrow):
        return Map(type_from_arrow(arrow.key_type), type_from_arrow(arrow.item_type))
    if pa.types.is_struct(arrow):
        return Struct(tuple(Field(field.name, type_from_arrow(field.type)) for field in arrow))
    raise UnmappedTypeError(type=arrow)


def schema_from_arrow(schema: pa.Schema) -> Schema:
    """The table schema that can hold these columns; ids are the files' field ids, or count from 1 where there are none.

    Raises UnmappedTypeError naming the column's type.
    """
    columns = []
    for position, field in enumerate(schema, start=1):
        found = (field.metadata or {}).get(FIELD_ID)
        identity = int(found) if found is not None else position
        column = Column(id=identity, name=field.name, type=type_from_arrow(field.type), nullable=field.nullable)
        columns.append(column)
    return Schema(columns=tuple(columns))


def nullable(schema: Schema) -> Schema:
    """The columns, none of which is NOT NULL."""
    columns = (column if column.nullable else replace(column, nullable=True) for column in schema.columns)
    return Schema(columns=tuple(columns))


def conform(rows: pa.Table | pa.RecordBatch, schema: Schema) -> pa.Table:
    """The rows with exactly the table's columns, in its order and types.

    Columns are found by name without regard to case; a column that the rows lack is null. Raises BadColumnError naming
    the column: where a value does not fit, a NOT NULL column has nulls, or the table has no such column.
    """
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    wanted = arrow_schema(schema)
    if table.schema.equals(wanted) and all(column.nullable for column in schema.columns):
        return pa.table(table.columns, schema=wanted)
    given = _by_lower_name(table)
    arrays = []
    for column, field in zip(schema.columns, wanted, strict=True):
        array = given.pop(column.name.lower(), None)
        arrays.append(_conform_column(array, column, field, table.num_rows))
    if given:
        raise BadColumnError("the table has no such column", column=next(iter(given)), known=", ".join(schema.names))
    return pa.table(arrays, schema=wanted)


def one_chunk(values: pa.ChunkedArray) -> pa.Array:
    """All values in one array."""
    return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks or [pa.nulls(0, values.type)])


def _by_lower_name(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    columns: dict[str, pa.ChunkedArray] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name.lower() in columns:
            raise BadColumnError("a column is given twice", column=name)
        columns[name.lower()] = column
    return columns


def _conform_column(array: pa.ChunkedArray | None, column: Column, field: pa.Field, rows: int) -> pa.ChunkedArray:
    if array is None:
        array = pa.chunked_array([pa.nulls(rows, field.type)])
    if not column.nullable and array.null_count:
        raise BadColumnError("nulls in a column that is NOT NULL", column=column.name, nulls=array.null_count)
    if array.type == field.type:
        return array
    try:
        return _cast(array, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        given = str(array.type)
        raise BadColumnError(
            column=column.name, type=spark_name(column.type), given=given, because=_first_line(error)
        ) from error


def _cast(array: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(array.type):
        array = pc.cast(array, array.type.value_type)
    if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(target) and array.type.unit == "ns":
        # Finer than what is stored: cut, as Spark does.
        return pc.cast(array, target, safe=False)
    return pc.cast(array, target)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
