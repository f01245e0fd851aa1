"""Servers of a catalog: who serves, where, and the id by which the work of a process is known.

Tests: tests/unit/membership/test_member.py, tests/unit/membership/test_placement.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

#: Servers of one catalog that may live at once, where nobody has set it.
SERVERS_MAX = 64
#: Bound of the numbers of servers: each process that joins a catalog gets the next free one, and after the last the
#: first again.
NUMBERS = 1024
#: Most servers that may live at once: the number of one that has ended is not assigned again for a while.
SERVERS_BOUND = NUMBERS // 2
#: Name by which one server is chosen, like the host of a table, for jobs that run once for all servers.
COORDINATOR = "steward"


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A server, by its own last record. It lives until it, or another that has watched it, records its end."""

    name: str
    #: Raised by each process that joins under the name.
    epoch: int
    #: Drawn by the process.
    run: str
    #: Number below NUMBERS, by which processes that join one after the other draw distinct transaction ids.
    number: int = 0
    #: URL of its HTTP endpoint; empty: it has none yet.
    url: str = ""
    version: str = ""
    started_ms: int = 0
    #: Last renewal, by its own clock. An unchanged record belongs to a server that is gone.
    renewed_ms: int = 0
    #: 0: it lives.
    ended_ms: int = 0
    #: Milliseconds by which its clock is ahead of the catalog's database; None: not measured.
    clock_offset_ms: float | None = None
    #: Reason why it gives up its tables and accepts none; empty: it does not.
    draining: str = ""

    @property
    def id(self) -> str:
        """Return the name by which transactions and leases know this process."""
        return f"{self.name}#{self.epoch}"

    @property
    def lives(self) -> bool:
        return not self.ended_ms


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """An order that a server hosts a thing for a while, whatever follows from the names."""

    thing: str
    #: The server's name.
    server: str
    until_ms: int


def host_of(thing: str, servers: Iterable[str]) -> str | None:
    """Return the name of the server that hosts the thing, a relation's uuid for one; None: there is no server.

    Rendezvous hashing (Thaler and Ravishankar, 1998): each server gets a number from its name and the thing's, the
    highest hosts it. All who see the same servers agree, without messages; when a server
    leaves only what it hosted moves, when one joins only what it will host.
    """
    return max(servers, key=lambda name: (_weight(name, thing), name), default=None)


def _weight(server: str, thing: str) -> bytes:
    return blake2b(f"{server}\0{thing}".encode(), digest_size=8).digest()


def serve_together(one: str, other: str) -> bool:
    """Return whether servers of these two versions of Tilth may live in one catalog: those that differ by their patch
    only, because these change neither stored data nor messages between servers.
    """
    return _release(one) == _release(other)


def _release(version: str) -> tuple[str, str]:
    found = re.match(r"(\d+)(?:\.(\d+))?", version)
    return (version, "") if found is None else (found[1], found[2] or "0")


def server_of(holder: str) -> tuple[str, int] | None:
    """Return name and epoch of a server's process; None: it is another kind of name."""
    name, mark, epoch = holder.rpartition("#")
    return (name, int(epoch)) if mark and epoch.isdigit() else None


def hosts_all(thing: str) -> bool:
    """Return that a server alone hosts everything."""
    return True
