"""The leases of tables: `table/UUID`, acquired by a server before its first commit to the table, and kept.

Covers: the leases of one server's process, for maintenance of tables and for the stored offsets of Kafka tables.
Does not cover: which server hosts a table (tilth.membership).
Always holds: each of these commits and every move to the trash is fenced by the lease's epoch, so that a second
server that considers itself the host can compute, but not commit.

Tests: tests/unit/maintenance/merge/test_op.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tilth.base.logs import Log
from tilth.catalog.services.leases import Leases
from tilth.model.lease import Fence, Lease

_log = Log("catalog")


class TableLeases:
    """The table leases of this server."""

    def __init__(self, leases: Leases, *, server: Callable[[], str]) -> None:
        """`server` returns the id of this server's process."""
        self._all = leases
        self._server = server
        self._lock = threading.Lock()
        self._leases: dict[str, Lease] = {}

    def fence(self, uuid: str) -> Fence:
        """Return the fence of commits to the table. Raises LeaseHeldError while another server that lives holds its
        lease.
        """
        with self._lock:
            lease = self._leases.get(uuid)
            if lease is None or lease.holder != self._server():
                # This server has joined anew since it acquired the lease, which another one may hold by now.
                lease = self._leases[uuid] = self._all.acquire(_name(uuid), self._server())
                _log.info("table_lease_acquired", cause_id=uuid, server=lease.holder, epoch=lease.epoch)
            return lease.fence

    def lose(self, uuid: str) -> None:
        """Drop a lease that another server has acquired; the next transaction acquires it again."""
        with self._lock:
            self._leases.pop(uuid, None)

    def release(self, uuid: str) -> None:
        """Release the lease of the table."""
        with self._lock:
            lease = self._leases.pop(uuid, None)
        if lease is not None:
            self._all.release(lease.fence)

    def release_all(self) -> None:
        for uuid in list(self._leases):
            self.release(uuid)


def _name(uuid: str) -> str:
    return f"table/{uuid}"
