"""Counters of what maintenance has done since the start, for metrics.

Covers: counting. Does not cover: single runs, which the manager remembers, and what is true of a table (catalog).
Always holds: the numbers only grow, but for those under way; a table that goes takes none of them with it.

Tests: tests/unit/maintenance/gc/test_log_gc.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy

from tilth.base.clock import Clock
from tilth.maintenance.kinds import OpKind
from tilth.maintenance.stats import MaintenanceNumbers


class MaintenanceCounters:
    """The numbers of one manager. Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = MaintenanceNumbers()

    @contextmanager
    def run(self, kind: OpKind) -> Iterator[None]:
        """Count the work inside as one run, however it ends; of the background or of a command."""
        started = self._clock.monotonic()
        with self._lock:
            count = self._numbers.ops[kind]
            count.running += 1
        try:
            yield
        finally:
            with self._lock:
                count.running -= 1
                count.add((self._clock.monotonic() - started) * 1000)

    @contextmanager
    def adding(self) -> Iterator[MaintenanceNumbers]:
        """Give the numbers to a caller that adds to them, under the lock."""
        with self._lock:
            yield self._numbers

    def numbers(self, waiting: Mapping[OpKind, int]) -> MaintenanceNumbers:
        """Return a copy; `waiting`: bytes now, by the kind of op that processes them."""
        with self._lock:
            found = deepcopy(self._numbers)
        for kind, size in waiting.items():
            found.ops[kind].waiting_bytes = size
        return found
