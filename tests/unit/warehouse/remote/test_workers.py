"""The server's list of workers and a worker's tie to it, by calls in this process; time moves when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from itertools import count
from typing import TypeVar

import msgspec
import pytest

from tests.codes import WithCode
from tilth.base.errors import ConflictError, FencedError, NotFoundError, TilthError, UnavailableError
from tilth.model.failure import error_of, failure_of
from tilth.model.task import Cost, TaskKind, TaskSpec
from tilth.testing import ManualClock
from tilth.warehouse import TaskResult, Worker, WorkerBusyError, WorkerNotFoundError, WorkerReports
from tilth.warehouse.errors import TaskLostError
from tilth.warehouse.remote.channel import Channel
from tilth.warehouse.remote.errors import (
    PeerAnswerLostError,
    PeerAnswerTooLargeError,
    PeerAwayError,
    WorkerNameTakenError,
)
from tilth.warehouse.remote.link import WorkerLink
from tilth.warehouse.remote.wire import (
    WIRE_VERSION,
    Done,
    Registration,
    Report,
    StorageProbe,
)
from tilth.warehouse.remote.workers import Handler, RemoteSettings, RemoteWorker, RemoteWorkers
from tilth.warehouse.stats import WorkerLoad, WorkerProcess

T = TypeVar("T")
URL = "http://127.0.0.1:9"
PROBE = StorageProbe(root="/r", path="p", content=b"c")


class Wire(Channel):
    """Calls handlers of this process, by bytes as over a network; loses what the test says."""

    def __init__(self, handlers: Callable[[], dict[str, Handler]], worker: str = "") -> None:
        self.url, self.worker = URL, worker
        self.urls: tuple[str, ...] = (URL,)
        self._handlers = handlers
        #: Fates of the next calls, by the name of the call.
        self.fates: dict[str, list[str]] = {}
        self.calls: list[str] = []
        self.called: list[str] = []

    def call(self, name: str, message: object, answer: type[T], **limits: float) -> T:
        fates = self.fates.get(name, [])
        fate = fates.pop(0) if fates else "pass"
        self.calls.append(name)
        self.called.append(self.url)
        if fate == "away":
            raise PeerAwayError(call=name)
        if fate == "lost":
            raise PeerAnswerLostError(call=name)
        try:
            got = self._handlers()[name](self.worker, msgspec.msgpack.encode(message))
        except TilthError as error:
            raise error_of(failure_of(error)) from error
        if fate == "answer lost":
            raise PeerAnswerLostError(call=name)
        if fate == "too much":
            raise PeerAnswerTooLargeError(call=name)
        return msgspec.msgpack.decode(got, type=answer)

    def close(self) -> None:
        """Nothing is open."""


class FakeMembers:
    """The dispatcher, as far as it matters."""

    def __init__(self) -> None:
        self.there: dict[str, Worker] = {}
        self.events: list[tuple[str, ...]] = []
        self.ended: dict[str, TaskResult | TilthError] = {}

    def join(
        self, worker: Worker, *, warehouse: str, slots: int, process: Callable[[], WorkerProcess] | None = None
    ) -> None:
        assert process is not None
        self.there[worker.name] = worker
        worker.attach(self)
        self.events.append(("join", worker.name, warehouse, str(slots)))

    def leave(self, name: str, reason: str) -> None:
        self.there.pop(name, None)
        self.events.append(("leave", name, reason))

    def drain(self, name: str, reason: str) -> None:
        self.events.append(("drain", name, reason))

    def check_fits(self, name: str, *, master: str, cores: int, memory_bytes: int) -> None:
        if name != "write":
            raise NotFoundError.coded("WAREHOUSE_NOT_FOUND", "no such warehouse", warehouse=name)

    def finished(self, task_id: str, result: TaskResult) -> None:
        self.ended[task_id] = result

    def failed(self, task_id: str, error: TilthError) -> None:
        self.ended[task_id] = error


class FakeTasks:
    """The tasks of a worker; they end when the test says so."""

    load = WorkerLoad(disk_bytes=1 << 40, free_disk_bytes=1 << 30)

    def __init__(self) -> None:
        self.started: list[str] = []
        self.live: set[str] = set()
        self.cancelled: list[str] = []
        self.is_busy = False
        self.reports: WorkerReports | None = None

    def attach(self, reports: WorkerReports) -> None:
        self.reports = reports

    def assign(self, spec: TaskSpec) -> None:
        if self.is_busy:
            raise WorkerBusyError(worker="w")
        self.started.append(spec.id)
        self.live.add(spec.id)

    def touch(self, task_ids: Collection[str]) -> set[str]:
        return set(self.live)

    def cancel(self, task_id: str) -> None:
        self.cancelled.append(task_id)
        self.live.discard(task_id)

    def retire(self, task_id: str) -> None:
        self.cancelled.append(f"retired {task_id}")

    def live_ids(self) -> set[str]:
        return set(self.live)

    def trouble(self) -> str:
        return ""


class World:
    """A server's list and one worker's tie, joined by wires."""

    def __init__(self, storage_error: TilthError | None = None) -> None:
        numbers = count(1)
        self.ids = lambda: f"i{next(numbers)}"
        self.clock, self.members, self.tasks = ManualClock(), FakeMembers(), FakeTasks()
        self.workers = self.new_server()
        self.up = Wire(lambda: self.workers.handlers({"runner": lambda caller, body: body}))
        self.over = threading.Event()

        def check(probe: StorageProbe) -> None:
            assert probe == PROBE
            if storage_error is not None:
                raise storage_error

        self.link = WorkerLink(
            self.clock,
            self.ids,
            self.up,
            registration(instance=""),
            check_storage=check,
            over=self.over,
        )
        self.link._tasks = self.tasks

    def new_server(self, probes: Callable[[], tuple[StorageProbe, ...]] = lambda: (PROBE,)) -> RemoteWorkers:
        settings = RemoteSettings(token="t", server="s", version="1", probes=probes, reserved=frozenset({"embedded"}))
        return RemoteWorkers(self.clock, self.ids, self.members, settings=settings)

    def join(self) -> RemoteWorker:
        """Register, with a wire down to the worker."""
        self.link._register(is_trial=False)
        worker = self.workers.infos()["w"]
        self.down = Wire(self.link.handlers, worker.registration.instance)
        worker._channel = self.down
        return worker


def registration(*, instance: str = "x", name: str = "w", warehouse: str = "write", version: str = "1") -> Registration:
    return Registration(
        name=name,
        version=version,
        wire=WIRE_VERSION,
        instance=instance,
        warehouse=warehouse,
        url=URL,
        slots=3,
        memory_bytes=5,
    )


def spec(task_id: str) -> TaskSpec:
    return TaskSpec(
        id=task_id, kind=TaskKind.MERGE, warehouse="write", table="d.t", txn=1, estimate=Cost(), payload=b"secret"
    )


def settled(is_so: Callable[[], bool]) -> None:
    """Wait for another thread, a while."""
    for _ in range(2000):
        if is_so():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it never came true")


def later(world: World, is_so: Callable[[], bool]) -> None:
    """Move time on until it is so."""

    def look() -> bool:
        world.clock.advance(1.0)
        return is_so()

    settled(look)


def test_a_worker_joins_with_what_it_said_and_reports() -> None:
    world = World()
    worker = world.join()
    assert world.members.events == [("join", "w", "write", "3")]
    assert worker.memory_bytes == 5
    world.up.call("report", Report(load=WorkerLoad(cores=2, free_cores=1.5), trouble="Spark is away"), Done)
    assert (worker.load.cores, worker.load.free_cores, worker.trouble()) == (2, 1.5, "Spark is away")
    assert worker.load.reported_ms == world.clock.now_ms()


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (registration(version="2"), "WORKER_VERSION"),
        (msgspec.structs.replace(registration(), wire=WIRE_VERSION + 1), "WORKER_VERSION"),
        (Registration(name="w", version="0.0.1", wire=0), "WORKER_VERSION"),
        (registration(warehouse="nowhere"), "WAREHOUSE_NOT_FOUND"),
        (registration(name="embedded"), "WORKER_NAME_TAKEN"),
        (registration(name=""), "WORKER_NAME_TAKEN"),
        (registration(name="a\nb"), "WORKER_NAME_TAKEN"),
        (registration(name="x" * 101), "WORKER_NAME_TAKEN"),
    ],
)
def test_who_is_not_welcome_is_told_why_and_nothing_has_changed(given: Registration, code: str) -> None:
    world = World()
    with pytest.raises(TilthError, check=WithCode(code)):
        world.workers.register(given)
    assert world.members.events == []


def test_a_name_has_one_living_worker_and_a_registration_may_be_repeated() -> None:
    world = World()
    first = registration(instance="one")
    world.workers.register(first)
    world.workers.register(first)
    with pytest.raises(WorkerNameTakenError):
        world.workers.register(registration(instance="two"))
    assert world.members.events == [("join", "w", "write", "3")]


def test_of_two_workers_of_one_name_that_register_at_once_one_is_taken() -> None:
    world = World()
    rivals = [registration(instance="two")]

    def probes() -> tuple[StorageProbe, ...]:
        # The first worker was checked, but is not registered yet.
        if rivals:
            world.workers.register(rivals.pop())
        return ()

    world.workers = world.new_server(probes)
    with pytest.raises(WorkerNameTakenError):
        world.workers.register(registration(instance="one"))
    assert world.members.events == [("join", "w", "write", "3")]
    assert world.workers.infos()["w"].registration.instance == "two"


def test_the_loss_of_a_worker_that_was_replaced_meanwhile_leaves_its_successor() -> None:
    world = World()
    worker = world.join()

    def left() -> None:
        # Its name is free, but the dispatcher still has the worker.
        world.workers.register(registration(instance="two"))

    worker.leave = left  # type: ignore[method-assign]
    world.workers._lose(worker, "it has not reported")
    assert world.members.there["w"] is world.workers.infos()["w"]
    assert [event[0] for event in world.members.events] == ["join", "join"]


def test_a_trial_joins_nothing_and_looks_for_the_storage() -> None:
    world = World()
    world.link.try_server()
    assert world.members.events == []
    away = World(storage_error=UnavailableError.coded("WORKER_STORAGE", "not seen", root="/r"))
    with pytest.raises(UnavailableError, check=WithCode("WORKER_STORAGE")):
        away.link.try_server()


def test_a_task_is_started_once_however_often_it_is_assigned() -> None:
    world = World()
    worker = world.join()
    world.down.fates["assign"] = ["pass", "pass"]
    worker.assign(spec("a"))
    world.tasks.live.clear()
    world.link.finished("a", TaskResult(payload=b"p"))
    worker.assign(spec("a"))
    assert world.tasks.started == ["a"]
    assert isinstance(world.members.ended["a"], TaskResult)


def test_a_refusal_is_known_at_once_and_an_unsent_task_is_nobodys() -> None:
    world = World()
    worker = world.join()
    world.tasks.is_busy = True
    with pytest.raises(WorkerBusyError):
        worker.assign(spec("a"))
    world.down.fates["assign"] = ["away"]
    with pytest.raises(PeerAwayError):
        worker.assign(spec("b"))
    assert world.tasks.started == []


def test_a_task_whose_worker_answers_with_something_else_is_sent_nowhere_else() -> None:
    """It may run there; once more there is no answer, and it is lost."""
    world = World()
    worker = world.join()
    world.down.fates["assign"] = ["too much", "too much"]
    worker.assign(spec("a"))
    later(world, lambda: not worker._unsettled)
    assert isinstance(world.members.ended["a"], TaskLostError)


@pytest.mark.parametrize("fates", [["lost"], ["answer lost"], ["lost", "lost", "answer lost"], ["answer lost"] * 5])
def test_a_task_whose_arrival_is_unknown_is_sent_until_it_is_known(fates: list[str]) -> None:
    world = World()
    worker = world.join()
    world.down.fates["assign"] = list(fates)
    worker.assign(spec("a"))
    # Nobody else may have it meanwhile: it counts as being there.
    settled(lambda: not world.down.fates["assign"])
    settled(lambda: not worker._unsettled)
    assert world.tasks.started == ["a"]
    assert worker.touch(["a"]) == {"a"}


def test_a_task_whose_arrival_is_unknown_counts_as_being_there_until_it_is_known() -> None:
    """If it counted as lost, another worker would get the task, and it would run twice."""
    world = World()
    worker = world.join()
    world.down.fates["assign"] = ["lost", "away"]
    worker.assign(spec("a"))
    # The task is sent again after some time.
    settled(lambda: not world.down.fates["assign"])
    assert (worker.touch(["a"]), world.tasks.started) == ({"a"}, [])
    later(world, lambda: not worker._unsettled)
    assert (worker.touch(["a"]), world.tasks.started) == ({"a"}, ["a"])


def test_an_end_whose_answer_is_lost_is_told_again() -> None:
    world = World()
    world.join()
    world.up.fates["ended"] = ["lost", "answer lost", "away"]
    world.link.finished("a", TaskResult(payload=b"p"))
    assert world.up.calls.count("ended") == 4
    assert world.members.ended["a"] == TaskResult(payload=b"p")


def test_who_is_silent_is_gone_and_nothing_of_what_it_says_counts() -> None:
    world = World()
    worker = world.join()
    # Someone listens at its door.
    worker.is_refused = lambda: False  # type: ignore[method-assign]
    for _ in range(8):
        worker.silent_probes += 1
        world.workers._probe(worker)
    assert "w" in world.members.there
    worker.silent_probes += 1
    world.workers._probe(worker)
    assert world.members.events[-1] == ("leave", "w", "it has not reported for 2 s")
    for name, message in (("report", Report(load=WorkerLoad())), ("runner", Done())):
        with pytest.raises(FencedError, check=WithCode("WORKER_FENCED")):
            world.up.call(name, message, Done)
    world.link.finished("a", TaskResult())
    assert world.members.ended == {}
    with pytest.raises(WorkerNotFoundError):
        worker.assign(spec("a"))


def test_a_process_that_has_ended_is_gone_at_once() -> None:
    world = World()
    world.workers._probe(world.join())
    # Nobody listens at port 9.
    assert world.members.events[-1] == ("leave", "w", "its port refuses connections: its process has ended")


def test_a_worker_that_its_server_does_not_know_ends_its_tasks_and_registers_anew() -> None:
    world = World()
    old = world.join()
    old.assign(spec("a"))
    # Its process ends, and another begins.
    world.workers = world.new_server()
    world.link._thread.start()
    later(world, lambda: "w" in world.workers.infos())
    assert world.tasks.cancelled == ["a"]
    assert world.workers.infos()["w"].registration.instance != old.registration.instance
    # The former server's calls are refused.
    with pytest.raises(WorkerNotFoundError):
        Wire(world.link.handlers, old.registration.instance).call("touch", Done(), tuple[str, ...])
    world.link._closing.set()
    later(world, lambda: not world.link._thread.is_alive())


def test_a_worker_goes_on_asking_while_its_name_is_taken_or_its_server_is_away() -> None:
    world = World()
    world.join()
    world.workers = world.new_server()
    world.workers.register(registration(instance="its own, not yet noticed to be gone"))
    other = world.workers.infos()["w"]
    world.up.fates["register"] = ["away", "lost", "answer lost"]
    world.link._thread.start()
    later(world, lambda: world.up.calls.count("register") >= 6)
    assert not world.over.is_set()
    world.workers._lose(other, "it has not reported")
    for each in world.workers.infos().values():
        world.workers._lose(each, "it has not reported")
    later(world, lambda: "w" in world.workers.infos())
    world.link._closing.set()
    later(world, lambda: not world.link._thread.is_alive())


def test_a_worker_that_is_refused_for_good_ends() -> None:
    world = World()
    world.join()
    world.workers = world.new_server()
    world.workers._settings = RemoteSettings(token="t", server="s", version="2")
    world.link._thread.start()
    later(world, lambda: world.over.is_set())
    assert getattr(world.link.refusal, "code", "") == "WORKER_VERSION"


def test_a_farewell_drains_first() -> None:
    world = World()
    worker = world.join()
    worker.assign(spec("a"))
    world.link._thread.start()
    world.tasks.live.clear()
    ender = threading.Thread(target=world.link.leave, args=("it was asked to",), kwargs={"drain_seconds": 1.0})
    ender.start()
    later(world, lambda: not ender.is_alive())
    assert world.members.events[-2:] == [("drain", "w", "it was asked to"), ("leave", "w", "it was asked to")]
    assert world.members.there == {}


class Two(World):
    """Two servers of one catalog, of which the worker knows both."""

    def __init__(self, storage_error: TilthError | None = None) -> None:
        super().__init__(storage_error)
        self.servers = {"http://a:1": self.workers, "http://b:1": self.new_server()}
        #: Errors of calls to a server, by its address; without one the server answers.
        self.away: dict[str, type[TilthError]] = {}
        self.up._handlers = self._handlers
        self.up.urls = tuple(self.servers)
        self.up.url = self.up.urls[0]

    def _handlers(self) -> dict[str, Handler]:
        met = self.away.get(self.up.url)
        if met is not None:
            raise met(url=self.up.url)
        return self.servers[self.up.url].handlers({})

    def at(self, url: str) -> bool:
        return "w" in self.servers[url].infos()

    def begin(self) -> RemoteWorker:
        """Start at the first server, and report."""
        self.link.try_server()
        self.link.join(self.tasks, cores=2)
        worker = self.workers.infos()["w"]
        self.down = Wire(self.link.handlers, worker.registration.instance)
        worker._channel = self.down
        return worker

    def end(self) -> None:
        self.link._closing.set()
        later(self, lambda: not self.link._thread.is_alive())


def test_a_worker_is_at_the_first_server_that_answers_and_stays_there() -> None:
    world = Two()
    world.away = {"http://a:1": PeerAwayError}
    world.link.try_server()
    world.link.join(world.tasks, cores=2)
    assert world.at("http://b:1")
    world.away = {}
    reports = world.up.calls.count("report")
    later(world, lambda: world.up.calls.count("report") > reports + 5)
    assert not world.at("http://a:1")
    world.end()


def test_a_worker_goes_on_with_the_next_server_and_ends_the_tasks_of_the_former_one() -> None:
    world = Two()
    old = world.begin()
    old.assign(spec("a"))
    world.away = {"http://a:1": PeerAwayError}
    later(world, lambda: world.at("http://b:1"))
    assert world.tasks.cancelled == ["a"]
    assert world.up.url == "http://b:1"
    # The former server's calls are refused: it may live, and not know yet that the worker has left.
    with pytest.raises(WorkerNotFoundError):
        Wire(world.link.handlers, old.registration.instance).call("touch", Done(), tuple[str, ...])
    # It looked for that server's storages before it took its tasks.
    asked = [name for name, url in zip(world.up.calls, world.up.called, strict=True) if url == "http://b:1"]
    assert asked[:2] == ["register", "register"]
    # And back.
    world.workers._lose(old, "it has not reported")
    world.away = {"http://b:1": PeerAnswerLostError}
    later(world, lambda: world.at("http://a:1"))
    world.end()


def test_silence_that_the_server_bears_is_no_reason_to_leave_it() -> None:
    world = Two()
    world.begin()
    for _ in range(3):
        world.up.fates["report"] = ["lost", "away"]
        later(world, lambda: not world.up.fates["report"])
        reports = world.up.calls.count("report")
        later(world, lambda reports=reports: world.up.calls.count("report") > reports)  # type: ignore[misc]
    world.end()
    assert set(world.up.called) == {"http://a:1"}
    assert world.tasks.cancelled == []


def test_a_server_that_stops_and_still_answers_is_left() -> None:
    world = Two()
    world.begin()
    world.servers["http://a:1"].stop()
    later(world, lambda: world.at("http://b:1"))
    world.end()


def test_all_servers_are_asked_again_until_one_is_there() -> None:
    world = Two()
    world.begin()
    world.away = dict.fromkeys(world.servers, PeerAwayError)
    calls = len(world.up.called)
    later(world, lambda: len(world.up.called) > calls + 20)
    assert not world.over.is_set()
    del world.away["http://b:1"]
    later(world, lambda: world.at("http://b:1"))
    world.end()


def test_a_refusal_of_one_server_is_not_the_last_word_and_that_of_all_is() -> None:
    world = Two()
    world.begin()
    another = RemoteSettings(token="t", server="s", version="2")
    world.servers["http://b:1"]._settings = another
    world.away = {"http://a:1": PeerAwayError}
    later(world, lambda: world.up.called.count("http://b:1") > 3)
    assert not world.over.is_set()
    world.servers["http://a:1"]._settings = another
    world.workers.stop()
    world.away = {}
    later(world, lambda: world.over.is_set())
    assert getattr(world.link.refusal, "code", "") == "WORKER_VERSION"


def test_a_server_whose_files_are_not_seen_is_passed_over() -> None:
    world = Two(storage_error=UnavailableError.coded("WORKER_STORAGE", "not seen", root="/r"))
    with pytest.raises(UnavailableError, check=WithCode("WORKER_STORAGE")):
        world.link.try_server()
    assert world.up.called == list(world.servers)
    world.servers["http://b:1"]._settings = RemoteSettings(token="t", server="b", version="1")
    world.link.try_server()
    assert world.up.url == "http://b:1"


def test_where_none_takes_it_a_refusal_is_said_rather_than_that_one_is_away() -> None:
    world = Two()
    world.away = {"http://a:1": PeerAwayError}
    world.servers["http://b:1"]._settings = RemoteSettings(token="t", server="b", version="2")
    with pytest.raises(ConflictError, check=WithCode("WORKER_VERSION")):
        world.link.try_server()
    world.away["http://b:1"] = PeerAnswerLostError
    with pytest.raises(PeerAwayError):
        world.link.try_server()
