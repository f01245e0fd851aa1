"""Rows that an INSERT brings by value, as columns of its table. Pure.

Covers: which columns they may have, what rows get that do not bring a column. Does not cover: splitting a text into
rows, what a value is (tilth.formats).
Always holds: either all rows are read or an error names the row that cannot be; a column that a row does not bring
gets its default, one that is computed from others is computed last.

Tests: tests/unit/formats/test_values.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.formats import (
    ABSENT,
    BadValueError,
    Given,
    Reading,
    RowOptions,
    TextRows,
    Values,
    cells_values,
    column_array,
    format_names,
    is_text,
    rows_format,
    shown,
    texts_array,
    wrong_width,
)
from tilth.model.computed import in_dependency_order, stored_ids
from tilth.model.table import OP_COLUMN, OP_UPSERT, Column, ColumnKind, Schema, TableDef, is_op_name, op_of
from tilth.model.types import Kind, Simple
from tilth.query.errors import UnknownColumnError
from tilth.query.language.values import literal
from tilth.statements.errors import ComputedColumnError
from tilth.storage import UniqueKeyNullError, arrow_type, storage_settings

#: Says what a row does that comes into a table with a unique key; it is no column of the table.
OP = Column(id=0, name=OP_COLUMN, type=Simple(Kind.STRING))

#: Values of computed defaults by the names of their columns, for so many rows; of expressions over other columns for
#: these rows (defaults.py).
Compute = Callable[[Sequence[Column], int | pa.Table], Mapping[str, pa.Array]]


class Postponed:
    """Leaves values to be computed later, and notes which rows lack them."""

    def __init__(self) -> None:
        #: Flags by column, `True` for each row that lacks its value.
        self.lacks: dict[str, Sequence[bool]] = {}

    def __call__(self, columns: Sequence[Column], rows: int | pa.Table) -> Mapping[str, pa.Array]:
        """Return NULL for each row."""
        count = rows.num_rows if isinstance(rows, pa.Table) else rows
        return {column.name: pa.nulls(count, arrow_type(column.type)) for column in columns}


class _Computed:
    """Stands for a value that is computed for each INSERT."""


COMPUTED = _Computed()


@dataclass(frozen=True, slots=True)
class InsertTarget:
    """The columns that an INSERT may bring: those of the table, and for a table with a unique key `_op`."""

    schema: Schema
    #: Columns of the key, as the schema spells them.
    key: frozenset[str] = frozenset()
    #: The columns of PARTITION BY, where keys are searched in the row's partition only.
    partition_columns: frozenset[str] = frozenset()
    #: `True` if NULL keeps the value of the existing row.
    is_partial: bool = False

    def find(self, name: str) -> Column | None:
        """Return the column of that name; OP for `_op` and its alias, unless the table has a column of that name.

        Raises ComputedColumnError for one that no INSERT brings.
        """
        found = self.schema.find_any(name)
        if found is not None and found.kind is not ColumnKind.DEFAULT:
            when = "when it is read" if found.kind is ColumnKind.ALIAS else "from the others when a row is written"
            hint = f"leave it out: it is {found.kind}, computed {when}"
            raise ComputedColumnError("no INSERT brings this column", column=found.name, hint=hint)
        return OP if found is None and self.key and is_op_name(name) else found

    # Any: a value of the column's type, or None.
    def missing_value(self, column: Column) -> Any:
        """Value of a row that does not bring the column, COMPUTED where it is not known here.

        Raises BadValueError where nothing is, and UniqueKeyNullError for a column of the key.
        """
        if column.name in self.key and column.default is None:
            hint = "each row needs a value in each column of the UNIQUE KEY"
            raise UniqueKeyNullError("a column of the unique key is missing", column=column.name, hint=hint)
        if self.is_partial and column.nullable and column.kind is ColumnKind.DEFAULT:
            return None
        return default_of(column)

    def needs(self, column: Column) -> bool:
        """True if a row that only deletes must bring the column: its key, and its partition."""
        return column.name in self.key or column.name in self.partition_columns


def target_of(table: TableDef) -> InsertTarget:
    if not table.unique_key:
        return InsertTarget(table.schema)
    settings = storage_settings(table)
    is_local = settings.partition_level_unique_keys
    return InsertTarget(
        table.schema,
        key=_exact(table.schema, table.unique_key),
        partition_columns=_exact(table.schema, [each.column for each in table.partition_by])
        if is_local
        else frozenset(),
        is_partial=settings.enable_unique_partial_update,
    )


def _exact(schema: Schema, names: Iterable[str]) -> frozenset[str]:
    columns = (schema.find(name) for name in names)
    return frozenset(column.name for column in columns if column is not None)


def check_deletes(target: InsertTarget, column: Column) -> None:
    """Raises BadValueError where a row that deletes does not bring the column and needs it to find its key."""
    if column.name in target.partition_columns and column.name not in target.key:
        hint = "keys are unique within a partition, so the row must have the columns of PARTITION BY"
        raise BadValueError("a row that deletes does not name its partition", column=column.name, hint=hint)


class _InsertColumns:
    """The columns that the rows of one INSERT .. FORMAT may bring: those that it names."""

    def __init__(self, target: InsertTarget, columns: tuple[Column, ...], *, skip_unknown: bool) -> None:
        self.ordered = columns
        # An object may say what it does though no column was named.
        self.named = (*columns, OP) if target.key and columns == target.schema.inserted else columns
        self._target = target
        self._skip_unknown = skip_unknown

    def find(self, name: str, row: int | None) -> Column | None:
        column = self._target.find(name)
        if column in self.named:
            return column
        if self._skip_unknown:
            return None
        facts: dict[str, Any] = {} if row is None else {"row": row}
        hint = f"the columns are: {', '.join(each.name for each in self.named)}"
        raise UnknownColumnError(column=name, **facts, hint=hint)


def read_rows(
    target: InsertTarget,
    columns: Sequence[str],
    form: str,
    text: str,
    *,
    reading: Reading,
    compute: Compute,
    options: RowOptions = RowOptions(),
) -> pa.Table:
    """The rows in all columns of the table. `columns` are those that the text has, for formats without names.

    Raises BadValueError and UnknownColumnError with row and column.
    """
    found = rows_format(form)
    if found is None or found.read is None:
        hint = f"use one of {', '.join(format_names(lambda each: each.read))}"
        raise BadValueError("rows of this format are not supported", format=form, hint=hint)
    named = _InsertColumns(target, target_columns(target, columns), skip_unknown=options.skip_unknown)
    given = _with_gaps(target, found.read(text, named, options))
    return _in_table(target, given, reading=replace(reading, is_base64=True), compute=compute)


def _with_gaps(target: InsertTarget, given: TextRows) -> TextRows:
    """Put ABSENT where a text stands for a value that is not there: the column's default is stored instead.

    That is NULL in a column that cannot hold it, and an empty cell.
    """
    values = [
        _gaps(values, column, are_cells=given.are_cells) if _has_default(target, column) else values
        for column, values in zip(given.columns, given.values, strict=True)
    ]
    return msgspec.structs.replace(given, values=values)


def _has_default(target: InsertTarget, column: Column) -> bool:
    return column is not OP and column.name not in target.key and column.default is not None


def _gaps(values: Values | pa.Array, column: Column, *, are_cells: bool) -> Values | pa.Array:
    is_gap_empty = are_cells and not is_text(column)
    if isinstance(values, pa.Array):
        has_gaps = (values.null_count and not column.nullable) or (
            is_gap_empty and pc.any(pc.equal(values, "")).as_py()
        )
        if not has_gaps:
            return values
        values = values.to_pylist()
    return [
        ABSENT if (value is None and not column.nullable) or (is_gap_empty and value == "") else value
        for value in values
    ]


def target_columns(target: InsertTarget, names: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns that an INSERT names; all of the table, if it names none."""
    found: dict[str, Column] = {}
    for name in names:
        column = target.find(name)
        if column is None:
            names_there = ", ".join(each.name for each in target.schema.inserted)
            raise UnknownColumnError(column=name, hint=f"the columns are: {names_there}")
        if column.name in found:
            raise BadValueError("a column is named twice", column=name)
        found[column.name] = column
    return tuple(found.values()) or target.schema.inserted


def table_of_rows(
    target: InsertTarget, columns: Sequence[Column], rows: Sequence[Values], *, reading: Reading, compute: Compute
) -> pa.Table:
    """The rows in all columns of the table, and `_op` where one of them deletes.

    Raises BadValueError naming row, position and column, and UniqueKeyNullError for a row without its key.
    """
    for number, row in enumerate(rows, start=1):
        if len(row) != len(columns):
            raise wrong_width(columns, row=number, values=len(row))
    given = TextRows(tuple(columns), list(zip(*rows, strict=True)), len(rows))
    return _in_table(target, given, reading=reading, compute=compute)


def _in_table(target: InsertTarget, given: TextRows, *, reading: Reading, compute: Compute) -> pa.Table:
    position = {column.name: index for index, column in enumerate(given.columns)}
    deletes = _deletes(given)
    values = {
        column.name: _values(target, column, given, position.get(column.name, -1), deletes)
        for column in target.schema.columns
    }
    lacking = [column for column in target.schema.columns if _is_computed(values[column.name])]
    if isinstance(compute, Postponed):
        compute.lacks.update((each.name, [value is COMPUTED for value in values[each.name]]) for each in lacking)
    last = [column for column in lacking if column.expression]
    first = [column for column in lacking if not column.expression]
    computed = compute(first, given.count) if first else {}
    arrays: dict[str, pa.Array] = {}

    def array_of_column(column: Column, computed: Mapping[str, pa.Array]) -> pa.Array:
        ordinal = position.get(column.name, -1) + 1
        of_column = values[column.name]
        if column.name in target.key:
            _check_key(column, of_column, ordinal)
        if isinstance(of_column, pa.Array):
            return texts_array(column, of_column, reading=reading, position=ordinal, optional=deletes)
        if given.are_cells:
            of_column = cells_values(column, of_column)
        if column.name in computed:
            return _with_computed(column, of_column, computed[column.name], reading, ordinal, deletes)
        return column_array(column, of_column, reading=reading, position=ordinal, optional=deletes)

    for column in target.schema.columns:
        if column not in last:
            arrays[column.name] = array_of_column(column, computed)
    for columns, found in over_columns(target.schema, last, arrays, compute):
        arrays |= {column.name: array_of_column(column, found) for column in columns}
    if deletes:
        arrays[OP_COLUMN] = pa.array(deletes, pa.int8())
    return pa.table({name: arrays[name] for name in (*target.schema.names, *([OP_COLUMN] if deletes else []))})


def over_columns(
    schema: Schema, columns: Sequence[Column], known: Mapping[str, pa.Array], compute: Compute
) -> Iterator[tuple[Sequence[Column], Mapping[str, pa.Array]]]:
    """Yield columns with their values for all rows, one behind those that it is made of; the caller puts what it makes
    of them beside what is known before it requests the next.
    """
    for ready in in_dependency_order(columns, schema):
        ids = frozenset[int]().union(*(stored_ids(schema, column.expression) for column in ready))
        named = [column.name for column in schema.columns if column.id in ids]
        yield ready, compute(ready, pa.table({name: known[name] for name in named}))


def _is_computed(values: Values | pa.Array) -> bool:
    return not isinstance(values, pa.Array) and any(value is COMPUTED for value in values)


def _with_computed(
    column: Column, values: Values, computed: pa.Array, reading: Reading, ordinal: int, deletes: Sequence[int]
) -> pa.Array:
    """Combine the given values with the computed ones in the other rows."""
    lacks = [value is COMPUTED for value in values]
    optional = [int(one or (bool(deletes) and bool(deletes[row]))) for row, one in enumerate(lacks)]
    known = [None if value is COMPUTED else value for value in values]
    array = column_array(column, known, reading=reading, position=ordinal, optional=optional)
    indexes = np.arange(len(values)) + np.where(lacks, len(values), 0)
    return pa.concat_arrays([array, computed]).take(pa.array(indexes))


def _deletes(given: TextRows) -> list[int]:
    """Return 1 for each row that deletes, else 0; empty if none does."""
    if OP not in given.columns:
        return []
    index = given.columns.index(OP)
    values = _listed(given.values[index])
    ops = op_numbers([OP_UPSERT if value is ABSENT else value for value in values], position=index + 1)
    return ops if any(ops) else []


def _listed(values: Values | pa.Array) -> Values:
    return values.to_pylist() if isinstance(values, pa.Array) else values


def op_numbers(values: Sequence[Given], *, position: int) -> list[int]:
    """Return the row operations of a column `_op`; raises BadValueError naming the row."""
    ops: list[int] = []
    for row, value in enumerate(values, start=1):
        try:
            ops.append(op_of(value))
        except ValueError as error:
            raise BadValueError(row=row, value=position, column=OP_COLUMN, given=shown(value), why=error) from error
    return ops


def _values(
    target: InsertTarget, column: Column, rows: TextRows, index: int, deletes: Sequence[int]
) -> Values | pa.Array:
    """Return the column's values, by its position in the rows; -1: they do not bring it."""
    given: Values | pa.Array = [ABSENT] * rows.count if index < 0 else rows.values[index]
    if isinstance(given, pa.Array) or not any(value is ABSENT for value in given):
        return given
    if deletes and any(value is ABSENT and deletes[row] for row, value in enumerate(given)):
        check_deletes(target, column)
    if deletes and not target.needs(column):
        given = [None if value is ABSENT and deletes[row] else value for row, value in enumerate(given)]
        if not any(value is ABSENT for value in given):
            return given
    missing = target.missing_value(column)
    return [missing if value is ABSENT else value for value in given]


def _check_key(column: Column, values: Values | pa.Array, ordinal: int) -> None:
    for row, value in enumerate(_listed(values), start=1):
        if value is None:
            hint = "each row needs a value in each column of the UNIQUE KEY"
            raise UniqueKeyNullError(row=row, value=ordinal, column=column.name, hint=hint)


# Any: a value of the column's type, None, or COMPUTED.
def default_of(column: Column) -> Any:
    """Return the value of a row that does not bring the column; raises BadValueError where there is none."""
    if column.expression:
        return COMPUTED
    if column.default is None:
        if not column.nullable:
            raise BadValueError("a column that is NOT NULL and has no default is missing", column=column.name)
        return None
    known = None if column.is_default_computed else literal(column.default)
    return COMPUTED if known is None else known[0]
