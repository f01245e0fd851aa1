"""A batch read: a snapshot that is pinned when the frame is loaded, divided among the executors of a user's Spark.

Covers: pinning, parts that filters rule out, tasks. Does not cover: rows (rows.py), renewing the lease (keeper.py).
Always holds: a frame reads one snapshot however often it is used; the filters that Spark hands over are all evaluated
by Spark again, so that what is ruled out here is a matter of time alone.

Tests: tests/integration/datasource/test_spark_source.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tilth.base.errors import NotFoundError
from tilth.datasource.attachment import Attachment, HeldLease, PinnedTable
from tilth.datasource.errors import ColumnsChangedError, SparkOptionError, said
from tilth.datasource.filters import predicate_of
from tilth.datasource.options import BatchOptions
from tilth.datasource.pieces import PartPiece, ReadTask, cut, shared_out
from tilth.datasource.rows import batches_of_pieces
from tilth.datasource.shipped import opener
from tilth.model.snapshot import Snapshot
from tilth.model.table import Column, Schema, TableDef, full_name
from tilth.model.types import quoted, spark_name
from tilth.query.errors import SnapshotLostError, UnknownColumnError
from tilth.query.snapshots.predicates import AllOf, Predicate
from tilth.query.snapshots.prune import keeper
from tilth.storage.read.scan_paths import scan_paths_of
from tilth.storage.store.paths import data_folder
from tilth.storage.store.root import Folder, parse_root
from tilth.storage.values.arrow import type_from_arrow
from tilth.storage.values.scan_options import can_filter
from tilth.storage.values.shapes import wanted_of

_OPEN = opener("tilth.datasource.batch:opened_reader")


def pin_table(attachment: Attachment, options: BatchOptions) -> tuple[str, PinnedTable]:
    """Pin the snapshot that the options name, and let the driver hold it; return it behind its lease's id."""
    connection = attachment.connection(options.url)
    with connection:
        snapshot, lease, root = connection.pin(
            options.database, options.table, options.as_of_ms, version=options.version
        )
        # The address as it was given: of several servers, and the one that the token belongs to.
        url, table = attachment.address(options.url), full_name(snapshot.table)
        held = HeldLease(id=lease.id, url=url, seconds=options.hold_seconds, table=table)
        pinned = PinnedTable(snapshot, root)
        attachment.hold(held, pinned)
    return lease.id, pinned


def release(attachment: Attachment, lease_id: str) -> None:
    """Hold a snapshot no more; the driver is not needed for it."""
    held = next((lease for lease, _ in attachment.held() if lease.id == lease_id), None)
    attachment.forget(lease_id)
    if held is not None:
        with attachment.connection(held.url) as connection:
            connection.unpin(lease_id)


def use_lease(attachment: Attachment, lease_id: str, options: BatchOptions) -> PinnedTable:
    """Raises SnapshotLostError: the driver holds it no more."""
    try:
        return attachment.use(lease_id)
    except NotFoundError as error:
        raise SnapshotLostError(
            "the snapshot of this DataFrame is held no more",
            table=f"{options.database}.{options.table}",
            hold_seconds=options.hold_seconds,
            hint="load the table again; the option hold_seconds holds a snapshot for longer after its last use",
        ) from error


def ddl_of(columns: Iterable[Column]) -> str:
    """The columns in Spark's words; nullable, for a column may be younger than a part."""
    return ", ".join(f"{quoted(column.name)} {spark_name(column.type)}" for column in columns)


def chosen_columns(table: TableDef, names: Sequence[str] | None) -> list[Column]:
    """Return the columns of these names, or all; raises UnknownColumnError, SparkOptionError."""
    if names is None:
        return list(table.schema.columns)
    chosen = [_found(table, name) for name in names]
    if len({column.id for column in chosen}) < len(chosen):
        raise SparkOptionError("a column is named twice", option="columns", value=", ".join(names))
    return chosen


def _found(table: TableDef, name: str) -> Column:
    column = table.schema.find(name)
    if column is None:
        raise UnknownColumnError(table=full_name(table), column=name, known=", ".join(table.schema.names))
    return column


def columns_of(table: TableDef, fields: Iterable[pa.Field]) -> list[Column]:
    """Return the columns that a frame's Arrow fields mean. Raises ColumnsChangedError naming the first that differs."""
    found = []
    for field in fields:
        column = table.schema.find(field.name)
        hint = "the table was altered, or the schema is not its own: load it again, without a schema"
        if column is None:
            raise ColumnsChangedError(table=full_name(table), column=field.name, hint=hint)
        if type_from_arrow(field.type) != column.type or (column.nullable and not field.nullable):
            raise ColumnsChangedError(
                table=full_name(table),
                column=column.name,
                frame=f"{field.type}{'' if field.nullable else ' not null'}",
                type=spark_name(column.type),
                hint=hint,
            )
        found.append(column)
    if not found:
        raise ColumnsChangedError("a frame has a column at least", table=full_name(table))
    return found


def pieces_of(snapshot: Snapshot, *, needed: frozenset[int]) -> list[PartPiece]:
    """Return the snapshot's parts that have rows as pieces of a task's size. Raises PartShapeUnknownError."""
    table = snapshot.table
    paths = scan_paths_of(snapshot, needed)
    wanted: dict[int, Schema] = {}
    found = []
    for part in sorted((*paths.plain, *paths.masked, *paths.overlaid), key=lambda part: part.name):
        source = paths.source(table, part)
        version = part.schema_version
        if version not in wanted:
            wanted[version] = wanted_of(table, version)
        found += cut(
            PartPiece(
                source=source,
                wanted=wanted[version],
                first=0,
                end=part.rows,
                is_filterable=can_filter(source.schema, part.file),
            )
        )
    return found


class PiecesPartition(InputPartition):
    """Pieces that one task reads, encoded."""

    def __init__(self, packed: bytes) -> None:
        super().__init__(packed)

    def __repr__(self) -> str:
        return f"PiecesPartition({len(self.value)} bytes)"


class PieceReader(DataSourceReader):
    """The executor's half: it knows what all tasks know, and no server."""

    def __init__(self, task: ReadTask) -> None:
        self.task = task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with said():
            pieces = msgspec.msgpack.decode(partition.value or _NO_PIECES, type=list[PartPiece])
            yield from batches_of_pieces(self.task, pieces)

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return _OPEN, (msgspec.msgpack.encode(self.task),)


def opened_reader(packed: bytes) -> PieceReader:
    """Make the reader of an executor."""
    return PieceReader(msgspec.msgpack.decode(packed, type=ReadTask))


_NO_PIECES = msgspec.msgpack.encode([])


class SnapshotReader(PieceReader):
    """The driver's half: it knows the snapshot, and rules parts out."""

    def __init__(self, pinned: PinnedTable, schema: StructType) -> None:
        arrow = to_arrow_schema(schema, timezone="UTC")
        table = pinned.snapshot.table
        self._snapshot = pinned.snapshot
        self._columns = columns_of(table, arrow)
        super().__init__(
            ReadTask(
                folder=_folder(pinned),
                columns=tuple(column.id for column in self._columns),
                schema=arrow.serialize().to_pybytes(),
                predicate=AllOf(()),
                table=full_name(table),
            )
        )

    @property
    def predicate(self) -> Predicate:
        return self.task.predicate

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Rule parts and row groups out by the filters, all of which Spark evaluates again."""
        types = {column.name: column.type for column in self._columns}
        self.task = msgspec.structs.replace(self.task, predicate=predicate_of(filters, types))
        return filters

    def partitions(self) -> list[InputPartition]:
        with said():
            keep = keeper(self.task.predicate, self._snapshot.table)
            parts = tuple(part for part in self._snapshot.parts if keep(part))
            read = msgspec.structs.replace(self._snapshot, parts=parts)
            tasks = shared_out(pieces_of(read, needed=frozenset(self.task.columns)))
            return [PiecesPartition(msgspec.msgpack.encode(task)) for task in tasks] or [PiecesPartition(_NO_PIECES)]


def _folder(pinned: PinnedTable) -> Folder:
    return data_folder(parse_root(pinned.root), pinned.snapshot.table.uuid)
