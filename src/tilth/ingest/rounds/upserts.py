"""Rounds into tables with unique keys: the commit of the new rows deletes the older rows of their keys.

Covers: the partitions in which a round's keys are looked up, the lookups. Does not cover: which rows are deleted
(storage/upsert/upsert.py), committing and trying again (consumer/task.py).
Always holds: what is committed was found against all rows of the keys' scope; the files of a try are numbered through
within a table.

Tests: tests/integration/ingest/test_upserts_from_kafka.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilth.ingest.rounds.round import Scope, TableChanges, WrittenTo
from tilth.model.delta import WrittenDelta
from tilth.model.snapshot import Snapshot
from tilth.model.table import TableDef
from tilth.storage import Roots, UpsertLookup, key_scope, resolve_all, upsert_lookup

#: Lookups by table.
Lookups = Mapping[str, UpsertLookup]


def scopes_of(tables: Iterable[TableDef], parts: Sequence[WrittenTo]) -> tuple[Scope, ...]:
    """Return where to look up the keys of the rows that a round wrote; none for tables without a unique key."""
    scopes = []
    for table in tables:
        written = [each.part for each in parts if each.table == table.uuid]
        if table.unique_key and written:
            scopes.append(Scope(table=table.uuid, partitions=key_scope(table, written)))
    return tuple(scopes)


def lookups_of(
    tables: Mapping[str, TableDef],
    parts: Sequence[WrittenTo],
    scopes: Iterable[tuple[Scope, Snapshot]],
    *,
    root: Roots,
    txn: int,
    task: int,
) -> Lookups:
    """Return the lookups of one try, from key scopes and their snapshots; raises PartShapeUnknownError."""
    found = {}
    for scope, snapshot in scopes:
        written = [each.part for each in parts if each.table == scope.table]
        found[scope.table] = upsert_lookup(tables[scope.table], written, snapshot, root=root, txn=txn, task=task)
    return found


def resolve(lookups: Lookups, *, task: int = 0, attempt: int) -> tuple[TableChanges, ...]:
    """Compute for each table the changes of the rows that its new rows replace, and write their files. `task` is
    Spark's number, not the files'.
    """
    return changes_of(lookups, [resolve_all(lookup.requests, attempt=attempt) for lookup in lookups.values()])


def changes_of(lookups: Lookups, deltas: Iterable[tuple[WrittenDelta, ...]]) -> tuple[TableChanges, ...]:
    """The changes of all tables, of which `deltas` are the files, in the same order."""
    return tuple(
        TableChanges(
            scope=Scope(table=table, partitions=lookup.partitions), ts=lookup.ts, deltas=found, seen=lookup.seen
        )
        for (table, lookup), found in zip(lookups.items(), deltas, strict=True)
    )
