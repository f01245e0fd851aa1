"""Workers of consumers: the three modes, and who moves when workers come, go and drain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from tests.codes import WithCode
from tilth.base.errors import InvalidInputError
from tilth.model.task import Cost, ScheduleMode, TaskKind, TaskSpec
from tilth.model.warehouse import Warehouse
from tilth.warehouse.definitions.settings import warehouse_configs
from tilth.warehouse.stats import WorkerLoad
from tilth.warehouse.tasks.residents import HASH_ASSIGNED_MS_MIN, MOVE_PAUSE_MS, REPLACED_MS, load_limit, too_many
from tilth.warehouse.tasks.state import Assign, Retire, TaskBoard, TaskResult, WorkerShare


def share_of(worker: str, slots: int = 4) -> WorkerShare:
    return WorkerShare(warehouse="write", worker=worker, slots=slots, memory_bytes=1000)


def consumer(name: str, mode: ScheduleMode = ScheduleMode.LEAST_CONSUMERS) -> TaskSpec:
    spec = task(name, TaskKind.CONSUME)
    return msgspec.structs.replace(spec, mode=mode, key=f"key of {name}")


def task(name: str, kind: TaskKind = TaskKind.FLUSH, cost: Cost | None = None) -> TaskSpec:
    estimate = cost or Cost(seconds=1.0)
    return TaskSpec(id=name, kind=kind, warehouse="write", table="d.t", txn=0, estimate=estimate, payload=b"")


def workers_of(board: TaskBoard) -> dict[str, str]:
    return {each.id: each.worker for each in board.infos() if not each.ended_ms}


def moved(board: TaskBoard, now_ms: int) -> list[str]:
    """Let those that are asked to end do so, and send them anew; return them."""
    asked = [each.task_id for each in board.balance(now_ms=now_ms) if isinstance(each, Retire)]
    specs = {name: consumer(name) for name in asked}
    for name, spec in specs.items():
        board.finished(name, TaskResult(), now_ms=now_ms)
        board.submit(spec, now_ms=now_ms)
    return asked


@pytest.mark.parametrize(("average", "limit"), [(1.0, 2), (3.2, 5), (5.0, 6), (10.0, 12), (12.5, 15), (20.0, 24)])
def test_a_worker_may_have_somewhat_more_than_the_others(average: float, limit: int) -> None:
    assert load_limit(average) == limit


def test_nothing_moves_for_a_small_difference_and_a_new_worker_gets_its_share() -> None:
    assert too_many({"a": 3, "b": 1}) == {}
    assert too_many({"a": 4, "b": 1}) == {}
    assert too_many({"a": 5, "b": 1}) == {"a": 2}
    assert too_many({"a": 2, "b": 0}) == {"a": 1}
    assert too_many({"a": 1, "b": 0}) == {}
    assert too_many({"a": 9}) == {}


def test_consumers_spread_over_a_worker_that_joins() -> None:
    board = TaskBoard([share_of("a")])
    for name in ("c1", "c2", "c3", "c4"):
        board.submit(consumer(name), now_ms=0)
    assert moved(board, 1) == []
    board.join(share_of("b"), now_ms=MOVE_PAUSE_MS)
    assert len(moved(board, MOVE_PAUSE_MS)) == 2
    assert Counter(workers_of(board).values()) == {"a": 2, "b": 2}
    assert moved(board, 9 * MOVE_PAUSE_MS) == []


def test_nobody_moves_while_one_is_on_its_way() -> None:
    board = TaskBoard([share_of("a")])
    for name in ("c1", "c2", "c3", "c4"):
        board.submit(consumer(name), now_ms=0)
    board.join(share_of("b"), now_ms=0)
    assert len(board.balance(now_ms=0)) == 2
    assert board.balance(now_ms=MOVE_PAUSE_MS) == []


def test_by_hash_only_consumers_of_a_worker_that_is_gone_move_and_come_back_late() -> None:
    board = TaskBoard([share_of("a"), share_of("b"), share_of("c")])
    names = [f"c{number}" for number in range(30)]
    for name in names:
        board.submit(consumer(name, ScheduleMode.HASH), now_ms=0)
    before = workers_of(board)
    assert set(before.values()) == {"a", "b", "c"}
    board.leave("b", "killed", now_ms=1)
    for name in (name for name, worker in before.items() if worker == "b"):
        board.submit(consumer(name, ScheduleMode.HASH), now_ms=1)
    after = workers_of(board)
    assert {name for name in names if after[name] != before[name]} == {n for n in names if before[n] == "b"}
    board.join(share_of("b"), now_ms=2)
    assert board.balance(now_ms=HASH_ASSIGNED_MS_MIN) == []
    asked = {each.task_id for each in board.balance(now_ms=HASH_ASSIGNED_MS_MIN + 1) if isinstance(each, Retire)}
    assert asked == {name for name in names if before[name] == "b"}


def test_by_chance_workers_are_spread_and_nothing_moves() -> None:
    board = TaskBoard([share_of("a"), share_of("b")])
    for number in range(40):
        board.submit(consumer(f"c{number}", ScheduleMode.RANDOM), now_ms=0)
    assert min(Counter(workers_of(board).values()).values()) > 8
    board.join(share_of("c"), now_ms=0)
    assert board.balance(now_ms=10 * HASH_ASSIGNED_MS_MIN) == []


@pytest.mark.parametrize("mode", ScheduleMode)
def test_workers_that_drain_or_were_just_replaced_are_passed_over(mode: ScheduleMode) -> None:
    board = TaskBoard([share_of("a"), share_of("b"), share_of("c")])
    board.leave("a", "killed", now_ms=1)
    board.join(share_of("a"), now_ms=2)
    board.drain("b", "by a test", now_ms=2)
    for number in range(9):
        board.submit(consumer(f"c{number}", mode), now_ms=3)
    assert set(workers_of(board).values()) == {"c"}
    board.drain("c", "by a test", now_ms=4)
    [sent] = board.submit(consumer("late", mode), now_ms=REPLACED_MS)
    assert isinstance(sent, Assign)
    # Nobody else can take it.
    assert sent.worker == "a"


def test_a_lost_request_to_move_is_sent_again() -> None:
    board = TaskBoard([share_of("a"), share_of("b")])
    board.submit(consumer("c1"), now_ms=0)
    assert board.drain("a", "by a test", now_ms=1) == [Retire("a", "c1")]
    assert board.touched("a", {"c1"}, expected={"c1"}, now_ms=2) == [Retire("a", "c1")]


def test_rounds_take_slots_up_to_half_and_the_end_of_one_lets_others_in() -> None:
    board = TaskBoard([share_of("a", slots=4)])
    for name in ("c1", "c2", "c3"):
        board.submit(consumer(name), now_ms=0)
        board.round_began(name, Cost(memory_bytes=300, seconds=2.0))
    assert [len(board.submit(task(name), now_ms=1)) for name in ("f1", "f2", "f3")] == [1, 1, 0]
    [waiting] = [each for each in board.infos() if each.id == "f3"]
    assert waiting.reason == "all 4 slots of write on a are in use"
    for name in ("c1", "c2"):
        estimate, sent = board.round_ended(name, now_ms=2)
        assert estimate == Cost(memory_bytes=300, seconds=2.0)
    assert sent == [Assign("a", task("f3"))]
    assert board.round_ended("c1", now_ms=3) == (None, [])


def test_merges_take_half_of_what_rounds_leave_and_rounds_hold_memory() -> None:
    board = TaskBoard([share_of("a", slots=4)])
    for name in ("c1", "c2"):
        board.submit(consumer(name), now_ms=0)
        board.round_began(name, Cost(memory_bytes=300, seconds=2.0))
    assert [len(board.submit(task(name, TaskKind.MERGE), now_ms=1)) for name in ("m1", "m2")] == [1, 0]
    assert board.submit(task("big", cost=Cost(memory_bytes=500)), now_ms=1) == []
    [waiting] = [each for each in board.infos() if each.id == "big"]
    assert waiting.reason == "needs 500 bytes of memory, a has 400 left"


@pytest.mark.parametrize(
    ("busy", "chosen"),
    [
        (WorkerLoad(cores=4, free_cores=4.0), "a"),
        (WorkerLoad(cores=4, free_cores=0.5), "b"),
        (WorkerLoad(memory_bytes=1000, free_memory_bytes=10), "b"),
        (WorkerLoad(disk_bytes=1000, free_disk_bytes=10), "b"),
    ],
)
def test_what_workers_report_counts(busy: WorkerLoad, chosen: str) -> None:
    loads: dict[str, WorkerLoad] = {"a": busy, "b": WorkerLoad(cores=4, free_cores=3.9)}
    load_of: Callable[[str], WorkerLoad] = loads.__getitem__
    board = TaskBoard([share_of("a"), share_of("b")], load_of=load_of)
    cost = Cost(memory_bytes=100, temporary_bytes=100, seconds=1.0)
    for name in ("c1", "c2"):
        # Both have something to do.
        board.submit(consumer(name), now_ms=0)
        board.round_began(name, Cost(seconds=0.1))
    [sent] = board.submit(task("t", cost=cost), now_ms=1)
    assert isinstance(sent, Assign)
    assert sent.worker == chosen


def test_an_idle_worker_without_disk_is_passed_over() -> None:
    loads = {"a": WorkerLoad(memory_bytes=1000, free_memory_bytes=1, disk_bytes=1000, free_disk_bytes=10)}
    board = TaskBoard([share_of("a")], load_of=loads.__getitem__)
    assert board.submit(task("t", cost=Cost(temporary_bytes=11, seconds=1.0)), now_ms=0) == []
    [waiting] = board.infos()
    assert waiting.reason == "needs 11 bytes of disk, the machine of a has 10"
    # No task of ours there will release any memory, so waiting would not help.
    [sent] = board.submit(task("u", TaskKind.MERGE, cost=Cost(memory_bytes=100, seconds=1.0)), now_ms=1)
    assert isinstance(sent, Assign)
    loads["a"] = WorkerLoad(disk_bytes=1000, free_disk_bytes=11)
    [again] = board.touched("a", {"u"}, expected=["u"], now_ms=2)
    assert isinstance(again, Assign)
    assert again.spec.id == "t"


def test_a_warehouse_takes_the_work_that_it_is_for() -> None:
    board = TaskBoard([share_of("a")])
    board.warehouses = warehouse_configs([Warehouse(name="write", settings={"work": "imports"})])
    board.submit(consumer("c1"), now_ms=0)
    with pytest.raises(InvalidInputError, check=WithCode("WAREHOUSE_WORK_REFUSED"), match="imports"):
        board.submit(task("m1", TaskKind.MERGE), now_ms=0)
    assert list(workers_of(board)) == ["c1"]
