"""Column types: one small tree that Spark's, ClickHouse's and Arrow's types are mapped to. Pure.

Covers: the tree and its text in Spark SQL's words. Does not cover: reading type names (grammar/types.py), Arrow
(storage/values/arrow.py). Always holds: elements of arrays, values of maps and fields of structs may be null; keys may
not.

Tests: tests/unit/model/text/test_literals.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import assert_never

import msgspec


class Kind(StrEnum):
    """The types without parameters; the value is Spark SQL's name."""

    BOOLEAN = "boolean"
    INT8 = "tinyint"
    INT16 = "smallint"
    INT32 = "int"
    INT64 = "bigint"
    FLOAT32 = "float"
    FLOAT64 = "double"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    #: An instant in UTC, in microseconds.
    TIMESTAMP = "timestamp"
    #: A wall-clock time without a zone, in microseconds.
    TIMESTAMP_NTZ = "timestamp_ntz"


#: The kinds of whole numbers, with their bits.
INTEGER_BITS: Mapping[Kind, int] = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}


class Simple(msgspec.Struct, frozen=True, tag="s"):
    kind: Kind


class Decimal(msgspec.Struct, frozen=True, tag="d"):
    precision: int
    scale: int


class Array(msgspec.Struct, frozen=True, tag="a"):
    element: DataType


class Map(msgspec.Struct, frozen=True, tag="m"):
    key: DataType
    value: DataType


class Field(msgspec.Struct, frozen=True):
    name: str
    type: DataType


class Struct(msgspec.Struct, frozen=True, tag="t"):
    fields: tuple[Field, ...]


DataType = Simple | Decimal | Array | Map | Struct


def spark_name(data_type: DataType) -> str:
    """The type in Spark SQL's words, as in `array<decimal(10,2)>`."""
    match data_type:
        case Simple(kind=kind):
            return kind.value
        case Decimal(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case Array(element=element):
            return f"array<{spark_name(element)}>"
        case Map(key=key, value=value):
            return f"map<{spark_name(key)},{spark_name(value)}>"
        case Struct(fields=fields):
            inner = ",".join(f"{_field_name(field.name)}:{spark_name(field.type)}" for field in fields)
            return f"struct<{inner}>"
    assert_never(data_type)


def kinds_in(data_type: DataType) -> frozenset[Kind]:
    """The types without parameters that values of the type consist of, at any depth."""
    return frozenset(leaf.kind for leaf in leaves_of(data_type) if isinstance(leaf, Simple))


def leaves_of(data_type: DataType) -> Iterator[Simple | Decimal]:
    """Yield the types without others in them that values of the type consist of."""
    match data_type:
        case Simple() | Decimal():
            yield data_type
        case Array(element=element):
            yield from leaves_of(element)
        case Map(key=key, value=value):
            yield from leaves_of(key)
            yield from leaves_of(value)
        case Struct(fields=fields):
            for field in fields:
                yield from leaves_of(field.type)
        case _:
            assert_never(data_type)


def quoted(name: str) -> str:
    """The name in backticks, as Spark SQL writes any name."""
    return f"`{name.replace('`', '``')}`"


def _field_name(name: str) -> str:
    return name if name.isidentifier() else quoted(name)
