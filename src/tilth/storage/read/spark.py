"""A snapshot as a DataFrame: Spark's own vectorised Parquet scan over a file index built from the catalog's names.

Covers: the three scan paths (scan_paths.py), parts of earlier shapes. Does not cover: which parts a query needs
(catalog, sql), what tasks read in Python (overlay_spark.py).
Always holds: no folder is listed, no status of a file is read; the rows are the same whatever scan path they take. Each
shape and each scan path is a scan of its own under the names that its files have, so that Spark prunes columns and
pushes predicates down by the right ones, and the scans are laid end to end.

Deleted rows are left out of a scan by a filter (masked_spark.py): a row's file is known by its time of change in the
index, for which part files have no other use, and its position by its index in the file.

The index is made of Spark's internals, reached through the JVM: checked on Spark 4.3. Where one of them is missing, the
files are read through `spark.read.parquet`, which reads the status of each from the file system, and the reason is
logged. The statuses of all files cross to the JVM in one call, as the bytes of a Hadoop `ArrayWritable`: a thousand
cost what one costs.

Tests: tests/integration/storage/test_read_scan_paths.py, tests/integration/storage/test_storage_spark.py.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import islice
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import LongType, StructField, StructType

from tilth.base.errors import TilthError
from tilth.base.java_class import compiled_once
from tilth.base.logs import Log
from tilth.base.mailbox import Mailbox
from tilth.model.answer import error_in
from tilth.model.computed import reached_ids
from tilth.model.part import DataFile
from tilth.model.snapshot import Snapshot
from tilth.model.table import Column, Schema
from tilth.model.types import DataType, quoted
from tilth.storage.errors import PartFileCorruptError
from tilth.storage.read.hadoop_spark import let_spark_reach, object_error, own_uri, spark_uri, store_error
from tilth.storage.read.masked_spark import NUMBER, POSITION, DeletedRows, read_masks
from tilth.storage.read.masks import first_blocks
from tilth.storage.read.overlay_spark import (
    FILE_COLUMN,
    ROW_COLUMN,
    live_rows,
    ordered_rows,
    spark_schema,
)
from tilth.storage.read.scan_paths import Masked, is_changed, needed_ids, read_columns, scan_paths_of
from tilth.storage.store.files.files import missing_error
from tilth.storage.store.paths import data_folder
from tilth.storage.store.replicas.source_choice import SourceFiles, choose_sources
from tilth.storage.store.root import Folder, StoreRoot, local_folder, parse_root
from tilth.storage.values.scan_options import SCAN_OPTIONS, UNFILTERED_OPTIONS
from tilth.storage.values.shapes import PartScan, are_computed, expressions, scans_by_shape, scans_of

__all__ = [
    "FILE_COLUMN",
    "ROW_COLUMN",
    "file_error",
    "files_frame",
    "in_utc",
    "is_changed",
    "located_snapshot",
    "ordered_rows",
    "read_snapshot",
    "shaped",
]

#: Block size that the index reports for a file; local files have no blocks.
_BLOCK_BYTES = 128 << 20
_FILE_PERMISSION = 0o644
_DATASOURCES = "org.apache.spark.sql.execution.datasources"
#: Ends each text on its way to FileRelation.java.
_END = "\0"
_ZONE = "spark.sql.session.timeZone"
_FAILED_FILE = re.compile(r"reading file\s+(?:file:/*(?=/)|(?=hdfs://|s3a://))(\S+?\.parquet)")

_log = Log("storage")


def read_snapshot(
    session: SparkSession,
    snapshot: Snapshot,
    root: StoreRoot,
    columns: Collection[str] | None = None,
    *,
    mailbox: Mailbox | None = None,
) -> DataFrame:
    """The rows of the snapshot in the table's present columns; no parts, no rows.

    `columns`: the names of those that the caller reads, the others may be NULL; None: all. Nothing but deleted rows is
    read yet; the caller keeps the parts alive. `mailbox`: where `file_error` finds errors of tasks. Raises
    PartShapeUnknownError, and what reading a delta raises.
    """
    return _Reading(session, snapshot, root, columns, is_located=False, mailbox=mailbox).frame()


def located_snapshot(
    session: SparkSession,
    snapshot: Snapshot,
    root: StoreRoot,
    columns: Collection[str] | None = None,
    *,
    mailbox: Mailbox | None = None,
) -> DataFrame:
    """Read a snapshot with the position of each row: `__file`, its data file's name, and `__row`, its index there."""
    return _Reading(session, snapshot, root, columns, is_located=True, mailbox=mailbox).frame()


def shaped(frame: DataFrame, from_schema: Schema, to_schema: Schema) -> DataFrame:
    """Rows of files with the first columns in the second ones, by id: renamed, cast, filled with defaults, left out.

    The frame itself where there is nothing to do.
    """
    if [_shape(column) for column in from_schema.columns] == [_shape(column) for column in to_schema.columns]:
        return frame
    return _computed(frame, expressions(from_schema, to_schema), from_schema, to_schema)


def files_frame(
    session: SparkSession, *, folder: Folder, files: Sequence[DataFile], schema: Schema, is_filterable: bool
) -> DataFrame:
    """The rows of these files, direct children of the folder; `is_filterable`: all of them are."""
    declared = spark_schema(schema)
    if not files:
        return session.createDataFrame([], declared)
    options = SCAN_OPTIONS if is_filterable else UNFILTERED_OPTIONS
    frame = _native(session, folder, files, declared, options)
    if frame is not None:
        return frame
    paths = [
        f"{spark_uri(each.folder)}/{file.name}" for each in choose_sources(folder, files) for _, file in each.files
    ]
    return session.read.options(**options).schema(declared).parquet(*paths)


def file_error(error: BaseException, mailbox: Mailbox) -> TilthError | None:
    """Return the error of the file that made a query fail; None if it failed for another reason.

    `mailbox`: that of the frames. About its own scan Spark reports nothing but a text.
    """
    text = str(error)
    sent = error_in(text, mailbox)
    if sent is not None:
        return sent
    found = _FAILED_FILE.search(text)
    if "FAILED_READ_FILE" not in text or found is None:
        return None
    causes = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("Caused by:")]
    # The first only repeats that the file could not be read.
    because = causes[-1] if causes else ""
    path = own_uri(unquote(found[1]))
    if path.startswith("s3://"):
        return object_error(path, text, because)
    if not path.startswith("/") and (away := store_error(path, text, because)) is not None:
        return away
    if "FILE_NOT_EXIST" in text or "FileNotFoundException" in text:
        folder, _, name = path.rpartition("/")
        return missing_error(
            local_folder(folder) if folder.startswith("/") else Folder(parse_root(folder)), name, because
        )
    return PartFileCorruptError(file=path, because=because)


@contextmanager
def in_utc(session: SparkSession) -> Iterator[None]:
    """Let Spark analyse expressions by the clock of UTC, whichever the session's is: it runs them by the same one."""
    before = str(session.conf.get(_ZONE))
    session.conf.set(_ZONE, "UTC")
    try:
        yield
    finally:
        session.conf.set(_ZONE, before)


def _computed(frame: DataFrame, texts: Sequence[str], stored: Schema, wanted: Schema) -> DataFrame:
    if not are_computed(stored, wanted):
        return frame.selectExpr(*texts)
    with in_utc(frame.sparkSession):
        return frame.selectExpr(*texts)


def _shape(column: Column) -> tuple[int, str, DataType]:
    return column.id, column.name, column.type


class _Reading:
    """A snapshot on its way to a frame: each scan path and shape a frame of its own, laid end to end."""

    def __init__(
        self,
        session: SparkSession,
        snapshot: Snapshot,
        root: StoreRoot,
        columns: Collection[str] | None,
        *,
        is_located: bool,
        mailbox: Mailbox | None,
    ) -> None:
        self._session = session
        self._table = snapshot.table
        self._folder = data_folder(root, snapshot.table.uuid)
        self._needed = needed_ids(snapshot.table.schema, columns)
        if self._needed is not None and snapshot.table.older_schemas:
            # A file may lack a column, which is computed from others then.
            self._needed = reached_ids(snapshot.table.schema, self._needed)
        self._is_located = is_located
        self._mailbox = mailbox
        self._paths = scan_paths_of(snapshot, self._needed)

    def frame(self) -> DataFrame:
        """Build the frame; nothing but deleted rows is read yet."""
        frames = [self._plain_frame(scan) for scan in scans_of(self._table, self._paths.plain)]
        if self._needed is not None and not self._needed and not self._is_located:
            frames += self._counted()
        else:
            frames += self._masked_frames(scans_of(self._table, self._paths.masked))
            frames += [self._overlaid_frame(scan) for scan in scans_by_shape(self._table, self._paths.overlaid)]
        if not frames:
            return self._session.createDataFrame([], spark_schema(self._table.schema, is_located=self._is_located))
        return reduce(DataFrame.union, frames)

    def _plain_frame(self, scan: PartScan) -> DataFrame:
        frame = files_frame(
            self._session,
            folder=self._folder,
            files=scan.files,
            schema=scan.stored,
            is_filterable=scan.is_filterable,
        )
        if not self._is_located:
            return shaped(frame, scan.stored, scan.wanted)
        metadata = frame.metadataColumn("_metadata")
        file, row = metadata.getField("file_name"), metadata.getField("row_index")
        return self._select(frame.select("*", file.alias(FILE_COLUMN), row.alias(ROW_COLUMN)), scan)

    def _counted(self) -> list[DataFrame]:
        """Return as many rows as the changed parts have, for a reader that uses no column; the catalog knows the
        number.
        """
        rows = self._paths.changed_rows
        if not rows:
            return []
        nothing = self._table.schema
        return [self._session.range(rows).selectExpr(*expressions(nothing, nothing, ()))]

    def _masked_frames(self, scans: list[PartScan]) -> list[DataFrame]:
        if not scans:
            return []
        parts = [part for scan in scans for part in scan.parts]
        first = first_blocks(part.rows for part in parts)
        masked = [
            Masked(first_block=number, file=part.file.name, deltas=self._paths.changes[part.file.name])
            for number, part in zip(first, parts, strict=False)
        ]
        masks = read_masks(self._session, folder=self._folder, parts=masked, blocks=first[-1], mailbox=self._mailbox)
        try:
            # Once for all shapes.
            deleted = DeletedRows(self._session, masks)
        except (Py4JError, TypeError) as error:
            _warn_of_index(error, self._folder, len(parts))
            return [self._overlaid_frame(scan) for scan in scans]
        numbers = iter(first)
        return [self._without(deleted, scan, list(islice(numbers, len(scan.parts)))) for scan in scans]

    def _without(self, deleted: DeletedRows, scan: PartScan, numbers: Sequence[int]) -> DataFrame:
        declared = spark_schema(scan.stored)
        options = SCAN_OPTIONS if scan.is_filterable else UNFILTERED_OPTIONS
        frame = _native(self._session, self._folder, scan.files, declared, options, numbers, has_positions=True)
        if frame is None:
            # Only the index of our own knows the files by number.
            return self._overlaid_frame(scan)
        metadata = frame.metadataColumn("_metadata")
        position = functions.col(quoted(frame.columns[-1]))
        added = [metadata.getField("file_modification_time").alias(NUMBER), position.alias(POSITION)]
        if self._is_located:
            added += [metadata.getField("file_name").alias(FILE_COLUMN), position.alias(ROW_COLUMN)]
        return self._select(deleted.without(frame.select("*", *added)), scan)

    def _overlaid_frame(self, scan: PartScan) -> DataFrame:
        frame = live_rows(
            self._session,
            folder=self._folder,
            sources=[self._paths.source(self._table, part) for part in scan.parts],
            columns=read_columns(scan.stored, self._needed),
            is_located=self._is_located,
            mailbox=self._mailbox,
        )
        return self._select(frame, scan, self._needed)

    def _select(self, frame: DataFrame, scan: PartScan, needed: Collection[int] | None = None) -> DataFrame:
        """Select the wanted columns, and the row's position if it is wanted."""
        location = (FILE_COLUMN, ROW_COLUMN) if self._is_located else ()
        texts = [*expressions(scan.stored, scan.wanted, needed), *location]
        return _computed(frame, texts, scan.stored, scan.wanted)


def _native(
    session: SparkSession,
    folder: Folder,
    files: Sequence[DataFile],
    schema: StructType,
    options: Mapping[str, str],
    numbers: Sequence[int] | None = None,
    *,
    has_positions: bool = False,
) -> DataFrame | None:
    """The rows of the files, each file identified by its time, in milliseconds: its number, without `numbers` its
    position among them; `has_positions`: and as the last column each row's index in its file.

    None where Spark's internals are not as they were.
    """
    try:
        if has_positions:
            # Spark's scan requests this column from its reader to fill `_metadata.row_index`. Through that field it
            # makes an object of every row, which costs more than all the rest of a masked scan.
            # Any: handles of py4j have no types.
            parquet: Any = getattr(session._jvm, _DATASOURCES).parquet.ParquetFileFormat
            schema = StructType([*schema.fields, StructField(parquet.ROW_INDEX_TEMPORARY_COLUMN_NAME(), LongType())])
        return _indexed(session, folder, files, schema, options, range(len(files)) if numbers is None else numbers)
    except (Py4JError, PySparkException, TypeError) as error:
        _warn_of_index(error, folder, len(files))
        return None


def _warn_of_index(error: Exception, folder: Folder, files: int) -> None:
    _log.warning("index_unavailable", error=error, folder=folder, files=files, because=type(error).__name__)


def _indexed(
    session: SparkSession,
    folder: Folder,
    files: Sequence[DataFile],
    schema: StructType,
    options: Mapping[str, str],
    numbers: Sequence[int],
) -> DataFrame:
    sources = choose_sources(folder, files)
    for each in sources:
        let_spark_reach(session, each.folder.root)
    assert __package__ is not None
    frame = compiled_once(session, __package__, "FileRelation").frame(
        session._jsparkSession,
        schema.json(),
        "".join(f"{text}{_END}" for pair in options.items() for text in pair),
        "".join(f"{spark_uri(each.folder)}{_END}" for each in sources),
        b"".join(_statuses(each, numbers) for each in sources),
        len(files),
        sum(file.size for file in files),
    )
    return DataFrame(frame, session)


def _statuses(source: SourceFiles, numbers: Sequence[int]) -> bytes:
    """Return a Hadoop ArrayWritable of FileStatus, as Hadoop itself would write it."""
    written = bytearray(struct.pack(">i", len(source.files)))
    above = spark_uri(source.folder)
    for index, file in source.files:
        status = _status_message(f"{above}/{file.name}", file.size, numbers[index])
        written += struct.pack(">i", len(status)) + status
    return bytes(written)


def _status_message(path: str, size: int, modified_ms: int) -> bytes:
    """Hadoop's FileStatusProto: type, path, length, permission, owner and group, times, replication, block size."""
    encoded = path.encode()
    permission = b"\x08" + _varint(_FILE_PERMISSION)
    return b"".join(
        (
            b"\x08\x02",
            b"\x12" + _varint(len(encoded)) + encoded,
            b"\x18" + _varint(size),
            b"\x22" + _varint(len(permission)) + permission,
            b"\x2a\x00\x32\x00",
            b"\x38" + _varint(modified_ms) + b"\x40" + _varint(modified_ms),
            b"\x50\x01",
            b"\x58" + _varint(_BLOCK_BYTES),
        )
    )


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
