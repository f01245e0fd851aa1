"""Cancelled tasks that go on: tasks and calls that ignore interrupts are stopped before their JVM has to be killed.

Covers: when they are stopped, calls on a thread of their own. Does not cover: how the JVM stops them
(session/TaskStopper.java), executors of a cluster (session/cluster.py), a JVM that has to be killed (pulse.py).
"""

from __future__ import annotations

from collections.abc import Collection

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.warehouse.session.session import WorkerSession
from tilth.warehouse.settings import STOP_SHARE
from tilth.warehouse.worker.heartbeat import BackgroundCaller

_log = Log("warehouse")


class LingeringTasks:
    """The cancelled tasks of one worker. For one thread."""

    def __init__(self, clock: Clock, session: WorkerSession) -> None:
        self._clock = clock
        self._session = session
        self._seconds = session.settings.hang_seconds * STOP_SHARE
        #: Monotonic time at which each cancelled task was first seen, by its tag.
        self._since: dict[str, float] = {}
        self._overdue: tuple[str, ...] = ()
        self._caller, self._run, self._is_waiting = self._new_caller(), session.run, False

    def check(self, cancelled: Collection[str]) -> None:
        """Stop the tasks that go on for too long; `cancelled`: tags of the cancelled tasks that have not ended."""
        now = self._clock.monotonic()
        self._since = {tag: self._since.get(tag, now) for tag in cancelled}
        if self._run != self._session.run:
            # The thread that called the former JVM may still wait for it.
            self._caller.abandon()
            self._caller, self._run, self._is_waiting = self._new_caller(), self._session.run, False
        answer = self._caller.poll()
        self._is_waiting = self._is_waiting and answer is None
        if isinstance(answer, Exception):
            _log.debug("cancelled_work_unknown", reason=answer)
        for line in answer if isinstance(answer, list) else ():
            thread, _, frame = line.partition("\t")
            _log.warning("cancelled_work_stopped", thread=thread, at=frame)
        if not self._is_waiting:
            self._overdue = tuple(tag for tag, since in self._since.items() if now - since >= self._seconds)
            self._is_waiting = True
            self._caller.request()

    def leave(self) -> None:
        self._caller.abandon()

    def _new_caller(self) -> BackgroundCaller[list[str]]:
        return BackgroundCaller("stop", lambda: self._session.stop_cancelled(self._overdue, seconds=self._seconds))
