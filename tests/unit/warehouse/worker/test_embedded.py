"""Heartbeats both ways, lost tasks, admission: docs/policies/tasks.md and its oracle."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from tests.catalog_world import World
from tests.panics import PanicError
from tilth.base.clock import SystemClock
from tilth.base.errors import ErrorKind, FencedError, TilthError
from tilth.base.retry import Retry, retry_rule
from tilth.catalog import InsertPart
from tilth.model.service import ServiceKind, Switch, SwitchState
from tilth.model.task import Cost, TaskKind, TaskSpec, TaskState
from tilth.testing import ManualClock
from tilth.warehouse import (
    EmbeddedWorker,
    SparkAwayError,
    SparkRestartingError,
    TaskCancelledError,
    TaskContext,
    TaskLostError,
    TaskResult,
    WarehouseSettings,
    WorkerBusyError,
)
from tilth.warehouse.errors import TaskStalledError
from tilth.warehouse.parallelism import Executors, Parallelism
from tilth.warehouse.session.reports import Beat, JobProgress, Processes
from tilth.warehouse.tasks.estimate import Estimator
from tilth.warehouse.tasks.state import Assign, Ended, Stop, TaskBoard, WorkerShare
from tilth.warehouse.worker.embedded import UNTOUCHED_SECONDS_MAX
from tilth.warehouse.worker.heartbeat import BackgroundCaller

HEARTBEATS_MS = (5_000, 10_000, 15_000, 20_000, 25_000)


def spec(name: str = "a", kind: TaskKind = TaskKind.MERGE, *, seconds: float = 1.0) -> TaskSpec:
    return TaskSpec(
        id=name, kind=kind, warehouse="write", table="db.t", txn=0, estimate=Cost(seconds=seconds), payload=b""
    )


def board(*workers: str, slots: int = 4) -> TaskBoard:
    return TaskBoard(
        [
            WorkerShare(warehouse="write", worker=worker, slots=slots, memory_bytes=1 << 30)
            for worker in workers or ("w",)
        ]
    )


def silent(tasks: TaskBoard, *, commit_ms: int | None = None) -> list[Ended]:
    """The worker is silent from t = 0; a commit begins at the time given."""
    ended: list[Ended] = []
    for now_ms in HEARTBEATS_MS:
        if commit_ms is not None and now_ms - 5_000 <= commit_ms < now_ms:
            tasks.committing("a", now_ms=commit_ms)
        ended += [each for each in tasks.missed("w", "no answer", now_ms=now_ms) if isinstance(each, Ended)]
    return ended


def test_oracle_a_silent_worker_loses_its_task_at_the_fifth_heartbeat() -> None:
    """Silent from t = 0, heartbeats at 5, 10, 15, 20, 25 s."""
    tasks = board()
    tasks.submit(spec(), now_ms=0)
    for now_ms in HEARTBEATS_MS[:4]:
        assert tasks.missed("w", "no answer", now_ms=now_ms) == []
    [ended] = tasks.missed("w", "no answer", now_ms=HEARTBEATS_MS[4])
    assert isinstance(ended, Ended)
    assert isinstance(ended.outcome, TaskLostError)
    # Its sources can be chosen again: whoever waits is told to try again, nothing was applied.
    assert ended.outcome.kind is ErrorKind.RETRY
    assert tasks.live_ids() == []


@pytest.mark.parametrize(("commit_began_before_ms", "is_kept"), [(4_000, True), (11_000, False)])
def test_oracle_a_task_that_just_began_to_commit_is_kept(commit_began_before_ms: int, is_kept: bool) -> None:
    """Fifth miss 4 s after commit start / 11 s after."""
    tasks = board()
    tasks.submit(spec(), now_ms=0)
    ended = silent(tasks, commit_ms=HEARTBEATS_MS[4] - commit_began_before_ms)
    assert (ended == []) is is_kept
    if is_kept:
        assert tasks.missed("w", "no answer", now_ms=30_000) == []
        [late] = tasks.missed("w", "no answer", now_ms=35_000)
        assert isinstance(late, Ended)


class FakeSession:
    """Spark that does nothing."""

    settings = WarehouseSettings(are_write_slots_given=True)
    folder = "/"
    session = None
    outage = None
    run = 1
    tries_tasks_again = False

    is_on_cluster = True
    executors = Executors(count=2, cores=8, running=3)
    parallelism = Parallelism(tasks=8, cores=8, reason="8 cores of 2 executors")

    def fit(self, session: object) -> Parallelism:
        return self.parallelism

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def beat(self) -> Beat:
        return Beat(has_ended=False, is_full=False)

    def run_small_job(self) -> bool:
        return True

    def jvm_usage(self) -> tuple[float, bool]:
        return 0.0, False

    def note_outage(self, outage: object) -> None:
        assert outage is None

    def progress(self, tags: Collection[str]) -> dict[str, JobProgress]:
        return {}

    def processes(self) -> Processes:
        return Processes(cpu_seconds=0.0)

    def new_session(self, *, pool: str) -> None:
        return None

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        yield

    def is_alive(self) -> bool:
        return True

    def tend_logs(self) -> None:
        return None

    def cancel_jobs(self, tag: str) -> None:
        self.cancelled.append(tag)


class Reports:
    """Keeps what the worker says."""

    def __init__(self) -> None:
        self.failures: dict[str, TilthError] = {}
        self.told = threading.Event()

    def finished(self, task_id: str, result: TaskResult) -> None:
        raise AssertionError("nothing here ends well")

    def failed(self, task_id: str, error: TilthError) -> None:
        self.failures[task_id] = error
        self.told.set()


def stop(worker: EmbeddedWorker, clock: ManualClock) -> None:
    ticking = threading.Thread(target=worker.stop)
    ticking.start()
    while ticking.is_alive():
        clock.advance(1)
        ticking.join(0.01)


@contextmanager
def working(clock: ManualClock, *, threads: int = 0) -> Iterator[tuple[EmbeddedWorker, Reports]]:
    """A worker whose tasks run until they are cancelled."""

    def run(context: TaskContext) -> TaskResult:
        context.cancelled.wait(10)
        context.raise_if_cancelled()
        return TaskResult()

    reports = Reports()
    worker = EmbeddedWorker(clock, FakeSession(), name="w", memory_bytes=1 << 30, threads=threads)  # type: ignore[arg-type]  # does what is called here
    for kind in (TaskKind.MERGE, TaskKind.MUTATE, TaskKind.CONSUME, TaskKind.INSERT):
        worker.register(kind, run)
    worker.attach(reports)
    worker.start()
    try:
        yield worker, reports
    finally:
        for name in ("a", "b", "c", "d", "e"):
            worker.cancel(name)
        stop(worker, clock)


@pytest.mark.parametrize("kind", [TaskKind.MERGE, TaskKind.MUTATE, TaskKind.CONSUME])
def test_oracle_an_untouched_task_cancels_itself_after_a_minute(kind: TaskKind) -> None:
    """The owner is gone: the worker cancels itself 60 s after the last touch."""
    clock = ManualClock()
    with working(clock) as (worker, reports):
        worker.assign(spec("a", kind))
        clock.advance(UNTOUCHED_SECONDS_MAX - 1)
        assert worker.touch({"a"}) == {"a"}
        clock.advance(UNTOUCHED_SECONDS_MAX - 1)
        assert not reports.told.wait(0.05)
        clock.advance(3)
        assert reports.told.wait(5)
        assert isinstance(reports.failures["a"], TaskCancelledError)


def test_oracle_of_two_owners_the_older_commits_nothing() -> None:
    """A late commit is refused; the older owner fails its epoch check."""
    world = World()
    leases, transactions = world.catalog.leases, world.catalog.transactions
    older = leases.acquire("table/t", "s1")
    late = transactions.open("merge", fences=[older.fence])
    leases.acquire("table/t", "s2")
    with pytest.raises(FencedError):
        late.commit([InsertPart(table=world.t, written=world.written())])
    with pytest.raises(FencedError):
        transactions.begin("merge", fences=[older.fence])
    assert world.catalog.parts.snapshot(world.t).parts == ()


def test_oracle_what_was_stopped_stays_stopped_when_all_servers_restart() -> None:
    world = World()
    stopped = Switch(
        table=world.t, service=ServiceKind.MERGE, state=SwitchState.STOPPED, since_ms=1, because="a test", query_id="q"
    )
    world.catalog.services.set(stopped)
    assert world.reopened().services.switch(world.t, ServiceKind.MERGE) == stopped


def test_a_worker_takes_one_and_a_half_merges_and_mutations_for_each_thread() -> None:
    """docs/policies/tasks.md#admission"""
    with working(ManualClock(), threads=2) as (worker, _):
        worker.assign(spec("a"))
        worker.assign(spec("b", TaskKind.MUTATE))
        worker.assign(spec("c"))
        with pytest.raises(WorkerBusyError, match="too many tasks"):
            worker.assign(spec("d", TaskKind.MUTATE))
        # A task that somebody waits for is not held back by them.
        worker.assign(spec("e", TaskKind.INSERT))


def test_merges_that_a_worker_takes_follow_the_executors_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeSession, "settings", WarehouseSettings())
    with working(ManualClock(), threads=1) as (worker, _):
        # 8 cores give 12 slots, and room for 18 merges.
        assert (worker.load.cores, worker.load.free_cores, worker.load.write_slots) == (8, 5, 12)
        assert (worker.load.tasks, worker.load.tasks_reason) == (8, "8 cores of 2 executors")
        for number in range(18):
            worker.assign(spec(f"m{number}"))
        with pytest.raises(WorkerBusyError, match="too many tasks"):
            worker.assign(spec("more"))


def test_a_task_refused_for_room_goes_elsewhere_and_others_still_come() -> None:
    tasks = board("w1", "w2", slots=8)
    assert tasks.submit(spec("a"), now_ms=0) == [Assign("w1", spec("a"))]
    # The busy one is asked no more for this task, the other is.
    assert tasks.refused("a", "w1: too many tasks", is_busy=True, now_ms=1) == [Assign("w2", spec("a"))]
    assert tasks.refused("a", "w2: too many tasks", is_busy=True, now_ms=2) == []
    [waiting] = tasks.infos()
    assert (waiting.state, waiting.reason) == (TaskState.PENDING, "w2: too many tasks")
    assert tasks.silent == set()
    assert tasks.submit(spec("q", TaskKind.INSERT), now_ms=3) == [Assign("w1", spec("q", TaskKind.INSERT))]
    # It has room again when one of its tasks has ended.
    [_, again] = tasks.finished("q", TaskResult(), now_ms=4)
    assert again == Assign("w1", spec("a"))


def test_merges_and_mutations_share_half_of_the_slots() -> None:
    tasks = board(slots=4)
    assert tasks.submit(spec("a"), now_ms=0)
    assert tasks.submit(spec("b", TaskKind.MUTATE), now_ms=0)
    assert tasks.submit(spec("c", TaskKind.MUTATE), now_ms=0) == []
    assert tasks.submit(spec("d", TaskKind.INSERT), now_ms=0)


def test_the_reason_of_the_place_stays_and_the_estimate_is_measured() -> None:
    tasks = board()
    tasks.submit(spec("a", seconds=2.0), now_ms=0)
    tasks.submit(spec("b", seconds=2.0), now_ms=0)
    tasks.finished("a", TaskResult(actual=Cost(seconds=3.0)), now_ms=1)
    tasks.failed("b", TilthError("it broke"), now_ms=1)
    failed, done = tasks.infos()
    assert done.placement_reason == "fits on w, done in about 2.0 s; 0 of 4 slots in use"
    assert done.estimate_error == 0.5
    assert failed.reason == "it broke"
    assert failed.placement_reason == "fits on w, done in about 2.5 s; 1 of 4 slots in use"
    assert failed.estimate_error is None


def test_a_cancelled_task_is_asked_to_end_again_by_each_heartbeat_even_after_a_commit_began() -> None:
    tasks = board()
    tasks.submit(spec(), now_ms=0)
    tasks.committing("a", now_ms=1)
    assert tasks.cancel("a", now_ms=2) == [Stop("w", "a")]
    assert tasks.touched("w", {"a"}, expected=["a"], now_ms=3) == [Stop("w", "a")]


def test_every_kind_of_task_has_an_estimate() -> None:
    for kind in TaskKind:
        assert Estimator().estimate(kind, input_bytes=1 << 20).input_bytes == 1 << 20


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_every_kind_of_error_has_a_rule(kind: ErrorKind) -> None:
    told = retry_rule.__doc__ or ""
    assert f"| {kind.name}" in told
    assert isinstance(retry_rule(kind), Retry)


def test_what_was_fenced_is_never_tried_again_and_what_is_unknown_is_asked_for() -> None:
    assert retry_rule(ErrorKind.FENCED) is Retry.STOP
    assert retry_rule(ErrorKind.UNKNOWN_OUTCOME) is Retry.RESOLVE
    assert retry_rule(ErrorKind.CONFLICT) is Retry.CHOOSE_ANEW
    assert retry_rule(ErrorKind.CORRUPT) is Retry.WAIT_LONG


def test_statements_end_at_once_while_spark_is_away_and_services_wait() -> None:
    tasks = board()
    away = SparkRestartingError(reason="killed")
    tasks.submit(spec("merge"), now_ms=0)
    assert tasks.refused("merge", "w refused", without_spark=away, now_ms=1) == []
    # A statement is still sent there, so that it is accepted as soon as Spark is back.
    query = spec("query", TaskKind.QUERY)
    assert tasks.submit(query, now_ms=2) == [Assign("w", query)]
    [ended] = tasks.refused("query", "w refused", without_spark=away, now_ms=3)
    assert ended == Ended("query", away)
    assert [(task.id, task.state) for task in tasks.infos()] == [
        ("merge", TaskState.PENDING),
        ("query", TaskState.LOST),
    ]
    # The next heartbeat sends the service's task again.
    assert tasks.touched("w", set(), expected=[], now_ms=4) == [Assign("w", spec("merge"))]


def test_a_statement_that_only_reads_waits_for_spark() -> None:
    tasks = board()
    away = SparkRestartingError(reason="killed", hint="wait")
    read = msgspec.structs.replace(spec("read", TaskKind.QUERY), waits_for_spark=True)
    later = msgspec.structs.replace(read, id="later")
    assert tasks.submit(read, now_ms=0) == [Assign("w", read)]
    assert tasks.refused("read", "w refused", without_spark=away, now_ms=1) == []
    assert tasks.submit(later, now_ms=2) == []
    assert [task.reason for task in tasks.infos()] == ["waits behind task read", "worker w has no Spark now"]
    # A task that writes is still sent there, and delays no other.
    write = spec("write", TaskKind.QUERY)
    assert tasks.submit(write, now_ms=3) == [Assign("w", write)]
    assert tasks.refused("write", "w refused", without_spark=away, now_ms=4) == [Ended("write", away)]
    # A heartbeat says nothing of Spark.
    assert tasks.touched("w", set(), expected=[], now_ms=5) == []
    assert tasks.end_unplaced(waiting_ms=30_000, now_ms=29_999) == []
    assert tasks.spark_is_back("w", now_ms=29_999) == [Assign("w", read), Assign("w", later)]
    assert tasks.end_unplaced(waiting_ms=30_000, now_ms=60_000) == [], "they run"


def test_a_statement_waits_for_spark_no_longer_than_for_a_worker() -> None:
    tasks = board("w", "v")
    away = SparkRestartingError(reason="it does not start", hint="wait")
    read = msgspec.structs.replace(spec("read", TaskKind.QUERY), waits_for_spark=True)
    [sent] = tasks.submit(read, now_ms=0)
    assert isinstance(sent, Assign)
    # The other worker has its Spark.
    [other] = tasks.refused("read", "refused", without_spark=away, now_ms=1)
    assert isinstance(other, Assign)
    assert {sent.worker, other.worker} == {"w", "v"}
    assert tasks.refused("read", "refused", without_spark=away, now_ms=2) == []
    tasks.drain(other.worker, "an upgrade", now_ms=3)
    [ended] = tasks.end_unplaced(waiting_ms=30_000, now_ms=30_000)
    assert isinstance(ended, Ended)
    assert isinstance(ended.outcome, SparkAwayError)
    assert "reason=it does not start waited_seconds=30" in ended.outcome.message
    assert (ended.outcome.code, ended.outcome.hint) == ("SPARK_AWAY", "wait")
    assert tasks.infos()[0].state is TaskState.LOST


def test_a_task_whose_jvm_has_ended_is_lost() -> None:
    tasks = board()
    tasks.submit(spec(), now_ms=0)
    tasks.failed("a", SparkRestartingError(reason="the JVM was ended by SIGKILL"), now_ms=1)
    [task] = tasks.infos()
    assert task.state is TaskState.LOST
    assert "SIGKILL" in task.reason


class DyingSession(FakeSession):
    """Its JVM ends while a task runs."""

    is_gone = False
    why_ended = "the JVM was ended by SIGTERM"

    def is_alive(self) -> bool:
        return not self.is_gone

    def exit_reason(self) -> str:
        return "the JVM was ended by SIGKILL"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("py4j.protocol: whatever"), SparkRestartingError),
        (TilthError("the query failed"), SparkRestartingError),
        (FencedError("somebody else"), FencedError),
    ],
)
def test_what_fails_because_its_jvm_has_ended_is_told_as_that(error: Exception, expected: type[TilthError]) -> None:
    session, reports = DyingSession(), Reports()

    def run(context: TaskContext) -> TaskResult:
        session.is_gone = True
        raise error

    worker = EmbeddedWorker(ManualClock(), session, name="w", memory_bytes=1 << 30)  # type: ignore[arg-type]  # does what is called here
    worker.register(TaskKind.QUERY, run)
    worker.attach(reports)
    worker.assign(spec("a", TaskKind.QUERY))
    assert reports.told.wait(5)
    assert type(reports.failures["a"]) is expected
    assert ("ended by SIGKILL" in str(reports.failures["a"])) is (expected is SparkRestartingError)


def test_an_error_of_a_living_jvm_stays_what_it_is() -> None:
    session, reports, clock = FakeSession(), Reports(), ManualClock()

    def run(context: TaskContext) -> TaskResult:
        raise ConnectionError("a socket broke")

    worker = EmbeddedWorker(clock, session, name="w", memory_bytes=1 << 30)  # type: ignore[arg-type]  # does what is called here
    worker.register(TaskKind.QUERY, run)
    worker.attach(reports)
    worker.assign(spec("a", TaskKind.QUERY))
    assert reports.told.wait(5)
    assert reports.failures["a"].code == "TASK_FAILED"


def test_a_task_that_waits_for_something_besides_spark_is_given_up_after_a_minute() -> None:
    clock, go_on, over = ManualClock(), threading.Event(), threading.Event()

    def run(context: TaskContext) -> TaskResult:
        # Waits that end are nothing.
        context.waits_for("asking the broker")
        context.waits_for("")
        context.waits_for("committing a round")
        assert go_on.wait(10)
        over.set()
        context.raise_if_cancelled()
        return TaskResult()

    reports = Reports()
    worker = EmbeddedWorker(clock, FakeSession(), name="w", memory_bytes=1 << 30)  # type: ignore[arg-type]  # does what is called here
    worker.register(TaskKind.CONSUME, run)
    worker.attach(reports)
    worker.start()
    try:
        worker.assign(spec("a", TaskKind.CONSUME))
        # A clock that leaps is a process that was stopped: it counts little.
        clock.advance(3600)
        assert not reports.told.wait(0.1)
        deadline = SystemClock().monotonic() + 5
        while not reports.told.wait(0.01) and SystemClock().monotonic() < deadline:
            worker.touch(["a"])
            clock.advance(2)
        assert isinstance(reports.failures["a"], TaskStalledError)
        assert "it has been committing a round for 6" in str(reports.failures["a"])
        assert worker.live_ids() == set()
        reports.told.clear()
        # Its later end is not reported again.
        go_on.set()
        assert over.wait(5)
        assert not reports.told.wait(0.1)
    finally:
        go_on.set()
        stop(worker, clock)


@pytest.mark.parametrize("panic", [PanicError("index out of bounds"), SystemExit(3)])
def test_a_task_that_ends_by_what_is_no_exception_has_failed_at_once(panic: BaseException) -> None:
    reports = Reports()

    def run(context: TaskContext) -> TaskResult:
        raise panic

    worker = EmbeddedWorker(ManualClock(), FakeSession(), name="w", memory_bytes=1 << 30)  # type: ignore[arg-type]  # does what is called here
    worker.register(TaskKind.QUERY, run)
    worker.attach(reports)
    worker.assign(spec("a", TaskKind.QUERY))
    assert reports.told.wait(5)
    assert f"{type(panic).__name__}: {panic}" in str(reports.failures["a"])
    assert worker.live_ids() == set()


def test_a_call_on_another_thread_returns_a_panic() -> None:
    def act() -> int:
        raise PanicError("p")

    caller = BackgroundCaller("test", act)
    caller.request()
    answer, deadline = None, SystemClock().monotonic() + 5
    while answer is None and SystemClock().monotonic() < deadline:
        answer = caller.poll()
    caller.abandon()
    assert "PanicError: p" in str(answer)
