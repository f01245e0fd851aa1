"""Maintenance on one of several servers: its own tables and nobody else's, and what a server that is gone has left."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest

from tests.catalog_world import World
from tests.codes import WithCode
from tilth.base.errors import RetryError
from tilth.catalog import Catalog, Joining, NotHostedError
from tilth.maintenance.cleaner.cleaner import Cleaner
from tilth.maintenance.cleaner.ended import GRACE_MS
from tilth.maintenance.manager.decisions import DecisionLog
from tilth.maintenance.manager.registry import Registry
from tilth.maintenance.manager.table_ops import TableOps
from tilth.maintenance.table.watch import TableWatch
from tilth.maintenance.work.first_reads import FirstReads
from tilth.model.server import COORDINATOR
from tilth.model.txn import Txn, TxnState
from tilth.storage import local_root


class Servers:
    """Two servers over one store; each hosts what is in its set."""

    def __init__(self, folder: Path) -> None:
        self.worlds = [World()]
        self.worlds.append(World(self.worlds[0].kv, clock=self.worlds[0].clock))
        self.records = []
        self.hosted: list[set[str]] = [{COORDINATOR}, set()]
        self.cleaners: list[Cleaner] = []
        for number, world in enumerate(self.worlds):
            record = world.catalog.servers.join(Joining(name=f"s{number}", run=str(number), version="1"))
            world.catalog.serve_as(record)
            self.records.append(record)
            self.cleaners.append(
                Cleaner(
                    self.clock,
                    world.catalog,
                    local_root(folder),
                    dropped_kept_ms=86_400_000,
                    hosts=lambda thing, number=number: thing in self.hosted[number],  # type: ignore[misc]
                )
            )

    @property
    def clock(self):  # type: ignore[no-untyped-def]
        return self.worlds[0].clock

    def catalog(self, number: int) -> Catalog:
        return self.worlds[number].catalog

    def states(self) -> list[TxnState]:
        return [txn.state for txn in self.catalog(0).transactions.unfinished()]


@pytest.fixture
def servers(tmp_path: Path) -> Servers:
    return Servers(tmp_path)


def begin(catalog: Catalog) -> Txn:
    return catalog.transactions.begin("insert")


def test_what_another_server_works_on_is_left_alone_however_long_it_takes(servers: Servers) -> None:
    begin(servers.catalog(1))
    for _ in range(3):
        servers.clock.advance(3600)
        servers.cleaners[0].tick()
    assert servers.cleaners[0].start() == 0
    assert servers.states() == [TxnState.RUNNING]


def test_what_a_server_has_left_that_is_gone_is_aborted_at_once_and_by_the_coordinator_alone(servers: Servers) -> None:
    txn = begin(servers.catalog(1))
    servers.catalog(0).servers.end(servers.records[1])
    servers.hosted[0].clear()
    servers.cleaners[0].tick()
    assert servers.states() == [TxnState.RUNNING]
    servers.hosted[0].add(COORDINATOR)
    servers.cleaners[0].tick()
    assert servers.states() == [TxnState.ABORTED]
    [aborted] = servers.catalog(0).transactions.unfinished()
    assert aborted.reason == f"its server {txn.server} is gone"
    servers.cleaners[0].tick()
    servers.clock.advance(GRACE_MS / 1000)
    servers.cleaners[0].tick()
    assert servers.states() == []


def test_a_start_ends_what_its_forerunner_left_and_nothing_of_others(servers: Servers) -> None:
    begin(servers.catalog(0))
    other = begin(servers.catalog(1))
    servers.catalog(0).servers.end(servers.records[0])
    again = World(servers.worlds[0].kv, clock=servers.clock).catalog
    again.serve_as(again.servers.join(Joining(name="s0", run="again", version="1")))
    servers.clock.advance(1)
    cleaner = Cleaner(servers.clock, again, local_root("/nowhere"), dropped_kept_ms=86_400_000)
    assert cleaner.start() == 1
    assert [txn.id for txn in again.transactions.unfinished() if txn.state is TxnState.RUNNING] == [other.id]


def test_a_dropped_table_stays_while_the_coordinators_clock_is_in_doubt(servers: Servers) -> None:
    world, cleaner = servers.worlds[0], servers.cleaners[0]
    check = world.catalog.clock_check
    check.compare(0.0, doubt_ms=1.0, bound_ms=500.0)
    world.catalog.tables.drop(world.t)
    servers.clock.set_now_ms(servers.clock.now_ms() + 4 * 86_400_000)
    # One tick comes before the next comparison of the clock, one after it.
    cleaner.tick()
    check.compare(4 * 86_400_000.0, doubt_ms=1.0, bound_ms=500.0)
    cleaner.tick()
    assert [each.relation.uuid for each in world.catalog.tables.dropped()] == [world.t]
    check.compare(0.0, doubt_ms=1.0, bound_ms=500.0)
    cleaner.tick()
    assert world.catalog.tables.dropped() == []


def test_only_tables_of_this_server_are_looked_after(servers: Servers) -> None:
    world = servers.worlds[0]
    hosted = {world.t}
    made: list[str] = []

    def build(watch: TableWatch):  # type: ignore[no-untyped-def]
        made.append(watch.uuid)
        raise AssertionError

    decisions = DecisionLog(world.clock)
    first_reads = FirstReads(world.catalog)
    registry = Registry(
        world.catalog,
        {},
        build,
        decisions=decisions,
        woken=deque(),
        first_reads=first_reads,
        hosts=lambda uuid: uuid in hosted,
    )
    with pytest.raises(AssertionError):
        next(registry.refresh(world.clock.now_ms))
    assert made == [world.t]
    hosted.clear()
    assert list(registry.refresh(world.clock.now_ms)) == [[]]
    with pytest.raises(NotHostedError, match=rf"uuid={world.t}"):
        registry.get(world.t)


def test_a_table_that_comes_back_while_its_former_ops_end_is_not_said_to_be_missing(servers: Servers) -> None:
    world = servers.worlds[0]
    registry = Registry(
        world.catalog,
        {},
        lambda watch: TableOps(watch, ()),
        decisions=DecisionLog(world.clock),
        woken=deque(),
        first_reads=FirstReads(world.catalog),
    )
    table = registry.get(world.t)
    registry.leave(table)
    with pytest.raises(RetryError, check=WithCode("TABLE_MOVING"), match="has not ended yet"):
        registry.get(world.t)
    registry.forget(world.t)
    assert registry.get(world.t) is not table
