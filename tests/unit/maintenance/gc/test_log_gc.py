"""Flushed segments go when nothing needs them any more, and not before. docs/policies/log-gc.md."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.delta_world import DeltaWorld
from tilth.base.errors import UnavailableError
from tilth.catalog import HidePartition, InsertPart, RestorePartition
from tilth.maintenance.gc import trash as gc_trash
from tilth.maintenance.gc.op import GcOp
from tilth.maintenance.kinds import IoUsage, OpKind
from tilth.model.part import DataFile, Entry, Part
from tilth.model.service import ServiceKind
from tilth.storage import StoreRoot

#: As long as the past can be read by default.
HISTORY_SECONDS = 3600


@pytest.fixture
def world() -> DeltaWorld:
    world = DeltaWorld()
    world.stop(ServiceKind.FLUSH)
    return world


def segments(world: DeltaWorld) -> int:
    """Entries of the table and of its trash."""
    stored = [each for each in world.catalog.parts.all_entries(world.t) if isinstance(each, Part)]
    trashed = [item.item.part for item in world.catalog.trash.items(limit=100)[0]]
    return sum(part.is_segment for part in (*stored, *trashed))


def removed(world: DeltaWorld) -> int:
    return world.manager.numbers().removed


def test_rows_that_are_not_flushed_are_never_removed(world: DeltaWorld) -> None:
    """Three inserts and no flush: nothing is removed."""
    for _ in range(3):
        world.row_segment()
    for _ in range(5):
        world.work(HISTORY_SECONDS)
    assert (segments(world), world.live_rows(), removed(world)) == (3, 30, 0)


def test_flushed_segments_go_with_their_past(world: DeltaWorld) -> None:
    """After FLUSH they are removed when no allowed read needs them."""
    flushed = [world.row_segment(), world.row_segment()]
    later = world.row_segment()
    part = world.merged(*flushed)
    # The first look comes soon after.
    world.work(1)
    world.work(HISTORY_SECONDS - 2)
    assert (segments(world), removed(world)) == (3, 0)
    assert world.row(OpKind.LOG_GC).stats.about == "flushed segments with 2.0 KiB wait until nothing needs them"
    world.work(2)
    # Not by way of the trash, which is for what may come back.
    assert (segments(world), removed(world)) == (1, 2)
    assert world.names() == [part.name, later.name]
    assert world.live_rows() == 30
    # The marks over them go as those over parts do.
    world.work(60)
    assert [entry.name for entry in world.catalog.parts.all_entries(world.t)] == [part.name, later.name]
    assert world.manager.numbers().ops[OpKind.LOG_GC].ended == 1


def test_collecting_the_log_goes_before_anything_else(world: DeltaWorld) -> None:
    world.merged(world.row_segment(), world.row_segment())
    world.work()
    world.clock.advance(HISTORY_SECONDS + 1)
    op = next(op for table in world.manager._registry.all() for op in table.ops if op.kind is OpKind.LOG_GC)
    assert isinstance(op, GcOp)
    stats = op.stats()
    assert stats is not None
    assert (stats.io, stats.is_runnable, stats.data_retained_bytes) == (IoUsage.LOW, True, 0)
    assert stats.logs_retained_bytes > 0
    world.turn()
    assert world.manager.runs()[0].name == "LOG_GC(default.t)"


def test_a_reader_holds_what_it_reads(world: DeltaWorld) -> None:
    sources = world.row_segment(), world.row_segment()
    lease = world.catalog.readers.open(world.t, world.catalog.parts.snapshot(world.t).ts, "q", 99_000_000)
    world.merged(*sources)
    # Longer than a reader holds up collecting as a whole, the files of its own snapshot stay.
    for _ in range(4):
        world.work(HISTORY_SECONDS)
    assert (segments(world), removed(world)) == (2, 0)
    assert "LOG_GC: flushed segments with 2.0 KiB wait" in world.service(ServiceKind.GC).reason
    world.catalog.readers.close(lease)
    world.work(60)
    assert (segments(world), removed(world)) == (0, 2)


def test_a_running_transaction_holds_what_it_may_read(world: DeltaWorld) -> None:
    """A write that is still pending: nothing is removed."""
    sources = world.row_segment(), world.row_segment()
    txn = world.catalog.transactions.open("long")
    world.merged(*sources)
    world.work(HISTORY_SECONDS + 60)
    assert (segments(world), removed(world)) == (2, 0)
    world.catalog.transactions.abort(txn.id, "over")
    world.work(60)
    assert (segments(world), removed(world)) == (0, 2)


def test_without_history_they_wait_for_readers_and_transactions_only() -> None:
    world = DeltaWorld({"tablet_history_max_age_sec": "0", "cleanup_delay_period": "1"})
    world.stop(ServiceKind.FLUSH)
    world.merged(world.row_segment(), world.row_segment())
    world.work(2)
    assert (segments(world), removed(world)) == (0, 2)


def test_a_table_that_promises_no_history_keeps_them_for_readers_without_a_lease() -> None:
    world = DeltaWorld({"tablet_history_max_age_sec": "-1", "old_parts_lifetime": "600"})
    world.stop(ServiceKind.FLUSH)
    world.merged(world.row_segment(), world.row_segment())
    world.work(599)
    assert segments(world) == 2
    world.work(3)
    assert segments(world) == 0


def test_dropped_segments_wait_in_the_trash_and_come_back(world: DeltaWorld) -> None:
    world.row_segment()
    world.commit(HidePartition(table=world.t, partition="all"))
    for _ in range(2):
        world.work(HISTORY_SECONDS + 60)
    assert (segments(world), removed(world)) == (1, 0)
    world.commit(RestorePartition(table=world.t, partition="all"))
    assert world.live_rows() == 10
    world.commit(HidePartition(table=world.t, partition="all"))
    for _ in range(6):
        world.work(HISTORY_SECONDS)
    assert (segments(world), removed(world)) == (0, 1)


def test_what_an_earlier_server_left_is_found(world: DeltaWorld) -> None:
    world.merged(world.row_segment(), world.row_segment())
    world.clock.advance(HISTORY_SECONDS + 1)
    # An hour of events is not read again by a server that starts much later.
    world.clock.advance(4 * 86_400)
    world.manager = world.new_manager()
    world.work()
    world.work(30)
    world.work(60)
    assert segments(world) == 0


def test_a_file_that_cannot_be_removed_is_reported_and_tried_again(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_broken = [True]

    def remove(root: StoreRoot, table: str, files: Sequence[DataFile], *, deleters: int) -> dict[str, OSError]:
        if not is_broken[0]:
            return {}
        return {each.name: PermissionError(13, "not allowed") for each in files if each.name.endswith(".arrow")}

    monkeypatch.setattr(gc_trash, "remove_data", remove)
    world.merged(world.row_segment(), world.row_segment())
    world.work(HISTORY_SECONDS + 1)
    service = world.service(ServiceKind.GC)
    assert (service.state, removed(world)) == ("failed", 0)
    assert "a file cannot be removed" in service.last_exception
    is_broken[0] = False
    # They are in the trash, and go as everything there does.
    world.work(3 * HISTORY_SECONDS)
    world.work(60)
    assert (segments(world), removed(world)) == (0, 2)


def test_what_failed_is_tried_again(world: DeltaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Exception] = [UnavailableError("the store is away")]
    entries = world.catalog.parts.entries

    def broken(table: str, partition: str) -> list[Entry]:
        if errors and world.running():
            raise errors.pop()
        return entries(table, partition)

    world.merged(world.row_segment(), world.row_segment())
    world.work()
    monkeypatch.setattr(world.catalog.parts, "entries", broken)
    world.work(HISTORY_SECONDS + 1)
    assert errors == []
    assert world.service(ServiceKind.GC).failures == 1
    world.work(2)
    assert (segments(world), removed(world)) == (0, 2)


def test_a_command_collects_them_too(world: DeltaWorld) -> None:
    world.merged(world.row_segment(), world.row_segment())
    assert world.manager.gc_now(world.t).removed == 0
    world.clock.advance(1)
    report = world.manager.gc_now(world.t, is_forced=True)
    assert (report.removed, report.moved) == (2, 4)
    assert len(list(world.catalog.parts.all_entries(world.t))) == 1


def test_it_can_be_switched_off() -> None:
    world = DeltaWorld(enable_log_gc="false")
    world.stop(ServiceKind.FLUSH)
    world.merged(world.row_segment(), world.row_segment())
    for _ in range(3):
        world.work(HISTORY_SECONDS)
    assert segments(world) == 2
    assert world.row(OpKind.LOG_GC).stats.about == "enable_log_gc is off"


def test_parts_are_left_to_the_collecting_of_parts(world: DeltaWorld) -> None:
    one, two = world.commit(
        InsertPart(table=world.t, written=world.written()), InsertPart(table=world.t, written=world.written())
    )
    world.merged(one, two)
    world.work(HISTORY_SECONDS + 1)
    assert world.manager.numbers().ops[OpKind.LOG_GC].ended == 0
