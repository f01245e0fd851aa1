"""A connection that is reserved for one use, made anew when it broke.

Covers: one user at a time, connecting where it is needed. Does not cover: hosts and bounds (postgres_connect.py), what
is asked on it. Always holds: nobody waits for it behind other work of the server; it has the methods of a pool, so a
store can stand on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psycopg.pq import TransactionStatus
from psycopg_pool import PoolTimeout

from tilth.catalog.kv.postgres_connect import Writer


class ReservedConnection:
    """One connection. Safe to use from several threads."""

    def __init__(self, connect: Callable[[], Writer], *, wait_seconds: float) -> None:
        self._connect = connect
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._connection: Writer | None = None

    def getconn(self) -> Writer:
        """Return the connection, for this caller alone. Raises psycopg.Error and what `connect` raises."""
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
        """Let others use it; one that broke is given up."""
        if connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
            connection.close()
            self._connection = None
        self._lock.release()

    @contextmanager
    def used(self) -> Iterator[Writer]:
        """Raises as `getconn`."""
        connection = self.getconn()
        try:
            yield connection
        finally:
            self.putconn(connection)

    def check(self) -> None:
        """Nothing is to be checked: whoever used a connection that broke has given it up."""

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
