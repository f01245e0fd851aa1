"""A connection that is reserved for one use, and opened again after it broke.

Covers: one user at a time, connecting on demand. Does not cover: hosts and time limits (postgres_connect.py), queries.
Always holds: its user never waits behind other work of the server; it has the methods of a connection pool that a store
calls.

Tests: tests/integration/catalog/test_postgres_connections.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psycopg.pq import TransactionStatus
from psycopg_pool import PoolTimeout

from tilth.catalog.kv.postgres_connect import Writer


class ReservedConnection:
    """One connection for one user at a time. Safe to use from several threads."""

    def __init__(self, connect: Callable[[], Writer], *, wait_seconds: float) -> None:
        self._connect = connect
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._connection: Writer | None = None

    def getconn(self) -> Writer:
        """Return the connection, which belongs to the caller until `putconn`. Raises psycopg.Error, and the errors of
        `connect`.
        """
        if not self._lock.acquire(timeout=self._wait_seconds):
            raise PoolTimeout(f"the connection has been in use for {self._wait_seconds:.1f} s")
        try:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection
        except BaseException:
            self._lock.release()
            raise

    def putconn(self, connection: Writer) -> None:
        """Return the connection to the store; a broken one is closed."""
        if connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
            connection.close()
            self._connection = None
        self._lock.release()

    @contextmanager
    def use(self) -> Iterator[Writer]:
        """Lend the connection for a block of code. Raises as `getconn`."""
        connection = self.getconn()
        try:
            yield connection
        finally:
            self.putconn(connection)

    def check(self) -> None:
        """Do nothing: `putconn` has closed a connection that broke."""

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
