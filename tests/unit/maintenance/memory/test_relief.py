"""Memory that nobody uses is given back under pressure, and seldom where that gives little.

Rules: docs/policies/scheduling.md#memory-pressure.
"""

from __future__ import annotations

import pyarrow as pa

from tests.maintenance_world import MaintenanceWorld
from tilth.base.memory import MemoryReading
from tilth.maintenance.memory.relief import PERIOD_SECONDS, MemoryRelief
from tilth.storage import release_unused
from tilth.testing import ManualClock

WAIT_SECONDS = 10.0


class Host:
    """A process of 85 bytes with a limit of 100."""

    def __init__(self, *, unused: int) -> None:
        self.clock = ManualClock()
        self.used, self.unused, self.tries = 85, unused, 0
        self.told: list[str] = []
        acts = [self.fail, self.release]
        self.relief = MemoryRelief(self.clock, acts, read=lambda: self.used, pressure_percent=60, log=self.told.append)

    def fail(self) -> None:
        raise ConnectionError("no JVM")

    def release(self) -> None:
        self.tries += 1
        self.used -= self.unused

    def look(self, seconds: float = 0.0, limit: int | None = 100) -> int:
        self.clock.advance(seconds)
        self.relief.relieve(MemoryReading(used=self.used, hard=limit))
        self.relief.wait(WAIT_SECONDS)
        return self.tries


def test_it_is_tried_under_pressure_alone() -> None:
    host = Host(unused=20)
    assert host.look(limit=None) == 0
    assert host.look(limit=1000) == 0
    # One act that fails does not keep the others from theirs.
    assert host.look() == 1
    [told] = host.told
    assert told.startswith(
        "under memory pressure (85.00% used), 20 B that nobody used were given back, 65 B are in use"
    )
    assert host.look() == 1
    assert host.look(PERIOD_SECONDS) == 2
    # Enough was given back.
    assert host.look(PERIOD_SECONDS) == 2


def test_a_try_that_gave_little_is_followed_by_a_later_one() -> None:
    host = Host(unused=0)
    assert host.look() == 1
    assert host.look(PERIOD_SECONDS) == 1
    assert host.look(PERIOD_SECONDS) == 2
    assert host.look(2 * PERIOD_SECONDS) == 2
    assert host.look(2 * PERIOD_SECONDS) == 3
    for _ in range(20):
        host.look(3600)
    assert "the next try is in 960 s at the earliest" in host.told[-1]


def test_the_manager_says_what_came_of_it() -> None:
    world = MaintenanceWorld()
    tries: list[int] = []
    world.manager.add_memory_relief(lambda: tries.append(1))
    world.manager._relief.relieve(MemoryReading(used=90, hard=100))
    world.manager._relief.wait(WAIT_SECONDS)
    assert tries == [1]
    row = world.manager.choices()[0]
    assert (row.op, row.rule) == ("RELEASE_MEMORY", "memory_pressure")


def test_what_arrow_and_the_allocator_keep_is_released() -> None:
    held = [pa.array(range(100_000)) for _ in range(50)]
    before = pa.total_allocated_bytes()
    del held
    release_unused()
    assert pa.total_allocated_bytes() < before
