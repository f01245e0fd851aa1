"""Choosers alone, as the shell asks them: events in, work or a refusal out. No thread, nothing is reserved or run."""

from __future__ import annotations

import pytest

from tests.maintenance_world import MaintenanceWorld
from tilth.base.errors import FencedError, UnavailableError
from tilth.catalog import PartsGoneError
from tilth.maintenance.flush.op import FlushPlanner
from tilth.maintenance.kinds import OpStats, Refused
from tilth.maintenance.merge.choice import MergeChoice
from tilth.maintenance.merge.op import REFRESH_BUSY_MS, MergePlanner
from tilth.maintenance.mutate.op import MutatePlanner
from tilth.maintenance.state import NEVER_MS
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.planner import (
    Busy,
    Cancelled,
    Denied,
    OpSnapshot,
    Renewed,
    Stopped,
    WorkEnded,
)

NOBODY = Busy(reserved=frozenset(), own=frozenset(), damaged=frozenset())


@pytest.fixture
def world() -> MaintenanceWorld:
    return MaintenanceWorld()


def context(world: MaintenanceWorld) -> TableContext:
    return TableContext(world.manager._context, world.manager._registry.get(world.t).watch)


def merge_planner(world: MaintenanceWorld) -> MergePlanner:
    of = context(world)
    return MergePlanner(of, MergeChoice(of))


def snapshot(world: MaintenanceWorld, *, running: int = 0, has_news: bool = False, refreshed_ms: int = 0) -> OpSnapshot:
    return OpSnapshot(now_ms=world.clock.now_ms(), running=running, has_news=has_news, refreshed_ms=refreshed_ms)


def test_what_waits_to_be_merged_is_held_until_it_is_taken(world: MaintenanceWorld) -> None:
    planner = merge_planner(world)
    assert not planner.choose(snapshot(world)).is_runnable
    parts = [world.insert("a")[0] for _ in range(10)]
    planner.refresh(snapshot(world), NOBODY)
    [held] = planner.held
    assert set(held.names) == {str(part.name) for part in parts}
    answer = planner.choose(snapshot(world))
    assert answer.is_runnable
    assert answer.perf_improvement > 0
    # A waiting merge is worth a turn at once, a refresh is not.
    assert (planner.due_ms(snapshot(world)), planner.refresh_due_ms(snapshot(world))) == (0, NEVER_MS)
    assert planner.dequeue(snapshot(world), NOBODY) == [held]
    assert planner.held == []
    loaded = planner.load(held, held.names)
    assert loaded is not None
    assert [part.name for part in loaded.sources] == [part.name for part in parts]
    assert isinstance(planner.dequeue(snapshot(world), NOBODY), Refused)


def test_parts_that_others_have_are_not_chosen(world: MaintenanceWorld) -> None:
    planner = merge_planner(world)
    names = frozenset(str(world.insert("a")[0].name) for _ in range(10))
    planner.refresh(snapshot(world), Busy(reserved=names, own=frozenset(), damaged=frozenset()))
    assert planner.held == []
    planner.refresh(snapshot(world), Busy(reserved=frozenset(), own=frozenset(), damaged=names))
    assert planner.held == []


def test_what_waits_is_forgotten_by_events(world: MaintenanceWorld) -> None:
    planner = merge_planner(world)
    for _ in range(10):
        world.insert("a")
    now_ms = world.clock.now_ms()

    def again() -> None:
        planner.refresh(snapshot(world), NOBODY)
        assert planner.held

    again()
    assert not planner.observe(Cancelled("another"), now_ms)
    assert planner.held
    assert not planner.observe(Cancelled("a"), now_ms)
    assert not planner.held
    again()
    assert not planner.observe(Stopped(), now_ms)
    assert not planner.held
    again()
    assert planner.observe(Denied(planner.held[0]), now_ms)
    assert not planner.held
    again()
    # Somebody else has the table.
    assert planner.observe(WorkEnded(planner.held[0], FencedError()), now_ms)
    assert not planner.held


def test_looks_follow_each_other_while_they_lead_to_merges(world: MaintenanceWorld) -> None:
    planner = merge_planner(world)
    for _ in range(10):
        world.insert("a")
    planner.refresh(snapshot(world), NOBODY)
    planner.choose(snapshot(world))
    taken = planner.dequeue(snapshot(world), NOBODY)
    assert not isinstance(taken, Refused)
    assert planner.refresh_due_ms(snapshot(world)) == 0
    # The table went on without us: no haste.
    assert planner.observe(WorkEnded(taken[0], PartsGoneError()), world.clock.now_ms())
    assert planner.refresh_due_ms(snapshot(world, has_news=True, refreshed_ms=5)) == 5 + REFRESH_BUSY_MS


def test_segments_are_worth_more_as_they_age(world: MaintenanceWorld) -> None:
    planner = FlushPlanner(context(world))
    assert planner.choose(snapshot(world)) == OpStats.idle("no segments")
    world.insert_segment("a", rows=4)
    planner.refresh(snapshot(world), NOBODY)
    young = planner.choose(snapshot(world))
    world.clock.advance(121)
    old = planner.choose(snapshot(world))
    assert young.is_runnable
    assert old.is_runnable
    assert young.perf_improvement == 0 < old.perf_improvement
    assert planner.choose(snapshot(world, running=1)) == OpStats.idle("1 flushes are running")
    taken = planner.dequeue(snapshot(world), NOBODY)
    assert not isinstance(taken, Refused)
    # With a flush all that is known ends.
    assert planner.observe(WorkEnded(taken[0], None), world.clock.now_ms())
    assert planner.refresh_due_ms(snapshot(world, has_news=True, refreshed_ms=world.clock.now_ms())) == 0


def test_a_loss_delays_the_next_look_at_a_mutation(world: MaintenanceWorld) -> None:
    world.insert("a")
    planner = MutatePlanner(context(world))
    assert (planner.choose(snapshot(world)), planner.refresh_due_ms(snapshot(world))) == (
        OpStats.idle("no mutation is pending"),
        NEVER_MS,
    )
    world.alter_delete("a is odd")
    world.manager.step()
    world.settle()
    world.alter_delete("a is a multiple of 3")
    # Without a time of the reading, for nothing reports what tests do after it.
    list(world.manager._registry.refresh(world.clock.now_ms))
    planner = MutatePlanner(context(world))
    planner.refresh(snapshot(world), NOBODY)
    taken = planner.dequeue(snapshot(world), NOBODY)
    assert not isinstance(taken, Refused)
    loaded = planner.load(taken[0], taken[0].names)
    assert loaded is not None
    now_ms, error = world.clock.now_ms(), UnavailableError("no worker")
    assert planner.failures.missed(loaded, error, now_ms) == "no worker"
    assert planner.observe(WorkEnded(loaded, error), now_ms)
    assert planner.refresh_due_ms(snapshot(world, has_news=True)) == now_ms + 1000
    planner.failures.landed(loaded)
    assert planner.refresh_due_ms(snapshot(world, has_news=True)) < now_ms + 1000
    assert planner.is_outdated(loaded) is False
    assert planner.observe(Renewed(), now_ms)
    assert isinstance(planner.dequeue(snapshot(world), NOBODY), Refused)
