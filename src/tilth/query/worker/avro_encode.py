"""Rows in Arrow as an Avro file.

Covers: the schema of columns, values of each type. Does not cover: reading (avro_arrays.py), names of files
(export_spark.py).
Always holds: each field is a union of NULL and its type; what Avro cannot carry is refused by the column's name and not
changed. Blocks are written as they are full, so that no more than one of them is in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import fastavro.write
import pyarrow as pa

from tilth.formats import BadValueError
from tilth.storage.store.protocol import NewFile

#: Bytes of a block before it is compressed.
BLOCK_BYTES = 1 << 16
#: Maximum number of rows that are objects of Python at a time.
ROWS_MAX = 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

#: Function that returns the values of an array for the encoder. Any: values of all types.
_Values = Callable[[pa.Array], list[Any]]


def write_avro(rows: Iterable[pa.Table], schema: pa.Schema, file: NewFile) -> None:
    """Write a file. Raises BadValueError for a column whose name or type Avro cannot carry."""
    encoder = _Encoder()
    fields, values = encoder.fields(schema, "")
    options: Any = {"fo": _Sink(file), "schema": {"type": "record", "name": "Row", "fields": fields}}
    writer = fastavro.write.Writer(codec="deflate", sync_interval=BLOCK_BYTES, **options)
    keys = [field["name"] for field in fields]
    for table in rows:
        for batch in table.to_batches(max_chunksize=ROWS_MAX):
            columns = [read(column) for read, column in zip(values, batch.columns, strict=True)]
            for row in zip(*columns, strict=True):
                writer.write(dict(zip(keys, row, strict=True)))
    writer.flush()


class _Sink:
    """A new file as the encoder needs it: it would append to one that can be sought."""

    def __init__(self, file: NewFile) -> None:
        self.write = file.write

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing is held here."""


class _Encoder:
    """Makes the schema of one file, whose records have names of their own."""

    def __init__(self) -> None:
        self._count = 0

    def fields(self, given: Iterable[pa.Field], path: str) -> tuple[list[dict[str, Any]], list[_Values]]:
        """Return the fields of a record, and the functions that return their values."""
        fields, values = [], []
        names: set[str] = set()
        for field in given:
            inner = f"{path}.{field.name}" if path else field.name
            if not _NAME.fullmatch(field.name) or field.name in names:
                hint = "name the column with AS: letters of ASCII, digits and _, each name once"
                raise BadValueError("Avro has no such name of a field", column=inner, hint=hint)
            names.add(field.name)
            kind, read = self._kind(field.type, inner)
            fields.append({"name": field.name, "type": ["null", kind], "default": None})
            values.append(_in_union(kind, read))
        return fields, values

    def _kind(self, given: pa.DataType, path: str) -> tuple[Any, _Values]:
        """Return a type in Avro, and the function that returns its values."""
        if given in _SIMPLE:
            return _SIMPLE[given]
        if pa.types.is_decimal128(given):
            kind = {"type": "bytes", "logicalType": "decimal", "precision": given.precision, "scale": given.scale}
            return kind, _decimals
        if pa.types.is_timestamp(given) and given.unit == "us":
            logical = "timestamp-micros" if given.tz else "local-timestamp-micros"
            return {"type": "long", "logicalType": logical}, _numbers_of(pa.int64())
        if pa.types.is_struct(given):
            self._count += 1
            name = f"Record{self._count}"
            fields, values = self.fields(list(given), path)
            return {"type": "record", "name": name, "fields": fields}, _structs(fields, values)
        if pa.types.is_list(given):
            kind, read = self._kind(given.value_type, f"{path}[]")
            return {"type": "array", "items": ["null", kind]}, _lists(_in_union(kind, read))
        if pa.types.is_map(given):
            if given.key_type != pa.string():
                hint = "CAST the keys to STRING"
                raise BadValueError("keys of maps are texts in Avro", column=path, type=given, hint=hint)
            kind, read = self._kind(given.item_type, f"{path}[]")
            return {"type": "map", "values": ["null", kind]}, _maps(_in_union(kind, read))
        raise BadValueError("Avro has no such type", column=path, type=given, hint="CAST the column to another type")


def _in_union(kind: Any, read: _Values) -> _Values:
    """Let values say which member of the union they are: the encoder would try one after the other."""
    name = kind if isinstance(kind, str) else kind["name"] if kind["type"] == "record" else kind["type"]
    return lambda array: [None if value is None else (name, value) for value in read(array)]


def _plain(array: pa.Array) -> list[Any]:
    found: list[Any] = array.to_pylist()
    return found


def _numbers_of(kind: pa.DataType) -> _Values:
    return lambda array: _plain(array.view(kind))


def _decimals(array: pa.Array) -> list[Any]:
    raw = array.view(pa.binary(16)).to_pylist()
    return [None if value is None else _big_endian(value) for value in raw]


def _big_endian(value: bytes) -> bytes:
    """Return a number of 16 bytes, the smallest first, as Avro has it: as few bytes as it needs."""
    number = int.from_bytes(value, "little", signed=True)
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _structs(fields: Sequence[dict[str, Any]], values: Sequence[_Values]) -> _Values:
    keys = [field["name"] for field in fields]

    def read(array: pa.StructArray) -> list[Any]:
        columns = [each(column) for each, column in zip(values, array.flatten(), strict=True)]
        rows = (dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True))
        return [row if is_there else None for row, is_there in zip(rows, array.is_valid().to_pylist(), strict=True)]

    return read


def _lists(read: _Values) -> _Values:
    return lambda array: _cut(array, read(array.flatten()))


def _maps(read: _Values) -> _Values:
    def pairs(array: pa.MapArray) -> list[Any]:
        # Lists leave entries outside of a slice out, and those below NULL.
        entries = array.cast(pa.list_(pa.struct([("k", array.type.key_type), ("v", array.type.item_type)]))).flatten()
        keys, values = entries.flatten()
        found = list(zip(keys.to_pylist(), read(values), strict=True))
        return [None if each is None else dict(each) for each in _cut(array, found)]

    return pairs


def _cut(array: pa.Array, values: list[Any]) -> list[Any]:
    """Return the values of each list."""
    offsets, first = array.offsets.to_pylist(), 0
    found: list[Any] = []
    for position, is_there in enumerate(array.is_valid().to_pylist()):
        length = offsets[position + 1] - offsets[position] if is_there else 0
        found.append(values[first : first + length] if is_there else None)
        first += length
    return found


_SIMPLE: dict[pa.DataType, tuple[Any, _Values]] = {
    pa.null(): ("string", _plain),
    pa.bool_(): ("boolean", _plain),
    pa.int8(): ("int", _plain),
    pa.int16(): ("int", _plain),
    pa.int32(): ("int", _plain),
    pa.int64(): ("long", _plain),
    pa.float32(): ("float", _plain),
    pa.float64(): ("double", _plain),
    pa.string(): ("string", _plain),
    pa.binary(): ("bytes", _plain),
    pa.date32(): ({"type": "int", "logicalType": "date"}, _numbers_of(pa.int32())),
}
