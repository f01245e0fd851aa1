"""SYSTEM STOP and START of a service: of one table, of all, for a while, over a restart."""

from __future__ import annotations

import pytest

from tests.maintenance_world import MaintenanceWorld
from tilth.model.service import ALL_TABLES, ServiceKind, Switch, SwitchState

SERVICES = (ServiceKind.MERGE, ServiceKind.MUTATE, ServiceKind.GC)


def switch(
    world: MaintenanceWorld,
    table: str,
    state: SwitchState,
    service: ServiceKind = ServiceKind.MERGE,
    *,
    minutes: int = 0,
) -> None:
    now_ms = world.clock.now_ms()
    world.catalog.services.set(
        Switch(
            table=table,
            service=service,
            state=state,
            since_ms=now_ms,
            until_ms=now_ms + minutes * 60_000 if minutes else 0,
            because="a test",
            query_id="q1",
        )
    )
    # Later words are newer.
    world.clock.advance(0.001)
    world.manager.wake(table or None)
    world.manager.step()


def state_of(world: MaintenanceWorld, table: str, service: ServiceKind = ServiceKind.MERGE) -> SwitchState:
    return world.service(service, table).switch


@pytest.mark.parametrize("service", SERVICES)
def test_a_stop_for_a_while_survives_a_restart_and_ends_by_itself(service: ServiceKind) -> None:
    world = MaintenanceWorld()
    world.manager.step()
    switch(world, world.t, SwitchState.STOPPED, service, minutes=10)
    world.manager = world.new_manager()
    world.manager.step()
    told = world.service(service, world.t)
    assert (told.switch, told.state, told.because, told.asked_by) == (SwitchState.STOPPED, "stopped", "a test", "q1")
    assert told.until_ms > world.clock.now_ms()
    world.clock.advance(599)
    assert state_of(world, world.t, service) is SwitchState.STOPPED
    world.clock.advance(2)
    told = world.service(service, world.t)
    assert (told.switch, told.until_ms, told.asked_by) == (SwitchState.RUNNING, 0, "")
    assert told.state != "stopped"


def test_a_stop_of_all_holds_for_later_tables_and_one_may_be_started() -> None:
    world = MaintenanceWorld()
    world.manager.step()
    switch(world, ALL_TABLES, SwitchState.STOPPED)
    late = world.table("late")
    world.manager.wake()
    world.manager.step()
    assert state_of(world, world.t) is state_of(world, late) is SwitchState.STOPPED
    switch(world, late, SwitchState.RUNNING)
    assert (state_of(world, world.t), state_of(world, late)) == (SwitchState.STOPPED, SwitchState.RUNNING)
    world.manager = world.new_manager()
    world.manager.step()
    assert (state_of(world, world.t), state_of(world, late)) == (SwitchState.STOPPED, SwitchState.RUNNING)
    switch(world, ALL_TABLES, SwitchState.RUNNING)
    assert state_of(world, world.t) is state_of(world, late) is SwitchState.RUNNING


def test_what_was_said_to_one_table_holds_again_when_the_word_to_all_is_over() -> None:
    world = MaintenanceWorld()
    world.manager.step()
    switch(world, world.t, SwitchState.RUNNING)
    switch(world, ALL_TABLES, SwitchState.STOPPED, minutes=1)
    assert state_of(world, world.t) is SwitchState.STOPPED
    world.clock.advance(61)
    assert state_of(world, world.t) is SwitchState.RUNNING


def test_next_wakeup_and_next_attempt_wait_for_the_end_of_a_stop() -> None:
    world = MaintenanceWorld()
    world.manager.step()
    told = world.service(ServiceKind.MERGE, world.t)
    assert told.next_wakeup_ms >= world.clock.now_ms()
    assert told.next_attempt_ms == 0
    switch(world, world.t, SwitchState.STOPPED, minutes=10)
    told = world.service(ServiceKind.MERGE, world.t)
    assert told.next_wakeup_ms >= told.until_ms > world.clock.now_ms()
    switch(world, world.t, SwitchState.STOPPED)
    told = world.service(ServiceKind.MERGE, world.t)
    assert (told.next_wakeup_ms, told.next_attempt_ms) == (0, 0)


def test_who_waits_for_a_switch_of_all_tables_finds_it_read() -> None:
    world = MaintenanceWorld()
    # Nobody works yet: there is nothing to wait for.
    world.manager.wait_refreshed()
    world.manager.start()
    try:
        for state in (SwitchState.STOPPED, SwitchState.RUNNING) * 3:
            world.catalog.services.set(
                Switch(table=ALL_TABLES, service=ServiceKind.MERGE, state=state, since_ms=world.clock.now_ms())
            )
            world.clock.advance(1)
            world.manager.wait_refreshed()
            assert state_of(world, world.t) is state
    finally:
        world.manager.stop()
