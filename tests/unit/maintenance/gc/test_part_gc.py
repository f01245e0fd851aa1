"""Collecting over a memory catalog: two phases, what holds them back, and what is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from tests.maintenance_world import MaintenanceWorld
from tilth.base.errors import NotFoundError
from tilth.catalog import HideEverything, HidePartition, NothingToUndropError, RestorePartition
from tilth.maintenance.gc import explain_gc
from tilth.maintenance.gc import move as gc_move
from tilth.maintenance.gc import trash as gc_trash
from tilth.maintenance.gc.policy import Cutoff, GcEntry, GcHold, Verdict, plan_moves
from tilth.maintenance.table.settings import GcSettings
from tilth.model.part import DataFile
from tilth.model.service import ServiceKind, Switch, SwitchState
from tilth.storage import StoreRoot


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
    world.work(1900)
    assert (entries(world), trash(world)) == (21, 0)
    assert "what is hidden in 1 partitions waits, of the first for 1700 s more" in world.service(ServiceKind.GC).reason
    # Data first; the marks only in a later round.
    world.work(1800)
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
    lease = world.catalog.readers.open(world.t, before.ts, "q", 7_200_000)
    world.work(4000)
    report = world.manager.gc_now(world.t)
    assert (report.moved, entries(world)) == (0, 21)
    assert "the oldest reader" in report.reason
    world.catalog.readers.close(lease)
    assert world.manager.gc_now(world.t).moved == 20
    assert (entries(world), trash(world)) == (1, 10)


def test_a_snapshot_in_use_keeps_files_in_the_trash(world: MaintenanceWorld) -> None:
    world.work(4000)
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
    world.commit(HideEverything(table=world.t))
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

    def remove(root: StoreRoot, table: str, files: Sequence[DataFile], *, deleters: int) -> dict[str, OSError]:
        if not bad:
            bad.add(files[0].name)
        return {each.name: PermissionError(13, "not allowed", each.name) for each in files if each.name in bad}

    monkeypatch.setattr(gc_trash, "remove_data", remove)
    world.work(4000)
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


def test_history_and_lifetime_both_hold_and_history_can_be_given_up() -> None:
    world = MaintenanceWorld()
    world.catalog.tables.modify_settings(world.t, {"tablet_history_max_age_sec": "-1"}, ())
    for _ in range(10):
        world.insert("a")
    world.work()
    world.work(1700)
    assert "old_parts_lifetime" in world.manager.gc_now(world.t).reason
    world.work(200)
    assert entries(world) == 11


def test_after_a_restart_what_was_hidden_before_is_found(world: MaintenanceWorld) -> None:
    world.manager = world.new_manager()
    world.work(2000)
    world.work(2000)
    world.work(60)
    assert (entries(world), trash(world)) == (1, 10)


def test_while_nothing_can_move_entries_are_not_read_again(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round is skipped if gc_ts has not risen since: docs/policies/part-gc.md#phase-1-record-to-trash."""
    txn = world.catalog.transactions.open("long")
    world.commit(HidePartition(table=world.t, partition="a"))
    looks: list[int] = []

    def counted(entries: Iterable[GcEntry], limit: Cutoff, *, settings: GcSettings) -> tuple[Verdict, ...]:
        looks.append(limit.gc_ts)
        return plan_moves(entries, limit, settings=settings)

    monkeypatch.setattr(gc_move, "plan_moves", counted)
    for _ in range(100):
        world.work(60)
    # At first, when their time had come, the marks after that, and what the drop hid, once for each hour.
    assert len(looks) <= 6
    assert trash(world) == 10
    assert f"held back by {GcHold.TRANSACTION}" in world.service(ServiceKind.GC).reason
    world.catalog.transactions.abort(txn.id, "gone")
    world.work(60)
    assert trash(world) == 11


def test_of_one_partition(world: MaintenanceWorld) -> None:
    world.merge([part for _ in range(10) for part in world.insert("b")])
    world.clock.advance(4000)
    report = world.manager.gc_now(world.t, "b")
    assert (report.partitions, report.moved) == (1, 20)
    assert {item.item.part.name.partition for item in world.catalog.trash.items(limit=100)[0]} == {"b"}
    world.clock.advance(20_000)
    world.manager.gc_now(world.t, "a")
    assert trash(world) == 10
    report = world.manager.gc_now(world.t, "b", is_forced=True)
    assert (report.removed, trash(world)) == (10, 0)
    with pytest.raises(NotFoundError):
        world.manager.gc_now(world.t, "c")


def test_phase_two_goes_on_where_it_was_after_a_restart() -> None:
    """docs/policies/part-gc.md#phase-2-trash-to-nothing"""
    world = MaintenanceWorld()
    small = {"gc_remove_part_batch_size": "2", "gc_remove_part_thread_pool_size": "1"}
    world.catalog.tables.modify_settings(world.t, small, ())
    for _ in range(10):
        world.insert("a")
    world.work()
    world.clock.advance(4000)
    world.manager.gc_now(world.t)
    world.clock.advance(8000)
    lease = world.catalog.readers.open(world.t, world.catalog.clock.now(), "q", 99_000_000)
    world.manager = world.new_manager()
    # A first look; it takes two items.
    while not world.catalog.state.get(f"maintenance/trash/{world.t}"):
        if not world.turn():
            world.clock.advance(1)
    assert trash(world) == 8
    world.catalog.readers.close(lease)
    world.manager = world.new_manager()
    for _ in range(6):
        world.work(20)
    assert trash(world) == 0


def test_what_undrop_may_bring_back_is_claimed_before_its_file_goes(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit(HidePartition(table=world.t, partition="a"))
    world.clock.advance(4000)
    world.manager.gc_now(world.t)
    assert [item.item.is_dropped for item in world.catalog.trash.items(limit=100)[0]].count(True) == 1
    refused: list[str] = []

    def remove(root: StoreRoot, table: str, files: Sequence[DataFile], *, deleters: int) -> dict[str, OSError]:
        try:
            world.commit(RestorePartition(table=world.t, partition="a"))
        except NothingToUndropError as error:
            refused.extend(error.code for _ in files)
        return {}

    monkeypatch.setattr(gc_trash, "remove_data", remove)
    world.clock.advance(8000)
    assert world.manager.gc_now(world.t).removed == 11
    assert len(refused) == 11
    assert world.visible_count() == 0


def test_dropped_comes_back_while_it_is_in_the_trash(world: MaintenanceWorld) -> None:
    world.commit(HidePartition(table=world.t, partition="a"))
    world.clock.advance(4000)
    assert world.manager.gc_now(world.t).moved > 0
    world.commit(RestorePartition(table=world.t, partition="a"))
    world.clock.advance(8000)
    # The ten that were merged go; what came back stays.
    assert world.manager.gc_now(world.t).removed == 10
    assert world.visible_count() == 1


def test_explain_shows_what_keeps_each_entry(world: MaintenanceWorld) -> None:
    lease = world.catalog.readers.open(world.t, world.catalog.clock.now(), "q", 99_000_000)
    kinds = [(row.kind, row.state, row.held_by) for row in world.manager.explain_gc(world.t)]
    assert kinds.count(("part", "hidden", GcHold.HISTORY)) == 10
    assert kinds.count(("mark", "in force", "what it hides")) == 10
    assert kinds[20:] == [("part", "visible", "the table")]
    now_ms = world.clock.now_ms()
    assert {row.until_ms for row in world.manager.explain_gc(world.t) if row.state == "hidden"} == {now_ms + 3_600_001}
    world.commit(HidePartition(table=world.t, partition="a"))
    world.clock.advance(4000)
    rows = world.manager.explain_gc(world.t)
    assert [row.state for row in rows].count("removable") == 10
    assert [(row.held_by, row.until_ms) for row in rows if row.state == "hidden"] == [
        (f"reader {lease.id}", lease.expires_ms)
    ]
    txn = world.catalog.transactions.open("long")
    world.catalog.readers.close(lease)
    world.manager.gc_now(world.t)
    rows = world.manager.explain_gc(world.t)
    trashed = [row for row in rows if row.kind == "trash"]
    assert {(row.state, row.held_by) for row in trashed} == {("in trash", GcHold.TRASH_LIFETIME)}
    assert sum("UNDROP PARTITION can bring it back" in row.reason for row in trashed) == 1
    assert len(trashed) == len(rows) == 11
    world.clock.advance(20_000)
    assert {row.state for row in world.manager.explain_gc(world.t) if row.kind == "trash"} == {"removable"}
    world.catalog.transactions.abort(txn.id, "gone")


def test_explain_says_that_there_are_more(world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_gc, "ROWS_MAX", 15)
    rows = world.manager.explain_gc(world.t)
    assert len(rows) == 16
    assert rows[-1].reason.startswith("6 more are not shown")
