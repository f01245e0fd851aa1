"""Rule for tasks that make no progress. Pure: reports of Spark and the system about tasks go in, stalled tasks come
out.

A task makes progress when a Spark task of its job begins or ends, when rows or bytes are read, written or shuffled, or
when the JVM and its Python workers compute. Python workers cannot be assigned to tasks: one that hangs while others
compute is noticed when they are done, or at once if it was stopped by a signal.

Covers: the rule. Does not cover: asking Spark (sessions.py), cancelling (worker.py), JVMs that hang (pulse.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Share of one core: JVM and Python workers that use more between two observations compute for somebody.
BUSY_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """The Spark jobs of one task."""

    #: Spark tasks that run now; without one, the job waits for a slot.
    active: int
    #: Counts of tasks, rows and bytes. They change when there is progress.
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """The JVM and the Python workers."""

    #: Processor seconds since they started, all together.
    cpu_seconds: float
    #: Python workers that were stopped by a signal.
    stopped: int = 0


@dataclass(slots=True)
class _Seen:
    progress: JobProgress
    #: Seconds without progress.
    still: float = 0.0


class StallWatch:
    """The tasks of one worker. For one thread."""

    def __init__(self, *, bound_seconds: float, step_seconds_max: float) -> None:
        """`step_seconds_max`: no more counts between two observations, as this process may have been stopped itself."""
        self._bound = bound_seconds
        self._step_max = step_seconds_max
        self._seen: dict[str, _Seen] = {}
        self._cpu_seconds = 0.0

    def looked(self, tasks: Mapping[str, JobProgress], processes: Processes, *, seconds: float) -> dict[str, float]:
        """The tasks that have made no progress for the bound, and for how many seconds; `seconds` since the last look.

        Only tasks with running Spark jobs are given.
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
        return {task: seen.still for task, seen in self._seen.items() if seen.still >= self._bound}
