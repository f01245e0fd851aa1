"""A server among others: joining, proving, watching, being ended, coming back; over one store, each with its clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count

import pytest

from tests.codes import WithCode
from tilth.base.errors import RetryError
from tilth.base.hybrid import milliseconds
from tilth.catalog import (
    Catalog,
    CatalogAwayError,
    ClockSkewError,
    Joining,
    KeyValue,
    LeaseHeldError,
    MemoryKV,
    ServerNameTakenError,
    ServerVersionError,
)
from tilth.membership import Bounds, Member
from tilth.membership.member import LEAVING, STARTING
from tilth.model.server import NUMBERS
from tilth.testing import ManualClock

THINGS = [f"{number:032x}" for number in range(60)]


class Jumping(ManualClock):
    """Waiting moves it on."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.advance(seconds)
        return event.is_set()


class ProcessLocks:
    """Locks of processes, as a database has them."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.is_sure = True
        #: Milliseconds that the machine's clock is ahead, and how wrong that may be.
        self.offsets: dict[str, tuple[float, float]] = {}
        #: Called with the id of a process when it acquires its lock.
        self.on_acquire: Callable[[str], None] = lambda server: None


class FakeLiveness:
    """The liveness lock of one process."""

    def __init__(self, locks: ProcessLocks, kv: KeyValue) -> None:
        self._signs = locks
        self._own = ""
        self.heartbeat_store = self.watch_store = kv

    def acquire(self, server: str) -> None:
        self._signs.held.discard(self._own)
        self._own = server
        self._signs.held.add(server)
        self._signs.on_acquire(server)

    def is_gone(self, server: str) -> bool:
        return self._signs.is_sure and server not in self._signs.held

    def clock_offset(self) -> tuple[float, float] | None:
        return self._signs.offsets.get(self._own.partition("#")[0], (0.0, 1.0))

    def news(self) -> frozenset[str]:
        return frozenset()

    def close(self) -> None:
        self._signs.held.discard(self._own)


class Cluster:
    """Servers over one store."""

    def __init__(self, kv: KeyValue | None = None) -> None:
        self.kv = kv or MemoryKV()
        self.clock = Jumping()
        self.locks = ProcessLocks()
        self._runs = count()
        self.changes: list[str] = []

    def process(self, name: str, version: str = "1") -> tuple[Member, Catalog]:
        """A process of this name that has not joined yet."""
        catalog = Catalog(self.kv, self.clock, name, lambda: f"{next(self._runs):032x}", is_checking=True)
        member = Member(
            self.clock,
            catalog,
            Joining(name=name, run=f"run {next(self._runs)}", version=version),
            bounds=Bounds(gone_seconds=3.0),
            liveness=FakeLiveness(self.locks, self.kv),
            on_change=lambda: self.changes.append(name),
        )
        return member, catalog

    def server(self, name: str) -> Member:
        member, _ = self.process(name)
        member.join()
        member.ready()
        return member

    def run(self, seconds: float, *members: Member) -> None:
        """Let these watch and send heartbeats as their threads do."""
        for _ in range(round(seconds / 0.25)):
            self.clock.advance(0.25)
            for member in members:
                member.step()


def test_every_table_is_hosted_by_one_server() -> None:
    cluster = Cluster()
    a, b = cluster.server("a"), cluster.server("b")
    cluster.run(1, a, b)
    assert all(a.hosts(thing) != b.hosts(thing) for thing in THINGS)
    assert any(a.hosts(thing) for thing in THINGS)
    assert any(b.hosts(thing) for thing in THINGS)
    host = a.now().host_of(THINGS[0])
    assert host is not None
    assert host.name == ("a" if a.hosts(THINGS[0]) else "b")


def test_a_server_that_starts_takes_no_tables_before_it_is_ready() -> None:
    cluster = Cluster()
    a = cluster.server("a")
    late, _ = cluster.process("late")
    assert late.join().draining == ""
    cluster.run(0.5, a, late)
    assert late.now().servers[-1].draining == STARTING
    assert all(a.hosts(thing) for thing in THINGS)
    late.ready()
    cluster.run(0.5, a, late)
    assert any(late.hosts(thing) for thing in THINGS)


def test_a_killed_process_is_gone_soon_and_one_that_is_only_silent_later() -> None:
    cluster = Cluster()
    a, b = cluster.server("a"), cluster.server("b")
    cluster.run(1, a, b)
    began = cluster.clock.monotonic()
    cluster.locks.held.discard("b#1")
    cluster.run(1.5, a)
    assert all(a.hosts(thing) for thing in THINGS)
    assert cluster.clock.monotonic() - began < 2
    c = cluster.server("c")
    cluster.run(1, a, c)
    # Its connection stands, as in a process that is stopped and does not end.
    cluster.run(2.5, a)
    assert not all(a.hosts(thing) for thing in THINGS)
    cluster.run(1, a)
    assert all(a.hosts(thing) for thing in THINGS)


def test_one_that_was_taken_to_be_gone_hosts_nothing_until_it_has_joined_anew() -> None:
    cluster = Cluster()
    a, (b, catalog) = cluster.server("a"), cluster.process("b")
    b.join()
    b.ready()
    b.announce("http://b")
    cluster.run(1, a, b)
    lease = catalog.leases.acquire("table/t", catalog.server)
    cluster.run(4, a)
    assert all(a.hosts(thing) for thing in THINGS)
    assert catalog.leases.acquire("table/t", "a#1").epoch == lease.epoch + 1
    with pytest.raises(RetryError, check=WithCode("SERVER_ENDED")):
        catalog.transactions.begin("merge", fences=[lease.fence])
    cluster.changes.clear()
    b.step()
    # Hosts have changed: it has forgotten its tables, and has joined under a new epoch.
    assert cluster.changes.count("b") == 1
    assert catalog.server == "b#2"
    assert b.now().servers[1].url == "http://b"
    cluster.run(0.5, a, b)
    assert any(b.hosts(thing) for thing in THINGS)
    with pytest.raises(LeaseHeldError, match="holder=a#1"):
        catalog.leases.acquire("table/t", catalog.server)


def test_who_was_ended_hosts_nothing_as_soon_as_it_knows() -> None:
    """Its services release their tables then, and `hosts` must already return `False` for them."""
    cluster = Cluster()
    a, (b, catalog) = cluster.server("a"), cluster.process("b")
    b.join()
    b.ready()
    cluster.run(1, a, b)
    assert any(b.hosts(thing) for thing in THINGS)
    hosted: list[list[str]] = []
    cluster.locks.on_acquire = lambda _: hosted.append([thing for thing in THINGS if b.hosts(thing)])
    assert catalog.servers.end(catalog.servers.live()[1])
    # Its next heartbeat is refused before it reads the other servers.
    cluster.clock.advance(1)
    b.step()
    assert hosted[0] == []
    assert any(b.hosts(thing) for thing in THINGS)


def test_a_missing_lock_alone_ends_nobody() -> None:
    """Its connection is lost, but its heartbeats still arrive."""
    cluster = Cluster()
    a, b = cluster.server("a"), cluster.server("b")
    cluster.run(1, a, b)
    for _ in range(40):
        cluster.run(0.25, b)
        cluster.locks.held.discard("b#1")
        a.step()
    assert [each.id for each in a.now().servers] == ["a#1", "b#1"]


def test_a_process_that_stood_still_ends_nobody_for_what_it_has_not_seen() -> None:
    cluster = Cluster()
    a, b = cluster.server("a"), cluster.server("b")
    cluster.run(1, a, b)
    # Each has seen the other's last heartbeat.
    a.step()
    # Both stood still, as in a machine that was suspended.
    cluster.clock.advance(60)
    a.step()
    assert {each.name for each in a.now().servers} == {"a", "b"}
    b.step()
    assert {each.name for each in b.now().servers} == {"a", "b"}


def test_after_a_restart_of_the_database_missing_locks_prove_nothing() -> None:
    cluster = Cluster()
    a, b = cluster.server("a"), cluster.server("b")
    cluster.run(1, a, b)
    cluster.locks.held.clear()
    cluster.locks.is_sure = False
    cluster.run(2, a)
    assert len(a.now().servers) == 2


def test_a_name_is_of_one_process() -> None:
    cluster = Cluster()
    a = cluster.server("a")
    other, _ = cluster.process("a")
    # The first goes on proving that it lives.
    cluster.clock.advance(0.1)
    prover = threading.Event()

    def wait(event: threading.Event, seconds: float) -> bool:
        cluster.clock.advance(seconds)
        a.step()
        prover.set()
        return event.is_set()

    cluster.clock.wait = wait  # type: ignore[method-assign]
    with pytest.raises(ServerNameTakenError, match="server=a"):
        other.join()
    assert prover.is_set()


def test_a_process_takes_the_name_of_its_killed_forerunner() -> None:
    cluster = Cluster()
    cluster.server("a")
    began = cluster.clock.monotonic()
    again, catalog = cluster.process("a")
    # It does not know better: the lock of the killed one is still there.
    assert again.join().id == "a#2"
    assert 3.0 <= cluster.clock.monotonic() - began < 4.0
    cluster.locks.held.clear()
    began = cluster.clock.monotonic()
    once_more, _ = cluster.process("a")
    assert once_more.join().id == "a#3"
    assert cluster.clock.monotonic() - began < 2.0
    assert catalog.servers.live()[0].epoch == 3


def test_who_leaves_is_missed_at_once() -> None:
    cluster = Cluster()
    a, b = cluster.server("a"), cluster.server("b")
    cluster.run(1, a, b)
    b.stop()
    a.step()
    assert all(a.hosts(thing) for thing in THINGS)


def test_who_drains_lives_and_hosts_nothing_after_a_restart_too() -> None:
    cluster = Cluster()
    a, (b, catalog) = cluster.server("a"), cluster.process("b")
    b.join()
    b.ready()
    catalog.servers.drain("b", "its machine goes")
    cluster.run(1, a, b)
    assert all(a.hosts(thing) and not b.hosts(thing) for thing in THINGS)
    assert a.now().servers[1].draining == "ALTER SERVER .. DRAIN: its machine goes"
    b.stop()
    again = cluster.server("b")
    cluster.run(1, a, again)
    assert all(a.hosts(thing) for thing in THINGS)
    catalog.servers.resume("b")
    cluster.run(1, a, again)
    assert any(again.hosts(thing) for thing in THINGS)


def test_who_stops_lets_others_have_its_tables_before_it_has_ended() -> None:
    cluster = Cluster()
    a, b = cluster.server("a"), cluster.server("b")
    cluster.run(1, a, b)
    b.leave()
    a.step()
    assert all(a.hosts(thing) for thing in THINGS)
    assert a.now().servers[1].draining == LEAVING


def test_a_placement_decides_the_host_while_that_server_can() -> None:
    cluster = Cluster()
    a, (b, catalog) = cluster.server("a"), cluster.process("b")
    b.join()
    b.ready()
    cluster.run(1, a, b)
    thing = next(each for each in THINGS if a.hosts(each))
    catalog.placements.put(thing, "b", until_ms=cluster.clock.now_ms() + 5_000)
    cluster.changes.clear()
    cluster.run(0.5, a, b)
    assert b.hosts(thing)
    assert not a.hosts(thing)
    assert set(cluster.changes) == {"a", "b"}
    # It is over by itself.
    cluster.run(5, a, b)
    assert a.hosts(thing)
    catalog.placements.put(thing, "nobody", until_ms=cluster.clock.now_ms() + 60_000)
    cluster.run(0.5, a, b)
    assert a.hosts(thing)
    catalog.placements.release(thing)
    assert catalog.placements.all() == []


def test_a_store_of_one_process_is_joined_at_once_whoever_had_it() -> None:
    kv = MemoryKV()
    for epoch in (1, 2, 3):
        clock = ManualClock()
        catalog = Catalog(kv, clock, "s", lambda: "0" * 32)
        joining = Joining(name="s" if epoch < 3 else "other", run=f"r{epoch}", version="1")
        member = Member(clock, catalog, joining, bounds=Bounds(3.0), liveness=None, on_change=lambda: None)
        member.join()
        member.start()
        assert catalog.server == ("other#1" if epoch == 3 else f"s#{epoch}")
        assert all(member.hosts(thing) for thing in THINGS)
    assert [each.id for each in catalog.servers.live()] == ["other#1"]


def test_servers_have_numbers_of_their_own_and_their_ids_never_meet() -> None:
    cluster = Cluster()
    catalogs = []
    for name in "abcd":
        member, catalog = cluster.process(name)
        member.join()
        catalogs.append(catalog)
    assert sorted(catalog.clock.number for catalog in catalogs) == [0, 1, 2, 3]
    ids = [catalog.clock.new_id() for _ in range(500) for catalog in catalogs]
    assert len(set(ids)) == len(ids)
    assert {each % NUMBERS for each in ids} == {0, 1, 2, 3}
    # A process draws up to 256 ids in a millisecond, so they stay near the clock.
    assert milliseconds(max(ids)) - milliseconds(min(ids)) <= 2


def test_a_server_whose_clock_is_wrong_hosts_and_commits_nothing_until_it_is_right() -> None:
    cluster = Cluster()
    a, (b, catalog) = cluster.server("a"), cluster.process("b")
    b.join()
    b.ready()
    cluster.run(1, a, b)
    for offset, words in ((7_300.0, "7.3 s ahead of"), (-1_900.0, "1.9 s behind")):
        cluster.locks.offsets["b"] = (offset, 5.0)
        cluster.run(1, b)
        a.step()
        assert all(a.hosts(thing) and not b.hosts(thing) for thing in THINGS)
        assert words in a.now().servers[1].draining
        with pytest.raises(ClockSkewError, match="server=b"):
            catalog.transactions.begin("insert")
    # It may be right: the answer took too long to say.
    cluster.locks.offsets["b"] = (1_900.0, 1_500.0)
    cluster.run(1, b)
    a.step()
    assert any(b.hosts(thing) for thing in THINGS)
    catalog.transactions.begin("insert")
    assert b.now().servers[1].clock_offset_ms == 1_900.0


def test_one_that_drains_for_another_reason_goes_on_draining_when_its_clock_is_right() -> None:
    cluster = Cluster()
    a, catalog = cluster.process("a")
    a.join()
    catalog.servers.drain("a", "")
    cluster.locks.offsets["a"] = (7_300.0, 5.0)
    cluster.run(1, a)
    assert "clock" in a.now().servers[0].draining
    cluster.locks.offsets.clear()
    cluster.run(1, a)
    assert a.now().servers[0].draining == "ALTER SERVER .. DRAIN"


def proving(cluster: Cluster, *members: Member) -> None:
    """Let these go on while another one waits."""

    def wait(event: threading.Event, seconds: float) -> bool:
        cluster.clock.advance(seconds)
        for member in members:
            member.step()
        return event.is_set()

    cluster.clock.wait = wait  # type: ignore[method-assign]


def test_a_server_of_another_version_is_refused_while_one_lives_and_disturbs_nobody() -> None:
    cluster = Cluster()
    a, catalog = cluster.process("a", "1.4.2")
    a.join()
    a.ready()
    a.announce("http://a:7411")
    proving(cluster, a)
    before = cluster.clock.monotonic()
    for version in ("1.5.0", "2.4.2", "1.3.9", "0", "of-a-branch", ""):
        late, late_catalog = cluster.process("late", version)
        with pytest.raises(ServerVersionError) as raised:
            late.join()
        for word in (f"version={version}", "server=a", "url=http://a:7411", "server_version=1.4.2"):
            assert word in raised.value.message
        assert "stop the server a" in raised.value.hint
        assert "upgrade.md" in raised.value.hint
        assert late_catalog.servers.get("late") is None
        late.stop()
    # The wait ends when that one has proved that it lives.
    assert cluster.clock.monotonic() - before < 6 * 1.5
    assert [each.id for each in catalog.servers.all()] == ["a#1"]
    assert all(a.hosts(thing) for thing in THINGS)
    catalog.transactions.begin("insert")


def test_servers_that_differ_by_their_patch_live_together() -> None:
    cluster = Cluster()
    members = []
    for name, version in (("a", "1.4.2"), ("b", "1.4.10"), ("c", "1.4"), ("d", "1.4.11+local.1")):
        member, _ = cluster.process(name, version)
        member.join()
        member.ready()
        members.append(member)
    cluster.run(1, *members)
    assert [each.version for each in members[0].now().servers] == ["1.4.2", "1.4.10", "1.4", "1.4.11+local.1"]
    assert all(sum(member.hosts(thing) for member in members) == 1 for thing in THINGS)


def test_servers_of_another_version_that_were_killed_are_waited_for_and_ended() -> None:
    cluster = Cluster()
    for name in "ab":
        member, _ = cluster.process(name, "1.4.2")
        member.join()
    late, catalog = cluster.process("late", "1.5.0")
    assert late.join().id == "late#1"
    assert [each.id for each in catalog.servers.live()] == ["late#1"]


def test_who_was_ended_while_a_newer_version_took_over_commits_nothing_until_that_is_gone() -> None:
    cluster = Cluster()
    a, catalog = cluster.process("a", "1.4.2")
    a.join()
    a.ready()
    newer, _ = cluster.process("newer", "1.5.0")
    # `a` stands still.
    newer.join()
    newer.ready()
    cluster.run(1, newer)
    for _ in range(3):
        cluster.clock.advance(0.25)
        with pytest.raises(ServerVersionError, match="server=newer"):
            a.step()
        newer.step()
    assert not any(a.hosts(thing) for thing in THINGS)
    with pytest.raises(ServerVersionError):
        catalog.transactions.begin("insert")
    # Nobody else is there to see that it was killed.
    cluster.locks.held.discard("newer#1")
    for _ in range(16):
        cluster.clock.advance(0.25)
        try:
            a.step()
        except ServerVersionError:
            continue
    assert catalog.server == "a#2"
    assert all(a.hosts(thing) for thing in THINGS)
    catalog.transactions.begin("insert")


def test_news_that_could_not_be_processed_comes_again() -> None:
    """Its receiver reads the catalog, which may be away at that time: a change would be missed for good."""
    cluster = Cluster()
    received: list[frozenset[str]] = []

    class WithNews(FakeLiveness):
        def news(self) -> frozenset[str]:
            return frozenset({f"table {len(received)}"}) if len(received) < 2 else frozenset()

    def process(tables: frozenset[str]) -> None:
        received.append(tables)
        if len(received) == 1:
            raise CatalogAwayError(catalog="c")

    _, catalog = cluster.process("a")
    joining = Joining(name="a", run="r", version="1")
    liveness, bounds = WithNews(cluster.locks, cluster.kv), Bounds(gone_seconds=3.0)
    member = Member(
        cluster.clock, catalog, joining, bounds=bounds, liveness=liveness, on_change=lambda: None, on_news=process
    )
    member.join()
    with pytest.raises(CatalogAwayError):
        member.step()
    member.step()
    member.step()
    # `*` is among them, because the member has just seen the servers for the first time.
    assert received == [frozenset({"*", "table 0"}), frozenset({"*", "table 0", "table 1"})]
