"""The worker inside the server's process: runs each task on a thread of its own.

Covers: assign, cancel, heartbeat, reports, tasks without progress. Does not cover: what tasks do (runners), who gets
them, Spark's restart (heartbeat.py).
Always holds: every accepted task is reported exactly once; a task that was not touched for a minute ends itself; what
fails because its JVM has ended is reported as that, whatever the error was.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

import msgspec

from tilth.base import tracing
from tilth.base.clock import Clock
from tilth.base.errors import ErrorKind, TilthError, as_exception
from tilth.base.full import full_error
from tilth.base.logs import Log
from tilth.model.task import TaskKind, TaskSpec
from tilth.warehouse.errors import (
    SparkMemoryError,
    SparkRestartingError,
    TaskCancelledError,
    TaskFailedError,
    TaskStalledError,
    WorkerBusyError,
)
from tilth.warehouse.parallelism import write_slots_of
from tilth.warehouse.session.job_names import traced_jobs
from tilth.warehouse.session.session import WorkerSession
from tilth.warehouse.stats import WorkerLoad
from tilth.warehouse.tasks.contract import Runner, TaskContext, WorkerReports
from tilth.warehouse.tasks.state import TaskResult
from tilth.warehouse.worker.heartbeat import Heartbeat
from tilth.warehouse.worker.lingering import LingeringTasks
from tilth.warehouse.worker.losses import may_be_lost, memory_loss_in
from tilth.warehouse.worker.stalls import STEPS_PER_CHECK_MAX, StallFinder, stall_bound

#: A task that its server has not named for so long ends; a consumer too, which another may have replaced.
UNTOUCHED_SECONDS_MAX = 60.0
#: Threads of tasks that were given up and still wait; beyond, tasks are left to wait.
BLOCKED_MAX = 16
#: Merges and mutations that it accepts for each of its threads (docs/policies/tasks.md#admission).
BACKGROUND_TASKS_PER_THREAD = 1.5
#: Estimated input from which on a statement's temporary bytes are measured: that needs some calls of the JVM.
MEASURED_BYTES_MIN = 64 << 20
_WATCH_SECONDS = 1.0
_STOP_SECONDS_MAX = 10.0
#: A process that is ending closes its connections a little before its end can be seen.
_ENDING_SECONDS_MAX = 2.0
_ENDING_POLL_SECONDS = 0.05
#: Kinds of errors that remain true when the JVM has ended.
_TRUE_WITHOUT_JVM = (ErrorKind.RETRY, ErrorKind.FENCED, ErrorKind.UNKNOWN_OUTCOME, ErrorKind.CONFLICT)

_log = Log("warehouse")


@dataclass(slots=True, kw_only=True)
class _Running:
    spec: TaskSpec
    thread: threading.Thread
    touched: float
    #: The JVM that it runs in.
    run: int
    #: Reason for its cancellation if no user cancelled it.
    stalled: str = ""
    #: Operation besides Spark that it waits for (empty: none), and the wait in seconds.
    waits_for: str = ""
    waited: float = 0.0
    cancelled: threading.Event = field(default_factory=threading.Event)
    retiring: threading.Event = field(default_factory=threading.Event)


class EmbeddedWorker:
    """A worker in this process. Register the runners, then start it."""

    def __init__(self, clock: Clock, session: WorkerSession, *, name: str, memory_bytes: int, threads: int = 0) -> None:
        """`threads`: merges and mutations are refused beyond one and a half for each; 0: never. On a cluster they
        follow its executors, unless they were set.
        """
        self._threads = threads
        self._clock = clock
        self._session = session
        self._name = name
        self._memory_bytes = memory_bytes
        self._runners: dict[TaskKind, Runner] = {}
        self._reports: WorkerReports | None = None
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        #: Threads of tasks that were given up.
        self._blocked: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self._heartbeat: Heartbeat | None = None
        self._load = WorkerLoad()

    def live_ids(self) -> set[str]:
        with self._lock:
            return set(self._running)

    @property
    def name(self) -> str:
        return self._name

    @property
    def memory_bytes(self) -> int:
        return self._memory_bytes

    @property
    def load(self) -> WorkerLoad:
        """The disk of Spark's temporary files; cores and memory are this process's own, which are counted by tasks.

        On a cluster: the cores of its executors, by the last heartbeat. Their disks are not known.
        """
        return self._load

    def register(self, kind: TaskKind, runner: Runner) -> None:
        assert kind not in self._runners, kind
        self._runners[kind] = runner

    def attach(self, reports: WorkerReports) -> None:
        self._reports = reports

    def start(self) -> None:
        """Begin to watch over Spark and the tasks."""
        self._heartbeat = Heartbeat(self._clock, self._session)
        self._heartbeat.start()
        self._measure()
        self._watcher = threading.Thread(target=self._watch, name=f"tilth-worker-{self._name}", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Cancel the tasks and wait for their threads, for a while; leave the session to its owner."""
        self._stopping.set()
        with self._lock:
            running = list(self._running.values())
        for task in running:
            self.cancel(task.spec.id)
        deadline = self._clock.monotonic() + _STOP_SECONDS_MAX
        for task in running:
            task.thread.join(max(0.0, deadline - self._clock.monotonic()))
        if self._watcher is not None:
            self._watcher.join(_STOP_SECONDS_MAX)
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def trouble(self) -> str:
        outage = self._session.outage
        return "" if outage is None else f"Spark is away {outage}"

    def assign(self, spec: TaskSpec) -> None:
        """Raises WorkerBusyError when it is stopping, knows no runner or has too many tasks.

        Raises SparkRestartingError while Spark is away.
        """
        if self._stopping.is_set():
            raise WorkerBusyError("the worker is stopping", worker=self._name)
        if spec.kind not in self._runners:
            raise WorkerBusyError("the worker has no runner for the kind", worker=self._name, kind=spec.kind)
        # Raises while it is away.
        _ = self._session.session
        thread = threading.Thread(target=self._run, args=(spec,), name=f"tilth-{spec.kind}-{spec.id[:8]}", daemon=True)
        with self._lock:
            if spec.id in self._running:
                return
            self._check_room(spec)
            self._running[spec.id] = _Running(
                spec=spec, thread=thread, touched=self._clock.monotonic(), run=self._session.run
            )
        thread.start()

    def _check_room(self, spec: TaskSpec) -> None:
        background = sum(task.spec.kind.traits.is_yielding for task in self._running.values())
        background_max = int(
            (self._threads and (self._load.write_slots or self._threads)) * BACKGROUND_TASKS_PER_THREAD
        )
        if spec.kind.traits.is_yielding and background_max and background >= background_max:
            raise WorkerBusyError("too many tasks", worker=self._name, tasks=background, tasks_max=background_max)

    def touch(self, task_ids: Collection[str]) -> set[str]:
        now = self._clock.monotonic()
        with self._lock:
            for task_id in task_ids:
                if task_id in self._running:
                    self._running[task_id].touched = now
            return set(self._running)

    def cancel(self, task_id: str) -> None:
        with self._lock:
            task = self._running.get(task_id)
        if task is None:
            return
        task.cancelled.set()
        # The caller must not hang when Spark does.
        threading.Thread(target=self._cancel_jobs, args=(task,), name="tilth-cancel", daemon=True).start()

    def retire(self, task_id: str) -> None:
        with self._lock:
            task = self._running.get(task_id)
        if task is not None:
            task.retiring.set()

    def _run(self, spec: TaskSpec) -> None:
        with self._lock:
            task = self._running[spec.id]
        started = self._clock.monotonic()
        span = self._span(spec)
        with tracing.using(span):
            outcome = self._outcome(task)
        if isinstance(outcome, TilthError):
            span.fail(outcome)
        # Before the report, after which the statement ends: a part ends before the whole.
        span.end()
        self._report(spec, outcome, seconds=self._clock.monotonic() - started)

    def _outcome(self, task: _Running) -> TaskResult | TilthError:
        outcome: TaskResult | TilthError
        try:
            outcome = self._perform(task)
        except TilthError as error:
            outcome = error
        # The outermost loop of a task: Spark and runners may raise anything, and each failure is reported.
        except BaseException as error:
            outcome = self._failure(task, as_exception(error))
        return self._explain(task, outcome) if isinstance(outcome, TilthError) else outcome

    def _span(self, spec: TaskSpec) -> tracing.Span:
        """Begin the task's span. A task that stays has none: each of its rounds has one. A statement's has one where
        its statement has one.
        """
        is_untraced = spec.kind.traits.is_resident or (spec.kind.traits.is_statement and not spec.trace)
        return tracing.begin(
            f"task {spec.kind.value}",
            parent=tracing.UNTRACED if is_untraced else spec.trace,
            tilth__task_id=spec.id,
            tilth__table=spec.table,
            tilth__warehouse=spec.warehouse,
            tilth__worker=self._name,
        )

    def _perform(self, task: _Running) -> TaskResult:
        spec = task.spec
        session = self._session.new_session(pool=spec.warehouse)
        with self._session.tagged(tag_of(spec.id)):
            context = TaskContext(
                spec=spec,
                session=session,
                cancelled=task.cancelled,
                retiring=task.retiring,
                tries_tasks_again=self._session.tries_tasks_again,
                is_on_cluster=self._session.is_on_cluster,
                waits_for=partial(self._note_wait, task),
                fit=partial(self._session.fit, session),
            )
            context.raise_if_cancelled()
            with traced_jobs(session, f"{spec.kind.value} {spec.table}".strip()):
                return self._with_temporary(spec, self._runners[spec.kind](context))

    def _note_wait(self, task: _Running, what: str) -> None:
        task.waits_for, task.waited = what, 0.0

    def _with_temporary(self, spec: TaskSpec, result: TaskResult) -> TaskResult:
        """Add what Spark kept on disk, where that can be much."""
        if not spec.kind.traits.is_statement or spec.estimate.input_bytes < MEASURED_BYTES_MIN:
            return result
        try:
            found = self._session.temporary_bytes(tag_of(spec.id))
        except Exception as error:
            # Py4j's own errors: the task has its result, whatever becomes of Spark.
            _log.debug("temporary_bytes_unknown", cause_id=spec.id, reason=error)
            return result
        actual = msgspec.structs.replace(result.actual, temporary_bytes=found)
        return TaskResult(payload=result.payload, actual=actual, may_have_retried=result.may_have_retried)

    def _failure(self, task: _Running, error: Exception) -> TilthError:
        spec, memory_loss = task.spec, memory_loss_in(error)
        if memory_loss is not None:
            return memory_loss
        if not task.cancelled.is_set() and not self._is_lost(task, error):
            _log.error("task_failed", cause_id=spec.id, kind=spec.kind, table=spec.table, error=error)
        reason = f"{type(error).__name__}: {error}".strip()
        of = f" of {spec.table}" if spec.table else ""
        failed = TaskFailedError(f"a {spec.kind} task{of} failed", task=spec.id, reason=reason[:2000])
        failed.__cause__ = error
        return failed

    def _explain(self, task: _Running, error: TilthError) -> TilthError:
        """Return why the task really ended: it was cancelled, or its JVM has ended; else the error as it is."""
        spec = task.spec
        if task.stalled:
            return _stalled(task)
        if task.cancelled.is_set():
            return TaskCancelledError(task=spec.id, table=spec.table)
        if isinstance(error, SparkRestartingError | SparkMemoryError) or error.kind in _TRUE_WITHOUT_JVM:
            return error
        if not self._is_lost(task, error):
            return full_error(error, folder=self._session.folder) or error
        hint = "retry the statement: Spark is started again by itself"
        return SparkRestartingError(
            "Spark ended while the task ran; nothing was applied", task=spec.id, reason=self._why_lost(task), hint=hint
        )

    def _why_lost(self, task: _Running) -> str:
        """Return the reason why the task's JVM has ended, also if it has been started again since."""
        outage = self._session.outage
        if outage is not None:
            return outage.reason
        is_another = task.run != self._session.run
        return self._session.why_ended if is_another else self._session.exit_reason()

    def _is_lost(self, task: _Running, error: BaseException) -> bool:
        """Return whether the JVM of the task has ended; wait a little for one that is ending."""
        deadline = self._clock.monotonic() + (_ENDING_SECONDS_MAX if may_be_lost(error) else 0.0)
        while task.run == self._session.run and self._session.is_alive():
            if self._clock.monotonic() >= deadline:
                return False
            self._clock.sleep(_ENDING_POLL_SECONDS)
        return True

    def _report(self, spec: TaskSpec, outcome: TaskResult | TilthError, *, seconds: float) -> None:
        reports = self._reports
        assert reports is not None, "attach comes first"
        # Forgotten before the report: the receiver may read the list at once.
        with self._lock:
            if self._running.pop(spec.id, None) is None:
                # It was given up, and has ended since.
                return
        if isinstance(outcome, TilthError):
            reports.failed(spec.id, outcome)
            return
        actual = outcome.actual
        if actual.seconds == 0:
            actual = msgspec.structs.replace(actual, seconds=seconds)
        may_have_retried = self._session.tries_tasks_again
        reports.finished(spec.id, TaskResult(payload=outcome.payload, actual=actual, may_have_retried=may_have_retried))

    def _cancel_jobs(self, task: _Running) -> None:
        try:
            self._session.cancel_jobs(tag_of(task.spec.id))
        except Exception as error:
            if task.run == self._session.run and self._session.is_alive():
                # Py4j's own errors; the watch tries again.
                _log.warning("jobs_not_cancelled", cause_id=task.spec.id, reason=error)
            else:
                _log.debug("jobs_gone", cause_id=task.spec.id, reason=error)

    def _watch(self) -> None:
        stalls, lingering = StallFinder(self._clock, self._session), LingeringTasks(self._clock, self._session)
        now = self._clock.monotonic()
        while not self._clock.wait(self._stopping, _WATCH_SECONDS):
            try:
                self._session.tend_logs()
                self._end_stalled(stalls)
                now, before = self._clock.monotonic(), now
                # This process may have been stopped itself.
                self._give_up_blocked(seconds=min(now - before, STEPS_PER_CHECK_MAX * _WATCH_SECONDS))
                self._end_unwanted()
                lingering.check(self._cancelled_tags())
                self._measure()
            except BaseException as error:
                _log.error("worker_watch_failed", worker=self._name, error=error)
        stalls.leave()
        lingering.leave()

    def _measure(self) -> None:
        """Measure what `load` returns: its callers hold locks, and a disk may hang."""
        parallelism = self._session.parallelism
        load = WorkerLoad(tasks=parallelism.tasks, tasks_reason=parallelism.reason)
        if not self._session.is_on_cluster:
            disk = shutil.disk_usage(self._session.folder)
            self._load = msgspec.structs.replace(load, disk_bytes=disk.total, free_disk_bytes=disk.free)
            return
        executors, is_given = self._session.executors, self._session.settings.are_write_slots_given
        self._load = msgspec.structs.replace(
            load,
            cores=executors.cores,
            free_cores=max(0, executors.cores - executors.running),
            write_slots=0 if is_given else write_slots_of(executors.cores),
        )

    def _cancelled_tags(self) -> set[str]:
        with self._lock:
            return {tag_of(task.spec.id) for task in self._running.values() if task.cancelled.is_set()}

    def _end_stalled(self, stalls: StallFinder) -> None:
        with self._lock:
            tasks = {tag_of(task.spec.id): task for task in self._running.values() if not task.cancelled.is_set()}
        bounds = {tag: stall_bound(self._session.settings, task.spec.kind) for tag, task in tasks.items()}
        for tag, seconds in stalls.check(bounds).items():
            task = tasks.get(tag)
            if task is not None:
                task.stalled = f"its Spark job has made no progress for {seconds:.0f} s"
                spec = task.spec
                _log.error("task_stalled", cause_id=spec.id, kind=spec.kind, table=spec.table, reason=task.stalled)
                task.cancelled.set()

    def _give_up_blocked(self, *, seconds: float) -> None:
        """Report tasks as failed that wait for too long for something other than Spark. Nothing ends their threads, and
        what they would do later is fenced. `seconds`: since the last call.
        """
        with self._lock:
            running = list(self._running.values())
            self._blocked = [each for each in self._blocked if each.is_alive()]
        for task in running:
            what, spec = task.waits_for, task.spec
            task.waited += seconds
            bound = stall_bound(self._session.settings, spec.kind)
            if not what or task.waited < bound or task.thread in self._blocked or len(self._blocked) >= BLOCKED_MAX:
                continue
            task.stalled = f"it has been {what} for {task.waited:.0f} s"
            _log.error("task_blocked", cause_id=spec.id, kind=spec.kind, table=spec.table, reason=task.stalled)
            task.cancelled.set()
            self._blocked.append(task.thread)
            # A report to another process takes time.
            report = partial(self._report, spec, _stalled(task), seconds=task.waited)
            threading.Thread(target=report, name="tilth-blocked", daemon=True).start()

    def _end_unwanted(self) -> None:
        now = self._clock.monotonic()
        with self._lock:
            tasks = list(self._running.values())
        for task in tasks:
            if now - task.touched > UNTOUCHED_SECONDS_MAX and not task.cancelled.is_set():
                _log.warning("task_untouched", cause_id=task.spec.id, kind=task.spec.kind, table=task.spec.table)
                task.cancelled.set()
            if task.cancelled.is_set():
                # A job may have begun after the first call.
                self._cancel_jobs(task)


def _stalled(task: _Running) -> TaskStalledError:
    hint = "its service tries again by itself; a statement has to be sent again"
    return TaskStalledError(task=task.spec.id, table=task.spec.table, reason=task.stalled, hint=hint)


def tag_of(task_id: str) -> str:
    return f"tilth-{task_id}"
