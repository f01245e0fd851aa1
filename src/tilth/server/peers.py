"""Servers of one catalog that speak to one another: statements for who hosts a table, rows of system tables.

Covers: both ends of these calls. Does not cover: who hosts what (tilth.membership), routes (calls.py).
Always holds: a statement is passed on once at most, so it never goes in circles; rows of a server that does not answer
in time are missing, and the answer says so; calls carry the service token, as those of workers do.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import msgspec
import pyarrow as pa

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.ids import IdSource
from tilth.catalog import NotHostedError
from tilth.membership import Member
from tilth.model.server import ServerRecord
from tilth.sql import SqlEngine
from tilth.sql.context.peers import note_unanswered
from tilth.sql.results.answer import Outcome
from tilth.sql.system_tables import find_system_table
from tilth.warehouse.remote.channel import Channel
from tilth.warehouse.remote.workers import Handler, handler

#: A server that has not sent its rows after so long is left out.
ROWS_SECONDS_MAX = 3.0
#: A statement that was passed on may run so long; it has bounds of its own.
STATEMENT_SECONDS_MAX = 24 * 3600.0
#: Servers that are asked at once.
_ASKED_AT_ONCE = 16


class PassedStatement(msgspec.Struct, frozen=True, kw_only=True):
    """A statement for the server that hosts what it is about."""

    text: str
    database: str
    settings: dict[str, str]


class PassedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Its answer."""

    rows: bytes
    message: str
    notices: tuple[str, ...]
    rows_written: int


class AskedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A system table of which the server's own rows are wanted."""

    name: str


class TableRows(msgspec.Struct, frozen=True, kw_only=True):
    """These rows."""

    rows: bytes


class HttpPeers:
    """The other servers, asked over HTTP."""

    def __init__(self, clock: Clock, ids: IdSource, member: Member, *, token: str) -> None:
        self._clock = clock
        self._ids = ids
        self._member = member
        self._token = token
        self._lock = threading.Lock()
        self._channels: dict[str, Channel] = {}

    def servers(self) -> tuple[ServerRecord, ...]:
        return self._member.now().servers

    def hosts(self, thing: str) -> str:
        host = self._member.now().host_of(thing)
        return "" if host is None else host.name

    def run(self, error: NotHostedError, text: str, *, database: str, settings: Mapping[str, str]) -> Outcome:
        now, named = self._member.now(), error.facts.get("server")
        host = next((each for each in now.servers if each.name == named), None)
        if named is None:
            host = now.host_of(str(error.facts.get("uuid", "")))
        if host is None or host.id == self._member.now().me:
            raise NotHostedError("its server changes right now", table=error.facts.get("table"), hint="try again")
        if not self._token or not host.url:
            hint = "send it there, or give all servers the same service token"
            raise NotHostedError(server=host.name, url=host.url or "none", table=error.facts.get("table"), hint=hint)
        answer = self._channel(host.url).call(
            "server/statement",
            PassedStatement(text=text, database=database, settings=dict(settings)),
            PassedAnswer,
            answer_seconds=STATEMENT_SECONDS_MAX,
        )
        return Outcome(
            table=_table(answer.rows),
            message=answer.message,
            notices=answer.notices,
            rows_written=answer.rows_written,
        )

    def tables(self, name: str) -> list[pa.Table]:
        found = self._member.now()
        others = [each for each in found.servers if each.id != found.me]
        if not others:
            return []
        with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
            asked = [pool.submit(copy_context().run, self._table_of, each, name) for each in others]
            return [table for each in asked if (table := each.result()) is not None]

    def handlers(self, engine: SqlEngine) -> dict[str, Handler]:
        """Return the handlers of the calls of other servers, by their names."""

        def run(statement: PassedStatement) -> PassedAnswer:
            answer = engine.run(
                statement.text, database=statement.database, settings=statement.settings, is_passed_on=True
            )
            return PassedAnswer(
                rows=_bytes(answer.table),
                message=answer.message,
                notices=answer.notices,
                rows_written=answer.rows_written,
            )

        def rows(asked: AskedTable) -> TableRows:
            return TableRows(rows=_bytes(engine.own_rows(asked.name)))

        return {
            "server/statement": handler(PassedStatement, run),
            "server/rows": handler(AskedTable, rows),
        }

    def close(self) -> None:
        with self._lock:
            for channel in self._channels.values():
                channel.close()

    def _table_of(self, server: ServerRecord, name: str) -> pa.Table | None:
        if not self._token:
            note_unanswered(
                f"rows of server {server.name} are missing: servers need a service token to ask one another"
            )
            return None
        try:
            answer = self._channel(server.url).call(
                "server/rows",
                AskedTable(name=name),
                TableRows,
                seconds=ROWS_SECONDS_MAX,
                answer_seconds=ROWS_SECONDS_MAX,
            )
            table = _table(answer.rows)
        except TilthError as error:
            note_unanswered(
                f"rows of server {server.name} at {server.url or 'no address'} are missing: {error.message}"
            )
            return None
        if table.schema != find_system_table(name).schema:
            note_unanswered(f"rows of server {server.name} are missing: it has version {server.version}")
            return None
        return table

    def _channel(self, url: str) -> Channel:
        with self._lock:
            channel = self._channels.get(url)
            if channel is None:
                channel = self._channels[url] = Channel(self._clock, self._ids, url, token=self._token)
            return channel


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _table(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
