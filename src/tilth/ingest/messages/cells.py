"""Messages of every format but JSON to rows.

Covers: messages to values by their format's functions, values to columns. Does not cover: what a value is
(tilth.formats).
Always holds: a message means the same whether it is read alone or with others.

Tests: tests/unit/ingest/messages/test_decode.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tilth.formats import (
    ABSENT,
    BadValueError,
    Reading,
    RowOptions,
    TextRows,
    Values,
    cells_values,
    column_array,
    is_text,
    texts_array,
)
from tilth.ingest.messages.arrays import MISFITS, checked_array, is_nested
from tilth.ingest.messages.columns import MessageColumns, format_of, missing_value
from tilth.ingest.messages.in_c import Doubts, value_decoder
from tilth.ingest.settings import KafkaConfig
from tilth.model.table import Column, Schema

# Values of a row, in the order of the columns.
Row = tuple[Any, ...]

_READING = Reading(is_base64=True)
#: Stands for the values of a broken message.
_BROKEN = object()


class CellReader:
    """Reads messages of one Kafka table in a format whose rows are no JSON objects."""

    def __init__(self, schema: Schema, config: KafkaConfig, defaults: Mapping[str, object]) -> None:
        form = format_of(config)
        assert form.read is not None
        self._read, self._read_messages = form.read, form.read_messages
        self._schema, self._defaults = schema, defaults
        self._columns = MessageColumns(schema, skip_unknown=config.skip_unknown)
        self._options = RowOptions(csv_delimiter=config.csv_delimiter, skip_unknown=config.skip_unknown)
        self._are_cells = not form.is_one_value
        self._nested = {column.name: _NestedCells(column) for column in schema.columns if is_nested(column.type)}
        #: Row of a broken message in stream mode.
        self.empty: Row = (_BROKEN,) * len(schema.columns)

    def reader_of(self, values: Sequence[bytes | None]) -> Callable[[bytes, bytes | None], list[Row]]:
        """Return a function that reads any one message; it raises an InvalidInputError with the reason."""
        return self._rows

    def _rows(self, value: bytes, _: bytes | None) -> list[Row]:
        columns = self._by_column(self._read(value, self._columns, self._options))
        return list(zip(*map(_listed, columns), strict=True))

    def read_all(self, values: Sequence[bytes | None]) -> tuple[TextRows, Sequence[int] | None] | None:
        """Return all rows, and the number of each message (None: one each); None: they must be read one by one."""
        given = [value for value in values if value]
        try:
            found = self._read_messages(given, self._columns, self._options) if self._read_messages and given else None
        except BadValueError:
            return None
        if found is None or len(given) == len(values):
            return found
        rows, counts = found
        each = iter(counts or [1] * len(given))
        return rows, [next(each) if value else 0 for value in values]

    def columns(self, rows: Sequence[Row] | TextRows, positions: Sequence[int]) -> Sequence[Values | pa.Array]:
        """Return the values of the columns at these positions."""
        if isinstance(rows, TextRows):
            columns = self._by_column(rows)
        else:
            columns = list(zip(*rows, strict=True)) or [()] * len(self._schema.columns)
        return [columns[position] for position in positions]

    def _by_column(self, rows: TextRows) -> Sequence[Values | pa.Array]:
        """Return the values of all columns in their order."""
        if rows.columns is self._schema.columns:
            return rows.values
        found = dict(zip((column.name for column in rows.columns), rows.values, strict=True))
        nothing = [ABSENT] * rows.count
        return [found.get(column.name, nothing) for column in self._schema.columns]

    def array(self, values: Values | pa.Array, column: Column) -> pa.Array:
        """Return the values as the column; raises BadValueError where one does not fit, or is missing."""
        has_broken = not isinstance(values, pa.Array) and _BROKEN in values
        optional = [value is _BROKEN for value in values] if has_broken else ()
        values = self._filled(column, values, has_broken=has_broken)
        if column.name in self._nested:
            found = self._nested[column.name].array(values)
            if found is not None:
                return found
            values = cells_values(column, _listed(values))
        elif self._are_cells:
            # A broken message has NULL in every column.
            own = msgspec.structs.replace(column, nullable=True) if has_broken else column
            try:
                return texts_array(own, pa.array(values, pa.string()), reading=_READING, position=1)
            except (pa.ArrowException, UnicodeError):
                values = cells_values(column, _listed(values))
        return column_array(column, _listed(values), reading=_READING, position=1, optional=optional)

    def _filled(self, column: Column, values: Values | pa.Array, *, has_broken: bool) -> Values | pa.Array:
        """Return the values with defaults where there are none, and NULL for broken messages."""
        is_empty_missing = self._are_cells and not is_text(column)
        if isinstance(values, pa.Array):
            # Where missing values become NULL, an empty cell does so later.
            is_null_right = column.nullable and self._defaults.get(column.name) is None
            if is_null_right or not (values.null_count or (is_empty_missing and pc.any(pc.equal(values, "")).as_py())):
                return values
            values = values.to_pylist()
        gaps: set[object] = {ABSENT, ""} if is_empty_missing else {ABSENT}
        if not column.nullable:
            gaps.add(None)
        if any(gap in values for gap in gaps):
            missing = missing_value(column, self._defaults)
            values = [missing if _is_in(value, gaps) else value for value in values]
        return [None if value is _BROKEN else value for value in values] if has_broken else values


class _NestedCells:
    """Reads the nested values of one column, which are JSON in cells, in C."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._doubts = Doubts([column.type])
        self._decoder = value_decoder(column.type, is_nullable=column.nullable)

    def array(self, cells: Values | pa.Array) -> pa.Array | None:
        """Return the cells as the column; None: one of them must be read by `to_stored`, or is a value already."""
        cells = _listed(cells)
        try:
            if self._decoder is None or self._doubts.exist_in(map(str.encode, filter(None, cells))):
                return None
            decode = self._decoder.decode
            return checked_array([decode(cell) if cell else None for cell in cells], self._column)
        except (RecursionError, *MISFITS):
            return None


def _listed(values: Values | pa.Array) -> Values:
    listed: Values = values.to_pylist() if isinstance(values, pa.Array) else values
    return listed


def _is_in(value: object, gaps: Collection[object]) -> bool:
    # Lists of nested values are in no set.
    return (value is None or isinstance(value, str) or value is ABSENT) and value in gaps
