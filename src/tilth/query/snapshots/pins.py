"""Snapshots for readers that bring their own Spark session: pinned until they are closed or not renewed.

Always holds: the lease is there before the snapshot is taken.

Tests: tests/unit/query/snapshots/test_snapshots.py.
"""

from __future__ import annotations

import threading

from tilth.base.clock import Clock
from tilth.base.errors import InvalidInputError, NotFoundError
from tilth.catalog import Catalog
from tilth.model.lease import ReaderLease
from tilth.model.snapshot import Snapshot
from tilth.model.table import TableDef, ViewDef, full_name
from tilth.query.errors import WrongKindOfTableError
from tilth.query.snapshots.as_of import read_time_of
from tilth.query.snapshots.held import LeaseHolder, held_past, held_snapshot
from tilth.query.snapshots.protocol import AsOf, AsOfTime, AsOfVersion
from tilth.storage import Roots

#: Long, for such a reader may be a notebook whose owner thinks between two cells.
PIN_MS = 600_000
PINS_MAX = 10_000


class Pins:
    """The snapshots that readers outside hold."""

    def __init__(self, clock: Clock, catalog: Catalog, *, root: Roots, server: str) -> None:
        self._clock = clock
        self._catalog = catalog
        self._root = root
        self._server = server
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
        relation = self._catalog.tables.get(database, table)
        found = self._catalog.tables.by_id(relation.target) if isinstance(relation, ViewDef) else relation
        if not isinstance(found, TableDef):
            raise WrongKindOfTableError("only tables of rows can be read", table=full_name(relation))
        catalog = self._catalog
        holder = LeaseHolder(holder=self._server, ttl_ms=PIN_MS, client=client, is_outside=True)
        if as_of is None:
            snapshot, lease = held_snapshot(catalog, found.uuid, holder)
        else:
            read_time = read_time_of(catalog, self._clock, found, as_of)
            snapshot, lease = held_past(catalog, self._clock, found, read_time, holder)
        with self._lock:
            # Bounded: what was closed by nobody has run out long before it is pushed out here.
            while len(self._held) >= PINS_MAX:
                self._held.pop(next(iter(self._held)))
            self._held[lease.id] = lease
        return snapshot, lease, self._root.of(found.uuid).text

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

    def _find(self, lease_id: str) -> ReaderLease | None:
        """The lease, also one that a former process of the server opened."""
        with self._lock:
            held = self._held.get(lease_id)
        if held is not None:
            return held
        found = self._catalog.readers.find(lease_id)
        return found if found is not None and found.is_outside else None
