"""Cancelled tasks that go on, over a fake session: which calls it gets to stop them, and when."""

from __future__ import annotations

import threading

from tilth.testing import ManualClock
from tilth.warehouse import WarehouseSettings
from tilth.warehouse.worker.lingering import LingeringTasks


class FakeSession:
    def __init__(self) -> None:
        self.settings = WarehouseSettings(hang_seconds=8.0)
        self.run = 1
        self.calls: list[tuple[tuple[str, ...], float]] = []
        self.answers = threading.Event()
        self.answers.set()
        self.called = threading.Semaphore(0)

    def stop_cancelled(self, tags: tuple[str, ...], *, seconds: float) -> list[str]:
        self.calls.append((tags, seconds))
        self.called.release()
        self.answers.wait(30)
        return ["thread\tframe"]


def checked(lingering: LingeringTasks, session: FakeSession, clock: ManualClock, tags: set[str]) -> None:
    """Check a second later, and wait until the session was called."""
    clock.advance(1)
    before = len(session.calls)
    for _ in range(500):
        # The previous answer comes from another thread.
        lingering.check(tags)
        if session.called.acquire(timeout=0.01):
            break
    assert len(session.calls) > before


def test_a_call_is_stopped_once_it_was_cancelled_for_a_quarter_of_the_bound() -> None:
    session, clock = FakeSession(), ManualClock()
    lingering = LingeringTasks(clock, session)  # type: ignore[arg-type]  # does what is called here
    for tags in ({"a"}, {"a"}, {"a", "b"}, {"b"}, {"b"}):
        checked(lingering, session, clock, tags)
    lingering.leave()
    # Tasks of Spark are searched each time: they may outlive the task of the worker that sent them.
    assert session.calls == [((), 2.0), ((), 2.0), (("a",), 2.0), ((), 2.0), (("b",), 2.0)]


def test_a_jvm_that_does_not_answer_is_called_once_and_the_next_one_anew() -> None:
    session, clock = FakeSession(), ManualClock()
    session.answers.clear()
    lingering = LingeringTasks(clock, session)  # type: ignore[arg-type]  # does what is called here
    checked(lingering, session, clock, {"a"})
    for _ in range(5):
        clock.advance(1)
        lingering.check({"a"})
    assert not session.called.acquire(timeout=0.05)
    session.run = 2
    checked(lingering, session, clock, {"a"})
    session.answers.set()
    lingering.leave()
    assert [tags for tags, _ in session.calls] == [(), ("a",)]
