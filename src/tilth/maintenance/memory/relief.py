"""Memory given back under pressure: what this process and its JVM hold and do not use (docs/policies/scheduling.md).

Covers: when it is tried, the line in the decision log. Does not cover: what gives memory back
(storage/store/memory_release.py, the session), ops that free memory (manager/scheduler.py).
Always holds: one try at a time, on a thread of its own; after a try that gave little back the next one comes later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.base.memory import MemoryReading
from tilth.base.units import show_bytes

#: Between two tries; twice as long after each that gave back less than the share of the limit, up to the longest.
PERIOD_SECONDS = 30.0
PERIOD_SECONDS_MAX = 960.0
WORTH_SHARE = 0.01

_log = Log("maintenance")


class MemoryRelief:
    """The tries of one manager; `relieve` is for the manager's thread."""

    def __init__(
        self,
        clock: Clock,
        acts: Sequence[Callable[[], None]],
        *,
        read: Callable[[], int],
        pressure_percent: float,
        log: Callable[[str], None],
    ) -> None:
        """`acts` give memory back; `read` returns the bytes in use; `log` takes what came of a try."""
        self._clock = clock
        self._acts = list(acts)
        self._read = read
        self._pressure_percent = pressure_percent
        self._write = log
        self._period = PERIOD_SECONDS
        self._next_at = 0.0
        self._thread: threading.Thread | None = None

    def add(self, act: Callable[[], None]) -> None:
        self._acts.append(act)

    def relieve(self, memory: MemoryReading) -> None:
        """Begin a try where memory is under pressure and the time has come."""
        if memory.hard is None or memory.percent < self._pressure_percent:
            return
        if self._clock.monotonic() < self._next_at or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._try, args=(memory, memory.hard), name="tilth-memory", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for a try under way."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _try(self, memory: MemoryReading, limit: int) -> None:
        for act in self._acts:
            try:
                act()
            # Errors of the JVM too, which may be away: relief is worth a try, and no more.
            except Exception as error:
                _log.warning("memory_not_released", error=error)
        after = self._read()
        freed = memory.used - after
        self._period = PERIOD_SECONDS if freed >= WORTH_SHARE * limit else min(2 * self._period, PERIOD_SECONDS_MAX)
        self._next_at = self._clock.monotonic() + self._period
        text = (
            f"under memory pressure ({memory.percent:.2f}% used), {show_bytes(max(0, freed))} that nobody used were "
            f"given back, {show_bytes(after)} are in use; the next try is in {self._period:.0f} s at the earliest"
        )
        self._write(text)
