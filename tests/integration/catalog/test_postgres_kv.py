"""The store in a real PostgreSQL: the suite of all stores, several writers, lost answers, a database that restarts."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.codes import WithCode
from tilth.base.clock import SystemClock
from tilth.base.errors import ConflictError
from tilth.base.rand import new_rng
from tilth.catalog import Catalog, Joining, KeyValue, NewerFormatError, ServerVersionError, check_upgrade
from tilth.catalog.errors import CatalogAwayError, ClockSkewError
from tilth.catalog.kv import Absent, AtVersion, Conflict, Landed, TimeReached, Unknown, postgres_schema
from tilth.catalog.kv import postgres as postgres_kv
from tilth.catalog.kv.postgres import PostgresKV
from tilth.catalog.kv.postgres_address import parse_postgres
from tilth.catalog.kv.postgres_connect import Writer
from tilth.catalog.kv.postgres_view import FIRST_CHUNK_ROWS
from tilth.catalog.kv.postgres_wire import PreparedStatements
from tilth.membership import Bounds, Member
from tilth.testing import FaultyKV, RetryingKV, check_kv
from tools.postgres import PASSWORD, Postgres
from tools.tcp_link import TcpLink

pytestmark = pytest.mark.integration
_names = itertools.count()


@pytest.fixture
def make(postgres: Postgres) -> Callable[[], KeyValue]:
    """A new store in a schema of its own at each call."""
    return lambda: opened(postgres, f"s{next(_names)}")


def opened(postgres: Postgres, schema: str) -> PostgresKV:
    return PostgresKV(SystemClock(), parse_postgres(postgres.address(schema=schema)))


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of stores that are opened from now on: a database that is away is waited for during a second."""
    monkeypatch.setattr(postgres_kv, "LIMITS", dataclasses.replace(postgres_kv.LIMITS, wait=1.0, decide=1.0))


def test_postgres_passes_the_suite(make: Callable[[], KeyValue]) -> None:
    check_kv(make)


def test_postgres_behind_faults_passes_the_suite(make: Callable[[], KeyValue]) -> None:
    check_kv(lambda: RetryingKV(FaultyKV(make(), new_rng(2), commit_rate=0.3, read_rate=0.2)))


def test_a_time_ahead_of_the_databases_clock_is_refused_and_nothing_is_applied(postgres: Postgres) -> None:
    with closing(opened(postgres, "early")) as kv:
        now_ms = SystemClock().now_ms()
        assert isinstance(kv.commit([TimeReached(now_ms - 5)], {b"a": b"1"}, []), Landed)
        with pytest.raises(ClockSkewError, match="database_ms"):
            kv.commit([TimeReached(now_ms + 60_000)], {b"a": b"2"}, [])
        found = kv.get(b"a")
        assert found is not None
        assert found.value == b"1"


@pytest.mark.usefixtures("short_limits")
def test_content_and_versions_survive_a_killed_database(postgres: Postgres) -> None:
    with closing(opened(postgres, "survives")) as kv:
        first = kv.commit([Absent(b"a")], {b"a": b"1", b"b": b"1"}, [])
        assert isinstance(first, Landed)
        postgres.kill()
        # It was sent, and nobody can be asked.
        assert isinstance(kv.commit([], {b"a": b"2"}, []), Unknown)
        with pytest.raises(CatalogAwayError, match=r"127\.0\.0\.1"):
            kv.commit([], {b"a": b"2"}, [])
        postgres.start()
        found = kv.get(b"a")
        assert found is not None
        assert (found.value, found.version) == (b"1", first.version)
        second = kv.commit([AtVersion(b"a", first.version)], {b"a": b"2"}, [])
        assert isinstance(second, Landed)
        assert second.version > first.version
    with closing(opened(postgres, "survives")) as kv:
        assert [(key, found.value) for key, found in kv.scan(b"", None)] == [(b"a", b"2"), (b"b", b"1")]


@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_that_needs_an_absence_waits_for_one_that_puts_the_key(postgres: Postgres, *, lands: bool) -> None:
    """It does not write the key: there is nothing in the database that they could meet at but for what guards it."""
    schema, waiting = f"guarded{lands}".lower(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with (
        closing(opened(postgres, schema)) as kv,
        closing(postgres.connect()) as putter,
        closing(postgres.connect()) as looker,
        ThreadPoolExecutor(1) as pool,
    ):
        putter.execute("BEGIN")
        putter.execute(f"INSERT INTO {schema}.kv VALUES ('g', '', nextval('{schema}.version'))".encode())
        relied = pool.submit(kv.commit, [Absent(b"g")], {b"r": b""}, [])
        while not relied.done() and looker.execute(waiting).fetchone() == (0,):
            pass
        assert not relied.done()
        putter.execute("COMMIT" if lands else "ROLLBACK")
        assert isinstance(relied.result(), Conflict if lands else Landed)
        assert (kv.get(b"r") is None) == lands
        assert (kv.get(b"g") is not None) == lands


def test_writers_of_different_keys_never_meet(make: Callable[[], KeyValue]) -> None:
    with closing(make()) as kv:

        def write(who: int) -> int:
            version = 0
            for number in range(100):
                key = b"t%d" % who
                pinned = AtVersion(key, version) if version else Absent(key)
                outcome = kv.commit([pinned], {key: b"%d" % number, b"p%d-%d" % (who, number): b"x" * 300}, [])
                assert isinstance(outcome, Landed)
                version = outcome.version
            return version

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(write, range(8)))) == 8
        assert sum(1 for _ in kv.scan(b"p", b"q")) == 800


def test_a_commit_whose_answer_was_lost_is_decided(postgres: Postgres) -> None:
    """The backend is killed while its commit waits for a lock that somebody holds, or just after it landed."""
    with closing(opened(postgres, "lost")) as kv, closing(postgres.connect()) as other:
        assert isinstance(kv.commit([], {b"a": b"1"}, []), Landed)
        other.execute("BEGIN")
        other.execute("SELECT 1 FROM lost.kv FOR UPDATE")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(kv.commit, [], {b"a": b"2"}, [])
            with closing(postgres.connect()) as third:
                blocked = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                while not third.execute(blocked).fetchall():
                    threading.Event().wait(0.02)
            with pytest.raises(CatalogAwayError, match="nothing was applied"):
                waiting.result()
        other.execute("ROLLBACK")
        found = kv.get(b"a")
        assert found is not None
        assert found.value == b"1"
        assert isinstance(kv.commit([AtVersion(b"a", found.version)], {b"a": b"3"}, []), Landed)


def test_a_commit_whose_backend_cannot_be_ended_stays_unknown(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backend is stopped in the middle of the commit, so that the commit may still be applied."""
    monkeypatch.setattr(postgres_kv, "LIMITS", dataclasses.replace(postgres_kv.LIMITS, decide=0.5))
    with TcpLink() as link, closing(postgres.connect()) as other:
        link.connect(postgres.port)
        address = parse_postgres(postgres.address(by_port=link.port, schema="stands"))
        with closing(PostgresKV(SystemClock(), address)) as kv, ThreadPoolExecutor(1) as pool:
            assert isinstance(kv.commit([], {b"a": b"1"}, []), Landed)
            other.execute("BEGIN")
            other.execute("SELECT 1 FROM stands.kv FOR UPDATE")
            waiting = pool.submit(kv.commit, [], {b"a": b"2"}, [])
            with closing(postgres.connect()) as third:
                query = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                blocked = itertools.chain.from_iterable(third.execute(query).fetchall() for _ in range(10_000))
                backend = int(str(next(blocked)[0]))
            os.kill(backend, signal.SIGSTOP)
            try:
                link.cut()
                link.mend()
                assert isinstance(waiting.result(), Unknown)
            finally:
                os.kill(backend, signal.SIGCONT)
                other.execute("ROLLBACK")


def test_a_schema_of_an_older_version_is_upgraded_once_and_older_servers_commit_nothing_then(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(opened(postgres, "old")) as old:
        assert isinstance(old.commit([], {b"a": b"1"}, []), Landed)
        steps = (*postgres_schema.STEPS, "CREATE TABLE {schema}.later (id int)")
        with monkeypatch.context() as patch:
            patch.setattr(postgres_schema, "STEPS", steps)
            patch.setattr(postgres_schema, "FORMAT", len(steps))
            with ThreadPoolExecutor(4) as pool:
                upgraded = list(pool.map(lambda _: opened(postgres, "old"), range(4)))
            assert isinstance(upgraded[0].commit([], {b"b": b"2"}, []), Landed)
            for each in upgraded:
                each.close()
        with pytest.raises(NewerFormatError, match="found=2 known=1"):
            old.commit([], {b"a": b"zombie"}, [])
        with pytest.raises(NewerFormatError, match="schema=old"):
            opened(postgres, "old")
        assert [(key, found.value) for key, found in old.scan(b"", None)] == [(b"a", b"1"), (b"b", b"2")]


def test_a_schema_is_not_upgraded_under_a_server_that_lives(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    def newer() -> PostgresKV:
        address = parse_postgres(postgres.address(schema="kept"))
        return PostgresKV(SystemClock(), address, check_upgrade=partial(check_upgrade, "9.9.0"))

    with closing(opened(postgres, "kept")) as old:
        catalog = Catalog(old, SystemClock(), "a", lambda: "0" * 32)
        record = catalog.servers.join(Joining(name="a", run="r", version="1.0.0", url="http://there"))
        liveness = old.liveness()
        liveness.acquire(record.id)
        steps = (*postgres_schema.STEPS, "CREATE TABLE {schema}.later (id int)")
        with monkeypatch.context() as patch:
            patch.setattr(postgres_schema, "STEPS", steps)
            patch.setattr(postgres_schema, "FORMAT", len(steps))
            with pytest.raises(ServerVersionError, match=r"version=9.9.0 server=a url=http://there server_version=1.0"):
                newer()
        # It goes on undisturbed.
        assert isinstance(old.commit([], {b"a": b"1"}, []), Landed)
        # Its process was killed, so to speak: its record says that it lives.
        liveness.close()
        with monkeypatch.context() as patch:
            patch.setattr(postgres_schema, "STEPS", steps)
            patch.setattr(postgres_schema, "FORMAT", len(steps))
            deadline = time.monotonic() + 10
            while True:
                try:
                    newer().close()
                    break
                except ServerVersionError:
                    # The database has not noticed yet that the connection has ended.
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
        with pytest.raises(NewerFormatError):
            old.commit([], {b"a": b"zombie"}, [])


def test_a_schema_of_something_else_is_left_alone(postgres: Postgres) -> None:
    with closing(postgres.connect()) as connection:
        for schema, table in (("other1", "kv"), ("other2", "format")):
            connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.{table} (id int, x text)")
            with pytest.raises(ConflictError, check=WithCode("FOREIGN_SCHEMA"), match=f"table={table}"):
                opened(postgres, schema)
            found = connection.execute(
                "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(%s)", (schema,)
            ).fetchone()
            assert found == (1,)
        # An empty one may be there already, made by whoever gives out rights.
        connection.execute("CREATE SCHEMA empty")
    opened(postgres, "empty").close()


@pytest.mark.usefixtures("short_limits")
def test_a_database_that_only_reads_is_named_and_gone_on_with_later(postgres: Postgres) -> None:
    with closing(opened(postgres, "readonly")) as kv, closing(postgres.connect()) as admin:
        assert isinstance(kv.commit([], {b"a": b"1"}, []), Landed)
        admin.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
        admin.execute("SET default_transaction_read_only = off")
        try:
            # Open sessions keep their setting, as they would not in a demoted primary, so they are ended.
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tilth'")
            # Where it landed can be asked of the primary only.
            outcome = kv.commit([], {b"a": b"2"}, [])
            assert isinstance(outcome, Unknown)
            assert "read-only" in outcome.reason
            with pytest.raises(CatalogAwayError, match="session is read-only"):
                kv.commit([], {b"a": b"2"}, [])
        finally:
            admin.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
        assert isinstance(kv.commit([], {b"a": b"3"}, []), Landed)


def test_what_is_wrong_is_named_without_the_password(postgres: Postgres, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("hunter2-hunter2")
    for address, words in (
        (postgres.address(password=f"file:{wrong}"), "password authentication failed"),
        (postgres.address().replace("/postgres?", "/nowhere?"), "nowhere"),
        ("postgresql://tilth@127.0.0.1:9/x", "refused"),
    ):
        with pytest.raises(CatalogAwayError, match=words) as raised:
            PostgresKV(SystemClock(), parse_postgres(address))
        assert "127.0.0.1" in str(raised.value)
        assert "hunter2" not in str(raised.value)
        assert PASSWORD not in str(raised.value)
    opened(postgres, "newer").close()
    with closing(postgres.connect()) as connection:
        connection.execute("UPDATE newer.format SET format = 99")
    with pytest.raises(NewerFormatError, match="99"):
        opened(postgres, "newer")


def test_a_database_that_hangs_is_named_and_nothing_is_left_half_done(postgres: Postgres) -> None:
    with closing(opened(postgres, "hangs")) as kv:
        assert isinstance(kv.commit([], {b"a": b"1"}, []), Landed)
        postgres.pause()
        timer = threading.Timer(2.0, postgres.go_on)
        timer.start()
        try:
            outcome = kv.commit([], {b"a": b"2"}, [])
        finally:
            timer.join()
        assert isinstance(outcome, Landed)
        assert kv.commit([Absent(b"a")], {}, []) == Conflict(b"a")


def test_a_scan_of_few_rows_is_one_statement_and_one_of_many_a_view(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []
    begin = PostgresKV.begin

    def counted(self: PostgresKV, connection: Writer, idle_seconds: float) -> None:
        begun.append(idle_seconds)
        begin(self, connection, idle_seconds)

    monkeypatch.setattr(PostgresKV, "begin", counted)
    with closing(opened(postgres, "short_scans")) as kv:
        keys = [b"k%04d" % number for number in range(2 * FIRST_CHUNK_ROWS + 1)]
        kv.commit([], dict.fromkeys(keys, b"v"), [])
        few = keys[: FIRST_CHUNK_ROWS - 1]
        assert [key for key, _ in kv.scan(b"k", keys[len(few)])] == few
        assert [key for key, _ in kv.scan(b"k", keys[len(few)], reverse=True)] == few[::-1]
        assert [key for key, _ in kv.scan(b"k", None, limit=FIRST_CHUNK_ROWS)] == keys[:FIRST_CHUNK_ROWS]
        assert [key for key, _ in kv.scan(b"k", None, limit=0)] == []
        assert begun == []
        for limit in (None, FIRST_CHUNK_ROWS + 1):
            assert [key for key, _ in kv.scan(b"k", None, limit=limit)] == keys[:limit]
            assert [key for key, _ in kv.scan(b"k", None, limit=limit, reverse=True)] == keys[::-1][:limit]
        assert len(begun) == 4
        # Rows that come meanwhile are not seen by a scan that has begun.
        scan = kv.scan(b"k", None)
        first = next(scan)
        kv.commit([], {b"k9999": b"new"}, [keys[-1]])
        assert [key for key, _ in (first, *scan)] == keys


def test_a_heartbeat_and_a_poll_of_the_others_are_few_statements(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    execute, do, connection_execute = PreparedStatements.execute, PreparedStatements.do, Writer.execute

    def counted(self: PreparedStatements, query: str, *parameters: bytes) -> object:
        sent.append(query)
        return execute(self, query, *parameters)

    def counted_by_connection(self: Writer, query: object, *given: object, **options: object) -> object:
        sent.append(str(query))
        return connection_execute(self, query, *given, **options)  # type: ignore[call-overload]  # as it was called

    def counted_command(self: PreparedStatements, command: bytes) -> None:
        sent.append(command.decode())
        do(self, command)

    monkeypatch.setattr(PreparedStatements, "execute", counted)
    monkeypatch.setattr(PreparedStatements, "do", counted_command)
    monkeypatch.setattr(Writer, "execute", counted_by_connection)
    clock = SystemClock()
    with closing(opened(postgres, "heartbeats")) as kv:
        catalog = Catalog(kv, clock, "a", lambda: "run")
        member = Member(
            clock,
            catalog,
            Joining(name="a", run="run", version="1"),
            bounds=Bounds(gone_seconds=0.001),
            liveness=kv.liveness(),
            on_change=lambda: None,
        )
        member.join()
        member.watch()
        sent.clear()
        member.send_heartbeat()
        # The list of drained servers, the clock, the record before and after.
        assert len(sent) == 4
        sent.clear()
        member.watch()
        assert len(sent) == 2
        member.stop()
