"""What stands in for others in sequences of changes: a worker without Spark, failpoints, a store that goes away.

Covers: the runners of flushes, merges and compactions of deltas, on the thread that asks. Does not cover: mutations,
which are Spark's own work.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from pyspark import TaskContext as SparkTask

from tilth.base import failpoints
from tilth.base.errors import TilthError
from tilth.catalog import Unknown
from tilth.catalog.kv import KVOutcome, Precondition, ReadView, Versioned, ViewUse
from tilth.catalog.records.small_commit import UNKNOWNS_MAX
from tilth.maintenance.copies.task_spark import copy_runner
from tilth.maintenance.deltas.task_spark import delta_runner
from tilth.maintenance.one_part.task_spark import flush_runner, merge_runner
from tilth.maintenance.work import part_work as op_module
from tilth.maintenance.work.task_spark import rebase_runner
from tilth.model.task import TaskKind, TaskSpec
from tilth.testing import Fault, FaultyKV
from tilth.warehouse import Runner, TaskContext, WorkerReports
from tilth.warehouse.session.spark import packed_answers
from tilth.warehouse.stats import WorkerLoad


class TaskSession:
    """A session whose tasks run on the thread that asks."""


@packed_answers.register
def _(_: TaskSession, answer: Callable[[], bytes], tasks: int) -> list[bytes]:
    return [answer() for _ in range(tasks)]


class InProcessWorker:
    """Runs each task on the thread that submits it."""

    name = "w"
    memory_bytes = 1 << 30
    load = WorkerLoad()

    def __init__(self) -> None:
        self._runners: dict[TaskKind, Runner] = {
            TaskKind.MERGE: merge_runner(),
            TaskKind.FLUSH: flush_runner(),
            TaskKind.DELTA: delta_runner(),
            TaskKind.REBASE: rebase_runner(),
            TaskKind.COPY: copy_runner(),
        }
        self._reports: WorkerReports | None = None

    def attach(self, reports: WorkerReports) -> None:
        self._reports = reports

    def assign(self, spec: TaskSpec) -> None:
        assert self._reports is not None
        context = TaskContext(spec=spec, session=cast(Any, TaskSession()), cancelled=threading.Event())
        try:
            result = self._runners[spec.kind](context)
        except TilthError as error:
            self._reports.failed(spec.id, error)
        else:
            self._reports.finished(spec.id, result)

    def trouble(self) -> str:
        return ""

    def touch(self, task_ids: Collection[str]) -> set[str]:
        return set(task_ids)

    def cancel(self, task_id: str) -> None:
        """Too late: it runs on the thread that asks."""

    def retire(self, task_id: str) -> None:
        """Nothing here stays."""


@contextmanager
def spark_task() -> Iterator[None]:
    """What runs meanwhile is task 0, attempt 0 of some Spark job; files are not waited for."""
    before, fsync = SparkTask.get(), os.fsync
    SparkTask._setTaskContext(None)
    SparkTask(partitionId=0, attemptNumber=0)
    os.fsync = lambda fd: None
    try:
        yield
    finally:
        os.fsync = fsync
        SparkTask._setTaskContext(before)


@contextmanager
def failpoints_to(told: Callable[[str], None]) -> Iterator[None]:
    """Every failpoint that is passed is told of, on the thread that passes it."""
    real = failpoints.hit
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("tilth.")]
    places = [module for module in modules if getattr(module, "hit", None) is real]
    threads = op_module.RUN_THREADS
    # One after the other, so that a run can be repeated.
    op_module.RUN_THREADS = 1
    for module in places:
        setattr(module, "hit", told)  # noqa: B010
    try:
        yield
    finally:
        op_module.RUN_THREADS = threads
        for module in places:
            setattr(module, "hit", real)  # noqa: B010


class Died(BaseException):
    """The process ends here, without a chance to tidy up."""


class LosingKV(FaultyKV):
    """When an answer is lost, the store is away until whoever asked gives up; a dead process does not reach it."""

    is_dead = False

    def get(self, key: bytes) -> Versioned | None:
        self.check_alive()
        return super().get(key)

    @contextmanager
    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> Iterator[ReadView]:
        self.check_alive()
        with super().view(keys, use) as view:
            yield view

    def check_alive(self) -> None:
        """Raises Died behind a death: what unwinds the stack there would not have run."""
        if self.is_dead:
            raise Died

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        self.check_alive()
        outcome = super().commit(preconditions, puts, deletes)
        if isinstance(outcome, Unknown):
            # The commit reads once more to find out.
            self.plan_reads(*[Fault.REFUSED] * UNKNOWNS_MAX)
        return outcome

    def settle(self) -> None:
        """What was planned and not met will not come any more."""
        self._commit_plan.clear()
        self._read_plan.clear()
