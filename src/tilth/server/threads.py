"""Threads for calls that an event loop must not make itself.

Covers: a thread for each call that waits, one for calls that should be short, results on their way back to the loop.
Does not cover: how many calls there
may be (control/slots.py).
Always holds: results that come at about the same time wake the loop once, and each reaches its caller whatever happens
to the others; a call that nobody awaits any more runs to its end, and its result is dropped on a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from tilth.base.errors import as_exception
from tilth.base.logs import Log
from tilth.base.threads import CachedThreadPool, Completion, ShortJobs

T = TypeVar("T")

#: Interval at which a short call that takes long is detected.
RELIEF_SECONDS = 0.005

_log = Log("server")


def _forget(_: object) -> None:
    """Drop a result that holds nothing."""


class CallThreads:
    """Threads that make calls for event loops."""

    def __init__(self, name: str) -> None:
        self._threads = CachedThreadPool(name)
        self._short = ShortJobs(self._threads)
        self._results: _Results | None = None
        #: `True` while a timer checks the short calls; of a loop that was closed, it does not.
        self._is_checked = False

    async def run(self, act: Callable[[], T], *, drop: Callable[[T], object] = _forget) -> T:
        """Run the call on another thread; return what it returns, raise what it raises. If nobody awaits the result any
        more, `drop` gets it, on another thread, too.
        """
        call = _Call(drop, self._results_here())
        self._threads.start(lambda: call.settle(act))
        return await self._awaited(call)

    async def run_short(self, act: Callable[[Completion[T]], T | None], *, drop: Callable[[T], object] = _forget) -> T:
        """Run a call as `run`, on a thread that it shares with other short ones; one that takes long holds up no other.
        A call that returns None completes by its argument, now or after it returned.
        """
        call = _Call(drop, self._results_here())

        def begin() -> None:
            try:
                result = act(call.settle)
            # Whatever it is, it is raised where the call is awaited.
            except BaseException as error:
                call.fail(error)
            else:
                if result is not None:
                    call.settle(lambda: result)

        self._short.start(begin)
        if not self._is_checked:
            self._is_checked = True
            self._check()
        return await self._awaited(call)

    def _results_here(self) -> _Results:
        loop = asyncio.get_running_loop()
        results = self._results
        if results is None or results.loop is not loop:
            results = self._results = _Results(loop)
            self._is_checked = False
        return results

    def _check(self) -> None:
        self._is_checked = self._short.relieve()
        if self._is_checked:
            asyncio.get_running_loop().call_later(RELIEF_SECONDS, self._check)

    async def _awaited(self, call: _Call[T]) -> T:
        try:
            return await call.future
        # Also the end of a coroutine whose loop was closed.
        except BaseException:
            if call.leave():
                self._drop(call.drop)
            raise

    def _drop(self, drop: Callable[[], None]) -> None:
        try:
            self._threads.start(drop)
        except RuntimeError:
            # The system has no thread left. Late answers are better than a result that is never dropped.
            drop()


class _Results:
    """Results on their way to one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._lock = threading.Lock()
        self._steps: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def add(self, step: Callable[[], None]) -> None:
        """Run the step in the loop soon, unless the loop is closed."""
        with self._lock:
            self._steps.append(step)
            if self._is_woken:
                return
            self._is_woken = True
        try:
            self.loop.call_soon_threadsafe(self._run)
        except RuntimeError:
            # The loop is closed: nobody awaits any result.
            return

    def _run(self) -> None:
        with self._lock:
            steps, self._steps = self._steps, deque()
            self._is_woken = False
        for step in steps:
            try:
                step()
            # The next steps have the results of other calls.
            except Exception as error:
                _log.error("result_failed", error=error)


class _Call(Generic[T]):
    """One call, and the future of its result."""

    def __init__(self, drop: Callable[[T], object], results: _Results) -> None:
        self.future: asyncio.Future[T] = results.loop.create_future()
        self._drop = drop
        self._results = results
        self._lock = threading.Lock()
        self._is_left = False
        #: The result, once there is one.
        self._made: list[T] = []

    def settle(self, make: Callable[[], T]) -> None:
        """End the call with what the function returns or raises."""
        try:
            result = make()
        # Whatever it is, it is raised where the call is awaited.
        except BaseException as error:
            self.fail(error)
        else:
            with self._lock:
                self._made.append(result)
                is_left = self._is_left
            if is_left:
                self.drop()
            else:
                self._results.add(lambda: self._succeed(result))

    def fail(self, error: BaseException) -> None:
        """End the call with an error."""
        failure = as_exception(error)
        self._results.add(lambda: self._raise(failure))

    def leave(self) -> bool:
        """Give the call up; return whether its result is there, so that the caller must drop it."""
        with self._lock:
            self._is_left = True
            return bool(self._made)

    def drop(self) -> None:
        for result in self._made:
            try:
                self._drop(result)
            # Nobody awaits this error.
            except BaseException as error:
                _log.error("result_not_dropped", error=error)

    def _succeed(self, result: T) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _raise(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
