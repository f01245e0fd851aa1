"""The hybrid clock: where transaction ids, block ids and commit timestamps come from.

Always holds: no two answers are equal, each is greater than the ones before, none lies before an observed time.
"""

from __future__ import annotations

import threading

from tilth.base.clock import Clock
from tilth.base.hybrid import next_after


class HybridClock:
    """Unique, rising hybrid times over a wall clock that may stand still or go back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = 0

    def now(self) -> int:
        return self.reserve(1)

    def reserve(self, count: int, *, after: int = 0) -> int:
        """The first of `count` consecutive new times, all of them greater than `after`."""
        assert count > 0
        with self._lock:
            first = next_after(now_ms=self._clock.now_ms(), last=max(self._last, after))
            self._last = first + count - 1
            return first

    def observe(self, ts: int) -> None:
        """Never return this time or an earlier one from now on."""
        with self._lock:
            self._last = max(self._last, ts)
