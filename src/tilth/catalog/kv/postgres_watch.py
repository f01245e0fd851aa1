"""Watch on the catalog's database: commits that wait for a standby, transactions that hold up its vacuum, and settings
with which it can lose commits.

Covers: a thread with a connection of its own that only reads, the facts that it read last. Does not cover: refusing
servers (postgres.py), the heartbeat (tilth.membership).
Always holds: no commit and no other connection can delay it; its facts are a few seconds old at most, or `trouble`
reports that the database does not answer.

Tests: tests/integration/catalog/test_postgres_watch.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log

PERIOD_SECONDS = 2.0
#: Commits that have waited longer for a standby are reported.
WAIT_SECONDS_MAX = 3.0
#: A database that has not answered for longer is reported.
SILENT_SECONDS_MAX = 8.0
#: A transaction of any program that is open for longer is reported: it holds up the vacuum of dead rows.
SNAPSHOT_SECONDS_MAX = 300.0
#: Commits and scans are slow with more dead rows than this, and than `DEAD_ROWS_PER_ROW_MAX` for each live row.
DEAD_ROWS_MAX = 200_000
DEAD_ROWS_PER_ROW_MAX = 2.0
_END_SECONDS = 2.0
_QUERY = """
WITH oldest AS (
    SELECT extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds,
        'process ' || pid || ' of ' || coalesce(nullif(application_name, ''), usename, 'unknown') AS who
    FROM pg_stat_activity WHERE datname = current_database() AND backend_xmin IS NOT NULL AND xact_start IS NOT NULL
        AND pid <> pg_backend_pid() AND backend_type = 'client backend'
    ORDER BY xact_start LIMIT 1
), kept AS (SELECT n_dead_tup, n_live_tup FROM pg_stat_all_tables WHERE schemaname = '{schema}' AND relname = 'kv')
SELECT count(*) FILTER (WHERE wait_event = 'SyncRep'),
    coalesce(extract(epoch FROM clock_timestamp() - min(query_start) FILTER (WHERE wait_event = 'SyncRep')), 0)::float8,
    current_setting('synchronous_standby_names'), current_setting('fsync'),
    (SELECT count(*) FROM pg_stat_replication),
    coalesce((SELECT seconds FROM oldest), 0), coalesce((SELECT who FROM oldest), ''),
    coalesce((SELECT n_dead_tup FROM kept), 0), coalesce((SELECT n_live_tup FROM kept), 0)
    FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user"""

_log = Log("catalog")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseStats:
    """Facts of the database at one time."""

    #: Number of commits of all servers that wait for a synchronous standby, and the longest of their waits.
    waiting: int = 0
    waiting_seconds: float = 0.0
    #: `synchronous_standby_names`; empty: commits wait for no standby.
    synchronous: str = ""
    is_synced: bool = True
    #: Number of programs that receive the log, as standbys do.
    standbys: int = 0
    #: Age of the transaction with the oldest snapshot, and the program that runs it.
    snapshot_seconds: float = 0.0
    snapshot_of: str = ""
    #: Numbers of dead and of live rows of the catalog.
    dead_rows: int = 0
    rows: int = 0


def trouble_of(stats: DatabaseStats) -> str:
    """Return the trouble of the database; empty: there is none."""
    if stats.waiting and stats.waiting_seconds > WAIT_SECONDS_MAX:
        commits = "1 commit waits" if stats.waiting == 1 else f"{stats.waiting} commits wait"
        return (
            f"{commits} for its synchronous standby, the first for {stats.waiting_seconds:.0f} s: bring the standby "
            f"back, or change synchronous_standby_names ('{stats.synchronous}')"
        )
    if stats.dead_rows > max(DEAD_ROWS_MAX, stats.rows * DEAD_ROWS_PER_ROW_MAX):
        return (
            f"{stats.dead_rows} dead rows of the catalog, beside {stats.rows}, make commits slow: "
            f"{_held_up(stats) or 'see whether autovacuum keeps up, and what else holds it up'}"
        )
    return ""


def _held_up(stats: DatabaseStats) -> str:
    """Return the transaction that holds up the vacuum, as a sentence; empty: there is none."""
    if stats.snapshot_seconds <= SNAPSHOT_SECONDS_MAX:
        return ""
    return (
        f"a transaction has been open for {stats.snapshot_seconds:.0f} s ({stats.snapshot_of}) and holds up the "
        "clean-up of the database: end it, or run reports and dumps on a standby"
    )


def notes_of(stats: DatabaseStats) -> tuple[str, ...]:
    """Return notes for the operator about a database that works but can lose commits or become slow."""
    notes = []
    if not stats.is_synced:
        notes.append("fsync is off: a crash of its machine may lose commits, or all")
    if stats.standbys and not stats.synchronous:
        notes.append("it replicates asynchronously: a failover to a standby may lose the last commits")
    held_up = _held_up(stats)
    if held_up:
        notes.append(held_up)
    return tuple(notes)


class PostgresWatch:
    """The watch: `start` it, read its `trouble` and `notes`, and `stop` it at the end."""

    def __init__(self, clock: Clock, connect: Callable[[], Connection[TupleRow]], schema: str) -> None:
        self._clock = clock
        self._query = _QUERY.replace("{schema}", schema).encode()
        self._connect = connect
        self._connection: Connection[TupleRow] | None = None
        self._stats = DatabaseStats()
        self._polled_at = clock.monotonic()
        self._failure = "it has not answered yet"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tilth-database", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            # The thread, a daemon, may wait for a database that does not answer.
            self._thread.join(_END_SECONDS)
        if not self._thread.is_alive():
            self._hang_up()

    @property
    def trouble(self) -> str:
        """The trouble that keeps commits waiting or makes them slow; empty: there is none."""
        silent = self._clock.monotonic() - self._polled_at
        if silent > SILENT_SECONDS_MAX:
            return f"it has not answered for {silent:.0f} s: {self._failure or 'a question is under way'}"
        return trouble_of(self._stats)

    @property
    def notes(self) -> tuple[str, ...]:
        return notes_of(self._stats)

    def step(self) -> None:
        """Read the facts once. The thread calls it; tests may."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
            row = self._connection.execute(self._query).fetchone()
        except (psycopg.Error, TilthError) as error:
            self._failure = (str(error).strip() or type(error).__name__).splitlines()[0]
            self._hang_up()
            return
        assert row is not None
        before, self._failure = trouble_of(self._stats), ""
        self._stats = DatabaseStats(
            waiting=row[0],
            waiting_seconds=row[1],
            synchronous=row[2],
            is_synced=row[3] == "on",
            standbys=row[4],
            snapshot_seconds=row[5],
            snapshot_of=row[6],
            dead_rows=row[7],
            rows=row[8],
        )
        self._polled_at = self._clock.monotonic()
        now = trouble_of(self._stats)
        if bool(now) != bool(before):
            _log.warning("database_waits" if now else "database_goes_on", reason=now or before)

    def _run(self) -> None:
        while True:
            try:
                self.step()
            # The outermost loop of a service: it goes on whatever happened.
            except Exception as error:
                _log.error("database_watch_failed", error=error)
            if self._clock.wait(self._stopping, PERIOD_SECONDS):
                return

    def _hang_up(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
