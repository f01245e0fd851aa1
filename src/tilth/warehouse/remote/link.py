"""A worker's link to its server: registration, heartbeats, assigned tasks and reports of their ends.

    UNKNOWN --registered--> MEMBER --refused as unknown (the server restarted, or considers it gone)--> UNKNOWN
                              |--- of several servers: unanswered for as long as that one bears silence--> UNKNOWN, next
                              '--- farewell: drains, then leaves

Covers: registration and its repetition, the heartbeat, the worker's own calls, the server's calls to it. Does not
cover: running tasks (worker/embedded.py), routes (tilth.server), calls of runners.
Always holds: tasks of a former registration are cancelled before the next one; a task is started once, however often
it is assigned; it is a member of one server at a time; a server that is away, if there is no other, ends nothing by
itself, and a refusal of a registration by all servers ends the process.

Tests: tests/unit/warehouse/remote/test_workers.py, tests/integration/warehouse/test_worker_processes.py.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Protocol

import msgspec
import psutil

from tilth.base.clock import Clock
from tilth.base.errors import ErrorKind, FencedError, TilthError
from tilth.base.ids import IdSource
from tilth.base.logs import Log
from tilth.model.failure import failure_of
from tilth.model.task import TaskSpec
from tilth.warehouse.errors import WorkerNotFoundError
from tilth.warehouse.remote.channel import Channel
from tilth.warehouse.remote.errors import PeerAnswerLostError, PeerAwayError, WorkerNameTakenError
from tilth.warehouse.remote.wire import (
    AssignTask,
    Done,
    EndedTask,
    Farewell,
    NameTasks,
    Registered,
    Registration,
    Report,
    StorageProbe,
)
from tilth.warehouse.remote.workers import Handler
from tilth.warehouse.stats import WorkerLoad
from tilth.warehouse.tasks.contract import WorkerReports
from tilth.warehouse.tasks.state import TaskResult

REPORT_SECONDS = 1.0
#: Timeout of a report; the next one has newer values.
_REPORT_ANSWER_SECONDS = 1.0
_REGISTER_SECONDS_MAX = 5.0
#: Tasks of a former registration have so long to end before the next one.
_END_SECONDS_MAX = 10.0
_POLL_SECONDS = 0.05
#: Kinds of refusals that the next registration would get, too.
_FINAL = (ErrorKind.INVALID, ErrorKind.NOT_FOUND, ErrorKind.CONFLICT)
#: Maximum number of ids of assigned tasks that are remembered.
_ASSIGNED_MAX = 100_000

_log = Log("warehouse")


class Tasks(Protocol):
    """The worker whose tasks these are (EmbeddedWorker)."""

    @property
    def load(self) -> WorkerLoad: ...

    def attach(self, reports: WorkerReports) -> None: ...

    def assign(self, spec: TaskSpec) -> None: ...

    def touch(self, task_ids: Collection[str]) -> set[str]: ...

    def cancel(self, task_id: str) -> None: ...

    def retire(self, task_id: str) -> None: ...

    def live_ids(self) -> set[str]: ...

    def trouble(self) -> str: ...


class Over(Protocol):
    """Notes that a worker cannot go on with a server."""

    def set(self) -> None: ...


class WorkerLink:
    """The link of one worker; reports of its tasks go through it."""

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        channel: Channel,
        registration: Registration,
        *,
        check_storage: Callable[[StorageProbe], None],
        over: Over,
        shares_worker: bool = False,
    ) -> None:
        """`check_storage` raises UnavailableError (WORKER_STORAGE); `over` is set when the worker cannot go on, for the
        reason in `refusal`. `shares_worker`: other servers have tasks there, too, so that those of a server that is
        away do not wait for it.
        """
        self._shares_worker = shares_worker
        self._clock = clock
        self._ids = ids
        self._channel = channel
        self._registration = registration
        self._check_storage = check_storage
        self._tasks: Tasks | None = None
        self._assigned: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._report_always, name="tilth-report", daemon=True)
        self._over = over
        #: The server that it is a member of, by name; empty: none.
        self._server = ""
        #: Address of the last server whose storages were found.
        self._tested_url = ""
        #: Error codes of servers that were skipped since the last registration, by address.
        self._skipped: dict[str, str] = {}
        self._gone_seconds = 0.0
        #: Start of the first unanswered report; None: the last one was answered.
        self._silent_since: float | None = None
        self.refusal: TilthError | None = None

    def try_server(self) -> None:
        """Check that the server, or the first of several that answers, would accept this worker, and that its storages
        can be read. Raises the server's refusal, UnavailableError (WORKER_STORAGE), PeerAwayError and
        NoTilthServerError.
        """
        _raise_any(self._try_servers(lambda: self._register(is_trial=True)))

    def join(self, tasks: Tasks, *, cores: int) -> None:
        """Register, and report from now on; `cores`: those of its Spark, which has started. Raises as `try_server`."""
        self._take(tasks, cores)
        _raise_any(self._try_servers(lambda: self._register(is_trial=False)))
        self._thread.start()

    def join_when_there(self, tasks: Tasks, *, cores: int) -> None:
        """Register as soon as the server is there, and report from then on."""
        self._take(tasks, cores)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address of the server that it calls now."""
        return self._channel.url

    def is_member(self, caller: str) -> bool:
        """Return whether a caller names the present registration."""
        return bool(caller) and caller == self._channel.worker

    def _take(self, tasks: Tasks, cores: int) -> None:
        self._tasks = tasks
        self._registration = msgspec.structs.replace(self._registration, cores=cores)
        tasks.attach(self)

    def leave(self, reason: str, *, drain_seconds: float) -> None:
        """Accept no more tasks, wait this long for the running ones, then leave the server."""
        if self._thread.ident is not None and self.refusal is None:
            try:
                self._send_farewell(reason, is_draining=True)
                self._wait_ended(drain_seconds)
                self._send_farewell(reason, is_draining=False)
            except TilthError as error:
                _log.warning("farewell_lost", reason=error)
        self.close()

    def close(self) -> None:
        """End all calls."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(_REPORT_ANSWER_SECONDS + REPORT_SECONDS)
        self._channel.close()

    # --- reports of the worker on its tasks --------------------------------------------------------------------------

    def finished(self, task_id: str, result: TaskResult) -> None:
        self._deliver(
            EndedTask(
                task_id=task_id,
                payload=result.payload,
                actual=result.actual,
                may_have_retried=result.may_have_retried,
            )
        )

    def failed(self, task_id: str, error: TilthError) -> None:
        self._deliver(EndedTask(task_id=task_id, failure=failure_of(error)))

    def _deliver(self, ended: EndedTask) -> None:
        """Report the end until the server has it, or does not know this worker any more."""
        member = self._channel.worker
        if not member:
            # Between two servers, the task belongs to none.
            return
        while not self._closing.is_set() and self._channel.worker == member:
            try:
                self._channel.call("ended", ended, Done)
            except (PeerAwayError, PeerAnswerLostError) as error:
                _log.warning("end_not_delivered", cause_id=ended.task_id, reason=error)
                continue
            except TilthError as error:
                _log.warning("end_refused", cause_id=ended.task_id, reason=error)
            return

    # --- calls of the server -----------------------------------------------------------------------------------------

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers of the server's calls."""
        assign, name = msgspec.msgpack.Decoder(AssignTask), msgspec.msgpack.Decoder(NameTasks)

        def act(do: Callable[[bytes, Tasks], object]) -> Handler:
            def run(caller: str, body: bytes) -> bytes:
                return msgspec.msgpack.encode(do(body, self._member(caller)))

            return run

        def each(body: bytes, do: Callable[[str], None]) -> Done:
            for task_id in name.decode(body).ids:
                do(task_id)
            return Done()

        return {
            "assign": act(lambda body, tasks: self._assign(tasks, assign.decode(body).spec)),
            "touch": act(lambda body, tasks: tuple(tasks.touch(name.decode(body).ids))),
            "cancel": act(lambda body, tasks: each(body, tasks.cancel)),
            "retire": act(lambda body, tasks: each(body, tasks.retire)),
        }

    def _member(self, caller: str) -> Tasks:
        """Return the tasks, for a server that knows this registration."""
        if self._tasks is None or not self.is_member(caller):
            raise WorkerNotFoundError("this process is another worker by now", worker=self._registration.name)
        return self._tasks

    def _assign(self, tasks: Tasks, spec: TaskSpec) -> Done:
        with self._lock:
            if spec.id in self._assigned:
                return Done()
            tasks.assign(spec)
            self._assigned[spec.id] = None
            while len(self._assigned) > _ASSIGNED_MAX:
                self._assigned.popitem(last=False)
        return Done()

    # --- registration and heartbeat ----------------------------------------------------------------------------------

    def _try_servers(self, act: Callable[[], None]) -> list[TilthError]:
        """Call `act` for one server after the other, beginning with the present one, until it succeeds. Return the
        errors; empty: it succeeded at the first server.
        """
        errors, has_others = list[TilthError](), len(self._channel.urls) > 1
        for _ in self._channel.urls:
            if self._closing.is_set():
                break
            try:
                act()
                return []
            except TilthError as error:
                errors.append(error)
                if has_others:
                    self._skip_server(error)
        return errors

    def _skip_server(self, error: TilthError) -> None:
        """Switch to the next server; the same reason is logged once."""
        url = self._channel.url
        if self._skipped.get(url) != error.code:
            _log.warning("server_passed_over", url=url, reason=error)
        self._skipped[url] = error.code
        self._channel.switch_server()

    def _register(self, *, is_trial: bool) -> None:
        instance = "" if is_trial else self._ids()
        # Set before it is sent: the server may call at once.
        self._channel.worker = instance
        registration = msgspec.structs.replace(self._registration, instance=instance, is_trial=is_trial)
        registered = self._channel.call(
            "register",
            registration,
            Registered,
            # With several servers, none is waited for.
            seconds=_REGISTER_SECONDS_MAX if len(self._channel.urls) == 1 else 0.0,
            answer_seconds=_REGISTER_SECONDS_MAX,
        )
        if is_trial:
            for probe in registered.probes:
                self._check_storage(probe)
            self._tested_url = self._channel.url
            return
        self._server, self._gone_seconds = registered.server, registered.gone_seconds
        self._silent_since = None
        self._skipped.clear()
        _log.info("registered", server=registered.server, url=self._channel.url, worker=registration.name)

    def _report_always(self) -> None:
        while not self._clock.wait(self._closing, REPORT_SECONDS):
            began = self._clock.monotonic()
            try:
                self._report()
                self._silent_since = None
            except FencedError as error:
                _log.warning("registering_again", url=self._channel.url, reason=error)
                self._end_tasks()
                self._register_again()
            except TilthError as error:
                self._handle_silence(error, began)
            # The outermost loop of the process: it goes on whatever happened.
            except BaseException as error:
                _log.error("report_failed", error=error)

    def _handle_silence(self, error: TilthError, began: float) -> None:
        """Wait for the only server; of several, switch to the next one when the silent one considers the worker gone,
        too.
        """
        if self._silent_since is None:
            _log.warning("server_away", url=self._channel.url, reason=error)
            self._silent_since = began
        silent = self._clock.monotonic() - self._silent_since
        if silent < self._gone_seconds:
            return
        if len(self._channel.urls) == 1:
            if self._shares_worker and self._tasks is not None and self._tasks.live_ids():
                _log.warning("tasks_of_silent_server_end", url=self._channel.url, silent_seconds=round(silent, 1))
                self._end_tasks()
            return
        if self._server:
            url, seconds = self._channel.url, round(silent, 1)
            _log.warning("server_left", server=self._server, url=url, silent_seconds=seconds, reason=error)
        self._server = ""
        # First: calls of the tasks to the former server end at once.
        self._channel.switch_server()
        self._end_tasks()
        self._register_again()

    def _report(self) -> None:
        assert self._tasks is not None
        report = Report(load=load_of(self._tasks.load, cores=self._registration.cores), trouble=self._tasks.trouble())
        seconds = _REPORT_ANSWER_SECONDS
        self._channel.call("report", report, Done, seconds=seconds, answer_seconds=seconds)

    def _register_again(self) -> None:
        def register() -> None:
            if self._channel.url != self._tested_url:
                # It may have other storages than the former server, or was away at the start.
                self._register(is_trial=True)
            self._register(is_trial=False)

        errors = self._try_servers(register)
        # A name is free again when its former holder has been noticed to be gone.
        lasting = [each for each in errors if each.kind in _FINAL and not isinstance(each, WorkerNameTakenError)]
        if len(lasting) < len(self._channel.urls):
            if errors:
                self._server = ""
            if len(self._channel.urls) == len(errors) == 1:
                _log.warning("not_registered", reason=errors[0])
            return
        _log.error("registration_refused", reason=lasting[0])
        self.refusal = lasting[0]
        self._closing.set()
        self._over.set()

    def _end_tasks(self) -> None:
        """Cancel all tasks and wait for them: no server has them."""
        assert self._tasks is not None
        for task_id in self._tasks.live_ids():
            self._tasks.cancel(task_id)
        self._wait_ended(_END_SECONDS_MAX)

    def _wait_ended(self, seconds: float) -> None:
        assert self._tasks is not None
        deadline = self._clock.monotonic() + seconds
        while self._tasks.live_ids() and self._clock.monotonic() < deadline:
            self._clock.sleep(_POLL_SECONDS)

    def _send_farewell(self, reason: str, *, is_draining: bool) -> None:
        farewell = Farewell(reason=reason, is_draining=is_draining)
        self._channel.call("leave", farewell, Done, seconds=_REGISTER_SECONDS_MAX)


def load_of(tasks: WorkerLoad, *, cores: int) -> WorkerLoad:
    """Add cores and memory of this machine to the load, which has the disk, or the cores of a cluster's executors;
    `cores`: those of the worker otherwise.
    """
    memory = psutil.virtual_memory()
    free_cores = tasks.free_cores if tasks.cores else cores * (1 - psutil.cpu_percent(interval=None) / 100)
    return msgspec.structs.replace(
        tasks,
        cores=tasks.cores or cores,
        free_cores=round(free_cores, 2),
        memory_bytes=memory.total,
        free_memory_bytes=memory.available,
    )


def _raise_any(errors: list[TilthError]) -> None:
    """Raise the most specific error: a refusal rather than a server that is away."""
    if errors:
        raise next((each for each in errors if each.kind in _FINAL), errors[0])
