"""Rows of JSON that an INSERT brings, read in C where the result is that of reading by value.

Covers: which INSERTs can be read so, cached readers. Does not cover: reading by value, which has the last word
(rows.py), decoding (ingest/messages/objects.py).
Always holds: returned rows are those that `read_rows` would return; for all other bodies, bad rows among them, None is
returned.

Tests: tests/property/test_insert_objects.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from functools import lru_cache

import pyarrow as pa

from tilth.base.errors import TilthError
from tilth.formats import Reading, RowOptions, rows_format
from tilth.ingest import KafkaConfig, ObjectReader
from tilth.model.table import Schema
from tilth.statements.inserts.rows import InsertTarget

#: Readers that are cached, each for the columns of a table at one time.
READERS_CACHED = 256
#: A longer text is read by value: the objects of all its rows would be in memory beside it.
CHARACTERS_MAX = 1 << 20


def read_objects(
    target: InsertTarget, columns: Sequence[str], form: str, data: str, *, reading: Reading, options: RowOptions
) -> pa.Table | None:
    """Return the rows in all columns of the table; None: they must be read by value. The arguments are those of
    `read_rows`.
    """
    found = rows_format(form)
    is_plain = not columns and not target.key and not options.skip_unknown and reading.zone is UTC
    if found is None or not found.is_objects or not is_plain or len(data) > CHARACTERS_MAX:
        return None
    reader = _reader_of(target.schema)
    if reader is None:
        return None
    stored = target.schema.columns
    try:
        records = reader.in_c(data.encode())
        if records is None:
            return None
        values = reader.columns(records, range(len(stored)))
        arrays = [reader.array(given, column) for given, column in zip(values, stored, strict=True)]
    # Reading by value says which row it is, and why.
    except (TilthError, ValueError, TypeError, ArithmeticError, RecursionError, pa.ArrowException):
        return None
    return pa.table(arrays, names=target.schema.names)


@lru_cache(READERS_CACHED)
def _reader_of(schema: Schema) -> ObjectReader | None:
    """Return a reader for these columns; None: rows may lack a value of one of them."""
    if any(column.expression or column.default is not None for column in schema.columns):
        return None
    return ObjectReader(schema, KafkaConfig(table="", skip_unknown=False), {})
