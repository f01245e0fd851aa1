"""A submitted task, as its caller waits for it.

Covers: waiting, the end, cancelling. Does not cover: where the task runs (dispatch.py, state.py).
Always holds: whoever waits gets one result or one error, the first that came.

Tests: tests/unit/control/test_resends.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from tilth.base.clock import Clock
from tilth.base.errors import RetryError, TilthError
from tilth.model.task import TaskSpec
from tilth.warehouse.errors import TaskCancelledError
from tilth.warehouse.tasks.state import TaskResult


class LiveTasks(Protocol):
    """The dispatcher, as a handle uses it."""

    def cancel(self, task_id: str) -> None: ...

    def abandon(self, task_id: str) -> None: ...

    def obstacle(self, task_id: str) -> str: ...


class Handle:
    """A submitted task."""

    def __init__(self, clock: Clock, tasks: LiveTasks, spec: TaskSpec) -> None:
        self._clock = clock
        self._tasks = tasks
        self._ended = threading.Event()
        self._outcome: TaskResult | TilthError | None = None
        self._lock = threading.Lock()
        self._acts: list[Callable[[], None]] = []
        self.spec = spec

    @property
    def id(self) -> str:
        return self.spec.id

    def is_done(self) -> bool:
        """True once it has ended, well or not."""
        return self._ended.is_set()

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end; True once it has ended, well or not."""
        return self._clock.wait(self._ended, seconds)

    def when_ended(self, act: Callable[[], None]) -> None:
        """Call it once the task has ended, on whatever thread."""
        with self._lock:
            if not self._ended.is_set():
                self._acts.append(act)
                return
        act()

    def wait(self, timeout: float | None = None) -> TaskResult:
        """The result. Raises the error that the task ended with, and RetryError (TASK_STILL_RUNNING) after `timeout`
        seconds.
        """
        has_ended = self._ended.wait() if timeout is None else self._clock.wait(self._ended, timeout)
        if not has_ended:
            raise RetryError.coded(
                "TASK_STILL_RUNNING",
                "the task has not ended in the time given",
                task=self.id,
                table=self.spec.table,
                seconds=timeout,
            )
        outcome = self._outcome
        assert outcome is not None
        if isinstance(outcome, TilthError):
            raise outcome
        return outcome

    def obstacle(self) -> str:
        """Return why the task does not go on; empty: nothing is in its way. See `Dispatcher.obstacle`."""
        return self._tasks.obstacle(self.id)

    def cancel(self) -> None:
        """Cancel the task; `wait` then raises TaskCancelledError, unless it ended well before."""
        self._tasks.cancel(self.id)

    def abandon(self) -> None:
        """Let whoever waits go on with a TaskCancelledError. The task was cancelled and does not end: Spark plans
        it, which nothing interrupts. Does nothing for a task that may be writing files of a transaction."""
        if self.spec.txn:
            return
        self._tasks.abandon(self.id)
        self.end(TaskCancelledError("the task does not end", task=self.id, table=self.spec.table))

    def end(self, outcome: TaskResult | TilthError) -> None:
        """Set the outcome and wake the callers that wait; a later call changes nothing."""
        with self._lock:
            if self._outcome is None:
                self._outcome = outcome
            self._ended.set()
            acts, self._acts = self._acts, []
        for act in acts:
            act()
