"""Names of everything on the store, and how one table's files are laid out. Pure.

Covers: folders, file names, the layout that goes to executors. Does not cover: reads and writes (parts/part_files.py).
Always holds: a file name is unique for ever and follows from (txn, task, attempt, n) alone, so an aborted transaction
is cleaned by name, without listing a folder. What lies beside a part's file is found by that file's name.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from tilth.base.identity import by_identity
from tilth.base.units import MIB
from tilth.model.table import Schema, TableDef, Transform
from tilth.model.ttl import read_ttl
from tilth.model.txn import TxnOutput
from tilth.storage.settings import StorageSettings, storage_settings
from tilth.storage.store.root import Folder, Roots

#: The extension of part files, and of new values for rows of one part.
PART_EXTENSION = "parquet"
#: Extension of row segments and of change segments: Arrow IPC.
SEGMENT_EXTENSION = "arrow"
#: Extension of deletion vectors.
DELETE_EXTENSION = "puffin"
#: All that a transaction's tasks may write; each counts its files for itself.
EXTENSIONS = (PART_EXTENSION, SEGMENT_EXTENSION, DELETE_EXTENSION)
#: Row map beside a part's Parquet file, in no record: the source of each row of a merge's output.
MAP_EXTENSION = "map"
#: Key filter beside a part's Parquet file, in no record: the keys that it may hold.
FILTER_EXTENSION = "filter"
SIDECAR_EXTENSIONS = (MAP_EXTENSION, FILTER_EXTENSION)
#: The partition of a table without PARTITION BY.
WHOLE_TABLE = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """Facts about a table that a task needs to write its files; it is pickled and sent to executors."""

    #: The table's data folder; part files are its direct children.
    folder: Folder
    schema: Schema
    partition_by: tuple[Transform, ...] = ()
    #: Each file is sorted by these, ascending, nulls first; empty: in the order of writing.
    order_by: tuple[str, ...] = ()
    #: Unique key: only its newest row remains. The files' ranges of these columns are stored too.
    unique_key: tuple[str, ...] = ()
    #: Column that decides which of two rows with one key is newer: the greater value; None: the later row.
    version_column: str | None = None
    #: `True` if rows are first written to row segments.
    is_buffered: bool = False
    #: `True` if keys are unique across partitions; rows with one key may be in several.
    is_keyed_across: bool = False
    #: `True` if a NULL keeps the old value of the row with that key.
    is_partial: bool = False
    #: Column by whose time rows expire; its ranges in the files are stored too.
    ttl_column: str | None = None
    zstd_level: int = StorageSettings().parquet_compression_level
    row_group_rows: int = StorageSettings().parquet_row_group_rows
    #: Estimated bytes of uncompressed values; the smaller of the two limits applies.
    row_group_bytes: int = StorageSettings().parquet_row_group_bytes
    #: Size at which a row segment rolls, before compression; 0: never.
    segment_bytes: int = StorageSettings().segment_mb * MIB
    #: Wait for the disk before a file counts as written.
    fsync: bool = True
    #: The table's definition and the version of these columns, for the notes of new files; empty: they get none.
    about: bytes = b""


def table_folder(root: Roots, uuid: str) -> Folder:
    """Folder of everything of a table."""
    return Folder(root.of(uuid), uuid)


def data_folder(root: Roots, uuid: str) -> Folder:
    """Folder of all part files of a table."""
    return Folder(root.of(uuid), f"{uuid}/data")


def table_of(path: str) -> str:
    """Return the uuid of the table to which a file below a root belongs."""
    return path.partition("/")[0]


def name_of(path: str) -> str:
    """Return the name of a file in its folder."""
    return path.rpartition("/")[2]


def file_name(*, txn: int, task: int, attempt: int, n: int, extension: str = PART_EXTENSION) -> str:
    """`{txn}-{task}.{attempt}-{n}.{extension}`; n counts from 0 without holes within an attempt and an extension."""
    return f"{txn}-{task}.{attempt}-{n}.{extension}"


def sidecar_name(file: str, extension: str) -> str:
    """Name of a file beside a part's file: `{stem}.{extension}`."""
    stem = file.rpartition(".")[0]
    return f"{stem}.{extension}"


def part_of_sidecar(name: str) -> str | None:
    """Return the name of the part's file that a sidecar belongs to; None: the name is not that of a sidecar."""
    stem, _, extension = name.rpartition(".")
    return f"{stem}.{PART_EXTENSION}" if extension in SIDECAR_EXTENSIONS else None


def sidecars_of(name: str) -> list[str]:
    """Return the names of what may lie beside a file."""
    if not name.endswith(f".{PART_EXTENSION}"):
        return []
    return [sidecar_name(name, extension) for extension in SIDECAR_EXTENSIONS]


def layout_of(
    table: TableDef, root: Roots, schema: Schema | None = None, *, fsync: bool = True, quorum: int = 0
) -> TableLayout:
    """The layout by the table's definition and settings; with a schema, for files with those columns; with a quorum,
    for files with so many copies. Raises InvalidInputError.

    The columns must be of one of the table's versions: then they have those of the sort key, the unique key,
    the partition and the TTL.
    """
    settings = storage_settings(table)
    return TableLayout(
        folder=Folder(root.of(table.uuid).with_quorum(quorum or settings.insert_quorum), f"{table.uuid}/data"),
        schema=table.schema if schema is None else schema,
        partition_by=table.partition_by,
        order_by=table.order_by,
        unique_key=table.unique_key,
        version_column=table.version_column,
        is_buffered=bool(table.unique_key) or settings.memory_buffer,
        is_keyed_across=bool(table.unique_key and table.partition_by) and not settings.partition_level_unique_keys,
        is_partial=bool(table.unique_key) and settings.enable_unique_partial_update,
        ttl_column=None if table.ttl is None else read_ttl(table.ttl, table.schema).column,
        zstd_level=settings.parquet_compression_level,
        segment_bytes=settings.segment_mb * MIB,
        row_group_rows=settings.parquet_row_group_rows,
        row_group_bytes=settings.parquet_row_group_bytes,
        fsync=fsync,
        about=_about_own(table) if schema is None else _about(table, schema),
    )


def output_of(table: TableDef, root: Roots, *, tasks: int, quorum: int = 0) -> TxnOutput:
    """Return the output of tasks that write files of a table.

    `quorum`: number of copies of each file; 0: by the settings of the table or its storage.
    """
    copies = quorum or storage_settings(table).insert_quorum or root.of(table.uuid).quorum
    return TxnOutput(table=table.uuid, tasks=tasks, quorum=max(1, copies))


@by_identity(1_000)
def _about_own(table: TableDef) -> bytes:
    return _about(table, None)


def _about(table: TableDef, schema: Schema | None) -> bytes:
    shapes = (table.schema_now, *table.older_schemas)
    shape = next((each for each in shapes if each.schema == schema), table.schema_now)
    return msgspec.msgpack.encode((replace(table, older_schemas=()), shape))
