"""Retries of background work: the rule for each kind of error, and the waits between attempts. Pure.

Tests: tests/unit/maintenance/test_state.py.
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from tilth.base.errors import ErrorKind

#: Ingestion (docs/policies/consumers.md#back-off): 100 ms * 2**min(n, 10).
INGEST_BACKOFF_BASE_MS = 100
INGEST_BACKOFF_DOUBLINGS_MAX = 10


def backoff_ms(failures: int, *, base_ms: int, doublings_max: int) -> int:
    """`base_ms * 2**min(failures, doublings_max)`, in milliseconds."""
    return int(base_ms * 2 ** min(failures, doublings_max))


class Retry(StrEnum):
    """Reaction of background work to an error."""

    #: The same again, after a wait that doubles.
    BACK_OFF = "back_off"
    #: Read the state and plan again, at once: the plan is out of date.
    CHOOSE_ANEW = "choose_anew"
    #: Drop everything; the new holder goes on.
    STOP = "stop"
    #: Find out its outcome before anything else is done.
    RESOLVE = "resolve"
    #: The same would fail again: wait long, and show it to the people who can help.
    WAIT_LONG = "wait_long"


def retry_rule(kind: ErrorKind) -> Retry:
    """The rule of all background services.

    | kind            | what it means                      | what follows                                       |
    |-----------------|------------------------------------|----------------------------------------------------|
    | RETRY           | nothing was applied                | the same again with back-off                       |
    | UNAVAILABLE     | something does not answer          | the same again with back-off                       |
    | CONFLICT        | the state has changed meanwhile    | chosen anew at once, no failure is counted         |
    | NOT_FOUND       | the table or part is gone          | chosen anew at once, no failure is counted         |
    | FENCED          | another actor is the holder now    | everything is dropped                              |
    | UNKNOWN_OUTCOME | the commit may have landed         | the catalog is read, no file is removed            |
    | INVALID         | a definition or a setting is wrong | a long wait, shown in `system.bg_threads`          |
    | CORRUPT         | stored bytes are damaged           | a long wait, shown in `system.bg_threads`          |
    | INTERNAL        | a defect                           | a long wait, shown in `system.bg_threads`          |
    """
    match kind:
        case ErrorKind.RETRY | ErrorKind.UNAVAILABLE:
            return Retry.BACK_OFF
        case ErrorKind.CONFLICT | ErrorKind.NOT_FOUND:
            return Retry.CHOOSE_ANEW
        case ErrorKind.FENCED:
            return Retry.STOP
        case ErrorKind.UNKNOWN_OUTCOME:
            return Retry.RESOLVE
        case ErrorKind.INVALID | ErrorKind.CORRUPT | ErrorKind.INTERNAL:
            return Retry.WAIT_LONG
    assert_never(kind)
