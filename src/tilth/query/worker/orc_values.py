"""Columns that ORC can carry.

Covers: names and types of columns, days and times. Does not cover: writing (export_spark.py).
Always holds: what is written means the same to other readers, or is refused by its column's name: readers take days
before 1582-10-15 for those of the Julian calendar, as Arrow does not note in the file that they are none; and they do
not read the parts of seconds that Arrow writes before 1970.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tilth.formats import BadValueError

#: Days and microseconds of 1582-10-15, the first day of the Gregorian calendar, since 1970.
FIRST_DAY = -141_427
_FIRST_MICROS = FIRST_DAY * 86_400_000_000
_MICROS = 1_000_000


def orc_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns as they are written: ORC has none without a type."""
    fields = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema]
    return pa.schema(fields)


def check_orc_values(table: pa.Table) -> None:
    """Raises BadValueError for a value that readers of ORC would take for another."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        for chunk in column.chunks:
            for leaf in _leaves(chunk):
                _check(name, leaf)


def _check(name: str, values: pa.Array) -> None:
    if pa.types.is_date32(values.type):
        bad = pc.less(values.view(pa.int32()), FIRST_DAY)
        why = "ORC has no days before 1582-10-15"
    elif pa.types.is_timestamp(values.type):
        micros = values.view(pa.int64())
        whole = pc.equal(pc.multiply(pc.divide(micros, _MICROS), _MICROS), micros)
        is_part = pc.and_(pc.less(micros, 0), pc.invert(whole))
        bad = pc.or_(pc.less(micros, _FIRST_MICROS), is_part)
        why = "ORC has no times before 1582-10-15, and before 1970 whole seconds only"
    else:
        return
    if pc.any(bad).as_py():
        value = values.filter(bad).slice(0, 1).cast(pa.string())[0].as_py()
        hint = "write FORMAT PARQUET, or CAST the column to STRING"
        raise BadValueError(why, column=name, value=value, hint=hint)


def _leaves(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of values without others in them, those of NULLs left out."""
    kind = values.type
    if pa.types.is_struct(kind):
        for each in values.flatten():
            yield from _leaves(each)
    elif pa.types.is_map(kind):
        yield from _leaves(values.cast(pa.list_(pa.struct([("k", kind.key_type), ("v", kind.item_type)]))))
    elif pa.types.is_list(kind):
        yield from _leaves(values.flatten())
    else:
        yield values
