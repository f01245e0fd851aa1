"""Requirements of a commit beside what its updates imply. Pure.

Always holds: a requirement is checked against the same state that the batch's preconditions pin.

Tests: tests/unit/catalog/commit/test_transactions.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tilth.catalog.errors import (
    FileTakenError,
    PartsChangedError,
    PartsGoneError,
    SchemaChangedError,
    TooManyPartsError,
)
from tilth.catalog.rules.changes import TableChange
from tilth.catalog.rules.pressure import TOO_MANY_HINT
from tilth.catalog.rules.state import check_fence
from tilth.catalog.rules.updates import LoadFile
from tilth.model.lease import Fence, Lease
from tilth.model.loaded_file import LoadedFile
from tilth.model.part import Part, PartName
from tilth.model.table import TableDef, full_name

#: Names that an error spells out.
_NAMES_LISTED_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaIs:
    """The table's columns are those that the files were written with, but for defaults and comments."""

    table: str
    schema_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsBelow:
    """After the commit no partition that it inserts into has more visible parts than this, nor the table in total."""

    table: str
    #: 0: no limit.
    per_partition: int
    #: 0: no limit.
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRowsSince:
    """No rows were added since: the search for the rows of unique keys has seen them all."""

    table: str
    #: Hybrid time of the snapshot that was searched.
    ts: int
    #: Partitions that were searched for keys; None: the whole table.
    partitions: tuple[str, ...] | None = None


Requirement = SchemaIs | PartsBelow | NoRowsSince


def required_tables(requirements: Iterable[Requirement]) -> set[str]:
    return {each.table for each in requirements}


def check_schema(definition: TableDef, requirement: SchemaIs) -> None:
    """Raises SchemaChangedError. Columns that differ in defaults and comments alone are the same."""
    written_with = definition.schema_of(requirement.schema_version)
    if written_with is None or not written_with.is_stored_as(definition.schema):
        raise SchemaChangedError(
            table=full_name(definition),
            written_with=requirement.schema_version,
            now=definition.schema_version,
            hint="read the table's definition again, and retry the write",
        )


def check_planned(definition: TableDef, from_version: int) -> None:
    """Raise SchemaChangedError for an ALTER that was checked against other columns than the current ones."""
    if definition.schema_version != from_version:
        raise SchemaChangedError(
            table=full_name(definition),
            planned_for=from_version,
            now=definition.schema_version,
            hint="read the table's definition again",
        )


def check_loaded(table: str, update: LoadFile, known: LoadedFile | None) -> None:
    """Raises FileTakenError where the ledger of files has another record than the update says."""
    if known != update.before:
        hint = "run the statement again: it loads the files that are left"
        raise FileTakenError(table=table, file=update.loaded.file, hint=hint)


def check_fences(leases: dict[str, Lease | None], fences: Iterable[Fence]) -> None:
    for fence in fences:
        check_fence(leases.get(fence.name), fence)


def check_parts(definition: TableDef, change: TableChange, inserted: Iterable[str], requirement: PartsBelow) -> None:
    """Raises TooManyPartsError; `inserted` are the partitions that get new rows."""
    limit = requirement.per_partition
    for partition in sorted(inserted):
        parts = change.partitions[partition].counted_parts
        if limit and parts > limit:
            raise TooManyPartsError(
                table=full_name(definition),
                partition=partition,
                parts=parts,
                parts_to_throw_insert=limit,
                hint=TOO_MANY_HINT,
            )
    if requirement.total and change.version.counted_parts > requirement.total:
        raise TooManyPartsError(
            table=full_name(definition),
            parts=change.version.counted_parts,
            max_parts_in_total=requirement.total,
            hint=TOO_MANY_HINT,
        )


def check_no_rows_since(
    definition: TableDef, parts: Iterable[Part], requirement: NoRowsSince, *, undone_ts: int
) -> None:
    """Raises PartsChangedError naming files with rows that came in since; `parts` are the visible ones.

    `undone_ts`: the newest undoing of a drop, which brings old rows back.
    """
    is_undone = undone_ts > requirement.ts
    files = [part.file.name for part in parts if is_undone or part.max_row_ts > requirement.ts]
    if files:
        listed = ", ".join(sorted(files)[:_NAMES_LISTED_MAX])
        raise PartsChangedError(
            "rows were inserted since the table was read",
            table=full_name(definition),
            files=listed,
            count=len(files),
            hint="search again",
        )


def check_visible(definition: TableDef, seen: Mapping[PartName, Part], names: Collection[PartName]) -> list[Part]:
    """Return the visible parts that have these names, in the order of the names; raises PartsGoneError naming those
    that are not visible.
    """
    gone = [name for name in names if name not in seen]
    if gone:
        listed = ", ".join(str(name) for name in gone[:_NAMES_LISTED_MAX])
        hint = "they were merged or dropped meanwhile: choose again"
        raise PartsGoneError(table=full_name(definition), parts=listed, count=len(gone), hint=hint)
    return [seen[name] for name in names]
