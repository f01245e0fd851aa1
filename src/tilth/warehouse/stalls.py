"""Looks for tasks that make no progress, without waiting for a JVM that may hang.

Covers: asking, on a thread of its own. Does not cover: the rule (stall_rule.py), what is done about it (worker.py).
"""

from __future__ import annotations

from collections.abc import Collection

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.warehouse.heartbeat import Asker
from tilth.warehouse.sessions import WorkerSession
from tilth.warehouse.stall_rule import JobProgress, Processes, StallWatch

#: More than between two observations on a quiet machine, and no more.
_STEPS_PER_LOOK_MAX = 3

_log = Log("warehouse")


class StallFinder:
    """The tasks of one worker. For one thread."""

    def __init__(self, clock: Clock, session: WorkerSession) -> None:
        settings = session.settings
        self._clock = clock
        self._session = session
        self._seconds = min(settings.heartbeat_seconds, settings.stall_seconds / 4)
        self._watch = StallWatch(
            bound_seconds=settings.stall_seconds, step_seconds_max=_STEPS_PER_LOOK_MAX * self._seconds
        )
        self._tags: Collection[str] = ()
        self._asker = Asker("progress", self._ask)
        self._run = session.run
        self._is_asked = False
        self._asked = self._taken = clock.monotonic()

    def look(self, tags: Collection[str]) -> dict[str, float]:
        """Return those of the tasks with these job tags that have made no progress for the bound, with the seconds of
        each.
        """
        now = self._clock.monotonic()
        if self._run != self._session.run:
            # A thread that asked the JVM before may still wait for it.
            self._asker.leave()
            self._asker, self._run, self._is_asked = Asker("progress", self._ask), self._session.run, False
        answer = self._asker.take()
        if answer is None:
            if not self._is_asked and tags and now - self._asked >= self._seconds:
                self._tags, self._is_asked, self._asked = frozenset(tags), True, now
                self._asker.ask()
            return {}
        self._is_asked = False
        if isinstance(answer, Exception):
            _log.debug("progress_unknown", reason=answer)
            return {}
        seconds, self._taken = now - self._taken, now
        return self._watch.looked(*answer, seconds=seconds)

    def leave(self) -> None:
        self._asker.leave()

    def _ask(self) -> tuple[dict[str, JobProgress], Processes]:
        return self._session.progress(self._tags), self._session.processes()
