"""Requests to a remote worker to end tasks: the calls that it gets, and that callers do not wait for them."""

from __future__ import annotations

import threading

from tests.unit.warehouse.remote.test_workers import World, settled, spec
from tilth.model.task import Cost
from tilth.warehouse import TaskResult, WorkerBusyError
from tilth.warehouse.remote.wire import NameTasks


def test_cancel_retire_and_ends_go_through() -> None:
    world = World()
    worker = world.join()
    worker.assign(spec("a"))
    worker.retire("a")
    worker.cancel("a")
    settled(lambda: world.tasks.cancelled == ["retired a", "a"])
    world.link.failed("a", WorkerBusyError(worker="w"))
    world.link.finished("b", TaskResult(payload=b"rows", actual=Cost(seconds=2.0)))
    assert isinstance(world.members.ended["a"], WorkerBusyError)
    assert world.members.ended["b"] == TaskResult(payload=b"rows", actual=Cost(seconds=2.0))


def test_a_mute_worker_holds_up_nobody_who_ends_its_tasks() -> None:
    """Rooms end tasks on their own threads, which would otherwise wait for the worker once for each task."""
    world = World()
    worker = world.join()
    open_door, is_called = threading.Event(), threading.Event()
    calls: list[tuple[str, ...]] = []

    def call(name: str, message: NameTasks, answer: object, *, seconds: float) -> None:
        is_called.set()
        assert open_door.wait(30)
        calls.append((name, *message.ids))

    worker._call = call  # type: ignore[method-assign,assignment]
    worker.retire("a")
    assert is_called.wait(30)
    for task in "bcd":
        worker.retire(task)
    open_door.set()
    settled(lambda: len(calls) == 2)
    assert calls == [("retire", "a"), ("retire", "b", "c", "d")]
