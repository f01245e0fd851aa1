"""The right to maintain a table: its lease `table/UUID`, taken at the first work and kept.

Always holds: every commit and every move to the trash carries the epoch, so a second server that believes the same can
compute, but not commit.
"""

from __future__ import annotations

import threading

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.catalog import Catalog
from tilth.model.lease import Fence, Lease

#: A lease is renewed when half of it is over; the epoch guards, the time only shows others whether somebody is there.
LEASE_MS = 3_600_000

_log = Log("maintenance")


class TableLeases:
    """The table leases of this server."""

    def __init__(self, clock: Clock, catalog: Catalog, server: str) -> None:
        self._clock = clock
        self._catalog = catalog
        self._server = server
        self._lock = threading.Lock()
        self._leases: dict[str, Lease] = {}

    def fence(self, uuid: str) -> Fence:
        """Return the fence that commits to the table's parts carry. Raises FencedError when another server has taken
        over."""
        with self._lock:
            lease = self._leases.get(uuid)
            if lease is None:
                lease = self._catalog.leases.take(_name(uuid), self._server, LEASE_MS)
                _log.info("table_taken", cause_id=uuid, epoch=lease.epoch)
            elif lease.expires_ms - self._clock.now_ms() < LEASE_MS // 2:
                lease = self._catalog.leases.renew(lease, LEASE_MS)
            self._leases[uuid] = lease
            return lease.fence

    def lose(self, uuid: str) -> None:
        """Somebody else has taken it; the next work takes it anew."""
        with self._lock:
            self._leases.pop(uuid, None)

    def release(self, uuid: str) -> None:
        """Release the table."""
        with self._lock:
            lease = self._leases.pop(uuid, None)
        if lease is not None:
            self._catalog.leases.release(lease)

    def release_all(self) -> None:
        for uuid in list(self._leases):
            self.release(uuid)


def _name(uuid: str) -> str:
    return f"table/{uuid}"
