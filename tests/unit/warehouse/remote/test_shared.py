"""One worker and two servers: whose a task is, what the other server takes, and which server a runner calls."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.warehouse.remote.test_workers import World, later
from tilth.base.errors import TilthError
from tilth.model.task import Cost, TaskKind, TaskSpec
from tilth.warehouse import TaskContext, TaskResult, WorkerBusyError, WorkerNotFoundError
from tilth.warehouse.errors import TaskCancelledError
from tilth.warehouse.remote.errors import PeerAwayError
from tilth.warehouse.remote.shared import (
    LastOver,
    MemberTasks,
    SharedWorker,
    handlers_by_caller,
    runners_by_owner,
)
from tilth.warehouse.stats import WorkerLoad
from tilth.warehouse.tasks.state import TaskBoard, WorkerShare


def spec(task_id: str, kind: TaskKind = TaskKind.MERGE, memory_bytes: int = 10) -> TaskSpec:
    estimate = Cost(seconds=1.0, memory_bytes=memory_bytes)
    return TaskSpec(id=task_id, kind=kind, warehouse="write", table="t", txn=0, estimate=estimate, payload=b"")


class Worker:
    """Accepts tasks until it is full."""

    load = WorkerLoad(cores=8, free_disk_bytes=5)

    def __init__(self) -> None:
        self.live: set[str] = set()
        self.cancelled: list[str] = []
        self.retired: list[str] = []

    def attach(self, reports: object) -> None:
        self.reports = reports

    def assign(self, spec: TaskSpec) -> None:
        if len(self.live) >= 3:
            raise WorkerBusyError
        self.live.add(spec.id)

    def touch(self, task_ids: object) -> set[str]:
        return set(self.live)

    def cancel(self, task_id: str) -> None:
        self.cancelled.append(task_id)

    def retire(self, task_id: str) -> None:
        self.retired.append(task_id)

    def live_ids(self) -> set[str]:
        return set(self.live)

    def trouble(self) -> str:
        return "no Spark"


class Reports:
    def __init__(self) -> None:
        self.heard: list[tuple[str, object]] = []

    def finished(self, task_id: str, result: TaskResult) -> None:
        self.heard.append((task_id, result))

    def failed(self, task_id: str, error: TilthError) -> None:
        self.heard.append((task_id, error))


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def shared(worker: Worker) -> SharedWorker:
    return SharedWorker(worker)


@pytest.fixture
def members(shared: SharedWorker) -> tuple[MemberTasks, MemberTasks]:
    one, other = shared.member(), shared.member()
    for member in (one, other):
        member.attach(Reports())
    return one, other


def heard(member: MemberTasks) -> list[tuple[str, object]]:
    return cast(Reports, member.reports).heard


def test_a_server_sees_and_ends_its_own_tasks_alone(worker: Worker, members: tuple[MemberTasks, MemberTasks]) -> None:
    one, other = members
    one.assign(spec("a"))
    other.assign(spec("b"))
    assert (one.live_ids(), other.live_ids()) == ({"a"}, {"b"})
    assert one.touch(["a", "b", "c"]) == {"a"}
    for name in ("a", "b", "c"):
        one.cancel(name)
        other.retire(name)
    assert (worker.cancelled, worker.retired) == (["a"], ["b"])
    assert one.trouble() == "no Spark"


def test_the_end_of_a_task_goes_to_the_server_that_has_sent_it(
    shared: SharedWorker, members: tuple[MemberTasks, MemberTasks]
) -> None:
    one, other = members
    one.assign(spec("a"))
    other.assign(spec("b"))
    result, error = TaskResult(), TaskCancelledError()
    shared.finished("a", result)
    shared.failed("b", error)
    # Ended already, or of a server that was left.
    shared.finished("a", result)
    shared.failed("c", error)
    assert (heard(one), heard(other)) == ([("a", result)], [("b", error)])


def test_each_server_hears_what_the_others_take(
    worker: Worker, shared: SharedWorker, members: tuple[MemberTasks, MemberTasks]
) -> None:
    one, other = members
    one.assign(spec("a"))
    one.assign(spec("r", TaskKind.CONSUME))
    other.assign(spec("b", memory_bytes=7))
    assert (other.load.taken_slots, other.load.taken_memory_bytes) == (1, 10)
    assert (one.load.taken_slots, one.load.taken_memory_bytes, one.load.cores) == (1, 7, 8)
    with pytest.raises(WorkerBusyError):
        one.assign(spec("too many"))
    assert one.live_ids() == {"a", "r"}
    shared.finished("b", TaskResult())
    assert one.load.taken_slots == 0


def test_what_others_take_is_not_placed_again() -> None:
    load = WorkerLoad(taken_slots=2, taken_memory_bytes=60)
    shares = [
        WorkerShare(warehouse="write", worker="full", slots=2, memory_bytes=100),
        WorkerShare(warehouse="write", worker="free", slots=2, memory_bytes=100),
    ]
    board = TaskBoard(shares, load_of={"full": load, "free": WorkerLoad()}.__getitem__)
    [assigned] = board.submit(spec("a", TaskKind.INSERT), now_ms=0)
    assert getattr(assigned, "worker", "") == "free"
    alone = TaskBoard(shares[:1], load_of=lambda _: load)
    assert alone.submit(spec("b", TaskKind.INSERT), now_ms=0) == []
    [info] = alone.infos()
    assert info.reason == "all 2 slots of write on full are in use, 2 of them by other servers"


def test_what_others_hold_in_memory_is_not_given_again() -> None:
    share = WorkerShare(warehouse="write", worker="w", slots=2, memory_bytes=100)
    board = TaskBoard([share], load_of=lambda _: WorkerLoad(taken_slots=1, taken_memory_bytes=60))
    assert board.submit(spec("a", TaskKind.FLUSH, memory_bytes=50), now_ms=1) == []
    [info] = board.infos()
    assert info.reason == "needs 50 bytes of memory, w has 40 left"
    assert len(board.submit(spec("b", TaskKind.DELTA, memory_bytes=40), now_ms=1)) == 1


def test_a_runner_calls_the_server_whose_task_it_runs(
    shared: SharedWorker, members: tuple[MemberTasks, MemberTasks]
) -> None:
    one, other = members
    runners = {
        member: {TaskKind.MERGE: lambda context, name=name: TaskResult(payload=name)}
        for member, name in zip(members, (b"one", b"other"), strict=True)
    }
    run = runners_by_owner(shared, cast(Any, runners))[TaskKind.MERGE]

    def context(task_id: str) -> TaskContext:
        return cast(TaskContext, SimpleNamespace(spec=spec(task_id)))

    one.assign(spec("a"))
    other.assign(spec("b"))
    assert (run(context("a")).payload, run(context("b")).payload) == (b"one", b"other")
    with pytest.raises(WorkerNotFoundError):
        run(context("c"))


def test_the_last_refusal_ends_the_worker() -> None:
    over = threading.Event()
    last = LastOver(over, servers=2)
    last.set()
    assert not over.is_set()
    last.set()
    assert over.is_set()


def test_calls_reach_the_link_of_their_registration_and_a_server_that_was_away_is_joined_later() -> None:
    """Two links of one worker, each to a server of its own."""
    there, away = World(), World()
    away.up.fates["report"] = ["away"] * 3
    away.link._ids = lambda: "registered at the other"
    handlers = handlers_by_caller([there.link, away.link])
    there.join()
    with pytest.raises(PeerAwayError):
        away.up.call("report", None, object)
    away.link.join_when_there(away.tasks, cores=2)
    later(away, lambda: "w" in away.workers.infos())
    # It has looked for the storages first.
    assert away.up.calls.count("register") == 2
    instance = away.workers.infos()["w"].registration.instance
    assert away.link.is_member(instance)
    assert not there.link.is_member(instance)
    there.tasks.live.add("a")
    for world in (there, away):
        caller = world.workers.infos()["w"].registration.instance
        known = handlers["touch"](caller, b"\x81\xa3ids\x91\xa1a")
        assert (known == b"\x91\xa1a") is (world is there)
    with pytest.raises(WorkerNotFoundError):
        handlers["touch"]("nobody", b"\x81\xa3ids\x90")
    away.link._closing.set()
    later(away, lambda: not away.link._thread.is_alive())


@pytest.mark.parametrize("shares", [True, False])
def test_tasks_of_a_silent_server_end_where_others_share_the_worker(shares: bool) -> None:
    world = World()
    world.link._shares_worker = shares
    worker = world.join()
    world.link._gone_seconds = 2.0
    worker.assign(spec("a"))
    world.up.fates["report"] = ["away"] * 8
    world.link._thread.start()
    later(world, lambda: not world.up.fates["report"])
    assert world.tasks.cancelled[:1] == (["a"] if shares else [])
    world.link._closing.set()
    later(world, lambda: not world.link._thread.is_alive())
