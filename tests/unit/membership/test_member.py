"""A server among others: joining, proving, watching, being ended, coming back; over one store, each with its clock."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from tilth.base.errors import FencedError
from tilth.base.hybrid import milliseconds
from tilth.catalog import Catalog, ClockSkewError, Joining, KeyValue, LeaseHeldError, MemoryKV, ServerNameTakenError
from tilth.membership import Bounds, Member
from tilth.membership.member import STARTING
from tilth.model.server import SERVERS_MAX
from tilth.testing import ManualClock

THINGS = [f"{number:032x}" for number in range(60)]


class Jumping(ManualClock):
    """Waiting moves it on."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.advance(seconds)
        return event.is_set()


class Signs:
    """Locks of processes, as a database has them."""

    def __init__(self) -> None:
        self.shown: set[str] = set()
        self.is_sure = True
        #: Milliseconds that the machine's clock is ahead, and how wrong that may be.
        self.offsets: dict[str, tuple[float, float]] = {}


class Sign:
    """The presence of one process."""

    def __init__(self, signs: Signs) -> None:
        self._signs = signs
        self._own = ""

    def show(self, server: str) -> None:
        self._signs.shown.discard(self._own)
        self._own = server
        self._signs.shown.add(server)

    def is_gone(self, server: str) -> bool:
        return self._signs.is_sure and server not in self._signs.shown

    def clock_offset(self) -> tuple[float, float] | None:
        return self._signs.offsets.get(self._own.partition("#")[0], (0.0, 1.0))

    def news(self) -> frozenset[str]:
        return frozenset()

    def hide(self) -> None:
        self._signs.shown.discard(self._own)


class Cluster:
    """Servers over one store."""

    def __init__(self, kv: KeyValue | None = None) -> None:
        self.kv = kv or MemoryKV()
        self.clock = Jumping()
        self.signs = Signs()
        self._runs = count()
        self.changes: list[str] = []

    def process(self, name: str) -> tuple[Member, Catalog]:
        """A process of this name that has not joined yet."""
        catalog = Catalog(self.kv, self.clock, name, lambda: f"{next(self._runs):032x}", is_checking=True)
        member = Member(
            self.clock,
            catalog,
            Joining(name=name, run=f"run {next(self._runs)}", version="1"),
            bounds=Bounds(gone_seconds=3.0),
            presence=Sign(self.signs),
            changed=lambda: self.changes.append(name),
        )
        return member, catalog

    def server(self, name: str) -> Member:
        member, _ = self.process(name)
        member.join()
        member.ready()
        return member

    def run(self, seconds: float, *members: Member) -> None:
        """Let these look and prove as their threads do."""
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
    cluster.signs.shown.discard("b#1")
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
    lease = catalog.leases.take("table/t", catalog.server)
    cluster.run(4, a)
    assert all(a.hosts(thing) for thing in THINGS)
    assert catalog.leases.take("table/t", "a#1").epoch == lease.epoch + 1
    with pytest.raises(FencedError):
        catalog.transactions.begin("merge", fences=[lease.fence])
    cluster.changes.clear()
    b.step()
    # Once as nobody's, once under its new epoch.
    assert cluster.changes.count("b") == 2
    assert catalog.server == "b#2"
    assert b.now().servers[1].url == "http://b"
    cluster.run(0.5, a, b)
    assert any(b.hosts(thing) for thing in THINGS)
    with pytest.raises(LeaseHeldError, match="holder=a#1"):
        catalog.leases.take("table/t", catalog.server)


def test_a_process_that_stood_still_ends_nobody_for_what_it_has_not_seen() -> None:
    cluster = Cluster()
    a, b = cluster.server("a"), cluster.server("b")
    cluster.run(1, a, b)
    # Both stood still, as in a machine that was suspended.
    cluster.clock.advance(60)
    a.step()
    assert {each.name for each in a.now().servers} == {"a", "b"}
    b.step()
    assert {each.name for each in b.now().servers} == {"a", "b"}


def test_after_a_restart_of_the_database_missing_signs_say_nothing() -> None:
    cluster = Cluster()
    a, b = cluster.server("a"), cluster.server("b")
    cluster.run(1, a, b)
    cluster.signs.shown.clear()
    cluster.signs.is_sure = False
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
    cluster.signs.shown.clear()
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


def test_what_is_placed_by_order_is_hosted_there_while_that_server_can() -> None:
    cluster = Cluster()
    a, (b, catalog) = cluster.server("a"), cluster.process("b")
    b.join()
    b.ready()
    cluster.run(1, a, b)
    thing = next(each for each in THINGS if a.hosts(each))
    catalog.placements.place(thing, "b", until_ms=cluster.clock.now_ms() + 5_000)
    cluster.changes.clear()
    cluster.run(0.5, a, b)
    assert b.hosts(thing)
    assert not a.hosts(thing)
    assert set(cluster.changes) == {"a", "b"}
    # It is over by itself.
    cluster.run(5, a, b)
    assert a.hosts(thing)
    catalog.placements.place(thing, "nobody", until_ms=cluster.clock.now_ms() + 60_000)
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
        member = Member(clock, catalog, joining, bounds=Bounds(3.0), presence=None, changed=lambda: None)
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
    assert {each % SERVERS_MAX for each in ids} == {0, 1, 2, 3}
    # Of the same millisecond, so that they do not run away from the clock.
    assert milliseconds(max(ids)) - milliseconds(min(ids)) <= 1


def test_a_server_whose_clock_is_wrong_hosts_and_commits_nothing_until_it_is_right() -> None:
    cluster = Cluster()
    a, (b, catalog) = cluster.server("a"), cluster.process("b")
    b.join()
    b.ready()
    cluster.run(1, a, b)
    for offset, words in ((7_300.0, "7.3 s ahead of"), (-1_900.0, "1.9 s behind")):
        cluster.signs.offsets["b"] = (offset, 5.0)
        cluster.run(1, b)
        a.step()
        assert all(a.hosts(thing) and not b.hosts(thing) for thing in THINGS)
        assert words in a.now().servers[1].draining
        with pytest.raises(ClockSkewError, match="server=b"):
            catalog.transactions.begin("insert")
    # It may be right: the answer took too long to say.
    cluster.signs.offsets["b"] = (1_900.0, 1_500.0)
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
    cluster.signs.offsets["a"] = (7_300.0, 5.0)
    cluster.run(1, a)
    assert "clock" in a.now().servers[0].draining
    cluster.signs.offsets.clear()
    cluster.run(1, a)
    assert a.now().servers[0].draining == "ALTER SERVER .. DRAIN"
