"""Rebases as tasks: the names of their files, what is sent, tasks that are lost or cancelled.

As in test_attempt.py, rows of the parts are deleted before the commit.
"""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from tests.maintenance_world import MaintenanceWorld, aborted
from tests.unit.maintenance.work.test_attempt import Watched, erasing, filled
from tilth.base.errors import CorruptError, TilthError
from tilth.catalog import Unknown
from tilth.maintenance.cleaner.ended import GRACE_MS
from tilth.maintenance.manager.manager import CLEAN_PERIOD_MS
from tilth.maintenance.work import rebases
from tilth.maintenance.work.procedure import Input, Job
from tilth.maintenance.work.rebases import LOST_MAX, REBASES_MAX, TaskNumbers, numbers_of
from tilth.maintenance.work.task_spark import RebaseTask, shares_of
from tilth.model.service import ServiceKind
from tilth.model.table import Schema
from tilth.model.txn import read_file_name
from tilth.storage import MAP_ROW_BYTES, TableLayout, local_folder
from tilth.warehouse import SparkRestartingError, TaskFailedError, TaskLostError, TaskStalledError


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> MaintenanceWorld:
    """A world where the smallest rebase is a task."""
    monkeypatch.setattr(rebases, "HERE_BYTES_MAX", -1)
    return MaintenanceWorld()


def failing(world: MaintenanceWorld, *errors: TilthError) -> None:
    """The next tasks of rebases fail with these errors."""
    left = list(errors)

    def fail(_: RebaseTask) -> None:
        if left:
            raise left.pop(0)

    world.worker.on_rebase_task = fail


def tasks_of(world: MaintenanceWorld) -> list[str]:
    """States of the tasks that rebase, the oldest first."""
    return [task.state.value for task in reversed(world.dispatcher.tasks()) if task.kind.value == "rebase"]


def test_each_round_is_a_task(world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = filled(world)
    world.erase((parts[0], 0))
    watched = Watched(
        world, monkeypatch, erasing(world, (parts[0], 1), (parts[2], 0)), erasing(world, (parts[3], 2), (parts[0], 2))
    )
    world.work()
    assert (watched.deltas, len(world.rows())) == ([0, 1, 2], 30 - 5)
    assert (world.worker.rebases, tasks_of(world)) == (0, ["done", "done"])
    first, second = world.worker.rebase_tasks
    # Deletes need no columns.
    assert {source.schema.columns for order in (*first.orders, *second.orders) for _, source in order.changed} == {()}
    # Each has the sources that changed in its round alone, by their numbers; the second one what the first has written.
    assert [[number for number, _ in order.changed] for order in (*first.orders, *second.orders)] == [[0, 2], [0, 3]]
    assert [len(order.before) for order in (*first.orders, *second.orders)] == [0, 1]
    [run] = [run for run in world.manager.runs() if run.name.startswith("MERGE")]
    assert run.about.endswith("4 rows had changed meanwhile, brought over in 2 rounds, by 2 tasks")
    numbers = world.manager.numbers()
    assert (numbers.rebased_rows, numbers.rebase_tasks) == (4, 2)
    # Changes of one commit apply in the order of their names.
    names = [delta.file.name for delta in world.catalog.parts.deltas(world.t)]
    assert names == sorted(names)


def test_the_choice_is_by_bytes_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MaintenanceWorld()
    parts = filled(world)
    monkeypatch.setattr(rebases, "HERE_BYTES_MAX", 2000)

    def grow() -> None:
        monkeypatch.setattr(rebases, "HERE_BYTES_MAX", 2 * 50 + 6 * 29 - 1)
        world.erase((parts[1], 0), (parts[2], 1))
        world.erase((parts[1], 1))

    def shrink() -> None:
        monkeypatch.setattr(rebases, "HERE_BYTES_MAX", 1 << 30)
        world.erase((parts[2], 0))

    world.erase((parts[5], 0))
    watched = Watched(world, monkeypatch, erasing(world, (parts[0], 0)), grow, shrink)
    world.work()
    # The task of the second round writes once more what the server has written in the first.
    assert (watched.deltas, len(world.rows())) == ([0, 1, 1, 2], 30 - 6)
    assert (world.worker.rebases, tasks_of(world)) == (1, ["done", "done"])
    [order] = world.worker.rebase_tasks[0].orders
    assert ([number for number, _ in order.changed], order.before) == ([0, 1, 2], ())
    # The delta that the server wrote in the first round is removed.
    [note] = world.catalog.transactions.leftover_notes()
    assert (note.may_write_on, note.txn.outputs[0].tasks) == (False, world.worker.rebase_tasks[1].first_task + 1)
    assert [name for name in note.keep if name.endswith("-0.0-0.arrow")] == []


def test_key_ranges_are_rebased_by_one_task(world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    table = world.table("cut", settings={"merge_task_bytes": "2000"})
    parts = [part for _ in range(10) for part in world.insert("a", table=table, rows=10)]
    watched = Watched(world, monkeypatch, lambda: world.erase((parts[0], 1), (parts[9], 0), table=table))
    world.work()
    assert (watched.deltas, len(world.rows(table))) == ([0, 2], 98)
    [task] = world.worker.rebase_tasks
    # Each range gets the sources; the tasks have numbers behind those of the ranges.
    assert len(task.orders) == world.visible_count(table) > 1
    assert task.tasks == min(rebases.TASKS_MAX, len(task.orders))
    assert task.first_task >= len(task.orders)


@pytest.mark.parametrize("error", [TaskLostError(), TaskStalledError(), SparkRestartingError()])
def test_a_task_that_is_lost_is_sent_again_under_other_names(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch, error: TilthError
) -> None:
    parts = filled(world)
    failing(world, *[error] * LOST_MAX)
    Watched(world, monkeypatch, erasing(world, (parts[0], 1)))
    world.work()
    assert (world.visible_count(), len(world.rows()), world.worker.merges) == (1, 29, 1)
    firsts = [task.first_task for task in world.worker.rebase_tasks]
    assert len(set(firsts)) == 1 + LOST_MAX
    [name] = [delta.file.name for delta in world.catalog.parts.deltas(world.t)]
    found = read_file_name(name)
    assert found is not None
    assert found.task == firsts[-1]
    # The lost ones may still write: their files are removed later, and searched for a second time.
    [note] = world.catalog.transactions.leftover_notes()
    assert (note.may_write_on, name in note.keep) == (True, True)
    assert note.txn.outputs[0].tasks == firsts[-1] + 1
    world.work(CLEAN_PERIOD_MS / 1000)
    world.work(GRACE_MS / 1000)
    assert world.catalog.transactions.tombstones.all()


def test_a_lost_task_of_a_commit_whose_outcome_is_unknown(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = filled(world)
    failing(world, TaskLostError())
    Watched(world, monkeypatch, erasing(world, (parts[0], 1)), lambda: Unknown("the answer was lost"))
    world.turn()
    assert world.visible_count() == 10
    world.work(2)
    assert (world.visible_count(), len(world.rows()), world.worker.merges) == (1, 29, 1)
    # The commit that is repeated leaves the note of the first one: the lost task may be writing yet.
    [note] = world.catalog.transactions.leftover_notes()
    numbers = [task.first_task for task in world.worker.rebase_tasks]
    assert (note.may_write_on, note.txn.outputs[0].tasks) == (True, numbers[-1] + 1)
    assert numbers[0] < numbers[1]


def test_a_lost_task_of_a_table_that_is_dropped(world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = filled(world)

    def drop(_: RebaseTask) -> None:
        if len(world.worker.rebase_tasks) == 1:
            world.catalog.tables.drop(world.t)
            raise TaskLostError

    world.worker.on_rebase_task = drop
    Watched(world, monkeypatch, erasing(world, (parts[0], 1)))
    world.turn()
    world.settle()
    assert tasks_of(world) == ["lost", "done"]
    assert aborted(world) == ["merge default.t"]
    # The lost one may be writing into the folder of the dropped table yet.
    [tombstone] = world.catalog.transactions.tombstones.all()
    assert tombstone.txn.outputs[0].tasks > max(task.first_task for task in world.worker.rebase_tasks)


@pytest.mark.parametrize("error", [TaskLostError(), TaskFailedError(), CorruptError("a row map is damaged")])
def test_a_rebase_that_fails_gives_the_work_up(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch, error: TilthError
) -> None:
    parts = filled(world)
    failing(world, *[error] * (1 + LOST_MAX))
    Watched(world, monkeypatch, erasing(world, (parts[0], 1)))
    world.turn()
    service = world.service(ServiceKind.MERGE)
    assert (service.state, service.failures, world.visible_count()) == ("failed", 1, 10)
    assert len(world.worker.rebase_tasks) == (1 + LOST_MAX if isinstance(error, TaskLostError) else 1)
    # Nothing is removed until the tasks must have ended.
    assert aborted(world) == ["merge default.t"]
    world.worker.on_rebase_task = lambda _: None
    world.work(300)
    assert (world.visible_count(), len(world.rows())) == (1, 29)


@pytest.mark.parametrize("act", ["drop", "stop"])
def test_a_rebase_is_cancelled(world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    parts = filled(world)

    def hold() -> None:
        world.erase((parts[0], 1))
        world.worker.is_holding = True

    Watched(world, monkeypatch, hold)
    # A turn would wait for the end of the run if it looked before the run holds its tasks.
    assert world.manager.step().op_name is not None
    for _ in range(5000):
        if any(spec.kind.value == "rebase" for spec in list(world.worker.held.values())):
            break
        threading.Event().wait(0.001)
    assert tasks_of(world) == ["running"]
    if act == "drop":
        world.catalog.tables.drop(world.t)
        world.manager.wake()
        world.manager.step()
    else:
        world.manager.stop()
    world.settle()
    assert tasks_of(world) == ["cancelled"]
    assert world.worker.rebase_tasks == []
    assert world.catalog.transactions.leftover_notes() == []


def test_a_commit_that_is_repeated_waits_for_no_task(world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = filled(world)
    Watched(world, monkeypatch, lambda: Unknown("the answer was lost"), erasing(world, (parts[4], 0)))
    world.turn()
    assert world.visible_count() == 10
    world.work(2)
    assert tasks_of(world) == []
    assert "too much for a commit that is repeated" in world.service(ServiceKind.MERGE).reason
    world.work(70)
    assert (world.visible_count(), len(world.rows()), world.worker.merges) == (1, 29, 2)


def test_parts_that_were_merged_before_it_commits(world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server takes the table over before the commit."""
    parts = filled(world)
    Watched(world, monkeypatch, erasing(world, (parts[0], 1)))

    def take_over(_: RebaseTask) -> None:
        world.catalog.leases.acquire(f"table/{world.t}", "s2")

    world.worker.on_rebase_task = take_over
    world.turn()
    assert (world.visible_count(), len(world.rows())) == (10, 29)
    assert len(world.worker.rebase_tasks) == 1


def _job(tasks: int, *, inputs: int | None = None, size: int = 1 << 30) -> Job:
    layout = TableLayout(folder=local_folder("/nonexistent"), schema=Schema(columns=()))
    made_of = Input(layout=layout, partition="all", sources=())
    count = tasks if inputs is None else inputs
    return Job(task=TaskNumbers, tasks=tasks, input_bytes=size, rows=1, inputs=(made_of,) * count)  # type: ignore[arg-type]


def test_names_of_later_rounds_follow_those_of_earlier_ones() -> None:
    for tasks in (1, 2, 3, 9, 10, 51, 52, 53, 99, 100, 951, 952, 953, 1000, 20_000):
        numbers = numbers_of(_job(tasks))
        assert numbers.first >= numbers.work == numbers.below(0) == tasks
        firsts = [numbers.below(sends) - numbers.each for sends in range(1, REBASES_MAX + LOST_MAX + 1)]
        assert firsts[0] == numbers.first
        assert all(later - earlier == numbers.each for earlier, later in pairwise(firsts))
        names = [f"5-{number}.0-0.arrow" for number in range(numbers.first, numbers.all)]
        assert names == sorted(names)
        assert numbers.all == firsts[-1] + numbers.each
    least = rebases.HERE_BYTES_MAX // rebases.SMALL_SHARE - MAP_ROW_BYTES
    assert numbers_of(_job(1, inputs=0)) == numbers_of(_job(1, size=least)) == TaskNumbers(1, 1, 0)
    assert numbers_of(_job(1, size=least + 1)) == TaskNumbers(1, 10, 1)


@pytest.mark.parametrize(
    ("sizes", "tasks", "shares"),
    [([5], 4, [[0]]), ([1, 9, 5, 4], 2, [[1, 0], [2, 3]]), ([0, 0, 0], 2, [[0, 2], [1]]), ([3, 3], 2, [[0], [1]])],
)
def test_parts_are_dealt_by_size(sizes: list[int], tasks: int, shares: list[list[int]]) -> None:
    assert shares_of(sizes, tasks) == shares
