"""Answers to statements. See also: tilth.model.wire for the part that goes over HTTP.

Tests: tests/unit/control/test_resends.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from tilth.base.errors import TilthError
from tilth.model.types import spark_name
from tilth.model.wire import ColumnInfo, Summary
from tilth.query.results.stream import RowStream
from tilth.query.snapshots.protocol import COLUMNS_KEY
from tilth.storage import type_from_arrow


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer to a statement: rows or a message, with its statistics."""

    query_id: str
    #: Empty for statements without rows.
    columns: list[ColumnInfo]
    table: pa.Table
    #: The rows of a large result, instead of the table's; iterate or close it.
    stream: RowStream | None = None
    #: Outcome of a statement without rows: `table created: db.t`.
    message: str = ""
    #: Notes on what was accepted without effect, or was read as something else.
    notices: tuple[str, ...] = ()
    #: Settings that the connection keeps for the statements that follow.
    connection_settings: Mapping[str, str] = field(default_factory=dict)
    #: Name in the statement's FORMAT.
    output_format: str | None = None
    elapsed_ms: float = 0.0
    #: Rows that an INSERT wrote.
    rows_written: int = 0
    #: Parts of all tables that the query read, and parts that its predicates ruled out.
    parts_read: int = 0
    parts_pruned: int = 0

    def summary(self) -> Summary:
        """Return the part of the answer that a client gets beside the rows."""
        return Summary(
            query_id=self.query_id,
            elapsed_ms=self.elapsed_ms,
            rows=self.table.num_rows,
            message=self.message,
            notices=self.notices,
            connection_settings=dict(self.connection_settings),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Return value of one statement's function; the engine makes an Answer of it."""

    table: pa.Table = field(default_factory=lambda: pa.table({}))
    #: The rows of a large result, instead of the table's.
    stream: RowStream | None = None
    message: str = ""
    rows_written: int = 0
    parts_read: int = 0
    parts_pruned: int = 0
    #: Fields as in Answer.
    notices: tuple[str, ...] = ()
    connection_settings: Mapping[str, str] = field(default_factory=dict)
    #: `True` if it is not known yet: see `Call.on_complete`.
    is_pending: bool = False


#: Outcome of a statement that completes on another thread.
PENDING = Outcome(is_pending=True)


def done(message: str, *, rows_written: int = 0) -> Outcome:
    return Outcome(message=message, rows_written=rows_written)


def columns_of(schema: pa.Schema) -> list[ColumnInfo]:
    """Names and types in Spark's words: from the query's metadata, else from the Arrow types."""
    known = (schema.metadata or {}).get(COLUMNS_KEY)
    if known is not None:
        return msgspec.json.decode(known, type=list[ColumnInfo])
    return [ColumnInfo(field.name, _type_name(field.type)) for field in schema]


def _type_name(arrow: pa.DataType) -> str:
    try:
        return spark_name(type_from_arrow(arrow))
    except TilthError:
        return str(arrow)
