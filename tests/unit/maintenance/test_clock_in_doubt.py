"""Maintenance by a clock that has jumped ahead: nothing is removed because of its age until an operator had time to
correct the clock.

Modules: maintenance/gc/part_gc.py, maintenance/merge/op.py.
"""

from __future__ import annotations

from tests.maintenance_world import MaintenanceWorld
from tests.unit.maintenance.gc.test_part_gc import entries, trash, world
from tests.unit.maintenance.merge.test_op import merged_tasks
from tilth.model.service import ServiceKind

__all__ = ["world"]


def test_a_clock_that_jumps_ahead_moves_and_removes_nothing(world: MaintenanceWorld) -> None:
    world.clock.set_now_ms(world.clock.now_ms() + 30 * 86_400_000)
    for _ in range(20):
        world.work(120)
    assert (entries(world), trash(world)) == (21, 0)
    service = world.service(ServiceKind.GC)
    assert "2592000 s ahead" in service.reason
    # A user who gives a command has checked the clock.
    assert world.manager.gc_now(world.t).moved == 20
    # A clock that was not corrected in an hour counts as right.
    for _ in range(20):
        world.work(600)
    assert world.service(ServiceKind.GC).state == "idle"
    assert trash(world) == 0


def test_no_row_expires_by_a_clock_that_has_jumped_ahead(world: MaintenanceWorld) -> None:
    aged = world.aging_table()
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
    # Merges and the cleaner have run again.
    parts = world.catalog.parts.snapshot(world.t).parts
    assert len([part for part in parts if part.name.partition == "c"]) == 1
    assert world.catalog.transactions.unfinished() == []
