"""Changes of a table from one version to another, as a server hands them to a reader outside."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tilth.model.delta import Delta
from tilth.model.lease import ReaderLease
from tilth.model.part import Part
from tilth.model.table import TableDef

#: Position of a reader that has read nothing: the rows that the table has are its first changes.
NOTHING_READ = -1
#: Versions of one answer.
VERSIONS_MAX = 10_000


class PartChangeKind(StrEnum):
    #: The rows that the part has after the version came with it.
    INSERT = "insert"
    #: The rows that the part had before the version went with it.
    DELETE = "delete"
    #: Rows of the part were deleted or got new values.
    CHANGE = "change"
    #: The part was written anew by a mutation, from one with the same rows in the same order; from a segment, sorted.
    REWRITE = "rewrite"


class PartChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of one version in the rows of one part."""

    version: int
    kind: PartChangeKind
    part: Part
    #: Changes of its rows before the version, and after it.
    before: tuple[Delta, ...] = ()
    after: tuple[Delta, ...] = ()
    #: Part that it was rewritten from, which `before` changes.
    source: Part | None = None


class ChangeSet(msgspec.Struct, frozen=True, kw_only=True):
    """All changes after one version up to another one."""

    table: TableDef
    #: Root below which the files are.
    root: str
    #: Changes in the order of their versions.
    changes: tuple[PartChange, ...]


class FeedStart(msgspec.Struct, frozen=True, kw_only=True):
    """A reader of changes that was opened."""

    lease: ReaderLease
    table: TableDef
    #: Version whose changes it has read; NOTHING_READ: it reads the whole table first.
    position: int
    #: The table's version now.
    newest: int
