"""A clock that stands still until it is moved.

Tests: tests/unit/catalog/commit/test_commit_locks.py.
"""

from __future__ import annotations

import threading

#: 2026-01-01T00:00:00Z
START_MS = 1_767_225_600_000


class ManualClock:
    """Time as a value that a test sets. Sleeping moves it on and returns at once."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._changed = threading.Condition()
        self._now_ms = float(now_ms)
        self._monotonic = 0.0

    def now_ms(self) -> int:
        with self._changed:
            return int(self._now_ms)

    def monotonic(self) -> float:
        with self._changed:
            return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set, or until another thread has advanced the clock enough; move nothing itself."""
        with self._changed:
            end = self._monotonic + seconds
            while not event.is_set() and self._monotonic < end:
                # Events cannot wake a condition, so it looks again every few milliseconds of real time.
                self._changed.wait(0.005)
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Advance both clocks and wake threads that wait for that."""
        assert seconds >= 0
        with self._changed:
            self._now_ms += seconds * 1000
            self._monotonic += seconds
            self._changed.notify_all()

    def set_now_ms(self, now_ms: int) -> None:
        """Set the wall clock alone, backwards too, as an administrator or NTP may."""
        with self._changed:
            self._now_ms = float(now_ms)
            self._changed.notify_all()
