"""Rows that an INSERT brings as Arrow, whose columns are found by name, as columns of its table.

Covers: columns that they do not bring, what each row does. Does not cover: rows as text and values (rows.py), types
(tilth.storage).
Always holds: a column that they do not bring gets its default, one that is computed from others is computed last.

Tests: tests/unit/statements/inserts/test_insert.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from tilth.formats import Reading, column_array, op_array
from tilth.model.computed import reached_ids
from tilth.model.table import OP_COLUMN, Column
from tilth.statements.inserts.rows import (
    COMPUTED,
    OP,
    Compute,
    InsertTarget,
    Postponed,
    check_deletes,
    over_columns,
    target_columns,
)
from tilth.storage import arrow_type, conform_column


def completed(target: InsertTarget, rows: pa.Table, compute: Compute) -> pa.Table:
    """Return the rows with the defaults of missing columns and with row operations as numbers."""
    columns = target_columns(target, rows.column_names)
    given = {column.name for column in columns}
    has_op = OP in columns
    computed: list[Column] = []
    over: list[Column] = []
    if has_op:
        index = columns.index(OP)
        rows = rows.set_column(index, OP_COLUMN, op_array(rows.column(index)))
    for position, column in enumerate(target.schema.columns, start=1):
        if column.name in given:
            continue
        if has_op:
            check_deletes(target, column)
        # Rows that delete may lack the column; others are checked when they are written.
        if has_op and column.default is None and not column.expression and not target.needs(column):
            continue
        value = target.missing_value(column)
        if column.expression:
            over.append(column)
        elif value is COMPUTED:
            computed.append(column)
        elif value is not None:
            filled = column_array(column, [value] * rows.num_rows, reading=Reading(), position=position)
            rows = rows.append_column(column.name, filled)
    if isinstance(compute, Postponed):
        compute.lacks.update((column.name, [True] * rows.num_rows) for column in (*computed, *over))
    for name, values in (compute(computed, rows.num_rows) if computed else {}).items():
        rows = rows.append_column(name, values)
    return _with_expressions(target, rows, over, compute) if over else rows


def _with_expressions(target: InsertTarget, rows: pa.Table, columns: Sequence[Column], compute: Compute) -> pa.Table:
    """Return the rows with these columns, which are computed from the others."""
    ids = reached_ids(target.schema, (column.id for column in columns))
    # Rows that delete may lack any of them.
    named = [msgspec.structs.replace(each, nullable=True) for each in target.schema.columns if each.id in ids]
    given = {name.lower(): values for name, values in zip(rows.column_names, rows.columns, strict=True)}
    known = {
        each.name: conform_column(given[each.name.lower()], each)
        if each.name.lower() in given
        else pa.nulls(rows.num_rows, arrow_type(each.type))
        for each in named
    }
    for _, values in over_columns(target.schema, columns, known, compute):
        known |= values
        for name, array in values.items():
            rows = rows.append_column(name, array)
    return rows
