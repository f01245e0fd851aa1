"""Rows of pieces in a task of a user's Spark: Arrow batches with the changes of their part laid over them.

Covers: columns by id, row groups that statistics rule out, errors that say what this executor lacks. Does not cover:
which parts are read (batch.py, stream_reads.py). Always holds: a batch has exactly the schema that Spark was promised;
what is ruled out holds no row that the filters match.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tilth.base.errors import UnavailableError
from tilth.datasource.errors import RootUnreadableError
from tilth.datasource.pieces import PartPiece, ReadTask
from tilth.model.part import Bound, ColumnRange, Part
from tilth.model.table import Column
from tilth.model.types import DataType, Kind, Simple
from tilth.query.errors import SnapshotLostError
from tilth.query.snapshots.prune import range_test
from tilth.storage.deltas.deletes import RowIndexes
from tilth.storage.deltas.sources import iter_row_groups, iter_source
from tilth.storage.errors import DeltaFileNotFoundError, PartFileNotFoundError
from tilth.storage.store.root import Folder

#: Rows of a batch.
BLOCK_ROWS = 64 * 1024
#: Kinds whose values in Parquet's statistics are those that the catalog keeps.
_AS_STORED = frozenset(
    {
        Kind.BOOLEAN,
        Kind.INT8,
        Kind.INT16,
        Kind.INT32,
        Kind.INT64,
        Kind.DATE,
        Kind.TIMESTAMP,
        Kind.TIMESTAMP_NTZ,
        Kind.STRING,
    }
)
Keep = Callable[[pq.RowGroupMetaData, int], bool]
_RIGHTS_HINT = "the executors of this Spark need the same rights and mounts as the server; see docs/spark.md"


def batches_of_pieces(task: ReadTask, pieces: Sequence[PartPiece]) -> Iterator[pa.RecordBatch]:
    """Raises RootUnreadableError, SnapshotLostError, UnavailableError (COLUMNS_NOT_COMPUTED); PartFileCorruptError."""
    schema = pa.ipc.read_schema(pa.py_buffer(task.schema))
    for piece in pieces:
        for table, _ in located_rows(task, piece, schema):
            yield from table.combine_chunks().to_batches()


def located_rows(
    task: ReadTask, piece: PartPiece, schema: pa.Schema, keep: Keep | None = None
) -> Iterator[tuple[pa.Table, RowIndexes]]:
    """The rows of a piece in the task's columns, a block at a time, with their indexes in the file; a block may have
    none. `keep`: only row groups that it is true for; None: those that the filters do not rule out.
    """
    columns = [_column(task, piece, identity) for identity in task.columns]
    names = [stored.name for stored, _ in columns if stored is not None]
    # Rows are counted by any column.
    read = list(dict.fromkeys(names)) or [piece.source.schema.columns[0].name]
    try:
        for table, rows in _blocks(task, piece, read, keep or _group_test(task, piece)):
            arrays = [
                pa.nulls(table.num_rows, field.type) if stored is None else table.column(stored.name)
                for (stored, _), field in zip(columns, schema, strict=True)
            ]
            shaped = [
                array if array.type == field.type else array.cast(field.type)
                for array, field in zip(arrays, schema, strict=True)
            ]
            yield pa.table(shaped, schema=schema), rows
    except (PartFileNotFoundError, DeltaFileNotFoundError) as error:
        raise SnapshotLostError(
            "a file of the snapshot is gone: its lease has ended",
            file=error.facts.get("file", ""),
            host=socket.gethostname(),
            hint="read the table again; hold_seconds holds a snapshot for longer",
        ) from error
    except UnavailableError as error:
        raise RootUnreadableError(
            **_where(task.folder), because=f"{error.code}: {error.message}", hint=_RIGHTS_HINT
        ) from error


def _blocks(
    task: ReadTask, piece: PartPiece, read: Sequence[str], keep: Keep | None
) -> Iterator[tuple[pa.Table, RowIndexes]]:
    check_root(task.folder)
    source = piece.source
    if source.is_segment:
        yield from iter_source(task.folder, source, columns=read, block_rows=BLOCK_ROWS)
        return
    rows = range(piece.first, piece.end)
    yield from iter_row_groups(task.folder, source, columns=read, rows=rows, block_rows=BLOCK_ROWS, keep=keep)


def check_root(folder: Folder) -> None:
    """Raises RootUnreadableError where a folder of a local disk is not on this machine."""
    if folder.root.is_local and not os.path.isdir(folder.root.uri):
        hint = (
            "a folder of a local disk is read on one machine only: mount it on every host, or keep tables in a bucket"
        )
        raise RootUnreadableError(**_where(folder), because="there is no such folder", hint=hint)


def _where(folder: Folder) -> dict[str, str]:
    return {"root": folder.root.uri, "host": socket.gethostname()}


def _column(task: ReadTask, piece: PartPiece, identity: int) -> tuple[Column | None, Column]:
    """Return the stored column, or None where its values are NULL, and the wanted one."""
    wanted = next(column for column in piece.wanted.columns if column.id == identity)
    stored = next((column for column in piece.source.schema.columns if column.id == identity), None)
    is_ready = (
        wanted.default in (None, "NULL") and not wanted.expression if stored is None else stored.type == wanted.type
    )
    if not is_ready:
        raise UnavailableError.coded(
            "COLUMNS_NOT_COMPUTED",
            "some parts do not have the table's present columns yet, and their values must be computed",
            table=task.table,
            column=wanted.name,
            part=piece.source.name,
            hint="wait until the mutation of the ALTER is done (system.mutations), or use tilth.read: it computes them",
        )
    return stored, wanted


def _group_test(task: ReadTask, piece: PartPiece) -> Keep | None:
    """Return the test of row groups by their statistics; None: these say nothing."""
    source = piece.source
    if not piece.is_filterable or any(delta.has_updates for delta in source.deltas):
        return None
    by_id = {column.id: column for column in piece.wanted.columns}
    #: Names in the file, with the names and the types that the predicate means.
    known = {
        column.name: by_id[column.id]
        for column in source.schema.columns
        # With a dot in its name a column may be taken for a field of another one.
        if column.id in by_id and by_id[column.id].type == column.type and "." not in column.name
    }
    may_be_true = range_test(task.predicate, {column.name: column.type for column in piece.wanted.columns})
    part = Part(name=source.name, schema_version=0, rows=source.rows, file=source.file)

    def keep(group: pq.RowGroupMetaData, first: int) -> bool:
        return may_be_true(_as_part(part, group, known))

    return keep


def _as_part(part: Part, group: pq.RowGroupMetaData, known: Mapping[str, Column]) -> Part:
    ranges: dict[str, ColumnRange] = {}
    for position in range(group.num_columns):
        chunk = group.column(position)
        column = known.get(chunk.path_in_schema)
        if column is None or not chunk.is_stats_set or not chunk.statistics.has_null_count:
            continue
        low, high = _bounds(chunk.statistics, column.type)
        ranges[column.name] = ColumnRange(low, high, chunk.statistics.null_count)
    return Part(name=part.name, schema_version=0, rows=group.num_rows, file=part.file, ranges=ranges)


def _bounds(statistics: pq.Statistics, data_type: DataType) -> tuple[Bound, Bound]:
    """Return the smallest and largest value; None: not known."""
    if not isinstance(data_type, Simple) or data_type.kind not in _AS_STORED or not statistics.has_min_max:
        return None, None
    low, high = statistics.min_raw, statistics.max_raw
    if data_type.kind is Kind.STRING:
        try:
            return low.decode(), high.decode()
        except UnicodeDecodeError:
            return None, None
    return low, high
