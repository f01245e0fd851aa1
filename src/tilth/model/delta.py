"""Deltas: files that change rows of parts without rewriting them.

Covers: change segments and the three kinds of deltas of one part, as the catalog keeps them. Does not cover: what is in
the files (tilth.storage), which of them a reader sees (catalog/rules/visibility.py).
Always holds: a delta names the parts that it changes by the names of their data files, which are never used again; it
changes only parts of its own partition; changes of one row apply in the order of `change_ts`; a row that is deleted
stays deleted and gets no new values.

Tests: tests/unit/catalog/rules/test_fold_deltas.py, tests/unit/maintenance/work/test_attempt.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from tilth.model.part import DataFile, Part, PartName
from tilth.model.table import Schema


class DeltaKind(StrEnum):
    #: A change segment: deletes and new values for rows of one or many parts of a partition. Arrow IPC.
    CHANGES = "changes"
    #: Deletion vector of one part: the indexes of deleted rows.
    DELETE = "delete"
    #: New values of some columns for some rows of one part. Parquet.
    UPDATE = "update"
    #: New values of some columns for all rows of one part. Parquet, with as many rows as the part.
    COLUMN = "column"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A part that a delta changes."""

    #: The name of the part's data file.
    file: str
    #: Rows that it deletes, none of which was deleted before; of a compacted delta: all that it holds.
    deleted: int = 0
    #: Rows that it gives new values.
    updated: int = 0


class WrittenDelta(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a delta's file from the task that wrote it; the commit makes it a Delta."""

    kind: DeltaKind
    partition: str
    file: DataFile
    targets: tuple[Target, ...]
    #: Ids of the columns that it has new values of.
    columns: tuple[int, ...] = ()
    #: Change time of the newest source of a compacted delta; 0: these changes are new, the commit sets their time.
    change_ts: int = 0


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A delta that is, or was, part of a table."""

    kind: DeltaKind
    partition: str
    file: DataFile
    targets: tuple[Target, ...]
    columns: tuple[int, ...] = ()
    #: Hybrid time of the newest change in it; those of one part apply in this order.
    change_ts: int
    #: Time from which readers see it.
    commit_ts: int
    #: Time from which readers see another delta instead; 0: they see this one.
    end_ts: int = 0
    #: The transaction that made it.
    txn: int = 0

    @property
    def bytes(self) -> int:
        return self.file.size

    @property
    def has_updates(self) -> bool:
        """True if the delta has new values, not only deletes."""
        return bool(self.columns)


class PartSource(msgspec.Struct, frozen=True, kw_only=True):
    """A part with all that changes it: what a task must know to read its rows as they are now."""

    #: Name of the part.
    name: PartName
    file: DataFile
    #: Rows in the file, including deleted ones.
    rows: int
    is_segment: bool
    #: The columns that the file has, and that deltas have new values of.
    schema: Schema
    #: Deltas in the order in which they apply.
    deltas: tuple[Delta, ...] = ()

    @property
    def change_ts(self) -> int:
        """Timestamp of the newest change; 0: none."""
        return max((delta.change_ts for delta in self.deltas), default=0)

    @property
    def bytes(self) -> int:
        """Bytes that a reader of the source reads at most."""
        return self.file.size + sum(delta.bytes for delta in self.deltas)


#: Names of data files with the time of the newest change of each that somebody knew of; 0: it had none.
Seen = tuple[tuple[str, int], ...]


def applied_order(deltas: Iterable[Delta]) -> list[Delta]:
    """Sort deltas in the order in which they apply. Of the same time, a dense patch comes first and sparse ones are
    laid over it.
    """
    return sorted(deltas, key=lambda delta: (delta.change_ts, delta.kind is not DeltaKind.COLUMN, delta.file.name))


def by_file(deltas: Iterable[Delta]) -> dict[str, tuple[Delta, ...]]:
    """Return the deltas of each data file by its name, in the order in which they apply."""
    found: dict[str, list[Delta]] = {}
    for delta in applied_order(deltas):
        for target in delta.targets:
            found.setdefault(target.file, []).append(delta)
    return {file: tuple(changes) for file, changes in found.items()}


def source_of(part: Part, schema: Schema, deltas: Sequence[Delta] = ()) -> PartSource:
    """The part as a source; `schema` is that of its schema version, `deltas` all that change it, in their order."""
    return PartSource(
        name=part.name,
        file=part.file,
        rows=part.rows,
        is_segment=part.is_segment,
        schema=schema,
        deltas=tuple(deltas),
    )


def seen_of(sources: Iterable[PartSource]) -> Seen:
    """Return the newest change of each source that its reader saw."""
    return tuple((source.file.name, source.change_ts) for source in sources)


def deleted_rows(file: str, deltas: Iterable[Delta]) -> int:
    """Count the rows of the data file that these deltas delete."""
    return sum(target.deleted for delta in deltas for target in delta.targets if target.file == file)
