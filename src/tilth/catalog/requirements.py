"""What must hold for a commit besides what its updates imply. Pure.

Always holds: a requirement is checked against the same state that the batch's preconditions pin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tilth.catalog.errors import PartsGoneError, SchemaChangedError
from tilth.catalog.state import check_fence
from tilth.catalog.visibility import visible
from tilth.model.lease import Fence, Lease
from tilth.model.part import Entry, Part, PartName
from tilth.model.table import TableDef, full_name

#: Names that an error spells out.
_NAMES_TOLD_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaIs:
    """The table's columns are those that the files were written with."""

    table: str
    schema_version: int


@dataclass(frozen=True, slots=True)
class FenceHeld:
    """The actor still holds the right to act. The transaction's own fences are always checked."""

    fence: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsVisible:
    """All these parts are visible."""

    table: str
    names: tuple[PartName, ...]


@dataclass(frozen=True, slots=True)
class TableExists:
    """The table (of rows) is there and not dropped."""

    table: str


Requirement = SchemaIs | FenceHeld | PartsVisible | TableExists


def required_tables(requirements: Iterable[Requirement]) -> set[str]:
    """The uuids of the tables that the requirements look at."""
    return {each.table for each in requirements if not isinstance(each, FenceHeld)}


def check_schema(definition: TableDef, requirement: SchemaIs) -> None:
    """Raises SchemaChangedError."""
    if definition.schema_version != requirement.schema_version:
        raise SchemaChangedError(
            table=full_name(definition),
            written_with=requirement.schema_version,
            now=definition.schema_version,
            hint="read the table's definition again and write anew",
        )


def check_fences(leases: dict[str, Lease | None], fences: Iterable[Fence]) -> None:
    """Raises FencedError for the first fence that is not held."""
    for fence in fences:
        check_fence(leases.get(fence.name), fence)


def check_visible(definition: TableDef, entries: Collection[Entry], names: Collection[PartName]) -> list[Part]:
    """The parts of these names, in their order; raises PartsGoneError naming those that are not visible."""
    seen = {part.name: part for part in visible(entries)}
    gone = [name for name in names if name not in seen]
    if gone:
        told = ", ".join(str(name) for name in gone[:_NAMES_TOLD_MAX])
        hint = "they were merged or dropped meanwhile: choose again"
        raise PartsGoneError(table=full_name(definition), parts=told, count=len(gone), hint=hint)
    return [seen[name] for name in names]
