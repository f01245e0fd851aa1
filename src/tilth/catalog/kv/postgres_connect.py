"""Connections to the catalog's database: hosts in order, a bound for each try, options of a session.

Covers: which of several hosts is tried first and for how long, what every session is set to, poolers that are refused.
Does not cover: what is asked (postgres.py), connections that are kept (psycopg's pool, postgres_reserved.py).
Always holds: the host that answered last is tried first; each try has a bound of its own, so that a host that is off
costs that much once; a backend whose client has vanished is ended by the database within seconds, not hours.
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

#: A shorter try of one host would take a slow handshake for a host that is off.
TRY_SECONDS_MIN = 0.5
#: Bound of each step of a proof of life, however long others bear silence.
PROOF_SECONDS_MAX = 5.0
_INTERVAL_SECONDS = 0.05
_DEFAULT_PORT = "5432"
#: All questions are by the key, in its order. A plan that was made when the table was small must not stay without it.
_BY_KEY = "-c enable_seqscan=off -c enable_bitmapscan=off"
#: The same for the database's side: lost packets leave no backend there that holds locks and connections.
_SERVER_SIDE = (
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=10000 "
    "-c client_connection_check_interval=2000"
)
_WHO = "SELECT pg_backend_pid(), current_setting('enable_seqscan')"
_REFUSED_BY_POOLER = "unsupported startup parameter"


class PoolerError(UnavailableError):
    """the address of the catalog leads to a pooler of connections, such as pgbouncer, not to the database"""

    code = "CATALOG_POOLER"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """Bounds of a connection and of what is asked on it, in seconds."""

    #: Of connecting, in all; each host has a share of it.
    connect: float
    #: The database ends a statement that takes longer.
    statement: float
    #: Waiting for a connection that is free, and for a database that is away to answer a read again.
    wait: float
    #: Finding out what became of a commit whose answer was lost.
    decide: float
    #: Without an acknowledgement of what was sent.
    silence: float = 10.0

    @classmethod
    def of_proof(cls, gone_seconds: float) -> Self:
        """Limits of a proof of life: a try of a host that is off leaves time for one that answers."""
        share = min(gone_seconds * 0.4, PROOF_SECONDS_MAX)
        return cls(connect=share, statement=share, wait=share, decide=share, silence=share)


class Writer(Connection[TupleRow]):
    """A connection that is known by a row of `writers`."""

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
        #: Host and address that answered last.
        self._answered: tuple[str, str] | None = None

    def connect(self, kind: type[C], limits: SessionLimits) -> C:
        """Return a connection in autocommit. Raises psycopg.Error, PoolerError, CatalogSecretError."""
        parameters = self._parameters(limits)
        tries = sorted(_tries(parameters), key=lambda each: (each["host"], each["hostaddr"]) != self._answered)
        given = float(dict(self._address.parameters).get("connect_timeout", 0)) or limits.connect
        seconds = max(min(given, limits.connect) / len(tries), TRY_SECONDS_MIN)
        failures: list[tuple[str, psycopg.Error]] = []
        for each in tries:
            try:
                connection = _connected(kind, parameters | each, seconds)
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
            # Of several hosts the primary; a standby alone is one that does not answer.
            "target_session_attrs": "read-write",
            # What a network that vanished looks like to a kernel that is asked to notice.
            "keepalives_idle": str(max(round(limits.silence / 2), 1)),
            "keepalives_interval": str(max(round(limits.silence / 5), 1)),
            "keepalives_count": "3",
            "tcp_user_timeout": str(silence_ms),
        }
        options = (
            # Whatever role and database say: a commit waits for the disk, and for a synchronous standby.
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
        """Raises PoolerError when the session is not the one that this connection was opened with: commits whose answer
        was lost, locks of presence and news belong to a session.
        """
        row = connection.execute(_WHO).fetchone()
        assert row is not None
        self.check_session(connection, backend_pid=row[0], seqscan=row[1])

    def check_session(self, connection: Connection[TupleRow], *, backend_pid: int, seqscan: str) -> None:
        """Raises PoolerError as `check_direct`, from what was asked already."""
        if backend_pid != connection.info.backend_pid or seqscan != "off":
            raise _pooler(self._address)


def first_line(error: Exception) -> str:
    """Return the first line of the database's words; they never hold a password."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _pooler(address: PostgresAddress) -> PoolerError:
    hint = "name the database itself in catalog.url: each server keeps a bounded pool of connections of its own"
    return PoolerError(catalog=address.shown, hint=hint)


def _connected(kind: type[C], parameters: Mapping[str, Any], seconds: float) -> C:
    text = make_conninfo("", **{name: value for name, value in parameters.items() if value})
    try:
        connection = kind(waiting.wait_conn(connecting(text), interval=_INTERVAL_SECONDS, timeout=seconds))
    except psycopg.OperationalError as error:
        if str(error).strip():
            raise
        raise psycopg.errors.ConnectionTimeout(f"no answer within {seconds:.1f} s") from None
    connection.autocommit = True
    return connection


def _tries(parameters: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return host and address of each try, in the order in which they were given."""
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
