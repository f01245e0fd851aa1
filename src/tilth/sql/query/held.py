"""Snapshots with a lease that keeps their files.

Always holds: the lease is there before the snapshot is read, and in the end is of exactly the snapshot's time; so a
part that is shown was committed at or before that time and ends after it, which is what GC asks of leases. Every
commit that was answered before is shown. Whether a moment of the past is kept is looked at once more when the lease is
there: from then on it stays so.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tilth.base.clock import Clock
from tilth.catalog import Catalog
from tilth.model.lease import ReaderLease
from tilth.model.part import Part
from tilth.model.snapshot import Snapshot
from tilth.model.table import TableDef
from tilth.sql.query.past import Moment, check_kept


def held_snapshot(
    catalog: Catalog,
    table: str,
    *,
    holder: str,
    ttl_ms: int,
    keep: Callable[[Part], bool] | None = None,
    client: str = "",
    is_outside: bool = False,
) -> tuple[Snapshot, ReaderLease]:
    """The table as of its newest commit. The lease is the caller's to renew and to close."""
    newest = catalog.parts.version(table).last_commit_ts
    lease = catalog.readers.open(table, newest, holder, ttl_ms, client=client, is_outside=is_outside)
    try:
        snapshot = catalog.parts.snapshot(table, keep=keep)
        if snapshot.ts != lease.snapshot_ts:
            # Somebody committed in between. Until here, the older time has kept what the newer one needs.
            exact = msgspec.structs.replace(lease, snapshot_ts=snapshot.ts)
            lease = catalog.readers.renew(exact, ttl_ms)
    except BaseException:
        catalog.readers.close(lease)
        raise
    return snapshot, lease


def held_past(
    catalog: Catalog,
    clock: Clock,
    table: TableDef,
    moment: Moment,
    *,
    holder: str,
    ttl_ms: int,
    keep: Callable[[Part], bool] | None = None,
    client: str = "",
    is_outside: bool = False,
) -> tuple[Snapshot, ReaderLease]:
    """The table as of a moment that was found readable. The lease is the caller's. Raises SnapshotTooOldError."""
    lease = catalog.readers.open(table.uuid, moment.ts, holder, ttl_ms, client=client, is_outside=is_outside)
    try:
        check_kept(catalog, clock, table, moment)
        return catalog.parts.snapshot(table.uuid, at=moment.ts, keep=keep), lease
    except BaseException:
        catalog.readers.close(lease)
        raise
