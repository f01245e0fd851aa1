"""Leases, readers' holds, switches, saved values and the part log."""

from __future__ import annotations

import msgspec
import pytest

from tests.catalog_world import World
from tilth.base.errors import FencedError
from tilth.catalog import LeaseHeldError
from tilth.model.lease import ReaderLease
from tilth.model.service import ServiceKind, Switch, SwitchState


@pytest.fixture
def world() -> World:
    return World()


def test_a_lease_is_held_by_one(world: World) -> None:
    leases = world.catalog.leases
    mine = leases.acquire("server/1", "a", 3000)
    with pytest.raises(LeaseHeldError) as caught:
        leases.acquire("server/1", "b", 3000)
    assert caught.value.facts["holder"] == "a"
    world.clock.advance(2)
    mine = leases.renew(mine, 3000)
    world.clock.advance(2)
    with pytest.raises(LeaseHeldError):
        leases.acquire("server/1", "b", 3000)
    world.clock.advance(1)
    theirs = leases.acquire("server/1", "b", 3000)
    assert theirs.epoch == mine.epoch + 1
    with pytest.raises(FencedError):
        leases.renew(mine, 3000)
    leases.release(mine)
    assert leases.get("server/1") == theirs
    assert leases.list() == [theirs]


def test_an_epoch_never_comes_back(world: World) -> None:
    leases = world.catalog.leases
    first = leases.acquire("a", "s1", 1000)
    leases.release(first)
    assert leases.list() == []
    with pytest.raises(FencedError):
        leases.renew(first, 1000)
    with pytest.raises(FencedError):
        world.catalog.transactions.begin("x", fences=[first.fence])
    second = leases.acquire("a", "s1", 1000)
    assert second.epoch == 2
    assert leases.acquire("a", "s1", 1000).epoch == 3
    assert leases.take("a", "s2", 1000).epoch == 4


def test_a_lease_that_ended_and_was_not_taken_is_renewed(world: World) -> None:
    lease = world.catalog.leases.acquire("a", "s1", 1000)
    world.clock.advance(60)
    assert world.catalog.leases.renew(lease, 1000).epoch == lease.epoch


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
    mine = readers.open("u", 30, "s-2", 5000)
    assert readers.close_left_behind("s-2") == 1
    assert {each.id for each in readers.list()} == {outside.id, mine.id}
    assert readers.close_left_behind("s-2") == 0
    assert readers.find(outside.id) == outside
    assert readers.find("none") is None


def test_a_lease_of_an_older_version_is_one_of_a_query() -> None:
    """It was written without client, time and kind."""
    old = msgspec.msgpack.encode({"id": "r", "table": "t", "snapshot_ts": 1, "holder": "s-1", "expires_ms": 2})
    lease = msgspec.msgpack.decode(old, type=ReaderLease)
    assert (lease.client, lease.opened_ms, lease.is_outside) == ("", 0, False)
