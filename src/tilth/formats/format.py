"""The declaration of a format: its names, and the functions that read rows and write answers.

Covers: the declaration, rows between a format and its callers. Does not cover: the formats (kinds/), which
there are (registry.py).
Always holds: a format that reads rows does so for INSERT and for messages alike; bodies of answers come piece by piece,
and a piece holds at most `ROWS_PER_PIECE` rows.

Tests: tests/unit/formats/test_cell_values.py, tests/unit/ingest/messages/test_decode.py.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from tilth.formats.errors import BadValueError
from tilth.model.table import Column
from tilth.model.wire import ColumnInfo, Summary

ROWS_PER_PIECE = 8192

# The values of a row or of a column as text or JSON gave them.
Values = Sequence[Any]


class AbsentValue:
    """Stands for a value that is not there."""


#: Value that a row does not bring.
ABSENT = AbsentValue()


class RowColumns(Protocol):
    """The columns that rows may bring, by the rules of an INSERT or a Kafka table."""

    @property
    def ordered(self) -> tuple[Column, ...]:
        """Columns of values without names, in their order."""

    @property
    def named(self) -> tuple[Column, ...]:
        """Columns that rows with names may have."""

    def find(self, name: str, row: int | None) -> Column | None:
        """Return the one of `named` that a row means by this name; None: its value is passed over.

        Raises an InvalidInputError that has the row, if it is known, for a name that no row may have.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """Settings of rows as text."""

    csv_delimiter: str = ","
    #: `True` if values of names that no column has are passed over.
    skip_unknown: bool = False


class TextRows(msgspec.Struct, frozen=True):
    """Rows that have been split into values, not yet read as the columns' types."""

    columns: tuple[Column, ...]
    #: Values by column, ABSENT among them; of cells their texts, and None for NULL.
    values: Sequence[Values | pa.Array]
    count: int
    #: `True` if values are the texts of cells: an empty one stands for a value that is not there, unless the column
    #: holds texts; nested ones are JSON.
    are_cells: bool = False


#: Reads all rows of a body or of a message, or raises BadValueError naming the row that cannot be.
ReadRows = Callable[[bytes | str, RowColumns, RowOptions], TextRows]
#: Reads many messages at once, none of them empty, to the rows of all and the number of rows of each (None: one each).
#: Returns None or raises BadValueError where they must be read one by one.
ReadMessages = Callable[[Sequence[bytes], RowColumns, RowOptions], tuple[TextRows, Sequence[int] | None] | None]
#: Yields the body of an answer from its schema, its rows, its columns, and its statistics, which are requested at the
#: end.
WriteRows = Callable[
    [pa.Schema, Iterator[pa.RecordBatch], Sequence[ColumnInfo], Callable[[], Summary]], Iterator[bytes]
]


class Cutter(Protocol):
    """Finds where a body of rows may be cut (cutters.py); it gets the whole body, block by block."""

    def feed(self, block: bytes) -> None:
        """Go on to the next block."""

    def find(self, wanted: int) -> int | None:
        """Return the first position in this block at which a row ends, `wanted` or one behind it; None: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of rows; a value of this type in a module of `kinds/` is all that a new one takes."""

    #: Name as users see it; they may write it without regard to case.
    name: str
    aliases: tuple[str, ...] = ()
    #: None: neither INSERT .. FORMAT nor messages can have it.
    read: ReadRows | None = None
    #: None: messages are read one by one.
    read_messages: ReadMessages | None = None
    #: None: no answer can have it.
    write: WriteRows | None = None
    #: Media type of answers over HTTP, by which `Accept` names it; empty: it has none.
    media_type: str = ""
    #: Media type of bodies with rows, if it is another one.
    body_type: str = ""
    #: `True` if rows are JSON objects: messages are read by msgspec where it means the same, and may have an envelope.
    is_objects: bool = False
    #: `True` if a row is one value, of a column of texts or bytes.
    is_one_value: bool = False
    #: `True` if bodies with rows are Arrow streams, which no `read` takes.
    is_arrow: bool = False
    #: None: a body is read as one, however large it is.
    cutter: Callable[[RowOptions], Cutter] | None = None
    #: `True` if a body begins with a line of names, which each of its pieces needs.
    has_names: bool = False

    def encode_batches(
        self,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        columns: Sequence[ColumnInfo],
        summary: Callable[[], Summary],
    ) -> Iterator[bytes]:
        """Encode rows that come batch by batch. `summary` is called when all rows have been written."""
        assert self.write is not None, self.name
        rows = (batch.slice(at, ROWS_PER_PIECE) for batch in batches for at in range(0, batch.num_rows, ROWS_PER_PIECE))
        return self.write(schema, rows, columns, summary)

    def encode(self, table: pa.Table, columns: Sequence[ColumnInfo], summary: Summary) -> Iterator[bytes]:
        """Yield the body of the answer, piece by piece."""
        return self.encode_batches(table.schema, table.to_batches(), columns, lambda: summary)


def as_text(data: bytes | str) -> str:
    """Raises BadValueError for bytes that are not UTF-8."""
    return data if isinstance(data, str) else as_texts([data])[0]


def as_texts(values: Sequence[bytes]) -> list[str]:
    """Raises BadValueError where bytes are not UTF-8."""
    try:
        return list(map(bytes.decode, values))
    except UnicodeDecodeError as error:
        raise BadValueError("not valid UTF-8", why=f"{error.reason} at byte {error.start}") from error


def as_bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data


def drain(sink: io.BytesIO) -> bytes:
    """Return what has been written into the sink, which is empty then."""
    piece = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return piece


def wrong_width(columns: Sequence[Column], *, row: int, values: int) -> BadValueError:
    """Return the error of a row that has not one value for each column."""
    return BadValueError(
        "a row has another number of values than there are columns",
        row=row,
        values=values,
        columns=f"{len(columns)} ({', '.join(column.name for column in columns)})",
    )
