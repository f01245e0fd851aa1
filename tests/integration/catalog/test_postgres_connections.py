"""Connections to a real PostgreSQL: reserved ones, a first host that is off, what the database ends by itself."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest

from tilth.base.clock import SystemClock
from tilth.catalog import ALL_NEWS, Joining, PostgresKV, Servers, parse_postgres
from tilth.catalog.kv import Landed
from tilth.catalog.kv.postgres import CONNECTIONS_MAX
from tools.postgres import Postgres

pytestmark = pytest.mark.integration

_BACKENDS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"


def opened(address: str) -> PostgresKV:
    return PostgresKV(SystemClock(), parse_postgres(address))


def holders(postgres: Postgres) -> list[tuple[object, ...]]:
    """The backends that hold a lock of a process."""
    with closing(postgres.connect()) as connection:
        return connection.execute(_BACKENDS).fetchall()


def test_a_proof_of_life_does_not_wait_for_readers_that_hold_all_connections(postgres: Postgres) -> None:
    clock = SystemClock()
    with closing(opened(postgres.address(schema="full"))) as kv, ExitStack() as stack:
        presence = kv.presence()
        stack.callback(presence.hide)
        servers = Servers(clock, presence.proving)
        record = servers.join(Joining(name="a", run="r", version="1"))
        presence.show(record.id)
        for _ in range(CONNECTIONS_MAX):
            stack.enter_context(kv.view())
        for _ in range(3):
            began = time.monotonic()
            record = servers.renew(record)
            presence.show(record.id)
            assert presence.clock_offset() is not None
            assert [each.id for each in Servers(clock, presence.watching).all()] == ["a#1"]
            assert not presence.is_gone("a#1")
            assert time.monotonic() - began < 2


def test_presence_survives_a_new_name_and_comes_back_when_it_is_lost(postgres: Postgres) -> None:
    with closing(opened(postgres.address(schema="comes"))) as kv:
        presence = kv.presence()
        presence.show("a#1")
        assert presence.news() == frozenset({ALL_NEWS})
        before = holders(postgres)
        presence.show("a#2")
        assert holders(postgres) == before
        assert len(before) == 1
        with closing(postgres.connect()) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tilth'"
            )
        deadline = time.monotonic() + 20
        while not holders(postgres) and time.monotonic() < deadline:
            # The proof finds that its connection is gone, and makes another one.
            presence.proving.get(b"k")
            presence.show("a#2")
        assert len(holders(postgres)) == 1
        assert holders(postgres) != before
        presence.watching.get(b"k")
        assert presence.news() == frozenset({ALL_NEWS})
        presence.hide()


@contextmanager
def silent(host: str, port: int) -> Iterator[None]:
    """A host that takes connections and says nothing."""
    with socket.create_server((host, port)):
        yield


def test_a_first_host_that_is_off_costs_its_bound_once(postgres: Postgres) -> None:
    address = postgres.address(schema="hosts")
    port = int(address.partition("@127.0.0.1:")[2].partition("/")[0])
    both = address.replace(f"@127.0.0.1:{port}", f"@:{port}") + "&host=127.0.0.2,127.0.0.1"
    with silent("127.0.0.2", port), closing(opened(both)) as kv:
        began = time.monotonic()
        presence = kv.presence(30.0)
        assert isinstance(presence.proving.commit([], {b"k": b"1"}, []), Landed)
        presence.show("a#1")
        presence.news()
        # The bound of one try is 6 s.
        assert time.monotonic() - began < 6
        assert len(holders(postgres)) == 1
        presence.hide()


def test_the_database_ends_sessions_whose_client_has_vanished(postgres: Postgres) -> None:
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
    with closing(opened(postgres.address(schema="ends"))) as kv:
        connection = kv._pool.getconn()
        try:
            shown = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]
            checked = connection.execute("SHOW client_connection_check_interval").fetchone()
        finally:
            kv._pool.putconn(connection)
    # As the socket has them, not as they were given.
    assert shown == [("5",), ("2",), ("3",), ("10000",)]
    assert checked == ("2s",)


@contextmanager
def slow_disk(postgres: Postgres) -> Iterator[float]:
    """Each flush takes 50 ms, whatever it flushes."""
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
        presence = kv.presence()
        presence.news()

        def write(writer: int) -> None:
            for number in range(rounds):
                assert isinstance(kv.commit([], {b"k%d-%d" % (writer, number): b"v"}, []), Landed)

        began = time.monotonic()
        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(write, range(writers)))
        # Flushing one after the other takes longer.
        assert time.monotonic() - began < writers * rounds * flush_seconds * 0.7
        expected = {f"k{writer}-{number}" for writer in range(writers) for number in range(rounds)}
        heard: set[str] = set()
        deadline = time.monotonic() + 20
        while heard != expected and time.monotonic() < deadline:
            heard |= presence.news()
        assert heard == expected
        presence.hide()
