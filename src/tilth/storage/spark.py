"""A snapshot as a DataFrame: Spark's own vectorised Parquet scan over a file index built from the catalog's names.

Covers: the plain lane (parts without deltas), parts of earlier shapes. Does not cover: which parts a query needs
(catalog, sql).
Always holds: no folder is listed, no file is asked for its status; `_metadata` has file names and row indexes, unless
the parts are of several shapes. Then each shape is a scan of its own under the names that its files have, so that
Spark prunes columns and pushes predicates down by the right ones, and the scans are laid end to end.

The index is made of Spark's internals, reached through the JVM: checked on Spark 4.3. Where one of them is missing, the
files are read through `spark.read.parquet`, which asks the file system about each, and the reason is logged. The
statuses of all files cross to the JVM in one call, as the bytes of a Hadoop `ArrayWritable`: a thousand cost what one
costs.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import reduce
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from tilth.base.logs import Log
from tilth.model.part import DataFile
from tilth.model.snapshot import Snapshot
from tilth.model.table import Column, Schema
from tilth.model.types import DataType
from tilth.storage.errors import PartFileCorruptError, PartFileNotFoundError, StoreAwayError
from tilth.storage.files import missing
from tilth.storage.paths import data_folder
from tilth.storage.shapes import expressions, groups_of

#: What is told as a file's block size and time of change; local files have no blocks and part files never change.
_BLOCK_BYTES = 128 << 20
_MODIFIED_MS = 0
_FILE_PERMISSION = 0o644
_DATASOURCES = "org.apache.spark.sql.execution.datasources"
#: More than the statuses of any list of files weigh: from a cache that is full, Spark drops some and lists the folder.
_CACHE_BYTES = 1 << 50
_FAILED_FILE = re.compile(r"reading file\s+file:/*(/\S+?\.parquet)")

_log = Log("storage")


# Any: handles of py4j have no types.
def read_snapshot(session: SparkSession, snapshot: Snapshot, root: str) -> DataFrame:
    """The rows of the snapshot's parts in the table's present columns; no parts, no rows.

    Nothing is read yet; the caller keeps the parts alive. Raises PartShapeUnknownError.
    """
    table = snapshot.table
    folder = data_folder(root, table.uuid)
    groups = groups_of(table, snapshot.parts)
    if not groups:
        return files_frame(session, folder=folder, files=(), schema=table.schema)
    frames = [
        shaped(files_frame(session, folder=folder, files=group.files, schema=group.stored), group.stored, group.wanted)
        for group in groups
    ]
    return reduce(DataFrame.union, frames)


def shaped(frame: DataFrame, from_schema: Schema, to_schema: Schema) -> DataFrame:
    """Rows of files with the first columns in the second ones, by id: renamed, cast, filled with defaults, left out.

    The frame itself where there is nothing to do.
    """
    if [_shape(column) for column in from_schema.columns] == [_shape(column) for column in to_schema.columns]:
        return frame
    return frame.selectExpr(*expressions(from_schema, to_schema))


def files_frame(session: SparkSession, *, folder: str, files: Sequence[DataFile], schema: Schema) -> DataFrame:
    """The rows of these files, direct children of the folder."""
    # Nullable, as of any files: a column may be younger than a file.
    declared: Any = StructType.fromDDL(schema.spark_ddl)
    spark_schema = StructType([StructField(field.name, field.dataType) for field in declared.fields])
    if not files:
        return session.createDataFrame([], spark_schema)
    try:
        return _indexed(session, folder, files, spark_schema)
    except (Py4JError, PySparkException, TypeError, _WrongIndexError) as error:
        _log.warning("index_unavailable", error=error, folder=folder, files=len(files), because=type(error).__name__)
    reader = session.read.schema(spark_schema)
    return reader.parquet(*(f"{folder}/{file.name}" for file in files))


def file_error(error: BaseException) -> PartFileCorruptError | PartFileNotFoundError | StoreAwayError | None:
    """What is wrong with which file, if that is why a query failed; None if it failed for another reason."""
    text = str(error)
    found = _FAILED_FILE.search(text)
    if "FAILED_READ_FILE" not in text or found is None:
        return None
    causes = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("Caused by:")]
    # The first only says once more that the file could not be read.
    because = causes[-1] if causes else ""
    path = unquote(found[1])
    if "FILE_NOT_EXIST" in text or "FileNotFoundException" in text:
        return missing(path, because)
    return PartFileCorruptError(file=path, because=because)


def _shape(column: Column) -> tuple[int, str, DataType]:
    return column.id, column.name, column.type


class _WrongIndexError(Exception):
    """Spark's index holds other files than it was given."""


def _indexed(session: SparkSession, folder: str, files: Sequence[DataFile], schema: StructType) -> DataFrame:
    jvm: Any = session.sparkContext._jvm
    java_session: Any = session._jsparkSession
    sources: Any = getattr(jvm, _DATASOURCES)
    folder_path = jvm.org.apache.hadoop.fs.Path(f"file:{folder}")
    java_schema = java_session.parseDataType(schema.json())
    none = jvm.scala.Option.empty()
    empty_map = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
    # Of our own: the session's is shared, bounded, and may be switched off.
    cache = sources.SharedInMemoryCache(_CACHE_BYTES, -1).createForNewClient()
    cache.putLeafFiles(folder_path, _statuses(session, folder, files))
    roots = jvm.org.apache.spark.api.python.PythonUtils.toSeq([folder_path])
    index = sources.InMemoryFileIndex(
        java_session, roots, empty_map, jvm.scala.Option.apply(java_schema), cache, none, none
    )
    _check_index(index, files)
    no_columns = jvm.org.apache.spark.sql.types.StructType()
    parquet = sources.parquet.ParquetFileFormat()
    relation = sources.HadoopFsRelation(index, no_columns, java_schema, none, parquet, empty_map, java_session)
    return DataFrame(java_session.baseRelationToDataFrame(relation), session)


def _check_index(index: Any, files: Sequence[DataFile]) -> None:
    """A folder holds files that no snapshot shows any more, or yet: an index that was listed would read those too."""
    count, size = index.allFiles().size(), index.sizeInBytes()
    wanted = sum(file.size for file in files)
    if (count, size) != (len(files), wanted):
        raise _WrongIndexError(f"{count} files of {size} bytes instead of {len(files)} of {wanted}")


def _statuses(session: SparkSession, folder: str, files: Sequence[DataFile]) -> Any:
    """A Java array of FileStatus, made by Hadoop itself from what it would have written."""
    jvm: Any = session.sparkContext._jvm
    gateway: Any = session.sparkContext._gateway
    written = bytearray(struct.pack(">i", len(files)))
    for file in files:
        status = _status_message(f"file:{folder}/{file.name}", file.size)
        written += struct.pack(">i", len(status)) + status
    array = jvm.org.apache.hadoop.io.ArrayWritable(jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileStatus"))
    array.readFields(jvm.java.io.DataInputStream(jvm.java.io.ByteArrayInputStream(bytes(written))))
    # The same objects in an array of the type that Spark asks for.
    statuses = gateway.new_array(jvm.org.apache.hadoop.fs.FileStatus, len(files))
    jvm.java.lang.System.arraycopy(array.get(), 0, statuses, 0, len(files))
    return statuses


def _status_message(path: str, size: int) -> bytes:
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
            b"\x38" + _varint(_MODIFIED_MS) + b"\x40" + _varint(_MODIFIED_MS),
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
