"""Times in messages: without a zone, and with more digits than are kept.

Covers: the zone that a column declares for times without one, finding digits below the microsecond. Does not cover:
decoding (decode.py). Always holds: a look at a whole block of messages costs a few percent of decoding it; only
messages that may have such digits are looked at one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from tilth.model.checks import KEY, Path
from tilth.model.table import Column
from tilth.model.types import Array, DataType, Kind, Map, Simple, Struct

#: Digits of a second that a datetime would round, in a text of JSON.
_IN_JSON = r"\.[0-9]{6}[0-9]*[1-9][0-9]*[Zz+\-\"]"
_FINE = re.compile(r":[0-9]{2}[.,][0-9]{6}[0-9]*[1-9]")
_TIMES = (Simple(Kind.TIMESTAMP), Simple(Kind.TIMESTAMP_NTZ))

# A decoded value of any type.
Value = Any


def has_times(data_type: DataType) -> bool:
    """Whether there are timestamps in the type."""
    match data_type:
        case Array(element=element):
            return has_times(element)
        case Map(key=key, value=value):
            return has_times(key) or has_times(value)
        case Struct(fields=fields):
            return any(has_times(field.type) for field in fields)
    return data_type in _TIMES


def may_be_fine(messages: Sequence[bytes | None]) -> bool:
    """Whether one of these messages of JSON may have a time with more digits than are kept."""
    return pc.any(pc.match_substring_regex(pa.array(messages, pa.binary()), _IN_JSON)).as_py() is True


def check_digits(column: Column, value: Value) -> None:
    """Raises ValueError for a time with more digits than are kept; the value has its times as they are written."""
    found = next((text for text in _texts(value, column.type) if _FINE.search(text)), None)
    if found is not None:
        raise ValueError(f"column `{column.name}`: {found} has digits below the microsecond, which are not kept")


def check_cell(column: Column, text: str) -> None:
    """The same of a cell of CSV, whose nested values are JSON."""
    if has_times(column.type) and _FINE.search(text):
        check_digits(column, text if column.type in _TIMES else json.loads(text))


def in_zones(values: Sequence[Value], column: Column) -> Sequence[Value]:
    """The values, with the zones that the column declares for times without one."""
    for path, zone in column.zones:
        values = [_in_zone(value, column.type, path, ZoneInfo(zone)) for value in values]
    return values


def _texts(value: Value, data_type: DataType) -> list[str]:
    """The texts in the place of times."""
    if value is None or not has_times(data_type):
        return []
    match data_type:
        case Array(element=element):
            return [text for item in value for text in _texts(item, element)]
        case Map(key=key, value=of):
            return [text for one, item in value.items() for text in (*_texts(one, key), *_texts(item, of))]
        case Struct(fields=fields):
            return [text for field in fields for text in _texts(value.get(field.name), field.type)]
    return [str(value)]


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
