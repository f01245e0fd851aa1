"""Proof that what the catalog's database shows is as durable as it is set up to make commits.

A commit is shown before its standby has it where its wait was given up: by an end of its backend, or by a cancel, which
PostgreSQL answers with a warning. A later commit that waits and is not warned of covers all that was written before it.

Covers: noticing the warning, the later commit, bounded in time. Does not cover: when one is needed (postgres.py).
Always holds: neither the process nor a backend of it waits longer than its bound.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from uuid import UUID

import psycopg
from psycopg import Connection, OperationalError
from psycopg.errors import Diagnostic
from psycopg.rows import TupleRow

from tilth.base.clock import Clock
from tilth.catalog.kv import postgres_schema as text

CANCEL_SECONDS = 5.0


class DatabaseWarnings:
    """DatabaseWarnings of the database on one connection. For one thread."""

    def __init__(self, connection: Connection[TupleRow]) -> None:
        self._found = ""
        connection.add_notice_handler(self._hear)

    def take(self) -> str:
        """Return the last one since the last call; empty: there was none."""
        found, self._found = self._found, ""
        return found

    def _hear(self, notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._found = notice.message_primary or "a warning without words"


def confirm(
    clock: Clock, connection: Connection[TupleRow], writer: UUID, statement: Callable[[str], str], *, seconds: float
) -> None:
    """Commit once more on a connection that was introduced, and return when that is durable.

    Raises psycopg.OperationalError where it is not within so many seconds; the connection is of no more use then.
    """
    warnings = DatabaseWarnings(connection)
    query = statement(text.CONFIRM).replace("{writer}", str(writer))
    wire, until = connection.pgconn, clock.monotonic() + seconds
    wire.send_query(query.encode())
    is_over = False
    while not is_over:
        while wire.is_busy():
            left = until - clock.monotonic()
            if left <= 0:
                # Nobody else may wait on: its backend would stay until the standby is back.
                connection.cancel_safe(timeout=CANCEL_SECONDS)
                raise OperationalError(f"no synchronous standby has confirmed a commit within {seconds:.0f} s")
            select.select([wire.socket], [], [], left)
            wire.consume_input()
        answer = wire.get_result()
        is_over = answer is None
        if answer is not None and answer.status != psycopg.pq.ExecStatus.COMMAND_OK:
            raise OperationalError(wire.get_error_message())
    warned = warnings.take()
    if warned:
        raise OperationalError(warned)
