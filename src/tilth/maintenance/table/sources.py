"""Parts that work is about to read, with what has changed in them: as the catalog says it, for a task and for a commit.

Covers: reading them from one view, sources for a task, what was seen for the commit, what is new since. Does not cover:
which parts (the ops), who rebases what is new (work/attempt.py). The rest is pure.
Always holds: parts and their changes are of one snapshot, so what was seen is what the task reads.

Tests: tests/unit/maintenance/work/test_attempt.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tilth.catalog import Catalog, SchemaChangedError
from tilth.model.delta import Delta, PartSource, applied_order, by_file, source_of
from tilth.model.part import Part
from tilth.model.table import TableDef, full_name

#: Deltas that change a part, in the order in which they apply, by the name of its data file.
ChangesOf = Mapping[str, tuple[Delta, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsNow:
    """Visible parts of some partitions, in the order of their names, and what changes them."""

    parts: tuple[Part, ...]
    changes: ChangesOf

    def named(self, names: Iterable[str]) -> tuple[Part, ...]:
        """Return those of these parts that are there, in the order of the names."""
        there = {str(part.name): part for part in self.parts}
        return tuple(there[name] for name in names if name in there)


def parts_now(catalog: Catalog, table: str, partitions: Collection[str] | None = None) -> PartsNow:
    """Return what is visible now, in these partitions or in all. Raises TableNotFoundError."""
    snapshot = catalog.parts.snapshot(table, partitions=partitions)
    return PartsNow(parts=snapshot.parts, changes=by_file(snapshot.deltas))


def parts_by_partition(
    catalog: Catalog, table: str, partitions: Sequence[str], *, parts_max: int
) -> dict[str, PartsNow]:
    """Return `parts_now` of each of these partitions in one read, of each so many parts at most."""
    there = parts_now(catalog, table, partitions)
    found: dict[str, list[Part]] = {partition: [] for partition in partitions}
    for part in there.parts:
        members = found[part.name.partition]
        if len(members) < parts_max:
            members.append(part)
    return {name: PartsNow(parts=tuple(parts), changes=there.changes) for name, parts in found.items()}


def changes_of(parts: Sequence[Part], changes: ChangesOf) -> ChangesOf:
    """Return the changes of these parts, each delta saying only what it does to that one: others are none of the work's
    business."""
    return {
        part.file.name: tuple(_only(delta, part.file.name) for delta in changes[part.file.name])
        for part in parts
        if part.file.name in changes
    }


def sources_of(definition: TableDef, parts: Iterable[Part], changes: ChangesOf) -> tuple[PartSource, ...]:
    """Return the sources that a task must know; raises SchemaChangedError where the definition lacks the columns of
    one."""
    return tuple(_source(definition, part, changes.get(part.file.name, ())) for part in parts)


def newer(sources: Iterable[PartSource], seen: Mapping[str, int], deltas: Iterable[Delta]) -> list[PartSource]:
    """The sources, each with those of the deltas alone that are newer than what was seen of it."""
    found = by_file(deltas)
    return [
        msgspec.structs.replace(
            source,
            deltas=tuple(
                _only(delta, source.file.name)
                for delta in applied_order(found.get(source.file.name, ()))
                if delta.change_ts > seen.get(source.file.name, 0)
            ),
        )
        for source in sources
    ]


def read_bytes(parts: Iterable[Part], changes: ChangesOf) -> int:
    """Return the bytes that reading the parts takes, with their share of what changes them."""
    return sum(part.bytes + delta_bytes(part, changes) for part in parts)


def delta_bytes(part: Part, changes: ChangesOf) -> int:
    """The part's share of the bytes of the deltas that change it, by rows."""
    return sum(_share(delta, part.file.name) for delta in changes.get(part.file.name, ()))


def _share(delta: Delta, file: str) -> int:
    rows = {target.file: target.deleted + target.updated for target in delta.targets}
    return delta.bytes * rows[file] // max(1, sum(rows.values()))


def _only(delta: Delta, file: str) -> Delta:
    if len(delta.targets) == 1:
        return delta
    return msgspec.structs.replace(delta, targets=tuple(target for target in delta.targets if target.file == file))


def _source(definition: TableDef, part: Part, deltas: Sequence[Delta]) -> PartSource:
    schema = definition.schema_of(part.schema_version)
    if schema is None:
        raise SchemaChangedError(
            "the columns that the part was written with are not known yet",
            table=full_name(definition),
            part=part.name,
            schema_version=part.schema_version,
            hint="it is tried again when the table's definition has been read anew",
        )
    return source_of(part, schema, deltas)
