"""Merges that are cut into key ranges, over a memory catalog: what becomes of the ranges afterwards.

The worker makes ranges of as many rows each.

Modules: maintenance/merge/choice.py, maintenance/work/attempt.py.
"""

from __future__ import annotations

import pytest

from tests.maintenance_world import MaintenanceWorld, aborted
from tilth.base.errors import UnavailableError
from tilth.base.settings import read_settings
from tilth.maintenance import ManagerSettings
from tilth.maintenance.one_part.task_spark import MergeTask
from tilth.model.part import Part

#: Rows of 100 bytes: a merge of more than 20 rows is cut.
SETTINGS = {"merge_task_bytes": "2000", "old_parts_lifetime": "0"}
CUT = "key ranges, a task each: more than merge_task_bytes, 2.0 KiB"


@pytest.fixture
def world() -> MaintenanceWorld:
    world = MaintenanceWorld()
    world.t = world.table("cut", settings=SETTINGS)
    return world


def shown(world: MaintenanceWorld) -> list[Part]:
    return world.catalog.parts.visible(world.t, "a")


def filled(world: MaintenanceWorld, parts: int = 10, *, rows: int = 10) -> list[Part]:
    return [part for _ in range(parts) for part in world.insert("a", table=world.t, rows=rows)]


def counted(world: MaintenanceWorld) -> int:
    return world.catalog.parts.counts(world.t)["a"]


def test_ranges_are_not_merged_with_each_other_again(world: MaintenanceWorld) -> None:
    filled(world)
    world.work()
    ranges = shown(world)
    assert (len(ranges), counted(world), world.worker.merges) == (5, 1, 1)
    assert len({part.cut for part in ranges}) == 1
    assert len(world.rows(world.t)) == 100
    # However old they become, and whatever an OPTIMIZE would do for it.
    for hours in (1, 24, 24 * 90):
        world.work(hours * 3600)
    world.manager.optimize(world.t, "a", final=True)
    assert (shown(world), world.worker.merges) == (ranges, 1)


def test_the_log_says_into_how_many_ranges_a_merge_was_cut_and_why(world: MaintenanceWorld) -> None:
    before = filled(world)
    world.work()
    [event] = [each for each in world.catalog.part_log.recent(limit=100) if each.event == "merge"]
    assert (event.sources, event.rows) == (len(before), 100)
    assert f"cut into 5 {CUT}" in event.reason
    [run] = [run for run in world.manager.runs() if run.name.startswith("MERGE")]
    assert "by 5 tasks" in run.about
    assert world.manager.numbers().merge_ranges == 5


@pytest.mark.parametrize(("ranges", "told"), [(1, "it was not cut"), (3, "only 3 key ranges")])
def test_keys_may_give_fewer_ranges(world: MaintenanceWorld, ranges: int, told: str) -> None:
    world.worker.ranges_max = ranges
    filled(world)
    world.work()
    assert (len(shown(world)), counted(world)) == (ranges, 1)
    assert {bool(part.cut) for part in shown(world)} == {ranges > 1}
    [event] = [each for each in world.catalog.part_log.recent(limit=100) if each.event == "merge"]
    assert event.reason.endswith(f"2.0 KiB; {told}, because a test")


def test_ranges_are_merged_with_others_as_one_part(world: MaintenanceWorld) -> None:
    filled(world)
    world.work()
    first = shown(world)
    filled(world, 9, rows=1)
    world.work(2)
    # The policy `size_tiered` counts it as one part of 100 rows, and the small ones are merged alone.
    assert shown(world)[:5] == first
    assert counted(world) == 2
    [row] = [row for row in world.manager.explain_merge(world.t) if row.state != "running"]
    assert (row.parts, row.rows) == (6, 109)
    assert "1 of them in 5 key ranges" in row.reason
    world.manager.optimize(world.t, "a", final=True)
    assert (len(shown(world)), counted(world)) == (6, 1)
    assert not {part.name for part in first} & {part.name for part in shown(world)}
    assert len(world.rows(world.t)) == 109
    would_run = filled(world, 30)
    assert would_run
    [row] = [row for row in world.manager.explain_merge(world.t) if row.state == "would run"]
    assert CUT in row.reason


def test_small_merges_and_other_tables_see_no_change(world: MaintenanceWorld) -> None:
    filled(world, 10, rows=2)
    plain = world.table("plain")
    for _ in range(10):
        world.insert("a", table=plain)
    world.work()
    assert [part.cut for part in shown(world)] == [0]
    [part] = world.catalog.parts.visible(plain, "a")
    assert (part.cut, part.rows) == (0, 100)


def test_changes_that_come_meanwhile_reach_the_range_of_each_row(world: MaintenanceWorld) -> None:
    parts = filled(world)

    def erase(task: MergeTask) -> None:
        world.worker.on_merge = lambda _: None
        world.erase((parts[1], 0), (parts[4], 9), (parts[9], 5), table=world.t)

    world.worker.on_merge = erase
    world.work()
    assert (len(shown(world)), len(world.rows(world.t))) == (5, 97)
    changed = {target.file for delta in world.catalog.parts.deltas(world.t) for target in delta.targets}
    assert len(changed) == 3
    # Each is folded alone when it is old; the other ranges stay as they are.
    before = {part.file.name for part in shown(world)}
    world.work(5 * 3600)
    after = {part.file.name for part in shown(world)}
    assert before - after == changed
    assert (len(after), counted(world), len(world.rows(world.t))) == (5, 1, 97)
    assert world.catalog.parts.deltas(world.t) == []
    assert len({part.cut for part in shown(world)}) == 1


def test_a_merge_that_fails_leaves_nothing_and_may_have_written_all_ranges(world: MaintenanceWorld) -> None:
    parts = filled(world)
    world.worker.errors = [UnavailableError("no space left on device", path="p")]
    outputs: list[int] = []
    world.worker.on_merge = lambda task: outputs.extend(
        output.tasks for txn in world.catalog.transactions.unfinished() for output in txn.outputs
    )
    world.work()
    assert shown(world) == parts
    # Files of all five are swept by name.
    assert outputs == [5]
    assert aborted(world) == ["merge default.cut"]


def test_a_mutation_goes_through_the_ranges_and_they_stay_together(world: MaintenanceWorld) -> None:
    filled(world)
    world.work()
    group = {part.cut for part in shown(world)}
    world.alter_delete("a is odd", table=world.t)
    world.work()
    assert {part.cut for part in shown(world)} == group
    assert (len(shown(world)), counted(world), len(world.rows(world.t))) == (5, 1, 50)
    # A range without rows is gone, the others are one part as before.
    world.alter_delete("true", table=world.t)
    world.work()
    assert (counted(world), world.rows(world.t)) == (0, [])


def test_no_range_is_merged_without_the_others_while_one_is_busy(world: MaintenanceWorld) -> None:
    filled(world)
    world.work()
    ranges = shown(world)
    filled(world, 30)
    world.worker.is_holding = True
    # A mutation that waits for its worker has reserved one range.
    entry = world.alter_delete("a is odd", table=world.t)
    # A round of PART_GC may come before it.
    for _ in range(2):
        if not world.worker.held:
            world.turn()
    world.worker.let_go()
    world.settle()
    world.work(2)
    assert world.mutation(entry, world.t).parts_done == len(ranges) + 30
    # Then all are merged at once.
    assert counted(world) == 1
    [group] = {part.cut for part in shown(world)}
    assert group not in {part.cut for part in ranges}
    assert len(world.rows(world.t)) == 200


def test_a_table_by_key_is_not_cut_into_parts_that_count_as_small(world: MaintenanceWorld) -> None:
    settings = {**SETTINGS, "merge_policy": "key_range", "budgeted_compaction_target_rowset_size": "2000"}
    world.t = world.table("by_key", settings=settings)
    filled(world)
    world.manager.optimize(world.t, "a", final=True)
    # A range has twice 2000 bytes at least.
    assert [part.rows for part in shown(world)] == [50, 50]
    merges = world.worker.merges
    world.work(24 * 3600)
    assert world.worker.merges == merges


def test_the_setting_of_the_node_counts_where_the_table_has_none() -> None:
    world = MaintenanceWorld()
    world.manager = world.new_manager(settings=read_settings(ManagerSettings, {"merge_task_bytes": "500"}))
    for _ in range(10):
        world.insert("a")
    world.work()
    assert [part.rows for part in world.catalog.parts.visible(world.t, "a")] == [5] * 20
