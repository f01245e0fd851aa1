"""Presence of a server by what its connections hold: a lock that the database gives up as soon as a process has died;
and news of what the others commit.

Covers: one lock for each process of a server, listening, the stores over its two connections. Does not cover: who
counts as gone (tilth.membership). Always holds: proofs of life share a connection with the lock and with nothing else;
what is read of others comes by the connection that hears their news, so that a server that cannot read is one that
cannot hear. A lock is a hint; a connection that is new, as after a restart of the database, says nothing of others, for
they may not have come back yet. After each new connection all may be news.
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
from tilth.catalog.kv.postgres_news import SEPARATOR
from tilth.catalog.kv.postgres_reserved import ReservedConnection
from tilth.catalog.kv.protocol import ALL_NEWS, KeyValue

#: So long others may take to come back after the database was away.
SETTLED_SECONDS = 3.0
_TAKE = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_GIVE = "SELECT pg_advisory_unlock(hashtextextended(%s, 0))"
_CLOCK = "SELECT extract(epoch FROM clock_timestamp()) * 1000"
#: Asked outside of a presence: whether nobody shows it; what is taken is given back with the transaction.
_TRY = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"

_log = Log("catalog")


@dataclass(frozen=True, slots=True)
class ReservedStore:
    """The store over a connection of its own."""

    store: KeyValue
    connection: ReservedConnection


class PostgresPresence:
    """See `tilth.membership.Presence`. One thread proves, another one watches."""

    def __init__(self, clock: Clock, schema: str, *, proving: ReservedStore, watching: ReservedStore) -> None:
        self._clock = clock
        self._schema = schema
        self._proving = proving
        self._watching = watching
        self._shown = ""
        self._shown_by: Connection[TupleRow] | None = None
        self._heard_by: Connection[TupleRow] | None = None
        self._heard_since = 0.0
        self._heard: list[str] = []

    @property
    def proving(self) -> KeyValue:
        return self._proving.store

    @property
    def watching(self) -> KeyValue:
        return self._watching.store

    def show(self, server: str) -> None:
        with self._tolerated("presence_not_shown"), self._proving.connection.used() as connection:
            if connection is not self._shown_by:
                self._shown, self._shown_by = "", connection
            if self._shown == server:
                return
            if self._shown:
                # It has joined anew: only the id is another one.
                connection.execute(_GIVE, (self._name(self._shown),))
                self._shown = ""
            # Where a former connection of this process still has it, until the database has noticed its end.
            row = connection.execute(_TAKE, (self._name(server),)).fetchone()
            if row is not None and row[0]:
                self._shown = server

    def is_gone(self, server: str) -> bool:
        is_gone = False
        with self._tolerated("presence_not_asked"), self._listening() as connection:
            if self._clock.monotonic() - self._heard_since >= SETTLED_SECONDS:
                is_gone = is_shown_by_none(connection, self._schema, server)
        return is_gone

    def clock_offset(self) -> tuple[float, float] | None:
        """Return by how many milliseconds this machine's clock is ahead of the database's, and how wrong that may be;
        None: nobody answers.
        """
        row, began, began_ms = None, 0.0, 0
        with self._tolerated("clock_not_compared"), self._proving.connection.used() as connection:
            began, began_ms = self._clock.monotonic(), self._clock.now_ms()
            row = connection.execute(_CLOCK).fetchone()
        if row is None:
            return None
        took_ms = (self._clock.monotonic() - began) * 1000
        # It was read in the middle, give or take.
        return began_ms + took_ms / 2 - float(row[0]), took_ms / 2 + 1

    def news(self) -> frozenset[str]:
        """Return what others have committed since the last call, as their stores say it; ALL_NEWS: anything.

        Raises CatalogAwayError where nothing can be heard.
        """
        try:
            with self._listening() as connection:
                # Those that came with an answer have been noted, those that came since are read here.
                connection.pgconn.consume_input()
                while (found := connection.pgconn.notifies()) is not None:
                    self._heard.append(found.extra.decode())
        except psycopg.Error as error:
            raise CatalogAwayError("the changes of other servers cannot be heard", reason=first_line(error)) from None
        heard, self._heard = self._heard, []
        return frozenset(text for each in heard for text in each.split(SEPARATOR))

    def hide(self) -> None:
        self._shown, self._shown_by = "", None
        self._proving.connection.close()
        self._watching.connection.close()

    @contextmanager
    def _listening(self) -> Generator[Connection[TupleRow]]:
        """The connection of the one that watches, listening."""
        with self._watching.connection.used() as connection:
            if connection is not self._heard_by:
                connection.execute(f'LISTEN "{self._schema}"'.encode())
                connection.add_notify_handler(lambda found: self._heard.append(found.payload))
                self._heard_by, self._heard_since = connection, self._clock.monotonic()
                # Something may have been said unheard.
                self._heard.append(ALL_NEWS)
            yield connection

    @contextmanager
    def _tolerated(self, action: str) -> Generator[None]:
        """A hint may be missing: what counts is read and written by the stores, which say what is wrong."""
        try:
            yield
        except (psycopg.Error, TilthError) as error:
            _log.debug(action, reason=error)

    def _name(self, server: str) -> str:
        return _lock_name(self._schema, server)


def is_shown_by_none(connection: Connection[TupleRow], schema: str, server: str) -> bool:
    """Return whether the process with this id surely is not there."""
    row = connection.execute(_TRY, (_lock_name(schema, server),)).fetchone()
    return row is not None and bool(row[0])


def _lock_name(schema: str, server: str) -> str:
    return f"{schema}/{server}"
