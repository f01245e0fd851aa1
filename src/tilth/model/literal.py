"""Literals as statements hold them. Pure.

Covers: what is more than a value of Python. Does not cover: reading them (grammar/literals.py), bringing them into a
column (formats/values.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from tilth.model.types import DataType


@dataclass(frozen=True, slots=True)
class ArrayValue:
    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class MapValue:
    entries: tuple[tuple[Value, Value], ...]


@dataclass(frozen=True, slots=True)
class TupleValue:
    """A struct's values in the order of its fields."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class StructValue:
    """A struct's values by name."""

    fields: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class CastValue:
    """A literal that says its type: it must be a value of that type."""

    value: Value
    type: DataType


#: A literal. `1.5` is a Decimal, `1.5e0` a float; a datetime without a zone is in the session's.
Value = (
    None
    | bool
    | int
    | Decimal
    | float
    | str
    | bytes
    | date
    | datetime
    | ArrayValue
    | MapValue
    | TupleValue
    | StructValue
    | CastValue
)
