"""Reports of a JVM about itself, and of the system about its processes. Pure.

Covers: the nouns. Does not cover: how they are read (session.py), what follows from them (worker/pulse.py,
worker/stalls.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilth.base.units import show_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Reason why there is no Spark, or why it may be gone soon."""

    reason: str
    #: Milliseconds since 1970.
    since_ms: int

    def __str__(self) -> str:
        return f"since {show_time(self.since_ms)}: {self.reason}"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Report of the JVM about itself."""

    #: Spark has ended inside of it.
    has_ended: bool
    #: Every task slot is in use.
    is_full: bool
    #: Number of tasks that Spark runs at once.
    slots: int = 1
    #: Ids of running tasks whose stage has ended, as by a cancel.
    outliving: frozenset[int] = frozenset()
