"""Column types in Arrow's words, and bringing rows into a table's shape.

Covers: types, schemas, casts. Does not cover: Parquet (parts/part_files.py), decoding of messages.
Always holds: `conform` either returns exactly the table's schema or names the column that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tilth.base.identity import by_identity
from tilth.model.table import Column, Schema
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct
from tilth.storage.errors import BadColumnError, UnmappedTypeError
from tilth.storage.values.checks import check_values

#: Key of a field's metadata under which Arrow keeps the Parquet field id.
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
    """Arrow type that stores this type."""
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
    metadata = {FIELD_ID: str(column.id).encode()} if has_field_id else None
    return pa.field(column.name, arrow_type(column.type), nullable=column.nullable, metadata=metadata)


def arrow_schema(schema: Schema, *, field_ids: bool = True) -> pa.Schema:
    """The Arrow schema of the table's files, with Parquet field ids or without."""
    return _arrow_schema(schema.columns, field_ids)


@by_identity(1_000)
def _arrow_schema(columns: tuple[Column, ...], field_ids: bool) -> pa.Schema:
    return pa.schema([arrow_field(column, has_field_id=field_ids) for column in columns])


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
    """Return the columns without NOT NULL."""
    columns = (column if column.nullable else replace(column, nullable=True) for column in schema.columns)
    return Schema(columns=tuple(columns))


def conform(rows: pa.Table | pa.RecordBatch, schema: Schema, *, is_numbered: bool = False) -> pa.Table:
    """The rows with exactly the table's columns, in its order and types, their values as the columns promise.

    Columns are found by name without regard to case; a column that the rows lack is null. Raises BadColumnError naming
    the column: where a value does not fit, a NOT NULL column has nulls, or the table has no such column.
    `is_numbered`: the rows have the numbers by which their sender knows them, so that errors name them.
    """
    shaped = shape(rows, schema)
    for name, values in zip(schema.names, shaped.columns, strict=True):
        _check_valid(values, name)
    if not any(column.checks for column in schema.columns):
        return shaped
    arrays = [
        check_values(values, column, is_numbered=is_numbered)
        for values, column in zip(shaped.columns, schema.columns, strict=True)
    ]
    return pa.table(arrays, schema=shaped.schema)


def shape(rows: pa.Table | pa.RecordBatch, schema: Schema) -> pa.Table:
    """Bring rows that have been through `conform` into the schema: their values already pass the columns' checks."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    wanted = arrow_schema(schema)
    if table.schema.equals(wanted) and all(column.nullable for column in schema.columns):
        return pa.table(table.columns, schema=wanted)
    given = _by_lower_name(table)
    arrays = []
    for column, field in zip(schema.columns, wanted, strict=True):
        array = given.pop(column.name.lower(), None)
        arrays.append(_shape_column(array, column, field, table.num_rows))
    if given:
        raise BadColumnError("the table has no such column", column=next(iter(given)), known=", ".join(schema.names))
    return pa.table(arrays, schema=wanted)


def conform_column(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """Convert the values to what the column stores; raises BadColumnError naming the column."""
    shaped = _shape_column(values, column, arrow_field(column, has_field_id=False), len(values))
    _check_valid(shaped, column.name)
    return check_values(shaped, column)


def _check_valid(values: pa.ChunkedArray, column: str) -> None:
    """Raises BadColumnError for texts that are not UTF-8: Spark makes such of bytes."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise BadColumnError("a text is not UTF-8", column=column, because=_first_line(error)) from error


def valid_texts(values: pa.Array) -> pa.Array:
    """Put U+FFFD where the array's texts are not UTF-8."""
    kind = values.type
    if pa.types.is_string(kind):
        texts = values.view(pa.binary()).to_pylist()
        return pa.array([None if text is None else text.decode(errors="replace") for text in texts], kind)
    if not pa.types.is_nested(kind):
        return values
    # Without an offset of its own, which arrays cannot be made with.
    values = values.take(pa.array(range(len(values))))
    if pa.types.is_struct(kind):
        fields = [valid_texts(values.field(index)) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=values.is_null())
    if pa.types.is_map(kind):
        keys, items = valid_texts(values.keys), valid_texts(values.items)
        return pa.MapArray.from_arrays(values.offsets, keys, items, type=kind, mask=values.is_null())
    return pa.ListArray.from_arrays(values.offsets, valid_texts(values.values), type=kind, mask=values.is_null())


def one_chunk(values: pa.ChunkedArray) -> pa.Array:
    return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks or [pa.nulls(0, values.type)])


def _by_lower_name(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    columns: dict[str, pa.ChunkedArray] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name.lower() in columns:
            raise BadColumnError("a column is given twice", column=name)
        columns[name.lower()] = column
    return columns


def _shape_column(array: pa.ChunkedArray | None, column: Column, field: pa.Field, rows: int) -> pa.ChunkedArray:
    if array is None:
        array = pa.chunked_array([pa.nulls(rows, field.type)])
    if not column.nullable and array.null_count:
        raise BadColumnError("nulls in a column that is NOT NULL", column=column.name, nulls=array.null_count)
    if array.type == field.type:
        return array
    try:
        return exact_cast(array, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        given = str(array.type)
        raise BadColumnError(
            column=column.name, type=column.declared_type, given=given, because=_first_line(error)
        ) from error


def exact_cast(array: pa.ChunkedArray | pa.Array, target: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """The values in another type; raises ArrowInvalid where one would not be kept. Floats become the nearest floats.

    Arrow itself finds most of these values, but rounds floats to decimals, cuts times to dates, and makes infinities of
    numbers that are too large for a float.
    """
    if pa.types.is_dictionary(array.type):
        array = pc.cast(array, array.type.value_type)
    if array.type.equals(target):
        return array
    found = pc.cast(array, target)
    if _may_change(array.type, target) and not _is_kept(array, found):
        raise pa.ArrowInvalid("a value would not be kept")
    return found


def array_of(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """Convert Python values to Arrow; raises ArrowInvalid, OverflowError and their kind for one of another type."""
    target = arrow_type(data_type)
    return exact_cast(pa.array(values, _with_doubles(target)), target)


def _with_doubles(arrow: pa.DataType) -> pa.DataType:
    """Replace floats by doubles, so that numbers which are too large are seen."""
    if pa.types.is_float32(arrow):
        return pa.float64()
    if pa.types.is_map(arrow):
        return pa.map_(_with_doubles(arrow.key_type), _with_doubles(arrow.item_type))
    if pa.types.is_list(arrow):
        return pa.list_(arrow.value_field.with_type(_with_doubles(arrow.value_type)))
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(_with_doubles(field.type)) for field in arrow])
    return arrow


def _may_change(given: pa.DataType, target: pa.DataType) -> bool:
    """True if a cast that Arrow regards as safe may change values."""
    types = pa.types
    if types.is_nested(given) and given.num_fields == target.num_fields:
        pairs = [(given.field(index).type, target.field(index).type) for index in range(given.num_fields)]
        return any(one != other and _may_change(one, other) for one, other in pairs)
    is_text = types.is_string(given) or types.is_large_string(given)
    return bool(
        (types.is_floating(given) and (types.is_decimal(target) or types.is_floating(target)))
        or (is_text and types.is_floating(target))
        or (types.is_timestamp(given) and types.is_date(target))
        or ((types.is_integer(given) or types.is_floating(given)) and types.is_boolean(target))
    )


def _is_kept(given: pa.ChunkedArray | pa.Array, found: pa.ChunkedArray | pa.Array) -> bool:
    """True if a cast has preserved the values, to the nearest float where it leads to floats."""
    if isinstance(given, pa.ChunkedArray):
        return all(map(_is_kept, given.chunks, found.chunks))
    return all(_is_leaf_kept(*pair) for pair in zip(_leaves(given), _leaves(found), strict=True))


def _is_leaf_kept(given: pa.Array, found: pa.Array) -> bool:
    if given.type.equals(found.type):
        return True
    if pa.types.is_floating(found.type):
        is_infinite = pc.is_inf(found)
        if pa.types.is_floating(given.type):
            return bool(is_infinite.equals(pc.is_inf(given)))
        is_spelled_out = pc.match_substring(given.filter(is_infinite), "inf", ignore_case=True)
        return pc.all(is_spelled_out).as_py() is not False
    back = pc.cast(found, given.type)
    return bool(back.equals(given))


def _leaves(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays without others in them, in the order of the type."""
    if pa.types.is_map(values.type):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        for inner in (values.keys, values.items):
            yield from _leaves(inner.slice(first, last - first))
    elif pa.types.is_struct(values.type):
        for field in values.flatten():
            yield from _leaves(field)
    elif pa.types.is_nested(values.type):
        yield from _leaves(values.flatten())
    else:
        yield values


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
