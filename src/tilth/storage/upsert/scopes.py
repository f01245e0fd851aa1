"""Lookup of the keys of written rows, and the upserts of all scopes that have them, one after the other.

Covers: the scope of a table's keys, the requests for a snapshot, their files' numbers. Does not cover: which rows go
(upsert.py), when it is repeated (whoever commits).
Always holds: one request for each partition that got rows, or one for a table whose keys are unique in all of it; the
change segments of one task are numbered through.

Tests: tests/unit/statements/inserts/test_upserts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from tilth.model.delta import Seen, WrittenDelta, seen_of
from tilth.model.part import WrittenPart
from tilth.model.snapshot import Snapshot
from tilth.model.table import TableDef
from tilth.storage.deltas.sources import sources_of
from tilth.storage.settings import storage_settings
from tilth.storage.store.paths import layout_of
from tilth.storage.store.root import Roots
from tilth.storage.upsert.upsert import UpsertRequest, candidates, fresh_sources, resolve_upserts

#: Tries of a commit of upserts that loses to other commits of the same rows. Each try has a task number of its own, so
#: that its files have no holes.
UPSERT_TRIES_MAX = 20
#: Files up to this size in total are searched where the rows came in: a Spark job takes 0.1 s before it begins.
UPSERT_HERE_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertLookup:
    """The search for older rows of the keys that came into one table, at one try."""

    #: The scope; None: the whole table.
    partitions: tuple[str, ...] | None
    #: Hybrid time of the snapshot.
    ts: int
    #: One for each partition of the scope, or one for the table.
    requests: tuple[UpsertRequest, ...]

    @property
    def bytes(self) -> int:
        """Bytes that are read at most; a change segment counts once, however many files it changes."""
        sources = [source for request in self.requests for source in (*request.fresh, *request.existing)]
        files = [source.file for source in sources] + [delta.file for source in sources for delta in source.deltas]
        return sum({file.name: file.size for file in files}.values())

    @property
    def seen(self) -> Seen:
        """Newest changes of the existing files that the snapshot shows."""
        return seen_of(source for request in self.requests for source in request.existing)


def key_scope(table: TableDef, written: Iterable[WrittenPart]) -> tuple[str, ...] | None:
    """The partitions in which older rows of these keys may be; None: anywhere in the table."""
    if not storage_settings(table).partition_level_unique_keys:
        return None
    return tuple(sorted({part.partition for part in written}))


def upsert_lookup(
    table: TableDef,
    written: Sequence[WrittenPart],
    snapshot: Snapshot,
    *,
    root: Roots,
    txn: int,
    task: int,
    quorum: int = 0,
) -> UpsertLookup:
    """Return the lookup for rows that a transaction has written, by a snapshot of their keys' scope.

    `quorum`: copies of each file that is written; 0: as the table is set. Raises PartShapeUnknownError.
    """
    scope = key_scope(table, written)
    layout, is_partial = layout_of(table, root, quorum=quorum), storage_settings(table).enable_unique_partial_update
    requests = []
    for partition in scope or (None,):
        fresh = [part for part in written if partition in (None, part.partition)]
        shown = [part for part in snapshot.parts if partition in (None, part.name.partition)]
        existing = sources_of(snapshot.table, candidates(snapshot.table, shown, fresh), snapshot.deltas)
        requests.append(
            UpsertRequest(
                layout=layout,
                is_partial=is_partial,
                fresh=fresh_sources(fresh, table.schema),
                existing=tuple(existing),
                txn=txn,
                task=task,
                attempt=0,
            )
        )
    return UpsertLookup(partitions=scope, ts=snapshot.ts, requests=tuple(requests))


def resolve_all(requests: Iterable[UpsertRequest], *, attempt: int) -> tuple[WrittenDelta, ...]:
    """Compute the changes for all requests, in their order; raises what `resolve_upserts` does."""
    changes: list[WrittenDelta] = []
    for request in requests:
        changes += resolve_upserts(msgspec.structs.replace(request, attempt=attempt, first_n=len(changes)))
    return tuple(changes)
