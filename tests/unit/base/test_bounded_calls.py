"""Calls that hang: a reader waits for a bounded time and learns since when they hang; at most one of a name hangs."""

from __future__ import annotations

import threading

import pytest

from tests.panics import PanicError
from tilth.base.bounded_calls import BoundedCalls, CallAnswered, CallFailed, CallSilent
from tilth.base.clock import SystemClock
from tilth.base.units import show_time
from tilth.health import HEALTH_SECONDS_MAX, known_states
from tilth.testing import ManualClock

ADDRESSES = {"catalog": "postgresql://db:5432/tilth", "disk": "/data"}


class Passing(ManualClock):
    """Each wait that ends without the event moves the time on."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if not event.wait(0.2):
            self.advance(seconds)
        return event.is_set()


def test_outcomes_of_calls_that_return_and_raise() -> None:
    probes = BoundedCalls[int](SystemClock(), seconds_max=30)
    error = ValueError("no")

    def fails() -> int:
        raise error

    def panics() -> int:
        raise PanicError("index out of bounds")

    assert probes.read({"a": lambda: 1, "b": fails}) == {"a": CallAnswered(1), "b": CallFailed(error)}
    assert probes.read({"a": lambda: 2}) == {"a": CallAnswered(2)}
    # A panic ends the call, too: the next reader starts another one.
    panicked = probes.read({"a": panics})["a"]
    assert isinstance(panicked, CallFailed)
    assert "PanicError: index out of bounds" in str(panicked.error)
    assert probes.read({"a": lambda: 3}) == {"a": CallAnswered(3)}


def test_a_call_that_hangs_says_since_when_and_is_made_once() -> None:
    clock, made = Passing(), threading.Semaphore(0)
    probes = BoundedCalls[int](clock, seconds_max=0.7)
    goes_on = threading.Event()
    began_ms = clock.now_ms()

    def hangs() -> int:
        made.release()
        goes_on.wait(30)
        return 7

    for _ in range(3):
        before = clock.monotonic()
        assert probes.read({"a": hangs, "b": lambda: 1}) == {"a": CallSilent(began_ms), "b": CallAnswered(1)}
        # The limit is for all calls together.
        assert clock.monotonic() - before == pytest.approx(0.7)
    assert probes.read({"b": lambda: 2}) == {"b": CallAnswered(2)}
    # The next reader gets the late outcome if the call has not ended yet; the reader after it starts another call.
    goes_on.set()
    assert probes.read({"a": lambda: 8}) in ({"a": CallAnswered(7)}, {"a": CallAnswered(8)})
    assert probes.read({"a": lambda: 9}) == {"a": CallAnswered(9)}
    assert made.acquire(blocking=False)
    assert not made.acquire(blocking=False)


def test_states_of_components_are_known_though_one_hangs() -> None:
    clock, goes_on = Passing(), threading.Event()
    states = BoundedCalls[dict[str, str]](clock, seconds_max=HEALTH_SECONDS_MAX)
    since = show_time(clock.now_ms())

    def hangs() -> dict[str, str]:
        goes_on.wait(30)
        return {"catalog": "ok"}

    def defect() -> dict[str, str]:
        raise KeyError("x")

    found = known_states(states, {"catalog": hangs, "disk": lambda: {"disk": "ok"}, "spark": defect}, ADDRESSES)
    goes_on.set()
    assert found == {
        "catalog": f"it has not answered since {since}: postgresql://db:5432/tilth",
        "disk": "ok",
        "spark": "a defect of Tilth: KeyError('x')",
    }
