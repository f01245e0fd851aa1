"""A cached thread pool: idle threads are used again, and a new one is started where there is none.

Covers: a thread for each job that is under way, one thread for many short jobs. Does not cover: how many jobs there
may be (control/slots.py), results (server/threads.py).
Always holds: no job waits for the end of another one; a thread that has been idle for `IDLE_SECONDS` ends. The next job
goes to the thread that became idle last, so that threads which are not needed reach that time.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

#: Time after which an idle thread ends.
IDLE_SECONDS = 10.0

T = TypeVar("T")
S = TypeVar("S")

# Completion callback: gets, on another thread, a function that returns the result, or raises why there is none.
Completion = Callable[[Callable[[], T]], None]

# The next job of one thread.
_Slot = queue.SimpleQueue[Callable[[], object]]


def completing(on_complete: Completion[T] | None, make: Callable[[Callable[[], S]], T]) -> Completion[S] | None:
    """Return a callback that completes this one with what `make` makes of the function that it gets; None for None."""
    if on_complete is None:
        return None
    return lambda get: on_complete(lambda: make(get))


class CachedThreadPool:
    """Runs jobs on daemon threads with this name. Safe to use from several threads."""

    def __init__(self, name: str, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._name = name
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        #: Slots of the idle threads; the thread that became idle last is the last.
        self._idle: dict[_Slot, None] = {}

    def start(self, job: Callable[[], object]) -> None:
        """Run the job, which raises nothing, on another thread. Raises RuntimeError where the system has none left."""
        with self._lock:
            slot = self._idle.popitem()[0] if self._idle else None
        if slot is None:
            slot = queue.SimpleQueue()
            threading.Thread(target=self._run, args=(slot,), name=self._name, daemon=True).start()
        slot.put(job)

    def _run(self, slot: _Slot) -> None:
        # The first job is about to come.
        job = slot.get()
        while True:
            job()
            # An idle thread must not keep the objects of its last job alive.
            del job
            with self._lock:
                self._idle[slot] = None
            try:
                job = slot.get(timeout=self._idle_seconds)
            except queue.Empty:
                with self._lock:
                    if slot in self._idle:
                        del self._idle[slot]
                        return
                # `start` has chosen this thread: its job is about to come.
                job = slot.get()


class ShortJobs:
    """Runs short jobs one after the other, on one thread of a pool. Safe to use from several threads.

    A thread for each of them would cost more than the jobs: threads of Python wait for each other.
    """

    def __init__(self, pool: CachedThreadPool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], object]] = deque()
        #: Token of the thread that runs the jobs now; a thread with another one ends with its job.
        self._runner: object | None = None
        #: `True` from the start of a thread until it runs.
        self._is_starting = False
        #: Jobs that have begun, now and when `relieve` was called last.
        self._begun = self._begun_before = 0

    def start(self, job: Callable[[], object]) -> None:
        """Run the job, which raises nothing, after those before it. Raises RuntimeError where the system has no thread
        left.
        """
        with self._lock:
            self._waiting.append(job)
            if self._runner is not None or self._is_starting:
                return
            self._is_starting = True
        try:
            self._start_thread()
        except RuntimeError:
            with self._lock:
                self._waiting.remove(job)
            raise

    def relieve(self) -> bool:
        """Let another thread go on where the same job has run since the last call; return whether jobs wait.

        Whoever calls `start` calls it from time to time while jobs wait.
        """
        with self._lock:
            if not self._waiting:
                return False
            is_late, self._begun_before = self._begun == self._begun_before, self._begun
            if not is_late or self._is_starting:
                return True
            self._is_starting = True
        # The present thread goes on when its job ends.
        with suppress(RuntimeError):
            self._start_thread()
        return True

    def _start_thread(self) -> None:
        try:
            self._pool.start(self._run)
        except RuntimeError:
            with self._lock:
                self._is_starting = False
            raise

    def _run(self) -> None:
        own = object()
        with self._lock:
            self._runner, self._is_starting = own, False
        while True:
            with self._lock:
                if self._runner is not own:
                    return
                if not self._waiting:
                    self._runner = None
                    return
                job = self._waiting.popleft()
                self._begun += 1
            job()
            # An idle thread must not keep the objects of its last job alive.
            del job
