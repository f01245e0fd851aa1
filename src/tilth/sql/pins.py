"""Snapshots for readers that bring their own Spark session: pinned until they are closed or not renewed.

Always holds: the lease is there before the snapshot is taken.
"""

from __future__ import annotations

import threading

from tilth.base.errors import NotFoundError
from tilth.catalog import Catalog
from tilth.model.lease import ReaderLease
from tilth.model.snapshot import Snapshot
from tilth.model.table import TableDef, ViewDef, full_name
from tilth.sql.errors import NotSupportedYetError, WrongKindOfTableError
from tilth.sql.held import held_snapshot

#: Long, for such a reader may be a notebook whose owner thinks between two cells.
PIN_MS = 600_000
PINS_MAX = 10_000


class Pins:
    """The snapshots that readers outside hold."""

    def __init__(self, catalog: Catalog, *, root: str, server: str) -> None:
        self._catalog = catalog
        self._root = root
        self._server = server
        self._held: dict[str, ReaderLease] = {}
        self._lock = threading.Lock()

    def pin(self, database: str, table: str, as_of_ms: int | None) -> tuple[Snapshot, ReaderLease, str]:
        """A snapshot, the lease that keeps its files, and the root below which they are.

        Raises NotSupportedYetError for a time in the past, whose files may have been collected.
        """
        if as_of_ms is not None:
            raise NotSupportedYetError(
                "reading the past is not supported yet", as_of_ms=as_of_ms, hint="leave as_of_ms out to read the newest"
            )
        relation = self._catalog.tables.get(database, table)
        found = self._catalog.tables.by_id(relation.target) if isinstance(relation, ViewDef) else relation
        if not isinstance(found, TableDef):
            raise WrongKindOfTableError("only tables of rows can be read", table=full_name(relation))
        snapshot, lease = held_snapshot(self._catalog, found.uuid, holder=self._server, ttl_ms=PIN_MS)
        with self._lock:
            # Bounded: what was closed by nobody has run out long before it is pushed out here.
            while len(self._held) >= PINS_MAX:
                self._held.pop(next(iter(self._held)))
            self._held[lease.id] = lease
        return snapshot, lease, self._root

    def renew(self, lease_id: str) -> None:
        """Raises NotFoundError for a lease that was closed, FencedError for one that has run out."""
        with self._lock:
            lease = self._held.get(lease_id)
        if lease is None:
            raise NotFoundError("this snapshot is not held any more", reader=lease_id, hint="read the table again")
        renewed = self._catalog.readers.renew(lease, PIN_MS)
        with self._lock:
            self._held[lease_id] = renewed

    def close(self, lease_id: str) -> None:
        """Nothing happens if it is closed already."""
        with self._lock:
            lease = self._held.pop(lease_id, None)
        if lease is not None:
            self._catalog.readers.close(lease)
