"""Records of servers, what their leases may be taken by, and what is cleaned up after those that are gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.catalog_world import World
from tests.codes import WithCode
from tilth.base.errors import ConflictError, FencedError, RetryError
from tilth.catalog import Catalog, Joining, LeaseHeldError, ServerNameTakenError
from tilth.model.server import NUMBERS, SERVERS_MAX, ServerRecord, server_of


@pytest.fixture
def world() -> World:
    return World()


def join(catalog: Catalog, name: str, run: str = "") -> ServerRecord:
    return catalog.servers.join(Joining(name=name, run=run or name, version="1", url=f"http://{name}"))


def test_a_name_is_of_one_process_until_that_has_ended(world: World) -> None:
    servers = world.catalog.servers
    first = join(world.catalog, "a", "one")
    assert join(world.catalog, "a", "one") == first
    with pytest.raises(ServerNameTakenError, match="http://a"):
        join(world.catalog, "a", "two")
    assert servers.end(first)
    second = join(world.catalog, "a", "two")
    assert (second.epoch, second.id) == (2, "a#2")
    with pytest.raises(FencedError):
        servers.renew(first)
    # Whoever watched the first one knows nothing of the second.
    assert not servers.end(first)
    assert servers.live() == [second]


def test_a_process_that_has_joined_anew_does_not_renew_what_it_was_before(world: World) -> None:
    """A late heartbeat of its former life must not undo the end of it."""
    first = join(world.catalog, "a", "one")
    assert world.catalog.servers.end(first)
    second = join(world.catalog, "a", "one")
    with pytest.raises(FencedError):
        world.catalog.servers.renew(first)
    assert world.catalog.servers.live() == [second]


def test_an_epoch_that_was_given_again_by_a_standby_without_the_tail_is_of_one_process(world: World) -> None:
    first, without_tail = join(world.catalog, "a", "one"), World().catalog
    second = join(without_tail, "a", "two")
    assert first.id == second.id
    with pytest.raises(FencedError):
        without_tail.servers.renew(first)


def test_one_that_has_proved_meanwhile_that_it_lives_is_not_ended(world: World) -> None:
    servers = world.catalog.servers
    seen = join(world.catalog, "a")
    proved = servers.renew(seen)
    assert proved.renewed_ms > seen.renewed_ms
    assert not servers.end(seen)
    assert servers.end(proved)
    with pytest.raises(FencedError):
        servers.renew(proved)


def test_a_lease_is_not_taken_from_a_server_that_lives(world: World) -> None:
    catalog = world.catalog
    a, b = join(catalog, "a"), join(catalog, "b")
    held = catalog.leases.acquire("table/t", a.id)
    with pytest.raises(LeaseHeldError, match="url=http://a"):
        catalog.leases.acquire("table/t", b.id)
    catalog.leases.release(held.fence)
    assert catalog.leases.acquire("table/t", b.id).epoch == 2
    catalog.servers.end(b)
    taken = catalog.leases.acquire("table/t", a.id)
    assert taken.epoch == 3
    # Its next process goes on at once.
    catalog.servers.end(a)
    assert catalog.leases.acquire("table/t", join(catalog, "a", "again").id).epoch == 4


def test_each_process_that_joins_gets_the_next_number_and_so_many_may_live(world: World) -> None:
    with ThreadPoolExecutor(8) as pool:
        records = list(pool.map(lambda n: join(world.catalog, f"s{n}"), range(SERVERS_MAX)))
    assert {record.number for record in records} == set(range(SERVERS_MAX))
    with pytest.raises(ConflictError, check=WithCode("TOO_MANY_SERVERS")):
        join(world.catalog, "one more")
    world.catalog.servers.end(records[17])
    # The number of the ended process is not assigned again yet: without knowing its end, it may draw ids.
    assert join(world.catalog, "one more").number == SERVERS_MAX


def test_more_servers_than_usual_join_where_their_settings_allow_it(world: World) -> None:
    joined = [
        world.catalog.servers.join(Joining(name=f"s{n}", run=f"r{n}", version="1", servers_max=SERVERS_MAX + 2))
        for n in range(SERVERS_MAX + 2)
    ]
    assert len({each.number for each in joined}) == SERVERS_MAX + 2
    with pytest.raises(ConflictError, match=f"servers={SERVERS_MAX + 2}", check=WithCode("TOO_MANY_SERVERS")):
        world.catalog.servers.join(Joining(name="more", run="r", version="1", servers_max=SERVERS_MAX + 2))


def test_a_number_is_given_again_after_all_others_and_never_while_it_is_used(world: World) -> None:
    first = join(world.catalog, "first")
    numbers = []
    for n in range(NUMBERS + 2):
        record = join(world.catalog, "other", f"run {n}")
        world.catalog.servers.end(record)
        numbers.append(record.number)
    assert numbers == [*range(1, NUMBERS), 1, 2, 3]
    assert first.number not in numbers


def test_an_epoch_is_never_given_twice_also_where_the_record_was_forgotten(world: World) -> None:
    catalog = world.catalog
    old = join(catalog, "a")
    lease = catalog.leases.acquire("table/t", old.id)
    catalog.servers.end(old)
    world.clock.advance(100)
    assert catalog.servers.forget(world.clock.now_ms()) == 1
    again, other = join(catalog, "a", "again"), join(catalog, "b")
    assert again.id != old.id
    # A lease that an ended process held long ago is free.
    assert catalog.leases.acquire("table/t", other.id).epoch == lease.epoch + 1


def test_who_was_ended_takes_no_lease(world: World) -> None:
    record = join(world.catalog, "a")
    world.catalog.servers.end(record)
    with pytest.raises(RetryError, check=WithCode("SERVER_ENDED"), match="server=a#1"):
        world.catalog.leases.acquire("table/t", record.id)
    assert world.catalog.leases.get("table/t") is None


def test_who_ended_long_ago_is_forgotten_and_who_lives_is_not(world: World) -> None:
    servers = world.catalog.servers
    servers.end(join(world.catalog, "a"))
    join(world.catalog, "b")
    now_ms = world.clock.now_ms()
    assert servers.forget(now_ms) == 0
    assert servers.forget(now_ms + 1) == 1
    assert [each.name for each in servers.all()] == ["b"]


def test_ids_of_processes() -> None:
    assert server_of("a#b#12") == ("a#b", 12)
    assert server_of("s1") is None
    assert server_of("a#") is None


def test_a_start_closes_the_leases_of_former_processes_and_leaves_those_of_others(world: World) -> None:
    readers = world.catalog.readers
    for holder in ("a", "b", "renamed"):
        readers.open(world.t, 1, holder, 60_000)
    assert readers.close_left_behind("a", {"a", "b"}) == 2
    assert [each.holder for each in readers.list()] == ["b"]
