"""Heartbeats, the watch on others and the delivery of news do not wait for each other. Threads run as in a server,
over a clock that each of their waits moves on.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import pytest

from tests.unit.membership.test_member import THINGS, Cluster, FakeLiveness, ProcessLocks
from tilth.catalog import Catalog, CatalogAwayError, Joining, KeyValue, MemoryKV, Servers
from tilth.catalog.kv import KVOutcome, Precondition, ReadView, Versioned, ViewUse
from tilth.membership import Bounds, Member
from tilth.testing import ManualClock


class Ticking(ManualClock):
    """Each wait of a thread moves the time on."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        event.wait(0.002)
        self.advance(seconds)
        return event.is_set()


class Gate:
    """A gate at which threads wait while it is closed."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.is_open.set()
        self.has_waited = threading.Event()

    def pass_through(self) -> None:
        if not self.is_open.is_set():
            self.has_waited.set()
            assert self.is_open.wait(30)


class GatedKV(MemoryKV):
    """A view of the same keys through a gate, as over connections that are all in use."""

    def __init__(self, inner: KeyValue, gate: Gate) -> None:
        self._inner = inner
        self._gate = gate
        self.incarnation = inner.incarnation

    def get(self, key: bytes) -> Versioned | None:
        self._gate.pass_through()
        return self._inner.get(key)

    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> AbstractContextManager[ReadView]:  # type: ignore[override]
        self._gate.pass_through()
        return self._inner.view(keys, use)

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        self._gate.pass_through()
        return self._inner.scan(start, end, limit=limit, reverse=reverse)

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        self._gate.pass_through()
        return self._inner.commit(preconditions, puts, deletes)


class Counting(FakeLiveness):
    """Liveness that counts heartbeats and always has news."""

    def __init__(self, locks: ProcessLocks, kv: KeyValue) -> None:
        super().__init__(locks, kv)
        self.heartbeats = threading.Semaphore(0)

    def clock_offset(self) -> tuple[float, float] | None:
        self.heartbeats.release()
        return super().clock_offset()

    def news(self) -> frozenset[str]:
        return frozenset({"table"})


@pytest.mark.parametrize("slow", ["news", "changed", "watch", "store"])
def test_nothing_that_is_slow_delays_a_heartbeat(slow: str) -> None:
    """Heartbeats go on while rooms call hung workers, or while readers hold all connections."""
    gates = {each: Gate() for each in ("news", "changed", "watch", "store")}
    kv, clock = MemoryKV(), Ticking()
    catalog = Catalog(GatedKV(kv, gates["store"]), clock, "a", lambda: "0" * 32)
    liveness = Counting(ProcessLocks(), kv)
    liveness.watch_store = GatedKV(kv, gates["watch"])

    def received(_: frozenset[str]) -> None:
        gates["news"].pass_through()
        # Rooms read the catalog when they get news.
        catalog.servers.all()

    member = Member(
        clock,
        catalog,
        Joining(name="a", run="r", version="1"),
        bounds=Bounds(gone_seconds=3.0),
        liveness=liveness,
        on_change=gates["changed"].pass_through,
        on_news=received,
    )
    member.join()
    gates[slow].is_open.clear()
    member.start()
    try:
        if slow == "changed":
            # Another server joins.
            Servers(clock, kv).join(Joining(name="b", run="b", version="1"))
        assert gates[slow].has_waited.wait(30)
        for _ in range(20):
            assert liveness.heartbeats.acquire(timeout=30)
        assert member.trouble == ""
        assert catalog.server == "a#1"
    finally:
        gates[slow].is_open.set()
        member.stop()


def test_a_server_whose_connections_are_all_in_use_sees_the_others_come_and_go() -> None:
    class Used(Gate):
        """Liveness without a free connection while a test holds them all."""

        def pass_through(self) -> None:
            if not self.is_open.is_set():
                raise CatalogAwayError(catalog="c", reason="no connection is free")

    kv, clock = MemoryKV(), ManualClock()
    pool = Used()
    catalog = Catalog(GatedKV(kv, pool), clock, "a", lambda: "0" * 32)
    joining, liveness = Joining(name="a", run="r", version="1"), FakeLiveness(ProcessLocks(), kv)
    member = Member(clock, catalog, joining, bounds=Bounds(3.0), liveness=liveness, on_change=lambda: None)
    member.join()
    pool.is_open.clear()
    Servers(clock, kv).join(Joining(name="b", run="b", version="1"))
    member.watch()
    assert {each.name for each in member.now().servers} == {"a", "b"}
    for _ in range(20):
        clock.advance(0.25)
        member.send_heartbeat()
        member.watch()
    assert {each.name for each in member.now().servers} == {"a"}


def test_who_is_ended_before_its_first_heartbeat_joins_again() -> None:
    cluster = Cluster()
    other = cluster.server("other")

    class Late(FakeLiveness):
        """Liveness whose first connection takes so long that others end the server."""

        is_late = True

        def acquire(self, server: str) -> None:
            super().acquire(server)
            if self.is_late:
                self.is_late = False
                cluster.run(4, other)

    _, catalog = cluster.process("a")
    joining, liveness = Joining(name="a", run="r", version="1"), Late(cluster.locks, cluster.kv)
    member = Member(cluster.clock, catalog, joining, bounds=Bounds(3.0), liveness=liveness, on_change=lambda: None)
    member.join()
    member.ready()
    cluster.run(1, member, other)
    assert catalog.server == "a#2"
    assert {each.id for each in other.now().servers} == {"a#2", "other#1"}
    assert any(member.hosts(thing) for thing in THINGS)


def test_who_cannot_receive_news_reads_everything_again_and_reports_it() -> None:
    cluster = Cluster()
    received: list[frozenset[str]] = []

    class Deaf(FakeLiveness):
        is_deaf = True

        def news(self) -> frozenset[str]:
            if self.is_deaf:
                raise CatalogAwayError(catalog="c")
            return frozenset()

    _, catalog = cluster.process("a")
    joining, liveness = Joining(name="a", run="r", version="1"), Deaf(cluster.locks, cluster.kv)
    member = Member(
        cluster.clock,
        catalog,
        joining,
        bounds=Bounds(3.0),
        liveness=liveness,
        on_change=lambda: None,
        on_news=received.append,
    )
    member.join()
    for _ in range(40):
        cluster.clock.advance(0.25)
        with pytest.raises(CatalogAwayError):
            member.step()
    # It is still the same server: it has proved that it lives.
    assert catalog.server == "a#1"
    assert 4 <= received.count(frozenset({"*"})) <= 7
    liveness.is_deaf = False
    received.clear()
    # News are hints that may be lost.
    cluster.run(70, member)
    assert received == [frozenset({"*"})] * 2
