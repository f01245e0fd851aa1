"""Servers' processes that live, as their records say."""

from __future__ import annotations

from tilth.catalog.kv import ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.small_commit import read
from tilth.model.server import ServerRecord, server_of


def server_key(name: str) -> bytes:
    return pack(Space.SERVER, name)


def live_server(view: ReadView, holder: str) -> ServerRecord | None:
    """Return the server whose process has this id, if it lives."""
    parts = server_of(holder)
    record = None if parts is None else read(view, server_key(parts[0]), codec.SERVERS)
    return record if record is not None and record.id == holder and record.lives else None
