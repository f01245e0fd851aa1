"""Compactions of deltas over a memory catalog: what is chosen, what stands in the way, what becomes of it."""

from __future__ import annotations

import pytest

from tests.delta_world import DeltaWorld
from tilth.base.errors import UnavailableError
from tilth.catalog import HidePartition, RestorePartition
from tilth.maintenance.deltas.policy import (
    FILES_MIN,
    FLUSH_BYTES_MAX,
    PartitionDeltas,
    choose_flush,
    choose_major,
    choose_minor,
    folded,
)
from tilth.maintenance.deltas.task_spark import DeltaTask, DeltaWay
from tilth.maintenance.kinds import OpKind
from tilth.maintenance.settings import DeltaSettings, FlushSettings
from tilth.maintenance.work.part_work import OVERTAKEN
from tilth.model.delta import Delta, DeltaKind, Target, applied_order
from tilth.model.part import DataFile, Part, PartName
from tilth.model.service import ServiceKind, SwitchState
from tilth.storage import DeltaFileCorruptError, PartFileCorruptError

NOW_MS = 1_000_000_000
KIB = 1 << 10


@pytest.fixture
def world() -> DeltaWorld:
    return DeltaWorld()


# --- what is chosen: pure ---


def part(n: int, *, is_segment: bool = False, size: int = 1000 * KIB) -> Part:
    return Part(
        name=PartName("all", n, n, 0, n),
        schema_version=1,
        rows=100,
        file=DataFile(name=f"p{n}", size=size, checksum=1),
        is_segment=is_segment,
    )


def delta(
    n: int,
    *targets: Part,
    kind: DeltaKind = DeltaKind.CHANGES,
    size: int = KIB,
    age: float = 1.0,
    columns: tuple[int, ...] = (),
) -> Delta:
    ts = (NOW_MS - int(age * 1000)) << 18 | n
    return Delta(
        kind=kind,
        partition="all",
        file=DataFile(name=f"d{n}", size=size, checksum=1),
        targets=tuple(Target(file=each.file.name, deleted=1) for each in targets),
        columns=columns,
        change_ts=ts,
        commit_ts=ts,
    )


def partition(parts: list[Part], deltas: list[Delta], name: str = "all") -> PartitionDeltas:
    return PartitionDeltas(
        partition=name, parts={each.file.name: each for each in parts}, deltas=tuple(applied_order(deltas))
    )


def flush(*partitions: PartitionDeltas, busy: frozenset[str] = frozenset(), used: float = 0.0):  # type: ignore[no-untyped-def]  # told by its use
    return choose_flush(partitions, busy=busy, now_ms=NOW_MS, settings=FlushSettings(), used_percent=used)


def test_changes_are_flushed_when_the_oldest_is_old() -> None:
    one = part(1)
    young = flush(partition([one], [delta(1, one, age=119), delta(2, one, age=5)]))
    assert young.work is None
    assert "the oldest 119 s old; flush_threshold_secs=120" in young.about
    assert young.due_ms == NOW_MS + 1_001
    old = flush(partition([one], [delta(1, one, age=180), delta(2, one, age=5)])).work
    assert [each.file.name for each in old.deltas] == ["d1", "d2"]
    assert old.gain == pytest.approx(0.05)
    assert "2 of 2 change segments with 2.0 KiB, the oldest 180 s old" in old.reason


def test_so_many_files_are_a_reason_too() -> None:
    one = part(1)
    assert flush(partition([one], [delta(n, one) for n in range(FILES_MIN - 1)])).work is None
    work = flush(partition([one], [delta(n, one) for n in range(FILES_MIN)])).work
    assert work.gain == pytest.approx(FILES_MIN / 1000)


def test_the_best_store_says_which_partition() -> None:
    """Without pressure the one that keeps most of the log, under pressure the largest."""
    one, two = part(1), part(2)
    first = partition([one], [delta(1, one, age=500, size=10 * KIB)], "a")
    second = partition([two], [delta(2, two, age=400, size=40 * KIB)], "b")
    assert flush(first, second).work.partition == "a"
    assert flush(first, second, used=70.0).work.partition == "b"


def test_what_changes_unflushed_rows_or_busy_parts_goes_on_as_changes() -> None:
    one, busy, segment = part(1), part(2), part(3, is_segment=True)
    everything = [one, busy, segment]
    deltas = [delta(1, segment, age=300), delta(2, one, segment, age=200), delta(3, one, busy, age=100)]
    work = flush(partition(everything, deltas), busy=frozenset({str(busy.name)})).work
    # The oldest changes nothing that could be flushed.
    assert [each.file.name for each in work.deltas] == ["d2", "d3"]
    assert [each.file.name for each in work.parts] == ["p1"]
    assert {each.file.name for each in work.kept} == {"p2", "p3"}
    none = flush(partition([segment], [delta(1, segment, age=300)]))
    assert (none.work, none.about) == (None, "1 change segments wait for their parts")


def test_what_changes_hidden_parts_alone_is_left_to_collecting() -> None:
    gone = part(1)
    assert flush(partition([], [delta(1, gone, age=300)])).about == "no change segments"


def test_a_run_is_bounded_and_takes_whole_commits() -> None:
    one = part(1)
    deltas = [delta(n, one, age=300 - n, size=FLUSH_BYTES_MAX // 2) for n in range(4)]
    work = flush(partition([one], deltas)).work
    assert [each.file.name for each in work.deltas] == ["d0", "d1"]
    same = [delta(7, one, age=300, size=FLUSH_BYTES_MAX) for _ in range(2)]
    assert len(flush(partition([one], same)).work.deltas) == 2


def test_scores_of_minor_and_major_with_low_thresholds() -> None:
    """Most files 3, least ratio 0.0001: docs/policies/delta-compaction.md#few-files"""
    settings = DeltaSettings(minor_files_max=3, major_ratio_min=0.0001)
    one = part(1)
    gains = []
    for files in range(4):
        deltas = [delta(n, one, kind=DeltaKind.UPDATE, columns=(1,)) for n in range(files)]
        found = [partition([one], deltas)]
        minor = choose_minor(found, busy=(), settings=settings).work
        major = choose_major(found, busy=(), settings=settings).work
        gains.append((minor.gain if minor else 0, major.gain if major else 0))
    assert [minor for minor, _ in gains] == [0, 0, pytest.approx(2 / 3), 1]
    assert gains[0][1] == 0
    assert all(0 < major < 1 for _, major in gains[1:])


def test_scores_of_minor_and_major_with_the_defaults() -> None:
    """docs/policies/delta-compaction.md#defaults"""
    one = part(1, size=10_000)
    for size, expected in ((999, None), (1000, 0.1), (17_000, 1.0)):
        found = [partition([one], [delta(1, one, kind=DeltaKind.UPDATE, columns=(1,), size=size)])]
        work = choose_major(found, busy=(), settings=DeltaSettings()).work
        assert (work and work.gain) == expected
    deletes = [delta(n, one, kind=DeltaKind.DELETE, size=9_000) for n in range(2)]
    assert choose_major([partition([one], deletes)], busy=(), settings=DeltaSettings()).about == "no part has updates"
    minor = choose_minor([partition([one], deletes)], busy=(), settings=DeltaSettings()).work
    assert minor is not None
    assert minor.gain == pytest.approx(0.002)


def test_each_kind_is_counted_for_itself() -> None:
    """docs/policies/delta-compaction.md#why-so"""
    one = part(1)
    deltas = [delta(1, one, kind=DeltaKind.DELETE), delta(2, one, kind=DeltaKind.UPDATE, columns=(1,))]
    assert choose_minor([partition([one], deltas)], busy=(), settings=DeltaSettings()).work is None
    more = [*deltas, delta(3, one, kind=DeltaKind.DELETE)]
    work = choose_minor([partition([one], more)], busy=(), settings=DeltaSettings()).work
    assert work is not None
    assert [each.file.name for each in work.deltas] == ["d1", "d3"]
    assert choose_minor([partition([one], more)], busy={str(one.name)}, settings=DeltaSettings()).work is None


def test_a_major_compaction_takes_the_columns_that_updates_are_laid_over() -> None:
    one = part(1)
    column = delta(1, one, kind=DeltaKind.COLUMN, columns=(1, 2))
    other = delta(2, one, kind=DeltaKind.COLUMN, columns=(3,))
    update = delta(3, one, kind=DeltaKind.UPDATE, columns=(2,))
    deletes = delta(4, one, kind=DeltaKind.DELETE)
    assert folded([column, other, update, deletes]) == [column, update]


# --- over a catalog ---


def test_changes_become_deltas_which_are_compacted(world: DeltaWorld) -> None:
    [one], [two] = world.insert(), world.insert()
    world.change((one, 1), (two, 1), columns=(1,))
    world.change((one, 2))
    world.work()
    assert world.service(ServiceKind.DELTA).state == "idle"
    assert "the oldest 0 s old; flush_threshold_secs=120" in world.service(ServiceKind.DELTA).reason
    assert world.open() == [("changes", 2, 0), ("changes", 2, 2)]
    rows = world.live_rows()
    world.work(121)
    assert world.open(one) == [("delete", 3, 0), ("update", 0, 1)]
    assert world.open(two) == [("delete", 1, 0), ("update", 0, 1)]
    assert world.live_rows() == rows == 16
    assert "flush_deltas" in world.events()


def test_deltas_of_one_kind_become_one(world: DeltaWorld) -> None:
    [one] = world.insert(rows=1000)
    for _ in range(2):
        world.change((one, 1))
        world.work(121)
    assert world.open(one) == [("delete", 2, 0)]
    assert world.events().count("minor_delta") == 1


def test_updates_become_columns(world: DeltaWorld) -> None:
    [one] = world.insert(rows=3)
    world.change((one, 1), columns=(1,))
    world.work(121)
    assert world.open(one) == [("column", 0, 3), ("delete", 1, 0)]
    assert world.events()[-2:] == ["flush_deltas", "major_delta"]
    ways = [task.way for task in world.compactor.compactions]
    assert ways == [DeltaWay.FLUSH, DeltaWay.MAJOR]


def test_columns_of_a_large_part_are_written_by_a_task_each() -> None:
    world = DeltaWorld({"merge_task_bytes": "1"})
    [one] = world.insert(rows=3)
    world.change((one, 1), columns=(1, 2))
    world.work(121)
    assert world.open(one) == [("column", 0, 3), ("column", 0, 3), ("delete", 1, 0)]
    assert [task.columns for task in world.compactor.compactions] == [(), ((1,), (2,))]
    # They are one version of these columns, to be replaced together.
    world.change((one, 0), columns=(2,))
    world.work(121)
    assert world.open(one) == [("column", 0, 3), ("column", 0, 3), ("delete", 1, 0)]


def test_newer_changes_stay_and_apply_later(world: DeltaWorld) -> None:
    [one] = world.insert(rows=1000)
    first = world.change((one, 1), columns=(1,))
    late: list[Delta] = []

    def change(task: DeltaTask) -> None:
        world.compactor.on_compact = lambda _: None
        late.append(world.change((one, 1), columns=(1,)))

    world.compactor.on_compact = change
    world.work(121)
    assert world.open(one) == [("changes", 1, 1), ("delete", 1, 0), ("update", 0, 1)]
    assert {each.change_ts for each in world.catalog.parts.deltas(world.t)} == {first.change_ts, late[0].change_ts}


def test_a_part_that_is_merged_meanwhile_is_no_failure(world: DeltaWorld) -> None:
    [one], [two] = world.insert(), world.insert()
    world.change((one, 1))

    def merge(task: DeltaTask) -> None:
        world.compactor.on_compact = lambda _: None
        world.merged(one, two)

    world.compactor.on_compact = merge
    world.work(121)
    assert world.open() == []
    service = world.service(ServiceKind.DELTA)
    assert (service.state, service.failures) == ("idle", 0)
    assert [run.about for run in world.manager.runs() if run.name.startswith("FLUSH_DELTAS")]
    refusals = [row.reason for row in world.manager.choices() if row.rule == "refused"]
    assert any(OVERTAKEN in reason for reason in refusals)


def test_what_changes_unflushed_rows_stays_a_change_segment(world: DeltaWorld) -> None:
    [one] = world.insert()
    segment = world.row_segment()
    world.stop(ServiceKind.FLUSH)
    world.change((one, 1), (segment, 2))
    world.change((segment, 1))
    rows = world.live_rows()
    world.work(121)
    assert world.open(one) == [("delete", 1, 0)]
    assert world.open(segment) == [("changes", 3, 0)]
    assert world.live_rows() == rows
    # The open deltas have nothing more to flush.
    count = len(world.compactor.compactions)
    world.work(3600)
    assert len(world.compactor.compactions) == count


def test_rows_come_back_with_their_changes(world: DeltaWorld) -> None:
    [one] = world.insert()
    world.change((one, 4))
    world.commit(HidePartition(table=world.t, partition="all"))
    world.work(121)
    assert world.open() == [("changes", 4, 0)]
    world.commit(RestorePartition(table=world.t, partition="all"))
    assert world.live_rows() == 6
    world.work(121)
    assert world.open() == [("delete", 4, 0)]


def test_a_failure_waits_and_is_reported(world: DeltaWorld) -> None:
    [one] = world.insert()
    world.change((one, 1))
    world.worker.errors = [UnavailableError("no disk")]
    world.work(121)
    service = world.service(ServiceKind.DELTA)
    assert (service.state, service.failures) == ("failed", 1)
    assert "no disk" in service.last_exception
    world.work(2)
    assert world.service(ServiceKind.DELTA).state == "idle"
    assert world.open() == [("delete", 1, 0)]


def test_it_is_switched_off_by_the_user_and_by_settings(world: DeltaWorld) -> None:
    [one] = world.insert()
    world.change((one, 1))
    world.stop(ServiceKind.DELTA)
    world.work(300)
    assert world.service(ServiceKind.DELTA).state == "stopped"
    world.switch(ServiceKind.DELTA, SwitchState.RUNNING)
    world.work()
    assert world.open() == [("delete", 1, 0)]
    off = DeltaWorld(enable_flush_deltamemstores="false")
    [part_of_off] = off.insert()
    off.change((part_of_off, 1))
    off.work(300)
    assert off.row(OpKind.FLUSH_DELTAS).stats.about == "enable_flush_deltamemstores is off"
    assert off.open() == [("changes", 1, 0)]


def test_a_table_without_deltas_costs_no_looks(world: DeltaWorld) -> None:
    world.insert()
    world.work(1)
    wakeups = world.service(ServiceKind.DELTA).wakeups
    for _ in range(60):
        world.work(60)
    assert world.service(ServiceKind.DELTA).wakeups <= wakeups + 12
    assert world.row(OpKind.FLUSH_DELTAS).stats.about == "no change segments"


def test_a_damaged_part_is_left_out_and_the_updates_of_others_become_columns(world: DeltaWorld) -> None:
    one, other = world.insert(rows=3)[0], world.insert(rows=3)[0]
    world.change((one, 1), columns=(1,))
    world.change((other, 1), columns=(1,))

    def fail(task: DeltaTask) -> None:
        if task.way is DeltaWay.MAJOR and any(each.file == one.file for each in task.targets):
            raise PartFileCorruptError(file=f"/data/t/{one.file.name}")

    world.compactor.on_compact = fail
    world.work(121)
    world.work(2)
    assert world.open(one) == [("delete", 1, 0), ("update", 0, 1)]
    assert world.open(other) == [("column", 0, 3), ("delete", 1, 0)]
    world.compactor.on_compact = lambda _: None
    world.work(120)
    assert world.open(one) == [("column", 0, 3), ("delete", 1, 0)]


def test_a_damaged_change_segment_is_left_out_with_the_later_changes_of_its_parts() -> None:
    parts = [part(n) for n in range(1, 5)]
    one, two, three, four = parts
    deltas = [delta(1, one, age=300), delta(2, two, age=290), delta(3, two, three, age=280), delta(4, three, age=270)]
    deltas.append(delta(5, four, age=260))
    there = partition(parts, deltas).apart_from({str(two.name)})
    # The third changes the second part too, and so no later change of the third part may be taken.
    assert [each.file.name for each in there.changes] == ["d1", "d5"]
    assert flush(there, busy=frozenset({str(two.name)})).work.kept == ()
    assert partition(parts, deltas).apart_from(frozenset()).changes == partition(parts, deltas).changes


def test_a_damaged_change_segment_stops_no_other_of_its_partition(world: DeltaWorld) -> None:
    one, other = world.insert(rows=3)[0], world.insert(rows=3)[0]
    bad = world.change((one, 1))
    world.change((other, 1))

    def fail(task: DeltaTask) -> None:
        if any(each.file.name == bad.file.name for each in task.sources):
            raise DeltaFileCorruptError(file=f"/data/t/{bad.file.name}")

    world.compactor.on_compact = fail
    world.work(121)
    world.work(2)
    assert world.open(one) == [("changes", 1, 0)]
    assert world.open(other) == [("delete", 1, 0)]
    assert str(one.name) in world.row(OpKind.FLUSH_DELTAS).damaged
    world.compactor.on_compact = lambda _: None
    world.work(120)
    assert world.open(one) == [("delete", 1, 0)]
