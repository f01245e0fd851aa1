"""Protocol of server and worker while a query runs.

Covers: the payloads of QUERY and INSERT tasks and the calls back. Does not cover: who answers them (snapshots.py),
who makes them (worker/spark.py). Always holds: a worker learns of tables only through these calls; a remote worker
makes them over HTTP.

    server                                   worker
      | -- task: the statement's text ---------> |
      | <-- resolve: names of the relations ---- |   Spark's parser found them
      | -- their schemas ----------------------> |
      | <-- pin: a predicate for each of them -- |   found by Spark's optimizer
      | -- snapshots, pruned ------------------> |
      | <-- room for a large result ------------ |   where they share no disk
      | -- a folder in a table's storage ------> |
      | <-- result ----------------------------- |

Tests: tests/unit/query/results/test_spark.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec
import pyarrow as pa

from tilth.base.units import GIB, MIB
from tilth.model.delta import WrittenDelta
from tilth.model.loaded_file import SkippedRow
from tilth.model.part import DataFile, WrittenPart
from tilth.model.snapshot import Snapshot
from tilth.model.table import Expression, KafkaDef, Schema, TableDef
from tilth.query.errors import ResultTooLargeError
from tilth.query.language.unpacked import read_own
from tilth.query.snapshots.predicates import Predicate, Undecided
from tilth.storage import Folder, StoreRoot, UpsertRequest

#: Under this key of an Arrow schema's metadata a result carries its columns, as JSON of `ColumnInfo`s.
COLUMNS_KEY = b"tilth.columns"
#: Maximum size of a default's value: it goes into the catalog with its table.
DEFAULT_BYTES_MAX = 16 * MIB
#: Maximum size of a system table in a query that also reads tables of rows.
SYSTEM_ROWS_BYTES_MAX = 1 * GIB


class AsOfVersion(msgspec.Struct, frozen=True, tag="version"):
    """A table as its n-th commit left it."""

    version: int


class AsOfTime(msgspec.Struct, frozen=True, tag="time"):
    """A table as it was at a time: with all that was committed in that millisecond."""

    #: Microseconds since 1970, UTC.
    micros: int


#: A past state of a table.
AsOf = AsOfVersion | AsOfTime


class QueryTask(msgspec.Struct, frozen=True, kw_only=True, tag="query"):
    """Runs a query; the result's payload is an Arrow stream, or empty for a large result, which comes as files, or
    names these (results/stored.py).
    """

    query_id: str
    text: str
    #: `spark.sql.*` properties of the session.
    spark: dict[str, str]
    #: 0: no limit.
    result_bytes_max: int
    #: Folder on the server's disk for the files of a large result (results/files.py), where the tasks of Spark see it;
    #: empty: it is collected, however large it is.
    folder: str = ""
    #: Bytes of a large result that one task may store; 0: no limit.
    stored_bytes_max: int = 0


class NamesTask(msgspec.Struct, frozen=True, kw_only=True, tag="names"):
    """Finds the names of the tables that a query reads; the result's payload is a list of them in parts."""

    text: str


class CheckTask(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """Checks a materialized view's SELECT; the result's payload is the view's `target_columns`."""

    #: `database.view`.
    view: str
    kafka: KafkaDef
    target: TableDef
    select: str
    #: Field as in ViewDef.
    target_columns: tuple[tuple[str, int], ...] = ()


class ExpressionsTask(msgspec.Struct, frozen=True, kw_only=True, tag="expressions"):
    """Checks what an ALTER computes; the result's payload is a `CheckedExpressions`."""

    #: `database.table`, for messages.
    table: str
    schema: Schema
    #: Column and expression, for UPDATE.
    assignments: tuple[tuple[str, str], ...] = ()
    #: Predicate of UPDATE and DELETE; empty: there is none.
    predicate: str = ""
    #: The columns of `schema` whose defaults are to be checked, by name.
    defaults: tuple[str, ...] = ()
    #: Time zone of times without one.
    zone: str = "UTC"
    #: The time that now() stands for.
    now_ms: int
    #: `True` to return what the expressions need of the table.
    with_needs: bool = False


class CheckedDefault(msgspec.Struct, frozen=True, kw_only=True):
    """Spark's check of a default."""

    column: str
    #: Its value now: an Arrow stream of one row, of the column's type; empty if it is an expression over columns.
    value: bytes = b""
    #: `True` if another INSERT may have another value.
    is_computed: bool = False
    #: The expression, as Column has it.
    expression: Expression = ()
    #: `True` if the expression may give NULL.
    may_be_null: bool = False

    @property
    def scalar(self) -> pa.Scalar:
        """Raises ResultTooLargeError."""
        return _read(self.value, DEFAULT_BYTES_MAX, "the value of a default is larger than allowed").column(0)[0]


class CheckedExpressions(msgspec.Struct, frozen=True, kw_only=True):
    """The expressions with now() and its kin replaced by one instant."""

    assignments: tuple[tuple[str, str], ...]
    predicate: str
    #: Conditions of the predicate on columns, if they were requested and are understood.
    where: Predicate = Undecided()
    #: Names of the columns that the expressions read, likewise; None: perhaps all.
    columns: tuple[str, ...] | None = None
    #: Checks of the requested defaults.
    defaults: tuple[CheckedDefault, ...] = ()


class ComputeTask(msgspec.Struct, frozen=True, kw_only=True, tag="compute"):
    """Computes expressions for some rows; the result's payload is an Arrow stream."""

    #: The names of the result's columns.
    columns: tuple[str, ...]
    #: Spark SQL.
    expressions: tuple[str, ...]
    rows: int
    #: The columns that the expressions name, and these in an Arrow stream; none: they name none.
    schema: Schema | None = None
    given: bytes = b""
    #: Time zone of times without one.
    zone: str
    #: The time that now() stands for.
    now_us: int


class ChangeTask(msgspec.Struct, frozen=True, kw_only=True, tag="change"):
    """Finds the rows of a DELETE or UPDATE and writes change segments; the result's payload is a `ChangeResult`."""

    #: The rows are searched in its parts.
    snapshot: Snapshot
    #: Root of the tables' folders.
    root: StoreRoot
    #: Predicate as checked.
    predicate: str
    #: Assignments as checked; none: the rows are deleted.
    assignments: tuple[tuple[str, str], ...] = ()
    #: Columns that the expressions read; None: perhaps all.
    columns: tuple[str, ...] | None = None
    txn: int
    #: The numbers that the job's tasks have in the names of files: from the first on, so many at most.
    first_task: int
    tasks_max: int


class ChangeResult(msgspec.Struct, frozen=True, kw_only=True):
    written: tuple[WrittenDelta, ...]


class ReplayTask(msgspec.Struct, frozen=True, kw_only=True, tag="replay"):
    """Sends dead letters through their views; order and payload of the result are the ingest room's."""

    order: bytes
    #: Predicate as checked; empty: there is none.
    predicate: str = ""


class VerifyTask(msgspec.Struct, frozen=True, kw_only=True, tag="verify"):
    """Reads files of a table for a check; order and payload of the result are the verify room's."""

    order: bytes


class InsertTask(msgspec.Struct, frozen=True, kw_only=True, tag="insert"):
    """Computes the rows of an INSERT .. SELECT and writes them; the result's payload is an `InsertResult`."""

    query_id: str
    #: A SELECT.
    text: str
    spark: dict[str, str]
    target: TableDef
    #: Root of the tables' folders.
    root: StoreRoot
    #: The target's columns that the SELECT's columns are for, by position; `_op` may be among them.
    columns: tuple[str, ...]
    #: `True` if NULL keeps the value of the existing row, so that defaults are left out.
    is_partial: bool = False
    txn: int
    #: Number of tasks that the transaction has declared.
    tasks_max: int
    #: Copies of its files that the statement requires; 0: as many as the table's setting.
    quorum: int = 0


class InsertResult(msgspec.Struct, frozen=True, kw_only=True):
    parts: tuple[WrittenPart, ...]


class BodyRange(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a body, which a task reads at once."""

    start: int
    size: int
    #: Starts and sizes of the pieces of the body that are read before it: a line of names, a schema, dictionaries.
    heads: tuple[tuple[int, int], ...] = ()


class BodyTask(msgspec.Struct, frozen=True, kw_only=True, tag="body"):
    """Reads the rows of a body, which lies in a file of the table, and writes them; the result's payload is an
    `InsertResult`."""

    target: TableDef
    #: Root of the tables' folders.
    root: StoreRoot
    #: Body, below the root of the table when it was stored.
    folder: Folder
    file: DataFile
    ranges: tuple[BodyRange, ...]
    #: Name of its format.
    format: str
    #: The columns that it brings, by position; none: all of them, or those that it names itself.
    columns: tuple[str, ...] = ()
    #: Settings of rows as text.
    csv_delimiter: str = ","
    skip_unknown: bool = False
    #: Time zone of times without one.
    zone: str
    #: The time that now() stands for.
    now_us: int
    txn: int
    #: Number of tasks that the transaction has declared.
    tasks_max: int
    #: Copies of its files that the statement requires; 0: as many as the table's setting.
    quorum: int = 0
    #: Maximum size of the rows in memory; 0: no limit.
    rows_bytes_max: int = 0


class ResolveTask(msgspec.Struct, frozen=True, kw_only=True, tag="resolve"):
    """Finds which rows must go so that written rows are the only ones with their keys; the result's payload is a
    `ResolveResult`."""

    #: One for each scope of the keys; they share a task number.
    requests: tuple[UpsertRequest, ...]


class ResolveResult(msgspec.Struct, frozen=True, kw_only=True):
    changes: tuple[WrittenDelta, ...]


class FileFormat(StrEnum):
    """Formats of files of users."""

    PARQUET = "PARQUET"
    ORC = "ORC"
    AVRO = "AVRO"
    JSON = "JSON"
    CSV = "CSV"

    @property
    def is_lines(self) -> bool:
        """Return whether a file is text in lines, each of which is a row."""
        return self in (FileFormat.JSON, FileFormat.CSV)


class LoadFilesTask(msgspec.Struct, frozen=True, kw_only=True, tag="files"):
    """Reads files of users and writes their rows; the result's payload is a `LoadFilesResult`."""

    #: The target; without a text. Its columns are those that files may bring, `_op` among them.
    insert: InsertTask
    format: FileFormat
    #: Location of the files, and their paths below it.
    root: StoreRoot
    paths: tuple[str, ...]
    #: Size of each file.
    sizes: tuple[int, ...]
    #: `True` if the first line of each file has the names of its columns.
    has_header: bool = False
    delimiter: str = ","
    #: `True` if columns of the files that the table does not have are passed over.
    skip_unknown: bool = False
    #: Maximum number of rows that are skipped because they cannot be stored; 0: the first of them is an error.
    skipped_max: int = 0
    #: `True` if nothing is written.
    is_check: bool = False
    #: `True` if rows may be of any size; `False`: the answer says `has_large_row` where one is large.
    is_measured: bool = False


class FileRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one file."""

    rows: int = 0
    #: Rows that cannot be stored, in no order.
    skipped: tuple[SkippedRow, ...] = ()


class LoadFilesResult(msgspec.Struct, frozen=True, kw_only=True):
    parts: tuple[WrittenPart, ...]
    #: One for each of the task's files, in their order.
    files: tuple[FileRows, ...]
    #: `True` if nothing of this counts: a row is large, and the task is run again with `is_measured`.
    has_large_row: bool = False


#: Marker of an export that is under way; its content is the export's id.
EXPORT_MARKER = "_tilth_export"


class ExportTask(msgspec.Struct, frozen=True, kw_only=True, tag="export"):
    """Writes the rows of a query to files of users; the result's payload is a list of `ExportedFile`."""

    query: QueryTask
    #: Id of the export: a part of the names of its files, and the content of its marker.
    id: str
    format: FileFormat
    folder: Folder
    #: `True` if the first line of a file of CSV has the names of its columns.
    has_header: bool = True
    tasks_max: int


class ExportedFile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    rows: int
    size: int


#: The payload of a QUERY task.
WorkerTask = (
    QueryTask
    | NamesTask
    | CheckTask
    | ExpressionsTask
    | ComputeTask
    | ChangeTask
    | ReplayTask
    | ExportTask
    | VerifyTask
)
#: The payload of an INSERT task.
InsertPayload = InsertTask | BodyTask | ResolveTask | LoadFilesTask


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """Table that a name in a query stands for."""

    database: str
    table: str
    schema: Schema


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one relation: in a snapshot's files, or right here."""

    snapshot: Snapshot | None = None
    #: Root of the tables' folders.
    root: StoreRoot | None = None
    #: An Arrow stream; of a system table.
    rows: bytes | None = None

    @property
    def table(self) -> pa.Table:
        """Raises ResultTooLargeError."""
        assert self.rows is not None
        return _read(self.rows, SYSTEM_ROWS_BYTES_MAX, "a system table is larger than a query can read")


class QueryCalls(Protocol):
    """Calls of a worker to its server while a query runs; all raise TilthErrors."""

    def resolve(self, query_id: str, names: list[tuple[str, ...]], as_of: Sequence[AsOf | None] = ()) -> list[Resolved]:
        """Find the tables that the names stand for, in the query's database.

        `as_of`: the requested past state of each, None for the present one; empty: all of them now.
        """

    def pin(self, query_id: str, predicates: list[Predicate]) -> list[Source]:
        """Snapshots of what `resolve` returned, without the parts that the predicates rule out.

        Their files stay until the query has ended.
        """

    def open_result(self, query_id: str) -> Folder:
        """Return a folder for the files of a large result, in the storage of a table that the query reads; it goes
        with the end of the result.
        """


def _read(rows: bytes, bytes_max: int, refusal: str) -> pa.Table:
    return read_own(rows, bytes_max, lambda size: ResultTooLargeError(refusal, bytes=size, bytes_max=bytes_max))


def stream_of(table: pa.Table) -> bytes:
    """Return the rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
