"""Files that are said to be damaged are read by the server or by a task, and the findings are the same."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest

from tests.catalog_world import World
from tilth.base.cancel import Cancellation, working_under
from tilth.base.errors import RetryError, TilthError
from tilth.maintenance.damage import checks
from tilth.maintenance.damage.checks import ChecksHere, TaskChecks
from tilth.maintenance.damage.task_spark import CheckedFile, CheckFilesTask, FileFinding, states_of
from tilth.model.part import DataFile
from tilth.model.task import Cost, TaskKind, TaskSpec, TaskState
from tilth.storage import Folder, local_folder
from tilth.warehouse import Dispatcher, TaskCancelledError, TaskLostError, TaskResult, WorkerReports
from tilth.warehouse.stats import WorkerLoad


class Reader:
    """A worker that reads files on the thread that asks."""

    name = "w"
    memory_bytes = 1 << 30
    load = WorkerLoad()

    def __init__(self) -> None:
        self.reports: WorkerReports | None = None
        self.errors: list[TilthError] = []
        self.tasks: list[TaskSpec] = []

    def attach(self, reports: WorkerReports) -> None:
        self.reports = reports

    def assign(self, spec: TaskSpec) -> None:
        self.tasks.append(spec)
        assert self.reports is not None
        if self.errors:
            self.reports.failed(spec.id, self.errors.pop(0))
            return
        task = msgspec.msgpack.decode(spec.payload, type=CheckFilesTask)
        payload = msgspec.msgpack.encode(states_of(task.folder, task.files))
        self.reports.finished(spec.id, TaskResult(payload=payload, actual=Cost()))

    def trouble(self) -> str:
        return ""

    def touch(self, task_ids: Collection[str]) -> set[str]:
        return set(task_ids)

    def cancel(self, task_id: str) -> None:
        assert self.reports is not None
        self.reports.failed(task_id, TaskCancelledError(task=task_id))

    def retire(self, task_id: str) -> None:
        """Nothing here stays."""


class Checked(World):
    """A table's folder with files of ten bytes."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder
        self.folder = local_folder(folder)
        self.reader = Reader()
        self.dispatcher = Dispatcher(self.clock, self.new_id, {"write": [self.reader]}, slots={"write": 1})
        self.checks = TaskChecks(self.catalog, self.dispatcher)

    def file(self, name: str, *, is_delta: bool = False, content: bytes | None = None) -> CheckedFile:
        data = name.encode().ljust(10)
        (self.path / name).write_bytes(data if content is None else content)
        return CheckedFile(file=DataFile(name=name, size=10, checksum=zlib.crc32(data)), is_delta=is_delta)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checked:
    """A world whose server reads 20 bytes itself."""
    monkeypatch.setattr(checks, "HERE_BYTES_MAX", 20)
    return Checked(tmp_path)


def test_the_findings_are_the_same(world: Checked) -> None:
    files = [
        world.file("a"),
        world.file("b", content=b"x" * 10),
        world.file("c", content=b"short", is_delta=True),
        world.file("d"),
    ]
    (world.path / "d").unlink()
    found = world.checks.states(world.t, world.folder, files)
    assert found == ChecksHere().states(world.t, world.folder, files)
    assert [bool(state.damaged) for state in found] == [False, True, True, True]
    assert [word in state.damaged for word, state in zip(("", "checksum", "size", "missing"), found, strict=True)]
    [task] = world.dispatcher.tasks()
    assert (task.kind, task.state, task.table, task.warehouse) == (
        TaskKind.CHECK,
        TaskState.DONE,
        "default.t",
        "write",
    )


def test_few_bytes_and_files_that_are_not_there_need_no_task(world: Checked) -> None:
    files = [world.file(name) for name in "abcd"]
    for name in "ad":
        (world.path / name).unlink()
    found = world.checks.states(world.t, world.folder, files)
    assert [bool(state.damaged) for state in found] == [True, False, False, True]
    assert world.dispatcher.tasks() == []
    assert world.checks.states(world.t, world.folder, []) == []


@pytest.mark.parametrize("error", [TaskLostError(), TaskCancelledError()])
def test_a_task_that_fails_says_nothing_about_the_files(world: Checked, error: TilthError) -> None:
    files = [world.file(name, content=b"x" * 10) for name in "abc"]
    world.reader.errors = [error]
    found = world.checks.states(world.t, world.folder, files)
    assert [(state.damaged, bool(state.unknown)) for state in found] == [("", True)] * 3


def test_a_table_that_was_dropped_and_a_store_that_is_away(world: Checked) -> None:
    files = [world.file(name) for name in "abc"]
    world.catalog.tables.drop(world.t)
    world.catalog.tables.forget(world.t)
    assert all(state.unknown for state in world.checks.states(world.t, world.folder, files))
    assert world.reader.tasks == []
    away = Folder(world.folder.root, "away")
    assert all(state != FileFinding() for state in world.checks.states(world.t, away, files))


def test_the_end_of_a_statement_ends_the_check(world: Checked) -> None:
    files = [world.file(name) for name in "abc"]
    cancellation = Cancellation()
    killed = RetryError("the statement was killed")
    with working_under(cancellation):
        cancellation.cancel(killed)
        with pytest.raises(RetryError, match="killed"):
            world.checks.states(world.t, world.folder, files)
    assert world.reader.tasks == []
