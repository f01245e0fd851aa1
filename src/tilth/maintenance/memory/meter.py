"""The memory that the node uses, against its limit.

Covers: sampling, the limit. Does not cover: what follows from it (relief.py, manager/scheduler.py).
Always holds: counted are the resident bytes of this process and of all below it: in local mode Spark's JVM and its
Python workers are its children, and where Spark is elsewhere they are none of its. Pages that children share count
for each of them, so the number is rather too high than too low.

Tests: tests/unit/maintenance/table/test_workload.py.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.base.memory import MemoryReading
from tilth.base.units import show_bytes

#: A sample is reused for this long.
SAMPLE_SECONDS = 0.05
#: Time between two searches for new children, which walk over all processes of the machine.
CHILDREN_SECONDS = 5.0
#: Limit as a share of the machine's memory, if none is set.
LIMIT_SHARE = 0.8

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")

_log = Log("maintenance")


class MemoryMeter:
    """Meter of memory in use, read by the manager before each choice and by what slows writers; for any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        hard_limit: int | None,
        soft_percentage: float,
        warn_percentage: float,
        read: Callable[[], int],
    ) -> None:
        """`hard_limit`: none means that memory is never scarce, and is not measured; `soft_percentage` of it is the
        soft limit; `read` takes a sample."""
        self._clock = clock
        self._warn_percentage = warn_percentage
        self._read = read
        self._last = MemoryReading(hard=hard_limit, soft=int((hard_limit or 0) * soft_percentage / 100))
        self._lock = threading.Lock()
        self._sampled: float | None = None
        self._has_warned = False

    @property
    def last(self) -> MemoryReading:
        return self._last

    def use(self) -> MemoryReading:
        """Return the use of memory, as of at most `SAMPLE_SECONDS` ago."""
        if self._last.hard is None:
            return self._last
        with self._lock:
            now = self._clock.monotonic()
            if self._sampled is None or now - self._sampled >= SAMPLE_SECONDS:
                self._sampled = now
                self._last = replace(self._last, used=self._read())
                self._warn()
            return self._last

    def read(self) -> int:
        """Take a sample of the bytes in use now."""
        return self._read()

    def _warn(self) -> None:
        """Warn once for each time that memory comes so near to its limit."""
        is_near = self._last.percent >= self._warn_percentage
        if is_near and not self._has_warned:
            used, limit = show_bytes(self._last.used), show_bytes(self._last.hard or 0)
            _log.warning("memory_near_limit", used=used, limit=limit, percent=f"{self._last.percent:.1f}")
        self._has_warned = is_near


class ProcessMemory:
    """Resident bytes of this process and of all below it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._own = psutil.Process(os.getpid())
        self._children: list[psutil.Process] = []
        self._listed_at: float | None = None

    def __call__(self) -> int:
        now = self._clock.monotonic()
        if self._listed_at is None or now - self._listed_at >= CHILDREN_SECONDS:
            self._listed_at = now
            self._children = self._own.children(recursive=True)
        return _resident(self._own) + sum(map(_resident, self._children))


def limit_of(hard_bytes: int) -> int | None:
    """Return the limit of the setting: 0 is four fifths of what the machine, or the container, has; negative is no
    limit."""
    if hard_bytes < 0:
        return None
    return hard_bytes or int(machine_bytes() * LIMIT_SHARE)


def machine_bytes() -> int:
    """Return the most memory that this process can have."""
    total = int(psutil.virtual_memory().total)
    try:
        text = _CGROUP_LIMIT.read_text().strip()
    except OSError:
        # Not in a container, or one of another kind.
        return total
    return min(total, int(text)) if text.isdigit() else total


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        # It ended since it was found.
        return 0
