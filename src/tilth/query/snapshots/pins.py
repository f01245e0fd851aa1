"""Snapshots for readers that bring their own Spark session: pinned until they are closed or not renewed.

Always holds: the lease is there before the snapshot is taken.

Tests: tests/unit/query/snapshots/test_snapshots.py.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import InvalidInputError, NotFoundError
from tilth.catalog import Catalog
from tilth.model.lease import ReaderLease
from tilth.model.snapshot import Snapshot
from tilth.query.snapshots.as_of import read_time_of, wait_settled
from tilth.query.snapshots.feeds import ChangeFeeds
from tilth.query.snapshots.held import LeaseHolder, held_past, held_snapshot, table_of_rows
from tilth.query.snapshots.protocol import AsOf, AsOfTime, AsOfVersion
from tilth.storage import Roots

#: Long, for such a reader may be a notebook whose owner thinks between two cells.
PIN_MS = 600_000
PINS_MAX = 10_000
#: Tables of one statement.
TABLES_MAX = 100


class Pins:
    """The snapshots that readers outside hold."""

    def __init__(self, clock: Clock, catalog: Catalog, *, root: Roots, server: str) -> None:
        self._clock = clock
        self._catalog = catalog
        self._root = root
        self._server = server
        #: Readers that follow changes.
        self.feeds = ChangeFeeds(clock, catalog, root=root, server=server)
        self._held: dict[str, ReaderLease] = {}
        self._lock = threading.Lock()

    def pin(
        self,
        database: str,
        table: str,
        as_of_ms: int | None = None,
        *,
        version: int | None = None,
        client: str = "",
    ) -> tuple[Snapshot, ReaderLease, str]:
        """A snapshot, the lease that keeps its files and shows the client, and the root below which they are.

        The newest, or as of a time in milliseconds since 1970, or of a version. Raises SnapshotTooOldError,
        InvalidInputError for a time that cannot be read or is in the future (SNAPSHOT_IN_FUTURE).
        """
        if as_of_ms is not None and version is not None:
            raise InvalidInputError("a table is read as of a time or of a version, not both", hint="leave one out")
        as_of: AsOf | None = None
        if as_of_ms is not None:
            as_of = AsOfTime(micros=as_of_ms * 1000)
        elif version is not None:
            as_of = AsOfVersion(version=version)
        found = table_of_rows(self._catalog, database, table)
        catalog = self._catalog
        holder = self._holder(client)
        if as_of is None:
            snapshot, lease = held_snapshot(catalog, found.uuid, holder)
        else:
            read_time = read_time_of(catalog, self._clock, found, as_of)
            snapshot, lease = held_past(catalog, self._clock, found, read_time, holder)
        self._remember(lease)
        return snapshot, lease, self._root.of(found.uuid).text

    def pin_together(
        self, names: Sequence[tuple[str, str]], *, client: str = ""
    ) -> list[tuple[Snapshot, ReaderLease, str] | None]:
        """Return what `pin` returns for each of these tables, all as of one time: commits that more than one of them
        saw are in all snapshots or in none. None where there is no such table.

        Raises InvalidInputError for too many tables at once.
        """
        if len(names) > TABLES_MAX:
            raise InvalidInputError("too many tables at once", tables=len(names), allowed=TABLES_MAX)
        catalog, holder = self._catalog, self._holder(client)
        leases: list[ReaderLease] = []
        try:
            known = [self._uuid(*name) for name in names]
            uuids = [uuid for uuid in known if uuid is not None]
            found = []
            for uuid in uuids:
                snapshot, lease = held_snapshot(catalog, uuid, holder)
                leases.append(lease)
                found.append(snapshot)
            at = max((snapshot.ts for snapshot in found), default=0)
            # Each lease keeps what its table has had since an earlier time, and so what it had at the latest one.
            wait_settled(catalog, self._clock, uuids, at)
            for number, uuid in enumerate(uuids):
                if found[number].ts < at:
                    found[number] = catalog.parts.snapshot(uuid, at=at)
                    exact = msgspec.structs.replace(leases[number], snapshot_ts=at)
                    leases[number] = catalog.readers.renew(exact, PIN_MS)
        except BaseException:
            for lease in leases:
                catalog.readers.close(lease)
            raise
        for lease in leases:
            self._remember(lease)
        pinned = zip(found, leases, strict=True)
        return [None if uuid is None else (*next(pinned), self._root.of(uuid).text) for uuid in known]

    def _uuid(self, database: str, table: str) -> str | None:
        try:
            return table_of_rows(self._catalog, database, table).uuid
        except NotFoundError:
            return None

    def renew(self, lease_id: str) -> None:
        """Raises NotFoundError for a lease that was closed, FencedError for one that has run out."""
        lease = self._find(lease_id)
        if lease is None:
            raise NotFoundError("this snapshot was released", reader=lease_id, hint="read the table again")
        renewed = self._catalog.readers.renew(lease, PIN_MS)
        with self._lock:
            self._held[lease_id] = renewed

    def close(self, lease_id: str) -> None:
        """Nothing happens if it is closed already."""
        lease = self._find(lease_id)
        with self._lock:
            self._held.pop(lease_id, None)
        if lease is not None:
            self._catalog.readers.close(lease)

    def _holder(self, client: str) -> LeaseHolder:
        return LeaseHolder(holder=self._server, ttl_ms=PIN_MS, client=client, is_outside=True)

    def _remember(self, lease: ReaderLease) -> None:
        with self._lock:
            # Bounded: what was closed by nobody has run out long before it is pushed out here.
            while len(self._held) >= PINS_MAX:
                self._held.pop(next(iter(self._held)))
            self._held[lease.id] = lease

    def _find(self, lease_id: str) -> ReaderLease | None:
        """The lease, also one that a former process of the server opened."""
        with self._lock:
            held = self._held.get(lease_id)
        if held is not None:
            return held
        found = self._catalog.readers.find(lease_id)
        return found if found is not None and found.is_outside else None
