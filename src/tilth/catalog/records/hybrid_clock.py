"""The hybrid clock: where transaction ids, block ids and commit timestamps come from.

Always holds: no two answers are equal, each is greater than the ones before, none lies before an observed time; ids
are distinct among all processes that join one catalog, also from those of a process that others have ended without its
knowledge: each process that joins has a number of its own, which is assigned again only after NUMBERS others.

Tests: tests/unit/membership/test_ended_servers.py.
"""

from __future__ import annotations

import threading

from tilth.base.clock import Clock
from tilth.base.hybrid import next_after, pack
from tilth.model.server import NUMBERS


class HybridClock:
    """Unique, rising hybrid times over a wall clock that may stand still or go back."""

    def __init__(self, clock: Clock, number: int = 0) -> None:
        """`number` is this process's own among the last NUMBERS that have joined the catalog."""
        assert 0 <= number < NUMBERS
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
        """A new time that no other process draws as an id."""
        # Among NUMBERS consecutive times exactly one has this process's number as its remainder.
        first = self.reserve(NUMBERS)
        return first + (self.number - first) % NUMBERS

    def restart(self, *, after: int) -> None:
        """Continue after `after` and the wall clock, even below times that were drawn while that was wrong: their
        commits were refused.
        """
        with self._lock:
            # Times up to the current one may be in use: they are not drawn again.
            self._last = max(after, min(self._last, pack(self._clock.now_ms() + 1)))

    def observe(self, ts: int) -> None:
        """Never return this time or an earlier one from now on."""
        with self._lock:
            self._last = max(self._last, ts)
