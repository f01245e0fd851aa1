"""The catalog in PostgreSQL: a table of keys and values, a commit in one round trip.

Covers: connections, commits by the function of postgres_schema.py, views, the outcome of a commit whose answer was
lost. Does not cover: what keys mean.
Always holds: READ COMMITTED with row locks (SERIALIZABLE fails commits of neighbours); a view is one short transaction
that only reads; a commit whose answer was lost is unknown only until the backend that had it is gone: then the
connection's row in `writers` shows. Several servers may have it open; one that knows an older form of the schema
commits nothing any more once a newer one has upgraded it.

Tests: tests/integration/catalog/test_postgres_kv.py.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from copy import copy
from functools import partial
from typing import TypeVar
from uuid import UUID

import psycopg
from psycopg import Connection, errors, sql
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolTimeout

from tilth.base.clock import Clock
from tilth.base.errors import ConflictError, TilthError
from tilth.base.ids import random_id
from tilth.base.logs import Log
from tilth.catalog.errors import (
    CLOCK_HINT,
    CatalogAwayError,
    CatalogExistsError,
    CatalogMovedError,
    ClockSkewError,
    FormerPrimaryError,
    NewerFormatError,
    StoreClosedError,
)
from tilth.catalog.kv import postgres_schema as text
from tilth.catalog.kv.incarnation import Incarnation
from tilth.catalog.kv.postgres_address import PostgresAddress
from tilth.catalog.kv.postgres_connect import Connector, SessionLimits, Writer, first_line
from tilth.catalog.kv.postgres_durable import DatabaseWarnings, confirm, no_standby
from tilth.catalog.kv.postgres_introduction import Incarnations, Introduction
from tilth.catalog.kv.postgres_listings import CatalogBusyError, Listings
from tilth.catalog.kv.postgres_liveness import (
    PostgresLiveness,
    ReservedStore,
    is_lock_free,
)
from tilth.catalog.kv.postgres_moves import Moves
from tilth.catalog.kv.postgres_news import NewsSender
from tilth.catalog.kv.postgres_reserved import ReservedConnection
from tilth.catalog.kv.postgres_view import FIRST_CHUNK_ROWS, PostgresView, chunk, versioned
from tilth.catalog.kv.postgres_watch import PostgresWatch
from tilth.catalog.kv.postgres_wire import PreparedStatements, bytes_list, int4, int8, int8_list, int_of
from tilth.catalog.kv.protocol import (
    FIRST_KEY,
    PINNED_BYTES,
    Absent,
    AtVersion,
    Conflict,
    KVOutcome,
    Landed,
    Pinned,
    Precondition,
    ReadView,
    TimeReached,
    Unknown,
    Versioned,
    ViewUse,
)

T = TypeVar("T")

CONNECTIONS_MAX = 16
#: Time for which the reason why there is no connection is reused by all callers.
WHY_SECONDS = 1.0
#: Number of listings at the same time; the other connections are for commits and brief reads.
LISTINGS_MAX = 10
#: Idle time after which a surplus connection is closed, one after the other.
IDLE_SECONDS_MAX = 60.0
#: Default of server.gone-bound.
GONE_SECONDS = 3.0
#: Time limit after which the database gives up a commit or a read.
STATEMENT_SECONDS = 30
LIMITS = SessionLimits(connect=5.0, statement=STATEMENT_SECONDS, wait=10.0, decide=10.0)
#: Longest wait for the commit that proves that earlier ones are durable.
CONFIRM_SECONDS = 5.0
_DECIDE_AGAIN_SECONDS = 0.1
#: Times that a commit is sent again after the database chose it as the victim of a collision.
COLLISIONS_MAX = 20
#: Check before an upgrade, with a reader of a span of keys and a test that a server's process is gone; it raises the
#: error that forbids the upgrade.
UpgradeCheck = Callable[[Callable[[bytes, bytes | None], list[tuple[bytes, bytes]]], Callable[[str], bool]], None]
_BEGIN_VIEW = (
    b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT pg_current_snapshot(); "
    b"SET LOCAL idle_in_transaction_session_timeout = %d"
)
#: The database has undone the commit for the sake of another one, or its statement was dropped before.
_COLLISIONS = (
    errors.UniqueViolation,
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.InvalidSqlStatementName,
)

_log = Log("catalog")


class PostgresKV:
    """The store in a schema of a database, made if it is not there.

    Raises CatalogAwayError, ConflictError (FOREIGN_SCHEMA), NewerFormatError.
    """

    def __init__(
        self,
        clock: Clock,
        address: PostgresAddress,
        environment: Mapping[str, str] | None = None,
        *,
        news_of: Callable[[Iterable[bytes]], Collection[str]] = lambda keys: (),
        check_upgrade: UpgradeCheck = lambda pairs, is_gone: None,
        requires_sync: bool = False,
    ) -> None:
        """`news_of` returns the news of a commit for other servers, by its keys; `check_upgrade` raises while a schema
        of an older version must stay as it is; `requires_sync` refuses a database that waits for no standby.
        """
        self._clock = clock
        self._address = address
        self._limits = LIMITS
        self._connector = Connector(address, os.environ if environment is None else environment)
        self._news_of = news_of
        self._check_upgrade = check_upgrade
        self._requires_sync = requires_sync
        self._is_closed = False
        self._news = NewsSender(clock, self._notify)
        self._listings = Listings(LISTINGS_MAX)
        #: Guards `_why`: the last reason why there was no connection, and the time at which it was found.
        self._why_lock = threading.Lock()
        self._why: tuple[float, TilthError | None] = (-WHY_SECONDS, None)
        #: Texts of queries with the schema's name.
        self._texts: dict[str, str] = {}
        self._incarnations = Incarnations()
        self._introduction = Introduction(self._incarnations, self._connector, self._sql, catalog=address.shown)
        self._open()
        self._pool: ConnectionPool[Writer] | ReservedConnection = ConnectionPool(
            connection_class=Writer,
            kwargs={"connector": self._connector, "limits": self._limits},
            min_size=1,
            max_size=CONNECTIONS_MAX,
            open=True,
            timeout=self._limits.wait,
            max_idle=IDLE_SECONDS_MAX,
            reconnect_timeout=self._limits.wait,
            configure=self._introduce,
            name="catalog",
        )

    @property
    def incarnation(self) -> Incarnation:
        found = self._incarnations.now
        assert found is not None, "it is found when the store is opened"
        return found

    def get(self, key: bytes) -> Versioned | None:
        def fetch(connection: Writer) -> Versioned | None:
            return self.record(connection, key)

        return self._read(fetch)

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        count = FIRST_CHUNK_ROWS if limit is None else min(limit, FIRST_CHUNK_ROWS)
        first = max(start, FIRST_KEY)
        # One statement is a snapshot by itself: few rows need no transaction around it.
        rows = self._read(lambda connection: chunk(self, connection, first, end, count, reverse=reverse))
        if len(rows) < count or count == limit:
            yield from rows
            return
        with self.view() as view:
            yield from view.scan(start, end, limit=limit, reverse=reverse)

    @contextmanager
    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> Iterator[ReadView]:
        view: PostgresView | None = None

        def open_view(connection: Writer) -> Writer:
            nonlocal view
            view = PostgresView(self, connection, keys, use)
            return connection

        is_brief = keys or use is ViewUse.BRIEF
        with nullcontext() if is_brief else self._listings.permit():
            connection = self._read(open_view)
            assert view is not None
            try:
                yield view
            finally:
                view.end()
                self._pool.putconn(connection)

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        assert all(key >= FIRST_KEY for key in (*puts, *deletes))
        absent = {each.key for each in preconditions if isinstance(each, Absent)}
        new, changed = sorted(puts.keys() & absent), sorted(puts.keys() - absent)
        at = [each for each in preconditions if isinstance(each, Absent | AtVersion)]
        pins = [each for each in preconditions if isinstance(each, Pinned)]
        arguments = (
            int8(max((each.time_ms for each in preconditions if isinstance(each, TimeReached)), default=0)),
            bytes_list([each.key for each in at]),
            int8_list([each.version if isinstance(each, AtVersion) else 0 for each in at]),
            bytes_list([each.key for each in pins]),
            int8_list([each.version for each in pins]),
            bytes_list([key for key in (*puts, *deletes) if key[:1] in PINNED_BYTES]),
            bytes_list(sorted(absent - puts.keys())),
            bytes_list(new),
            bytes_list([puts[key] for key in new]),
            bytes_list(changed),
            bytes_list([puts[key] for key in changed]),
            bytes_list(sorted(set(deletes) - absent)),
            b"\x01" if self._requires_sync else b"\x00",
        )
        for _ in range(COLLISIONS_MAX):
            with self.translate_errors():
                connection = self._acquire()
                try:
                    outcome = self._commit(connection, arguments)
                finally:
                    self._pool.putconn(connection)
            if outcome is not None:
                if not isinstance(outcome, Conflict):
                    self._news.add(self._news_of((*puts, *deletes)))
                return outcome
        # Each time another commit came first: what this one has seen is not so any more.
        return Conflict(at[0].key if at else min(puts, default=FIRST_KEY))

    def confirm(self) -> None:
        writer = UUID(random_id())
        with self.translate_errors(), closing(self._connector.connect(Connection, self._limits)) as connection:
            self._introduction.introduce(connection, writer)
            try:
                self._confirm(connection, writer)
            except psycopg.OperationalError as error:
                hint = "bring the synchronous standby of the database back, and try again"
                message = "what the catalog's database shows may not be durable yet"
                raise CatalogAwayError(
                    message, catalog=self._address.shown, reason=first_line(error), hint=hint
                ) from None

    def _confirm(self, connection: Connection[TupleRow], writer: UUID) -> None:
        confirm(self._clock, connection, writer, self._text, seconds=min(CONFIRM_SECONDS, self._limits.statement))

    def liveness(self, gone_seconds: float = GONE_SECONDS) -> PostgresLiveness:
        """Return the liveness of this process; others count it as gone after `gone_seconds` without a heartbeat."""
        limits = SessionLimits.of_heartbeat(gone_seconds)
        heartbeat, watch = self._reserve(limits), self._reserve(limits)
        return PostgresLiveness(self._clock, self._address.schema, heartbeat=heartbeat, watch=watch)

    def _reserve(self, limits: SessionLimits) -> ReservedStore:
        """Return this store over a connection of its own."""
        other = copy(self)

        def connect() -> Writer:
            connection = self._connector.connect(Writer, limits)
            self._introduce(connection)
            return connection

        other._limits, reserved = limits, ReservedConnection(connect, wait_seconds=limits.wait)
        other._pool, other._listings = reserved, Listings(1)
        return ReservedStore(other, reserved)

    def moves(self) -> Moves:
        """Return the moves of this catalog to other locations."""
        return Moves(self._connect_apart, self._sql, self.translate_errors, schema=self._address.schema)

    def database_watch(self) -> PostgresWatch:
        """Return a watch on the database, with a connection of its own."""
        return PostgresWatch(self._clock, self._connect_apart, self._address.schema)

    def fill(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Write keys and values into a store without any, all or none. Raises CatalogExistsError."""
        with self.translate_errors(), closing(self._connect_apart()) as connection, connection.transaction():
            # The copy is one statement, which takes as long as its source.
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute(self._sql(text.LOCK_KEYS))
            if connection.execute(self._sql(text.FIND_ANY)).fetchone() is not None:
                hint = "give it another schema, or drop this one"
                raise CatalogExistsError(catalog=self._address.shown, hint=hint)
            version = connection.execute(self._sql(text.NEXT_VERSION)).fetchone()
            assert version is not None
            with connection.cursor().copy(self._sql(text.COPY_KEYS)) as copy:
                copy.set_types(["bytea", "bytea", "int8"])
                for key, value in pairs:
                    copy.write_row((key, value, version[0]))

    def close(self) -> None:
        if not self._is_closed:
            self._news.close()
            self._is_closed = True
            self._pool.close()

    # --- commits ---

    def _notify(self, news: str) -> None:
        """Send news to the other servers, without waiting for a disk."""
        with self.translate_errors():
            connection = self._pool.getconn()
            try:
                connection.statements.execute(text.NOTIFY, self._address.schema.encode(), news.encode())
            finally:
                self._pool.putconn(connection)

    def _commit(self, connection: Writer, arguments: tuple[bytes, ...]) -> KVOutcome | None:
        """Return the outcome; None: the database has undone the commit in favour of another one, and it may be tried
        again.
        """
        commit = UUID(random_id())
        try:
            given = (int4(text.FORMAT), connection.id.bytes, commit.bytes, *arguments)
            connection.warnings.drain()
            answer = connection.statements.execute(self._text(text.COMMIT), *given)
        except _COLLISIONS:
            return None
        except errors.ReadOnlySqlTransaction:
            # The host is a former primary: the next connection finds the current one.
            connection.close()
            raise
        except psycopg.OperationalError as error:
            if not connection.closed and not connection.broken:
                # It was answered: nothing was applied.
                raise
            return self._decide(connection, commit, error)
        outcome, conflict, version = (answer.get_value(0, column) for column in range(3))
        if outcome == b"moved":
            assert conflict is not None
            hint = "stop this server, and start it with catalog.url where the catalog was moved to"
            raise CatalogMovedError(to=conflict.decode(), hint=hint)
        if outcome == b"conflict":
            assert conflict is not None
            return Conflict(conflict)
        if outcome == b"alone":
            raise no_standby(self._address.shown)
        assert version is not None
        if outcome == b"upgraded":
            raise self._newer(int_of(version))
        if outcome == b"early":
            raise ClockSkewError(catalog=self._address.shown, database_ms=int_of(version), hint=CLOCK_HINT)
        return self._confirm_applied(connection, int_of(version))

    def _confirm_applied(self, connection: Writer, version: int) -> KVOutcome:
        """Return the outcome of a commit that the database has applied, once it is known to be durable."""
        if not self._incarnations.record(version, connection.incarnation):
            error = errors.OperationalError("another database is the primary meanwhile")
            raise self._away(error, "nothing was applied")
        warned = connection.warnings.drain()
        if not warned:
            return Landed(version)
        _log.warning("commit_not_confirmed", catalog=self._address.shown, reason=warned)
        try:
            self.confirm()
        except TilthError as error:
            return Unknown(f"the database has given up to wait for its standby ({warned}): {error}")
        return Landed(version)

    def _decide(self, connection: Writer, commit: UUID, error: psycopg.Error) -> KVOutcome:
        """Find out the outcome of a commit whose answer was lost; its backend is ended first."""
        _log.warning("commit_answer_lost", catalog=self._address.shown, reason=first_line(error))
        # Others that are idle may have broken with it.
        self._pool.check()
        deadline, why = self._clock.monotonic() + self._limits.decide, first_line(error)
        while self._clock.monotonic() < deadline:
            try:
                with closing(self._connect_apart()) as other:
                    # Until it is gone it may still commit what was sent to it.
                    left = other.execute(text.END_BACKEND, connection.backend).fetchone()
                    if left is None:
                        row = other.execute(self._sql(text.FIND_COMMIT), (connection.id, commit)).fetchone()
                        if row is None:
                            raise self._away(error, "nothing was applied")
                        # Ending the backend may have ended its commit's wait for a standby, too.
                        self._confirm(other, connection.id)
                        return Landed(row[0])
                    why = first_line(error) if left[0] is not None else "the commit waits for its synchronous standby"
            except FormerPrimaryError as refused:
                why = str(refused)
            except psycopg.Error as failure:
                why = first_line(failure)
            self._clock.sleep(_DECIDE_AGAIN_SECONDS)
        return Unknown(f"the outcome of a commit to the catalog's database could not be found out: {why}")

    # --- reads ---

    def _read(self, query: Callable[[Writer], T]) -> T:
        """Run the query on a connection; again on another one where it broke, as after a restart of the database.

        `query` may keep the connection: then it returns it.
        """
        deadline = self._clock.monotonic() + self._limits.wait
        while True:
            with self.translate_errors():
                connection = self._acquire()
                kept: object = None
                try:
                    kept = query(connection)
                    return kept
                except errors.InvalidSqlStatementName:
                    # The pool has reset the connection: it prepares its statements anew.
                    if self._clock.monotonic() > deadline:
                        raise
                except psycopg.OperationalError:
                    if not connection.broken or self._clock.monotonic() > deadline:
                        raise
                    self._pool.check()
                finally:
                    if kept is not connection:
                        self._pool.putconn(connection)

    def begin(self, connection: Writer, idle_seconds: float) -> None:
        """Begin the transaction of a view; its first statement fixes the snapshot. The database ends the transaction
        after `idle_seconds` without a query.
        """
        connection.statements.do(_BEGIN_VIEW % round(idle_seconds * 1000))

    def record(self, connection: Writer, key: bytes) -> Versioned | None:
        """Return the value and version of one key."""
        answer = connection.statements.execute(self._text(text.GET), key)
        return versioned(answer, 0, column=0) if answer.ntuples else None

    def records(self, connection: Writer, keys: Collection[bytes]) -> dict[bytes, Versioned | None]:
        """Return value and version of each of the keys."""
        answer = connection.statements.execute(self._text(text.GET_ALL), bytes_list(list(keys)))
        found: dict[bytes, Versioned | None] = dict.fromkeys(keys)
        for row in range(answer.ntuples):
            key = answer.get_value(row, 0)
            assert key is not None
            found[key] = versioned(answer, row, column=1)
        return found

    def rows(self, connection: Writer, query: str, arguments: tuple[object, ...]) -> list[TupleRow]:
        """Return the rows of a scan of a view."""
        return connection.execute(self._sql(query), arguments, prepare=True, binary=True).fetchall()

    # --- connections ---

    def _connect(self) -> Connection[TupleRow]:
        connection: Connection[TupleRow] = self._connector.connect(Connection, self._limits)
        self._connector.check_direct(connection)
        return connection

    def _connect_apart(self) -> Connection[TupleRow]:
        """Return a new connection outside of the pool. Raises the errors of `introduce`, and psycopg's."""
        connection: Connection[TupleRow] = self._connector.connect(Connection, self._limits)
        try:
            self._introduction.introduce(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _acquire(self) -> Writer:
        """Return a connection of the pool that belongs to the current incarnation; others are closed."""
        for _ in range(2 * CONNECTIONS_MAX):
            connection = self._pool.getconn()
            if connection.incarnation == self._incarnations.now:
                return connection
            connection.close()
            self._pool.putconn(connection)
        raise self._away(errors.OperationalError("its history changes again and again"), "nothing was applied")

    def _open(self) -> None:
        """Make what is missing, and bring a schema of an older version up to this one's."""
        with self.translate_errors(), closing(self._connect()) as connection:
            # Two servers that make the same schema at once disturb each other.
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(hashtext('tilth schema'))")
                found = self._format(connection)
                if found > text.FORMAT:
                    raise self._newer(found)
                if 0 < found < text.FORMAT:
                    # Servers of the older version would commit nothing any more.
                    self._check_upgrade(
                        partial(self._pairs, connection), partial(is_lock_free, connection, self._address.schema)
                    )
                for number in range(found, text.FORMAT):
                    connection.execute(self._sql(text.STEPS[number]))
                    connection.execute(self._sql(text.SET_FORMAT), (number + 1,))
            connection.execute(self._sql(text.REMOVE_OLD_WRITERS))
            self._introduction.introduce(connection)
            if self._requires_sync and connection.execute(text.FIND_SYNCHRONOUS).fetchone() == ("",):
                raise no_standby(self._address.shown)
        if 0 < found < text.FORMAT:
            _log.info("catalog_upgraded", catalog=self._address.shown, found=found, now=text.FORMAT)

    def _pairs(self, connection: Connection[TupleRow], start: bytes, end: bytes | None) -> list[tuple[bytes, bytes]]:
        """Return keys and values of a span, as a schema of any version has them."""
        rows = connection.execute(self._sql(text.SCAN), (start, end, None), binary=True).fetchall()
        return [(row[0], row[1]) for row in rows]

    def _format(self, connection: Connection[TupleRow]) -> int:
        """Return the number of steps that have made the schema; 0: it is not there, or empty."""
        try:
            with connection.transaction():
                row = connection.execute(self._sql(text.FIND_FORMAT)).fetchone()
        except (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName):
            row = None
        if row is not None:
            return int(row[0])
        other = connection.execute(text.FIND_OTHER, (self._address.schema,)).fetchone()
        if other is not None:
            hint = "give the catalog a schema of its own by the option schema="
            raise ConflictError.coded(
                "FOREIGN_SCHEMA",
                "the schema of the database holds something else than a catalog",
                catalog=self._address.shown,
                table=other[0],
                hint=hint,
            )
        return 0

    def _newer(self, found: int) -> NewerFormatError:
        hint = "start the version that wrote it, or a later one"
        return NewerFormatError(catalog=self._address.shown, found=found, known=text.FORMAT, hint=hint)

    def _introduce(self, connection: Writer) -> None:
        """Introduce a new connection of the pool, with its row in `writers`. Raises as `_introduced`."""
        connection.id, connection.statements = UUID(random_id()), PreparedStatements(connection)
        try:
            found = self._introduction.introduce(connection, connection.id)
        except BaseException:
            connection.close()
            raise
        connection.incarnation, connection.warnings = found.incarnation, DatabaseWarnings(connection)
        connection.backend = (connection.info.backend_pid, found.backend_start)

    def _sql(self, query: str) -> sql.SQL:
        return sql.SQL(self._text(query))

    def _text(self, query: str) -> str:
        """Put the schema's name in: letters, digits and _ (postgres_address.py), which may be a word of SQL."""
        found = self._texts.get(query)
        if found is None:
            schema = self._address.schema
            found = self._texts[query] = query.replace("{schema}", f'"{schema}"').replace("{channel}", schema)
        return found

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Convert errors of the database to ours."""
        try:
            yield
        except TilthError:
            raise
        except PoolTimeout as error:
            raise self._why_none(error) from None
        except psycopg.Error as error:
            if self._is_closed:
                raise StoreClosedError(catalog=self._address.shown) from None
            raise self._away(error, "") from None

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def _why_none(self, timeout: PoolTimeout) -> TilthError:
        """Return the reason why the pool gives no connection, which one new connection finds for all that wait."""
        with self._why_lock:
            found_at, why = self._why
            if why is None or self.monotonic() - found_at > WHY_SECONDS:
                why = self._find_why(timeout)
                self._why = (self.monotonic(), why)
            return why

    def _find_why(self, timeout: PoolTimeout) -> TilthError:
        try:
            self._connect_apart().close()
        except TilthError as error:
            return error
        except psycopg.Error as error:
            return self._away(error, "")
        hint = "try again; the database answers, but each connection of this server is in use"
        return CatalogBusyError(catalog=self._address.shown, reason=first_line(timeout), hint=hint)

    def _away(self, error: Exception, what: str) -> CatalogAwayError:
        hint = "check that the database runs, its address, the user and the password"
        if isinstance(error, errors.ReadOnlySqlTransaction):
            hint = "it is read-only, as a standby is: name the primary, or wait for its promotion"
        if isinstance(error, errors.InsufficientPrivilege):
            hint = "let this user create and use the schema, and call pg_control_system()"
        if isinstance(error, errors.DiskFull):
            hint = "make room on the disk of the database"
        facts = {"applied": what} if what else {}
        return CatalogAwayError(catalog=self._address.shown, reason=first_line(error), hint=hint, **facts)
