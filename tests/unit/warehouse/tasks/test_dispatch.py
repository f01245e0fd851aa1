"""The dispatcher with a worker that does what the test tells it, without threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection

import msgspec
import pytest

from tests.codes import WithCode
from tilth.base.errors import NotFoundError, RetryError, UnavailableError
from tilth.model.task import Cost, TaskKind, TaskSpec, TaskState
from tilth.model.warehouse import Warehouse
from tilth.testing import ManualClock
from tilth.warehouse import (
    Dispatcher,
    Handle,
    SparkRestartingError,
    TaskCancelledError,
    TaskLostError,
    TaskResult,
    WorkerBusyError,
    WorkerNotFoundError,
    WorkerReports,
    WorkerUnfitError,
)
from tilth.warehouse.stats import WorkerLoad
from tilth.warehouse.tasks.dispatch import SPARK_CHECK_SECONDS


class StillClock:
    """Time stands still; waiting looks once."""

    def now_ms(self) -> int:
        return 1_000

    def monotonic(self) -> float:
        return 1.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps")

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.is_set()


class FakeWorker:
    """Takes tasks and forgets, refuses or reports them when it is told to."""

    def __init__(self, name: str = "w") -> None:
        self.name = name
        self.memory_bytes = 1 << 30
        self.load = WorkerLoad()
        self.known: dict[str, TaskSpec] = {}
        self.is_down = False
        self.is_busy = False
        #: Reason why it cannot run tasks that need Spark.
        self.spark_away = ""
        self.cancelled: list[str] = []
        self.retired: list[str] = []
        self.reports: WorkerReports | None = None

    def attach(self, reports: WorkerReports) -> None:
        self.reports = reports

    def assign(self, spec: TaskSpec) -> None:
        if self.is_busy:
            raise WorkerBusyError(worker=self.name)
        if self.spark_away:
            raise SparkRestartingError(reason=self.spark_away)
        self.known[spec.id] = spec

    def trouble(self) -> str:
        return self.spark_away

    def touch(self, task_ids: Collection[str]) -> set[str]:
        if self.is_down:
            raise UnavailableError(worker=self.name)
        return set(self.known)

    def cancel(self, task_id: str) -> None:
        self.cancelled.append(task_id)

    def retire(self, task_id: str) -> None:
        self.retired.append(task_id)

    def finish(self, task_id: str, payload: bytes = b"", **actual: float) -> None:
        assert self.reports is not None
        del self.known[task_id]
        self.reports.finished(task_id, TaskResult(payload=payload, actual=Cost(**actual)))  # type: ignore[arg-type]

    def fail(self, task_id: str, error: NotFoundError | TaskCancelledError) -> None:
        assert self.reports is not None
        del self.known[task_id]
        self.reports.failed(task_id, error)


def make(worker: FakeWorker, *, slots: int = 2) -> Dispatcher:
    numbers = itertools.count()
    return Dispatcher(
        StillClock(),
        lambda: f"task{next(numbers)}",
        {"default": [worker], "write": [worker]},
        slots={"default": slots, "write": slots},
    )


def new_task(dispatcher: Dispatcher, *, input_bytes: int = 1000) -> TaskSpec:
    return dispatcher.new_spec(TaskKind.INSERT, warehouse="write", table="db.t", payload=b"in", input_bytes=input_bytes)


def test_a_result_reaches_the_one_who_waits() -> None:
    worker = FakeWorker()
    dispatcher = make(worker)
    handle = dispatcher.submit(new_task(dispatcher))
    assert worker.known[handle.id].payload == b"in"
    assert not handle.is_done()
    worker.finish(handle.id, b"out")
    assert handle.wait(0).payload == b"out"
    assert dispatcher.stats().done == 1


def test_a_failure_is_raised_as_it_was_reported() -> None:
    worker = FakeWorker()
    dispatcher = make(worker)
    handle = dispatcher.submit(new_task(dispatcher))
    worker.fail(handle.id, NotFoundError("the file is gone", file="f"))
    with pytest.raises(NotFoundError, match="the file is gone: file=f"):
        handle.wait(0)
    [task] = dispatcher.tasks()
    assert (task.state, task.reason) == (TaskState.FAILED, "the file is gone: file=f")


def test_waiting_ends_with_the_time_given() -> None:
    dispatcher = make(FakeWorker())
    with pytest.raises(RetryError, check=WithCode("TASK_STILL_RUNNING")):
        dispatcher.submit(new_task(dispatcher)).wait(0)


def test_a_waiting_task_starts_when_a_slot_is_free() -> None:
    worker = FakeWorker()
    dispatcher = make(worker, slots=1)
    first, second = dispatcher.submit(new_task(dispatcher)), dispatcher.submit(new_task(dispatcher))
    assert list(worker.known) == [first.id]
    [_, write] = dispatcher.warehouses()
    assert (write.running, write.waiting, write.slots) == (1, 1, 1)
    worker.finish(first.id)
    assert list(worker.known) == [second.id]


def test_cancel_reaches_the_worker_and_its_report_ends_the_task() -> None:
    worker = FakeWorker()
    dispatcher = make(worker)
    handle = dispatcher.submit(new_task(dispatcher))
    handle.cancel()
    assert worker.cancelled == [handle.id]
    worker.fail(handle.id, TaskCancelledError(task=handle.id))
    with pytest.raises(TaskCancelledError):
        handle.wait(0)
    assert dispatcher.stats().cancelled == 1


def test_a_worker_that_misses_five_heartbeats_loses_its_tasks() -> None:
    worker = FakeWorker()
    dispatcher = make(worker)
    handle = dispatcher.submit(new_task(dispatcher))
    worker.is_down = True
    for _ in range(4):
        dispatcher.touch_workers()
    assert not handle.is_done()
    [info] = dispatcher.workers()
    assert (info.state, info.running) == ("silent", 1)
    dispatcher.touch_workers()
    with pytest.raises(TaskLostError):
        handle.wait(0)
    # A late report of the lost task changes nothing.
    worker.finish(handle.id)
    assert dispatcher.stats().lost == 1
    assert dispatcher.stats().done == 0


def test_a_refused_task_is_sent_again_after_the_next_heartbeat() -> None:
    worker = FakeWorker()
    dispatcher = make(worker)
    worker.is_busy = True
    handle = dispatcher.submit(new_task(dispatcher))
    assert worker.known == {}
    worker.is_busy = False
    dispatcher.touch_workers()
    assert list(worker.known) == [handle.id]


def test_a_task_that_does_not_go_on_says_what_is_in_its_way() -> None:
    worker = FakeWorker()
    dispatcher = make(worker, slots=1)

    def merge() -> Handle:
        return dispatcher.submit(dispatcher.new_spec(TaskKind.MERGE, warehouse="write", table="db.t", payload=b""))

    handle = merge()
    assert handle.obstacle() == ""
    # The task was sent to a worker whose JVM hangs, or is started again.
    worker.spark_away = "Spark is away since then: it hung"
    assert handle.obstacle() == "w: Spark is away since then: it hung"
    # The next task is sent to no worker.
    waiting = merge()
    worker.finish(handle.id)
    assert worker.known == {}
    assert waiting.obstacle() == "w: Spark is away since then: it hung"
    assert handle.obstacle() == ""
    worker.spark_away = ""
    dispatcher.touch_workers()
    assert (list(worker.known), waiting.obstacle()) == ([waiting.id], "")
    behind = merge()
    assert behind.obstacle() == "all 1 slots of write on w are in use"


def test_what_waits_for_spark_is_sent_when_it_is_back() -> None:
    """Not only at the next heartbeat: somebody waits for the answer."""
    worker, clock, sent = FakeWorker(), ManualClock(), threading.Event()
    dispatcher = Dispatcher(clock, lambda: "task", {"default": [worker]}, slots={"default": 2})
    worker.spark_away = "Spark is away since then: it was killed"
    spec = dispatcher.new_spec(TaskKind.QUERY, warehouse="default", table="", payload=b"")
    handle = dispatcher.submit(msgspec.structs.replace(spec, waits_for_spark=True))
    assert (handle.is_done(), handle.obstacle()) == (False, f"w: {worker.spark_away}")
    take = worker.assign

    def assign(spec: TaskSpec) -> None:
        take(spec)
        sent.set()

    worker.assign = assign  # type: ignore[method-assign]  # says when it is called
    dispatcher.check_returned()
    assert not sent.is_set()
    worker.spark_away = ""
    dispatcher.start()
    try:
        clock.advance(SPARK_CHECK_SECONDS)
        assert sent.wait(10)
    finally:
        worker.finish(handle.id)
        dispatcher._stopping.set()
        dispatcher.stop()
    assert handle.is_done()


def test_the_estimator_learns_from_what_was_measured() -> None:
    worker = FakeWorker()
    dispatcher = make(worker)
    before = dispatcher.estimate(TaskKind.INSERT, 1 << 20)
    for _ in range(30):
        handle = dispatcher.submit(new_task(dispatcher, input_bytes=1 << 20))
        worker.finish(handle.id, seconds=handle.spec.estimate.seconds * 3, output_bytes=1 << 19)
    after = dispatcher.estimate(TaskKind.INSERT, 1 << 20)
    assert after.seconds > 2 * before.seconds
    assert abs(after.output_bytes - (1 << 19)) < 1 << 16


def test_a_cancel_that_fails_in_the_words_of_java_loses_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = FakeWorker()
    dispatcher = make(worker, slots=2)
    running = [dispatcher.submit(new_task(dispatcher)) for _ in range(2)]

    def broken(task_id: str) -> None:
        worker.cancelled.append(task_id)
        raise RuntimeError("An error occurred while calling o42.cancelJobsWithTag")

    monkeypatch.setattr(worker, "cancel", broken)
    for handle in running:
        handle.cancel()
    assert worker.cancelled == [handle.id for handle in running]
    worker.fail(running[0].id, TaskCancelledError(task=running[0].id))
    with pytest.raises(TaskCancelledError):
        running[0].wait(0)
    # The heartbeat asks the second to end again, in vain, and then finds it lost.
    dispatcher.touch_workers()
    worker.known.clear()
    for _ in range(10):
        dispatcher.touch_workers()
    assert running[1].is_done()


def test_a_worker_joins_leaves_and_comes_back_as_another() -> None:
    first, second = FakeWorker(), FakeWorker()
    dispatcher = make(first)
    handle = dispatcher.submit(new_task(dispatcher))
    dispatcher.join(second, warehouse="write", slots=2)
    with pytest.raises(TaskLostError, match="a new worker has joined under its name"):
        handle.wait(0)
    again = dispatcher.submit(new_task(dispatcher))
    assert list(second.known) == [again.id]
    dispatcher.leave("w", "killed")
    with pytest.raises(TaskLostError, match="killed"):
        again.wait(0)
    # A report of a worker that has left concerns nobody.
    second.finish(again.id)
    assert dispatcher.workers() == []
    assert [each.workers for each in dispatcher.warehouses()] == [0, 0]
    waiting = dispatcher.submit(new_task(dispatcher))
    assert not waiting.is_done()
    dispatcher.join(first, warehouse="write", slots=1)
    assert waiting.id in first.known


def test_a_worker_that_drains_is_shown_so_and_its_consumers_are_asked_to_move() -> None:
    worker = FakeWorker()
    dispatcher = make(worker)
    spec = dispatcher.new_spec(TaskKind.CONSUME, warehouse="write", table="db.k", payload=b"")
    handle = dispatcher.submit(spec)
    dispatcher.drain("w", "for an update")
    assert worker.retired == [handle.id]
    [shown] = dispatcher.workers()
    assert (shown.state, shown.reason) == ("draining", "for an update")
    worker.finish(handle.id)
    [shown] = dispatcher.workers()
    assert shown.state == "drained"
    dispatcher.drain("w", "")
    assert dispatcher.workers()[0].state == "alive"
    with pytest.raises(WorkerNotFoundError, match="there are: w"):
        dispatcher.drain("x", "why not")


def test_a_drained_worker_stays_drained_when_it_comes_back() -> None:
    worker = FakeWorker()
    dispatcher = make(worker)
    dispatcher.keep_drained({"w": "by a user", "absent": "by a user"})
    waiting = dispatcher.submit(new_task(dispatcher))
    dispatcher.leave("w", "stopped")
    dispatcher.join(FakeWorker(), warehouse="write", slots=2)
    assert [(each.state, each.reason) for each in dispatcher.workers()] == [("drained", "by a user")]
    [shown] = [each for each in dispatcher.tasks() if each.id == waiting.id]
    assert shown.reason == "worker w drains: by a user"
    dispatcher.keep_drained({})
    assert dispatcher.workers()[0].state == "alive"
    assert next(each for each in dispatcher.tasks() if each.id == waiting.id).worker == "w"


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"master": "spark://a:7077"}, "master"), ({"cores": "8"}, "cores"), ({"memory": "8 GiB"}, "memory")],
)
def test_a_worker_that_is_not_what_its_warehouse_asks_for_is_refused(settings: dict[str, str], word: str) -> None:
    dispatcher = make(FakeWorker())
    dispatcher.declare([Warehouse(name="big", settings=settings)])
    with pytest.raises(WorkerUnfitError, match=word):
        dispatcher.check_fits("big", master="local[2]", cores=2, memory_bytes=1 << 30)
    dispatcher.check_fits("write", master="local[2]", cores=2, memory_bytes=1 << 30)
    with pytest.raises(NotFoundError, check=WithCode("WAREHOUSE_NOT_FOUND"), match="big, default, write"):
        dispatcher.check_fits("nowhere", master="", cores=0, memory_bytes=0)


def test_names_of_byconity_mean_what_is_always_there() -> None:
    dispatcher = make(FakeWorker())
    found = {name: dispatcher.warehouse_named(name) for name in ("vw_default", "vw_read", "VW_WRITE", "write")}
    assert found == {"vw_default": "default", "vw_read": "default", "VW_WRITE": "write", "write": "write"}
    dispatcher.declare([Warehouse(name="vw_write")])
    assert dispatcher.warehouse_named("vw_write") == "vw_write"


def test_what_rounds_take_is_corrected_by_what_was_measured() -> None:
    worker = FakeWorker()
    dispatcher = make(worker)
    handle = dispatcher.submit(dispatcher.new_spec(TaskKind.CONSUME, warehouse="write", table="db.k", payload=b""))
    before = dispatcher.estimate(TaskKind.CONSUME, 50 << 20).seconds
    dispatcher.round_began(handle.id, input_bytes=50 << 20)
    dispatcher.round_ended(handle.id, Cost(input_bytes=50 << 20, seconds=10 * before))
    assert dispatcher.estimate(TaskKind.CONSUME, 50 << 20).seconds > before


def test_a_worker_that_hangs_in_its_heartbeat_holds_up_no_other() -> None:
    slow, quick = FakeWorker("slow"), FakeWorker("quick")
    touched, go_on = threading.Event(), threading.Event()

    def touch_slowly(task_ids: Collection[str]) -> set[str]:
        go_on.wait(10)
        return set()

    def touch_at_once(task_ids: Collection[str]) -> set[str]:
        touched.set()
        return set()

    slow.touch, quick.touch = touch_slowly, touch_at_once  # type: ignore[method-assign]  # as this test wants them
    numbers = itertools.count()
    dispatcher = Dispatcher(StillClock(), lambda: f"t{next(numbers)}", {"write": [slow, quick]}, slots={"write": 1})
    beat = threading.Thread(target=dispatcher.touch_workers)
    beat.start()
    assert touched.wait(10)
    go_on.set()
    beat.join(10)
    assert not beat.is_alive()
