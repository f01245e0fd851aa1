"""Threads for calls that an event loop must not make itself.

Covers: a thread for each call that waits, results on their way back to the loop. Does not cover: how many calls there
may be (control/slots.py).
Always holds: a call never waits for the end of another one; results that come at about the same time wake the loop
once; a thread that nobody needs for `IDLE_SECONDS` ends.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from tilth.base.errors import as_exception

#: Time after which a thread without a call ends.
IDLE_SECONDS = 10.0

T = TypeVar("T")


class _Call(Generic[T]):
    """One call and who awaits its result."""

    def __init__(self, act: Callable[[], T], results: _Results, future: asyncio.Future[T]) -> None:
        self._act = act
        self._results = results
        self._future = future

    def run(self) -> None:
        try:
            result = self._act()
        # Whatever it was, it is raised by who awaits it.
        except BaseException as error:
            failure = as_exception(error)
            self._results.add(lambda: self._fail(failure))
        else:
            self._results.add(lambda: self._succeed(result))

    def _succeed(self, result: T) -> None:
        if not self._future.done():
            self._future.set_result(result)

    def _fail(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)


class _Results:
    """Results that the loop has not taken yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._lock = threading.Lock()
        self._steps: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def add(self, step: Callable[[], None]) -> None:
        """Run the step in the loop soon; does nothing if the loop is closed."""
        with self._lock:
            self._steps.append(step)
            if self._is_woken:
                return
            self._is_woken = True
        try:
            self.loop.call_soon_threadsafe(self._run)
        except RuntimeError:
            # The loop is closed; nobody awaits any result.
            return

    def _run(self) -> None:
        with self._lock:
            steps, self._steps = self._steps, deque()
            self._is_woken = False
        for step in steps:
            step()


class CallThreads:
    """Threads that make calls for event loops."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        #: Threads that wait for a call and for whom none is in the queue.
        self._free = 0
        self._calls: queue.SimpleQueue[_Call[object]] = queue.SimpleQueue()
        self._results: _Results | None = None

    async def run(self, act: Callable[[], T]) -> T:
        """Return or raise what the call does on another thread; it is made to its end if nobody awaits it any more."""
        loop = asyncio.get_running_loop()
        results = self._results
        if results is None or results.loop is not loop:
            results = self._results = _Results(loop)
        future: asyncio.Future[T] = loop.create_future()
        self._put(_Call(act, results, future))
        return await future

    def _put(self, call: _Call[T]) -> None:
        with self._lock:
            has_thread = self._free > 0
            if has_thread:
                self._free -= 1
        if not has_thread:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        self._calls.put(call)  # type: ignore[arg-type]  # a call is invariant in what it returns

    def _work(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._free:
                        self._free -= 1
                        return
                # A call that was meant for this thread is about to come.
                continue
            call.run()
            # Neither the call nor its result is held until the next one.
            del call
            with self._lock:
                self._free += 1
