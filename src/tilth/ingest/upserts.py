"""Rounds into tables with unique keys: with the new rows, in the same commit, the older rows of their keys go.

Covers: where a round's keys are looked for, the work that finds them, files of tries that were refused. Does not cover:
which rows go (storage/upsert.py), committing (task.py).
Always holds: what is committed was found against all rows of the keys' scope; the files of a try are numbered through
within a table and are removed when the commit that was to name them was refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilth.base.logs import Log
from tilth.ingest.rounds import Scope, TableChanges, WrittenTo
from tilth.model.delta import WrittenDelta, seen_of
from tilth.model.snapshot import Snapshot
from tilth.model.table import TableDef
from tilth.storage import (
    UpsertRequest,
    key_scope,
    remove_file,
    resolve_all,
    upsert_requests,
)

#: Whoever else commits to the same tables may be faster so often before the round fails.
TRIES_MAX = 20
#: Up to so many bytes of files are looked through right where the consumer runs: a Spark job takes longer to begin.
HERE_BYTES_MAX = 16 << 20

_log = Log("ingest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """One table at one try: what is to be done, and what it stands on."""

    scope: Scope
    #: Hybrid time of the snapshot.
    ts: int
    #: One for each partition of the scope, or one for the table.
    requests: tuple[UpsertRequest, ...]

    @property
    def bytes(self) -> int:
        """What is read at most; a change segment counts once, however many files it changes."""
        sources = [source for request in self.requests for source in (*request.fresh, *request.existing)]
        files = [source.file for source in sources] + [delta.file for source in sources for delta in source.deltas]
        return sum({file.name: file.size for file in files}.values())

    def changes(self, deltas: tuple[WrittenDelta, ...]) -> TableChanges:
        """With what came of it."""
        seen = seen_of(source for request in self.requests for source in request.existing)
        return TableChanges(scope=self.scope, ts=self.ts, deltas=deltas, seen=seen)


def scopes_of(tables: Iterable[TableDef], parts: Sequence[WrittenTo]) -> tuple[Scope, ...]:
    """Where the keys of the rows that a round wrote are looked for; none for tables without a unique key."""
    scopes = []
    for table in tables:
        written = [each.part for each in parts if each.table == table.uuid]
        if table.unique_key and written:
            scopes.append(Scope(table=table.uuid, partitions=key_scope(table, written)))
    return tuple(scopes)


def lookups_of(
    tables: Mapping[str, TableDef],
    parts: Sequence[WrittenTo],
    scopes: Sequence[Scope],
    snapshots: Sequence[Snapshot],
    *,
    root: str,
    txn: int,
    task: int,
) -> list[Lookup]:
    """The work of one try; raises PartShapeUnknownError."""
    found = []
    for scope, snapshot in zip(scopes, snapshots, strict=True):
        written = [each.part for each in parts if each.table == scope.table]
        requests = upsert_requests(tables[scope.table], written, snapshot, root=root, txn=txn, task=task)
        found.append(Lookup(scope=scope, ts=snapshot.ts, requests=requests))
    return found


def resolved(lookups: Sequence[Lookup], *, task: int = 0, attempt: int) -> list[TableChanges]:
    """Of each table what its new rows replace, whose files are then there. `task` is Spark's number, not the files'."""
    return [each.changes(resolve_all(each.requests, attempt=attempt)) for each in lookups]


def remove_refused(root: str, changes: Iterable[TableChanges]) -> None:
    """Removes the files of a try whose commit was refused; what cannot be removed costs space and nothing else."""
    for change in changes:
        for delta in change.deltas:
            try:
                remove_file(root, change.scope.table, delta.file)
            except OSError as error:
                _log.warning("refused_changes_left", file=delta.file.name, reason=error)
