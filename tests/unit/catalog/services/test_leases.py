"""Leases, readers' holds, switches, saved values and the part log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.catalog_world import Racing, World
from tilth.base.errors import FencedError
from tilth.catalog import HidePartition, InsertPart
from tilth.catalog.rules.visibility import end_times
from tilth.model.service import ServiceKind, Switch, SwitchState


@pytest.fixture
def world() -> World:
    return World()


def test_a_lease_is_held_by_who_took_it_last(world: World) -> None:
    leases = world.catalog.leases
    mine = leases.acquire("table/1", "a")
    leases.check(mine.fence)
    theirs = leases.acquire("table/1", "b")
    assert theirs.epoch == mine.epoch + 1
    with pytest.raises(FencedError) as caught:
        leases.check(mine.fence)
    assert caught.value.facts["now_holder"] == "b"
    leases.release(mine.fence)
    assert leases.get("table/1") == theirs
    assert leases.list() == [theirs]


def test_an_epoch_never_comes_back(world: World) -> None:
    leases = world.catalog.leases
    first = leases.acquire("a", "s1")
    leases.release(first.fence)
    assert leases.list() == []
    with pytest.raises(FencedError):
        leases.check(first.fence)
    with pytest.raises(FencedError):
        world.catalog.transactions.begin("x", fences=[first.fence])
    second = leases.acquire("a", "s1")
    assert second.epoch == 2
    assert leases.acquire("a", "s1").epoch == 3
    assert leases.acquire("a", "s2").epoch == 4


# --- taken over by another server after the first one has read the lease, and before its commit lands ---


class Taken:
    """A table whose lease the first server holds; `when_read` sends the second one in between."""

    def __init__(self) -> None:
        self.kv = Racing()
        self.world = World(self.kv)
        self.name = f"table/{self.world.t}"
        self.mine = self.world.catalog.leases.acquire(self.name, "s1")

    def when_read(self) -> None:
        self.world.clock.advance(1)
        self.kv.before = lambda: self.world.catalog.leases.acquire(self.name, "s2")

    def stays_theirs(self) -> None:
        """The second server has it, under an epoch of its own."""
        now = self.world.catalog.leases.get(self.name)
        assert now is not None
        assert (now.holder, now.epoch) == ("s2", self.mine.epoch + 1)


def test_who_releases_too_late_does_not_take_it_from_the_other() -> None:
    taken = Taken()
    taken.when_read()
    taken.world.catalog.leases.release(taken.mine.fence)
    taken.stays_theirs()


def test_two_who_take_it_at_once_get_two_epochs() -> None:
    taken = Taken()
    taken.when_read()
    assert taken.world.catalog.leases.acquire(taken.name, "s3").epoch == taken.mine.epoch + 2


def test_no_transaction_begins_under_a_lease_that_is_lost_meanwhile() -> None:
    taken = Taken()
    transactions = taken.world.catalog.transactions
    taken.when_read()
    with pytest.raises(FencedError):
        transactions.begin("merge", fences=[taken.mine.fence])
    assert transactions.unfinished() == []
    taken.stays_theirs()


def test_nothing_is_committed_under_a_lease_that_is_lost_meanwhile() -> None:
    taken = Taken()
    world = taken.world
    txn = world.catalog.transactions.open("merge", fences=[taken.mine.fence])
    taken.when_read()
    with pytest.raises(FencedError):
        txn.commit([InsertPart(table=world.t, written=world.written())])
    assert world.names() == []
    taken.stays_theirs()


def test_nothing_is_collected_under_a_lease_that_is_lost_meanwhile() -> None:
    """Moves to the trash, marks of its items, records of deltas: each alone."""
    taken = Taken()
    world, fence = taken.world, taken.mine.fence
    [part] = world.insert()
    delta = world.delete((part, 1))
    world.commit(HidePartition(table=world.t, partition="all"))
    ended = end_times(world.catalog.parts.entries(world.t, "all"))
    assert ended
    refused: list[Callable[[], object]] = [
        lambda: world.catalog.parts.move_to_trash(world.t, ended, fence=fence, now_ms=1),
        lambda: world.catalog.parts.remove_deltas(world.t, [delta], fence=fence),
        lambda: world.catalog.trash.mark_for_removal(world.t, world.catalog.trash.items(limit=9)[0], fence=fence),
    ]
    for number, collect in enumerate(refused):
        if number == 2:
            world.collect()
        taken.mine = world.catalog.leases.acquire(taken.name, "s1")
        fence = taken.mine.fence
        taken.when_read()
        with pytest.raises(FencedError):
            collect()
        taken.stays_theirs()
    assert world.catalog.parts.deltas(world.t, is_all=True) == [delta]
    [item] = world.catalog.trash.items(limit=9)[0]
    assert not item.item.is_going


def test_readers_hold_the_past(world: World) -> None:
    readers = world.catalog.readers
    old = readers.open("t", 10, "q1", 1000)
    new = readers.open("t", 20, "q2", 5000)
    readers.open("u", 5, "q3", 5000)
    now_ms = world.clock.now_ms()
    assert readers.oldest("t", now_ms) == 10
    assert readers.oldest("t", now_ms + 1000) == 20
    assert readers.oldest("none", now_ms) is None
    old = readers.renew(old, 3000)
    assert readers.oldest("t", now_ms + 1000) == 10
    world.clock.advance(4)
    last = readers.open("t", 30, "q4", 1000)
    assert {each.id for each in readers.list() if each.table == "t"} == {new.id, last.id}
    with pytest.raises(FencedError):
        readers.renew(old, 1000)
    readers.close(new)
    readers.close(new)
    assert readers.oldest("t", world.clock.now_ms()) == 30


def test_switches_stay(world: World) -> None:
    switch = Switch(table="t", service=ServiceKind.MERGE, state=SwitchState.STOPPED, since_ms=1, because="backup")
    assert world.catalog.services.switch("t", ServiceKind.MERGE) is None
    world.catalog.services.set(switch)
    assert world.reopened().services.switch("t", ServiceKind.MERGE) == switch
    assert world.catalog.services.switch("t", ServiceKind.GC) is None
    assert world.catalog.services.all() == [switch]


def test_values_are_saved(world: World) -> None:
    assert world.catalog.state.get("cursor") is None
    world.catalog.state.put("cursor", b"\x00\xff")
    assert world.reopened().state.get("cursor") == b"\x00\xff"


def test_part_log(world: World) -> None:
    other = world.table("other")
    start = world.clock.now_ms()
    for table in (world.t, other, world.t):
        world.insert(table=table)
        world.clock.advance(1)
    log = world.catalog.part_log
    assert [event.at_ms for event in log.recent(limit=10)] == [start, start + 1000, start + 2000]
    assert [event.at_ms for event in log.recent(limit=1)] == [start + 2000]
    assert [event.at_ms for event in log.recent(start + 1, world.t, limit=10)] == [start + 2000]
    assert log.trim(start + 1000) == 1
    assert [event.at_ms for event in log.recent(limit=10)] == [start + 1000, start + 2000]


def test_queries_of_a_former_process_hold_nothing_and_readers_outside_go_on(world: World) -> None:
    readers = world.catalog.readers
    readers.open("t", 10, "s-1", 5000, client="10.0.0.7:5 (report)")
    outside = readers.open("t", 20, "s-1", 5000, is_outside=True)
    of_another = readers.open("u", 30, "s-2", 5000)
    assert readers.close_left_behind("s-1", {"s-1", "s-2"}) == 1
    assert {each.id for each in readers.list()} == {outside.id, of_another.id}
    assert readers.close_left_behind("s-1", {"s-1", "s-2"}) == 0
    assert readers.find(outside.id) == outside
    assert readers.find("none") is None


def test_a_statement_holds_its_tables_by_one_commit_and_lets_go_by_one(world: World) -> None:
    readers = world.catalog.readers
    ended = readers.open("t", 5, "s-1", 10)
    other = readers.open("t", 6, "s-2", 5000)
    world.clock.advance(1)
    leases = readers.open_all({"t": 10, "u": 20}, "s-1", 5000, client="report")
    assert [(each.table, each.snapshot_ts, each.client) for each in leases] == [
        ("t", 10, "report"),
        ("u", 20, "report"),
    ]
    assert len({each.id for each in leases}) == 2
    assert {each.id for each in readers.list()} == {other.id, *(each.id for each in leases)}
    assert readers.find(ended.id) is None
    assert readers.oldest("u", world.clock.now_ms()) == 20
    for _ in range(2):
        readers.close_all(leases)
        assert readers.list() == [other]
