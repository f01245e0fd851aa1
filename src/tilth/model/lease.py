"""Leases and fences: who may act, and the number that makes an older holder's commits fail."""

from __future__ import annotations

import msgspec


class Fence(msgspec.Struct, frozen=True):
    """Name and epoch of a lease in a commit, which prove that its actor still holds the right to act."""

    #: `table/UUID`, `consumer/UUID/INDEX`: what the right is for.
    name: str
    epoch: int


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to act for something, as long as its holder lives.

    A server's process sends heartbeats by its own record (model/server.py), once for all that it holds.
    """

    name: str
    #: The id of a server's process.
    holder: str
    #: Raised by each new holder.
    epoch: int

    @property
    def fence(self) -> Fence:
        return Fence(self.name, self.epoch)


class ReaderLease(msgspec.Struct, frozen=True, kw_only=True):
    """A running query's hold on a snapshot of one table; GC waits for it."""

    id: str
    table: str
    snapshot_ts: int
    #: The server that opened it.
    holder: str
    expires_ms: int
    #: The client for whom it was opened, as `address:port (name)`; empty: not known.
    client: str = ""
    opened_ms: int
    #: `True` if it belongs to a reader outside the server, and so outlives the server's process.
    is_outside: bool = False
    #: Name that the reader gave itself; empty: a query, or a reader of one snapshot. A reader with a name follows the
    #: table's changes and needs all that has ended since its snapshot.
    name: str = ""
