"""A catalog, a real dispatcher and a worker that merges by adding numbers, for tests of maintenance without files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import replace

from tests.catalog_world import World
from tilth.base.errors import TilthError
from tilth.base.rand import new_rng
from tilth.catalog import KeyValue
from tilth.maintenance import NODE_SETTINGS, MaintenanceManager, manager_settings
from tilth.maintenance.spark import MergeFacts, MergeTask, decode_task, encode_facts
from tilth.model.part import DataFile, WrittenPart
from tilth.model.service import ServiceKind, ServiceStats
from tilth.model.task import Cost, TaskSpec
from tilth.storage import file_name
from tilth.warehouse import Dispatcher, TaskCancelledError, TaskResult, WorkerReports

#: No such folder: removing files finds them gone.
ROOT = "/nonexistent/tables"
#: World.written makes files of so many bytes a row.
ROW_BYTES = 100
_TURNS_MAX = 500


class MergeWorker:
    """Merges at once, unless it is told to fail or to hold the tasks."""

    def __init__(self) -> None:
        self.name = "w"
        self.memory_bytes = 1 << 30
        self.reports: WorkerReports | None = None
        #: What the next merges fail with.
        self.errors: list[TilthError] = []
        self.is_holding = False
        self.held: dict[str, TaskSpec] = {}
        #: Called with each merge before it is done.
        self.on_merge: Callable[[MergeTask], None] = lambda _: None
        self.merges = 0

    def attach(self, reports: WorkerReports) -> None:
        self.reports = reports

    def assign(self, spec: TaskSpec) -> None:
        if self.is_holding:
            self.held[spec.id] = spec
        else:
            self._merge(spec)

    def touch(self, task_ids: Collection[str]) -> set[str]:
        return set(self.held)

    def cancel(self, task_id: str) -> None:
        assert self.reports is not None
        if self.held.pop(task_id, None) is not None:
            self.reports.failed(task_id, TaskCancelledError(task=task_id))

    def let_go(self) -> None:
        self.is_holding = False
        for task_id in list(self.held):
            self._merge(self.held.pop(task_id))

    def _merge(self, spec: TaskSpec) -> None:
        assert self.reports is not None
        task = decode_task(spec.payload)
        self.on_merge(task)
        if self.errors:
            self.reports.failed(spec.id, self.errors.pop(0))
            return
        self.merges += 1
        size = sum(file.size for file in task.files)
        written = WrittenPart(
            partition=task.partition,
            values=task.values,
            rows=size // ROW_BYTES,
            file=DataFile(name=file_name(txn=task.txn, task=0, attempt=0, n=0), size=size, checksum=1),
            ranges={},
        )
        facts = MergeFacts(written=written, rows_in=written.rows, bytes_in=size)
        self.reports.finished(spec.id, TaskResult(payload=encode_facts(facts), actual=Cost(seconds=1.0)))


class MaintenanceWorld(World):
    """Turns of the manager are made by the test; what runs on threads is waited for."""

    def __init__(self, kv: KeyValue | None = None, *, threads: int = 2) -> None:
        super().__init__(kv)
        self.threads = threads
        self.worker = MergeWorker()
        self.dispatcher = Dispatcher(self.clock, self.new_id, {"write": [self.worker]}, slots={"write": 8})
        self.manager = self.new_manager()

    def new_manager(self, live_txns: Callable[[], Collection[int]] = frozenset) -> MaintenanceManager:
        settings = replace(manager_settings(NODE_SETTINGS.read({})), workers=self.threads)
        return MaintenanceManager(
            self.clock, self.catalog, self.dispatcher, ROOT, settings, new_rng(7), "s1", live_txns=live_txns
        )

    def turn(self) -> bool:
        """One turn and the end of what it started; True if it started something."""
        choice = self.manager.step()
        if not self.worker.is_holding:
            self.settle()
        return choice.op_name is not None

    def settle(self) -> None:
        """Waits until nothing runs."""
        for _ in range(20_000):
            if not self.running():
                return
            threading.Event().wait(0.001)
        raise AssertionError("a run does not end")

    def running(self) -> int:
        return sum(run.ended_ms == 0 for run in self.manager.runs())

    def work(self, seconds: float = 0.0) -> int:
        """Moves the clock and lets the manager work until nothing is left to do; returns how many runs that took."""
        self.clock.advance(seconds)
        for runs in range(_TURNS_MAX):
            if not self.turn():
                return runs
        raise AssertionError("the work does not end")

    def service(self, kind: ServiceKind, table: str | None = None) -> ServiceStats:
        uuid = table or self.t
        return next(row for row in self.manager.stats() if row.uuid == uuid and row.service is kind)

    def visible_count(self, table: str | None = None) -> int:
        return len(self.names(table=table))
