"""Worker and state of each task. Pure: events in, instructions out.

    submit -> PENDING -> RUNNING -> DONE | FAILED | CANCELLED | LOST
                  ^---------'  the worker refused it
                  '-> CANCELLED

PENDING    waits for a slot, with the reason (written by `submit`, `refused`)
RUNNING    was sent to a worker (written by any event that frees or adds a slot)
DONE       the worker reported a result; FAILED, CANCELLED: it reported an error (written by `finished`, `failed`)
LOST       the worker missed five heartbeats in a row, or did not know the task in five, and no commit of it began in
           the last ten seconds (written by `touched`, `missed`); or the JVM that it ran in has ended (`failed`)

A worker whose Spark is away gets no task. Tasks of statements end at once then: a client waits for them, and can send
the statement again. Those that only read wait until Spark is back, for a while; others wait for the next heartbeat.

Covers: slots, memory, waiting, loss. Does not cover: threads and calls (dispatch.py), the estimates (estimate.py).
Always holds: a task ends once; each end yields one `Ended`; resident tasks use no slot between their rounds, and
of the abandoned ones, as many as there are slots use none.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tilth.base.errors import InvalidInputError, NotFoundError, TilthError
from tilth.model.task import Cost, ScheduleMode, TaskInfo, TaskKind, TaskSpec, TaskState
from tilth.model.warehouse import QUERY_WAREHOUSE
from tilth.warehouse.definitions.settings import WarehouseConfig
from tilth.warehouse.errors import (
    SparkAwayError,
    SparkRestartingError,
    TaskCancelledError,
    TaskLostError,
    WarehouseEmptyError,
)
from tilth.warehouse.stats import WorkerLoad
from tilth.warehouse.tasks.loads import lack_of, slowed
from tilth.warehouse.tasks.residents import MOVE_PAUSE_MS, REPLACED_MS, best_worker, misplaced, too_many

#: Heartbeats in a row in which the task was missing, after which it is lost.
MISSES_MAX = 5
#: A task whose commit began less than this ago does not count as lost: its worker may be busy with that.
COMMIT_GRACE_MS = 10_000
#: Ended tasks that are remembered.
ENDED_MAX = 1000
_EMPTY_HINT = "start one with `tilth worker --warehouse`, or SET warehouse to one that has workers (SHOW WAREHOUSES)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """Result of a task that ended well."""

    #: Result for whoever submitted it.
    payload: bytes = b""
    #: Measured cost; the worker fills in the seconds if they are 0.
    actual: Cost = field(default_factory=Cost)
    #: `True` if an attempt of a Spark task may have failed and may have left files, though the task ended well. The
    #: worker reports it: outside a cluster, Spark retries no task.
    may_have_retried: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerShare:
    """A worker's share in one warehouse."""

    warehouse: str
    worker: str
    #: Tasks at once when it joined; a resident task counts while its round runs. `TaskBoard.slots_of`: those of now.
    slots: int
    #: Memory of the worker, for all its warehouses.
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Assign:
    worker: str
    spec: TaskSpec


@dataclass(frozen=True, slots=True)
class Stop:
    """The worker is to cancel the task."""

    worker: str
    task_id: str


@dataclass(frozen=True, slots=True)
class Retire:
    """The worker is to end the task where nothing is lost by it, as a consumer between two rounds."""

    worker: str
    task_id: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome is to be reported to the caller that waits for the task."""

    task_id: str
    outcome: TaskResult | TilthError


Instruction = Assign | Stop | Retire | Ended


@dataclass(slots=True, kw_only=True)
class _Task:
    spec: TaskSpec
    state: TaskState
    reason: str
    created_ms: int
    worker: str = ""
    started_ms: int = 0
    misses: int = 0
    is_stopping: bool = False
    #: It was cancelled, does not end, and no caller waits for it.
    is_abandoned: bool = False
    #: Reason for the choice of this worker.
    placement: str = ""
    #: A resident task that is to end where nothing is lost by it.
    is_retiring: bool = False
    #: Cost of the running round of a resident task; None: no round runs.
    round: Cost | None = None
    #: Start time of its latest commit; 0: none.
    commit_ms: int = 0
    #: Workers that are too busy for it; tried again when one of their tasks has ended, or at their next heartbeat.
    refused_by: set[str] = field(default_factory=set)

    def info(self, *, ended_ms: int = 0, actual: Cost | None = None) -> TaskInfo:
        return TaskInfo(
            id=self.spec.id,
            kind=self.spec.kind,
            warehouse=self.spec.warehouse,
            worker=self.worker,
            table=self.spec.table,
            txn=self.spec.txn,
            state=self.state,
            reason=self.reason,
            placement_reason=self.placement,
            created_ms=self.created_ms,
            started_ms=self.started_ms,
            ended_ms=ended_ms,
            estimate=self.spec.estimate,
            actual=actual or Cost(),
        )


class TaskBoard:
    """The tasks of one server. Not thread-safe: the dispatcher calls it under its lock."""

    def __init__(
        self,
        shares: Sequence[WorkerShare] = (),
        *,
        warehouses: Collection[str] = (),
        load_of: Callable[[str], WorkerLoad] = lambda _: WorkerLoad(),
    ) -> None:
        """`warehouses`: those that are there, with workers or without; `load_of`: what a worker has reported last."""
        self._load_of = load_of
        self.shares = tuple(shares)
        named = {*warehouses, *(share.warehouse for share in shares)}
        #: Settings of each: accepted work, and requirements for workers.
        self.warehouses = {name: WarehouseConfig() for name in named}
        self._live: dict[str, _Task] = {}
        self._ended: deque[TaskInfo] = deque(maxlen=ENDED_MAX)
        #: Workers that did not answer or refused: no new tasks until they answer a heartbeat.
        self.silent: set[str] = set()
        #: Time at which each worker was last lost.
        self._gone_ms: dict[str, int] = {}
        #: Time at which consumers were last moved.
        self._moved_ms = -MOVE_PAUSE_MS
        #: Workers that get no more tasks, and why.
        self.draining: dict[str, str] = {}
        #: Workers that answer and have no Spark, with their error: statements are sent there, and refused at once,
        #: unless they wait for Spark.
        self.without_spark: dict[str, SparkRestartingError] = {}

    def check_warehouse(self, name: str, kind: TaskKind | None = None) -> None:
        """Raises NotFoundError (WAREHOUSE_NOT_FOUND) and InvalidInputError (WAREHOUSE_WORK_REFUSED)."""
        config = self.warehouses.get(name)
        if config is None:
            hint = f"there are: {', '.join(sorted(self.warehouses))}"
            raise NotFoundError.coded("WAREHOUSE_NOT_FOUND", "no such warehouse", warehouse=name, hint=hint)
        if kind is not None and kind not in config.kinds:
            raise InvalidInputError.coded(
                "WAREHOUSE_WORK_REFUSED",
                "the warehouse does not accept this kind of work",
                warehouse=name,
                task=kind.value,
                hint=f"it takes {', '.join(config.work)}; ALTER WAREHOUSE {name} SETTINGS work = '..' changes that",
            )

    def slots_of(self, share: WorkerShare) -> int:
        """Return the slots of a share now: on a cluster those of warehouses that write follow its executors."""
        follows = share.warehouse != QUERY_WAREHOUSE
        return (self._load_of(share.worker).write_slots if follows else 0) or share.slots

    def join(self, share: WorkerShare, *, now_ms: int) -> list[Instruction]:
        """Add a worker to a warehouse; the memory of its last registration counts."""
        others = [each for each in self.shares if (each.worker, each.warehouse) != (share.worker, share.warehouse)]
        same = [
            replace(each, memory_bytes=share.memory_bytes) if each.worker == share.worker else each for each in others
        ]
        self.shares = (*same, share)
        self.warehouses.setdefault(share.warehouse, WarehouseConfig())
        return self.spark_is_back(share.worker, now_ms=now_ms)

    def spark_is_back(self, worker: str, *, now_ms: int) -> list[Instruction]:
        """Note that a worker has its Spark again: waiting tasks are sent."""
        self.silent.discard(worker)
        self.without_spark.pop(worker, None)
        return self._assign_pending(now_ms)

    def leave(self, worker: str, reason: str, *, now_ms: int) -> list[Instruction]:
        """Remove a worker: its tasks are lost at once, and none is sent there."""
        self.shares = tuple(each for each in self.shares if each.worker != worker)
        self._gone_ms = {name: at for name, at in self._gone_ms.items() if now_ms - at < REPLACED_MS}
        self._gone_ms[worker] = now_ms
        self.silent.discard(worker)
        self.draining.pop(worker, None)
        self.without_spark.pop(worker, None)
        instructions: list[Instruction] = []
        for task in [task for task in self._live.values() if task.worker == worker]:
            lost = TaskLostError("the worker is gone", worker=worker, task=task.spec.id, reason=reason)
            instructions += self._end(task, TaskState.LOST, lost, now_ms=now_ms)
        return instructions + self._assign_pending(now_ms)

    def drain(self, worker: str, reason: str, *, now_ms: int) -> list[Instruction]:
        """Send no more tasks to the worker; what runs there goes on, resident tasks move. Without a reason, it gets
        tasks again.
        """
        if not reason:
            self.draining.pop(worker, None)
            return self._assign_pending(now_ms)
        self.draining[worker] = reason
        return _retire(task for task in self._residents() if task.worker == worker)

    def balance(self, *, now_ms: int) -> list[Instruction]:
        """Move resident tasks whose worker has too many of them, or that belong to another worker by hash."""
        if now_ms - self._moved_ms < MOVE_PAUSE_MS:
            return []
        instructions: list[Instruction] = []
        for warehouse in {share.warehouse for share in self.shares}:
            instructions += self._balance(warehouse, now_ms)
        if instructions:
            self._moved_ms = now_ms
        return instructions

    def _balance(self, warehouse: str, now_ms: int) -> list[Instruction]:
        away = {*self.silent, *self.draining}
        workers = [each.worker for each in self.shares if each.warehouse == warehouse and each.worker not in away]
        tasks = [task for task in self._residents() if task.spec.warehouse == warehouse]
        if any(task.is_retiring or task.state is TaskState.PENDING for task in tasks):
            # Tasks that are moving are counted when they have arrived.
            return []
        counts = Counter(task.worker for task in tasks)
        moving: list[_Task] = []
        for worker, count in too_many({worker: counts[worker] for worker in workers}).items():
            movable = [t for t in tasks if t.worker == worker and t.spec.mode is ScheduleMode.LEAST_CONSUMERS]
            # The newest have the least state in memory.
            moving += sorted(movable, key=lambda task: -task.started_ms)[:count]
        for task in tasks:
            assigned_ms = now_ms - task.started_ms
            if task.spec.mode is ScheduleMode.HASH and misplaced(
                task.spec.key, task.worker, workers, assigned_ms=assigned_ms
            ):
                moving.append(task)
        return _retire(moving)

    def round_began(self, task_id: str, estimate: Cost) -> None:
        """Note that a resident task begins a round, which uses a slot and memory until `round_ended`."""
        task = self._live.get(task_id)
        if task is not None:
            task.round = estimate

    def round_ended(self, task_id: str, *, now_ms: int) -> tuple[Cost | None, list[Instruction]]:
        """Return the round's estimate, None where none ran; its slot is free for others."""
        task = self._live.get(task_id)
        if task is None or task.round is None:
            return None, []
        estimate, task.round = task.round, None
        return estimate, self._assign_pending(now_ms)

    def end_unplaced(self, *, waiting_ms: int, now_ms: int) -> list[Instruction]:
        """End the statements that have waited so long for a worker with Spark, where their warehouse has none."""
        instructions: list[Instruction] = []
        for task in list(self._live.values()):
            is_waiting = task.spec.kind.traits.is_statement and task.state is TaskState.PENDING
            if is_waiting and now_ms - task.created_ms >= waiting_ms:
                error = self._lack_of(task.spec.warehouse, seconds=waiting_ms // 1000)
                if error is not None:
                    instructions += self._end(task, TaskState.LOST, error, now_ms=now_ms)
        return instructions

    def _lack_of(self, warehouse: str, *, seconds: int) -> TilthError | None:
        """Return the error of a statement that has waited for a worker with Spark; None: there is one."""
        workers = [share.worker for share in self.shares if share.warehouse == warehouse]
        if not workers:
            return WarehouseEmptyError(warehouse=warehouse, seconds=seconds, hint=_EMPTY_HINT)
        workers = [each for each in workers if each not in self.draining] or workers
        if any(each not in self.without_spark for each in workers):
            return None
        away = self.without_spark[workers[0]]
        return SparkAwayError(**away.facts, waited_seconds=seconds, hint=away.hint)

    def submit(self, spec: TaskSpec, *, now_ms: int) -> list[Instruction]:
        """Raises NotFoundError (WAREHOUSE_NOT_FOUND) and InvalidInputError (WAREHOUSE_WORK_REFUSED)."""
        self.check_warehouse(spec.warehouse, spec.kind)
        assert spec.id not in self._live, spec.id
        self._live[spec.id] = _Task(spec=spec, state=TaskState.PENDING, reason="not assigned yet", created_ms=now_ms)
        return self._assign_pending(now_ms)

    def refused(
        self,
        task_id: str,
        reason: str,
        *,
        is_busy: bool = False,
        without_spark: SparkRestartingError | None = None,
        now_ms: int,
    ) -> list[Instruction]:
        """The worker refused the task: it waits again, for another worker or for this one's next heartbeat.

        `is_busy`: the worker is well and accepts no more of this kind; it still gets other tasks.
        `without_spark`: its Spark is away; a statement that does not wait for it ends with this error.
        """
        task = self._live.get(task_id)
        if task is None:
            return []
        if task.is_stopping:
            return self._end(task, TaskState.CANCELLED, TaskCancelledError(task=task_id), now_ms=now_ms)
        if without_spark is not None:
            self.without_spark[task.worker] = without_spark
            if task.spec.kind.traits.is_statement and not task.spec.waits_for_spark:
                return self._end(task, TaskState.LOST, without_spark, now_ms=now_ms)
        if is_busy:
            task.refused_by.add(task.worker)
        else:
            self.silent.add(task.worker)
        task.state, task.reason, task.worker, task.started_ms = TaskState.PENDING, reason, "", 0
        task.placement = ""
        return self._assign_pending(now_ms)

    def committing(self, task_id: str, *, now_ms: int) -> None:
        """Note that a commit of the task's results begins."""
        task = self._live.get(task_id)
        if task is not None:
            task.commit_ms = now_ms

    def finished(self, task_id: str, result: TaskResult, *, now_ms: int) -> list[Instruction]:
        task = self._live.get(task_id)
        return [] if task is None else self._end(task, TaskState.DONE, result, now_ms=now_ms)

    def failed(self, task_id: str, error: TilthError, *, now_ms: int) -> list[Instruction]:
        task = self._live.get(task_id)
        if task is None:
            return []
        return self._end(task, state_of(error), error, now_ms=now_ms)

    def cancel(self, task_id: str, *, now_ms: int) -> list[Instruction]:
        """Cancel a task: a waiting one ends at once, a running one when its worker reports the end."""
        task = self._live.get(task_id)
        if task is None:
            return []
        if task.state is TaskState.PENDING:
            return self._end(task, TaskState.CANCELLED, TaskCancelledError(task=task_id), now_ms=now_ms)
        task.is_stopping = True
        return [Stop(task.worker, task_id)]

    def abandon(self, task_id: str, *, now_ms: int) -> list[Instruction]:
        """Give the slot of a cancelled task that does not end to others: Spark plans it, which nothing interrupts."""
        task = self._live.get(task_id)
        if task is None or not task.is_stopping:
            return []
        task.is_abandoned = True
        task.reason = "cancelled, and does not end: it runs on beside the slots"
        return self._assign_pending(now_ms)

    def touched(
        self, worker: str, known: Collection[str], *, expected: Collection[str], now_ms: int
    ) -> list[Instruction]:
        """The worker answered a heartbeat that named the expected tasks."""
        self.silent.discard(worker)
        self._forget_refusals(worker)
        instructions: list[Instruction] = []
        for task in [self._live[task_id] for task_id in expected if task_id in self._live]:
            if task.worker != worker:
                continue
            if task.spec.id in known:
                task.misses = 0
                if task.is_stopping:
                    instructions.append(Stop(worker, task.spec.id))
                elif task.is_retiring:
                    instructions.append(Retire(worker, task.spec.id))
            else:
                instructions += self._count_miss(task, f"worker {worker} does not know the task", now_ms)
        return instructions + self._assign_pending(now_ms)

    def missed(self, worker: str, reason: str, *, now_ms: int) -> list[Instruction]:
        """The worker did not answer a heartbeat."""
        self.silent.add(worker)
        self.without_spark.pop(worker, None)
        instructions: list[Instruction] = []
        for task in [task for task in self._live.values() if task.worker == worker]:
            instructions += self._count_miss(task, f"worker {worker} does not answer: {reason}", now_ms)
        return instructions + self._assign_pending(now_ms)

    def tasks_of(self, worker: str) -> list[str]:
        """Ids of the tasks that it should know."""
        return [task_id for task_id, task in self._live.items() if task.worker == worker]

    def live_ids(self) -> list[str]:
        return list(self._live)

    def infos(self) -> list[TaskInfo]:
        """Live tasks, then ended ones, newest first."""
        live = [task.info() for task in reversed(self._live.values())]
        return live + list(reversed(self._ended))

    def live(self, task_id: str) -> TaskInfo | None:
        """Return the task; None: it has ended, or never was."""
        task = self._live.get(task_id)
        return None if task is None else task.info()

    def estimate_of(self, task_id: str) -> tuple[TaskKind, Cost] | None:
        task = self._live.get(task_id)
        return None if task is None else (task.spec.kind, task.spec.estimate)

    def _count_miss(self, task: _Task, why: str, now_ms: int) -> list[Instruction]:
        task.misses += 1
        if task.misses < MISSES_MAX or (task.commit_ms and now_ms - task.commit_ms < COMMIT_GRACE_MS):
            return []
        return self._end(task, TaskState.LOST, TaskLostError(why, task=task.spec.id, misses=task.misses), now_ms=now_ms)

    def _end(
        self, task: _Task, state: TaskState, outcome: TaskResult | TilthError, *, now_ms: int
    ) -> list[Instruction]:
        del self._live[task.spec.id]
        self._forget_refusals(task.worker)
        task.state = state
        if isinstance(outcome, TaskResult):
            self._ended.append(task.info(ended_ms=now_ms, actual=outcome.actual))
        else:
            task.reason = str(outcome)
            self._ended.append(task.info(ended_ms=now_ms))
        return [Ended(task.spec.id, outcome), *self._assign_pending(now_ms)]

    def _forget_refusals(self, worker: str) -> None:
        """Try the worker again for tasks that it refused: it may have room now."""
        for task in self._live.values():
            task.refused_by.discard(worker)

    def _assign_pending(self, now_ms: int) -> list[Instruction]:
        """Assign waiting tasks, first come, first served within a warehouse and kind: one that waits blocks
        its kind.
        """
        instructions: list[Instruction] = []
        waiting: dict[tuple[str, TaskKind, bool], str] = {}
        for task in self._live.values():
            if task.state is not TaskState.PENDING:
                continue
            # A task that waits for Spark delays no task that has to be refused at once.
            line = (task.spec.warehouse, task.spec.kind, task.spec.waits_for_spark)
            if line in waiting:
                task.reason = f"waits behind task {waiting[line]}"
                continue
            share, reason = self._choose(task, now_ms)
            # A worker's own refusal is more specific.
            task.reason = task.reason if share is None and task.refused_by else reason
            if share is None:
                waiting[line] = task.spec.id
                continue
            task.state, task.worker, task.started_ms, task.misses = TaskState.RUNNING, share.worker, now_ms, 0
            task.placement, task.commit_ms = reason, 0
            instructions.append(Assign(share.worker, task.spec))
        return instructions

    def _choose(self, task: _Task, now_ms: int) -> tuple[WorkerShare | None, str]:
        """Return the share of the worker where the task fits and will be done first, and why; or None and why not."""
        spec = task.spec
        shares = [share for share in self.shares if share.warehouse == spec.warehouse]
        refusals = {share.worker: self._refusal(share, task) for share in shares}
        fitting = {share.worker: share for share in shares if not refusals[share.worker]}
        if not fitting:
            return None, "; ".join(refusals.values()) or f"warehouse {spec.warehouse} has no workers"
        if spec.kind.traits.is_resident:
            known = [name for name in fitting if now_ms - self._gone_ms.get(name, -REPLACED_MS) >= REPLACED_MS]
            residents = {name: self._resident_on(fitting[name]) for name in known or fitting}
            worker, reason = best_worker(spec.mode, key=spec.key, task_id=spec.id, residents=residents)
            return fitting[worker], reason
        ends = {
            worker: (self._seconds_before(share) + spec.estimate.seconds) * slowed(self._load_of(worker))
            for worker, share in fitting.items()
        }
        worker = min(fitting, key=lambda name: (ends[name], self._resident_on(fitting[name]), name))
        return fitting[worker], self._describe_choice(fitting[worker], seconds=ends[worker], workers=len(fitting))

    def _describe_choice(self, share: WorkerShare, *, seconds: float, workers: int) -> str:
        """Describe why a task goes to this worker."""
        busy = len(list(self._on(share)))
        text = f"fits on {share.worker}, done in about {seconds:.1f} s; {busy} of {self.slots_of(share)} slots in use"
        load = self._load_of(share.worker)
        if load.cores:
            text = f"{text}, {load.free_cores:.1f} of {load.cores} cores free"
        return f"{text}, first of {workers} workers" if workers > 1 else text

    def _seconds_before(self, share: WorkerShare) -> float:
        """Return how long the worker is busy with the tasks that it has, per slot."""
        return sum((task.round or task.spec.estimate).seconds for task in self._on(share)) / self.slots_of(share)

    def _refusal(self, share: WorkerShare, task: _Task) -> str:
        spec = task.spec
        has_no_spark = share.worker in self.without_spark
        if has_no_spark and spec.waits_for_spark:
            return f"worker {share.worker} has no Spark now"
        if share.worker in self.silent and not (has_no_spark and spec.kind.traits.is_statement):
            return f"worker {share.worker} does not answer"
        if share.worker in task.refused_by:
            return f"worker {share.worker} has too many tasks"
        if share.worker in self.draining:
            return f"worker {share.worker} drains: {self.draining[share.worker]}"
        if spec.kind.traits.is_resident:
            return ""
        running, load = list(self._on(share)), self._load_of(share.worker)
        # Others than this server have tasks there.
        slots = max(0, self.slots_of(share) - load.taken_slots)
        if len(running) >= slots:
            elsewhere = f", {load.taken_slots} of them by other servers" if load.taken_slots else ""
            return f"all {self.slots_of(share)} slots of {share.warehouse} on {share.worker} are in use{elsewhere}"
        # Half of what rounds leave: short tasks find room beside both.
        yielding_max = max(1, (slots - sum(task.spec.kind.traits.is_resident for task in running)) // 2)
        if spec.kind.traits.is_yielding and sum(task.spec.kind.traits.is_yielding for task in running) >= yielding_max:
            return f"{yielding_max} merges and mutations run on {share.worker}, more would use the slots of others"
        held = sum(
            (task.round or task.spec.estimate).memory_bytes
            for task in self._live.values()
            if task.worker == share.worker and not task.is_abandoned
        )
        held += load.taken_memory_bytes
        if held and held + spec.estimate.memory_bytes > share.memory_bytes:
            free = max(0, share.memory_bytes - held)
            return f"needs {spec.estimate.memory_bytes} bytes of memory, {share.worker} has {free} left"
        return lack_of(share.worker, load, spec.estimate, is_idle=not (running or load.taken_slots))

    def _residents(self) -> Iterable[_Task]:
        """Resident tasks."""
        return (task for task in self._live.values() if task.spec.kind.traits.is_resident)

    def _resident_on(self, share: WorkerShare) -> int:
        return sum(task.worker == share.worker for task in self._residents())

    def _on(self, share: WorkerShare) -> Iterable[_Task]:
        """Yield the tasks that use a slot of the share. Abandoned ones use one when there are more of them than slots:
        each has a thread, here and in Spark. Resident ones use one while their round runs, up to half of the slots:
        rounds follow each other without end, and other tasks must run between them.
        """
        abandoned = rounds = 0
        for task in self._live.values():
            if task.worker != share.worker or task.spec.warehouse != share.warehouse:
                continue
            if task.spec.kind.traits.is_resident:
                rounds += task.round is not None
                if task.round is not None and rounds <= self.slots_of(share) // 2:
                    yield task
                continue
            abandoned += task.is_abandoned
            if not task.is_abandoned or abandoned > self.slots_of(share):
                yield task


def _retire(tasks: Iterable[_Task]) -> list[Instruction]:
    """End resident tasks between two rounds; their services send them again."""
    instructions: list[Instruction] = []
    for task in tasks:
        task.is_retiring = True
        instructions.append(Retire(task.worker, task.spec.id))
    return instructions


def state_of(error: TilthError) -> TaskState:
    """The state of a task that ended with this error."""
    match error:
        case TaskCancelledError():
            return TaskState.CANCELLED
        case TaskLostError() | SparkRestartingError() | SparkAwayError() | WarehouseEmptyError():
            return TaskState.LOST
        case _:
            return TaskState.FAILED
