"""Connections to a real PostgreSQL: reserved ones, a first host that is off, sessions that the database ends itself."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
from psycopg_pool import PoolTimeout

from tests.codes import WithCode
from tilth.base.clock import SystemClock
from tilth.base.errors import RetryError, TilthError
from tilth.catalog import ALL_NEWS, Joining, PostgresKV, Servers, parse_postgres
from tilth.catalog.kv import Landed, ViewUse
from tilth.catalog.kv.postgres import CONNECTIONS_MAX, LISTINGS_MAX
from tilth.catalog.kv.postgres_listings import CatalogBusyError, Listings
from tools.postgres import Postgres

pytestmark = pytest.mark.integration

_BACKENDS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"


def opened(address: str) -> PostgresKV:
    return PostgresKV(SystemClock(), parse_postgres(address))


def holders(postgres: Postgres) -> list[tuple[object, ...]]:
    """Return the backends that hold the advisory lock of a server's process."""
    with closing(postgres.connect()) as connection:
        return connection.execute(_BACKENDS).fetchall()


def test_a_heartbeat_does_not_wait_for_readers_that_hold_all_connections(postgres: Postgres) -> None:
    clock = SystemClock()
    with closing(opened(postgres.address(schema="full"))) as kv, ExitStack() as stack:
        liveness = kv.liveness()
        stack.callback(liveness.close)
        servers = Servers(clock, liveness.heartbeat_store)
        record = servers.join(Joining(name="a", run="r", version="1"))
        liveness.acquire(record.id)
        for _ in range(CONNECTIONS_MAX):
            stack.enter_context(kv.view(use=ViewUse.BRIEF))
        for _ in range(3):
            began = time.monotonic()
            record = servers.renew(record)
            liveness.acquire(record.id)
            assert liveness.clock_offset() is not None
            assert [each.id for each in Servers(clock, liveness.watch_store).all()] == ["a#1"]
            assert not liveness.is_gone("a#1")
            assert time.monotonic() - began < 2


class Shifted(SystemClock):
    """A clock that a test advances."""

    shift = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.shift


def test_listings_leave_connections_to_commits_and_brief_reads(postgres: Postgres) -> None:
    """With more readers than connections, those without a permit hold no connection while they wait."""
    with closing(opened(postgres.address(schema="lists"))) as kv:
        assert isinstance(kv.commit([], {b"k": b"1"}, []), Landed)
        kv._listings = Listings(LISTINGS_MAX, 60)
        ends, reading = threading.Event(), threading.Semaphore(0)

        def read() -> int:
            with kv.view() as view:
                reading.release()
                assert ends.wait(60)
                return len(list(view.scan(b"k", None)))

        with ThreadPoolExecutor(CONNECTIONS_MAX + 4) as pool:
            readers = [pool.submit(read) for _ in range(CONNECTIONS_MAX + 4)]
            for _ in range(LISTINGS_MAX):
                assert reading.acquire(timeout=30)
            began = time.monotonic()
            assert isinstance(kv.commit([], {b"k": b"2"}, []), Landed)
            assert kv.get(b"k") is not None
            with kv.view(use=ViewUse.BRIEF) as view:
                assert len(list(view.scan(b"k", None, limit=5))) == 1
            assert len(list(kv.scan(b"k", None, limit=5))) == 1
            assert time.monotonic() - began < 8
            assert not reading.acquire(blocking=False)
            ends.set()
            assert [reader.result(60) for reader in readers] == [1] * len(readers)


def test_a_view_that_lasts_too_long_is_given_up_and_one_of_all_keys_later(postgres: Postgres) -> None:
    clock = Shifted()
    with closing(PostgresKV(clock, parse_postgres(postgres.address(schema="lasts")))) as kv:
        assert isinstance(kv.commit([], {b"k": b"1"}, []), Landed)
        with kv.view() as listing, kv.view(use=ViewUse.EXPORT) as export, kv.view([b"k"]) as known:
            clock.shift = 61.0
            for ask in (lambda: listing.get(b"k"), lambda: list(listing.scan(b"k", None))):
                with pytest.raises(RetryError, check=WithCode("VIEW_TOO_LONG"), match="seconds_max=60"):
                    ask()
            assert len(list(export.scan(b"k", None))) == 1
            # A view of known keys has read them at its begin, and holds up nothing.
            assert known.get(b"k") is not None
            clock.shift = 1000.0
            with pytest.raises(RetryError, check=WithCode("VIEW_TOO_LONG")):
                export.get(b"k")
        # The database ends a view whose reader stands still.
        with kv.view() as view:
            connection = view._connection  # type: ignore[attr-defined]
            shown = connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()
        assert shown == ("1min",)
        assert kv.get(b"k") is not None


def test_one_connection_finds_out_for_all_why_there_is_none(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(opened(postgres.address(schema="why"))) as kv:
        asked: list[PoolTimeout] = []
        found = kv._find_why

        def noted(timeout: PoolTimeout) -> TilthError:
            asked.append(timeout)
            return found(timeout)

        monkeypatch.setattr(kv, "_find_why", noted)
        with ThreadPoolExecutor(12) as pool:
            whys = list(pool.map(kv._why_none, [PoolTimeout("10 s")] * 12))
        assert len(asked) == 1
        assert {type(why) for why in whys} == {CatalogBusyError}


def test_the_lock_survives_a_new_name_and_comes_back_when_it_is_lost(postgres: Postgres) -> None:
    with closing(opened(postgres.address(schema="comes"))) as kv:
        liveness = kv.liveness()
        liveness.acquire("a#1")
        assert liveness.news() == frozenset({ALL_NEWS})
        before = holders(postgres)
        liveness.acquire("a#2")
        assert holders(postgres) == before
        assert len(before) == 1
        with closing(postgres.connect()) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tilth'"
            )
        deadline = time.monotonic() + 20
        while not holders(postgres) and time.monotonic() < deadline:
            # The heartbeat finds that its connection is gone, and makes another one.
            liveness.heartbeat_store.get(b"k")
            liveness.acquire("a#2")
        assert len(holders(postgres)) == 1
        assert holders(postgres) != before
        liveness.watch_store.get(b"k")
        assert liveness.news() == frozenset({ALL_NEWS})
        liveness.close()


def knocks(server: socket.socket) -> int:
    """Return the number of connections to a host that accepts them and does not answer."""
    server.setblocking(False)
    tried = 0
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            tried += 1
    return tried


def test_a_first_host_that_is_off_costs_its_bound_once(postgres: Postgres) -> None:
    address = postgres.address(schema="hosts")
    port = int(address.partition("@127.0.0.1:")[2].partition("/")[0])
    both = address.replace(f"@127.0.0.1:{port}", f"@:{port}") + "&host=127.0.0.2,127.0.0.1"
    with socket.create_server(("127.0.0.2", port)) as off, closing(opened(both)) as kv:
        liveness = kv.liveness()
        assert isinstance(liveness.heartbeat_store.commit([], {b"k": b"1"}, []), Landed)
        liveness.acquire("a#1")
        liveness.news()
        assert isinstance(kv.commit([], {b"k": b"2"}, []), Landed)
        assert len(holders(postgres)) == 1
        assert knocks(off) == 1
        liveness.close()


def test_the_database_ends_sessions_whose_client_has_vanished(postgres: Postgres) -> None:
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
    with closing(opened(postgres.address(schema="ends"))) as kv:
        connection = kv._pool.getconn()
        try:
            shown = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]
            checked = connection.execute("SHOW client_connection_check_interval").fetchone()
        finally:
            kv._pool.putconn(connection)
    # SHOW reads these values from the socket.
    assert shown == [("5",), ("2",), ("3",), ("10000",)]
    assert checked == ("2s",)


@contextmanager
def slow_disk(postgres: Postgres) -> Iterator[float]:
    """Make each flush of the log take 50 ms, however many commits it has."""
    with closing(postgres.connect()) as connection:
        connection.execute("ALTER SYSTEM SET commit_delay = 50000")
        connection.execute("ALTER SYSTEM SET commit_siblings = 0")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield 0.05
        finally:
            connection.execute("ALTER SYSTEM RESET ALL")
            connection.execute("SELECT pg_reload_conf()")


def test_commits_with_news_flush_together_and_all_news_are_heard(postgres: Postgres) -> None:
    writers, rounds = 12, 8
    address, clock = parse_postgres(postgres.address(schema="flush")), SystemClock()
    with (
        closing(PostgresKV(clock, address, news_of=lambda keys: [key.decode() for key in keys])) as kv,
        slow_disk(postgres) as flush_seconds,
    ):
        liveness = kv.liveness()
        liveness.news()

        def write(writer: int) -> None:
            for number in range(rounds):
                assert isinstance(kv.commit([], {b"k%d-%d" % (writer, number): b"v"}, []), Landed)

        began = time.monotonic()
        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(write, range(writers)))
        # Commits that flushed one after the other would take longer.
        assert time.monotonic() - began < writers * rounds * flush_seconds * 0.7
        expected = {f"k{writer}-{number}" for writer in range(writers) for number in range(rounds)}
        received: set[str] = set()
        deadline = time.monotonic() + 20
        while received != expected and time.monotonic() < deadline:
            received |= liveness.news()
        assert received == expected
        liveness.close()
