"""Rows as text, in the formats that INSERT .. FORMAT takes. Pure.

Always holds: either all rows are read or an error tells the row that cannot be; a column that a row does not bring
gets its default.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tilth.model.row_op import OP_COLUMN, OP_UPSERT, is_op_name
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Kind, Simple
from tilth.sql.errors import BadValueError, UnknownColumnError
from tilth.sql.values import column_array, literal, op_numbers
from tilth.storage import (
    ENABLE_UNIQUE_PARTIAL_UPDATE,
    PARTITION_LEVEL_UNIQUE_KEYS,
    UniqueKeyNullError,
    table_value,
)

#: Says what a row does that comes into a table with a unique key; it is no column of the table.
OP = Column(id=0, name=OP_COLUMN, type=Simple(Kind.STRING))
_CSV_NULL = "\\N"

# A row's values as text or JSON gave them.
Values = Sequence[Any]


@dataclass(frozen=True, slots=True)
class InsertTarget:
    """The columns that an INSERT may bring: those of the table, and for a table with a unique key `_op`."""

    schema: Schema
    #: As the schema spells them.
    key: frozenset[str] = frozenset()
    #: The columns of PARTITION BY, where keys are looked for in the row's partition only.
    place: frozenset[str] = frozenset()
    #: Whether NULL means that the row which is there keeps its value.
    is_partial: bool = False

    def find(self, name: str) -> Column | None:
        """The column of that name; OP for `_op` and its alias, unless the table has a column called so."""
        found = self.schema.find(name)
        return OP if found is None and self.key and is_op_name(name) else found

    # Any: a value of the column's type, or None.
    def missing_value(self, column: Column) -> Any:
        """What a row gets that does not bring the column; raises BadValueError where that is not known here, and
        UniqueKeyNullError for a column of the key."""
        if column.name in self.key and column.default is None:
            hint = "each row needs a value in each column of the UNIQUE KEY"
            raise UniqueKeyNullError("a column of the unique key is missing", column=column.name, hint=hint)
        if self.is_partial and column.nullable:
            return None
        return default_of(column)

    def needs(self, column: Column) -> bool:
        """Whether a row that only deletes must bring the column: its key, and what tells where it is."""
        return column.name in self.key or column.name in self.place


def target_of(table: TableDef) -> InsertTarget:
    """What an INSERT into the table may bring."""
    if not table.unique_key:
        return InsertTarget(table.schema)
    is_local = table_value(table, PARTITION_LEVEL_UNIQUE_KEYS)
    return InsertTarget(
        table.schema,
        key=_exact(table.schema, table.unique_key),
        place=_exact(table.schema, [each.column for each in table.partition_by]) if is_local else frozenset(),
        is_partial=table_value(table, ENABLE_UNIQUE_PARTIAL_UPDATE),
    )


def _exact(schema: Schema, names: Iterable[str]) -> frozenset[str]:
    columns = (schema.find(name) for name in names)
    return frozenset(column.name for column in columns if column is not None)


def check_deletes(target: InsertTarget, column: Column) -> None:
    """Raises BadValueError where a row that deletes does not bring the column and needs it to find its key."""
    if column.name in target.place and column.name not in target.key:
        hint = "keys are unique within a partition, so the row must tell in which one it is"
        raise BadValueError("a row that deletes does not name its partition", column=column.name, hint=hint)


@dataclass(frozen=True, slots=True)
class TextRows:
    """Rows that have been split into values, not yet read as the columns' types."""

    columns: tuple[Column, ...]
    rows: list[Values]


def read_rows(target: InsertTarget, columns: Sequence[str], form: str, text: str, *, zone: tzinfo) -> pa.Table:
    """The rows in all columns of the table. `columns` are those that the text has, for formats without names.

    Raises BadValueError and UnknownColumnError with row and column.
    """
    reader = _READERS.get(form.lower())
    if reader is None:
        raise BadValueError("rows of this format are not read", format=form, hint=f"use one of {', '.join(_NAMES)}")
    given = reader(target, target_columns(target, columns), text)
    return table_of_rows(target, given.columns, given.rows, zone=zone)


def target_columns(target: InsertTarget, names: Sequence[str]) -> tuple[Column, ...]:
    """The columns that an INSERT names; all of the table, if it names none."""
    found: list[Column] = []
    for name in names:
        column = target.find(name)
        if column is None:
            raise UnknownColumnError(column=name, hint=f"the columns are: {', '.join(target.schema.names)}")
        if column in found:
            raise BadValueError("a column is named twice", column=name)
        found.append(column)
    return tuple(found) or target.schema.columns


def table_of_rows(target: InsertTarget, columns: Sequence[Column], rows: Sequence[Values], *, zone: tzinfo) -> pa.Table:
    """The rows in all columns of the table, and `_op` where one of them deletes.

    Raises BadValueError naming row, position and column, and UniqueKeyNullError for a row without its key.
    """
    for number, row in enumerate(rows, start=1):
        if len(row) != len(columns):
            raise BadValueError(
                "a row has another number of values than there are columns",
                row=number,
                values=len(row),
                columns=f"{len(columns)} ({', '.join(column.name for column in columns)})",
            )
    position = {column.name: index for index, column in enumerate(columns)}
    deletes = _deletes(columns, rows)
    arrays: dict[str, pa.Array] = {}
    for column in target.schema.columns:
        index = position.get(column.name, -1)
        values = _values(target, column, index, rows, deletes)
        if column.name in target.key:
            _check_key(column, values, index + 1)
        arrays[column.name] = column_array(column, values, zone=zone, position=index + 1, optional=deletes)
    if deletes:
        arrays[OP_COLUMN] = pa.array(deletes, pa.int8())
    return pa.table(arrays)


def _deletes(columns: Sequence[Column], rows: Sequence[Values]) -> list[int]:
    """For each row whether it deletes; empty if none does."""
    if OP not in columns:
        return []
    index = columns.index(OP)
    ops = op_numbers([OP_UPSERT if row[index] is ABSENT else row[index] for row in rows], position=index + 1)
    return ops if any(ops) else []


def _values(target: InsertTarget, column: Column, index: int, rows: Sequence[Values], deletes: Sequence[int]) -> Values:
    """The column's values, by its place in the rows; -1: they do not bring it."""
    given: Values = [ABSENT] * len(rows) if index < 0 else [row[index] for row in rows]
    if index >= 0 and not any(value is ABSENT for value in given):
        return given
    if deletes and any(value is ABSENT and deletes[row] for row, value in enumerate(given)):
        check_deletes(target, column)
    if deletes and not target.needs(column):
        given = [None if value is ABSENT and deletes[row] else value for row, value in enumerate(given)]
        if not any(value is ABSENT for value in given):
            return given
    missing = target.missing_value(column)
    return [missing if value is ABSENT else value for value in given]


def _check_key(column: Column, values: Values, place: int) -> None:
    for row, value in enumerate(values, start=1):
        if value is None:
            hint = "each row needs a value in each column of the UNIQUE KEY"
            raise UniqueKeyNullError(row=row, value=place, column=column.name, hint=hint)


# Any: a value of the column's type, or None.
def default_of(column: Column) -> Any:
    """What a row gets that does not bring the column; raises BadValueError where that is not known here."""
    if column.default is None:
        if not column.nullable:
            raise BadValueError("a column that is NOT NULL and has no default is missing", column=column.name)
        return None
    known = literal(column.default)
    if known is None:
        raise BadValueError(
            "the default of this column is an expression, which only Spark can compute",
            column=column.name,
            default=column.default,
            hint="give the column a value, or use INSERT .. SELECT",
        )
    return known[0]


class _Absent:
    """Stands for a value that a JSON object does not have."""


ABSENT = _Absent()


def _json(target: InsertTarget, columns: tuple[Column, ...], text: str) -> TextRows:
    # An object may say what it does though no column was named.
    given = (*columns, OP) if target.key and columns == target.schema.columns else columns
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
    return TextRows(given, rows)


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Objects one behind the other, with blanks, line ends or commas between."""
    decoder = json.JSONDecoder(parse_float=Decimal)
    at, number = _after_blanks(text, 0), 0
    while at < len(text):
        number += 1
        try:
            record, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            line, column = error.lineno, error.colno
            raise BadValueError("not JSON", row=number, line=line, column=column, why=error.msg) from error
        if not isinstance(record, dict):
            raise BadValueError("a row is not a JSON object", row=number)
        yield record
        at = _after_blanks(text, at)


def _after_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _csv(target: InsertTarget, columns: tuple[Column, ...], text: str) -> TextRows:
    return TextRows(columns, [_csv_row(columns, cells) for cells in _csv_cells(text)])


def _csv_with_names(target: InsertTarget, columns: tuple[Column, ...], text: str) -> TextRows:
    cells = _csv_cells(text)
    header = next(cells, None)
    if header is None:
        return TextRows(columns, [])
    named = target_columns(target, header)
    return TextRows(named, [_csv_row(named, row) for row in cells])


def _csv_cells(text: str) -> Iterator[list[str]]:
    return (cells for cells in csv.reader(io.StringIO(text.lstrip("\n"), newline="")) if cells)


def _csv_row(columns: Sequence[Column], cells: list[str]) -> Values:
    """An empty cell is empty text in a column of text, and NULL in any other; `\\N` is NULL everywhere."""
    if len(cells) != len(columns):
        return cells
    return [_csv_value(column, cell) for column, cell in zip(columns, cells, strict=True)]


def _csv_value(column: Column, cell: str) -> Any:
    if cell == _CSV_NULL:
        return None
    arrow = column.type
    is_text = getattr(arrow, "kind", None) in ("string", "binary")
    if cell == "" and not is_text:
        return None
    if hasattr(arrow, "kind") or hasattr(arrow, "precision"):
        return cell
    try:
        return json.loads(cell, parse_float=Decimal)
    except json.JSONDecodeError as error:
        raise BadValueError("a nested value in CSV is written as JSON", column=column.name, given=cell) from error


_READERS: dict[str, Callable[[InsertTarget, tuple[Column, ...], str], TextRows]] = {
    "jsoneachrow": _json,
    "jsonlines": _json,
    "ndjson": _json,
    "csv": _csv,
    "csvwithnames": _csv_with_names,
}
_NAMES = ("JSONEachRow", "CSV", "CSVWithNames")
