"""The right to work on a table: its lease `table/UUID`, taken at the first work and kept.

Covers: the leases of one server's process, for maintenance of tables and for the stored offsets of Kafka tables.
Does not cover: which server hosts a table (tilth.membership).
Always holds: every commit and every move to the trash carries the epoch, so a second server that believes the same can
compute, but not commit.
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
        """`server`: returns the id of this server's process."""
        self._all = leases
        self._server = server
        self._lock = threading.Lock()
        self._leases: dict[str, Lease] = {}

    def fence(self, uuid: str) -> Fence:
        """Return the fence that commits to the table carry. Raises LeaseHeldError while another server that lives has
        the table.
        """
        with self._lock:
            lease = self._leases.get(uuid)
            if lease is None or lease.holder != self._server():
                # This process has joined anew since it took it: what it had may be somebody else's by now.
                lease = self._leases[uuid] = self._all.take(_name(uuid), self._server())
                _log.info("table_taken", cause_id=uuid, epoch=lease.epoch)
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
            self._all.release(lease.fence)

    def release_all(self) -> None:
        for uuid in list(self._leases):
            self.release(uuid)


def _name(uuid: str) -> str:
    return f"table/{uuid}"
