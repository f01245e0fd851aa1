"""Connections to the catalog's database: order of the hosts, time limit of each try, settings of a session.

Covers: which of several hosts is tried first and for how long, the settings of every session, refusing poolers. Does
not cover: queries (postgres.py), keeping connections (psycopg's pool, postgres_reserved.py).
Always holds: the host that answered last is tried first; each try has a time limit of its own, so that a host that is
off delays a process once by that limit; the database ends the backend of a vanished client within seconds, not hours.

Tests: tests/unit/catalog/kv/test_postgres_watch.py, tests/integration/catalog/test_postgres_connections.py.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self, TypeVar
from uuid import UUID

import psycopg
from psycopg import Connection, waiting
from psycopg.conninfo import make_conninfo
from psycopg.generators import connect as connecting
from psycopg.rows import TupleRow

from tilth.base.errors import UnavailableError
from tilth.catalog.kv.incarnation import Incarnation
from tilth.catalog.kv.postgres_address import PostgresAddress
from tilth.catalog.kv.postgres_durable import DatabaseWarnings
from tilth.catalog.kv.postgres_wire import PreparedStatements

C = TypeVar("C", bound=Connection[TupleRow])

#: Least time limit for a try of one host; a slow handshake needs it.
TRY_SECONDS_MIN = 0.5
#: Greatest time limit for each step of a heartbeat, for any `server.gone-bound`.
HEARTBEAT_SECONDS_MAX = 5.0
_INTERVAL_SECONDS = 0.05
_DEFAULT_PORT = "5432"
#: All queries are by key and in its order: a plan from when the table was small must not go on without the index.
_BY_KEY = "-c enable_seqscan=off -c enable_bitmapscan=off"
#: Keepalives on the database's side: after lost packets, no backend there goes on holding locks and connections.
_SERVER_SIDE = (
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=10000 "
    "-c client_connection_check_interval=2000"
)
_WHO = "SELECT pg_backend_pid(), current_setting('enable_seqscan')"
#: Messages of psycopg where a host has not answered in time.
_SILENT = ("", "wait timeout expired")
_REFUSED_BY_POOLER = "unsupported startup parameter"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """Time limits of a connection and of its queries, in seconds."""

    #: Total time limit for connecting; it is divided among the hosts.
    connect: float
    #: Time limit of a statement, after which the database ends it.
    statement: float
    #: Time limit of the wait for a free connection, and of retrying a read while the database is away.
    wait: float
    #: Time limit for finding the outcome of a commit whose answer was lost.
    decide: float
    #: Longest time that sent data may stay without an acknowledgement.
    silence: float = 10.0

    @classmethod
    def of_heartbeat(cls, gone_seconds: float) -> Self:
        """Limits of a heartbeat: after a try of a host that is off, time is left for one that answers."""
        share = min(gone_seconds * 0.4, HEARTBEAT_SECONDS_MAX)
        return cls(connect=share, statement=share, wait=share, decide=share, silence=share)


class Writer(Connection[TupleRow]):
    """A connection that commits; its row in `writers` has the id of its last commit."""

    id: UUID
    backend: tuple[int, datetime | None]
    incarnation: Incarnation
    warnings: DatabaseWarnings
    statements: PreparedStatements

    @classmethod
    def connect(cls, conninfo: str = "", *, connector: Connector, limits: SessionLimits, **_: object) -> Self:  # type: ignore[override]  # what psycopg's pool calls
        return connector.connect(cls, limits)


class Connector:
    """Makes the connections of one store."""

    def __init__(self, address: PostgresAddress, environment: Mapping[str, str]) -> None:
        self._address = address
        self._environment = environment
        #: Host name and address of the last successful try.
        self._answered: tuple[str, str] | None = None

    def connect(self, kind: type[C], limits: SessionLimits) -> C:
        """Return a connection in autocommit. Raises psycopg.Error, UnavailableError (CATALOG_POOLER),
        CatalogSecretError.
        """
        parameters = self._parameters(limits)
        tries = sorted(_tries(parameters), key=lambda each: (each["host"], each["hostaddr"]) != self._answered)
        given = float(dict(self._address.parameters).get("connect_timeout", 0)) or limits.connect
        seconds = max(min(given, limits.connect) / len(tries), TRY_SECONDS_MIN)
        failures: list[tuple[str, psycopg.Error]] = []
        for each in tries:
            try:
                connection = _connect(kind, parameters | each, seconds)
            except psycopg.Error as error:
                failures.append((each["host"], error))
                continue
            self._answered = each["host"], each["hostaddr"]
            return connection
        raise self._failure(failures)

    def _parameters(self, limits: SessionLimits) -> dict[str, Any]:
        silence_ms = round(limits.silence * 1000)
        own = {
            "application_name": "tilth",
            # Only a primary accepts commits; a host that is a standby counts as one that does not answer.
            "target_session_attrs": "read-write",
            # The kernel detects a lost network by keepalives and unacknowledged data.
            "keepalives_idle": str(max(round(limits.silence / 2), 1)),
            "keepalives_interval": str(max(round(limits.silence / 5), 1)),
            "keepalives_count": "3",
            "tcp_user_timeout": str(silence_ms),
        }
        options = (
            # These override settings of the role and the database: a commit waits for the disk and the sync standby.
            f"-c synchronous_commit=on -c statement_timeout={round(limits.statement * 1000)} "
            f"-c idle_in_transaction_session_timeout=0 {_BY_KEY} {_SERVER_SIDE}"
        )
        return own | self._address.connection(self._environment) | {"options": options}

    def _failure(self, failures: list[tuple[str, psycopg.Error]]) -> Exception:
        if any(_REFUSED_BY_POOLER in str(error) for _, error in failures):
            return _pooler(self._address)
        if len(failures) == 1:
            return failures[0][1]
        return psycopg.OperationalError("; ".join(f"{host}: {first_line(error)}" for host, error in failures))

    def check_direct(self, connection: Connection[TupleRow]) -> None:
        """Raises UnavailableError (CATALOG_POOLER) when the session is not the one that this connection opened: finding
        lost commits, locks of liveness and notifications depend on the session.
        """
        row = connection.execute(_WHO).fetchone()
        assert row is not None
        self.check_session(connection, backend_pid=row[0], seqscan=row[1])

    def check_session(self, connection: Connection[TupleRow], *, backend_pid: int, seqscan: str) -> None:
        """Raises UnavailableError (CATALOG_POOLER) as `check_direct` does, by facts that a query has read already."""
        if backend_pid != connection.info.backend_pid or seqscan != "off":
            raise _pooler(self._address)


def first_line(error: Exception) -> str:
    """Return the first line of the database's message, which never holds a password."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _pooler(address: PostgresAddress) -> UnavailableError:
    hint = "name the database itself in catalog.url: each server keeps a bounded pool of connections of its own"
    return UnavailableError.coded(
        "CATALOG_POOLER",
        "the address of the catalog leads to a pooler of connections, such as pgbouncer, not to the database",
        catalog=address.shown,
        hint=hint,
    )


def _connect(kind: type[C], parameters: Mapping[str, Any], seconds: float) -> C:
    text = make_conninfo("", **{name: value for name, value in parameters.items() if value})
    try:
        connection = kind(waiting.wait_conn(connecting(text), interval=_INTERVAL_SECONDS, timeout=seconds))
    except psycopg.OperationalError as error:
        if str(error).strip() not in _SILENT:
            raise
        raise psycopg.errors.ConnectionTimeout(f"no answer within {seconds:.1f} s") from None
    connection.autocommit = True
    return connection


def _tries(parameters: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return host and address of each try, in the order of the catalog's address."""
    found: list[dict[str, str]] = []
    failure: OSError | None = None
    port = str(parameters.get("port", _DEFAULT_PORT))
    for host in str(parameters.get("host", "")).split(","):
        if not host or host.startswith("/"):
            found.append({"host": host, "hostaddr": ""})
            continue
        try:
            known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            failure = error
            continue
        found.extend({"host": host, "hostaddr": str(each[4][0])} for each in known)
    if not found:
        raise psycopg.OperationalError(f"failed to resolve host {parameters.get('host')}: {failure}")
    return found
