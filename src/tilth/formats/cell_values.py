"""Arrow values as what JSON can hold, without loss.

Covers: every Arrow type that a result may have. Does not cover: the frame around the rows (kinds/).
Always holds: whole numbers stay numbers, with all their digits; decimals, dates and times become text; timestamps are
ISO 8601, those with a zone in UTC and with `Z`, years outside of 0 to 9999 with a sign; binary values are base64; NaN
and infinities are "NaN", "Infinity" and "-Infinity". INSERT reads each of them as what it was.
"""

from __future__ import annotations

import base64
import math
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tilth.model.text.literals import float_text
from tilth.model.text.times import FIRST_DAY, LAST_DAY, date_text, time_text

#: A value that msgspec's JSON encoder accepts as it is.
Cell = Any  # Any: a cell is whatever JSON can hold

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DATE_TIME = r"^(\S+) (\d{2}:\d{2}:\d{2})(?:\.(\d*?)0*)?(Z?)$"


def json_cells(values: pa.Array) -> list[Cell]:
    """One cell for each value, None for NULL."""
    arrow = values.type
    if isinstance(arrow, pa.DictionaryType):
        return json_cells(values.dictionary_decode())
    if isinstance(arrow, pa.BaseExtensionType):
        return json_cells(values.storage)
    if pa.types.is_floating(arrow):
        return _floats(values)
    if pa.types.is_decimal(arrow):
        return [None if value is None else _decimal(value) for value in values.to_pylist()]
    if is_text_in_json(arrow):
        return list(texts(values).to_pylist())
    if pa.types.is_map(arrow):
        return _maps(values)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return _lists(values)
    if pa.types.is_struct(arrow):
        return _structs(values)
    if pa.types.is_null(arrow) or pa.types.is_boolean(arrow) or pa.types.is_integer(arrow) or _is_string(arrow):
        return list(values.to_pylist())
    return [None if value is None else str(value) for value in values.to_pylist()]


def is_text_in_json(arrow: pa.DataType) -> bool:
    is_binary = pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow) or pa.types.is_fixed_size_binary(arrow)
    return bool(is_binary or pa.types.is_decimal(arrow) or (pa.types.is_temporal(arrow) and not _is_span(arrow)))


def texts(values: pa.Array) -> pa.Array:
    """Times, decimals and binary values as strings; raises ValueError for other types."""
    arrow = values.type
    if pa.types.is_timestamp(arrow):
        # Arrow writes local times of other zones with an offset; in UTC there is one form.
        in_utc = values if arrow.tz is None else values.cast(pa.timestamp(arrow.unit, "UTC"))
        return _in_all_years(in_utc)
    if pa.types.is_date32(arrow):
        return _in_all_years(values)
    if pa.types.is_date(arrow) or pa.types.is_time(arrow):
        return values.cast(pa.string())
    if pa.types.is_decimal(arrow):
        return pa.array([None if value is None else _decimal(value) for value in values.to_pylist()], pa.string())
    if is_text_in_json(arrow):
        encoded = [None if value is None else base64.b64encode(value).decode() for value in values.to_pylist()]
        return pa.array(encoded, pa.string())
    raise ValueError(str(arrow))


def _in_all_years(values: pa.Array) -> pa.Array:
    """Format dates or times as text, also those that Arrow formats with a wrong year."""
    is_date = pa.types.is_date32(values.type)
    numbers = values.view(pa.int32() if is_date else pa.int64())
    if not is_date and values.type.unit == "ns":
        # All of their years have four digits.
        return _texts_in_range(values)
    day = 1 if is_date else 86_400 * _PER_SECOND[values.type.unit]
    is_out_of_range = pc.or_(pc.less(numbers, FIRST_DAY * day), pc.greater_equal(numbers, (LAST_DAY + 1) * day))
    if not pc.any(is_out_of_range).as_py():
        return _texts_in_range(values)
    in_range = _texts_in_range(pc.if_else(is_out_of_range, pa.scalar(None, values.type), values))
    end = "" if is_date or values.type.tz is None else "Z"
    out_of_range = [
        date_text(number) if is_date else f"{time_text(number * 1_000_000 // _PER_SECOND[values.type.unit])}{end}"
        for number in numbers.filter(is_out_of_range).to_pylist()
    ]
    return pc.replace_with_mask(in_range, is_out_of_range.fill_null(False), pa.array(out_of_range, pa.string()))


def _texts_in_range(values: pa.Array) -> pa.Array:
    text = values.cast(pa.string())
    if pa.types.is_date32(values.type):
        return text
    text = pc.replace_substring_regex(text, _DATE_TIME, r"\1T\2.\3\4")
    return pc.replace_substring_regex(text, r"\.(Z?)$", r"\1")


def _is_span(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_duration(arrow) or pa.types.is_interval(arrow))


def _is_string(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow))


def _decimal(value: Decimal) -> str:
    """Format with all digits and without an exponent."""
    return format(value, "f")


def _floats(values: pa.Array) -> list[Cell]:
    cells = values.to_pylist()
    if pc.all(pc.is_finite(values.cast(pa.float64()))).as_py() is not False:
        return list(cells)
    return [cell if cell is None or math.isfinite(cell) else float_text(cell) for cell in cells]


def _lists(values: pa.Array) -> list[Cell]:
    items = json_cells(values.flatten())
    cells: list[Cell] = []
    start = 0
    for length in pc.list_value_length(values).to_pylist():
        if length is None:
            cells.append(None)
            continue
        cells.append(items[start : start + length])
        start += length
    return cells


def _maps(values: pa.Array) -> list[Cell]:
    """Convert maps to objects; a key that is no text becomes one, as JSON writes it."""
    offsets = values.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    keys = json_cells(values.keys.slice(first, last - first))
    items = json_cells(values.items.slice(first, last - first))
    return [
        {_key(keys[i - first]): items[i - first] for i in range(start, end)} if is_valid else None
        for start, end, is_valid in zip(offsets, offsets[1:], values.is_valid().to_pylist(), strict=False)
    ]


def _key(cell: Cell) -> str:
    return cell if isinstance(cell, str) else msgspec.json.encode(cell).decode()


def _structs(values: pa.Array) -> list[Cell]:
    names = unique_names([field.name for field in values.type])
    columns = [json_cells(child) for child in values.flatten()]
    rows = zip(*columns, strict=True) if columns else ((),) * len(values)
    return [
        dict(zip(names, row, strict=True)) if is_valid else None
        for row, is_valid in zip(rows, values.is_valid().to_pylist(), strict=True)
    ]


def unique_names(names: list[str]) -> list[str]:
    """Return unique names; from its second appearance on, a name gets the next free number: `a`, `a_2`, `a_3`."""
    used = set(names)
    seen: set[str] = set()
    unique: list[str] = []
    for name in names:
        new = name
        number = 2
        while new in seen or (new != name and new in used):
            new = f"{name}_{number}"
            number += 1
        seen.add(new)
        unique.append(new)
    return unique
