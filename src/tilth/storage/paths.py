"""Names of everything on the store, and how one table's files are laid out. Pure.

Covers: folders, file names, the layout that goes to executors. Does not cover: reading and writing (parts.py).
Always holds: a file name is unique for ever and follows from (txn, task, attempt, n) alone, so an aborted transaction
is cleaned by name, without listing a folder. What lies beside a part's file is found by that file's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from tilth.base.errors import InvalidInputError
from tilth.base.settings import Setting, value_of
from tilth.model.table import Schema, TableDef, Transform
from tilth.model.ttl import read_ttl
from tilth.storage.settings import (
    ENABLE_UNIQUE_PARTIAL_UPDATE,
    MEMORY_BUFFER,
    PARQUET_COMPRESSION_LEVEL,
    PARQUET_ROW_GROUP_BYTES,
    PARQUET_ROW_GROUP_ROWS,
    PARTITION_LEVEL_UNIQUE_KEYS,
    TABLE_SETTING_NAMES,
    TABLE_SETTINGS,
)

T = TypeVar("T")

#: The extension of part files, and of new values for rows of one part.
PART_EXTENSION = "parquet"
#: Of row segments and of change segments: Arrow IPC.
SEGMENT_EXTENSION = "arrow"
#: Of deletion vectors.
DELETE_EXTENSION = "puffin"
#: All that a transaction's tasks may write; each counts its files for itself.
EXTENSIONS = (PART_EXTENSION, SEGMENT_EXTENSION, DELETE_EXTENSION)
#: Beside a part's Parquet file, in no record: where each row of a merge's output came from.
MAP_EXTENSION = "map"
#: Beside a part's Parquet file, in no record: which keys it may hold.
FILTER_EXTENSION = "filter"
SIDECAR_EXTENSIONS = (MAP_EXTENSION, FILTER_EXTENSION)
#: The partition of a table without PARTITION BY.
WHOLE_TABLE = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """Facts about a table that a task needs to write its files; it is pickled and sent to executors."""

    #: The table's data folder; part files are its direct children.
    folder: str
    schema: Schema
    partition_by: tuple[Transform, ...] = ()
    #: Each file is sorted by these, ascending, nulls first; empty: in the order of writing.
    order_by: tuple[str, ...] = ()
    #: Of rows with equal values of these only the newest is left; of these columns too the files' ranges are kept.
    unique_key: tuple[str, ...] = ()
    #: Of two rows with one key the one with the greater value here is the newer; None: the later one.
    version_column: str | None = None
    #: Whether rows first land in row segments.
    is_buffered: bool = False
    #: Whether keys are unique across partitions, so that rows with one key may lie in several.
    is_keyed_across: bool = False
    #: Whether a NULL keeps the old value of the row with that key.
    is_partial: bool = False
    #: By this column's time rows expire; of it too the files' ranges are kept.
    ttl_column: str | None = None
    zstd_level: int = PARQUET_COMPRESSION_LEVEL.default
    row_group_rows: int = PARQUET_ROW_GROUP_ROWS.default
    #: Of uncompressed values, by estimate; the smaller of the two limits counts.
    row_group_bytes: int = PARQUET_ROW_GROUP_BYTES.default
    #: Wait for the disk before a file counts as written.
    fsync: bool = True


def table_folder(root: str, uuid: str) -> str:
    """Folder of everything of a table."""
    return f"{root}/{uuid}"


def data_folder(root: str, uuid: str) -> str:
    """Folder of all part files of a table."""
    return f"{table_folder(root, uuid)}/data"


def file_name(*, txn: int, task: int, attempt: int, n: int, extension: str = PART_EXTENSION) -> str:
    """`{txn}-{task}.{attempt}-{n}.{extension}`; n counts from 0 without holes within an attempt and an extension."""
    return f"{txn}-{task}.{attempt}-{n}.{extension}"


def sidecar_name(file: str, extension: str) -> str:
    """The name of what lies beside a part's file: `{stem}.{extension}`."""
    stem = file.rpartition(".")[0]
    return f"{stem}.{extension}"


def table_value(table: TableDef, setting: Setting[T]) -> T:
    """Return the value of one of storage's settings for this table."""
    text = table.settings.get(setting.name)
    return setting.default if text is None else setting.read(text)


def layout_of(table: TableDef, root: str, schema: Schema | None = None, *, fsync: bool = True) -> TableLayout:
    """The layout by the table's definition and settings; with a schema, for files with those columns.

    The columns must be of one of the table's versions: then they have those of the sort key, the unique key,
    the partition and the TTL.
    """
    given = {name: text for name, text in table.settings.items() if name in TABLE_SETTING_NAMES}
    values = TABLE_SETTINGS.read(given)
    return TableLayout(
        folder=data_folder(root, table.uuid),
        schema=table.schema if schema is None else schema,
        partition_by=table.partition_by,
        order_by=table.order_by,
        unique_key=table.unique_key,
        version_column=table.version_column,
        is_buffered=bool(table.unique_key) or value_of(values, MEMORY_BUFFER),
        is_keyed_across=bool(table.unique_key and table.partition_by)
        and not value_of(values, PARTITION_LEVEL_UNIQUE_KEYS),
        is_partial=bool(table.unique_key) and value_of(values, ENABLE_UNIQUE_PARTIAL_UPDATE),
        ttl_column=_ttl_column(table),
        zstd_level=value_of(values, PARQUET_COMPRESSION_LEVEL),
        row_group_rows=value_of(values, PARQUET_ROW_GROUP_ROWS),
        row_group_bytes=value_of(values, PARQUET_ROW_GROUP_BYTES),
        fsync=fsync,
    )


def _ttl_column(table: TableDef) -> str | None:
    if table.ttl is None:
        return None
    try:
        return read_ttl(table.ttl, table.schema).column
    except InvalidInputError:
        # Stored by an older version, which took any expression: nothing expires by it, and rows are still written.
        return None
