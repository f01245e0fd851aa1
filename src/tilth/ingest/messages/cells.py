"""Messages of every format but JSON to rows, by what the format reads of a text.

Always holds: a message is read by itself; its values are judged in whole columns, where Arrow is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tilth.formats import ABSENT, Reading, RowOptions, cells_values, column_array, is_text, texts_array
from tilth.ingest.messages.columns import MessageColumns, format_of, missing_value
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
        self._read, self._schema, self._defaults = form.read, schema, defaults
        self._columns = MessageColumns(schema, skip_unknown=config.skip_unknown)
        self._options = RowOptions(csv_delimiter=config.csv_delimiter, skip_unknown=config.skip_unknown)
        self._are_cells = not form.is_one_value
        #: Row of a broken message in stream mode.
        self.empty: Row = (_BROKEN,) * len(schema.columns)

    def reader_of(self, values: Sequence[bytes | None]) -> Callable[[bytes, bytes | None], list[Row]]:
        """Return a function that reads any one message; it raises an InvalidInputError with the reason."""
        return self._rows

    def _rows(self, value: bytes, _: bytes | None) -> list[Row]:
        rows = self._read(value, self._columns, self._options)
        if rows.columns is not self._schema.columns:
            found = dict(zip((column.name for column in rows.columns), rows.values, strict=True))
            nothing = [ABSENT] * rows.count
            return list(zip(*(_listed(found.get(name, nothing)) for name in self._schema.names), strict=True))
        return list(zip(*map(_listed, rows.values), strict=True))

    def read_all(self, values: Sequence[bytes | None]) -> None:
        """Return None: there is no way to read many messages at once."""

    def columns(self, rows: Sequence[Row], positions: Sequence[int]) -> Sequence[Sequence[Any]]:
        """Values of the columns at these positions."""
        columns = list(zip(*rows, strict=True)) or [()] * len(self._schema.columns)
        return [columns[position] for position in positions]

    def array(self, values: Sequence[Any], column: Column) -> pa.Array:
        """The values as the column; raises BadValueError where one does not fit, or is missing."""
        values = self._filled(column, values)
        # Those of broken messages may be NULL in any column.
        column = msgspec.structs.replace(column, nullable=True)
        if self._are_cells:
            try:
                return texts_array(column, pa.array(values, pa.string()), reading=_READING, position=1)
            except (pa.ArrowException, UnicodeError):
                values = cells_values(column, values)
        return column_array(column, values, reading=_READING, position=1)

    def _filled(self, column: Column, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values with defaults where there are none, and NULL for broken messages."""
        gaps: set[object] = {ABSENT, ""} if self._are_cells and not is_text(column) else {ABSENT}
        if not column.nullable:
            gaps.add(None)
        if any(gap in values for gap in gaps):
            missing = missing_value(column, self._defaults)
            values = [missing if _is_in(value, gaps) else value for value in values]
        return [None if value is _BROKEN else value for value in values] if _BROKEN in values else values


def _listed(values: Sequence[Any] | pa.Array) -> Sequence[Any]:
    return values.to_pylist() if isinstance(values, pa.Array) else values


def _is_in(value: object, gaps: Collection[object]) -> bool:
    # Lists of nested values are in no set.
    return (value is None or isinstance(value, str) or value is ABSENT) and value in gaps
