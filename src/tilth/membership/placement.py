"""Placement of tables on servers. Pure.

Rendezvous hashing (Thaler and Ravishankar, 1998): each server gets a number from its name and the thing's, the highest
hosts it. Always holds: all who see the same servers agree, without asking; when a server goes only what it hosted
moves, when one comes only what it takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def host_of(thing: str, servers: Iterable[str]) -> str | None:
    """Return the name of the server that hosts the thing, a relation's uuid for one; None: there is no server."""
    return max(servers, key=lambda name: (_weight(name, thing), name), default=None)


def _weight(server: str, thing: str) -> bytes:
    return blake2b(f"{server}\0{thing}".encode(), digest_size=8).digest()
