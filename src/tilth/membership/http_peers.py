"""Calls between the servers of one catalog: statements for the host of a table, rows of system tables.

Covers: both ends of these calls. Does not cover: who hosts what (member.py), routes (server/calls.py).
Always holds: a statement is passed on once at most, so it never goes in circles; rows of a server that does not answer
in time are missing, which a notice of the answer says; calls carry the service token, as those of workers do; one that
another version answers in a form of its own ends with an error that names the server and both versions. Rows are never
larger here than allowed, whatever another server sends.

Tests: tests/unit/membership/test_peers.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from importlib.metadata import version
from typing import Protocol, TypeVar

import httpx
import msgspec
import pyarrow as pa

from tilth.base.clock import Clock
from tilth.base.errors import TilthError, UnavailableError
from tilth.base.ids import IdSource
from tilth.base.units import MIB
from tilth.catalog import NotHostedError
from tilth.membership.member import Member
from tilth.membership.peers import note_unanswered
from tilth.model.pushdown import EVERYTHING, Pushdown
from tilth.model.server import ServerRecord
from tilth.model.service import ALL_TABLES, ServiceKind
from tilth.query.language.unpacked import read_own
from tilth.query.results.answer import Answer, Outcome
from tilth.query.results.files import COLLECTED_BYTES_WITHOUT_LIMIT
from tilth.query.settings import session_settings
from tilth.warehouse.remote.channel import Channel
from tilth.warehouse.remote.errors import (
    BadBodyError,
    PeerAnswerTooLargeError,
    PeerAnswerUnreadableError,
    RouteNotFoundError,
)
from tilth.warehouse.remote.wire import Done
from tilth.warehouse.remote.workers import Handler, handler

#: Timeout for the rows of a server; it is left out then.
ROWS_SECONDS_MAX = 3.0
#: Timeout for a server to end its consumers.
STOPPED_SECONDS_MAX = 45.0
#: Timeout of a statement that was passed on; it has bounds of its own.
STATEMENT_SECONDS_MAX = 24 * 3600.0
#: Servers that are called at once.
_CALLS_AT_ONCE = 16
#: Maximum of a server's own rows of a system table: the largest one, its query log, has 10,000 lines of 10 KiB at most.
ROWS_BYTES_MAX = 128 * MIB
#: Maximum of an answer beside the values of its rows: names and types of columns, notices, heads of Arrow's messages.
BESIDE_ROWS_BYTES_MAX = 16 * MIB

T = TypeVar("T")


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


class ReadTable(msgspec.Struct, frozen=True, kw_only=True):
    """Request for a server's own rows of a system table."""

    name: str
    wanted: Pushdown = EVERYTHING


class TableRows(msgspec.Struct, frozen=True, kw_only=True):
    """The requested rows."""

    rows: bytes


class WaitStopped(msgspec.Struct, frozen=True, kw_only=True):
    """Request to wait until a server has stopped a service."""

    service: ServiceKind
    #: Uuid of the table; ALL_TABLES: of all tables.
    table: str = ALL_TABLES


class LocalStatements(Protocol):
    """This server's statements, which others send."""

    def run(self, text: str, *, database: str, settings: Mapping[str, str], is_passed_on: bool) -> Answer: ...

    def own_rows(self, name: str, wanted: Pushdown) -> pa.Table: ...

    def wait_stopped(self, service: ServiceKind, table: str) -> None: ...


class HttpPeers:
    """The other servers, called over HTTP."""

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        member: Member,
        *,
        token: str,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`transport`: of all calls, for tests."""
        self._clock = clock
        self._ids = ids
        self._member = member
        self._token = token
        self._transport = transport
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
        limit = session_settings(settings).max_result_bytes or COLLECTED_BYTES_WITHOUT_LIMIT
        with _named(host):
            answer = self._channel(host.url).call(
                "server/statement",
                PassedStatement(text=text, database=database, settings=dict(settings)),
                PassedAnswer,
                answer_seconds=STATEMENT_SECONDS_MAX,
                bytes_max=limit + BESIDE_ROWS_BYTES_MAX,
            )
            table = _table(answer.rows, limit)
        return Outcome(
            table=table,
            message=answer.message,
            notices=answer.notices,
            rows_written=answer.rows_written,
        )

    def tables(self, name: str, schema: pa.Schema, wanted: Pushdown = EVERYTHING) -> list[pa.Table]:
        found = self._of_others(lambda server: self._table_of(server, name, schema, wanted))
        return [table for table in found if table is not None]

    def wait_stopped(self, service: ServiceKind, table: str) -> None:
        self._of_others(lambda server: self._wait_stopped(server, WaitStopped(service=service, table=table)))

    def _of_others(self, call: Callable[[ServerRecord], T]) -> list[T]:
        """Call all other living servers at once."""
        found = self._member.now()
        others = [each for each in found.servers if each.id != found.me]
        if not others:
            return []
        with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
            request = [pool.submit(copy_context().run, call, each) for each in others]
            return [each.result() for each in request]

    def handlers(self, engine: LocalStatements) -> dict[str, Handler]:
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

        def rows(request: ReadTable) -> TableRows:
            return TableRows(rows=_bytes(engine.own_rows(request.name, request.wanted)))

        def wait_stopped(request: WaitStopped) -> Done:
            engine.wait_stopped(request.service, request.table)
            return Done()

        return {
            "server/stopped": handler(WaitStopped, wait_stopped),
            "server/statement": handler(PassedStatement, run),
            "server/rows": handler(ReadTable, rows),
        }

    def close(self) -> None:
        with self._lock:
            for channel in self._channels.values():
                channel.close()

    def _wait_stopped(self, server: ServerRecord, request: WaitStopped) -> None:
        try:
            if not self._token:
                raise UnavailableError("servers need a service token to call one another")
            with _named(server):
                self._channel(server.url).call(
                    "server/stopped",
                    request,
                    Done,
                    seconds=0.0,
                    answer_seconds=STOPPED_SECONDS_MAX,
                )
        except TilthError as error:
            note_unanswered(
                f"server {server.name} at {server.url or 'no address'} has not confirmed that it has stopped "
                f"{request.service.value}: {error.message}; it will when it reads the catalog, see system.bg_threads"
            )

    def _table_of(self, server: ServerRecord, name: str, schema: pa.Schema, wanted: Pushdown) -> pa.Table | None:
        if not self._token:
            note_unanswered(
                f"rows of server {server.name} are missing: servers need a service token to call one another"
            )
            return None
        try:
            with _named(server):
                answer = self._channel(server.url).call(
                    "server/rows",
                    ReadTable(name=name, wanted=wanted),
                    TableRows,
                    # Once: a server that does not listen is not waited for.
                    seconds=0.0,
                    answer_seconds=ROWS_SECONDS_MAX,
                    bytes_max=ROWS_BYTES_MAX + BESIDE_ROWS_BYTES_MAX,
                )
                table = _table(answer.rows, ROWS_BYTES_MAX)
        except TilthError as error:
            note_unanswered(
                f"rows of server {server.name} at {server.url or 'no address'} are missing: {error.message}"
            )
            return None
        if table.schema != schema:
            note_unanswered(
                f"rows of server {server.name} at {server.url} are missing: {name} has other columns in its version "
                f"{server.version}, this server has {version('tilth')}"
            )
            return None
        return table

    def _channel(self, url: str) -> Channel:
        with self._lock:
            channel = self._channels.get(url)
            if channel is None:
                channel = self._channels[url] = Channel(
                    self._clock, self._ids, url, token=self._token, transport=self._transport
                )
            return channel


@contextmanager
def _named(server: ServerRecord) -> Iterator[None]:
    """Convert what comes of another form of calls and answers to errors that name the server and both versions."""
    names = {
        "server": server.name,
        "url": server.url,
        "server_version": server.version or "unknown",
        "version": version("tilth"),
    }
    hint = f"install one version of tilth on {server.name} and on this server"
    try:
        yield
    except PeerAnswerUnreadableError as error:
        # No version of Tilth compresses answers: the error has its own hint.
        own = error.hint if "encoding" in error.facts else hint
        raise PeerAnswerUnreadableError(**(error.facts | names), hint=own) from error
    except (pa.ArrowException, OSError) as error:
        raise PeerAnswerUnreadableError(**({"reason": str(error)} | names), hint=hint) from error
    except PeerAnswerTooLargeError as error:
        hint = f"request fewer rows, or raise the setting max_result_bytes; nothing more was read of {server.name}"
        raise PeerAnswerTooLargeError(**(error.facts | names), hint=hint) from error
    except (RouteNotFoundError, BadBodyError) as error:
        raise UnavailableError.coded(
            "PEER_VERSION",
            "the other process does not understand the call; nothing was done",
            **(error.facts | names),
            hint=hint,
        ) from error


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _table(data: bytes, bytes_max: int) -> pa.Table:
    """Raises PeerAnswerTooLargeError before the rows need more memory than that, and Arrow's errors."""
    return read_own(data, bytes_max, lambda size: PeerAnswerTooLargeError(bytes=size, bytes_max=bytes_max))
