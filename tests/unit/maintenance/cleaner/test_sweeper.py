"""The thread that removes what ended work leaves: its bound, its end, and steps that fail or hang."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tilth.maintenance import Sweeper
from tilth.maintenance.cleaner import sweeper as module
from tilth.maintenance.cleaner.sweeper import WAITING_MAX

ENOUGH_SECONDS = 30.0


@pytest.fixture
def sweeper() -> Iterator[Sweeper]:
    sweeper = Sweeper()
    sweeper.start()
    yield sweeper
    sweeper.stop()


def test_a_step_that_fails_does_not_stop_the_next(sweeper: Sweeper) -> None:
    done = threading.Event()

    def fail() -> None:
        raise RuntimeError("a defect")

    assert sweeper.offer(fail)
    assert sweeper.offer(done.set)
    assert done.wait(ENOUGH_SECONDS)


def test_behind_a_store_that_hangs_a_bounded_number_waits(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.01)
    began, go_on, ran = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        go_on.wait(ENOUGH_SECONDS)

    assert sweeper.offer(hang)
    assert began.wait(ENOUGH_SECONDS)
    assert all(sweeper.offer(ran.set) for _ in range(WAITING_MAX))
    assert not sweeper.offer(ran.set)
    # The end does not wait for the store, and the rest is left to the next start.
    sweeper.stop()
    assert not sweeper.offer(ran.set)
    go_on.set()
    sweeper._thread.join(ENOUGH_SECONDS)
    assert not ran.is_set()
