"""Background services of a table, their persisted switches and what `system.bg_threads` tells of them."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ServiceKind(StrEnum):
    CONSUME = "consume"
    FLUSH = "flush"
    MERGE = "merge"
    MUTATE = "mutate"
    DELTA = "delta"
    GC = "gc"


class SwitchState(StrEnum):
    """What the user wants (POLICIES.md 11.2)."""

    RUNNING = "running"
    STOPPED = "stopped"
    REMOVED = "removed"


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """The persisted switch of one service of one table; absent means running."""

    table: str
    service: ServiceKind
    state: SwitchState
    since_ms: int
    #: When it turns itself back to running; 0: never.
    until_ms: int = 0
    because: str = ""


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
    #: Why it is in this state, in words.
    reason: str
    wakeups: int
    last_wakeup_ms: int
    running_tasks: int
    failures: int
    last_exception: str
    last_exception_ms: int
    server: str
