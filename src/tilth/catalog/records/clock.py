"""The hybrid clock: where transaction ids, block ids and commit timestamps come from.

Always holds: no two answers are equal, each is greater than the ones before, none lies before an observed time; ids
that servers of one catalog draw at once are distinct, for each has a number of its own.
"""

from __future__ import annotations

import threading

from tilth.base.clock import Clock
from tilth.base.hybrid import next_after
from tilth.model.server import SERVERS_MAX


class HybridClock:
    """Unique, rising hybrid times over a wall clock that may stand still or go back."""

    def __init__(self, clock: Clock, number: int = 0) -> None:
        """`number` is of no other server of the catalog that lives."""
        assert 0 <= number < SERVERS_MAX
        self._clock = clock
        self.number = number
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

    def new_id(self) -> int:
        """A new time that no other server draws as an id."""
        # Of as many consecutive times one has this server's number as its remainder.
        first = self.reserve(SERVERS_MAX)
        return first + (self.number - first) % SERVERS_MAX

    def observe(self, ts: int) -> None:
        """Never return this time or an earlier one from now on."""
        with self._lock:
            self._last = max(self._last, ts)
