"""Writes of programs that bring their own Spark, as they and the server say them to each other. Pure.

Covers: the beginning, the facts of the written files, the outcome. Does not cover: what is checked of them
(statements/inserts/outside.py), the task's side (datasource/).

Tests: tests/unit/statements/inserts/test_outside.py.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tilth.base.errors import NotFoundError
from tilth.model.part import WrittenPart
from tilth.model.table import TableDef

#: A number that is never below 0.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

#: A name that is part of a key of the catalog.
ShortText = Annotated[str, msgspec.Meta(max_length=1000)]

#: Task numbers of a write, unless it says otherwise, and at most; an abort tries the names of each.
TASKS_DEFAULT = 1024
TASKS_MAX = 100_000
#: Longest time without a sign of life.
SILENCE_SECONDS_MAX = 86_400


class WriteUnknownError(NotFoundError):
    """there is no such write"""

    code = "WRITE_UNKNOWN"


class WriteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A write that is to be begun."""

    #: Columns that the rows bring, `_op` among them or not.
    columns: tuple[str, ...]
    #: Name of the rows: sent again, they are not stored again. Empty: none.
    label: ShortText = ""
    #: Task numbers that the names of files may have.
    tasks: int = TASKS_DEFAULT
    #: Time without a sign of life after which the write is aborted; 0: the server's.
    silence_seconds: float = 0.0
    #: `True` if the rows replace those that are there.
    is_overwrite: bool = False
    #: Partitions that are replaced, by id or by value; none: the whole table.
    partitions: tuple[str, ...] = ()
    #: Copies of each file before the commit; 0: as the table says.
    quorum: int = 0


class OpenWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write that has begun, with all that its tasks need."""

    #: Secret name of the write in further calls; empty: the label is taken, and there is nothing to write.
    id: str
    txn: int
    table: TableDef
    #: Root of the table's folder, encoded (storage/store/root.py).
    root: bytes
    tasks: int
    silence_seconds: float
    quorum: int = 0
    #: Values of the columns that the rows do not bring: one row, as an Arrow stream. NULL elsewhere.
    defaults: bytes = b""
    #: Name of the column of the rows that is `_op`; empty: none.
    op_column: str = ""
    #: Rows of the committed insert that has the label.
    labelled_rows: int = 0


class StreamBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Batch of a stream."""

    #: Id of the query, which its checkpoint has.
    query: ShortText
    batch: Count
    #: Name of the stream, which stays when the checkpoint is replaced. Empty: its query's id.
    name: ShortText = ""
    #: Id of the query that may follow another one under the name of the stream.
    new_query: str = ""


class WrittenFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of all files that a commit names."""

    txn: Count
    #: Facts of each file, in the order of the tasks.
    parts: tuple[WrittenPart, ...]
    #: Number of tasks that the job had.
    tasks: Count
    #: `True` if an attempt of a task failed that may have written files.
    has_retried: bool = False
    #: `True` if tasks may go on writing, as where Spark runs copies of slow tasks.
    may_write_on: bool = False
    stream: StreamBatch | None = None


class WriteOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a commit."""

    rows: int
    #: `True` if these rows were in the table before: the label or the batch is taken.
    is_repeated: bool = False
    notices: tuple[str, ...] = ()
