"""Processes of servers that live according to their records, and the check of a joining one's version.

Always holds: each process has a life key of its own, written when it joins and removed when its end is recorded. Every
commit of the process pins that key.

Tests: tests/unit/membership/test_ended_servers.py, tests/unit/catalog/services/test_servers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilth.base.errors import RetryError
from tilth.catalog.errors import ServerVersionError
from tilth.catalog.kv import Pinned, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack, span
from tilth.catalog.records.small_commit import read
from tilth.model.server import ServerRecord, serve_together, server_of


def server_key(name: str) -> bytes:
    return pack(Space.SERVER, name)


def life_key(server: str) -> bytes:
    """Key that exists until the end of the server's process with this id is recorded."""
    return pack(Space.LIFE, server)


def pin_life(view: ReadView, server: str) -> list[Pinned]:
    """Return the precondition that the process has not been ended; none for a process that is not a server.

    Raises RetryError (SERVER_ENDED).
    """
    if server_of(server) is None:
        return []
    key = life_key(server)
    found = view.get(key)
    if found is None:
        raise RetryError.coded(
            "SERVER_ENDED",
            "the other servers have ended this one: nothing that it had begun is applied",
            server=server,
            hint="send the statement again: the server joins anew by itself",
        )
    return [Pinned(key, found.version)]


def live_server(view: ReadView, holder: str) -> ServerRecord | None:
    """Return the server whose process has this id, if it lives."""
    parts = server_of(holder)
    record = None if parts is None else read(view, server_key(parts[0]), codec.SERVERS)
    return record if record is not None and record.id == holder and record.lives else None


def check_versions(others: Iterable[ServerRecord], version: str) -> None:
    """Raises ServerVersionError, with the first server that lives and is of a version which is not served together with
    this one.
    """
    for other in others:
        if other.lives and not serve_together(other.version, version):
            raise _version_error(other, version)


def check_upgrade(
    version: str, pairs: Callable[[bytes, bytes | None], Iterable[tuple[bytes, bytes]]], is_gone: Callable[[str], bool]
) -> None:
    """Make sure that nobody lives who would commit nothing any more once this version has changed the catalog's schema.

    `pairs` are keys and values of a span; `is_gone` takes the id of a process. Raises ServerVersionError.
    """
    for key, value in pairs(*span(Space.SERVER)):
        other = codec.SERVERS.decode(key, value)
        if other.lives and not is_gone(other.id):
            raise _version_error(other, version)


def _version_error(other: ServerRecord, version: str) -> ServerVersionError:
    theirs = other.version or "unknown"
    hint = (
        f"stop the server {other.name} and all others of version {theirs} first, or install version {theirs} here; only"
        " patch versions, as 1.2.3 and 1.2.4, serve side by side: docs/operate/upgrade.md"
    )
    return ServerVersionError(
        version=version, server=other.name, url=other.url or "none", server_version=theirs, hint=hint
    )
