"""One worker for several servers at once: each server sees its own tasks, and what the others take.

Covers: which task belongs to which server, runners that call the right one, the load that a server cannot see by
itself. Does not cover: registration and reports to one server (link.py), running tasks (worker/embedded.py).
Always holds: a server names and cancels its own tasks alone, and gets the reports of no others; the tasks of a server
that is gone end without those of others.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence

import msgspec

from tilth.base.errors import TilthError
from tilth.model.task import TaskKind, TaskSpec
from tilth.warehouse.errors import WorkerNotFoundError
from tilth.warehouse.remote.link import Over, Tasks, WorkerLink
from tilth.warehouse.remote.workers import Handler
from tilth.warehouse.stats import WorkerLoad
from tilth.warehouse.tasks.contract import Runner, TaskContext, WorkerReports
from tilth.warehouse.tasks.state import TaskResult


class SharedWorker:
    """The reports of a worker, by the server whose task it was."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._lock = threading.Lock()
        #: Tasks that were accepted and have not ended, and whose they are.
        self._owned: dict[str, tuple[MemberTasks, TaskSpec]] = {}
        tasks.attach(self)

    def member(self) -> MemberTasks:
        """Return the view of one more server."""
        return MemberTasks(self._tasks, self)

    def own(self, member: MemberTasks, spec: TaskSpec) -> None:
        with self._lock:
            self._owned[spec.id] = (member, spec)

    def disown(self, task_id: str) -> None:
        with self._lock:
            self._owned.pop(task_id, None)

    def ids_of(self, member: MemberTasks) -> set[str]:
        with self._lock:
            return {task_id for task_id, (owner, _) in self._owned.items() if owner is member}

    def owner_of(self, task_id: str) -> MemberTasks | None:
        with self._lock:
            found = self._owned.get(task_id)
        return None if found is None else found[0]

    def taken_from(self, member: MemberTasks) -> tuple[int, int]:
        """Return the slots and the memory that tasks of other servers take. Resident tasks take none between rounds,
        and their rounds are known to their own server alone."""
        with self._lock:
            others = [
                spec for owner, spec in self._owned.values() if owner is not member and not spec.kind.traits.is_resident
            ]
        return len(others), sum(spec.estimate.memory_bytes for spec in others)

    def finished(self, task_id: str, result: TaskResult) -> None:
        reports = self._reports_of(task_id)
        if reports is not None:
            reports.finished(task_id, result)

    def failed(self, task_id: str, error: TilthError) -> None:
        reports = self._reports_of(task_id)
        if reports is not None:
            reports.failed(task_id, error)

    def _reports_of(self, task_id: str) -> WorkerReports | None:
        """Return the receiver of a task's end; the task uses no slot from now on."""
        owner = self.owner_of(task_id)
        self.disown(task_id)
        return None if owner is None else owner.reports


class MemberTasks:
    """The tasks of one server, as its link sees them."""

    def __init__(self, tasks: Tasks, shared: SharedWorker) -> None:
        self._tasks = tasks
        self._shared = shared
        self.reports: WorkerReports | None = None

    @property
    def load(self) -> WorkerLoad:
        slots, memory = self._shared.taken_from(self)
        return msgspec.structs.replace(self._tasks.load, taken_slots=slots, taken_memory_bytes=memory)

    def attach(self, reports: WorkerReports) -> None:
        self.reports = reports

    def assign(self, spec: TaskSpec) -> None:
        # First: a task may end before the call returns.
        self._shared.own(self, spec)
        try:
            self._tasks.assign(spec)
        except BaseException:
            self._shared.disown(spec.id)
            raise

    def touch(self, task_ids: Collection[str]) -> set[str]:
        mine = self._shared.ids_of(self)
        return self._tasks.touch([each for each in task_ids if each in mine]) & mine

    def cancel(self, task_id: str) -> None:
        if self._shared.owner_of(task_id) is self:
            self._tasks.cancel(task_id)

    def retire(self, task_id: str) -> None:
        if self._shared.owner_of(task_id) is self:
            self._tasks.retire(task_id)

    def live_ids(self) -> set[str]:
        return self._tasks.live_ids() & self._shared.ids_of(self)

    def trouble(self) -> str:
        return self._tasks.trouble()


class LastOver:
    """Sets an event when it was set itself as often as there are servers: each of them refuses the worker."""

    def __init__(self, over: Over, *, servers: int) -> None:
        self._over = over
        self._left = servers
        self._lock = threading.Lock()

    def set(self) -> None:
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self._over.set()


def runners_by_owner(
    shared: SharedWorker, runners: Mapping[MemberTasks, Mapping[TaskKind, Runner]]
) -> dict[TaskKind, Runner]:
    """Return runners that call the server whose task they run; `runners`: those of each server."""

    def runner(kind: TaskKind) -> Runner:
        def run(context: TaskContext) -> TaskResult:
            owner = shared.owner_of(context.spec.id)
            if owner is None:
                raise WorkerNotFoundError("the server of this task is another worker's by now", task=context.spec.id)
            return runners[owner][kind](context)

        return run

    return {kind: runner(kind) for kind in next(iter(runners.values()))}


def handlers_by_caller(links: Sequence[WorkerLink]) -> dict[str, Handler]:
    """Return the handlers of calls of all servers, by the registration that a caller names."""
    by_link = [(link, link.handlers()) for link in links]

    def handler(name: str) -> Handler:
        def act(caller: str, body: bytes) -> bytes:
            for link, handlers in by_link:
                if link.is_member(caller):
                    return handlers[name](caller, body)
            # It refuses a caller that it does not know.
            return by_link[0][1][name](caller, body)

        return act

    return {name: handler(name) for name in by_link[0][1]}
