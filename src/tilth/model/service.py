"""Background services of a table: their persisted switches, their lines in `system.bg_threads`, the audit log of the
verbs that users give them.

Tests: tests/unit/maintenance/test_switches.py, tests/unit/ingest/service/test_service.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Self

import msgspec


class ServiceKind(StrEnum):
    """Background services of a table, each with its word in SYSTEM START and STOP."""

    CONSUME = "consume", "CONSUME"
    MERGE = "merge", "MERGES"
    MUTATE = "mutate", "MUTATIONS"
    GC = "gc", "GC"
    FLUSH = "flush", "FLUSH"
    DELTA = "delta", "DELTAS"
    REPLICATE = "replicate", "REPLICATION"
    SCRUB = "scrub", "SCRUBS"
    COPY = "copy", "COPY"

    word: str

    def __new__(cls, value: str, word: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.word = word
        return member


class ServiceState(StrEnum):
    """State of a service in `system.bg_threads`."""

    RUNNING = "running"
    IDLE = "idle"
    WAITING = "waiting"
    STOPPED = "stopped"
    FAILED = "failed"


class SwitchState(StrEnum):
    """State of a service that the user wants (docs/policies/tasks.md#switches)."""

    RUNNING = "running"
    STOPPED = "stopped"
    REMOVED = "removed"


#: Stands for the uuid in a switch of all tables, those that come later too.
ALL_TABLES = ""


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """The persisted switch of one service of one table, or of all; absent means running."""

    table: str
    service: ServiceKind
    state: SwitchState
    since_ms: int
    #: Expiry time, after which the previous switch applies again; 0: never.
    until_ms: int = 0
    because: str = ""
    #: The query that set it.
    query_id: str = ""
    #: Address of the client that sent it, with the client's name; empty: this process.
    client: str = ""


def running_switch(service: ServiceKind) -> Switch:
    """Return what no switch means: the service runs."""
    return Switch(table=ALL_TABLES, service=service, state=SwitchState.RUNNING, since_ms=0)


def effective_switch(switches: Iterable[Switch], service: ServiceKind, *, now_ms: int) -> Switch:
    """Return the switch of a service that is in force, among those of one table and those of all tables."""
    return switches_in_force(switches, now_ms=now_ms).get(service) or running_switch(service)


def switches_in_force(switches: Iterable[Switch], *, now_ms: int) -> dict[ServiceKind, Switch]:
    """Return the newest switch of each service that has not expired, among those of one table and those of all tables.

    A switch of one table and a switch of all tables thus override each other in the order in which they were set.
    """
    found: dict[ServiceKind, Switch] = {}
    for switch in switches:
        known = found.get(switch.service)
        is_over = 0 < switch.until_ms <= now_ms
        if not is_over and (known is None or known.since_ms < switch.since_ms):
            found[switch.service] = switch
    return found


def newer_since_ms(switches: Iterable[Switch], *, now_ms: int) -> int:
    """A time for a new switch that makes it newer than these, whatever the clock does."""
    return max([now_ms, *(switch.since_ms + 1 for switch in switches)])


class ServiceStats(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `system.bg_threads`."""

    database: str
    table: str
    uuid: str
    service: ServiceKind
    switch: SwitchState
    because: str
    #: `running`, `idle`, `waiting`, `stopped`, `failed`: what it does now.
    state: str
    #: Reason for this state, in words.
    reason: str
    wakeups: int
    last_wakeup_ms: int
    running_tasks: int
    failures: int
    last_exception: str
    last_exception_ms: int
    server: str
    #: Expiry time of the switch; 0: never.
    until_ms: int = 0
    #: The query that switched it; empty: nobody did.
    asked_by: str = ""
    #: Address of the client that sent that query, with the client's name; empty: not known.
    asked_from: str = ""
    #: Time of its next search for work, if nothing happens before; 0: not known, or not before somebody starts it.
    next_wakeup_ms: int = 0
    #: Time of the next retry after a failure; 0: none is pending.
    next_attempt_ms: int = 0


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `system.audit_log`."""

    at_ms: int
    #: `SYSTEM STOP MERGES`, `KILL MUTATION`, `ALTER .. DROP PARTITION`: the verb without names.
    verb: str
    #: `database.table`; empty: no single one.
    table: str
    #: The statement as written, cut to 1,000 characters.
    statement: str
    #: Duration of its effect in milliseconds; 0: until it is changed.
    duration_ms: int = 0
    because: str = ""
    query_id: str = ""
    #: Address of the client that sent it, with the client's name; empty: this process.
    client: str = ""
    #: Outcome, or the error that refused it.
    outcome: str = ""
