"""Rows as text, in the formats that INSERT .. FORMAT takes. Pure.

Always holds: either all rows are read or an error tells the row that cannot be; a column that a row does not bring
gets its default.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tilth.model.table import Column, Schema
from tilth.sql.errors import BadValueError, UnknownColumnError
from tilth.sql.values import column_array, literal

_CSV_NULL = "\\N"

# A row's values as text or JSON gave them.
Values = Sequence[Any]


@dataclass(frozen=True, slots=True)
class TextRows:
    """Rows that have been split into values, not yet read as the columns' types."""

    columns: tuple[Column, ...]
    rows: list[Values]


def read_rows(schema: Schema, columns: Sequence[str], form: str, text: str, *, zone: tzinfo) -> pa.Table:
    """The rows in all columns of the schema. `columns` are those that the text has, for formats without names.

    Raises BadValueError and UnknownColumnError with row and column.
    """
    reader = _READERS.get(form.lower())
    if reader is None:
        raise BadValueError("rows of this format are not read", format=form, hint=f"use one of {', '.join(_NAMES)}")
    given = reader(schema, target_columns(schema, columns), text)
    return table_of_rows(schema, given.columns, given.rows, zone=zone)


def target_columns(schema: Schema, names: Sequence[str]) -> tuple[Column, ...]:
    """The columns that an INSERT names; all, if it names none."""
    found: list[Column] = []
    for name in names:
        column = schema.find(name)
        if column is None:
            raise UnknownColumnError(column=name, hint=f"the columns are: {', '.join(schema.names)}")
        if column in found:
            raise BadValueError("a column is named twice", column=name)
        found.append(column)
    return tuple(found) or schema.columns


def table_of_rows(schema: Schema, columns: Sequence[Column], rows: Sequence[Values], *, zone: tzinfo) -> pa.Table:
    """The rows in all columns of the schema; raises BadValueError naming row, position and column."""
    for number, row in enumerate(rows, start=1):
        if len(row) != len(columns):
            raise BadValueError(
                "a row has another number of values than there are columns",
                row=number,
                values=len(row),
                columns=f"{len(columns)} ({', '.join(column.name for column in columns)})",
            )
    position = {column.name: index for index, column in enumerate(columns)}
    arrays: dict[str, pa.Array] = {}
    for column in schema.columns:
        index = position.get(column.name)
        values: Values = [row[index] for row in rows] if index is not None else [default_of(column)] * len(rows)
        values = [default_of(column) if value is ABSENT else value for value in values]
        arrays[column.name] = column_array(column, values, zone=zone, position=0 if index is None else index + 1)
    return pa.table(arrays)


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


def _json(schema: Schema, columns: tuple[Column, ...], text: str) -> TextRows:
    positions = {column.name: index for index, column in enumerate(columns)}
    rows: list[Values] = []
    for number, record in enumerate(_json_objects(text), start=1):
        row: list[Any] = [ABSENT] * len(columns)
        for name, value in record.items():
            index = positions.get(name)
            if index is None:
                column = schema.find(name)
                index = positions.get(column.name) if column is not None else None
            if index is None:
                raise UnknownColumnError(column=name, row=number, hint=f"the columns are: {', '.join(positions)}")
            row[index] = value
        rows.append(row)
    return TextRows(columns, rows)


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


def _csv(schema: Schema, columns: tuple[Column, ...], text: str) -> TextRows:
    return TextRows(columns, [_csv_row(columns, cells) for cells in _csv_cells(text)])


def _csv_with_names(schema: Schema, columns: tuple[Column, ...], text: str) -> TextRows:
    cells = _csv_cells(text)
    header = next(cells, None)
    if header is None:
        return TextRows(columns, [])
    named = target_columns(schema, header)
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


_READERS: dict[str, Callable[[Schema, tuple[Column, ...], str], TextRows]] = {
    "jsoneachrow": _json,
    "jsonlines": _json,
    "ndjson": _json,
    "csv": _csv,
    "csvwithnames": _csv_with_names,
}
_NAMES = ("JSONEachRow", "CSV", "CSVWithNames")
