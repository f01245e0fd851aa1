"""Confirmation that the commits which the catalog's database shows are durable on its synchronous standby.

PostgreSQL shows a commit that no standby has when its wait for the standby was ended, by the end of its backend or by a
cancel, which it answers with a warning. A later commit that waits and gets no warning proves that all commits before it
are durable, because standbys receive the log in order.

Covers: detecting the warning, making the later commit within a time limit, the error where no standby is named. Does
not cover: when one is needed (postgres.py).
Always holds: neither the process nor a backend of it waits longer than the time limit.

Tests: tests/integration/catalog/test_postgres_failover.py.
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
from tilth.base.errors import UnavailableError
from tilth.catalog.kv import postgres_schema as text

CANCEL_SECONDS = 5.0


class DatabaseWarnings:
    """Warnings of the database on one connection. For one thread."""

    def __init__(self, connection: Connection[TupleRow]) -> None:
        self._found = ""
        connection.add_notice_handler(self._on_notice)

    def drain(self) -> str:
        """Return the last warning since the last call; empty: there was none."""
        found, self._found = self._found, ""
        return found

    def _on_notice(self, notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._found = notice.message_primary or "a warning without a text"


def no_standby(catalog: str) -> UnavailableError:
    """Return the error of a database that waits for no standby; `catalog`: its address, as it is shown."""
    hint = (
        "set synchronous_standby_names in the database, or catalog.require-sync = off where something else keeps what "
        "it has committed"
    )
    return UnavailableError.coded(
        "NO_SYNCHRONOUS_STANDBY",
        "the catalog's database waits for no standby, which this server requires",
        catalog=catalog,
        hint=hint,
    )


def confirm(
    clock: Clock, connection: Connection[TupleRow], writer: UUID, statement: Callable[[str], str], *, seconds: float
) -> None:
    """Commit once more on a connection that was introduced, and return when that commit is durable.

    Raises psycopg.OperationalError where that takes longer than `seconds`; the connection must be closed then.
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
                # Without a cancel the backend would wait until the standby is back.
                connection.cancel_safe(timeout=CANCEL_SECONDS)
                raise OperationalError(f"no synchronous standby has confirmed a commit within {seconds:.0f} s")
            select.select([wire.socket], [], [], left)
            wire.consume_input()
        answer = wire.get_result()
        is_over = answer is None
        if answer is not None and answer.status != psycopg.pq.ExecStatus.COMMAND_OK:
            raise OperationalError(wire.get_error_message())
    warned = warnings.drain()
    if warned:
        raise OperationalError(warned)
