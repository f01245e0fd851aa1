"""Commit locks: a transaction refused too often commits alone, a holder that hangs is waited for only briefly."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.catalog_world import Racing, World
from tilth.base.clock import Clock, SystemClock
from tilth.base.errors import RetryError
from tilth.base.rand import new_rng
from tilth.catalog import InsertPart, Joining, KeyValue, MemoryKV, NoRowsSince, TxnHandle, rebase
from tilth.catalog.commit.commit_locks import LOCK_POLL_SECONDS, LOCK_SECONDS, TRIES_UNLOCKED, CommitLocks
from tilth.model.txn import TxnOutput
from tilth.testing import FaultyKV, ManualClock


class Beside:
    """Something that runs on a thread of its own and may have to wait."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.over = threading.Event()
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._call()
        self.over.set()

    def waits(self) -> bool:
        return not self.over.wait(0.1)

    def ends(self) -> bool:
        return self.over.wait(10)


def test_a_lock_holds_others_up_until_it_is_released() -> None:
    locks = CommitLocks(ManualClock())
    locks.acquire("t", 1)
    other = Beside(lambda: locks.await_others(["s", "t"], 2))
    assert other.waits()
    locks.release(1)
    assert other.ends()


def test_the_holder_and_other_tables_do_not_wait() -> None:
    locks = CommitLocks(ManualClock())
    locks.acquire("t", 1)
    locks.acquire("t", 1)
    locks.await_others(["t"], 1)
    locks.await_others(["s"], 2)
    locks.acquire("s", 2)


def test_who_releases_without_a_lock_releases_nobodys() -> None:
    locks = CommitLocks(ManualClock())
    locks.acquire("t", 1)
    locks.release(2)
    assert Beside(lambda: locks.await_others(["t"], 2)).waits()


def test_one_holder_follows_the_other() -> None:
    locks = CommitLocks(ManualClock())
    locks.acquire("t", 1)
    second = Beside(lambda: locks.acquire("t", 2))
    assert second.waits()
    locks.release(1)
    assert second.ends()
    assert Beside(lambda: locks.await_others(["t"], 1)).waits()


def test_the_lock_of_a_holder_that_hangs_expires() -> None:
    clock = ManualClock()
    locks = CommitLocks(clock)
    locks.acquire("t", 1)
    clock.advance(LOCK_SECONDS - 1)
    others = [Beside(lambda n=n: locks.await_others(["t"], n)) for n in (2, 3)]  # type: ignore[misc]
    assert all(other.waits() for other in others)
    clock.advance(1)
    assert all(other.ends() for other in others)


def test_a_lock_that_is_acquired_again_lasts_longer() -> None:
    clock = ManualClock()
    locks = CommitLocks(clock)
    locks.acquire("t", 1)
    clock.advance(LOCK_SECONDS - 1)
    other = Beside(lambda: locks.await_others(["t"], 2))
    locks.acquire("t", 1)
    clock.advance(2)
    assert other.waits()
    clock.advance(LOCK_SECONDS)
    assert other.ends()


# --- transactions ---


@pytest.fixture
def world() -> World:
    return World()


def begin(world: World) -> TxnHandle:
    return world.catalog.transactions.open("insert", outputs=[TxnOutput(table=world.t, tasks=1)])


def insert(world: World) -> None:
    with begin(world) as handle:
        handle.commit([InsertPart(table=world.t, written=world.written())])


def test_a_slow_commit_lands_beside_one_that_never_rests(world: World) -> None:
    """Others commit while each try looks at what is there; from the try on that has the lock they wait."""
    tries: list[int] = []
    waiting: list[Beside] = []

    def attempt(number: int) -> None:
        tries.append(number)
        handle.begin_try(number, [world.t])
        ts = world.catalog.parts.snapshot(world.t).ts
        other = Beside(lambda: insert(world))
        if other.waits():
            waiting.append(other)
        inserted = InsertPart(table=world.t, written=world.written())
        handle.commit([inserted], [NoRowsSince(table=world.t, ts=ts, partitions=None)])

    with begin(world) as handle:
        rebase(handle.id, attempt, tries=20, busy=RetryError("never"))
    assert tries == list(range(TRIES_UNLOCKED + 1))
    assert len(waiting) == 1
    assert waiting[0].ends()


def test_a_lock_ends_with_a_transaction_that_commits_nothing(world: World) -> None:
    with begin(world) as handle:
        handle.begin_try(TRIES_UNLOCKED, [world.t])
    assert Beside(lambda: insert(world)).ends()


def test_a_lock_ends_with_a_transaction_that_cannot_be_aborted() -> None:
    kv = FaultyKV(MemoryKV(), new_rng(1))
    world = World(kv)
    with begin(world) as handle:
        handle.begin_try(TRIES_UNLOCKED, [world.t])
        kv.read_rate = 1.0
    kv.read_rate = 0.0
    assert Beside(lambda: insert(world)).ends()


def test_who_tried_less_often_acquires_no_lock(world: World) -> None:
    with begin(world) as handle:
        handle.begin_try(TRIES_UNLOCKED - 1, [world.t])
        assert Beside(lambda: insert(world)).ends()


def test_who_acquires_the_lock_waits_for_the_commits_under_way() -> None:
    """Otherwise the first of them would change records that the holder has just read."""
    kv = Racing()
    world = World(kv)
    locking: list[Beside] = []

    def lock() -> None:
        locking.append(Beside(lambda: world.catalog.transactions.lock_commits(world.t, 1)))
        assert locking[0].waits()

    with begin(world) as handle:
        kv.before = lock
        handle.commit([InsertPart(table=world.t, written=world.written())])
    assert locking[0].ends()


def test_commits_to_one_table_follow_one_another_and_none_is_folded_in_vain() -> None:
    kv = Racing()
    world = World(kv)
    others: list[Beside] = []

    def insert_beside() -> None:
        others.append(Beside(lambda: insert(world)))
        assert others[0].waits()

    with begin(world) as handle:
        kv.before = insert_beside
        handle.commit([InsertPart(table=world.t, written=world.written())])
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


def test_a_lock_holds_up_the_commits_of_other_servers_too() -> None:
    servers = Servers(SystemClock())
    with begin(servers.first) as handle:
        handle.begin_try(TRIES_UNLOCKED, [servers.first.t])
        other = Beside(lambda: insert_into(servers.second, servers.first.t))
        assert other.waits()
        second = Beside(lambda: servers.second.catalog.transactions.lock_commits(servers.first.t, 1))
        assert second.waits()
        handle.commit([InsertPart(table=servers.first.t, written=servers.first.written())])
    assert other.ends()
    assert second.ends()
    # Its record has been removed with the lock, and is not there for the next one.
    servers.second.catalog.transactions.unlock_commits(1)
    insert_into(servers.first, servers.first.t)


def test_the_lock_of_a_server_that_is_gone_holds_up_nobody() -> None:
    servers = Servers()
    handle = begin(servers.first)
    handle.begin_try(TRIES_UNLOCKED, [servers.first.t])
    servers.second.catalog.servers.end(servers.first.catalog.servers.live()[0])
    began = servers.second.clock.monotonic()
    insert_into(servers.second, servers.first.t)
    # A wait would have advanced the clock.
    assert servers.second.clock.monotonic() == began
    assert handle.id in servers.first.catalog.transactions.live()


def test_two_servers_that_acquire_a_lock_at_once_hold_it_one_after_the_other() -> None:
    kv = Racing()
    servers = Servers(kv=kv)
    kv.before = lambda: servers.second.catalog.transactions.lock_commits(servers.first.t, 2)
    servers.first.catalog.transactions.lock_commits(servers.first.t, 1)
    assert servers.first.clock.monotonic() >= LOCK_SECONDS - LOCK_POLL_SECONDS


@pytest.mark.parametrize("is_locked_meanwhile", [False, True])
def test_who_releases_an_expired_lock_leaves_the_one_of_its_successor(is_locked_meanwhile: bool) -> None:
    kv = Racing()
    servers = Servers(kv=kv)
    first, second = servers.first.catalog.transactions, servers.second.catalog.transactions
    first.lock_commits(servers.first.t, 1)
    for world in (servers.first, servers.second):
        world.clock.advance(LOCK_SECONDS)
    if is_locked_meanwhile:
        kv.before = lambda: second.lock_commits(servers.first.t, 2)
    else:
        second.lock_commits(servers.first.t, 2)
    first.unlock_commits(1)
    began = servers.first.clock.monotonic()
    insert_into(servers.first, servers.first.t)
    assert servers.first.clock.monotonic() - began >= LOCK_SECONDS - LOCK_POLL_SECONDS


def test_a_lock_of_this_server_whose_record_could_not_be_removed_holds_up_none_of_its_commits() -> None:
    kv = FaultyKV(MemoryKV(), new_rng(1))
    servers = Servers(kv=kv)
    servers.first.catalog.transactions.lock_commits(servers.first.t, 1)
    kv.read_rate = 1.0
    servers.first.catalog.transactions.unlock_commits(1)
    kv.read_rate = 0.0
    began = servers.first.clock.monotonic()
    insert_into(servers.first, servers.first.t)
    assert servers.first.clock.monotonic() == began


def test_the_lock_of_another_server_that_hangs_expires() -> None:
    servers = Servers()
    handle = begin(servers.first)
    handle.begin_try(TRIES_UNLOCKED, [servers.first.t])
    # Its clock moves on while it waits.
    insert_into(servers.second, servers.first.t)
    assert servers.second.clock.monotonic() >= LOCK_SECONDS - 1
    assert handle.id in servers.first.catalog.transactions.live()


def insert_into(world: World, table: str) -> None:
    with world.catalog.transactions.open("insert", outputs=[TxnOutput(table=table, tasks=1)]) as handle:
        handle.commit([InsertPart(table=table, written=world.written())])
