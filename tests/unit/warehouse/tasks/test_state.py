"""The heart of the warehouse: events in, instructions expected."""

from __future__ import annotations

import pytest

from tests.codes import WithCode
from tilth.base.errors import NotFoundError, UnavailableError
from tilth.model.task import Cost, TaskKind, TaskSpec, TaskState
from tilth.warehouse.errors import TaskCancelledError, TaskLostError, WarehouseEmptyError
from tilth.warehouse.stats import WorkerLoad
from tilth.warehouse.tasks.state import (
    ENDED_MAX,
    MISSES_MAX,
    Assign,
    Ended,
    Retire,
    Stop,
    TaskBoard,
    TaskResult,
    WorkerShare,
)


def share_of(worker: str = "w", warehouse: str = "write", slots: int = 2, memory_bytes: int = 1000) -> WorkerShare:
    return WorkerShare(warehouse=warehouse, worker=worker, slots=slots, memory_bytes=memory_bytes)


def spec(
    name: str,
    kind: TaskKind = TaskKind.INSERT,
    *,
    warehouse: str = "write",
    memory_bytes: int = 0,
    seconds: float = 1.0,
) -> TaskSpec:
    estimate = Cost(memory_bytes=memory_bytes, seconds=seconds)
    return TaskSpec(id=name, kind=kind, warehouse=warehouse, table="db.t", txn=0, estimate=estimate, payload=b"")


def reason_of(board: TaskBoard, task_id: str) -> str:
    return next(task.reason for task in board.infos() if task.id == task_id)


def state_of(board: TaskBoard, task_id: str) -> TaskState:
    return next(task.state for task in board.infos() if task.id == task_id)


def test_a_task_that_fits_is_sent_and_one_that_does_not_waits_with_its_reason() -> None:
    board = TaskBoard([share_of()])
    assert board.submit(spec("a"), now_ms=1) == [Assign("w", spec("a"))]
    assert board.submit(spec("b"), now_ms=2) == [Assign("w", spec("b"))]
    assert board.submit(spec("c"), now_ms=3) == []
    assert board.submit(spec("d"), now_ms=3) == []
    assert reason_of(board, "c") == "all 2 slots of write on w are in use"
    assert reason_of(board, "d") == "waits behind task c"
    result = TaskResult(payload=b"x")
    assert board.finished("a", result, now_ms=9) == [Ended("a", result), Assign("w", spec("c"))]
    done = next(task for task in board.infos() if task.id == "a")
    assert (done.state, done.created_ms, done.started_ms, done.ended_ms) == (TaskState.DONE, 1, 1, 9)


def test_resident_tasks_take_no_slot() -> None:
    board = TaskBoard([share_of(slots=1)])
    for name in ("c1", "c2", "c3"):
        assert board.submit(spec(name, TaskKind.CONSUME), now_ms=0) == [Assign("w", spec(name, TaskKind.CONSUME))]
    assert board.submit(spec("a"), now_ms=0) == [Assign("w", spec("a"))]


def test_merges_leave_half_of_the_slots_to_others() -> None:
    board = TaskBoard([share_of(slots=4)])
    for name in ("m1", "m2"):
        assert board.submit(spec(name, TaskKind.MERGE), now_ms=0)
    assert board.submit(spec("m3", TaskKind.MERGE), now_ms=0) == []
    assert "would use the slots of others" in reason_of(board, "m3")
    assert board.submit(spec("a"), now_ms=0) == [Assign("w", spec("a"))]


def test_a_single_slot_takes_a_merge() -> None:
    board = TaskBoard([share_of(slots=1)])
    assert board.submit(spec("m", TaskKind.MERGE), now_ms=0)


def test_memory_is_shared_by_the_warehouses_of_a_worker_and_a_giant_runs_alone() -> None:
    board = TaskBoard([share_of(), share_of(warehouse="default")])
    assert board.submit(spec("a", memory_bytes=700), now_ms=0)
    assert board.submit(spec("q", TaskKind.QUERY, warehouse="default", memory_bytes=400), now_ms=0) == []
    assert reason_of(board, "q") == "needs 400 bytes of memory, w has 300 left"
    assert board.submit(spec("giant", memory_bytes=9999), now_ms=0) == []
    [_, first] = board.finished("a", TaskResult(), now_ms=1)
    assert isinstance(first, Assign)
    assert first.spec.id == "q"
    [_, second] = board.finished("q", TaskResult(), now_ms=2)
    assert isinstance(second, Assign)
    assert second.spec.id == "giant"


def test_the_worker_that_will_be_done_first_is_chosen_and_the_reason_says_so() -> None:
    board = TaskBoard([share_of("w1"), share_of("w2")])
    board.submit(spec("long", seconds=60), now_ms=0)
    assert board.submit(spec("short", seconds=1), now_ms=0) == [Assign("w2", spec("short", seconds=1))]
    assert reason_of(board, "short") == "fits on w2, done in about 1.0 s; 0 of 2 slots in use, first of 2 workers"


def test_a_waiting_task_is_cancelled_at_once_and_a_running_one_by_its_worker() -> None:
    board = TaskBoard([share_of(slots=1)])
    board.submit(spec("a"), now_ms=0)
    board.submit(spec("b"), now_ms=0)
    [ended] = board.cancel("b", now_ms=1)
    assert isinstance(ended, Ended)
    assert isinstance(ended.outcome, TaskCancelledError)
    assert board.cancel("a", now_ms=1) == [Stop("w", "a")]
    assert state_of(board, "a") is TaskState.RUNNING
    # The worker may not have heard it: each heartbeat asks again.
    assert board.touched("w", {"a"}, expected=["a"], now_ms=2) == [Stop("w", "a")]
    [told] = board.failed("a", TaskCancelledError(task="a"), now_ms=3)
    assert isinstance(told, Ended)
    assert state_of(board, "a") is TaskState.CANCELLED
    assert board.cancel("a", now_ms=4) == []


def test_a_silent_worker_loses_its_tasks_at_the_fifth_miss_and_gets_none() -> None:
    board = TaskBoard([share_of()])
    board.submit(spec("a"), now_ms=0)
    for _ in range(MISSES_MAX - 1):
        assert board.missed("w", "no route", now_ms=5) == []
    [ended] = board.missed("w", "no route", now_ms=25)
    assert isinstance(ended, Ended)
    assert isinstance(ended.outcome, TaskLostError)
    assert "no route" in str(ended.outcome)
    assert state_of(board, "a") is TaskState.LOST
    assert board.submit(spec("b"), now_ms=26) == []
    assert reason_of(board, "b") == "worker w does not answer"
    assert board.touched("w", set(), expected=[], now_ms=30) == [Assign("w", spec("b"))]


def test_one_answer_resets_the_count() -> None:
    board = TaskBoard([share_of()])
    board.submit(spec("a"), now_ms=0)
    for _ in range(3):
        for _ in range(MISSES_MAX - 1):
            assert board.missed("w", "slow", now_ms=1) == []
        assert board.touched("w", {"a"}, expected=["a"], now_ms=2) == []
    assert state_of(board, "a") is TaskState.RUNNING


def test_a_task_that_the_worker_does_not_know_is_lost_at_the_fifth_heartbeat() -> None:
    board = TaskBoard([share_of()])
    board.submit(spec("a"), now_ms=0)
    board.submit(spec("b"), now_ms=0)
    for _ in range(MISSES_MAX - 1):
        assert board.touched("w", {"b"}, expected=["a", "b"], now_ms=1) == []
    # Sent after the question was asked: not missed.
    assert board.touched("w", {"b"}, expected=["b"], now_ms=1) == []
    [ended] = board.touched("w", {"b"}, expected=["a", "b"], now_ms=1)
    assert isinstance(ended, Ended)
    assert ended.task_id == "a"
    assert state_of(board, "b") is TaskState.RUNNING
    assert board.finished("a", TaskResult(), now_ms=2) == []


def test_a_refused_task_goes_to_another_worker_or_waits_for_the_next_heartbeat() -> None:
    board = TaskBoard([share_of("w1"), share_of("w2")])
    board.submit(spec("a"), now_ms=0)
    assert board.refused("a", "full", now_ms=1) == [Assign("w2", spec("a"))]
    assert board.refused("a", "full too", now_ms=1) == []
    assert reason_of(board, "a") == "worker w1 does not answer; worker w2 does not answer"
    assert board.touched("w1", set(), expected=[], now_ms=2) == [Assign("w1", spec("a"))]


def test_a_failure_keeps_its_reason() -> None:
    board = TaskBoard([share_of()])
    board.submit(spec("a"), now_ms=0)
    board.failed("a", UnavailableError("disk full", path="p"), now_ms=1)
    assert state_of(board, "a") is TaskState.FAILED
    assert reason_of(board, "a") == "disk full: path=p"


def test_an_unknown_warehouse_is_refused_by_name() -> None:
    with pytest.raises(
        NotFoundError, check=WithCode("WAREHOUSE_NOT_FOUND"), match=r"warehouse=nope \(there are: default, write"
    ):
        TaskBoard([share_of(), share_of(warehouse="default")]).submit(spec("a", warehouse="nope"), now_ms=0)


def test_only_the_last_ended_tasks_are_remembered() -> None:
    board = TaskBoard([share_of()])
    for i in range(ENDED_MAX + 5):
        board.submit(spec(str(i)), now_ms=i)
        board.finished(str(i), TaskResult(), now_ms=i)
    infos = board.infos()
    assert len(infos) == ENDED_MAX
    assert (infos[0].id, infos[-1].id) == (str(ENDED_MAX + 4), "5")


def test_a_worker_that_is_gone_loses_its_tasks_at_once_and_the_waiting_ones_go_elsewhere() -> None:
    board = TaskBoard([share_of("w1", slots=1), share_of("w2", slots=1)])
    board.submit(spec("a"), now_ms=0)
    board.submit(spec("b", TaskKind.CONSUME), now_ms=0)
    board.submit(spec("c"), now_ms=0)
    board.submit(spec("d"), now_ms=0)
    gone = next(task.worker for task in board.infos() if task.id == "a")
    [other] = {"w1", "w2"} - {gone}
    ended = {each.task_id: each.outcome for each in board.leave(gone, "refused", now_ms=5) if isinstance(each, Ended)}
    assert "a" in ended
    assert all(isinstance(outcome, TaskLostError) and "reason=refused" in str(outcome) for outcome in ended.values())
    assert state_of(board, "d") is TaskState.PENDING
    assert board.finished("c", TaskResult(), now_ms=6)[1:] == [Assign(other, spec("d"))]
    assert board.leave(gone, "again", now_ms=7) == []


def test_without_a_worker_tasks_wait_with_that_reason_and_statements_end_after_a_while() -> None:
    board = TaskBoard(warehouses=["write", "default"])
    with pytest.raises(NotFoundError, check=WithCode("WAREHOUSE_NOT_FOUND"), match="there are: default, write"):
        board.submit(spec("x", warehouse="nowhere"), now_ms=0)
    board.submit(spec("merge", TaskKind.MERGE), now_ms=0)
    board.submit(spec("query", TaskKind.QUERY, warehouse="default"), now_ms=0)
    assert reason_of(board, "query") == "warehouse default has no workers"
    assert board.end_unplaced(waiting_ms=1000, now_ms=999) == []
    [ended] = board.end_unplaced(waiting_ms=1000, now_ms=1000)
    assert isinstance(ended, Ended)
    assert isinstance(ended.outcome, WarehouseEmptyError)
    assert state_of(board, "merge") is TaskState.PENDING
    assert board.join(share_of("w"), now_ms=2000) == [Assign("w", spec("merge", TaskKind.MERGE))]


def test_a_worker_that_drains_finishes_and_takes_nothing_new() -> None:
    board = TaskBoard([share_of("w1"), share_of("w2")])
    board.submit(spec("c", TaskKind.CONSUME), now_ms=0)
    consumer = next(task.worker for task in board.infos())
    assert board.drain(consumer, "asked to", now_ms=1) == [Retire(consumer, "c")]
    board.submit(spec("a"), now_ms=1)
    board.submit(spec("b"), now_ms=1)
    board.submit(spec("d"), now_ms=1)
    assert {task.worker for task in board.infos() if task.id in "ab"} == {"w1", "w2"} - {consumer}
    assert f"worker {consumer} drains: asked to" in reason_of(board, "d")
    assert board.drain(consumer, "", now_ms=2) == [Assign(consumer, spec("d"))]


def test_consumers_spread_over_workers() -> None:
    board = TaskBoard([share_of("w1"), share_of("w2"), share_of("w3")])
    for name in ("c1", "c2", "c3", "c4"):
        board.submit(spec(name, TaskKind.CONSUME, seconds=0.0), now_ms=0)
    workers = [task.worker for task in board.infos()]
    assert sorted(workers.count(worker) for worker in ("w1", "w2", "w3")) == [1, 1, 2]
    assert "no worker has fewer" in board.infos()[0].placement_reason


def test_slots_of_writers_follow_the_executors_that_a_worker_reports() -> None:
    loads = {"w": WorkerLoad(write_slots=1)}
    tasks = TaskBoard([share_of(slots=4), share_of(warehouse="default", slots=3)], load_of=loads.__getitem__)
    assert [tasks.slots_of(share) for share in tasks.shares] == [1, 3]
    ids = [f"t{number}" for number in range(3)]
    assigned = [tasks.submit(spec(task_id), now_ms=0) for task_id in ids]
    assert [bool(each) for each in assigned] == [True, False, False]
    # Executors have come: the waiting tasks go at the next heartbeat.
    loads["w"] = WorkerLoad(write_slots=3)
    assert len(tasks.touched("w", {"t0"}, expected={"t0"}, now_ms=1)) == 2
    loads["w"] = WorkerLoad()
    assert tasks.slots_of(tasks.shares[0]) == 4
