"""Cancelled work that goes on: tasks and calls that look at no interrupt are stopped before their JVM has to be killed.

Covers: when it is stopped, asking on a thread of its own. Does not cover: how the JVM stops it
(session/TaskStopper.java), executors of a cluster (session/cluster.py), a JVM that has to be killed (pulse.py).
"""

from __future__ import annotations

from collections.abc import Collection

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.warehouse.session.session import WorkerSession
from tilth.warehouse.settings import STOP_SHARE
from tilth.warehouse.worker.heartbeat import Asker

_log = Log("warehouse")


class LingeringWork:
    """The cancelled work of one worker. For one thread."""

    def __init__(self, clock: Clock, session: WorkerSession) -> None:
        self._clock = clock
        self._session = session
        self._seconds = session.settings.hang_seconds * STOP_SHARE
        #: Monotonic time at which each cancelled task was first seen, by its tag.
        self._since: dict[str, float] = {}
        self._overdue: tuple[str, ...] = ()
        self._asker, self._run, self._is_asked = self._new_asker(), session.run, False

    def look(self, cancelled: Collection[str]) -> None:
        """Stop the tasks that go on for too long; `cancelled`: tags of the cancelled tasks that have not ended."""
        now = self._clock.monotonic()
        self._since = {tag: self._since.get(tag, now) for tag in cancelled}
        if self._run != self._session.run:
            # A thread that asked the JVM before may still wait for it.
            self._asker.leave()
            self._asker, self._run, self._is_asked = self._new_asker(), self._session.run, False
        answer = self._asker.take()
        self._is_asked = self._is_asked and answer is None
        if isinstance(answer, Exception):
            _log.debug("cancelled_work_unknown", reason=answer)
        for line in answer if isinstance(answer, list) else ():
            thread, _, frame = line.partition("\t")
            _log.warning("cancelled_work_stopped", thread=thread, at=frame)
        if not self._is_asked:
            self._overdue = tuple(tag for tag, since in self._since.items() if now - since >= self._seconds)
            self._is_asked = True
            self._asker.ask()

    def leave(self) -> None:
        self._asker.leave()

    def _new_asker(self) -> Asker[list[str]]:
        return Asker("stop", lambda: self._session.stop_cancelled(self._overdue, seconds=self._seconds))
