"""Tasks that make no progress: the rule for them, and calls that do not wait for a JVM that may hang.

A task makes progress when a Spark task of its job begins or ends, when rows or bytes are read, written or shuffled, or
when the JVM and its Python workers compute. Python workers cannot be assigned to tasks: one that hangs while others
compute is noticed when they are done, or at once if it was stopped by a signal.

Covers: the rule (reports of Spark and the system about tasks go in, stalled tasks come out), calls on a thread of their
own. Does not cover: how Spark reports (session/session.py), cancelling (embedded.py), JVMs that hang (pulse.py).

Tests: tests/unit/warehouse/worker/test_pulse.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.model.task import TaskKind
from tilth.warehouse.session.reports import JobProgress, Processes
from tilth.warehouse.session.session import WorkerSession
from tilth.warehouse.settings import WarehouseSettings
from tilth.warehouse.worker.heartbeat import BackgroundCaller

#: Share of one core: JVM and Python workers that use more between two observations compute for somebody.
BUSY_SHARE = 0.1
#: Maximum number of steps that count between two checks; on a quiet machine there are fewer.
STEPS_PER_CHECK_MAX = 3

_log = Log("warehouse")


def stall_bound(settings: WarehouseSettings, kind: TaskKind) -> float:
    """Return the seconds after which a task of the kind without progress is stalled."""
    return settings.round_stall_seconds if kind.traits.is_resident else settings.stall_seconds


@dataclass(slots=True)
class _Seen:
    progress: JobProgress
    #: Seconds without progress.
    still: float = 0.0


class StallWatch:
    """The rule for the tasks of one worker. Pure; for one thread."""

    def __init__(self, *, step_seconds_max: float) -> None:
        """`step_seconds_max`: no more counts between two observations, as this process may have been stopped itself."""
        self._step_max = step_seconds_max
        self._seen: dict[str, _Seen] = {}
        self._cpu_seconds = 0.0

    def observe(
        self, tasks: Mapping[str, JobProgress], bounds: Mapping[str, float], processes: Processes, *, seconds: float
    ) -> dict[str, float]:
        """The tasks that have made no progress for their bound, and for how many seconds.

        `tasks`: only those with running Spark jobs; `bounds`: of each, in seconds; `seconds`: since the last check.
        """
        step = min(seconds, self._step_max)
        used = processes.cpu_seconds - self._cpu_seconds
        self._cpu_seconds = processes.cpu_seconds
        is_busy = used >= BUSY_SHARE * step and not processes.stopped
        before, self._seen = self._seen, {}
        for task, progress in tasks.items():
            seen = before.get(task, _Seen(progress))
            is_still = task in before and progress.active > 0 and seen.progress == progress and not is_busy
            self._seen[task] = _Seen(progress, seen.still + step if is_still else 0.0)
        return {task: seen.still for task, seen in self._seen.items() if seen.still >= bounds[task]}


class StallFinder:
    """The tasks of one worker. For one thread."""

    def __init__(self, clock: Clock, session: WorkerSession) -> None:
        settings = session.settings
        self._clock = clock
        self._session = session
        shortest = min(settings.stall_seconds, settings.round_stall_seconds)
        self._seconds = min(settings.heartbeat_seconds, shortest / 4)
        self._watch = StallWatch(step_seconds_max=STEPS_PER_CHECK_MAX * self._seconds)
        self._bounds: Mapping[str, float] = {}
        self._caller = BackgroundCaller("progress", self._read_progress)
        self._run = session.run
        self._is_waiting = False
        self._requested_at = self._answered_at = clock.monotonic()

    def check(self, bounds: Mapping[str, float]) -> dict[str, float]:
        """Return those of the tasks with these job tags that have made no progress for their bound, in seconds, with
        the seconds of each.
        """
        now = self._clock.monotonic()
        if self._run != self._session.run:
            # The thread that called the former JVM may still wait for it.
            self._caller.abandon()
            self._caller, self._run, self._is_waiting = (
                BackgroundCaller("progress", self._read_progress),
                self._session.run,
                False,
            )
        answer = self._caller.poll()
        if answer is None:
            if not self._is_waiting and bounds and now - self._requested_at >= self._seconds:
                self._bounds, self._is_waiting, self._requested_at = dict(bounds), True, now
                self._caller.request()
            return {}
        self._is_waiting = False
        if isinstance(answer, Exception):
            _log.debug("progress_unknown", reason=answer)
            return {}
        seconds, self._answered_at = now - self._answered_at, now
        progress, processes = answer
        return self._watch.observe(progress, self._bounds, processes, seconds=seconds)

    def leave(self) -> None:
        self._caller.abandon()

    def _read_progress(self) -> tuple[dict[str, JobProgress], Processes]:
        return self._session.progress(self._bounds), self._session.processes()
