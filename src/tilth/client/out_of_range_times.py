"""Dates and times of years out of Python's range, in results.

Covers: finding out whether there are any, and showing them as ISO 8601: `+10000-01-01`. Does not cover: their form on
the wire. Always holds: what Python knows stays as it is; nothing here fails for a value that Arrow has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tilth.model.text.times import DAY_US, FIRST_DAY, LAST_DAY, date_text, is_known_to_python, time_text

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


# Any: a cell is whatever the column's type is in Python.
def python_values(values: pa.ChunkedArray) -> list[Any]:
    """Return the values as Python has them, dates and times out of its range as text."""
    return [_value(scalar) for scalar in values] if _has_out_of_range(values) else list(values.to_pylist())


def readable(table: pa.Table) -> pa.Table:
    """Return the table, its columns with dates or times out of Python's range as columns of text."""
    for position, column in enumerate(table.columns):
        if _has_out_of_range(column):
            array = pa.array([_value(scalar, is_text=True) for scalar in column], _with_texts(column.type))
            table = table.set_column(position, table.field(position).with_type(array.type), array)
    return table


def _has_out_of_range(values: pa.ChunkedArray) -> bool:
    return any(_is_out_of_range(leaf) for chunk in values.chunks for leaf in _leaves(chunk))


def _leaves(values: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_map(values.type):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        for inner in (values.keys, values.items):
            yield from _leaves(inner.slice(first, last - first))
    elif pa.types.is_nested(values.type):
        for inner in values.flatten() if pa.types.is_struct(values.type) else (values.flatten(),):
            yield from _leaves(inner)
    elif pa.types.is_date32(values.type) or pa.types.is_timestamp(values.type):
        yield values


def _is_out_of_range(values: pa.Array) -> bool:
    is_date = pa.types.is_date32(values.type)
    day = 1 if is_date else 86_400 * _PER_SECOND[values.type.unit]
    bounds = pc.min_max(values.view(pa.int32() if is_date else pa.int64())).as_py()
    return bounds["min"] is not None and (bounds["min"] < FIRST_DAY * day or bounds["max"] >= (LAST_DAY + 1) * day)


def _value(scalar: pa.Scalar, *, is_text: bool = False) -> Any:
    """`is_text`: all dates and times as text."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_date32(kind):
        return date_text(scalar.value) if is_text or not is_known_to_python(scalar.value) else scalar.as_py()
    if pa.types.is_timestamp(kind):
        micros = scalar.value * 1_000_000 // _PER_SECOND[kind.unit]
        if not is_text and is_known_to_python(micros // DAY_US):
            return scalar.as_py()
        return f"{time_text(micros)}{'' if kind.tz is None else 'Z'}"
    if pa.types.is_map(kind):
        return [
            (_value(pair["key"], is_text=is_text), _value(pair["value"], is_text=is_text)) for pair in scalar.values
        ]
    if pa.types.is_struct(kind):
        return {name: _value(scalar[name], is_text=is_text) for name in scalar}
    if pa.types.is_nested(kind):
        return [_value(item, is_text=is_text) for item in scalar.values]
    return scalar.as_py()


def _with_texts(kind: pa.DataType) -> pa.DataType:
    """Return the type with text instead of dates and times."""
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_map(kind):
        return pa.map_(_with_texts(kind.key_type), _with_texts(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_texts(field.type)) for field in kind])
    if pa.types.is_nested(kind):
        return pa.list_(kind.value_field.with_type(_with_texts(kind.value_type)))
    return kind
