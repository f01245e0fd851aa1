"""Threads for calls that an event loop must not make itself.

Covers: a thread for each call that waits, results on their way back to the loop. Does not cover: how many calls there
may be (control/slots.py).
Always holds: results that come at about the same time wake the loop once; a call that nobody awaits any more is made to
its end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from tilth.base.errors import as_exception
from tilth.base.threads import KeptThreads

T = TypeVar("T")


class CallThreads:
    """Threads that make calls for event loops."""

    def __init__(self, name: str) -> None:
        self._threads = KeptThreads(name)
        self._results: _Results | None = None

    async def run(self, act: Callable[[], T]) -> T:
        """Return or raise what the call does on another thread."""
        loop = asyncio.get_running_loop()
        results = self._results
        if results is None or results.loop is not loop:
            results = self._results = _Results(loop)
        future: asyncio.Future[T] = loop.create_future()
        self._threads.start(_Call(act, results, future).run)
        return await future


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
            step()


class _Call(Generic[T]):
    """One call, and the future of its result."""

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
