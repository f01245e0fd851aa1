"""Presence of servers by what their connections hold: a lock that the database gives up as soon as a process has died;
and news of what the others commit.

Covers: one lock for each process of a server, listening. Does not cover: who counts as gone (tilth.membership).
Always holds: it is a hint; one that has been connected for a short time only, as after a restart of the database, says
nothing of others, for they may not have come back yet. After each new connection all may be news.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.catalog.kv.protocol import ALL_NEWS

NEWS_SEPARATOR = ","
#: PostgreSQL allows 8,000 bytes.
NEWS_CHARACTERS_MAX = 7000
#: So long others may take to come back after the database was away.
SETTLED_SECONDS = 3.0
_TAKE = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_CLOCK = "SELECT extract(epoch FROM clock_timestamp()) * 1000"
#: Asked outside of a presence: whether nobody shows it; what is taken is given back with the transaction.
_TRY = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
_GIVE = "SELECT pg_advisory_unlock(hashtextextended(%s, 0))"

_log = Log("catalog")


class PostgresPresence:
    """A connection of its own that holds a lock by the server's id; see `tilth.membership.Presence`. For one thread."""

    def __init__(self, clock: Clock, connect: Callable[[], Connection[TupleRow]], schema: str) -> None:
        self._clock = clock
        self._connect = connect
        self._schema = schema
        self._connection: Connection[TupleRow] | None = None
        self._since = 0.0
        self._shown = ""
        #: Whether there was no connection, so that something may have been said unheard.
        self._missed = True

    def show(self, server: str) -> None:
        if self._connection is not None and self._shown == server and not self._connection.closed:
            # Only a question shows whether it is still there.
            self._ask("SELECT true")
            return
        self.hide()
        try:
            self._connection = self._connect()
        except (psycopg.Error, TilthError) as error:
            _log.debug("presence_not_shown", server=server, reason=error)
            return
        self._since = self._clock.monotonic()
        try:
            self._connection.execute(f'LISTEN "{self._schema}"'.encode())
        except psycopg.Error as error:
            _log.debug("presence_not_shown", server=server, reason=error)
            self.hide()
            return
        self._missed = True
        if self._ask(_TAKE, self._name(server)):
            self._shown = server

    def is_gone(self, server: str) -> bool:
        if self._connection is None or self._clock.monotonic() - self._since < SETTLED_SECONDS:
            return False
        name = self._name(server)
        if not self._ask(_TAKE, name):
            return False
        self._ask(_GIVE, name)
        return True

    def clock_offset(self) -> tuple[float, float] | None:
        """Return by how many milliseconds this machine's clock is ahead of the database's, and how wrong that may be;
        None: nobody answers.
        """
        if self._connection is None:
            return None
        began, began_ms = self._clock.monotonic(), self._clock.now_ms()
        try:
            row = self._connection.execute(_CLOCK).fetchone()
        except psycopg.Error as error:
            _log.debug("presence_lost", reason=error)
            self.hide()
            return None
        took_ms = (self._clock.monotonic() - began) * 1000
        assert row is not None
        # It was read in the middle, give or take.
        return began_ms + took_ms / 2 - float(row[0]), took_ms / 2 + 1

    def news(self) -> frozenset[str]:
        """Return what others have committed since the last call, as their stores say it; ALL_NEWS: anything."""
        found = {ALL_NEWS} if self._missed else set()
        self._missed = False
        if self._connection is not None:
            try:
                for each in self._connection.notifies(timeout=0):
                    found.update(each.payload.split(NEWS_SEPARATOR))
            except psycopg.Error as error:
                _log.debug("presence_lost", reason=error)
                self.hide()
        return frozenset(found)

    def hide(self) -> None:
        self._shown = ""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _ask(self, query: str, *arguments: str) -> bool:
        """Return the answer; False, without a connection from then on, where there is none."""
        if self._connection is None:
            return False
        try:
            row = self._connection.execute(query, arguments or None).fetchone()
        except psycopg.Error as error:
            _log.debug("presence_lost", reason=error)
            self.hide()
            return False
        return row is not None and bool(row[0])

    def _name(self, server: str) -> str:
        return _lock_name(self._schema, server)


def is_shown_by_none(connection: Connection[TupleRow], schema: str, server: str) -> bool:
    """Return whether the process with this id surely is not there, asked in a transaction."""
    row = connection.execute(_TRY, (_lock_name(schema, server),)).fetchone()
    return row is not None and bool(row[0])


def _lock_name(schema: str, server: str) -> str:
    return f"{schema}/{server}"
