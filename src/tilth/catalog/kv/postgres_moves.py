"""A catalog in PostgreSQL that moves to another place: from then on it refuses every commit.

Covers: beginning, ending and giving up a move, whether a server shows itself there. Does not cover: copying
(tilth.recovery). Always holds: when a move has begun, no commit that was under way is missing in what is read then, and
none lands any more, whoever sends it; a move that was not finished can be begun again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tilth.catalog.errors import CatalogMovedError
from tilth.catalog.kv import postgres_schema as text
from tilth.catalog.kv.postgres_presence import is_shown_by_none

_HINT = "start servers with catalog.url where it was moved to, or copy it from there"
_UNFINISHED_HINT = "a copy was begun and has not ended: run `tilth catalog copy` again, to a place without a catalog"


class Moves:
    """Moves of one store."""

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
        self._translated = translated
        self._schema = schema

    def check(self, *, may_begin: bool = False) -> None:
        """Raises CatalogMovedError; `may_begin`: only when it has moved for good."""
        with self._connected() as connection:
            row = connection.execute(self._statement(text.FIND_MOVE)).fetchone()
        to, is_copied = ("", False) if row is None else (str(row[0]), bool(row[1]))
        if to and (is_copied or not may_begin):
            raise CatalogMovedError(to=to, hint=_HINT if is_copied else _UNFINISHED_HINT)

    @contextmanager
    def moving(self, to: str) -> Iterator[None]:
        """Refuse commits from now on; for good, if what happens within is well."""
        with self._connected() as connection, connection.transaction():
            # Each commit has read this table and holds a lock of it until its end.
            connection.execute(self._statement(text.LOCK_MOVE))
            connection.execute(self._statement(text.SET_MOVE), (to, False))
        try:
            yield
        except BaseException:
            self._set("", is_copied=False)
            raise
        self._set(to, is_copied=True)

    def is_shown(self, server: str) -> bool:
        """Return whether the process with this id shows itself, which it may do where nobody hears of it."""
        with self._connected() as connection:
            return not is_shown_by_none(connection, self._schema, server)

    def _set(self, to: str, *, is_copied: bool) -> None:
        with self._connected() as connection:
            connection.execute(self._statement(text.SET_MOVE), (to, is_copied))

    @contextmanager
    def _connected(self) -> Iterator[Connection[TupleRow]]:
        with self._translated(), closing(self._connect()) as connection:
            yield connection
