"""Progress of each task in Spark, from Spark's own status store.

Covers: sampling. Does not cover: decisions based on it. Always holds: callers get the last sample at once, also
when Spark hangs; a task's numbers never go back.

Tests: tests/integration/warehouse/test_hung_jvm.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.warehouse.session.session import WorkerSession
from tilth.warehouse.worker.embedded import tag_of

SAMPLE_SECONDS = 0.5
#: A job has more stages than that only when somebody generates SQL.
STAGES_MAX = 200

_log = Log("warehouse")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """Progress of one task in jobs that have begun; Spark knows no others."""

    stages_done: int = 0
    stages_total: int = 0
    #: Spark's tasks of these stages.
    tasks_done: int = 0
    tasks_total: int = 0
    rows_read: int = 0
    bytes_read: int = 0


@dataclass(slots=True)
class _Stage:
    tasks: int = 0
    done: int = 0
    rows: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Seen:
    stages: dict[int, _Stage] = field(default_factory=dict)

    def progress(self) -> TaskProgress:
        stages = self.stages.values()
        return TaskProgress(
            stages_done=sum(stage.done >= stage.tasks for stage in stages),
            stages_total=len(stages),
            tasks_done=sum(stage.done for stage in stages),
            tasks_total=sum(stage.tasks for stage in stages),
            rows_read=sum(stage.rows for stage in stages),
            bytes_read=sum(stage.bytes for stage in stages),
        )


class ProgressWatch:
    """Samples the progress of tasks twice a second while there are any."""

    def __init__(self, clock: Clock, session: WorkerSession, live: Callable[[], set[str]]) -> None:
        """`live` gives the ids of the tasks that run."""
        self._clock = clock
        self._session = session
        self._live = live
        self._seen: dict[str, _Seen] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="tilth-progress", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop without waiting for a Spark that hangs."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(2 * SAMPLE_SECONDS)

    def of(self, task_id: str) -> TaskProgress:
        """The last sample; zeros where there is none yet."""
        seen = self._seen.get(task_id)
        return seen.progress() if seen is not None else TaskProgress()

    def _watch(self) -> None:
        while not self._clock.wait(self._stopping, SAMPLE_SECONDS):
            try:
                self.sample()
            except TilthError:
                # Spark is away; there is nothing to sample.
                continue
            # Py4j's and Spark's own errors; only a display depends on it.
            except BaseException as error:
                _log.debug("progress_unknown", reason=error)

    def sample(self) -> None:
        """Take one sample of all live tasks."""
        live = self._live()
        self._seen = {task_id: self._seen.get(task_id, _Seen()) for task_id in live}
        if not live:
            return
        by_tag = {tag_of(task_id): seen for task_id, seen in self._seen.items()}
        # Any: handles of the JVM.
        jvm: Any = self._session.context._jvm
        store: Any = self._session.context._jsc.sc().statusStore()
        jobs = store.jobsList(jvm.java.util.List.of(jvm.org.apache.spark.JobExecutionStatus.RUNNING))
        for index in range(jobs.size()):
            job = jobs.apply(index)
            seen = next((by_tag[tag] for tag in job.jobTags().mkString("\n").split("\n") if tag in by_tag), None)
            if seen is not None:
                for stage_id in job.stageIds().mkString(" ").split()[:STAGES_MAX]:
                    self._sample_stage(store, int(stage_id), seen)

    def _sample_stage(self, store: Any, stage_id: int, seen: _Seen) -> None:
        known = seen.stages.setdefault(stage_id, _Stage())
        if known.tasks and known.done >= known.tasks:
            return
        data = store.lastStageAttempt(stage_id)
        known.tasks = max(known.tasks, data.numTasks())
        known.done = max(known.done, data.numCompleteTasks())
        known.rows = max(known.rows, data.inputRecords())
        known.bytes = max(known.bytes, data.inputBytes())
