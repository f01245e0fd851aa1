"""A server that was ended by others, and commit times of a wrong clock: neither has any effect.

Servers over one store; one of them stands still while the others run on, or its wall clock jumps.
"""

from __future__ import annotations

import pytest

from tests.catalog_world import SCHEMA
from tests.codes import WithCode
from tests.unit.membership.test_member import Cluster, FakeLiveness, Jumping
from tilth.base.errors import RetryError
from tilth.base.hybrid import milliseconds
from tilth.catalog import Catalog, ClockSkewError, Conflicted, InsertPart, Joining, MemoryKV
from tilth.catalog.commit.clock_check import ABSENCE_MS_MAX, QUARANTINE_SECONDS
from tilth.membership import Bounds, Member
from tilth.model.part import DataFile, WrittenPart
from tilth.model.table import TableDef
from tilth.model.txn import TxnState

DAY_MS = 86_400_000


class World:
    """Three servers over one store: a and b serve, c has not joined. Each has a clock of its own; so has the store."""

    def __init__(self) -> None:
        self.clocks = {name: Jumping() for name in "abc"}
        self.store_clock = Jumping()
        self.cluster = Cluster(MemoryKV(self.store_clock.now_ms))
        self.members: dict[str, Member] = {}
        self.catalogs: dict[str, Catalog] = {}
        for name, clock in self.clocks.items():
            self.catalogs[name] = Catalog(self.cluster.kv, clock, name, lambda: "0" * 32, is_checking=True)
            self.members[name] = Member(
                clock,
                self.catalogs[name],
                Joining(name=name, run=name, version="1"),
                bounds=Bounds(gone_seconds=3.0),
                liveness=FakeLiveness(self.cluster.locks, self.cluster.kv),
                on_change=lambda: None,
            )
        self.join("a", "b")
        self.table = (
            self.catalogs["b"]
            .tables.create(TableDef(uuid="f" * 32, database="default", name="t", schema=SCHEMA, next_column_id=2))
            .uuid
        )
        self._files = 0

    def join(self, *names: str) -> None:
        for name in names:
            self.members[name].join()
            self.members[name].ready()

    def run(self, seconds: float, *names: str) -> None:
        """Let time pass for all servers; these send heartbeats and watch the others."""
        for _ in range(round(seconds / 0.25)):
            for clock in (*self.clocks.values(), self.store_clock):
                clock.advance(0.25)
            for name in names:
                self.members[name].step()

    def jump(self, name: str, days: float, *, is_compared: bool = True) -> None:
        """Let the wall clock of one machine jump, and with it its measured offset from the database."""
        clock = self.clocks[name]
        clock.set_now_ms(clock.now_ms() + round(days * DAY_MS))
        if is_compared:
            self.cluster.locks.offsets[name] = (days * DAY_MS, 1.0)

    def part(self) -> InsertPart:
        self._files += 1
        file = DataFile(name=f"f{self._files}.parquet", size=9, checksum=7)
        written = WrittenPart(partition="all", values=("all",), rows=1, file=file, ranges={})
        return InsertPart(table=self.table, written=written)

    def insert(self, name: str) -> int:
        """Return the time of the commit."""
        with self.catalogs[name].transactions.open("insert") as work:
            return work.commit([self.part()]).commit_ts

    def parts(self) -> int:
        return len(self.catalogs["b"].parts.snapshot(self.table).parts)


@pytest.fixture
def world() -> World:
    return World()


def test_an_ended_server_that_does_not_know_it_begins_nothing(world: World) -> None:
    world.run(4, "b")
    # A new server does not get the number that the ended one draws ids with.
    world.join("c")
    assert world.catalogs["c"].clock.number != world.catalogs["a"].clock.number
    for _ in range(3):
        with pytest.raises(RetryError, check=WithCode("SERVER_ENDED"), match="server=a#1"):
            world.catalogs["a"].transactions.begin("insert")
        with pytest.raises(RetryError, check=WithCode("SERVER_ENDED"), match="server=a#1"):
            world.insert("a")
        world.insert("c")
    assert world.catalogs["c"].transactions.unfinished() == []
    assert world.parts() == 3
    world.run(0.5, "a", "b", "c")
    world.insert("a")
    assert (world.catalogs["a"].server, world.parts()) == ("a#2", 4)


def test_an_ended_server_commits_nothing_of_what_it_had_begun(world: World) -> None:
    work = world.catalogs["a"].transactions.open("insert")
    world.run(4, "b")
    with pytest.raises(RetryError, check=WithCode("SERVER_ENDED")):
        work.commit([world.part()])
    # This holds after it has joined anew, too: others may have acquired the leases that its work began with.
    world.run(0.5, "a", "b")
    assert world.catalogs["a"].server == "a#2"
    with pytest.raises(RetryError, check=WithCode("SERVER_ENDED"), match="server=a#1"):
        work.commit([world.part()])
    work.settle("over")
    assert world.parts() == 0


def test_what_has_landed_before_the_end_stays_landed(world: World) -> None:
    work = world.catalogs["a"].transactions.open("insert")
    updates = [world.part()]
    first = work.commit(updates)
    world.run(4, "b")
    assert work.commit(updates).commit_ts == first.commit_ts


def test_an_id_that_is_in_use_is_drawn_anew_and_one_that_has_finished_too(world: World) -> None:
    a, b = world.catalogs["a"], world.catalogs["b"]
    # Both have one number, which servers never do: of two transactions with one id, only one begins.
    b.clock.number = a.clock.number
    first = a.transactions.begin("insert")
    second = b.transactions.begin("insert")
    assert second.id != first.id
    world.insert("a")
    finished = max(txn.id for txn in a.transactions.recent(10) if txn.state is TxnState.FINISHED)
    fence = b.leases.acquire("table/t", b.server).fence
    b.clock.restart(after=finished - 1)
    assert b.transactions.begin("merge", fences=[fence]).id > finished


def test_a_clock_that_has_jumped_commits_nothing_not_even_before_it_is_compared(world: World) -> None:
    begun = world.catalogs["a"].transactions.open("consume k 0")
    world.run(1, "a", "b")
    world.jump("a", 4, is_compared=False)
    for _ in range(2):
        with pytest.raises(ClockSkewError, match="server=a#1"):
            begun.commit([world.part()])
        with pytest.raises(ClockSkewError):
            world.insert("a")
        world.cluster.locks.offsets["a"] = (4.0 * DAY_MS, 1.0)
        world.run(1, "a", "b")
    assert world.parts() == 0
    # Once its clock is right again, its commit times agree with those of the others.
    world.clocks["a"].set_now_ms(world.clocks["b"].now_ms())
    del world.cluster.locks.offsets["a"]
    world.run(1, "a", "b")
    commit_ts = begun.commit([world.part()]).commit_ts
    for ts in (commit_ts, world.insert("b"), world.insert("a"), world.catalogs["b"].transactions.begin("x").id):
        assert abs(milliseconds(ts) - world.clocks["b"].now_ms()) < 1000


def test_a_time_ahead_of_the_databases_clock_is_refused_there(world: World) -> None:
    world.run(1, "a", "b")
    # Both its clocks are wrong together, as on a machine that was suspended: the server cannot notice it.
    world.clocks["a"].advance(20)
    with pytest.raises(ClockSkewError, match="ahead_ms"):
        world.insert("a")
    assert world.parts() == 0
    world.insert("b")


def test_a_time_ahead_of_the_databases_clock_begins_nothing_and_commits_nothing_that_was_begun(world: World) -> None:
    catalog = world.catalogs["a"]
    fence = catalog.leases.acquire("table/t", catalog.server).fence
    begun = catalog.transactions.begin("insert")
    world.run(1, "a", "b")
    world.clocks["a"].advance(20)
    for fences in ([], [fence]):
        with pytest.raises(ClockSkewError, match="ahead_ms"):
            catalog.transactions.begin("merge", fences=fences)
    outcome = catalog.transactions.commit(begun.id, [world.part()])
    assert isinstance(outcome, Conflicted)
    assert isinstance(outcome.error, ClockSkewError)
    assert [txn.id for txn in catalog.transactions.unfinished()] == [begun.id]


def test_a_server_whose_clock_was_wrong_before_it_joined_begins_with_times_of_the_catalog(world: World) -> None:
    world.jump("c", 4, is_compared=False)
    world.catalogs["c"].clock.now()
    world.jump("c", -4, is_compared=False)
    world.join("c")
    txn = world.catalogs["c"].transactions.begin("insert")
    assert abs(milliseconds(txn.id) - world.clocks["b"].now_ms()) < 1000


def test_a_server_that_jumps_removes_nothing_for_its_age(world: World) -> None:
    check = world.catalogs["a"].clock_check
    check.check_removal()
    world.jump("a", 4, is_compared=False)
    with pytest.raises(ClockSkewError, match="jump_ms=345600000"):
        check.check_removal()


def test_a_server_alone_that_jumps_ahead_waits_before_it_removes_anything() -> None:
    clock = Jumping()
    check = Catalog(MemoryKV(), clock, "alone", lambda: "0" * 32).clock_check
    check.alone(0)
    clock.advance(3 * 86_400)
    check.check_removal()
    clock.set_now_ms(clock.now_ms() + 2 * DAY_MS)
    # A single node has no other clock to compare with: it goes on, and removes nothing during the quarantine.
    assert check.error() is None
    for _ in range(3):
        with pytest.raises(ClockSkewError, match="172800 s ahead"):
            check.check_removal()
        clock.advance(QUARANTINE_SECONDS / 3.5)
    clock.advance(QUARANTINE_SECONDS / 3.5)
    check.check_removal()
    # A jump back is harmless: everything gets younger.
    clock.set_now_ms(clock.now_ms() - 2 * DAY_MS)
    check.check_removal()


def test_a_server_alone_that_was_away_for_long_waits_too() -> None:
    clock = Jumping()
    check = Catalog(MemoryKV(), clock, "alone", lambda: "0" * 32).clock_check
    check.alone(clock.now_ms() - ABSENCE_MS_MAX - 1)
    with pytest.raises(ClockSkewError, match="24 hours old"):
        check.check_removal()
    clock.advance(QUARANTINE_SECONDS)
    check.check_removal()
