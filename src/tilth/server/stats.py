"""Counters of HTTP requests since the start.

Tests: tests/unit/server/test_app.py.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass, replace

#: Upper ends of the histogram of durations, in seconds; beyond the last one there is one more bucket.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Histogram of durations."""

    #: Counts of durations up to each of SECONDS and above the one before; the last one: above all.
    counts: tuple[int, ...] = (0,) * (len(SECONDS) + 1)
    seconds: float = 0.0

    def with_one(self, seconds: float) -> Durations:
        bucket = bisect_left(SECONDS, seconds)
        counts = tuple(count + (index == bucket) for index, count in enumerate(self.counts))
        return replace(self, counts=counts, seconds=self.seconds + seconds)


@dataclass(frozen=True, slots=True)
class Answered:
    """Labels by which answers are counted."""

    method: str
    #: The route's pattern, never a path: there are few of them. `-`: no route.
    route: str
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpStats:
    """Statistics of HTTP requests. A frozen snapshot."""

    #: Number of requests by their answers' labels.
    requests: dict[Answered, int]
    #: Time from a request's first byte to its answer's last, by route.
    durations: dict[str, Durations]
    #: Requests that are being answered now.
    running: int


class HttpCounters:
    """Counters of requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[Answered, int] = {}
        self._durations: dict[str, Durations] = {}
        self._running = 0

    def begin(self) -> None:
        with self._lock:
            self._running += 1

    def end(self, answered: Answered, seconds: float) -> None:
        with self._lock:
            self._running -= 1
            self._requests[answered] = self._requests.get(answered, 0) + 1
            self._durations[answered.route] = self._durations.get(answered.route, Durations()).with_one(seconds)

    def stats(self) -> HttpStats:
        with self._lock:
            return HttpStats(requests=dict(self._requests), durations=dict(self._durations), running=self._running)
