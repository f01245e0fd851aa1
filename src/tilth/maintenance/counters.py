"""Counters of what maintenance has done since the start, for metrics.

Covers: counting. Does not cover: single runs, which the manager remembers, and what is true of a table (catalog).
Always holds: the numbers only grow, but for those under way; a table that goes takes none of them with it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy

from tilth.base.clock import Clock
from tilth.maintenance.op import OpKind
from tilth.maintenance.stats import GcReport, MaintenanceNumbers


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

    def freed(self, kind: OpKind, report: GcReport) -> None:
        """Count a round of collecting, also one that broke off."""
        with self._lock:
            self._numbers.expired += report.expired
            self._numbers.ops[kind].removed_bytes += report.removed_bytes
            # Parts without rows are hidden first, and removed by PART_GC.
            if kind is not OpKind.DELETED_PART_GC:
                self._numbers.moved += report.moved
                self._numbers.removed += report.removed
                self._numbers.removed_bytes += report.removed_bytes

    def flushed(self, size: int) -> None:
        with self._lock:
            self._numbers.flushed_bytes += size

    def copied(self, size: int) -> None:
        with self._lock:
            self._numbers.copied_bytes += size

    def scrubbed(self, size: int, wrong: int) -> None:
        """Count what a round has read, and the copies that were not what was written."""
        with self._lock:
            self._numbers.scrubbed_bytes += size
            self._numbers.wrong_copies += wrong

    def chose(self, seconds: float) -> None:
        """Add the seconds of one observation with its choice or refusal."""
        with self._lock:
            self._numbers.choices += 1
            self._numbers.choosing_microseconds += seconds * 1e6

    def prepare_failed(self) -> None:
        """Count a chosen op that had nothing to do any more, or could not be prepared."""
        with self._lock:
            self._numbers.prepare_failed += 1

    def numbers(self, waiting: Mapping[OpKind, int]) -> MaintenanceNumbers:
        """Return a copy; `waiting`: bytes now, by the kind of op that processes them."""
        with self._lock:
            found = deepcopy(self._numbers)
        for kind, size in waiting.items():
            found.ops[kind].waiting_bytes = size
        return found
