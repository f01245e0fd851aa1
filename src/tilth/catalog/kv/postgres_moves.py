"""Moves of a catalog in PostgreSQL to another database or folder: once one begins, every commit is refused.

Covers: beginning, ending and giving up a move, whether a server is alive there. Does not cover: copying
(tilth.recovery). Always holds: reads after the beginning of a move see all commits that were applied before it, and no
later commit is applied, whichever process sends it; a move that was not finished can be begun again.

Tests: tests/integration/catalog/test_catalog_copy.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tilth.catalog.errors import CatalogMovedError
from tilth.catalog.kv import postgres_schema as text
from tilth.catalog.kv.postgres_liveness import is_lock_free

_HINT = "start servers with catalog.url where it was moved to, or copy it from there"
_UNFINISHED_HINT = "a copy was begun and has not ended: run `tilth catalog copy` again, to a location without a catalog"


class Moves:
    """The moves of one store."""

    def __init__(
        self,
        connect: Callable[[], Connection[TupleRow]],
        statement: Callable[[str], sql.SQL],
        translated: Callable[[], AbstractContextManager[None]],
        *,
        schema: str,
    ) -> None:
        self._connect = connect
        self._statement = statement
        self._translate_errors = translated
        self._schema = schema

    def check(self, *, may_begin: bool = False) -> None:
        """Raises CatalogMovedError where a move has begun; with `may_begin` only where one has ended."""
        with self._open() as connection:
            row = connection.execute(self._statement(text.FIND_MOVE)).fetchone()
        to, is_copied = ("", False) if row is None else (str(row[0]), bool(row[1]))
        if to and (is_copied or not may_begin):
            raise CatalogMovedError(to=to, hint=_HINT if is_copied else _UNFINISHED_HINT)

    @contextmanager
    def moving(self, to: str) -> Iterator[None]:
        """Refuse commits while the block runs, and for ever if it succeeds; allow them again if it raises."""
        with self._open() as connection, connection.transaction():
            # Each commit reads this table and so holds a lock on it until its end: the LOCK waits for all of them.
            connection.execute(self._statement(text.LOCK_MOVE))
            connection.execute(self._statement(text.SET_MOVE), (to, False))
        try:
            yield
        except BaseException:
            self._set("", is_copied=False)
            raise
        self._set(to, is_copied=True)

    def is_locked(self, server: str) -> bool:
        """Return whether the process with this id holds its liveness lock in this database."""
        with self._open() as connection:
            return not is_lock_free(connection, self._schema, server)

    def _set(self, to: str, *, is_copied: bool) -> None:
        with self._open() as connection:
            connection.execute(self._statement(text.SET_MOVE), (to, is_copied))

    @contextmanager
    def _open(self) -> Iterator[Connection[TupleRow]]:
        with self._translate_errors(), closing(self._connect()) as connection:
            yield connection
