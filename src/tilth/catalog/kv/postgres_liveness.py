"""Liveness of a server: an advisory lock that the database releases as soon as the server's process has died; and news
of the commits of other servers.

Covers: one lock for each process of a server, listening, the stores over its two connections. Does not cover: which
servers count as gone (tilth.membership). Always holds: heartbeats share a connection with the lock and with nothing
else; records of others are read by the connection that receives their news, so that a server that can read also
receives news. A lock is a hint: shortly after a new connection, as after a restart of the database, a lock that is free
proves nothing, because its server may not be back yet. After each new connection, everything may have changed.

Tests: tests/integration/catalog/test_postgres_kv.py, tests/integration/membership/test_servers.py.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.catalog.errors import CatalogAwayError
from tilth.catalog.kv.postgres_connect import first_line
from tilth.catalog.kv.postgres_inspect import clock_ahead
from tilth.catalog.kv.postgres_news import SEPARATOR
from tilth.catalog.kv.postgres_reserved import ReservedConnection
from tilth.catalog.kv.protocol import ALL_NEWS, KeyValue

#: Time that other servers have to come back after the database was away.
SETTLED_SECONDS = 3.0
_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended(%s, 0))"
#: Test that no process holds the lock: it is acquired, and released with the transaction.
_TRY = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"

_log = Log("catalog")


@dataclass(frozen=True, slots=True)
class ReservedStore:
    """A store that uses a connection of its own."""

    store: KeyValue
    connection: ReservedConnection


class PostgresLiveness:
    """Implements `tilth.membership.Liveness`. One thread sends heartbeats, another one watches."""

    def __init__(self, clock: Clock, schema: str, *, heartbeat: ReservedStore, watch: ReservedStore) -> None:
        self._clock = clock
        self._schema = schema
        self._heartbeat = heartbeat
        self._watch = watch
        self._locked = ""
        self._locked_by: Connection[TupleRow] | None = None
        self._listener: Connection[TupleRow] | None = None
        self._listening_since = 0.0
        self._received: list[str] = []

    @property
    def heartbeat_store(self) -> KeyValue:
        return self._heartbeat.store

    @property
    def watch_store(self) -> KeyValue:
        return self._watch.store

    def acquire(self, server: str) -> None:
        with self._tolerate_errors("liveness_lock_not_acquired"), self._heartbeat.connection.use() as connection:
            if connection is not self._locked_by:
                self._locked, self._locked_by = "", connection
            if self._locked == server:
                return
            if self._locked:
                # The server has joined anew, under another id.
                connection.execute(_UNLOCK, (self._name(self._locked),))
                self._locked = ""
            # A former connection of this process may hold it until the database has noticed that connection's end.
            row = connection.execute(_LOCK, (self._name(server),)).fetchone()
            if row is not None and row[0]:
                self._locked = server

    def is_gone(self, server: str) -> bool:
        is_gone = False
        with self._tolerate_errors("liveness_not_checked"), self._listening() as connection:
            if self._clock.monotonic() - self._listening_since >= SETTLED_SECONDS:
                is_gone = is_lock_free(connection, self._schema, server)
        return is_gone

    def clock_offset(self) -> tuple[float, float] | None:
        """Return by how many milliseconds this machine's clock is ahead of the database's, and the greatest error of
        that; None: the database does not answer.
        """
        found: tuple[float, float] | None = None
        with self._tolerate_errors("clock_not_compared"), self._heartbeat.connection.use() as connection:
            found = clock_ahead(self._clock, connection)
        return found  # noqa: RET504 - still None where an error was tolerated

    def news(self) -> frozenset[str]:
        """Return the news of other servers' commits since the last call; ALL_NEWS: anything may have changed.

        Raises CatalogAwayError where the connection is lost.
        """
        try:
            with self._listening() as connection:
                # The handler has received those that came with a query's answer; later ones are read here.
                connection.pgconn.consume_input()
                while (found := connection.pgconn.notifies()) is not None:
                    self._received.append(found.extra.decode())
        except psycopg.Error as error:
            raise CatalogAwayError(
                "the changes of other servers cannot be received", reason=first_line(error)
            ) from None
        received, self._received = self._received, []
        return frozenset(text for each in received for text in each.split(SEPARATOR))

    def close(self) -> None:
        self._locked, self._locked_by = "", None
        self._heartbeat.connection.close()
        self._watch.connection.close()

    @contextmanager
    def _listening(self) -> Generator[Connection[TupleRow]]:
        """The watching connection, on which LISTEN has been executed."""
        with self._watch.connection.use() as connection:
            if connection is not self._listener:
                connection.execute(f'LISTEN "{self._schema}"'.encode())
                connection.add_notify_handler(lambda found: self._received.append(found.payload))
                self._listener, self._listening_since = connection, self._clock.monotonic()
                # Notifications from before LISTEN were not received.
                self._received.append(ALL_NEWS)
            yield connection

    @contextmanager
    def _tolerate_errors(self, action: str) -> Generator[None]:
        """Ignore errors: liveness is a hint, and the stores report what is wrong when they read or write."""
        try:
            yield
        except (psycopg.Error, TilthError) as error:
            _log.debug(action, reason=error)

    def _name(self, server: str) -> str:
        return _lock_name(self._schema, server)


def is_lock_free(connection: Connection[TupleRow], schema: str, server: str) -> bool:
    """Return whether no process holds the lock of this server id."""
    row = connection.execute(_TRY, (_lock_name(schema, server),)).fetchone()
    return row is not None and bool(row[0])


def _lock_name(schema: str, server: str) -> str:
    return f"{schema}/{server}"
