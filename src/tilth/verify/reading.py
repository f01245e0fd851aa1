"""Reads of the checks of a table's files: bytes, rows, deletions, keys; in the server or in Spark's tasks.

Covers: orders, which have all that a task must know, and carrying one out in this process. Does not cover: what the
findings mean (files.py), Spark's tasks (spark.py).
Always holds: it makes no difference to a finding where it was read; no catalog is needed here.

Tests: tests/unit/recovery/test_files_alone.py, tests/integration/sql/test_verify_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tilth.base.errors import ErrorKind, TilthError
from tilth.model.delta import PartSource, deleted_rows
from tilth.model.part import DataFile
from tilth.model.table import TableDef
from tilth.storage import (
    Folder,
    StoreRoot,
    check_file,
    footer_rows,
    layout_of,
    load_changes,
    read_segment,
    repeated_keys,
)


class CheckedPart(msgspec.Struct, frozen=True, array_like=True):
    """A part, and the number of rows that the catalog has of it."""

    source: PartSource
    rows: int


class FilesOrder(msgspec.Struct, frozen=True, kw_only=True, tag="files"):
    """Read size, checksum and number of rows of files; the answer is a list of `Wrong`."""

    folder: Folder
    parts: tuple[CheckedPart, ...] = ()
    deltas: tuple[DataFile, ...] = ()

    @property
    def size(self) -> int:
        return sum(each.source.file.size for each in self.parts) + sum(each.size for each in self.deltas)


class DeletesOrder(msgspec.Struct, frozen=True, kw_only=True, tag="deletes"):
    """Count the rows that deltas delete; the answer is a list of `Wrong`."""

    folder: Folder
    sources: tuple[PartSource, ...]

    @property
    def size(self) -> int:
        return sum(delta.bytes for source in self.sources for delta in source.deltas)


class KeysOrder(msgspec.Struct, frozen=True, kw_only=True, tag="keys"):
    """Count rows whose unique key another one of the same scope has; the answer is a number."""

    table: TableDef
    root: StoreRoot
    #: The parts of each scope.
    scopes: tuple[tuple[PartSource, ...], ...]

    @property
    def size(self) -> int:
        return sum(source.bytes for scope in self.scopes for source in scope)


#: An order, as a task gets it.
Order = FilesOrder | DeletesOrder | KeysOrder


class Wrong(msgspec.Struct, frozen=True, array_like=True):
    """A file that is not what the catalog has of it."""

    file: str
    #: Difference, in words.
    what: str


class Reads(Protocol):
    """Carries out orders."""

    def wrong(self, order: FilesOrder | DeletesOrder) -> Sequence[Wrong]:
        """Return what is wrong, in the order of the files. Raises UnavailableError: the store is away."""

    def repeated(self, order: KeysOrder) -> int:
        """Return the number of rows whose key an earlier one has. Raises what reading a part raises."""


class ReadsHere:
    """Carries out orders in this process."""

    def wrong(self, order: FilesOrder | DeletesOrder) -> list[Wrong]:
        if isinstance(order, DeletesOrder):
            return [found for source in order.sources if (found := wrong_deletes(order.folder, source)) is not None]
        parts = [found for part in order.parts if (found := wrong_part(order.folder, part)) is not None]
        deltas = [found for delta in order.deltas if (found := wrong_delta(order.folder, delta)) is not None]
        return [*parts, *deltas]

    def repeated(self, order: KeysOrder) -> int:
        layout = layout_of(order.table, order.root)
        return sum(repeated_keys(layout, scope) for scope in order.scopes)


def wrong_part(folder: Folder, part: CheckedPart) -> Wrong | None:
    """Read the file of a part; None: it is as it was written. Raises UnavailableError."""
    source = part.source
    try:
        check_file(folder, source.file)
        rows = _rows_in(folder, source)
    except TilthError as error:
        return _unreadable(source.file.name, source.name, error)
    if rows != part.rows:
        return Wrong(source.file.name, f"{source.name}: the file has {rows} rows, the catalog {part.rows}")
    return None


def wrong_delta(folder: Folder, file: DataFile) -> Wrong | None:
    """Read the file of a delta; None: it is as it was written. Raises UnavailableError."""
    try:
        check_file(folder, file, is_delta=True)
    except TilthError as error:
        return _unreadable(file.name, file.name, error)
    return None


def wrong_deletes(folder: Folder, source: PartSource) -> Wrong | None:
    """Compare the rows that deltas delete with the catalog's count of them; None: they are equal. Raises
    UnavailableError.
    """
    if not source.deltas:
        return None
    expected = deleted_rows(source.file.name, source.deltas)
    try:
        found = len(load_changes(folder, source, ()).deleted)
    except TilthError as error:
        return _unreadable(source.file.name, source.name, error)
    if found != expected:
        return Wrong(source.file.name, f"{source.name}: {found} rows are deleted, by the catalog {expected}")
    return None


def _unreadable(file: str, name: object, error: TilthError) -> Wrong:
    """Return what is wrong with a file that cannot be read. Raises the error of a store that is away: nothing is known
    of its files.
    """
    if error.kind is ErrorKind.UNAVAILABLE:
        raise error
    return Wrong(file, f"{name}: {error}")


def _rows_in(folder: Folder, source: PartSource) -> int:
    if not source.is_segment:
        return footer_rows(folder, source.file)
    first = source.schema.columns[0].name
    return sum(rows.num_rows for rows in read_segment(folder, source.file, source.schema, [first]))
