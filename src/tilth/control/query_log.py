"""The last statements of this server, for `system.query_log`.

Always holds: at most `QUERIES_MAX` lines, the newest ones; lines live as long as the process.

Tests: tests/unit/control/test_log_masking.py.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

QUERIES_MAX = 10_000
#: A longer statement keeps only its beginning and end.
LOGGED_TEXT_MAX = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryEvent:
    query_id: str
    #: The statement's kind: `Query`, `CreateTable`, ...
    kind: str
    text: str
    database: str
    started_ms: int
    elapsed_ms: float
    rows: int
    rows_written: int
    result_bytes: int
    parts_read: int
    parts_pruned: int
    #: Empty where it went well.
    error_code: str
    error: str
    #: ClickHouse's number of the error; 0: there was none.
    exception_code: int = 0
    #: Address of whoever sent it, with the client's name; empty: it comes from this process.
    client: str = ""
    #: Reason why its work in Spark was lost and done again; empty: it was not.
    sent_again: str = ""
    #: `True` if the literals of an expired line are masked.
    is_masked: bool = False


class QueryLog:
    def __init__(self) -> None:
        self._events: deque[QueryEvent] = deque(maxlen=QUERIES_MAX)
        self._lock = threading.Lock()

    def add(self, event: QueryEvent) -> None:
        with self._lock:
            self._events.append(event)

    def mask(self, before_ms: int, mask: Callable[[str], str]) -> None:
        """Mask the statements that came in before a time, and remove the texts of their errors."""
        with self._lock:
            for index, event in enumerate(self._events):
                if event.started_ms < before_ms and not event.is_masked:
                    self._events[index] = replace(event, text=mask(event.text), error="", is_masked=True)

    def recent(self) -> list[QueryEvent]:
        """Oldest first."""
        with self._lock:
            return list(self._events)
