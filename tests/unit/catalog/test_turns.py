"""Turns: who was refused too often commits alone, who hangs holds nobody up for long."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.catalog_world import Racing, World
from tilth.base.clock import Clock, SystemClock
from tilth.base.errors import RetryError
from tilth.base.rand import new_rng
from tilth.catalog import InsertPart, Joining, KeyValue, MemoryKV, NoRowsSince, Work, rebase
from tilth.catalog.commit.turns import LOOK_SECONDS, TRIES_BESIDE, TURN_SECONDS, Turns
from tilth.model.txn import TxnOutput
from tilth.testing import FaultyKV, ManualClock


class Beside:
    """Something that runs on a thread of its own and may have to wait."""

    def __init__(self, duty: Callable[[], object]) -> None:
        self.over = threading.Event()
        self._duty = duty
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._duty()
        self.over.set()

    def waits(self) -> bool:
        return not self.over.wait(0.1)

    def ends(self) -> bool:
        return self.over.wait(10)


def test_a_turn_holds_others_up_until_it_ends() -> None:
    turns = Turns(ManualClock())
    turns.take("t", 1)
    other = Beside(lambda: turns.await_others(["s", "t"], 2))
    assert other.waits()
    turns.end(1)
    assert other.ends()


def test_the_holder_and_other_tables_do_not_wait() -> None:
    turns = Turns(ManualClock())
    turns.take("t", 1)
    turns.take("t", 1)
    turns.await_others(["t"], 1)
    turns.await_others(["s"], 2)
    turns.take("s", 2)


def test_who_ends_without_a_turn_ends_nobodys() -> None:
    turns = Turns(ManualClock())
    turns.take("t", 1)
    turns.end(2)
    assert Beside(lambda: turns.await_others(["t"], 2)).waits()


def test_one_turn_follows_the_other() -> None:
    turns = Turns(ManualClock())
    turns.take("t", 1)
    second = Beside(lambda: turns.take("t", 2))
    assert second.waits()
    turns.end(1)
    assert second.ends()
    assert Beside(lambda: turns.await_others(["t"], 1)).waits()


def test_a_turn_that_hangs_is_over_by_itself() -> None:
    clock = ManualClock()
    turns = Turns(clock)
    turns.take("t", 1)
    clock.advance(TURN_SECONDS - 1)
    others = [Beside(lambda n=n: turns.await_others(["t"], n)) for n in (2, 3)]  # type: ignore[misc]
    assert all(other.waits() for other in others)
    clock.advance(1)
    assert all(other.ends() for other in others)


def test_a_turn_that_is_taken_again_lasts_longer() -> None:
    clock = ManualClock()
    turns = Turns(clock)
    turns.take("t", 1)
    clock.advance(TURN_SECONDS - 1)
    other = Beside(lambda: turns.await_others(["t"], 2))
    turns.take("t", 1)
    clock.advance(2)
    assert other.waits()
    clock.advance(TURN_SECONDS)
    assert other.ends()


# --- transactions ---


@pytest.fixture
def world() -> World:
    return World()


def begin(world: World) -> Work:
    return world.catalog.transactions.work("insert", outputs=[TxnOutput(table=world.t, tasks=1)])


def insert(world: World) -> None:
    with begin(world) as work:
        work.commit([InsertPart(table=world.t, written=world.written())])


def test_a_slow_commit_lands_beside_one_that_never_rests(world: World) -> None:
    """Others commit while each try looks at what is there; from the try on that has the turn they wait."""
    tries: list[int] = []
    waiting: list[Beside] = []

    def attempt(number: int) -> None:
        tries.append(number)
        work.begin_try(number, [world.t])
        ts = world.catalog.parts.snapshot(world.t).ts
        other = Beside(lambda: insert(world))
        if other.waits():
            waiting.append(other)
        inserted = InsertPart(table=world.t, written=world.written())
        work.commit([inserted], [NoRowsSince(table=world.t, ts=ts, partitions=None)])

    with begin(world) as work:
        rebase(work.id, attempt, tries=20, busy=RetryError("never"))
    assert tries == list(range(TRIES_BESIDE + 1))
    assert len(waiting) == 1
    assert waiting[0].ends()


def test_a_turn_ends_with_work_that_commits_nothing(world: World) -> None:
    with begin(world) as work:
        work.begin_try(TRIES_BESIDE, [world.t])
    assert Beside(lambda: insert(world)).ends()


def test_a_turn_ends_with_work_that_cannot_be_aborted() -> None:
    kv = FaultyKV(MemoryKV(), new_rng(1))
    world = World(kv)
    with begin(world) as work:
        work.begin_try(TRIES_BESIDE, [world.t])
        kv.read_rate = 1.0
    kv.read_rate = 0.0
    assert Beside(lambda: insert(world)).ends()


def test_who_tried_less_often_takes_no_turn(world: World) -> None:
    with begin(world) as work:
        work.begin_try(TRIES_BESIDE - 1, [world.t])
        assert Beside(lambda: insert(world)).ends()


def test_who_takes_the_turn_waits_for_the_commits_under_way() -> None:
    """Otherwise the first of them would change records that the holder has just read."""
    kv = Racing()
    world = World(kv)
    taking: list[Beside] = []

    def take() -> None:
        taking.append(Beside(lambda: world.catalog.transactions.take_turn(world.t, 1)))
        assert taking[0].waits()

    with begin(world) as work:
        kv.before = take
        work.commit([InsertPart(table=world.t, written=world.written())])
    assert taking[0].ends()


def test_commits_to_one_table_follow_one_another_and_none_is_folded_in_vain() -> None:
    kv = Racing()
    world = World(kv)
    others: list[Beside] = []

    def insert_beside() -> None:
        others.append(Beside(lambda: insert(world)))
        assert others[0].waits()

    with begin(world) as work:
        kv.before = insert_beside
        work.commit([InsertPart(table=world.t, written=world.written())])
    assert others[0].ends()
    assert len(world.names()) == 2
    assert world.catalog.stats().conflicts == 0


# --- of several servers ---


class Servers:
    """Two servers over one store."""

    def __init__(self, clock: Clock | None = None, kv: KeyValue | None = None) -> None:
        self.first = World(kv, clock=clock)
        self.second = World(self.first.kv, clock=clock)
        for world, name in ((self.first, "a"), (self.second, "b")):
            record = world.catalog.servers.join(Joining(name=name, run=name, version="1"))
            world.catalog.serve_as(record)


def test_a_turn_holds_up_the_commits_of_other_servers_too() -> None:
    servers = Servers(SystemClock())
    with begin(servers.first) as work:
        work.begin_try(TRIES_BESIDE, [servers.first.t])
        other = Beside(lambda: insert_into(servers.second, servers.first.t))
        assert other.waits()
        second = Beside(lambda: servers.second.catalog.transactions.take_turn(servers.first.t, 1))
        assert second.waits()
        work.commit([InsertPart(table=servers.first.t, written=servers.first.written())])
    assert other.ends()
    assert second.ends()
    # It has been removed with the turn, and is not there for the next one.
    servers.second.catalog.transactions.end_turns(1)
    insert_into(servers.first, servers.first.t)


def test_the_turn_of_a_server_that_is_gone_holds_up_nobody() -> None:
    servers = Servers()
    work = begin(servers.first)
    work.begin_try(TRIES_BESIDE, [servers.first.t])
    servers.second.catalog.servers.end(servers.first.catalog.servers.live()[0])
    began = servers.second.clock.monotonic()
    insert_into(servers.second, servers.first.t)
    # A wait would have advanced the clock.
    assert servers.second.clock.monotonic() == began
    assert work.id in servers.first.catalog.transactions.live()


def test_two_servers_that_take_a_turn_at_once_have_it_one_after_the_other() -> None:
    kv = Racing()
    servers = Servers(kv=kv)
    kv.before = lambda: servers.second.catalog.transactions.take_turn(servers.first.t, 2)
    servers.first.catalog.transactions.take_turn(servers.first.t, 1)
    assert servers.first.clock.monotonic() >= TURN_SECONDS - LOOK_SECONDS


@pytest.mark.parametrize("is_taken_meanwhile", [False, True])
def test_who_ends_a_turn_that_was_over_leaves_the_one_of_its_successor(is_taken_meanwhile: bool) -> None:
    kv = Racing()
    servers = Servers(kv=kv)
    first, second = servers.first.catalog.transactions, servers.second.catalog.transactions
    first.take_turn(servers.first.t, 1)
    for world in (servers.first, servers.second):
        world.clock.advance(TURN_SECONDS)
    if is_taken_meanwhile:
        kv.before = lambda: second.take_turn(servers.first.t, 2)
    else:
        second.take_turn(servers.first.t, 2)
    first.end_turns(1)
    began = servers.first.clock.monotonic()
    insert_into(servers.first, servers.first.t)
    assert servers.first.clock.monotonic() - began >= TURN_SECONDS - LOOK_SECONDS


def test_a_turn_of_this_server_whose_record_could_not_be_removed_holds_up_none_of_its_commits() -> None:
    kv = FaultyKV(MemoryKV(), new_rng(1))
    servers = Servers(kv=kv)
    servers.first.catalog.transactions.take_turn(servers.first.t, 1)
    kv.read_rate = 1.0
    servers.first.catalog.transactions.end_turns(1)
    kv.read_rate = 0.0
    began = servers.first.clock.monotonic()
    insert_into(servers.first, servers.first.t)
    assert servers.first.clock.monotonic() == began


def test_a_turn_of_another_server_that_hangs_is_over_by_itself() -> None:
    servers = Servers()
    work = begin(servers.first)
    work.begin_try(TRIES_BESIDE, [servers.first.t])
    # Its clock moves on while it waits.
    insert_into(servers.second, servers.first.t)
    assert servers.second.clock.monotonic() >= TURN_SECONDS - 1
    assert work.id in servers.first.catalog.transactions.live()


def insert_into(world: World, table: str) -> None:
    with world.catalog.transactions.work("insert", outputs=[TxnOutput(table=table, tasks=1)]) as work:
        work.commit([InsertPart(table=table, written=world.written())])
