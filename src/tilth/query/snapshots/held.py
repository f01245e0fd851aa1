"""Snapshots with a lease that keeps their files.

Always holds: the lease is there before the snapshot is read, and in the end is of exactly the snapshot's time; so a
part that is shown was committed at or before that time and ends after it, as GC requires of leases. Every
commit that was answered before is shown. Whether a past time is kept is checked once more when the lease is
there: from then on it stays so.

Tests: tests/unit/query/snapshots/test_as_of.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from tilth.base.clock import Clock
from tilth.catalog import Catalog
from tilth.model.lease import ReaderLease
from tilth.model.part import Part
from tilth.model.snapshot import Snapshot
from tilth.model.table import TableDef, ViewDef, full_name
from tilth.query.errors import WrongKindOfTableError
from tilth.query.snapshots.as_of import ReadTime, check_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """Holder of the leases on a snapshot's files, and how long they last unless they are renewed."""

    #: The server.
    holder: str
    ttl_ms: int
    #: Client that reads; empty: this process.
    client: str = ""
    #: `True` if another program reads the files.
    is_outside: bool = False

    def open_all(self, catalog: Catalog, snapshots: Mapping[str, int]) -> list[ReaderLease]:
        return catalog.readers.open_all(
            snapshots, self.holder, self.ttl_ms, client=self.client, is_outside=self.is_outside
        )


def held_snapshot(
    catalog: Catalog, table: str, holder: LeaseHolder, *, keep: Callable[[Part], bool] | None = None
) -> tuple[Snapshot, ReaderLease]:
    """Return the table as of its newest commit. The lease is the caller's to renew and to close."""
    [held] = held_snapshots(catalog, {table: keep}, holder)
    return held


def held_snapshots(
    catalog: Catalog, keeps: Mapping[str, Callable[[Part], bool] | None], holder: LeaseHolder
) -> list[tuple[Snapshot, ReaderLease]]:
    """Return the snapshot and the lease of each table as `held_snapshot` does, with one commit for all leases."""
    newest = {table: catalog.parts.version(table).last_commit_ts for table in keeps}
    leases = holder.open_all(catalog, newest)
    try:
        return [
            _exact(catalog, lease, catalog.parts.snapshot(lease.table, keep=keeps[lease.table]), holder)
            for lease in leases
        ]
    except BaseException:
        catalog.readers.close_all(leases)
        raise


def _exact(
    catalog: Catalog, lease: ReaderLease, snapshot: Snapshot, holder: LeaseHolder
) -> tuple[Snapshot, ReaderLease]:
    if snapshot.ts == lease.snapshot_ts:
        return snapshot, lease
    # Somebody committed in between. Until here, the older time has kept what the newer one needs.
    exact = msgspec.structs.replace(lease, snapshot_ts=snapshot.ts)
    return snapshot, catalog.readers.renew(exact, holder.ttl_ms)


def held_past(
    catalog: Catalog,
    clock: Clock,
    table: TableDef,
    read_time: ReadTime,
    holder: LeaseHolder,
    *,
    keep: Callable[[Part], bool] | None = None,
) -> tuple[Snapshot, ReaderLease]:
    """Return the table as of a time that was found readable. The lease is the caller's. Raises SnapshotTooOldError."""
    [lease] = holder.open_all(catalog, {table.uuid: read_time.ts})
    try:
        check_kept(catalog, clock, table, read_time)
        return catalog.parts.snapshot(table.uuid, at=read_time.ts, keep=keep), lease
    except BaseException:
        catalog.readers.close(lease)
        raise


def table_of_rows(catalog: Catalog, database: str, name: str) -> TableDef:
    """Return the table behind a name; a view stands for the table that it writes into. Raises WrongKindOfTableError."""
    relation = catalog.tables.get(database, name)
    found = catalog.tables.by_id(relation.target) if isinstance(relation, ViewDef) else relation
    if not isinstance(found, TableDef):
        raise WrongKindOfTableError("only tables of rows can be read", table=full_name(relation))
    return found
