"""Contract between the worker and the rooms whose work it runs.

Covers: context, runner, the worker's protocol. Does not cover: threads (worker/embedded.py), choice (state.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tilth.base.errors import TilthError
from tilth.model.task import TaskSpec
from tilth.warehouse.errors import TaskCancelledError
from tilth.warehouse.parallelism import Parallelism
from tilth.warehouse.stats import WorkerLoad
from tilth.warehouse.tasks.state import TaskResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _no_watch(_: str) -> None:
    pass


def _one_task() -> Parallelism:
    return Parallelism(tasks=1, cores=1, reason="nothing is known of its Spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """Context of a runner: a thread of its own, a Spark session of its own, the pool of its warehouse.

    Spark jobs of this thread end when the task is cancelled. A runner that starts threads which use Spark takes
    pyspark's InheritableThread for them.
    """

    spec: TaskSpec
    session: SparkSession
    #: Set when the task is to end.
    cancelled: threading.Event
    #: Set when a task that stays is to end where nothing is lost by it.
    retiring: threading.Event = field(default_factory=threading.Event)
    #: `True` if Spark may try a failed task again: files of a failed attempt stay beside those that the job names.
    tries_tasks_again: bool = False
    #: `True` if tasks of Spark run in other processes, which may share no disk with this one.
    is_on_cluster: bool = False
    #: Called by a task that stays before it waits for something other than Spark, with words for what it waits for, and
    #: with none when it goes on. One that waits for too long is given up, and its service starts another.
    waits_for: Callable[[str], None] = _no_watch
    #: Lets the session's scans and shuffles have as many tasks as its Spark runs now, and returns that number. A task
    #: that stays calls it before each round: executors come and go.
    fit: Callable[[], Parallelism] = _one_task

    def is_cancelled(self) -> bool:
        return self.cancelled.is_set()

    def raise_if_cancelled(self) -> None:
        """Raises TaskCancelledError."""
        if self.cancelled.is_set():
            raise TaskCancelledError(task=self.spec.id, table=self.spec.table)


#: Does the work of one kind of task; raises when it cannot.
Runner = Callable[[TaskContext], TaskResult]


class WorkerReports(Protocol):
    """Reports of a worker to its server. Both calls are for tasks that were assigned; a second call is ignored."""

    def finished(self, task_id: str, result: TaskResult) -> None: ...

    def failed(self, task_id: str, error: TilthError) -> None: ...


class Worker(Protocol):
    """A worker as its server sees it. Each call may raise UnavailableError; then nothing is known of it."""

    @property
    def name(self) -> str: ...

    @property
    def memory_bytes(self) -> int:
        """Memory that its tasks may use together, by their estimates."""

    @property
    def load(self) -> WorkerLoad:
        """Free cores, memory and disk of its machine, those of them that are known."""

    def attach(self, reports: WorkerReports) -> None:
        """Set the receiver of the worker's reports."""

    def trouble(self) -> str:
        """Return why the worker can run nothing that needs Spark now, and since when; empty: it can."""

    def assign(self, spec: TaskSpec) -> None:
        """Start the task and return at once. Raises WorkerBusyError if it does not accept it, and SparkRestartingError
        while its Spark is away."""

    def touch(self, task_ids: Collection[str]) -> set[str]:
        """The heartbeat: the server names the tasks it believes to be there; the answer is those that are."""

    def cancel(self, task_id: str) -> None:
        """Cancel the task; the report of its end follows. Does nothing if the task is not there."""

    def retire(self, task_id: str) -> None:
        """Request that a resident task ends where nothing is lost by it, as a consumer between two rounds."""
