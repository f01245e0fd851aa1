"""FLUSH over a memory catalog, with a worker that lays rows end to end: when it runs, what it takes, what it tells."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from tests.maintenance_world import MaintenanceWorld
from tilth.base.errors import UnavailableError
from tilth.base.settings import read_settings
from tilth.catalog import CommitOutcome, HidePartition, Unknown
from tilth.maintenance.flush.policy import flush_runs
from tilth.maintenance.kinds import OpKind
from tilth.maintenance.one_part.task_spark import MergeTask
from tilth.maintenance.settings import ManagerSettings
from tilth.maintenance.stats import OpRow
from tilth.model.mutation import Mutation, MutationKind
from tilth.model.part import DataFile, Part, PartName
from tilth.model.service import ServiceKind, Switch, SwitchState
from tilth.model.table import Schema, SchemaVersion
from tilth.storage import PartFileCorruptError

MINUTES = 60.0


@pytest.fixture
def world() -> MaintenanceWorld:
    return MaintenanceWorld()


def row(world: MaintenanceWorld) -> OpRow:
    return next(each for each in world.manager.ops() if each.kind is OpKind.FLUSH and each.uuid == world.t)


def kinds(world: MaintenanceWorld, table: str | None = None) -> list[bool]:
    """Of the visible parts whether they are segments."""
    return [part.is_segment for part in world.catalog.parts.snapshot(table or world.t).parts]


def flushes(world: MaintenanceWorld) -> list[str]:
    return [run.about for run in world.manager.runs() if run.name.startswith("FLUSH(")]


# --- which segments go together ---


def part(block: int, *, is_segment: bool = True, partition: str = "a", size: int = 10, columns: int = 0) -> Part:
    return Part(
        name=PartName(partition, block, block, 0, block),
        schema_version=1,
        rows=1,
        file=DataFile(name=f"f{block}", size=size, checksum=0),
        commit_ts=block << 18,
        columns_commit_ts=columns,
        is_segment=is_segment,
    )


def runs(
    parts: Sequence[Part], *, taken: Sequence[int] = (), mutations: Sequence[Mutation] = (), most: int = 100
) -> list[list[int]]:
    names = {str(each.name): each.name.min_block for each in parts}
    found = flush_runs(
        parts,
        size_of=lambda each: each.bytes,
        busy={str(each.name) for each in parts if each.name.min_block in taken},
        mutations=mutations,
        bytes_max=most,
    )
    return [[names[name] for name in spec.segments] for spec in found]


def test_neighbours_are_flushed_together() -> None:
    assert runs([part(1), part(2), part(3)]) == [[1, 2, 3]]
    assert runs([part(1), part(2, is_segment=False), part(3)]) == [[1], [3]]
    assert runs([part(1), part(2), part(3)], taken=[2]) == [[1], [3]]
    assert runs([part(3, partition="a"), part(1, partition="b")]) == [[1], [3]]
    assert runs([part(1), part(2, columns=5), part(3, columns=5)]) == [[1], [2, 3]]
    assert runs([]) == []


def test_the_bytes_of_a_flush_are_bounded() -> None:
    assert runs([part(number, size=40) for number in (1, 2, 3)]) == [[1, 2], [3]]
    assert runs([part(1), part(2, size=500), part(3)]) == [[1], [2], [3]]


def test_a_mutation_between_segments_keeps_them_apart() -> None:
    version = SchemaVersion(version=1, schema=Schema(columns=()))
    mutation = Mutation(table="t", id=9, commit_ts=2 << 18, kind=MutationKind.DELETE, command="", schema=version)
    old = [msgspec.structs.replace(part(number), mutation_ts=0) for number in (1, 2)]
    new = msgspec.structs.replace(part(3), mutation_ts=2 << 18)
    assert runs([*old, new], mutations=[mutation]) == [[1, 2], [3]]


# --- when ---


def test_old_segments_are_flushed(world: MaintenanceWorld) -> None:
    for _ in range(3):
        world.insert_segment("a", "b", rows=4)
    before = world.rows()
    world.work(1.1)
    assert kinds(world) == [True] * 6
    assert not flushes(world)
    told = row(world)
    assert (told.stats.is_runnable, told.stats.ram_anchored_bytes, told.stats.logs_retained_bytes) == (True, 0, 2400)
    assert (told.stats.perf_improvement, "6 segments with 2.3 KiB in 2 partitions" in told.stats.about) == (0.0, True)
    service = world.service(ServiceKind.FLUSH)
    assert (service.state, service.reason.startswith("not worth it yet: 6 segments")) == ("idle", True)
    world.work(2 * MINUTES)
    assert kinds(world) == [False] * 2
    assert flushes(world) == ["6 segments, 24 rows into 2 parts"]
    assert world.rows() == before
    service = world.service(ServiceKind.FLUSH)
    assert (service.state, service.reason) == ("idle", "no segments")
    events = {event.event for event in world.catalog.part_log.recent(limit=50)}
    assert "flush" in events
    assert world.manager.numbers().flushed_bytes == 2400
    # A lone segment becomes the newer version of itself.
    world.insert_segment("c")
    world.work(3 * MINUTES)
    assert kinds(world) == [False] * 3


def test_size_alone_is_a_reason(world: MaintenanceWorld) -> None:
    settings = replace(read_settings(ManagerSettings, {}), workers=1)
    world.manager = world.new_manager(settings=replace(settings, flush=replace(settings.flush, threshold_mb=1)))
    world.insert_segment("a", rows=20_000)
    world.work(1.1)
    assert kinds(world) == [False]


def test_age_is_that_of_the_oldest_row(world: MaintenanceWorld) -> None:
    world.work()
    world.work(3600)
    world.insert_segment("a")
    world.work(1.1)
    # However long nothing was flushed.
    assert kinds(world) == [True]


def test_switches_and_settings_stop_it(world: MaintenanceWorld) -> None:
    world.insert_segment("a")
    world.catalog.services.set(
        Switch(table=world.t, service=ServiceKind.FLUSH, state=SwitchState.STOPPED, since_ms=0, because="a test")
    )
    world.manager.wake()
    world.work(300)
    assert kinds(world) == [True]
    assert world.service(ServiceKind.FLUSH).state == "stopped"
    # A user's own word is stronger.
    assert world.manager.flush_now(world.t).parts == 1
    off = read_settings(ManagerSettings, {"enable_flush_memrowset": "false"})
    other = MaintenanceWorld()
    other.manager = other.new_manager(settings=off)
    other.insert_segment("a")
    other.work(300)
    assert kinds(other) == [True]
    assert row(other).stats.about == "enable_flush_memrowset is off"


# --- what ---


def test_deleted_rows_are_left_out(world: MaintenanceWorld) -> None:
    [one, two] = world.insert_segment("a", "a", rows=3)
    world.erase((one, 0), (two, 1))
    world.erase((one, 2))
    report = world.manager.flush_now(world.t)
    assert (report.segments, report.parts, report.rows) == (2, 1, 3)
    assert world.rows() == [0, 1, 2]
    assert world.catalog.parts.deltas(world.t) == []


def test_of_segments_without_rows_nothing_is_left(world: MaintenanceWorld) -> None:
    [one] = world.insert_segment("a", rows=2)
    world.erase((one, 0), (one, 1))
    report = world.manager.flush_now(world.t)
    assert (report.segments, report.parts, report.rows) == (1, 0, 0)
    assert kinds(world) == []


def test_changes_that_come_meanwhile_arrive(world: MaintenanceWorld) -> None:
    [one, two] = world.insert_segment("a", "a", rows=3)

    def change(_: MergeTask) -> None:
        world.worker.on_merge = lambda _: None
        world.erase((one, 1), (two, 2))

    world.worker.on_merge = change
    assert world.manager.flush_now(world.t).parts == 1
    assert (kinds(world), world.rows()) == ([False], [0, 0, 1, 2])
    assert world.worker.rebases == 1


def test_merges_leave_segments_alone(world: MaintenanceWorld) -> None:
    for _ in range(5):
        world.insert("a")
    world.insert_segment("a")
    for _ in range(5):
        world.insert("a")
    world.work(1.1)
    rows = world.manager.explain_merge(world.t)
    assert any("are not flushed yet" in each.reason for each in rows)
    assert kinds(world).count(True) == 1
    report = world.manager.optimize(world.t, "a", final=True)
    assert (report.parts_after, kinds(world)) == (1, [False])
    assert len(world.rows()) == 110


def test_a_mutation_makes_parts_of_segments(world: MaintenanceWorld) -> None:
    [segment] = world.insert_segment("a", rows=4)
    world.erase((segment, 0))
    world.alter_delete("a is odd")
    world.work(2)
    assert (kinds(world), world.rows()) == ([False], [2])


# --- commands and failures ---


def test_a_command_waits_for_a_flush_under_way(world: MaintenanceWorld) -> None:
    world.insert_segment("a")
    world.worker.is_holding = True
    world.clock.advance(300)
    while not world.worker.held:
        world.turn()
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(world.manager.flush_now(world.t).segments))
    thread.start()
    # It has nothing to do but to wait.
    world.worker.let_go()
    thread.join(10)
    assert (done, kinds(world)) == ([0], [False])


def test_a_partition_alone_can_be_flushed(world: MaintenanceWorld) -> None:
    world.insert_segment("a", "b")
    assert world.manager.flush_now(world.t, "a").segments == 1
    assert kinds(world) == [False, True]


def test_a_damaged_segment_holds_up_no_other(world: MaintenanceWorld) -> None:
    world.insert_segment("a")
    world.insert_segment("b")
    world.worker.errors.append(PartFileCorruptError(file="x"))
    world.work(1.1)
    world.work(300)
    # The one or the other: they run side by side.
    assert sorted(kinds(world)) == [False, True]
    service = world.service(ServiceKind.FLUSH)
    assert (service.state, service.failures) == ("failed", 1)
    assert "file=x" in service.reason
    world.work(61)
    assert kinds(world) == [False, False]
    assert world.service(ServiceKind.FLUSH).state == "idle"
    world.insert_segment("a")
    world.worker.errors.append(UnavailableError("no disk"))
    with pytest.raises(UnavailableError):
        world.manager.flush_now(world.t)


def test_segments_that_are_dropped_meanwhile_are_no_failure(world: MaintenanceWorld) -> None:
    world.insert_segment("a")

    def drop(_: MergeTask) -> None:
        world.worker.on_merge = lambda _: None
        world.commit(HidePartition(table=world.t, partition="a"))

    world.worker.on_merge = drop
    assert world.manager.flush_now(world.t).segments == 0
    assert (world.service(ServiceKind.FLUSH).failures, kinds(world)) == (0, [])


@pytest.mark.parametrize("has_landed", [True, False])
def test_an_unknown_outcome_is_found_out(
    world: MaintenanceWorld, has_landed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = world.catalog.transactions.commit
    left = [True]

    def lossy(*given: object) -> CommitOutcome:
        if left:
            left.clear()
            if has_landed:
                real(*given)  # type: ignore[arg-type]  # as it was called
            return Unknown("the answer was lost")
        return real(*given)  # type: ignore[arg-type]  # as it was called

    world.insert_segment("a", rows=3)
    monkeypatch.setattr(world.catalog.transactions, "commit", lossy)
    # The command waits until the outcome is known.
    assert world.manager.flush_now(world.t).segments == 0
    assert (kinds(world), world.rows()) == ([False], [0, 1, 2])
    assert world.worker.merges == 1


def test_segments_on_both_sides_of_an_alter_are_flushed_apart(world: MaintenanceWorld) -> None:
    world.catalog.services.set(
        Switch(table=world.t, service=ServiceKind.MUTATE, state=SwitchState.STOPPED, since_ms=0, because="a test")
    )
    world.insert_segment("a", rows=2)
    world.update("a + 1", "true")
    world.insert_segment("a", rows=2)
    assert world.manager.flush_now(world.t).parts == 2
    assert kinds(world) == [False, False]
