"""Notes in part files: what a catalog knew of them when they were written, for the day when it is lost.

Covers: notes of parts and of row segments, reading them. Does not cover: what is made of them (tilth.recovery), files
with changes of rows, which have none. Always holds: nobody who reads rows needs a note.

A note cannot contain that its file was committed, nor which blocks it got: both are known only after it was written.
What replaces other parts names their files instead.

Tests: tests/integration/storage/test_storage_files.py.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tilth.model.part import Bound, ColumnRange
from tilth.model.table import SchemaVersion, TableDef
from tilth.storage.errors import PartFileCorruptError
from tilth.storage.store.files.whole import open_whole
from tilth.storage.store.paths import PART_EXTENSION, TableLayout
from tilth.storage.store.root import Folder

#: The key of a note in the metadata of a Parquet footer, and of an Arrow schema.
NOTE = b"tilth.part"
#: Definitions that many notes share.
TABLES_MAX = 1024


class PartNote(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that a file contains about itself."""

    #: Definition when the file was written, without former columns.
    table: TableDef
    #: The columns that the file has.
    shape: SchemaVersion
    partition: str
    values: tuple[Bound, ...]
    rows: int
    ranges: dict[str, ColumnRange]
    is_filterable: bool
    #: Names of the files that it replaces; none: its rows were new.
    sources: tuple[str, ...] = ()
    #: Number of key ranges into which the merge was cut that replaces them; this file has the rows of one.
    pieces: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Files that a file replaces; see PartNote."""

    sources: Sequence[str] = ()
    pieces: int = 1


class _Stored(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A note in a file."""

    #: `TableLayout.about`.
    about: bytes
    partition: str
    values: tuple[Bound, ...]
    rows: int
    ranges: dict[str, ColumnRange]
    is_filterable: bool
    sources: tuple[str, ...] = ()
    pieces: int = 1


NEW_ROWS = Replaced()


def new_note(
    layout: TableLayout,
    *,
    partition: str,
    values: tuple[Bound, ...],
    rows: int,
    ranges: dict[str, ColumnRange],
    is_filterable: bool = False,
    replaced: Replaced = NEW_ROWS,
) -> dict[bytes, bytes]:
    """Return the note of a new file as metadata; nothing where the layout was not made of a table's definition."""
    if not layout.about:
        return {}
    stored = _Stored(
        about=layout.about,
        partition=partition,
        values=values,
        rows=rows,
        ranges=ranges,
        is_filterable=is_filterable,
        sources=tuple(replaced.sources),
        pieces=replaced.pieces,
    )
    return {NOTE: base64.b64encode(zlib.compress(msgspec.msgpack.encode(stored)))}


def read_note(folder: Folder, name: str) -> PartNote | None:
    """Return the note of a part's file or of a row segment; None where it has none.

    Raises FileNotFoundError, and PartFileCorruptError where the file is not whole.
    """
    try:
        if name.endswith(f".{PART_EXTENSION}"):
            metadata = pq.ParquetFile(open_whole(folder, name)).metadata.metadata
        else:
            metadata = pa.ipc.open_file(open_whole(folder, name)).schema.metadata
        noted = (metadata or {}).get(NOTE)
        return None if noted is None else _decode(noted)
    except FileNotFoundError:
        raise
    # An empty file, a file that was cut off, and bytes that are no note raise these.
    except (pa.ArrowException, OSError, ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise PartFileCorruptError(file=folder.uri(name), because=(str(error).splitlines() or [""])[0]) from error


@lru_cache(maxsize=TABLES_MAX)
def _table_of(about: bytes) -> tuple[TableDef, SchemaVersion]:
    return msgspec.msgpack.decode(about, type=tuple[TableDef, SchemaVersion])


def _decode(noted: bytes) -> PartNote:
    stored = msgspec.msgpack.decode(zlib.decompress(base64.b64decode(noted)), type=_Stored)
    table, shape = _table_of(stored.about)
    return PartNote(
        table=table,
        shape=shape,
        partition=stored.partition,
        values=stored.values,
        rows=stored.rows,
        ranges=stored.ranges,
        is_filterable=stored.is_filterable,
        sources=stored.sources,
        pieces=stored.pieces,
    )
