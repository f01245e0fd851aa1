"""Calls that may never return, each on a thread of its own, for callers that wait for a bounded time.

Covers: several calls at once, which of them have not returned, and since when. Does not cover: what the calls do.
Always holds: at most one call of each name is under way, so a call that hangs costs one thread, however often it is
read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tilth.base.clock import Clock
from tilth.base.errors import as_exception

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallAnswered(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class CallFailed:
    error: Exception


@dataclass(frozen=True, slots=True)
class CallSilent:
    """The call has not returned."""

    #: Time when the call was started.
    since_ms: int


CallOutcome = CallAnswered[T] | CallFailed | CallSilent


@dataclass(slots=True)
class _Call(Generic[T]):
    since_ms: int
    is_over: threading.Event = field(default_factory=threading.Event)
    outcome: CallAnswered[T] | CallFailed | None = None


class BoundedCalls(Generic[T]):
    """Calls by name; thread-safe."""

    def __init__(self, clock: Clock, *, seconds_max: float) -> None:
        """`seconds_max`: longest time that `read` waits, for all calls together."""
        self._clock = clock
        self._seconds_max = seconds_max
        self._lock = threading.Lock()
        #: Calls that have been started and have not ended.
        self._calls: dict[str, _Call[T]] = {}

    def read(self, calls: Mapping[str, Callable[[], T]]) -> dict[str, CallOutcome[T]]:
        """Start the calls that are not under way yet, and return the outcome of each, `CallSilent` if it has none in
        time. A later `read` that finds a call still under way waits for the outcome of that call.
        """
        end = self._clock.monotonic() + self._seconds_max
        begun = {name: self._begun(name, act) for name, act in calls.items()}
        for call in begun.values():
            self._clock.wait(call.is_over, max(0.0, end - self._clock.monotonic()))
        return {name: call.outcome or CallSilent(call.since_ms) for name, call in begun.items()}

    def _begun(self, name: str, act: Callable[[], T]) -> _Call[T]:
        with self._lock:
            call = self._calls.get(name)
            if call is None:
                call = self._calls[name] = _Call(self._clock.now_ms())
                # A daemon thread: a call that hangs must not delay the end of the process.
                thread = f"tilth-call-{name}"
                threading.Thread(target=self._run, args=(name, call, act), name=thread, daemon=True).start()
        return call

    def _run(self, name: str, call: _Call[T], act: Callable[[], T]) -> None:
        try:
            call.outcome = CallAnswered(act())
        # Every error is an outcome for the reader, also a panic of a library in Rust, which is no Exception.
        except BaseException as error:
            call.outcome = CallFailed(as_exception(error))
        with self._lock:
            self._calls.pop(name, None)
        call.is_over.set()
