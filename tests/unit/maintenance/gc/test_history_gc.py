"""What only reads of the past need goes with that past: deltas, parts without rows, versions.

Rules: docs/policies/history.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.delta_world import DELTA_BYTES, DeltaWorld
from tilth.base.hybrid import milliseconds
from tilth.catalog import HidePartition, InsertLabel, InsertPart, LoadFile, RestorePartition
from tilth.maintenance.gc import history_gc, log_gc
from tilth.maintenance.gc import round as gc_round
from tilth.maintenance.gc.op import FIRST_POLL_MS
from tilth.maintenance.kinds import OpKind
from tilth.model.loaded_file import LoadedFile
from tilth.model.part import DataFile, Part
from tilth.model.service import ServiceKind
from tilth.storage import StoreRoot

HISTORY_SECONDS = 3600
#: World.delta's.
CHANGES_BYTES = 50


@pytest.fixture
def world() -> DeltaWorld:
    return DeltaWorld()


def flushed(world: DeltaWorld) -> None:
    """Lets change segments become old enough to be flushed."""
    world.work(121)


# --- HISTORY_GC ---


def test_compacted_deltas_are_readable_until_their_past_is_over(world: DeltaWorld) -> None:
    """Kept at equality, gone behind it: docs/policies/history.md#what-ties-history-to-collecting."""
    [one] = world.insert(rows=1000)
    world.change((one, 1))
    flushed(world)
    [ended] = [delta for delta in world.all_deltas() if delta.end_ts]
    ancient_ms = milliseconds(ended.end_ts) + HISTORY_SECONDS * 1000
    # The first look comes within so much.
    world.work(FIRST_POLL_MS / 1000)
    assert "HISTORY_GC: ended deltas with 50 B wait" in world.service(ServiceKind.GC).reason
    world.work((ancient_ms - world.clock.now_ms()) / 1000)
    assert ended in world.all_deltas()
    world.work(31)
    assert [delta.kind.value for delta in world.all_deltas()] == ["delete"]
    numbers = world.manager.numbers()
    assert (numbers.ops[OpKind.HISTORY_GC].removed_bytes, numbers.removed) == (CHANGES_BYTES, 1)


def test_counts_of_five_rounds_of_updates_and_major_compactions(world: DeltaWorld) -> None:
    """3 parts, 5 rounds of (update, MAJOR_DELTA): only the columns are left to be read, everything
    else is history: in each round the change segment and the update of each part, and its column of the round before.
    """
    parts = [world.insert(rows=3)[0] for _ in range(3)]
    for _ in range(5):
        world.change(*((part, 0) for part in parts), columns=(1,))
        flushed(world)
        world.work()
    assert world.open() == [("column", 0, 3)] * 3
    history = [delta for delta in world.all_deltas() if delta.end_ts]
    assert len(history) == 5 * (1 + 3) + 4 * 3
    assert world.manager.numbers().ops[OpKind.HISTORY_GC].removed_bytes == 0
    world.work(HISTORY_SECONDS)
    world.work(700)
    assert len(world.all_deltas()) == 3
    assert (
        world.manager.numbers().ops[OpKind.HISTORY_GC].removed_bytes
        == 5 * CHANGES_BYTES + (5 * 3 + 4 * 3) * DELTA_BYTES
    )
    assert world.live_rows() == 9


def test_a_reader_holds_what_it_reads(world: DeltaWorld) -> None:
    [one] = world.insert(rows=1000)
    world.change((one, 1))
    before = world.catalog.parts.snapshot(world.t)
    lease = world.catalog.readers.open(world.t, before.ts, "q", 99_000_000)
    flushed(world)
    for _ in range(4):
        world.work(HISTORY_SECONDS)
    # Longer than a reader holds up collecting as a whole, the files of its own snapshot stay.
    assert len(world.all_deltas()) == 2
    assert "wait until nothing needs them" in world.service(ServiceKind.GC).reason
    world.catalog.readers.close(lease)
    world.work(HISTORY_SECONDS)
    assert len(world.all_deltas()) == 1


def test_a_running_transaction_holds_what_it_may_read(world: DeltaWorld) -> None:
    [one] = world.insert(rows=1000)
    world.change((one, 1))
    txn = world.catalog.transactions.open("merge default.t")
    flushed(world)
    world.work(HISTORY_SECONDS + 60)
    assert len(world.all_deltas()) == 2
    world.catalog.transactions.abort(txn.id, "over")
    world.work(60)
    assert len(world.all_deltas()) == 1


def test_deltas_of_merged_parts_go_with_them(world: DeltaWorld) -> None:
    [one], [two] = world.insert(), world.insert()
    world.change((one, 1))
    world.merged(one, two)
    assert world.live_rows() == 19
    world.work(HISTORY_SECONDS + 1)
    world.work(60)
    assert world.all_deltas() == []


def test_deltas_of_dropped_parts_go_when_no_undrop_can_ask_for_them(world: DeltaWorld) -> None:
    [one] = world.insert()
    world.change((one, 4))
    world.commit(HidePartition(table=world.t, partition="all"))
    world.work(HISTORY_SECONDS + 60)
    world.work(600)
    # Its part is in the trash.
    assert len(world.catalog.trash.items(limit=10)[0]) == 1
    world.commit(RestorePartition(table=world.t, partition="all"))
    assert world.live_rows() == 6
    world.commit(HidePartition(table=world.t, partition="all"))
    for _ in range(6):
        world.work(HISTORY_SECONDS)
    assert world.catalog.trash.items(limit=10)[0] == []
    assert world.all_deltas() == []
    # Nothing is left of the partition, so its record goes too.
    for _ in range(12):
        world.work(HISTORY_SECONDS)
    assert world.catalog.parts.partitions(world.t) == []


def test_the_file_goes_first_and_one_that_stays_stops_no_other(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[str] = []
    bad: list[str] = []

    def remove(root: StoreRoot, table: str, files: Sequence[DataFile], *, deleters: int) -> dict[str, OSError]:
        gone.extend(each.name for each in files if each.name not in bad)
        return {each.name: PermissionError(13, "not allowed", each.name) for each in files if each.name in bad}

    monkeypatch.setattr(history_gc, "remove_data", remove)
    [one] = world.insert(rows=1000)
    changes = [world.change((one, 1)), world.change((one, 1))]
    bad.append(changes[0].file.name)
    flushed(world)
    world.work(HISTORY_SECONDS + 60)
    assert gone == [changes[1].file.name]
    assert [delta.file for delta in world.all_deltas() if delta.end_ts] == [changes[0].file]
    service = world.service(ServiceKind.GC)
    assert (service.state, service.failures >= 1) == ("failed", True)
    assert f"file={changes[0].file.name}" in service.last_exception
    bad.clear()
    world.work(HISTORY_SECONDS)
    assert len(world.all_deltas()) == 1


def test_versions_are_forgotten_with_their_past(world: DeltaWorld) -> None:
    for _ in range(5):
        world.insert()
        world.clock.advance(1)
    world.work()
    version = world.catalog.parts.version(world.t).counter
    assert [each for each, _ in world.catalog.history.listing(world.t, 100)] == list(range(version, version - 5, -1))
    world.work(2 * HISTORY_SECONDS)
    # The one that was in force when the promise begins stays.
    assert [each for each, _ in world.catalog.history.listing(world.t, 100)] == [version]


def test_labels_of_inserts_are_forgotten_after_hours(world: DeltaWorld) -> None:
    world.commit(InsertPart(table=world.t, written=world.written()), InsertLabel(table=world.t, label="once", rows=10))
    world.work(16_000)
    assert world.catalog.labels.find(world.t, "once") is not None
    world.work(1_500)
    assert world.catalog.labels.find(world.t, "once") is None


def test_loaded_files_are_forgotten_after_half_a_year(world: DeltaWorld) -> None:
    loaded = LoadedFile(file="/in/a", size=1, modified_ms=1, rows=10, query_id="q")
    world.commit(InsertPart(table=world.t, written=world.written()), LoadFile(table=world.t, loaded=loaded))
    world.work(179 * 86_400)
    assert [each.file for each in world.catalog.loaded_files.all(world.t)] == ["/in/a"]
    world.work(2 * 86_400)
    assert list(world.catalog.loaded_files.all(world.t)) == []
    assert world.catalog.loaded_files.forgotten_ms(world.t)


def test_without_promised_history_the_newest_state_is_all_there_is() -> None:
    world = DeltaWorld({"tablet_history_max_age_sec": "0", "cleanup_delay_period": "1"})
    [one] = world.insert(rows=1000)
    world.change((one, 1))
    flushed(world)
    world.work(2)
    assert [delta.kind.value for delta in world.all_deltas()] == ["delete"]


def test_a_command_forgets_history_where_it_is_forced(world: DeltaWorld) -> None:
    [one] = world.insert(rows=1000)
    world.change((one, 1))
    flushed(world)
    assert world.manager.gc_now(world.t).removed == 0
    world.clock.advance(1)
    assert world.manager.gc_now(world.t, is_forced=True).removed == 1
    assert len(world.all_deltas()) == 1


def test_it_can_be_switched_off() -> None:
    world = DeltaWorld(enable_undo_delta_block_gc="false")
    [one] = world.insert(rows=1000)
    world.change((one, 1))
    flushed(world)
    world.work(3 * HISTORY_SECONDS)
    assert len(world.all_deltas()) == 2
    assert world.row(OpKind.HISTORY_GC).stats.about == "enable_undo_delta_block_gc is off"


# --- DELETED_PART_GC ---


@pytest.mark.parametrize("has_flushed", [False, True])
def test_parts_without_rows_go_when_the_last_delete_is_ancient(world: DeltaWorld, has_flushed: bool) -> None:
    """All rows deleted; deletes flushed or not: 0 before the AHM passes, then all parts gone."""
    parts = [world.insert()[0] for _ in range(3)]
    world.change(*((part, 4) for part in parts))
    if has_flushed:
        flushed(world)
    last = world.change(*((part, 6) for part in parts))
    if not has_flushed:
        world.stop(ServiceKind.DELTA)
    assert world.live_rows() == 0
    left_ms = milliseconds(last.change_ts) + HISTORY_SECONDS * 1000 - world.clock.now_ms()
    world.work(left_ms / 1000)
    assert (world.visible_count(), world.manager.numbers().ops[OpKind.DELETED_PART_GC].removed_bytes) == (3, 0)
    world.work(31)
    assert (world.visible_count(), world.manager.numbers().ops[OpKind.DELETED_PART_GC].removed_bytes) == (0, 3000)
    assert world.events().count("remove_deleted") == 3
    for _ in range(6):
        world.work(HISTORY_SECONDS)
    assert list(world.catalog.parts.all_entries(world.t)) == []
    assert world.all_deltas() == []


def test_a_part_with_one_row_left_stays(world: DeltaWorld) -> None:
    [one] = world.insert()
    world.change((one, 9))
    for _ in range(3):
        world.work(HISTORY_SECONDS)
    assert (world.visible_count(), world.live_rows()) == (1, 1)


def test_a_part_that_something_works_on_is_left_to_that(world: DeltaWorld) -> None:
    [one] = world.insert()
    world.change((one, 10))
    world.work()
    watch = world.manager._registry.get(world.t).watch
    assert watch.reserved.reserve([str(one.name)])
    world.work(HISTORY_SECONDS + 1)
    assert world.visible_count() == 1
    watch.reserved.release([str(one.name)])
    world.work(31)
    assert world.visible_count() == 0


def test_parts_without_rows_stand_in_explain_gc(world: DeltaWorld) -> None:
    [one] = world.insert(rows=1000)
    segment = world.row_segment()
    changes = world.change((one, 1))
    world.stop(ServiceKind.FLUSH)
    flushed(world)
    rows = {row.entry: row for row in world.manager.explain_gc(world.t)}
    assert rows[str(segment.name)].kind == "segment"
    assert (rows[changes.file.name].kind, rows[changes.file.name].state) == ("delta", "hidden")
    assert rows[changes.file.name].held_by == "the ancient history mark"
    [now] = [row for row in rows.values() if row.kind == "delta" and row.state == "visible"]
    assert (now.held_by, now.bytes) == ("its parts", DELTA_BYTES)


def test_what_waits_is_reported_before_it_is_due(world: DeltaWorld) -> None:
    one: Part
    two: Part
    [one], [two] = world.insert(), world.insert()
    world.work(30)
    world.merged(one, two)
    world.work()
    reason = world.service(ServiceKind.GC).reason
    assert reason.startswith("PART_GC: what is hidden in 1 partitions waits, of the first for 3600 s more")


# --- a stop at any place ---


class _StopError(Exception):
    """The server ends here."""


@pytest.mark.parametrize(
    "place",
    [
        "log_gc.before_trash",
        "log_gc.after_trash",
        "history_gc.before_remove",
        "history_gc.after_remove",
        "deleted_part_gc.before_commit",
        "deleted_part_gc.after_commit",
    ],
)
def test_what_a_stop_leaves_half_done_is_done_later(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    passes: list[str] = []

    def hit(name: str) -> None:
        if name == place and not passes:
            passes.append(name)
            raise _StopError(name)

    for module in (log_gc, history_gc, gc_round):
        monkeypatch.setattr(module, "hit", hit)
    world.stop(ServiceKind.FLUSH)
    world.merged(world.row_segment(), world.row_segment())
    [empty], [one] = world.insert(), world.insert(rows=1000)
    world.change((empty, 10), (one, 1))
    flushed(world)
    for _ in range(2):
        world.work(HISTORY_SECONDS + 1)
    assert passes == [place]
    world.manager = world.new_manager()
    world.manager.start()
    world.manager.stop()
    world.manager = world.new_manager()
    for _ in range(8):
        world.work(HISTORY_SECONDS)
    assert world.live_rows() == 20 + 999
    assert [delta.kind.value for delta in world.all_deltas()] == ["delete"]
    left = [entry for entry in world.catalog.parts.all_entries(world.t) if isinstance(entry, Part)]
    assert len(left) == world.visible_count() == 2
    assert world.catalog.trash.items(limit=10)[0] == []
    assert world.catalog.transactions.unfinished() == []
