"""Rows whose TTL has ended leave parts that no other merge takes, within `merge_with_ttl_timeout`.

Rules: docs/policies/size-tiered.md#merges-of-one-part.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.maintenance_world import MaintenanceWorld
from tilth.catalog import InsertPart
from tilth.maintenance.merge.policy.candidates import CandidatePart, MergeRefusal, MergeSelection
from tilth.maintenance.merge.policy.lone import with_expired_rows
from tilth.maintenance.one_part.task_spark import MergeTask
from tilth.model.part import ColumnRange
from tilth.model.service import ServiceKind, Switch, SwitchState
from tilth.storage import Expiry

DAY_MS = 86_400_000
TIMEOUT = 14_400


@pytest.fixture
def world() -> MaintenanceWorld:
    """Ten minutes after midnight."""
    world = MaintenanceWorld()
    world.clock.advance((DAY_MS - world.clock.now_ms() % DAY_MS) / 1000 + 600)
    return world


def today(world: MaintenanceWorld) -> int:
    return world.clock.now_ms() // DAY_MS


def insert(world: MaintenanceWorld, table: str, partition: str, *days: int, rows: int = 10) -> None:
    """Insert a part with rows of so many days after today, the first and the last."""
    known = ColumnRange(today(world) + days[0], today(world) + days[-1], 0)
    written = msgspec.structs.replace(world.written(partition, rows=rows), ranges={"d": known})
    world.commit(InsertPart(table=table, written=written))


def merged(world: MaintenanceWorld) -> list[MergeTask]:
    tasks: list[MergeTask] = []
    world.worker.on_merge = tasks.append
    return tasks


def work_until(world: MaintenanceWorld, seconds: float) -> None:
    """Let the manager work whenever it wants to until so many seconds have passed."""
    for _ in range(int(seconds // 600)):
        world.work(600)
    world.work(seconds % 600)


def alter(world: MaintenanceWorld, table: str, **settings: str) -> None:
    world.catalog.tables.modify_settings(table, settings)
    world.manager.wake()


def test_an_old_part_loses_its_rows_soon_after_they_expire(world: MaintenanceWorld) -> None:
    aged = world.aging_table()
    tasks = merged(world)
    insert(world, aged, "a", 0, 100)
    midnight = (DAY_MS - world.clock.now_ms() % DAY_MS) / 1000
    work_until(world, midnight - 60)
    assert not tasks
    work_until(world, 120)
    [task] = tasks
    assert task.expired == Expiry(column="d", below=today(world))
    assert any("leaves out expired rows of a part that is" in row.reason for row in world.manager.choices())
    work_until(world, 3600)
    assert len(tasks) == 1


def test_a_young_part_is_written_anew_once_it_is_old_enough(world: MaintenanceWorld) -> None:
    aged = world.aging_table()
    tasks = merged(world)
    insert(world, aged, "a", -5, 100)
    work_until(world, TIMEOUT - 30)
    assert not tasks
    [told] = [row for row in world.manager.explain_merge(aged) if row.state != "would run"]
    assert "some of its rows expired from" in told.reason
    assert "they go with its next merge at " in told.reason
    work_until(world, 60)
    assert len(tasks) == 1


def test_many_partitions_of_a_quiet_table_are_served(world: MaintenanceWorld) -> None:
    aged = world.aging_table()
    for number in range(35):
        insert(world, aged, f"p{number}", -5, 100)
    # Rotation reaches all partitions, then the table is quiet.
    work_until(world, TIMEOUT - 600)
    tasks = merged(world)
    work_until(world, 1500)
    assert sorted(task.partition for task in tasks) == sorted(f"p{number}" for number in range(35))


def test_parts_beside_others_lose_their_rows_too(world: MaintenanceWorld) -> None:
    aged = world.aging_table()
    alter(world, aged, cnch_merge_max_total_bytes_to_merge="1500")
    tasks = merged(world)
    insert(world, aged, "a", -5, 100)
    insert(world, aged, "a", 1, 100)
    work_until(world, TIMEOUT + 60)
    assert [len(task.sources) for task in tasks] == [1]


def test_whole_parts_only(world: MaintenanceWorld) -> None:
    aged = world.aging_table()
    alter(world, aged, ttl_only_drop_parts="1")
    tasks = merged(world)
    insert(world, aged, "a", -5, 100)
    insert(world, aged, "b", -9, -5)
    insert(world, aged, "b", 1, 1)
    world.work()
    # All rows of the first part of b have expired: it goes at once, however young.
    assert [(task.partition, len(task.sources)) for task in tasks] == [("b", 1)]
    work_until(world, 2 * TIMEOUT)
    assert "a" not in {task.partition for task in tasks}


def test_no_row_expires_while_the_clock_is_in_doubt(world: MaintenanceWorld) -> None:
    aged = world.aging_table()
    tasks = merged(world)
    insert(world, aged, "a", -5, 100)
    world.catalog.clock_check.compare(90_000, doubt_ms=0, bound_ms=500)
    work_until(world, TIMEOUT + 60)
    assert not tasks


def test_a_partition_about_to_be_dropped_is_left_alone(world: MaintenanceWorld) -> None:
    aged = world.aging_table()
    world.catalog.services.set(
        Switch(table=aged, service=ServiceKind.GC, state=SwitchState.STOPPED, since_ms=0, because="a test")
    )
    tasks = merged(world)
    insert(world, aged, "a", -9, -5)
    work_until(world, TIMEOUT + 60)
    assert not tasks


def candidate(name: str, *, is_due: bool = True) -> CandidatePart:
    return CandidatePart(
        name=name, partition="a", size=1, rows=1, age=1.0, has_expired_rows=is_due, columns_commit_time=1
    )


def test_parts_under_merge_or_chosen_already_are_not_written_twice() -> None:
    parts = [candidate("a_1_1_0_0"), candidate("a_2_2_0_0"), candidate("a_3_3_0_0", is_due=False)]
    refusal = MergeRefusal(partition="a", reason="only one part", should_postpone=True)
    found = with_expired_rows(MergeSelection(refusals=(refusal,)), parts, being_merged={"a_1_1_0_0"})
    assert [spec.parts for spec in found.specs] == [("a_2_2_0_0",)]
    assert found.refusals == ()
    again = with_expired_rows(found, parts, being_merged={"a_1_1_0_0"})
    assert again == found
