"""Introduction of new connections to the catalog's database: the incarnation of each is read and checked.

Covers: reading the incarnation within the first query of a connection, opening the next one after a failover or a
restore. Does not cover: the rules (incarnation.py), the effects of a change in the process (tilth.membership).
Always holds: a connection that was introduced belongs to one incarnation until it is closed, because no backend
outlives its timeline; introductions and new incarnations wait for no standby, so that reads go on while commits wait.

Tests: tests/unit/catalog/kv/test_incarnation.py, tests/integration/catalog/test_postgres_failover.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tilth.base.errors import UnavailableError
from tilth.base.ids import random_id
from tilth.base.logs import Log
from tilth.catalog.errors import FormerPrimaryError
from tilth.catalog.kv import postgres_schema as text
from tilth.catalog.kv.incarnation import FoundHistory, HistoryVerdict, Incarnation, KnownHistory, judge, next_number
from tilth.catalog.kv.postgres_connect import Connector

#: Values of `synchronous_commit` with which a commit waits for the disk and for the standbys that the database names.
_STRONG = ("on", "remote_apply")

_log = Log("catalog")


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduced:
    """Facts of a connection that was introduced."""

    incarnation: Incarnation
    #: Start time of the backend, which identifies it together with its process id.
    backend_start: datetime | None


class Incarnations:
    """The incarnation that this process follows. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known = KnownHistory()

    @property
    def now(self) -> Incarnation | None:
        """The incarnation that is followed: the newest one that a connection has found; None: there was none yet."""
        return self._known.incarnation

    @property
    def known(self) -> KnownHistory:
        return self._known

    def record(self, version: int, incarnation: Incarnation) -> bool:
        """Record the version of a commit; return False where the process follows another incarnation by now."""
        with self._lock:
            known = self._known
            if incarnation != known.incarnation:
                return False
            if version > known.version:
                self._known = KnownHistory(incarnation=incarnation, version=version)
            return True

    def follow(self, incarnation: Incarnation) -> Incarnation | None:
        """Follow an incarnation from now on if it is newer; return the former one, None where nothing changes."""
        with self._lock:
            before = self._known.incarnation
            if before is not None and incarnation.number <= before.number:
                return None
            self._known = KnownHistory(incarnation=incarnation)
            return before


class Introduction:
    """Introduces the connections of one store. For any thread."""

    def __init__(
        self, incarnations: Incarnations, connector: Connector, statement: Callable[[str], sql.SQL], *, catalog: str
    ) -> None:
        """`statement` inserts the schema's name into a query; `catalog` names the database in errors."""
        self._incarnations = incarnations
        self._connector = connector
        self._statement = statement
        self._catalog = catalog

    def introduce(self, connection: Connection[TupleRow], writer: UUID | None = None) -> Introduced:
        """Check a new connection and, with a `writer`, insert its row in `writers`: one round trip, unless the next
        incarnation has to be opened.

        Raises FormerPrimaryError, UnavailableError (CATALOG_POOLER among them) and psycopg's errors.
        """
        # Read before the query: a commit that is applied meanwhile may be missing in its answer.
        known = self._incarnations.known
        if writer is None:
            row = connection.execute(self._statement(text.FIND_FACTS)).fetchone()
        else:
            row = connection.execute(self._statement(text.ADD_WRITER_AND_FIND_FACTS), (writer,)).fetchone()
        assert row is not None
        self._connector.check_session(connection, backend_pid=row[0], seqscan=row[1])
        if row[3] not in _STRONG:
            hint = "let connections of Tilth to the database set options, as without a pooler between"
            raise UnavailableError.coded(
                "WEAK_COMMITS",
                "the catalog's database does not let commits wait until they are durable",
                catalog=self._catalog,
                synchronous_commit=row[3],
                hint=hint,
            )
        found = _found(row)
        stored = found.stored
        if stored is None or judge(known, found) is not HistoryVerdict.FOLLOW:
            stored = self._open_next(connection)
        before = self._incarnations.follow(stored)
        if before is not None:
            _log.warning("database_history_changed", catalog=self._catalog, before=before, now=stored)
        return Introduced(incarnation=stored, backend_start=row[2])

    def _open_next(self, connection: Connection[TupleRow]) -> Incarnation:
        """Open the next incarnation and return it; where another process has opened it already, return that one.
        Raises FormerPrimaryError.
        """
        with connection.transaction():
            connection.execute(text.LOCK_INCARNATION)
            known = self._incarnations.known
            row = connection.execute(self._statement(text.FIND_FACTS)).fetchone()
            assert row is not None
            found = _found(row)
            match judge(known, found):
                case HistoryVerdict.FOLLOW:
                    assert found.stored is not None
                    return found.stored
                case HistoryVerdict.REFUSE:
                    hint = (
                        "lead the address of the catalog to the current primary; if the database was restored on "
                        "purpose, restart all servers"
                    )
                    raise FormerPrimaryError(
                        catalog=self._catalog, found=found.stored, known=known.incarnation, hint=hint
                    )
                case HistoryVerdict.OPEN:
                    return self._write_incarnation(connection, known, found)

    def _write_incarnation(
        self, connection: Connection[TupleRow], known: KnownHistory, found: FoundHistory
    ) -> Incarnation:
        opened = Incarnation(
            number=next_number(known, found),
            token=random_id(),
            system=found.system,
            timeline=found.timeline,
        )
        given = (opened.number, UUID(opened.token), opened.system, opened.timeline)
        row = connection.execute(self._statement(text.ADD_INCARNATION), given).fetchone()
        assert row is not None
        if opened.number > 1:
            connection.execute(self._statement(text.RAISE_VERSION), (opened.version_floor, known.version))
            _log.warning("database_history_begins", catalog=self._catalog, before=found.stored, now=opened)
        return replace(opened, opened_ms=row[0])


def _found(row: tuple[Any, ...]) -> FoundHistory:
    system, timeline, version, number, token, *known = row[4:12]
    stored = None
    if number is not None:
        stored = Incarnation(number=number, token=token.hex, system=known[0], timeline=known[1], opened_ms=known[2])
    return FoundHistory(stored=stored, system=system, timeline=timeline, version=version)
