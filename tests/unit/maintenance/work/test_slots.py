"""Which merges may start while others run and rows come in."""

from __future__ import annotations

import threading

import pytest

from tests.maintenance_world import MaintenanceWorld
from tilth.maintenance.work.slots import LAST_SLOT_BYTES, merge_bytes_max


@pytest.mark.parametrize(
    ("slots", "running", "is_ingesting", "expected"),
    [
        (2, 0, True, None),
        (2, 1, True, LAST_SLOT_BYTES),
        (2, 1, False, None),
        (1, 0, True, None),
        (4, 2, True, None),
        (4, 3, True, LAST_SLOT_BYTES),
    ],
)
def test_the_last_place_is_for_small_merges(slots: int, running: int, is_ingesting: bool, expected: int | None) -> None:
    assert merge_bytes_max(slots=slots, running=running, is_ingesting=is_ingesting) == expected


def wait_for_tasks(world: MaintenanceWorld) -> None:
    """Until what was started has its task at the worker."""
    for _ in range(1000):
        if len(world.worker.held) == world.running():
            return
        threading.Event().wait(0.001)
    raise AssertionError("a merge waits at the warehouse")


def test_no_more_merges_start_than_run_at_once() -> None:
    """The warehouse runs four of them beside other tasks: what is chosen fifth is chosen when a place is free."""
    world = MaintenanceWorld(threads=16)
    world.worker.is_holding = True
    for number in range(6):
        for _ in range(10):
            world.insert(f"p{number}")
    for _ in range(30):
        world.clock.advance(1.0)
        world.turn()
        wait_for_tasks(world)
    assert len(world.worker.held) == 4
    assert sum(run.name.startswith("MERGE") for run in world.manager.runs()) == 4
    world.worker.let_go()
    world.settle()
    for _ in range(5):
        world.work(1.0)
    assert world.worker.merges >= 6
