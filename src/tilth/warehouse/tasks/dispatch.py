"""Sends tasks to workers and passes their results to the callers that wait.

Covers: the server's side of tasks: submit, cancel, heartbeat. Does not cover: which worker (state.py), who waits for
the end (handle.py), the work.
Always holds: workers are called outside the lock; every submitted task ends in exactly one result or error.
See also: worker/embedded.py for the other side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import assert_never

import msgspec

from tilth.base import tracing
from tilth.base.cancel import Cancellation, current
from tilth.base.clock import Clock
from tilth.base.errors import ErrorKind, TilthError
from tilth.base.ids import IdSource
from tilth.base.logs import Log
from tilth.model.task import Cost, TaskInfo, TaskKind, TaskSpec, TaskState
from tilth.model.warehouse import Warehouse
from tilth.warehouse.definitions.settings import WarehouseConfig, known_name, warehouse_configs
from tilth.warehouse.errors import (
    SparkRestartingError,
    WorkerBusyError,
    WorkerNotFoundError,
    WorkerUnfitError,
)
from tilth.warehouse.stats import WarehouseInfo, WarehouseStats, WorkerInfo, WorkerLoad, WorkerProcess
from tilth.warehouse.tasks.contract import Worker
from tilth.warehouse.tasks.estimate import Estimator
from tilth.warehouse.tasks.handle import Handle
from tilth.warehouse.tasks.state import (
    Assign,
    Ended,
    Instruction,
    Retire,
    Stop,
    TaskBoard,
    TaskResult,
    WorkerShare,
    state_of,
)

HEARTBEAT_SECONDS = 5.0
#: Interval of checks whether Spark is back.
SPARK_CHECK_SECONDS = 0.5
#: Maximum wait of statements for a worker if their warehouse has none.
EMPTY_SECONDS_MAX = 30.0
#: Workers that get a heartbeat at once.
TOUCHES_MAX = 32
_STOP_SECONDS_MAX = 10.0

_log = Log("warehouse")


class Dispatcher:
    """The tasks of one server and the workers of its warehouses."""

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        workers: Mapping[str, Sequence[Worker]],
        *,
        slots: Mapping[str, int],
        empty_seconds_max: float = EMPTY_SECONDS_MAX,
    ) -> None:
        """`workers` by warehouse, one may serve several; `slots` by warehouse: tasks at once on each of its workers.

        `empty_seconds_max`: how long statements wait for a worker if their warehouse has none, and how long those that
        only read wait for its Spark.
        """
        self._clock = clock
        self._ids = ids
        self._empty_ms_max = int(empty_seconds_max * 1000)
        self._workers: dict[str, Worker] = {}
        #: Workers in other processes, by name.
        self._processes: dict[str, Callable[[], WorkerProcess]] = {}
        self._lock = threading.Lock()
        self._board = TaskBoard(warehouses=workers, load_of=self._load_of)
        self._handles: dict[str, Handle] = {}
        self._estimator = Estimator()
        self._counts = dict.fromkeys((TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED, TaskState.LOST), 0)
        self._answered_ms: dict[str, int] = {}
        self._silent_why: dict[str, str] = {}
        #: Workers that users have drained, there or not, and why.
        self._kept: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._touches = ThreadPoolExecutor(TOUCHES_MAX, "tilth-touch")
        for warehouse, members in workers.items():
            for worker in members:
                self.join(worker, warehouse=warehouse, slots=slots[warehouse])

    def join(
        self, worker: Worker, *, warehouse: str, slots: int, process: Callable[[], WorkerProcess] | None = None
    ) -> None:
        """Add a worker to a warehouse, for `slots` tasks at once. A worker of several warehouses joins each.
        `process` describes its process if that is not the server's own.

        A worker that was known by this name is gone: its tasks are lost.
        """
        if self._workers.get(worker.name, worker) is not worker:
            self.leave(worker.name, "a new worker has joined under its name")
        share = WorkerShare(warehouse=warehouse, worker=worker.name, slots=slots, memory_bytes=worker.memory_bytes)
        worker.attach(self)
        with self._lock:
            self._workers[worker.name] = worker
            if process is not None:
                self._processes[worker.name] = process
            self._silent_why.pop(worker.name, None)
            if worker.name in self._kept:
                self._board.draining[worker.name] = self._kept[worker.name]
            instructions = self._board.join(share, now_ms=self._clock.now_ms())
        _log.info("worker_joined", worker=worker.name, warehouse=warehouse, slots=slots)
        self._perform(instructions)

    def leave(self, name: str, reason: str) -> None:
        """Remove a worker: its tasks are lost at once, for this reason. Does nothing if it is not known."""
        with self._lock:
            if self._workers.pop(name, None) is None:
                return
            self._silent_why.pop(name, None)
            self._answered_ms.pop(name, None)
            self._processes.pop(name, None)
            instructions = self._board.leave(name, reason, now_ms=self._clock.now_ms())
        _log.warning("worker_gone", worker=name, reason=reason)
        self._perform(instructions)

    def _load_of(self, name: str) -> WorkerLoad:
        """Return what is known of a worker's machine. The lock is held."""
        return self._workers[name].load if name in self._workers else WorkerLoad()

    def declare(self, warehouses: Iterable[Warehouse]) -> None:
        """Set the warehouses that are defined, with workers or without; `default` and `write` are there anyhow."""
        configs = warehouse_configs(warehouses)
        with self._lock:
            served = {share.warehouse: WarehouseConfig() for share in self._board.shares}
            self._board.warehouses = served | configs

    def warehouse_named(self, name: str) -> str:
        """Return the warehouse that a name means, ByConity's names included. Raises NotFoundError
        (WAREHOUSE_NOT_FOUND).
        """
        with self._lock:
            named = known_name(name, self._board.warehouses)
            self._board.check_warehouse(named)
        return named

    def check_fits(self, name: str, *, master: str, cores: int, memory_bytes: int) -> None:
        """Check a worker that wants to join the warehouse. Raises NotFoundError (WAREHOUSE_NOT_FOUND) and
        WorkerUnfitError.
        """
        with self._lock:
            self._board.check_warehouse(name)
            config = self._board.warehouses[name]
        if config.master not in ("", master):
            raise WorkerUnfitError("another Spark master", warehouse=name, master=master, wanted=config.master)
        # The cores of a worker whose Spark has not started are not known.
        if 0 < cores < config.cores:
            raise WorkerUnfitError("too few cores", warehouse=name, cores=cores, wanted=config.cores)
        if 0 < memory_bytes < config.memory_bytes:
            raise WorkerUnfitError("too little memory", warehouse=name, bytes=memory_bytes, wanted=config.memory_bytes)

    def keep_drained(self, drained: Mapping[str, str]) -> None:
        """Set the workers that get no tasks whenever they join, and why; others get tasks again."""
        with self._lock:
            freed = [name for name in self._kept if name not in drained and name in self._workers]
            self._kept = dict(drained)
            kept = [name for name in drained if name in self._workers]
        for name in (*freed, *kept):
            with suppress(WorkerNotFoundError):
                self.drain(name, drained.get(name, ""))

    def drain(self, name: str, reason: str) -> None:
        """Send no more tasks to the worker; what runs there goes on, and its consumers move between two rounds.
        Without a reason, it gets tasks again.

        Raises WorkerNotFoundError.
        """
        with self._lock:
            if name not in self._workers:
                raise WorkerNotFoundError(worker=name, hint=f"there are: {', '.join(sorted(self._workers)) or 'none'}")
            instructions = self._board.drain(name, reason, now_ms=self._clock.now_ms())
        _log.info("worker_drains" if reason else "worker_resumes", worker=name, reason=reason)
        self._perform(instructions)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._beat, name="tilth-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cancel every task and end the heartbeats."""
        self._stopping.set()
        with self._lock:
            live = self._board.live_ids()
            handles = [self._handles[task_id] for task_id in live]
        for handle in handles:
            handle.cancel()
        deadline = self._clock.monotonic() + _STOP_SECONDS_MAX
        for handle in handles:
            handle.ends_within(max(0.0, deadline - self._clock.monotonic()))
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS_MAX)

    def estimate(self, kind: TaskKind, input_bytes: int, rows: int = 0) -> Cost:
        """Estimate the cost of a task from those of earlier tasks. `rows` counts only if the bytes are not known."""
        with self._lock:
            return self._estimator.estimate(kind, input_bytes=input_bytes or rows * _ROW_BYTES)

    def new_spec(
        self,
        kind: TaskKind,
        *,
        warehouse: str,
        table: str,
        payload: bytes,
        txn: int = 0,
        input_bytes: int = 0,
        rows: int = 0,
    ) -> TaskSpec:
        """A task with a new id and an estimate, to be submitted. Raises NotFoundError (WAREHOUSE_NOT_FOUND)."""
        warehouse = self.warehouse_named(warehouse)
        estimate = self.estimate(kind, input_bytes, rows)
        return TaskSpec(
            id=self._ids(), kind=kind, warehouse=warehouse, table=table, txn=txn, estimate=estimate, payload=payload
        )

    def submit(self, spec: TaskSpec) -> Handle:
        """Send the task to a worker, or let it wait for one. Raises NotFoundError (WAREHOUSE_NOT_FOUND) and
        InvalidInputError (WAREHOUSE_WORK_REFUSED).
        """
        if not spec.id:
            spec = msgspec.structs.replace(spec, id=self._ids())
        if trace := tracing.traceparent():
            spec = msgspec.structs.replace(spec, trace=trace)
        handle = Handle(self._clock, self, spec)
        with self._lock:
            instructions = self._board.submit(spec, now_ms=self._clock.now_ms())
            self._handles[spec.id] = handle
        self._perform(instructions)
        return handle

    def run(self, spec: TaskSpec) -> TaskResult:
        """Submit and wait; raises what the task ended with, or why this thread's statement was cancelled."""
        cancellation = current.get()
        if cancellation is None:
            return self.submit(spec).wait()
        cancellation.raise_if_cancelled()
        handle = self.submit(spec)
        with cancellation.waiting_for(handle):
            return handle.wait()

    def run_until(self, spec: TaskSpec, is_enough: Callable[[], bool], *, poll_seconds: float) -> TaskResult | Handle:
        """Run like `run`, but return the handle of the running task as soon as `is_enough` returns true."""
        cancellation = current.get() or Cancellation()
        cancellation.raise_if_cancelled()
        handle = self.submit(spec)
        with cancellation.waiting_for(handle):
            while not handle.ends_within(poll_seconds):
                if is_enough():
                    return handle
            return handle.wait()

    def cancel(self, task_id: str) -> None:
        """Cancel the task; do nothing if it has ended."""
        with self._lock:
            instructions = self._board.cancel(task_id, now_ms=self._clock.now_ms())
        self._perform(instructions)

    def abandon(self, task_id: str) -> None:
        """Give the slot of this cancelled task to others while it still runs; no caller waits for it any more."""
        with self._lock:
            instructions = self._board.abandon(task_id, now_ms=self._clock.now_ms())
        self._perform(instructions)

    def finished(self, task_id: str, result: TaskResult) -> None:
        """A worker's report."""
        with self._lock:
            estimated = self._board.estimate_of(task_id)
            if estimated is not None and not estimated[0].traits.is_resident:
                kind, cost = estimated
                self._estimator = self._estimator.learn(kind, estimated=cost, actual=result.actual)
            instructions = self._board.finished(task_id, result, now_ms=self._clock.now_ms())
        self._perform(instructions)

    def failed(self, task_id: str, error: TilthError) -> None:
        """A worker's report."""
        with self._lock:
            instructions = self._board.failed(task_id, error, now_ms=self._clock.now_ms())
        self._perform(instructions)

    def committing(self, task_id: str) -> None:
        """Note that a commit of the task's results begins: for ten seconds from now the task does not count as lost."""
        with self._lock:
            self._board.committing(task_id, now_ms=self._clock.now_ms())

    def round_began(self, task_id: str, *, input_bytes: int) -> None:
        """Note that a resident task begins a round over about so many bytes: it uses a slot and memory
        until its end.
        """
        with self._lock:
            estimate = self._estimator.estimate(TaskKind.CONSUME, input_bytes=input_bytes)
            self._board.round_began(task_id, estimate)

    def round_ended(self, task_id: str, actual: Cost | None = None) -> None:
        """Note that its round is over; `actual`: the measured cost if it committed."""
        with self._lock:
            estimated, instructions = self._board.round_ended(task_id, now_ms=self._clock.now_ms())
            if estimated is not None and actual is not None:
                self._estimator = self._estimator.learn(TaskKind.CONSUME, estimated=estimated, actual=actual)
        self._perform(instructions)

    def touch_workers(self) -> None:
        """Send one heartbeat to every worker, in parallel; the thread calls it every five seconds."""
        with self._lock:
            workers = list(self._workers.values())
        if len(workers) == 1:
            self._touch(workers[0])
        else:
            wait([self._touches.submit(self._touch, worker) for worker in workers])
        with self._lock:
            now_ms = self._clock.now_ms()
            instructions = self._board.end_unplaced(waiting_ms=self._empty_ms_max, now_ms=now_ms)
            instructions += self._board.balance(now_ms=now_ms)
        self._perform(instructions)

    def check_returned(self) -> None:
        """Send waiting tasks to the workers whose Spark is back; the thread calls it every half second."""
        with self._lock:
            away = [self._workers[name] for name in self._board.without_spark if name in self._workers]
        for worker in away:
            if not worker.trouble():
                with self._lock:
                    instructions = self._board.spark_is_back(worker.name, now_ms=self._clock.now_ms())
                self._perform(instructions)

    def _touch(self, worker: Worker) -> None:
        with self._lock:
            expected = self._board.tasks_of(worker.name)
        try:
            known = worker.touch(expected)
        except TilthError as error:
            _log.warning("worker_silent", worker=worker.name, reason=error)
            with self._lock:
                if self._workers.get(worker.name) is not worker:
                    return
                self._silent_why[worker.name] = str(error)
                instructions = self._board.missed(worker.name, str(error), now_ms=self._clock.now_ms())
        else:
            with self._lock:
                if self._workers.get(worker.name) is not worker:
                    return
                now_ms = self._clock.now_ms()
                self._silent_why.pop(worker.name, None)
                self._answered_ms[worker.name] = now_ms
                instructions = self._board.touched(worker.name, known, expected=expected, now_ms=now_ms)
        self._perform(instructions)

    def tasks(self) -> list[TaskInfo]:
        """Live tasks, then the last thousand that ended, newest first."""
        with self._lock:
            return self._board.infos()

    def obstacle(self, task_id: str) -> str:
        """Return why the task does not go on: it waits for a worker, or its worker's Spark is away, or its worker does
        not answer; empty: nothing is in its way.
        """
        with self._lock:
            task = self._board.live(task_id)
            if task is None:
                return ""
            is_waiting = task.state is TaskState.PENDING
            names = [
                share.worker
                for share in self._board.shares
                if (share.warehouse == task.warehouse if is_waiting else share.worker == task.worker)
            ]
            troubles = {name: self._trouble_of(self._workers[name]) for name in names if name in self._workers}
        why = "; ".join(f"{name}: {trouble}" for name, trouble in sorted(troubles.items()) if trouble)
        return (why or task.reason) if is_waiting else why

    def workers(self) -> list[WorkerInfo]:
        """One line for each worker."""
        with self._lock:
            return [self._worker_info(worker) for worker in self._workers.values()]

    def yielding_slots(self, warehouse: str) -> int:
        """Count the merges, mutations and compactions of deltas that the warehouse's workers run at once, each one at
        least.
        """
        with self._lock:
            slots = [self._board.slots_of(share) for share in self._board.shares if share.warehouse == warehouse]
        return sum(max(1, each // 2) for each in slots)

    def tasks_at_once(self, warehouse: str) -> int:
        """Return how many tasks of Spark share a scan or a shuffle on the largest worker of the warehouse; 0: that is
        not known.
        """
        with self._lock:
            named = known_name(warehouse, self._board.warehouses)
            workers = [share.worker for share in self._board.shares if share.warehouse == named]
            return max((self._load_of(worker).tasks for worker in workers), default=0)

    def warehouses(self) -> list[WarehouseInfo]:
        """One line for each warehouse."""
        with self._lock:
            return [self._warehouse_info(name) for name in sorted(self._board.warehouses)]

    def stats(self) -> WarehouseStats:
        workers, warehouses = tuple(self.workers()), tuple(self.warehouses())
        with self._lock:
            return WarehouseStats(
                done=self._counts[TaskState.DONE],
                failed=self._counts[TaskState.FAILED],
                cancelled=self._counts[TaskState.CANCELLED],
                lost=self._counts[TaskState.LOST],
                workers=workers,
                warehouses=warehouses,
            )

    def _beat(self) -> None:
        touched = self._clock.monotonic()
        while not self._clock.wait(self._stopping, SPARK_CHECK_SECONDS):
            try:
                self.check_returned()
                if self._clock.monotonic() - touched >= HEARTBEAT_SECONDS:
                    touched = self._clock.monotonic()
                    self.touch_workers()
            except BaseException as error:
                _log.error("heartbeat_failed", error=error)

    def _perform(self, instructions: list[Instruction]) -> None:
        """Perform the instructions. Bounded: each pass either sends a task, which waits after a refusal, or
        ends one.
        """
        while instructions:
            instruction = instructions.pop(0)
            match instruction:
                case Assign(worker=name, spec=spec):
                    instructions += self._assign(name, spec)
                case Stop(worker=name, task_id=task_id):
                    self._request_end(name, task_id, lambda worker, task_id: worker.cancel(task_id))
                case Retire(worker=name, task_id=task_id):
                    self._request_end(name, task_id, lambda worker, task_id: worker.retire(task_id))
                case Ended(task_id=task_id, outcome=outcome):
                    self._report(task_id, outcome)
                case _:
                    assert_never(instruction)

    def _assign(self, name: str, spec: TaskSpec) -> list[Instruction]:
        worker = self._workers.get(name)
        try:
            if worker is None:
                raise WorkerNotFoundError(worker=name)
            worker.assign(spec)
        # The JVM of a worker may raise anything: the next instruction is performed all the same.
        except BaseException as error:
            _log.warning("task_refused", cause_id=spec.id, worker=name, kind=spec.kind, reason=error)
            is_busy = isinstance(error, WorkerBusyError)
            without_spark = error if isinstance(error, SparkRestartingError) else None
            with self._lock:
                if not is_busy:
                    self._silent_why[name] = str(error)
                reason = f"worker {name} refused: {error}"
                return self._board.refused(
                    spec.id, reason, is_busy=is_busy, without_spark=without_spark, now_ms=self._clock.now_ms()
                )
        _log.debug("task_sent", cause_id=spec.id, worker=name, kind=spec.kind, table=spec.table, txn=spec.txn)
        return []

    def _request_end(self, name: str, task_id: str, to_end: Callable[[Worker, str], None]) -> None:
        worker = self._workers.get(name)
        try:
            if worker is not None:
                to_end(worker, task_id)
        # The next instruction is performed all the same.
        except BaseException as error:
            # The next heartbeat requests it again, or finds the task lost.
            _log.warning("cancel_failed", cause_id=task_id, worker=name, reason=error)

    def _report(self, task_id: str, outcome: TaskResult | TilthError) -> None:
        with self._lock:
            handle = self._handles.pop(task_id)
            self._counts[state_of(outcome) if isinstance(outcome, TilthError) else TaskState.DONE] += 1
        if isinstance(outcome, TilthError):
            # The caller of a statement gets its errors.
            log = _log.debug if outcome.kind in (ErrorKind.INVALID, ErrorKind.NOT_FOUND) else _log.warning
            log("task_ended", cause_id=task_id, kind=handle.spec.kind, table=handle.spec.table, reason=outcome)
        handle.end(outcome)

    def _worker_info(self, worker: Worker) -> WorkerInfo:
        tasks = [task for task in self._board.infos() if task.worker == worker.name and task.ended_ms == 0]
        resident = sum(task.kind.traits.is_resident for task in tasks)
        is_silent = worker.name in self._board.silent
        trouble, drains = worker.trouble(), self._board.draining.get(worker.name, "")
        return WorkerInfo(
            name=worker.name,
            warehouses=tuple(share.warehouse for share in self._board.shares if share.worker == worker.name),
            state=_state_of(trouble=trouble, is_silent=is_silent, drains=drains, is_empty=not tasks),
            reason=self._trouble_of(worker) or drains,
            last_answer_ms=self._answered_ms.get(worker.name, 0),
            running=len(tasks) - resident,
            resident=resident,
            memory_bytes=worker.memory_bytes,
            load=worker.load,
            process=self._processes[worker.name]() if worker.name in self._processes else None,
        )

    def _trouble_of(self, worker: Worker) -> str:
        is_silent = worker.name in self._board.silent
        return worker.trouble() or (self._silent_why.get(worker.name, "") if is_silent else "")

    def _warehouse_info(self, name: str) -> WarehouseInfo:
        shares = [share for share in self._board.shares if share.warehouse == name]
        tasks = [task for task in self._board.infos() if task.warehouse == name and task.ended_ms == 0]
        running = [task for task in tasks if task.state is TaskState.RUNNING]
        resident = sum(task.kind.traits.is_resident for task in running)
        config = self._board.warehouses[name]
        loads = {share.worker: self._load_of(share.worker) for share in shares}
        return WarehouseInfo(
            name=name,
            work=tuple(each.value for each in config.work),
            workers_wanted=config.workers,
            master=config.master,
            worker_cores=config.cores,
            worker_memory_bytes=config.memory_bytes,
            workers=len(shares),
            slots=sum(self._board.slots_of(share) for share in shares),
            tasks=sum(load.tasks for load in loads.values()),
            tasks_reason="; ".join(
                f"{worker}: {load.tasks_reason}" if len(loads) > 1 else load.tasks_reason
                for worker, load in sorted(loads.items())
                if load.tasks_reason
            ),
            running=len(running) - resident,
            waiting=len(tasks) - len(running),
            resident=resident,
        )


def _state_of(*, trouble: str, is_silent: bool, drains: str, is_empty: bool) -> str:
    if trouble:
        return "without spark"
    if is_silent:
        return "silent"
    if drains:
        return "drained" if is_empty else "draining"
    return "alive"


#: Assumed size of a row when nothing else is known.
_ROW_BYTES = 100
