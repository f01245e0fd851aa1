"""Choosers alone, as the shell asks them: events in, work or a refusal out. No thread, nothing is reserved or run."""

from __future__ import annotations

import pytest

from tests.maintenance_world import MaintenanceWorld
from tilth.base.errors import FencedError, UnavailableError
from tilth.catalog import PartsGoneError
from tilth.maintenance.flush.op import FlushChooser
from tilth.maintenance.merge.choice import MergeChoice
from tilth.maintenance.merge.op import LOOK_BUSY_MS, MergeChooser
from tilth.maintenance.mutate.op import MutateChooser
from tilth.maintenance.state import FAR_MS
from tilth.maintenance.work.chooser import (
    Busy,
    Cancelled,
    Denied,
    OpMoment,
    Refused,
    Renewed,
    Stopped,
    WorkEnded,
    Worth,
)
from tilth.maintenance.work.context import TableContext

NOBODY = Busy(reserved=frozenset(), own=frozenset(), damaged=frozenset())


@pytest.fixture
def world() -> MaintenanceWorld:
    return MaintenanceWorld()


def context(world: MaintenanceWorld) -> TableContext:
    return TableContext(world.manager._context, world.manager._registry.get(world.t).watch)


def merge_chooser(world: MaintenanceWorld) -> MergeChooser:
    of = context(world)
    return MergeChooser(of, MergeChoice(of))


def moment(world: MaintenanceWorld, *, running: int = 0, has_news: bool = False, looked_ms: int = 0) -> OpMoment:
    return OpMoment(now_ms=world.clock.now_ms(), running=running, has_news=has_news, looked_ms=looked_ms)


def test_what_waits_to_be_merged_is_held_until_it_is_taken(world: MaintenanceWorld) -> None:
    chooser = merge_chooser(world)
    assert isinstance(chooser.choose(moment(world)), Refused)
    parts = [world.insert("a")[0] for _ in range(10)]
    chooser.look(moment(world), NOBODY)
    [held] = chooser.held
    assert set(held.names) == {str(part.name) for part in parts}
    answer = chooser.choose(moment(world))
    assert isinstance(answer, Worth)
    assert answer.gain > 0
    # What waits is worth a turn at once, a new look is not.
    assert (chooser.due_ms(moment(world)), chooser.look_due_ms(moment(world))) == (0, FAR_MS)
    assert chooser.take(moment(world), NOBODY) == [held]
    assert chooser.held == []
    loaded = chooser.load(held, held.names)
    assert loaded is not None
    assert [part.name for part in loaded.sources] == [part.name for part in parts]
    assert isinstance(chooser.take(moment(world), NOBODY), Refused)


def test_parts_that_others_have_are_not_chosen(world: MaintenanceWorld) -> None:
    chooser = merge_chooser(world)
    names = frozenset(str(world.insert("a")[0].name) for _ in range(10))
    chooser.look(moment(world), Busy(reserved=names, own=frozenset(), damaged=frozenset()))
    assert chooser.held == []
    chooser.look(moment(world), Busy(reserved=frozenset(), own=frozenset(), damaged=names))
    assert chooser.held == []


def test_what_waits_is_forgotten_by_events(world: MaintenanceWorld) -> None:
    chooser = merge_chooser(world)
    for _ in range(10):
        world.insert("a")
    now_ms = world.clock.now_ms()

    def again() -> None:
        chooser.look(moment(world), NOBODY)
        assert chooser.held

    again()
    assert not chooser.observe(Cancelled("another"), now_ms)
    assert chooser.held
    assert not chooser.observe(Cancelled("a"), now_ms)
    assert not chooser.held
    again()
    assert not chooser.observe(Stopped(), now_ms)
    assert not chooser.held
    again()
    assert chooser.observe(Denied(chooser.held[0]), now_ms)
    assert not chooser.held
    again()
    # Somebody else has the table.
    assert chooser.observe(WorkEnded(chooser.held[0], FencedError()), now_ms)
    assert not chooser.held


def test_looks_follow_each_other_while_they_lead_to_merges(world: MaintenanceWorld) -> None:
    chooser = merge_chooser(world)
    for _ in range(10):
        world.insert("a")
    chooser.look(moment(world), NOBODY)
    chooser.choose(moment(world))
    taken = chooser.take(moment(world), NOBODY)
    assert not isinstance(taken, Refused)
    assert chooser.look_due_ms(moment(world)) == 0
    # The table went on without us: no haste.
    assert chooser.observe(WorkEnded(taken[0], PartsGoneError()), world.clock.now_ms())
    assert chooser.look_due_ms(moment(world, has_news=True, looked_ms=5)) == 5 + LOOK_BUSY_MS


def test_segments_are_worth_more_as_they_age(world: MaintenanceWorld) -> None:
    chooser = FlushChooser(context(world))
    assert chooser.choose(moment(world)) == Refused("no segments")
    world.insert_segment("a", rows=4)
    chooser.look(moment(world), NOBODY)
    young = chooser.choose(moment(world))
    world.clock.advance(121)
    old = chooser.choose(moment(world))
    assert isinstance(young, Worth)
    assert isinstance(old, Worth)
    assert young.gain == 0 < old.gain
    assert chooser.choose(moment(world, running=1)) == Refused("1 flushes are running")
    taken = chooser.take(moment(world), NOBODY)
    assert not isinstance(taken, Refused)
    # With a flush all that is known ends.
    assert chooser.observe(WorkEnded(taken[0], None), world.clock.now_ms())
    assert chooser.look_due_ms(moment(world, has_news=True, looked_ms=world.clock.now_ms())) == 0


def test_a_loss_delays_the_next_look_at_a_mutation(world: MaintenanceWorld) -> None:
    world.insert("a")
    chooser = MutateChooser(context(world))
    assert (chooser.choose(moment(world)), chooser.look_due_ms(moment(world))) == (
        Refused("no mutation is pending"),
        FAR_MS,
    )
    world.alter_delete("a is odd")
    world.manager.step()
    world.settle()
    world.alter_delete("a is a multiple of 3")
    world.manager._registry.refresh()
    chooser = MutateChooser(context(world))
    chooser.look(moment(world), NOBODY)
    taken = chooser.take(moment(world), NOBODY)
    assert not isinstance(taken, Refused)
    loaded = chooser.load(taken[0], taken[0].names)
    assert loaded is not None
    now_ms, error = world.clock.now_ms(), UnavailableError("no worker")
    assert chooser.failures.missed(loaded, error, now_ms) == "no worker"
    assert chooser.observe(WorkEnded(loaded, error), now_ms)
    assert chooser.look_due_ms(moment(world, has_news=True)) == now_ms + 1000
    chooser.failures.landed(loaded)
    assert chooser.look_due_ms(moment(world, has_news=True)) < now_ms + 1000
    assert chooser.is_outdated(loaded) is False
    assert chooser.observe(Renewed(), now_ms)
    assert isinstance(chooser.take(moment(world), NOBODY), Refused)
