"""Audit log of the services: one line for each verb of a user, retained in the catalog."""

from __future__ import annotations

import msgspec


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `system.audit_log`."""

    at_ms: int
    #: `SYSTEM STOP MERGES`, `KILL MUTATION`, `ALTER .. DROP PARTITION`: the verb without names.
    verb: str
    #: `database.table`; empty: no single one.
    table: str
    #: The statement as written, cut to 1,000 characters.
    statement: str
    #: How long it holds, in milliseconds; 0: until it is changed.
    duration_ms: int = 0
    because: str = ""
    query_id: str = ""
    #: What came of it, or the error that refused it.
    outcome: str = ""
