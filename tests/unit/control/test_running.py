"""Statements that are cancelled while they wait for a slot, for a task, or for a task that does not end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import pytest

from tests.codes import WithCode
from tests.sql_world import SqlWorld
from tilth.base.cancel import Cancellation, working_under
from tilth.base.errors import ConflictError, InvalidInputError, TilthError
from tilth.control.running import (
    GRACE_SECONDS,
    LISTED_TEXT_MAX,
    RUNNING_TEXT_MAX,
    NodeStoppingError,
    Origin,
    Running,
    RunningStatements,
    StatementLimits,
)
from tilth.control.slots import Queue
from tilth.model.task import Cost, TaskKind, TaskSpec
from tilth.testing import ManualClock
from tilth.warehouse import Dispatcher, TaskResult, WorkerReports
from tilth.warehouse.stats import WorkerLoad

ONE_SLOT = dict.fromkeys(Queue, 1)


def running(name: str, *, seconds_max: float = 0.0, now: float = 0.0) -> Running:
    return Running(
        query_id=name,
        text="SELECT 1",
        database="d",
        origin=Origin("h", name),
        started_ms=1,
        started=now,
        seconds_max=seconds_max,
    )


def background(act: Callable[[], object]) -> tuple[threading.Thread, list[TilthError]]:
    """A thread that runs it, and what it raised."""
    errors: list[TilthError] = []

    def run() -> None:
        try:
            act()
        except TilthError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    return SqlWorld(tmp_path)


class DeafWorker:
    """Takes tasks and ends none, whatever it is asked."""

    name = "w1"
    memory_bytes = 1 << 30
    load = WorkerLoad()

    def __init__(self) -> None:
        self.assigned: list[str] = []
        self.cancelled: list[str] = []
        self.got_one = threading.Event()

    def attach(self, reports: WorkerReports) -> None:
        self.reports = reports

    def assign(self, spec: TaskSpec) -> None:
        self.assigned.append(spec.id)
        self.got_one.set()

    def touch(self, task_ids: Collection[str]) -> set[str]:
        return set(self.assigned)

    def cancel(self, task_id: str) -> None:
        self.cancelled.append(task_id)

    def retire(self, task_id: str) -> None:
        """Nothing here stays."""

    def trouble(self) -> str:
        return ""


def spec(name: str, *, txn: int = 0) -> TaskSpec:
    return TaskSpec(id=name, kind=TaskKind.QUERY, warehouse="w", table="", txn=txn, estimate=Cost(), payload=b"")


@pytest.fixture
def worker() -> DeafWorker:
    return DeafWorker()


@pytest.fixture
def dispatcher(worker: DeafWorker) -> Dispatcher:
    return Dispatcher(ManualClock(), iter("abcdefg").__next__, {"w": [worker]}, slots={"w": 1})


def test_a_waiting_statement_is_cancelled_and_the_others_keep_their_order() -> None:
    statements = RunningStatements(ManualClock(), StatementLimits(slots=ONE_SLOT))
    entries = [running(name) for name in ("q1", "q2", "q3")]
    for entry in entries:
        statements.add(entry)
    statements.enter(entries[0], Queue.QUERY)

    def enter_second() -> None:
        try:
            statements.enter(entries[1], Queue.QUERY)
        finally:
            statements.remove("q2")

    second, errors = background(enter_second)
    while statements.list()[1][1] is None:
        pass
    third, no_errors = background(lambda: statements.enter(entries[2], Queue.QUERY))
    while statements.list()[2][1] is None:
        pass
    assert [ahead for _, ahead in statements.list()] == [None, 0, 1]
    assert statements.cancel("q2", by="a test")
    second.join(10)
    assert [error.code for error in errors] == ["QUERY_WAS_CANCELLED"]
    assert "by=a test" in str(errors[0])
    statements.leave("q1")
    third.join(10)
    assert not third.is_alive()
    assert no_errors == []
    statements.leave("q3")
    assert not statements.cancel("q9", by="a test")


def test_a_cancelled_statement_raises_its_reason_and_not_that_of_its_task(
    dispatcher: Dispatcher, worker: DeafWorker
) -> None:
    cancellation = Cancellation()

    def act() -> None:
        with working_under(cancellation):
            dispatcher.run(spec("t1"))

    thread, errors = background(act)
    assert worker.got_one.wait(10)
    assert cancellation.cancel(ConflictError.coded("QUERY_WAS_CANCELLED", "the query was cancelled", by="a test"))
    assert worker.cancelled == ["t1"]
    assert not cancellation.cancel(
        InvalidInputError.coded("TIMEOUT_EXCEEDED", "the query ran longer than max_execution_time")
    ), "the first reason stays"
    dispatcher.failed("t1", TilthError("cancelled by Spark"))
    thread.join(10)
    assert [error.code for error in errors] == ["QUERY_WAS_CANCELLED"]
    with working_under(cancellation), pytest.raises(ConflictError, check=WithCode("QUERY_WAS_CANCELLED")):
        dispatcher.run(spec("t2"))
    assert worker.assigned == ["t1"]


def test_a_task_that_does_not_end_keeps_neither_its_statement_nor_its_slot(
    dispatcher: Dispatcher, worker: DeafWorker
) -> None:
    clock = ManualClock()
    statements = RunningStatements(clock, StatementLimits(slots=ONE_SLOT))
    entry = running("q1", seconds_max=5, now=clock.monotonic())
    statements.add(entry)

    def act() -> None:
        with working_under(entry.origin.cancellation):
            dispatcher.run(spec("t1"))

    thread, errors = background(act)
    assert worker.got_one.wait(10)
    statements.check_limits()
    assert entry.origin.cancellation.error is None
    clock.advance(5.1)
    statements.check_limits()
    assert worker.cancelled == ["t1"]
    assert thread.is_alive()
    clock.advance(GRACE_SECONDS + 0.1)
    statements.check_limits()
    thread.join(10)
    assert [error.code for error in errors] == ["TIMEOUT_EXCEEDED"]
    assert "seconds_max=5" in str(errors[0])
    assert "max_execution_time" in errors[0].hint
    # Another one has the slot; a second deaf one keeps it, for each has a thread.
    second = dispatcher.submit(spec("t2"))
    assert worker.assigned == ["t1", "t2"]
    second.cancel()
    second.abandon()
    dispatcher.submit(spec("t3"))
    assert worker.assigned == ["t1", "t2"]
    dispatcher.finished("t1", TaskResult(payload=b""))
    assert worker.assigned == ["t1", "t2", "t3"]


def test_a_statement_waits_for_the_end_of_a_task_that_may_write(dispatcher: Dispatcher) -> None:
    handle = dispatcher.submit(spec("t1", txn=7))
    handle.cancel()
    handle.abandon()
    assert not handle.is_done()


def test_a_stopping_node_ends_every_statement_and_takes_no_other() -> None:
    statements = RunningStatements(ManualClock(), StatementLimits(slots=ONE_SLOT))
    first, later = running("q1"), running("q2")
    statements.add(first)
    statements.cancel_all()
    statements.add(later)
    for entry in (first, later):
        with pytest.raises(NodeStoppingError):
            statements.enter(entry, Queue.CONTROL)


def test_kill_query_finds_a_long_query_by_its_end(world: SqlWorld) -> None:
    """A query that a program wrote: the word that an operator knows stands behind 60,000 characters, or 300,000."""
    begun, may_end = threading.Semaphore(0), threading.Event()

    def answer(task: TaskSpec) -> bytes:
        begun.release()
        assert may_end.wait(10)
        raise TilthError("ended")

    world.dispatch.answer = answer
    texts = [
        f"SELECT {', '.join(f'{number} + 1' for number in range(count))}, 1 AS unwanted" for count in (5000, 25000)
    ]
    threads = [background(partial(world.engine.run, text))[0] for text in texts]
    try:
        assert all(begun.acquire(timeout=10) for _ in texts)
        rows = world.rows("SELECT query FROM system.processes WHERE queue = 'query'")
        long, longer = sorted((str(query) for (query,) in rows), key=len)
        assert long == texts[0]
        assert longer.startswith("SELECT 0 + 1, ")
        assert longer.endswith(", 1 AS unwanted")
        assert len(longer) < RUNNING_TEXT_MAX + 100
        assert all(len(str(row[-1])) < LISTED_TEXT_MAX + 100 for row in world.rows("SHOW PROCESSLIST"))
        killed = world.rows("KILL QUERY WHERE query LIKE '%AS unwanted' ASYNC")
        assert [(row[0], len(str(row[-1])) < LISTED_TEXT_MAX + 100) for row in killed] == [("waiting", True)] * 2
    finally:
        may_end.set()
        for thread in threads:
            thread.join(10)
    logged = world.rows("SELECT text FROM system.query_log WHERE text LIKE '%, 1 AS unwanted' AND error_code <> ''")
    assert len(logged) == 2


def test_kill_query_shows_and_chooses_statements(world: SqlWorld) -> None:
    """A query that no worker ends is seen from outside, chosen by a condition, and cancelled."""
    begun, may_end = threading.Event(), threading.Event()

    def answer(task: TaskSpec) -> bytes:
        begun.set()
        assert may_end.wait(10)
        raise TilthError("ended")

    world.dispatch.answer = answer
    thread, errors = background(lambda: world.engine.run("SELECT 'password' FROM a.b", origin=Origin("10.0.0.1", "5")))
    assert begun.wait(10)
    try:
        rows = world.rows("SELECT query_id, kind, query, address, state, queue FROM system.processes ORDER BY queue")
        other, mine = rows
        assert other[1:6] == ("Query", "SELECT 'password' FROM a.b", "10.0.0.1:5", "running", "query")
        assert mine[5] == "watch"
        assert [row[1] for row in world.rows("SHOW PROCESSLIST")].count("10.0.0.1:5") == 1
        assert world.rows("KILL QUERY WHERE address LIKE '10.%' TEST") == [
            ("unknown_status", other[0], "10.0.0.1:5", "SELECT 'password' FROM a.b")
        ]
        assert errors == []
        killed = world.rows(f"KILL QUERY ON CLUSTER c WHERE query_id = '{other[0]}' ASYNC")
        assert killed == [("waiting", other[0], "10.0.0.1:5", "SELECT 'password' FROM a.b")]
        assert world.rows("SELECT state FROM system.processes WHERE queue = 'query'") == [
            ("being cancelled: QUERY_WAS_CANCELLED",)
        ]
        assert world.rows("KILL QUERY WHERE queue = 'watch'") == [], "nobody kills himself"
    finally:
        may_end.set()
        thread.join(10)
    assert world.rows("SELECT count(*) FROM system.processes") == [(1,)]
    with pytest.raises(TilthError, match="no such query runs"):
        world.run(f"KILL QUERY '{other[0]}'")
    with pytest.raises(TilthError, match="no_such_column"):
        world.run("KILL QUERY WHERE no_such_column = 1")
