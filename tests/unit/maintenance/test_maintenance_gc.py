"""Collecting over a memory catalog: two phases, what holds them back, and what is told."""

from __future__ import annotations

import pytest

from tests.maintenance_world import MaintenanceWorld
from tilth.catalog import TruncateTable
from tilth.maintenance.ops import part_gc
from tilth.model.part import DataFile
from tilth.model.service import ServiceKind, Switch, SwitchState


@pytest.fixture
def world() -> MaintenanceWorld:
    world = MaintenanceWorld()
    for _ in range(10):
        world.insert("a")
    world.work()
    assert world.visible_count() == 1
    return world


def entries(world: MaintenanceWorld) -> int:
    return len(list(world.catalog.parts.all_entries(world.t)))


def trash(world: MaintenanceWorld) -> int:
    return len(world.catalog.trash.items(limit=100)[0])


def test_sources_go_to_the_trash_then_their_files_then_their_marks(world: MaintenanceWorld) -> None:
    assert entries(world) == 21
    world.work(1000)
    assert (entries(world), trash(world)) == (21, 0)
    assert "held back by old_parts_lifetime" in world.service(ServiceKind.GC).reason
    # Data first; the marks only in a later round.
    world.work(900)
    assert (entries(world), trash(world)) == (11, 10)
    world.work(60)
    assert (entries(world), trash(world)) == (1, 10)
    for _ in range(4):
        world.work(3000)
    assert (entries(world), trash(world)) == (1, 0)
    assert world.service(ServiceKind.GC).state == "idle"
    told = [event.event for event in world.catalog.part_log.recent(limit=100)]
    assert (told.count("trash"), told.count("remove")) == (10, 10)
    # All is collected: an idle table costs one look an hour.
    wakeups = world.service(ServiceKind.GC).wakeups
    for _ in range(5 * 60):
        world.work(60)
    assert world.service(ServiceKind.GC).wakeups <= wakeups + 5


def test_a_reader_and_a_transaction_hold_it_back(world: MaintenanceWorld) -> None:
    before = world.catalog.parts.snapshot(world.t, at=world.catalog.part_log.recent(limit=1)[0].at_ms << 18)
    lease = world.catalog.readers.open(world.t, before.ts, "q", 3_600_000)
    world.work(2000)
    report = world.manager.gc_now(world.t)
    assert (report.moved, entries(world)) == (0, 21)
    assert "the oldest reader" in report.reason
    world.catalog.readers.close(lease)
    assert world.manager.gc_now(world.t).moved == 20
    assert (entries(world), trash(world)) == (1, 10)


def test_a_snapshot_in_use_keeps_files_in_the_trash(world: MaintenanceWorld) -> None:
    world.work(2000)
    world.work(60)
    newest = max(item.item.part.commit_ts for item in world.catalog.trash.items(limit=100)[0])
    lease = world.catalog.readers.open(world.t, newest, "q", 99_000_000)
    world.work(20_000)
    report = world.manager.gc_now(world.t)
    assert report.removed == 0
    assert "reads it" in report.reason
    world.catalog.readers.close(lease)
    report = world.manager.gc_now(world.t)
    assert (report.removed, report.removed_bytes, trash(world)) == (10, 10_000, 0)


def test_force_takes_the_lifetimes_for_nothing(world: MaintenanceWorld) -> None:
    world.clock.advance(1)
    report = world.manager.gc_now(world.t, is_forced=True)
    assert (report.moved, report.removed, report.kept, report.in_trash) == (20, 10, 0, 0)
    assert (entries(world), trash(world), world.visible_count()) == (1, 0, 1)


def test_a_truncated_table_loses_entries_ranges_and_at_last_its_partition(world: MaintenanceWorld) -> None:
    world.commit(TruncateTable(table=world.t))
    for _ in range(12):
        world.work(3600)
    assert (entries(world), trash(world)) == (0, 0)
    for _ in range(12):
        world.work(3600)
    assert world.catalog.parts.partitions(world.t) == []


def test_a_file_that_cannot_be_removed_stays_and_stops_no_other(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad: set[str] = set()

    def remove(root: str, table: str, file: DataFile) -> bool:
        if not bad:
            bad.add(file.name)
        if file.name in bad:
            raise PermissionError(13, "not allowed", file.name)
        return True

    monkeypatch.setattr(part_gc, "remove_file", remove)
    world.work(2000)
    world.work(60)
    for _ in range(4):
        world.work(3000)
    assert trash(world) == 1
    service = world.service(ServiceKind.GC)
    assert service.state == "failed"
    assert "a file cannot be removed" in service.reason
    bad.clear()
    bad.add("none")
    for _ in range(3):
        world.work(600)
    assert trash(world) == 0
    assert world.service(ServiceKind.GC).state == "idle"


def test_a_stopped_service_collects_nothing(world: MaintenanceWorld) -> None:
    switch = Switch(table=world.t, service=ServiceKind.GC, state=SwitchState.STOPPED, since_ms=0)
    world.catalog.services.set(switch)
    world.manager.wake()
    world.work(5000)
    assert (entries(world), trash(world)) == (21, 0)
    assert world.service(ServiceKind.GC).reason == "stopped by the user"


def test_history_keeps_what_the_table_promises() -> None:
    world = MaintenanceWorld()
    world.catalog.tables.modify_settings(world.t, {"tablet_history_max_age_sec": "86400"}, ())
    for _ in range(10):
        world.insert("a")
    world.work()
    world.work(7200)
    report = world.manager.gc_now(world.t)
    assert report.moved == 0
    assert "the ancient history mark" in report.reason
    world.work(86_400)
    world.manager.gc_now(world.t)
    assert entries(world) == 1


def test_after_a_restart_what_was_hidden_before_is_found(world: MaintenanceWorld) -> None:
    world.manager = world.new_manager()
    world.work(1000)
    world.work(2000)
    world.work(60)
    assert (entries(world), trash(world)) == (1, 10)
