"""Columns of a table in the files of its parts: under which name each is there, and the value where it is not.

Covers: both by the ids of the columns. Does not cover: new values of rows (deltas), Spark's scans (values/shapes.py).
Always holds: a column that was renamed finds its values; one that a file lacks has its default, if that is a literal.

Tests: tests/integration/storage/test_storage_files.py.
"""

from __future__ import annotations

import re

import pyarrow as pa

from tilth.model.table import Column, Schema
from tilth.storage.errors import BadColumnError
from tilth.storage.values.arrow import FIELD_ID, arrow_type

#: Defaults that mean the same here and in Spark: a literal, perhaps with its type.
_LITERAL = re.compile(
    r"(?P<cast>CAST\()?(?:(?P<bare>-?(?:\d+(?:\.\d*)?|\.\d+)|true|false|null)"
    r"|(?:(?:DATE|TIMESTAMP|TIMESTAMP_NTZ) )?'(?P<string>[^'\\]*)')(?(cast) AS \w+(?:\(\d+,\d+\))?\))",
    re.IGNORECASE,
)


def columns_in_file(schema: Schema, stored: pa.Schema) -> list[str | None]:
    """Return the name of each column of the table in the file: by field id, so that a rename finds its data."""
    by_id = {int(field.metadata[FIELD_ID]): field.name for field in stored if FIELD_ID in (field.metadata or {})}
    if len(by_id) == len(stored):
        return [by_id.get(column.id) for column in schema.columns]
    names = set(stored.names)
    return [column.name if column.name in names else None for column in schema.columns]


def default_of(column: Column) -> pa.Scalar:
    """Return the value for rows whose file lacks the column; only literals are known without Spark."""
    target = arrow_type(column.type)
    default = column.default if column.older_default is None else column.older_default
    if default is None and not column.expression:
        return pa.scalar(None, target)
    found = None if default is None else _LITERAL.fullmatch(default.strip())
    if found is None or pa.types.is_nested(target):
        raise BadColumnError(
            "a part lacks the column, and its default is more than a literal",
            column=column.name,
            default=default,
            hint="the part can be merged when a mutation has given it the table's present columns",
        )
    text = found["string"] if found["string"] is not None else found["bare"]
    if found["bare"] is not None and text.lower() == "null":
        return pa.scalar(None, target)
    try:
        return pa.scalar(text).cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadColumnError(column=column.name, default=default, because=str(error)) from error
