"""Warehouses as users define them, and workers that they have set aside."""

from __future__ import annotations

import msgspec

#: The warehouse that answers queries, and the one that imports and maintains.
QUERY_WAREHOUSE = "default"
WRITE_WAREHOUSE = "write"


class Warehouse(msgspec.Struct, frozen=True, kw_only=True):
    """A named group of workers; tilth.warehouse defines its settings."""

    name: str
    #: Texts by name, as in the definition of a table.
    settings: dict[str, str] = {}
    created_ms: int = 0


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that gets no tasks, whichever process has its name, until somebody resumes it."""

    worker: str
    since_ms: int
    because: str = ""
    #: The query that made it.
    query_id: str = ""
