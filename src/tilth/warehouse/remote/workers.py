"""The server's list of workers that are processes of their own.

    register -> KNOWN -> GONE     its port refuses connections, it was silent for too long, it left, or its
                                  warehouse refuses it; later reports are refused, and it registers anew

Covers: which workers are accepted, heartbeats, which workers are gone, calls to a worker as `Worker`. Does not cover:
routes (tilth.server), calls of runners, the tasks of a worker that is gone (tasks/dispatch.py).
Always holds: a name has one living worker; a worker that is gone is never called again, and its reports are refused; no
lock is held during a call.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import ConflictError, FencedError, TilthError, UnavailableError, UnknownOutcomeError
from tilth.base.ids import IdSource
from tilth.base.logs import Log
from tilth.model.failure import error_of
from tilth.model.task import TaskSpec
from tilth.warehouse.errors import TaskLostError, WorkerNotFoundError
from tilth.warehouse.remote.channel import Channel, check_address
from tilth.warehouse.remote.errors import (
    PeerAnswerLostError,
    PeerAwayError,
    WorkerNameTakenError,
)
from tilth.warehouse.remote.wire import (
    WIRE_VERSION,
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
from tilth.warehouse.stats import WorkerLoad, WorkerProcess
from tilth.warehouse.tasks.contract import Worker, WorkerReports
from tilth.warehouse.tasks.state import TaskResult

#: A worker that has not reported for this many seconds is gone.
GONE_SECONDS = 2.0
_PROBE_SECONDS = 0.25
#: Timeouts for a worker to confirm a task, and to list its tasks.
ASSIGN_SECONDS_MAX = 1.5
TOUCH_SECONDS_MAX = 1.5
_CONNECT_SECONDS_MAX = 0.5
_NAME_CHARACTERS_MAX = 100

_log = Log("warehouse")

T = TypeVar("T")
#: Function from the id of the calling worker and a message to the answer.
Handler = Callable[[str, bytes], bytes]


class Members(Protocol):
    """The dispatcher, as the list of workers uses it."""

    def join(
        self, worker: Worker, *, warehouse: str, slots: int, process: Callable[[], WorkerProcess] | None = None
    ) -> None: ...

    def leave(self, name: str, reason: str) -> None: ...

    def drain(self, name: str, reason: str) -> None: ...

    def check_fits(self, name: str, *, master: str, cores: int, memory_bytes: int) -> None: ...


def handler(message: type[T], act: Callable[[T], object]) -> Handler:
    """Return the handler of a kind of call, by what it does with the decoded message."""
    decoder = msgspec.msgpack.Decoder(message)
    return lambda _, body: msgspec.msgpack.encode(act(decoder.decode(body)))


class RemoteWorker:
    """A worker in another process, as `Worker`."""

    def __init__(self, clock: Clock, channel: Channel, registration: Registration) -> None:
        self._clock = clock
        self._channel = channel
        self.registration = registration
        self.load = WorkerLoad()
        self._trouble = ""
        self._reports: WorkerReports | None = None
        self._lock = threading.Lock()
        #: Tasks of which it is unknown whether they have arrived.
        self._unsettled: set[str] = set()
        #: Ids of the tasks whose end has not been requested yet, by the name of the call.
        self._requests: dict[str, list[str]] = {}
        self._is_requesting = False
        #: Probes of the list since its last report.
        self.silent_probes = 0
        self.gone = threading.Event()

    @property
    def name(self) -> str:
        return self.registration.name

    @property
    def memory_bytes(self) -> int:
        return self.registration.memory_bytes

    def process(self) -> WorkerProcess:
        """Describe the process."""
        given = self.registration
        return WorkerProcess(host=given.host, pid=given.pid, version=given.version)

    def attach(self, reports: WorkerReports) -> None:
        self._reports = reports

    def trouble(self) -> str:
        return self._trouble

    def record_report(self, report: Report) -> None:
        """Store its report."""
        self.silent_probes = 0
        self._trouble = report.trouble
        self.load = msgspec.structs.replace(report.load, reported_ms=self._clock.now_ms())

    def assign(self, spec: TaskSpec) -> None:
        """Raises the worker's errors, and PeerAwayError. If its answer is lost or unreadable, the call is repeated in
        the background until the outcome is known.
        """
        self._check_here()
        try:
            self._call("assign", AssignTask(spec=spec), Done, seconds=ASSIGN_SECONDS_MAX)
        except UnknownOutcomeError as error:
            # It may run there: no other worker may get it now.
            _log.warning("assign_unsettled", cause_id=spec.id, worker=self.name, reason=error)
            with self._lock:
                self._unsettled.add(spec.id)
            threading.Thread(target=self._settle, args=(spec,), name="tilth-settle", daemon=True).start()

    def touch(self, task_ids: Collection[str]) -> set[str]:
        self._check_here()
        known = self._call("touch", NameTasks(ids=tuple(task_ids)), tuple[str, ...], seconds=TOUCH_SECONDS_MAX)
        with self._lock:
            return set(known) | self._unsettled

    def cancel(self, task_id: str) -> None:
        self._check_here()
        self._request("cancel", task_id)

    def retire(self, task_id: str) -> None:
        self._check_here()
        self._request("retire", task_id)

    def end(self, ended: EndedTask) -> None:
        """Pass the end of a task on."""
        with self._lock:
            self._unsettled.discard(ended.task_id)
        assert self._reports is not None, "join comes first"
        if ended.failure is None:
            result = TaskResult(payload=ended.payload, actual=ended.actual, may_have_retried=ended.may_have_retried)
            self._reports.finished(ended.task_id, result)
        else:
            self._reports.failed(ended.task_id, error_of(ended.failure))

    def leave(self) -> None:
        """Close the channel: it is never called again."""
        self.gone.set()
        self._channel.close()

    def is_refused(self) -> bool:
        """Return whether its port refuses connections: its process has ended."""
        parts = urlsplit(self.registration.url)
        with suppress(OSError):
            try:
                socket.create_connection((parts.hostname, parts.port or 80), timeout=_CONNECT_SECONDS_MAX).close()
            except ConnectionRefusedError:
                return True
        return False

    def _settle(self, spec: TaskSpec) -> None:
        """Send the task again until the worker confirms or refuses it, or is gone."""
        while not self.gone.is_set():
            try:
                self._call("assign", AssignTask(spec=spec), Done, seconds=ASSIGN_SECONDS_MAX)
            except PeerAnswerLostError:
                continue
            except TilthError as error:
                if self.gone.is_set() or self._clock.wait(self.gone, _PROBE_SECONDS):
                    break
                if isinstance(error, UnavailableError):
                    continue
                if self._reports is not None:
                    self._reports.failed(spec.id, TaskLostError("the worker refused it", task=spec.id, reason=error))
            break
        with self._lock:
            self._unsettled.discard(spec.id)

    def _request(self, name: str, task_id: str) -> None:
        """Request the end of a task without waiting: ending many tasks would wait for a hung worker once for each."""
        with self._lock:
            self._requests.setdefault(name, []).append(task_id)
            if self._is_requesting:
                return
            self._is_requesting = True
        threading.Thread(target=self._send_requests, name=f"tilth-ends-{self.name}", daemon=True).start()

    def _send_requests(self) -> None:
        while True:
            with self._lock:
                if not self._requests or self.gone.is_set():
                    self._requests.clear()
                    self._is_requesting = False
                    return
                name = next(iter(self._requests))
                ids = tuple(self._requests.pop(name))
            try:
                self._call(name, NameTasks(ids=ids), Done, seconds=TOUCH_SECONDS_MAX)
            except TilthError as error:
                # The next heartbeat requests it again, or finds the tasks lost.
                _log.warning("end_not_requested", worker=self.name, call=name, tasks=ids, reason=error)

    def _call(self, name: str, message: object, answer: type[T], *, seconds: float) -> T:
        return self._channel.call(name, message, answer, seconds=seconds, answer_seconds=seconds)

    def _check_here(self) -> None:
        if self.gone.is_set():
            raise WorkerNotFoundError(worker=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings:
    """Settings of the list."""

    token: str = field(repr=False)
    #: This process.
    server: str
    #: Version of tilth; workers have the same.
    version: str
    #: Files below the roots of the tables, which a worker must find there.
    probes: Callable[[], tuple[StorageProbe, ...]] = tuple
    #: Names that no worker may have.
    reserved: frozenset[str] = frozenset()
    gone_seconds: float = GONE_SECONDS


class RemoteWorkers:
    """The workers that have registered at this server."""

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        members: Members,
        *,
        settings: RemoteSettings,
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._members = members
        self._settings = settings
        self._silent_probes_max = max(1, round(settings.gone_seconds / _PROBE_SECONDS))
        self._lock = threading.Lock()
        self._known: dict[str, RemoteWorker] = {}
        #: One worker joins or leaves at a time.
        self._moves = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tilth-workers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Lose all workers; they register again at the next process of this server. Does nothing a second time."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        for worker in self.infos().values():
            self._lose(worker, "the server stops")

    def handlers(self, runners: Mapping[str, Handler]) -> dict[str, Handler]:
        """Return the handlers of all calls of workers; those of runners are for registered workers alone."""
        own: dict[str, Handler] = {
            "register": handler(Registration, self.register),
            "report": self._for_known(Report, lambda worker, report: worker.record_report(report)),
            "ended": self._for_known(EndedTask, lambda worker, ended: worker.end(ended)),
            "leave": self._for_known(Farewell, self._farewell),
        }
        return own | {name: self._only_known(act) for name, act in runners.items()}

    def register(self, registration: Registration) -> Registered:
        """Accept a worker, or refuse it. Raises ConflictError (WORKER_VERSION), NotFoundError (WAREHOUSE_NOT_FOUND),
        WorkerNameTakenError, InvalidInputError (BAD_SERVER_ADDRESS).
        """
        try:
            self._check(registration)
        except TilthError as error:
            _log.warning("worker_refused", worker=registration.name[:_NAME_CHARACTERS_MAX], reason=error)
            raise
        registered = Registered(
            server=self._settings.server,
            gone_seconds=self._settings.gone_seconds,
            probes=self._settings.probes(),
        )
        if not registration.is_trial:
            self._add(registration)
        return registered

    def infos(self) -> dict[str, RemoteWorker]:
        """The workers that are there, by name."""
        with self._lock:
            return {worker.name: worker for worker in self._known.values()}

    def _check(self, given: Registration) -> None:
        if (given.version, given.wire) != (self._settings.version, WIRE_VERSION):
            raise ConflictError.coded(
                "WORKER_VERSION",
                "the worker is of another version than its server",
                worker=given.name,
                version=given.version,
                server_version=self._settings.version,
                hint="install the server's version of tilth where the worker runs, then start it again",
            )
        if not given.name or len(given.name) > _NAME_CHARACTERS_MAX or not given.name.isprintable():
            raise WorkerNameTakenError(
                "a worker has a name of 1 to 100 visible characters", hint="choose one by --name"
            )
        check_address(given.url)
        self._members.check_fits(
            given.warehouse, master=given.master, cores=given.cores, memory_bytes=given.memory_bytes
        )
        with self._lock:
            others = [each for each in self._known.values() if each.name == given.name]
        if given.name in self._settings.reserved or any(
            each.registration.instance != given.instance for each in others
        ):
            hint = "end the other one, or give this one a name of its own by --name"
            raise WorkerNameTakenError(worker=given.name, hint=hint)

    def _add(self, registration: Registration) -> None:
        with self._moves:
            if self._stopping.is_set():
                raise PeerAwayError("the server stops", server=self._settings.server)
            # Checked again: two workers of one name may have registered at once.
            self._check(registration)
            if registration.instance in self._known:
                return
            channel = Channel(
                self._clock, self._ids, registration.url, token=self._settings.token, worker=registration.instance
            )
            worker = RemoteWorker(self._clock, channel, registration)
            with self._lock:
                self._known[registration.instance] = worker
            self._members.join(
                worker, warehouse=registration.warehouse, slots=registration.slots, process=worker.process
            )
        _log.info(
            "worker_registered",
            worker=registration.name,
            warehouse=registration.warehouse,
            host=registration.host,
            pid=registration.pid,
            url=registration.url,
        )

    def _farewell(self, worker: RemoteWorker, farewell: Farewell) -> None:
        if farewell.is_draining:
            self._members.drain(worker.name, farewell.reason)
        else:
            self._lose(worker, farewell.reason)

    def _lose(self, worker: RemoteWorker, reason: str) -> None:
        with self._lock:
            is_known = self._known.pop(worker.registration.instance, None) is not None
        if is_known:
            # First: whoever waits for one of its tasks must not wait for calls to it.
            worker.leave()
            with self._moves:
                with self._lock:
                    is_replaced = any(each.name == worker.name for each in self._known.values())
                if not is_replaced:
                    self._members.leave(worker.name, reason)

    def _watch(self) -> None:
        while not self._clock.wait(self._stopping, _PROBE_SECONDS):
            with self._lock:
                workers = list(self._known.values())
            for worker in workers:
                # Probes are counted, not seconds: time in which this process did not run is no silence of a worker.
                worker.silent_probes += 1
                threading.Thread(target=self._probe, args=(worker,), name="tilth-probe", daemon=True).start()

    def _probe(self, worker: RemoteWorker) -> None:
        if worker.is_refused():
            self._lose(worker, "its port refuses connections: its process has ended")
        elif worker.silent_probes > self._silent_probes_max:
            self._lose(worker, f"it has not reported for {self._settings.gone_seconds:g} s")

    def _for_known(self, message: type[T], act: Callable[[RemoteWorker, T], None]) -> Handler:
        decoder = msgspec.msgpack.Decoder(message)

        def run(caller: str, body: bytes) -> bytes:
            act(self._of(caller), decoder.decode(body))
            return msgspec.msgpack.encode(Done())

        return run

    def _only_known(self, act: Handler) -> Handler:
        def run(caller: str, body: bytes) -> bytes:
            self._of(caller)
            return act(caller, body)

        return run

    def _of(self, caller: str) -> RemoteWorker:
        with self._lock:
            worker = self._known.get(caller)
        if worker is None:
            raise FencedError.coded(
                "WORKER_FENCED",
                "the server considers this worker gone; it registers again by itself",
                hint="a worker that is alive registers again by itself",
            )
        return worker
