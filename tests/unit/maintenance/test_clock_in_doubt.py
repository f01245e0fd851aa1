"""Maintenance by a clock that has jumped ahead: nothing goes for its age until somebody had time to set it right."""

from __future__ import annotations

import pytest

from tests.maintenance_world import MaintenanceWorld
from tests.unit.maintenance.test_maintenance_gc import entries, trash
from tests.unit.maintenance.test_maintenance_merges import DATE, merged_tasks
from tilth.model.service import ServiceKind
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Kind, Simple


@pytest.fixture
def world() -> MaintenanceWorld:
    world = MaintenanceWorld()
    for _ in range(10):
        world.insert("a")
    world.work()
    assert world.visible_count() == 1
    return world


def test_a_clock_that_jumps_ahead_moves_and_removes_nothing(world: MaintenanceWorld) -> None:
    world.clock.set_now_ms(world.clock.now_ms() + 30 * 86_400_000)
    for _ in range(20):
        world.work(120)
    assert (entries(world), trash(world)) == (21, 0)
    service = world.service(ServiceKind.GC)
    assert "2592000 s ahead" in service.reason
    # A command is given by somebody who has looked at the clock.
    assert world.manager.gc_now(world.t).moved == 20
    # Nobody has set it right in an hour: it is the time.
    for _ in range(20):
        world.work(600)
    assert world.service(ServiceKind.GC).state == "idle"
    assert trash(world) == 0


def test_no_row_expires_by_a_clock_that_has_jumped_ahead(world: MaintenanceWorld) -> None:
    schema = Schema(columns=(Column(id=1, name="a", type=Simple(Kind.INT64)), Column(id=2, name="d", type=DATE)))
    definition = TableDef(
        uuid=world.new_id(), database="default", name="aged", schema=schema, next_column_id=3, ttl="d + INTERVAL 1 DAY"
    )
    aged = world.catalog.tables.create(definition).uuid
    world.manager.wake()
    tasks = merged_tasks(world)
    for _ in range(10):
        world.insert("a", table=aged)
    world.clock.set_now_ms(world.clock.now_ms() + 30 * 86_400_000)
    world.work()
    assert [task.expired for task in tasks] == [None]


def test_all_goes_on_when_a_clock_that_was_ahead_is_right_again(world: MaintenanceWorld) -> None:
    ahead_ms = 30 * 86_400_000
    world.clock.set_now_ms(world.clock.now_ms() + ahead_ms)
    for _ in range(10):
        world.work(30)
    world.clock.set_now_ms(world.clock.now_ms() - ahead_ms)
    aborted = world.catalog.transactions.begin("insert")
    world.catalog.transactions.abort(aborted.id, "it failed")
    for _ in range(10):
        world.insert("c")
    for _ in range(20):
        world.work(30)
    # Merges, and the cleaner.
    parts = world.catalog.parts.snapshot(world.t).parts
    assert len([part for part in parts if part.name.partition == "c"]) == 1
    assert world.catalog.transactions.unfinished() == []
