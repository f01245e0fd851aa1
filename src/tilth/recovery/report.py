"""The nouns of a rebuild: the options of the caller, and its report. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    """Options of a rebuild of a catalog."""

    #: Nothing is kept.
    is_dry_run: bool = False
    #: Checks against a journal compare the sizes of files, not their bytes.
    is_quick: bool = False
    #: A journal is passed over.
    is_files_only: bool = False
    #: Files that may be uncommitted count, in a rebuild from files alone.
    keeps_uncommitted: bool = False


class FindingKind(StrEnum):
    """Subject of a line of the report."""

    #: The journal has a hole, or a file of it is damaged: what changed later is not known.
    JOURNAL = "journal"
    #: A part's file is not there, or is not what was written: its rows are left out.
    LEFT_OUT = "left_out"
    #: A file with changes of rows is not there, or damaged: rows that need it cannot be read until it is put back.
    UNREADABLE = "unreadable"
    #: A file that only reads of the past or UNDROP need is not there.
    PAST = "past"
    #: A file of work of which it is not known whether it was committed.
    UNKNOWN = "unknown"
    #: A file of work that is known to be over, and that no table needs.
    LEFTOVER = "leftover"
    #: A file that Tilth did not write.
    FOREIGN = "foreign"
    #: A folder of a table of which nothing is known.
    UNKNOWN_TABLE = "unknown_table"
    #: A file with new values of rows that are not applied.
    CHANGES = "changes"
    #: Facts that are in no file.
    NOT_IN_FILES = "not_in_files"
    #: Secrets, which are never written beside the tables' files.
    SECRETS = "secrets"


#: Findings that leave the current tables whole.
_HARMLESS = frozenset({FindingKind.PAST, FindingKind.LEFTOVER, FindingKind.FOREIGN})


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the rebuilt catalog does not have, or that is not sure."""

    kind: FindingKind
    #: `database.table`; empty: none is known.
    table: str = ""
    #: Its address; empty: it is about no file.
    file: str = ""
    #: Rows that it has, where that is known.
    rows: int | None = None
    #: Description, and what can be done.
    text: str


class RebuiltTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the rebuilt catalog."""

    #: `database.table`.
    name: str
    rows: int
    parts: int


class RebuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """Tables that were rebuilt, and all that is not known."""

    #: Milliseconds since 1970: all commits until then are in it; 0: it was made of files alone.
    known_until_ms: int
    #: Records of the catalog.
    records: int
    #: `True` for a dry run: nothing was kept.
    is_dry_run: bool
    tables: tuple[RebuiltTable, ...]
    findings: tuple[Finding, ...]

    @property
    def is_sure(self) -> bool:
        """Return whether nothing is unknown that tables and consumers need from now on."""
        return all(each.kind in _HARMLESS for each in self.findings)


@dataclass(slots=True)
class RebuildNotes:
    """The report of a rebuild that is under way."""

    tables: list[RebuiltTable] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def note(self, kind: FindingKind, text: str, *, table: str = "", file: str = "", rows: int | None = None) -> None:
        self.findings.append(Finding(kind=kind, table=table, file=file, rows=rows, text=text))
