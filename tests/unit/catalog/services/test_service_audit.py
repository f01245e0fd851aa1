"""The audit log, and switches that hold against each other."""

from __future__ import annotations

import pytest

from tests.catalog_world import World
from tilth.model.service import (
    ALL_TABLES,
    AuditEvent,
    ServiceKind,
    Switch,
    SwitchState,
    newer_since_ms,
    switches_in_force,
)


def line(world: World, verb: str, **facts: str) -> AuditEvent:
    return AuditEvent(at_ms=world.clock.now_ms(), verb=verb, table="default.t", statement=verb, **facts)  # type: ignore[arg-type]  # texts only


def test_lines_are_listed_newest_first_and_survive_a_restart() -> None:
    world = World()
    for verb in ("one", "two", "three"):
        # The clock stands still: the order is kept all the same.
        world.catalog.audit.record(line(world, verb, because="a test", query_id="q1", outcome="done"))
    assert [each.verb for each in world.catalog.audit.recent(2)] == ["three", "two"]
    again = world.reopened()
    assert [each.verb for each in again.audit.recent(10)] == ["three", "two", "one"]
    assert again.audit.recent(1)[0].because == "a test"


def test_a_long_statement_is_cut() -> None:
    world = World()
    world.catalog.audit.record(line(world, "x" * 5_000))
    assert len(world.catalog.audit.recent(1)[0].statement) == 1_000


def test_the_oldest_lines_go() -> None:
    world = World()
    for number in range(7):
        world.catalog.audit.record(line(world, str(number)))
        world.clock.advance(1)
    assert world.catalog.audit.trim(keep=3) == 4
    assert [each.verb for each in world.catalog.audit.recent(10)] == ["6", "5", "4"]
    assert world.catalog.audit.trim(keep=3) == 0


def switch(table: str, since_ms: int, *, until_ms: int = 0, state: SwitchState = SwitchState.STOPPED) -> Switch:
    return Switch(table=table, service=ServiceKind.MERGE, state=state, since_ms=since_ms, until_ms=until_ms)


@pytest.mark.parametrize(
    ("switches", "now_ms", "expected"),
    [
        ([], 50, None),
        ([switch("t", 1)], 50, "t"),
        # A word to all tables is newer than the one to this table, and the other way round.
        ([switch("t", 1), switch(ALL_TABLES, 2)], 50, ALL_TABLES),
        ([switch("t", 3), switch(ALL_TABLES, 2)], 50, "t"),
        # An expired switch gives way to the one before it.
        ([switch("t", 1), switch(ALL_TABLES, 2, until_ms=40)], 39, ALL_TABLES),
        ([switch("t", 1), switch(ALL_TABLES, 2, until_ms=40)], 40, "t"),
        ([switch("t", 1, until_ms=40)], 40, None),
    ],
)
def test_the_newest_switch_that_is_not_over_holds(switches: list[Switch], now_ms: int, expected: str | None) -> None:
    found = switches_in_force(switches, now_ms=now_ms).get(ServiceKind.MERGE)
    assert (None if found is None else found.table) == expected


def test_a_new_switch_is_newer_whatever_the_clock_does() -> None:
    assert newer_since_ms([], now_ms=50) == 50
    assert newer_since_ms([switch("t", 70), switch("u", 60)], now_ms=50) == 71
