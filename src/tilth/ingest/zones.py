"""The zones that columns declare for times without one.

Covers: times anywhere in a decoded value. Does not cover: decoding (formats.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

from tilth.model.checks import KEY, Path
from tilth.model.table import Column
from tilth.model.types import Array, DataType, Map, Struct

# A decoded value of any type.
Value = Any


def in_zones(values: Sequence[Value], column: Column) -> Sequence[Value]:
    """The values, with the zones that the column declares for times without one."""
    for path, zone in column.zones:
        values = [_in_zone(value, column.type, path, ZoneInfo(zone)) for value in values]
    return values


def _in_zone(value: Value, data_type: DataType, path: Path, zone: ZoneInfo) -> Value:
    if value is None:
        return None
    match data_type:
        case Array(element=element):
            return [_in_zone(item, element, path[1:], zone) for item in value]
        case Map(key=key, value=of):
            is_key = path[0] == KEY
            return {
                _in_zone(one, key, path[1:], zone) if is_key else one: item
                if is_key
                else _in_zone(item, of, path[1:], zone)
                for one, item in value.items()
            }
        case Struct(fields=fields):
            inner = next(field.type for field in fields if field.name == path[0])
            return {**value, path[0]: _in_zone(value.get(path[0]), inner, path[1:], zone)}
    return value.replace(tzinfo=zone) if value.tzinfo is None else value
