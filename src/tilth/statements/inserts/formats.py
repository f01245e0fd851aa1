"""Rows as text, in the formats that INSERT .. FORMAT takes. Pure.

Covers: JSON, which columns a text has, what rows get that do not bring a column. Does not cover: CSV (csv_texts.py).
Always holds: either all rows are read or an error names the row that cannot be; a column that a row does not bring
gets its default, one that is computed from others is computed last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tilth.model.computed import in_dependency_order, stored_ids
from tilth.model.table import OP_COLUMN, OP_UPSERT, Column, ColumnKind, Schema, TableDef, is_op_name
from tilth.model.types import Kind, Simple
from tilth.query.errors import BadValueError, ComputedColumnError, UnknownColumnError
from tilth.query.language.values import Reading, column_array, literal, op_numbers
from tilth.statements.inserts.csv_texts import csv_texts, texts_array
from tilth.storage import UniqueKeyNullError, storage_settings

#: Says what a row does that comes into a table with a unique key; it is no column of the table.
OP = Column(id=0, name=OP_COLUMN, type=Simple(Kind.STRING))

# The values of a row or of a column as text or JSON gave them.
Values = Sequence[Any]
#: Values of computed defaults by the names of their columns, for so many rows; of expressions over other columns for
#: these rows (defaults.py).
Compute = Callable[[Sequence[Column], int | pa.Table], Mapping[str, pa.Array]]


class _Missing:
    """Stands for a value that is not there."""


#: Value that a JSON object does not have.
ABSENT = _Missing()
#: Value that is computed for each INSERT.
COMPUTED = _Missing()


@dataclass(frozen=True, slots=True)
class InsertTarget:
    """The columns that an INSERT may bring: those of the table, and for a table with a unique key `_op`."""

    schema: Schema
    #: Columns of the key, as the schema spells them.
    key: frozenset[str] = frozenset()
    #: The columns of PARTITION BY, where keys are looked for in the row's partition only.
    place: frozenset[str] = frozenset()
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
        return column.name in self.key or column.name in self.place


def target_of(table: TableDef) -> InsertTarget:
    if not table.unique_key:
        return InsertTarget(table.schema)
    settings = storage_settings(table)
    is_local = settings.partition_level_unique_keys
    return InsertTarget(
        table.schema,
        key=_exact(table.schema, table.unique_key),
        place=_exact(table.schema, [each.column for each in table.partition_by]) if is_local else frozenset(),
        is_partial=settings.enable_unique_partial_update,
    )


def _exact(schema: Schema, names: Iterable[str]) -> frozenset[str]:
    columns = (schema.find(name) for name in names)
    return frozenset(column.name for column in columns if column is not None)


def check_deletes(target: InsertTarget, column: Column) -> None:
    """Raises BadValueError where a row that deletes does not bring the column and needs it to find its key."""
    if column.name in target.place and column.name not in target.key:
        hint = "keys are unique within a partition, so the row must have the columns of PARTITION BY"
        raise BadValueError("a row that deletes does not name its partition", column=column.name, hint=hint)


@dataclass(frozen=True, slots=True)
class TextRows:
    """Rows that have been split into values, not yet read as the columns' types."""

    columns: tuple[Column, ...]
    #: Values by column; CSV texts as they are, NULL among them.
    values: Sequence[Values | pa.Array]
    count: int


def read_rows(
    target: InsertTarget, columns: Sequence[str], form: str, text: str, *, reading: Reading, compute: Compute
) -> pa.Table:
    """The rows in all columns of the table. `columns` are those that the text has, for formats without names.

    Raises BadValueError and UnknownColumnError with row and column.
    """
    reader = _READERS.get(form.lower())
    if reader is None:
        raise BadValueError(
            "rows of this format are not supported", format=form, hint=f"use one of {', '.join(_NAMES)}"
        )
    given = reader(target, target_columns(target, columns), text)
    return _in_table(target, given, reading=replace(reading, is_base64=True), compute=compute)


def target_columns(target: InsertTarget, names: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns that an INSERT names; all of the table, if it names none."""
    found: list[Column] = []
    for name in names:
        column = target.find(name)
        if column is None:
            names_there = ", ".join(each.name for each in target.schema.inserted)
            raise UnknownColumnError(column=name, hint=f"the columns are: {names_there}")
        if column in found:
            raise BadValueError("a column is named twice", column=name)
        found.append(column)
    return tuple(found) or target.schema.inserted


def table_of_rows(
    target: InsertTarget, columns: Sequence[Column], rows: Sequence[Values], *, reading: Reading, compute: Compute
) -> pa.Table:
    """The rows in all columns of the table, and `_op` where one of them deletes.

    Raises BadValueError naming row, position and column, and UniqueKeyNullError for a row without its key.
    """
    for number, row in enumerate(rows, start=1):
        if len(row) != len(columns):
            raise _wrong_width(columns, row=number, values=len(row))
    given = TextRows(tuple(columns), list(zip(*rows, strict=True)), len(rows))
    return _in_table(target, given, reading=reading, compute=compute)


def _wrong_width(columns: Sequence[Column], *, row: int, values: int) -> BadValueError:
    return BadValueError(
        "a row has another number of values than there are columns",
        row=row,
        values=values,
        columns=f"{len(columns)} ({', '.join(column.name for column in columns)})",
    )


def _in_table(target: InsertTarget, given: TextRows, *, reading: Reading, compute: Compute) -> pa.Table:
    position = {column.name: index for index, column in enumerate(given.columns)}
    deletes = _deletes(given)
    values = {
        column.name: _values(target, column, given, position.get(column.name, -1), deletes)
        for column in target.schema.columns
    }
    lacking = [column for column in target.schema.columns if _is_computed(values[column.name])]
    last = [column for column in lacking if column.expression]
    first = [column for column in lacking if not column.expression]
    computed = compute(first, given.count) if first else {}
    arrays: dict[str, pa.Array] = {}

    def array_of_column(column: Column, computed: Mapping[str, pa.Array]) -> pa.Array:
        place = position.get(column.name, -1) + 1
        of_column = values[column.name]
        if column.name in target.key:
            _check_key(column, of_column, place)
        if isinstance(of_column, pa.Array):
            return texts_array(column, of_column, reading=reading, position=place, optional=deletes)
        if column.name in computed:
            return _with_computed(column, of_column, computed[column.name], reading, place, deletes)
        return column_array(column, of_column, reading=reading, position=place, optional=deletes)

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
    of them beside what is known before it asks for the next.
    """
    for ready in in_dependency_order(columns, schema):
        ids = frozenset[int]().union(*(stored_ids(schema, column.expression) for column in ready))
        named = [column.name for column in schema.columns if column.id in ids]
        yield ready, compute(ready, pa.table({name: known[name] for name in named}))


def _is_computed(values: Values | pa.Array) -> bool:
    return not isinstance(values, pa.Array) and any(value is COMPUTED for value in values)


def _with_computed(
    column: Column, values: Values, computed: pa.Array, reading: Reading, place: int, deletes: Sequence[int]
) -> pa.Array:
    """Combine the given values with the computed ones in the other rows."""
    lacks = [value is COMPUTED for value in values]
    optional = [int(one or (bool(deletes) and bool(deletes[row]))) for row, one in enumerate(lacks)]
    known = [None if value is COMPUTED else value for value in values]
    array = column_array(column, known, reading=reading, position=place, optional=optional)
    taken = np.arange(len(values)) + np.where(lacks, len(values), 0)
    return pa.concat_arrays([array, computed]).take(pa.array(taken))


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


def _values(
    target: InsertTarget, column: Column, rows: TextRows, index: int, deletes: Sequence[int]
) -> Values | pa.Array:
    """Return the column's values, by its place in the rows; -1: they do not bring it."""
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


def _check_key(column: Column, values: Values | pa.Array, place: int) -> None:
    for row, value in enumerate(_listed(values), start=1):
        if value is None:
            hint = "each row needs a value in each column of the UNIQUE KEY"
            raise UniqueKeyNullError(row=row, value=place, column=column.name, hint=hint)


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


def _json(target: InsertTarget, columns: tuple[Column, ...], text: str) -> TextRows:
    # An object may say what it does though no column was named.
    given = (*columns, OP) if target.key and columns == target.schema.inserted else columns
    positions = {column.name: index for index, column in enumerate(given)}
    rows: list[Values] = []
    for number, record in enumerate(_json_objects(text), start=1):
        row: list[Any] = [ABSENT] * len(given)
        for name, value in record.items():
            index = positions.get(name)
            if index is None:
                column = target.find(name)
                index = positions.get(column.name) if column is not None else None
            if index is None:
                raise UnknownColumnError(column=name, row=number, hint=f"the columns are: {', '.join(positions)}")
            row[index] = value
        rows.append(row)
    return TextRows(given, list(zip(*rows, strict=True)) or [()] * len(given), len(rows))


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield objects one behind the other, with blanks, line ends or commas between."""
    decoder = json.JSONDecoder(parse_float=Decimal)
    at, number = _after_blanks(text, 0), 0
    while at < len(text):
        number += 1
        start = at
        try:
            record, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            line, column = error.lineno, error.colno
            raise BadValueError("not JSON", row=number, line=line, column=column, why=error.msg) from error
        except (ValueError, RecursionError) as error:
            # Numbers of thousands of digits, thousands of brackets.
            raise BadValueError("not JSON that can be read", row=number, why=error) from error
        if not isinstance(record, dict):
            raise BadValueError("a row is not a JSON object", row=number)
        if text.find("\\u", start, at) >= 0:
            _check_unicode(record, number)
        yield record
        at = _after_blanks(text, at)


def _check_unicode(record: dict[str, Any], row: int) -> None:
    """Raises BadValueError for half of a surrogate pair, `"\\ud800"`, anywhere in names and values."""
    try:
        json.dumps(record, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        raise BadValueError("half of a surrogate pair is not valid Unicode", row=row) from error


def _after_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _csv(target: InsertTarget, columns: tuple[Column, ...], text: str) -> TextRows:
    return _csv_rows(columns, csv_texts(text, has_names=False))


def _csv_with_names(target: InsertTarget, columns: tuple[Column, ...], text: str) -> TextRows:
    cells = csv_texts(text, has_names=True)
    if not cells:
        return TextRows(columns, [()] * len(columns), 0)
    return _csv_rows(target_columns(target, [str(cell[0]) for cell in cells]), [cell.slice(1) for cell in cells])


def _csv_rows(columns: tuple[Column, ...], cells: Sequence[pa.Array]) -> TextRows:
    if cells and len(cells) != len(columns):
        raise _wrong_width(columns, row=1, values=len(cells))
    count = len(cells[0]) if cells else 0
    return TextRows(columns, list(cells) or [()] * len(columns), count)


_READERS: dict[str, Callable[[InsertTarget, tuple[Column, ...], str], TextRows]] = {
    "jsoneachrow": _json,
    "jsonlines": _json,
    "ndjson": _json,
    "csv": _csv,
    "csvwithnames": _csv_with_names,
}
_NAMES = ("JSONEachRow", "CSV", "CSVWithNames")
