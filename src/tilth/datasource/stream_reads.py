"""A stream of a table's changes: offsets are versions, a batch has the changes of some versions.

Covers: where a stream starts, what its batches have, the reader that the server holds. Does not cover: which changes a
version made (query/snapshots/version_changes.py), rows (rows.py). Always holds: the changes of versions are the same
however often a batch is made; a version is held until Spark has committed the batch that has it; a stream that has lost
something fails and says so.

Spark keeps one process of the driver's machine for a stream, in which the reader lives and renews its hold.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tilth.base.clock import Clock, SystemClock
from tilth.base.errors import ErrorKind, InvalidInputError, TilthError
from tilth.base.ids import random_id
from tilth.base.logs import Log
from tilth.client.http import Connection
from tilth.datasource.attachment import Attachment
from tilth.datasource.batch import PiecesPartition, chosen_columns, columns_of, ddl_of
from tilth.datasource.changed_rows import CHANGE_COLUMN, VERSION_COLUMN, changed_batches
from tilth.datasource.errors import SparkOptionError, said
from tilth.datasource.options import StreamOptions
from tilth.datasource.pieces import PartPiece, ReadTask, cut, shared_out
from tilth.datasource.rows import batches_of_pieces
from tilth.datasource.shipped import opener
from tilth.model.change_feed import NOTHING_READ, VERSIONS_MAX, ChangeSet, FeedStart, PartChange, PartChangeKind
from tilth.model.delta import source_of
from tilth.model.table import TableDef, full_name
from tilth.query.snapshots.predicates import AllOf
from tilth.storage.store.paths import data_folder
from tilth.storage.store.root import parse_root
from tilth.storage.values.shapes import stored_schema, wanted_of

#: Interval of signs of life; a hold that is shorter is renewed three times as often as it lasts.
RENEW_SECONDS = 20.0
_TABLE, _VERSION = "table", "version"
_OPEN = opener("tilth.datasource.stream_reads:opened_stream_reader")

_log = Log("datasource")
Offset = dict[str, Any]


class StreamTask(msgspec.Struct, frozen=True):
    """Pieces that one task of a batch reads."""

    task: ReadTask
    pieces: tuple[PartPiece, ...]


class StreamPieceReader(DataSourceStreamReader):
    """The executor's half: all that it knows comes with a partition."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with said():
            given = msgspec.msgpack.decode(partition.value, type=StreamTask)
            read = changed_batches if given.task.has_changes else batches_of_pieces
            yield from read(given.task, given.pieces)

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return _OPEN, (b"",)


def opened_stream_reader(_: bytes) -> StreamPieceReader:
    """Make the reader of an executor."""
    return StreamPieceReader()


def stream_ddl(attachment: Attachment, options: StreamOptions) -> str:
    """The columns of a stream in Spark's words. Raises SparkOptionError where the table has a column of such a name."""
    with attachment.connection(options.url) as connection:
        snapshot, lease, _ = connection.pin(options.database, options.table)
        connection.unpin(lease.id)
    columns = ddl_of(chosen_columns(snapshot.table, options.columns))
    if not options.has_changes:
        return columns
    for name in (CHANGE_COLUMN, VERSION_COLUMN):
        if snapshot.table.schema.find_any(name) is not None:
            raise SparkOptionError(
                "the table has a column of a name that changes need",
                table=full_name(snapshot.table),
                column=name,
                hint="rename the column, or leave out the option changes",
            )
    return f"{columns}, {CHANGE_COLUMN} string, {VERSION_COLUMN} bigint"


class ChangesReader(StreamPieceReader, SupportsTriggerAvailableNow):
    """The driver's half."""

    def __init__(self, attachment: Attachment, options: StreamOptions, schema: StructType) -> None:
        """Nothing is sent yet: Spark makes one in each process that plans a batch, too."""
        self._attachment = attachment
        self._options = options
        self._schema = schema
        self._feed: _OpenFeed | None = None
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802  # Spark's name
        with said():
            options = self._options
            version: int | None = NOTHING_READ
            if options.since_ms is not None or options.is_latest:
                version = None
            elif options.first_version is not None:
                # The changes of the first version are those after the one before it.
                version = max(0, options.first_version - 1)
            feed = self._open(version, options.since_ms)
            return {_TABLE: feed.start.table.uuid, _VERSION: feed.start.position}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        # None of Spark's limits counts versions.
        return ReadAllAvailable() if self._options.versions_max is None else ReadMaxFiles(self._options.versions_max)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802  # Spark's name
        with said():
            position = start[_VERSION]
            newest = self._opened(start, position).newest()
            end = newest if self._target is None else min(newest, self._target)
            if position != NOTHING_READ:
                versions_max = limit.max_files if isinstance(limit, ReadMaxFiles) else VERSIONS_MAX
                end = min(end, position + min(versions_max, VERSIONS_MAX))
            # A table without a version has no rows.
            return {**start, _VERSION: position if end == 0 else max(position, end)}

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802  # Spark's name
        feed = self._feed
        return None if feed is None else {_TABLE: feed.start.table.uuid, _VERSION: feed.last_newest}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        with said(), self._attachment.connection(self._options.url) as connection:
            snapshot, lease, _ = connection.pin(self._options.database, self._options.table)
            connection.unpin(lease.id)
            self._target = snapshot.version

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        with said():
            first, last = start[_VERSION], end[_VERSION]
            if first == last:
                return []
            feed = self._opened(start, last if first == NOTHING_READ else first)
            return self._partitions(feed.changes(first, last))

    def commit(self, end: Offset) -> None:
        with said():
            self._opened(end, end[_VERSION]).advance(end[_VERSION])

    def stop(self) -> None:
        """Leave the hold to its time: the stream may start again."""
        if self._feed is not None:
            self._feed.close()

    def _partitions(self, changes: ChangeSet) -> list[InputPartition]:
        table = changes.table
        arrow = to_arrow_schema(self._schema, timezone="UTC")
        own = pa.schema(list(arrow)[:-2]) if self._options.has_changes else arrow
        columns = columns_of(table, own)
        task = ReadTask(
            folder=data_folder(parse_root(changes.root), table.uuid),
            columns=tuple(column.id for column in columns),
            schema=own.serialize().to_pybytes(),
            predicate=AllOf(()),
            table=full_name(table),
            has_changes=self._options.has_changes,
        )
        # Without the option only rows that came.
        wanted = [
            change for change in changes.changes if self._options.has_changes or change.kind is PartChangeKind.INSERT
        ]
        pieces = [piece for change in wanted for piece in pieces_of_change(table, change)]
        return [PiecesPartition(msgspec.msgpack.encode(StreamTask(task, tuple(each)))) for each in shared_out(pieces)]

    def _opened(self, offset: Offset, position: int) -> _OpenFeed:
        """Return the feed, opened at a position where it is not open yet, as after a restart."""
        feed = self._feed or self._open(position, None)
        if feed.start.table.uuid != offset[_TABLE]:
            raise InvalidInputError.coded(
                "STREAM_TABLE_REPLACED",
                "the table of the stream's checkpoint is another one than the table of this name now",
                table=full_name(feed.start.table),
                hint="it was dropped and made again: start the stream with a new checkpoint",
            )
        return feed

    def _open(self, version: int | None, since_ms: int | None) -> _OpenFeed:
        connection = self._attachment.connection(self._options.url)
        self._feed = _OpenFeed(SystemClock(), connection, self._options, version=version, since_ms=since_ms)
        return self._feed


def pieces_of_change(table: TableDef, change: PartChange) -> list[PartPiece]:
    """Return what tasks read to know the rows of a change. Raises PartShapeUnknownError."""
    now = source_of(change.part, stored_schema(table, change.part), change.after)
    wanted = wanted_of(table, change.part.schema_version)
    if change.kind is PartChangeKind.INSERT:
        return cut(PartPiece(source=now, wanted=wanted, first=0, end=now.rows, version=change.version))
    before = change.source or change.part
    piece = PartPiece(
        source=source_of(before, stored_schema(table, before), change.before),
        wanted=wanted_of(table, before.schema_version),
        first=0,
        end=before.rows,
        version=change.version,
        change=change.kind,
    )
    if change.kind is not PartChangeKind.DELETE:
        piece = msgspec.structs.replace(piece, after=now, wanted_after=wanted)
    return cut(piece)


class _OpenFeed:
    """A reader that the server holds, and the thread that renews it."""

    def __init__(
        self,
        clock: Clock,
        connection: Connection,
        options: StreamOptions,
        *,
        version: int | None,
        since_ms: int | None,
    ) -> None:
        self._clock = clock
        self._connection = connection
        self._hold_ms = int(options.hold_seconds * 1000)
        name = options.reader_name or f"spark {random_id()[:12]}"
        self.start: FeedStart = connection.open_feed(
            options.database, options.table, name=name, hold_ms=self._hold_ms, version=version, as_of_ms=since_ms
        )
        self.last_newest = self.start.newest
        self._lost: TilthError | None = None
        self._stopping = threading.Event()
        self._pause = min(RENEW_SECONDS, options.hold_seconds / 3)
        threading.Thread(target=self._renew, name="tilth-reader", daemon=True).start()

    def newest(self) -> int:
        """Return the table's version now; raises the error by which the hold was lost."""
        if self._lost is not None:
            raise self._lost
        self.last_newest = self._connection.renew_feed(self.start.lease.id, hold_ms=self._hold_ms)
        return self.last_newest

    def changes(self, start: int, end: int) -> ChangeSet:
        return self._connection.feed_changes(self.start.lease.id, start, end)

    def advance(self, version: int) -> None:
        self._connection.renew_feed(self.start.lease.id, hold_ms=self._hold_ms, version=version)

    def close(self) -> None:
        self._stopping.set()
        self._connection.close()

    def _renew(self) -> None:
        while not self._clock.wait(self._stopping, self._pause):
            try:
                self._connection.renew_feed(self.start.lease.id, hold_ms=self._hold_ms)
            except TilthError as error:
                if error.kind in (ErrorKind.FENCED, ErrorKind.NOT_FOUND):
                    self._lost = error
                    return
                # A server that is away may come back before the hold ends.
                _log.warning("reader_not_renewed", reader=self.start.lease.id, reason=error)
