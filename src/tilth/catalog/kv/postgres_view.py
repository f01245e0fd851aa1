"""Views of the catalog in PostgreSQL.

Covers: a snapshot of the store, read in one query where its keys are given. Does not cover: connections (postgres.py).
Always holds: making a view raises psycopg's errors, after which the caller tries again; its methods raise ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import psycopg
from psycopg.pq.abc import PGresult
from psycopg.rows import TupleRow

from tilth.base.errors import RetryError
from tilth.catalog.kv import postgres_schema as text
from tilth.catalog.kv.postgres_connect import Writer
from tilth.catalog.kv.postgres_wire import int_of
from tilth.catalog.kv.protocol import FIRST_KEY, Versioned, ViewMovedError, ViewUse

_CHUNK_ROWS = 1000
FIRST_CHUNK_ROWS = 100
#: Longest life of a view: while it is open, the database keeps all row versions since then, and commits become slow.
_SECONDS_MAX = {ViewUse.BRIEF: 60.0, ViewUse.LISTING: 60.0, ViewUse.EXPORT: 900.0}


class ViewSource(Protocol):
    """The queries of the store that a view uses."""

    def begin(self, connection: Writer, idle_seconds: float) -> None: ...

    def record(self, connection: Writer, key: bytes) -> Versioned | None: ...

    def records(self, connection: Writer, keys: Collection[bytes]) -> dict[bytes, Versioned | None]: ...

    def rows(self, connection: Writer, query: str, arguments: tuple[object, ...]) -> list[TupleRow]: ...

    def monotonic(self) -> float: ...

    def translate_errors(self) -> AbstractContextManager[None]: ...


class PostgresView:
    """A snapshot: one query for given keys, otherwise a read-only transaction. For one thread."""

    def __init__(self, store: ViewSource, connection: Writer, keys: Collection[bytes], use: ViewUse) -> None:
        """Read `keys` in one query without a transaction; where there are none, begin a transaction."""
        self._store = store
        self._connection = connection
        self._known: Mapping[bytes, Versioned | None] = store.records(connection, keys) if keys else {}
        self._is_begun = False
        self._seconds_max = _SECONDS_MAX[use]
        self._began = 0.0
        if not keys:
            self._begin()

    def end(self) -> None:
        if self._is_begun:
            # A ROLLBACK by the pool would drop all prepared statements.
            try:
                self._connection.statements.do(b"COMMIT")
            except psycopg.Error:
                self._connection.close()

    def get(self, key: bytes) -> Versioned | None:
        if key in self._known:
            return self._known[key]
        with self._querying():
            return self._store.record(self._connection, key)

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        start = max(start, FIRST_KEY)
        left, wanted = limit, FIRST_CHUNK_ROWS
        while left is None or left > 0:
            count = wanted if left is None else min(wanted, left)
            with self._querying():
                rows = chunk(self._store, self._connection, start, end, count, reverse=reverse)
            yield from rows
            if len(rows) < count:
                return
            start, end = (start, rows[-1][0]) if reverse else (rows[-1][0] + b"\x00", end)
            left, wanted = None if left is None else left - count, _CHUNK_ROWS

    @contextmanager
    def _querying(self) -> Iterator[None]:
        """Begin the transaction if it has not begun. Raises RetryError (VIEW_TOO_LONG), and the database's errors."""
        with self._store.translate_errors():
            self._begin()
            if self._store.monotonic() - self._began > self._seconds_max:
                # The database may have ended the transaction already.
                raise RetryError.coded(
                    "VIEW_TOO_LONG",
                    "a read of the catalog has lasted too long and was given up: "
                    "it holds up the clean-up of the database",
                    seconds_max=self._seconds_max,
                    hint="try again, and read less at once",
                )
            yield

    def _begin(self) -> None:
        """Begin the transaction. Raises ViewMovedError where its snapshot differs from the keys that were read."""
        if self._is_begun:
            return
        self._is_begun = True
        self._began = self._store.monotonic()
        self._store.begin(self._connection, self._seconds_max)
        if self._known and self._store.records(self._connection, self._known.keys()) != self._known:
            raise ViewMovedError


def chunk(
    store: ViewSource, connection: Writer, start: bytes, end: bytes | None, count: int, *, reverse: bool
) -> list[tuple[bytes, Versioned]]:
    """Return the first `count` keys of a span, or its last ones backwards, with their values: one statement."""
    if end is None:
        query = text.SCAN_BACK_FROM_END if reverse else text.SCAN_TO_END
        rows = store.rows(connection, query, (start, count))
    else:
        rows = store.rows(connection, text.SCAN_BACK if reverse else text.SCAN, (start, end, count))
    return [(key, Versioned(value, version)) for key, value, version in rows]


def versioned(answer: PGresult, row: int, *, column: int) -> Versioned:
    """Return a value and, from the next column, its version."""
    value, version = answer.get_value(row, column), answer.get_value(row, column + 1)
    assert value is not None
    assert version is not None
    return Versioned(value, int_of(version))
