"""Wait of a round for memory (docs/policies/throttling.md#memory).

Covers: the wait, and its reason for people. Does not cover: measuring memory, refusing other writers
(base/pressure.py).

Tests: tests/unit/ingest/service/test_service_memory.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tilth.base.clock import Clock
from tilth.base.memory import MemoryReading
from tilth.base.pressure import MemoryPressureError, reject_chance
from tilth.model.table import KafkaDef, full_name

#: Maximum wait of a round when memory is just below its hard limit.
MEMORY_WAIT_MS_MAX = 1000.0
#: Maximum wait of a round for memory; then its consumer is dispatched anew, after a back-off.
MEMORY_WAIT_SECONDS_MAX = 10.0
_MEMORY_POLL_SECONDS = 0.25


class MemoryWait:
    """Waits of the rounds of one Kafka table."""

    def __init__(self, clock: Clock, read: Callable[[], MemoryReading], stopping: threading.Event) -> None:
        """`stopping` ends a wait."""
        self._clock = clock
        self._read = read
        self._stopping = stopping
        #: Reason why rounds wait for memory; empty: they do not.
        self.reason = ""

    def wait(self, kafka: KafkaDef) -> float:
        """Wait while memory is over its hard limit; return for how many milliseconds the round waits where memory comes
        near it. Raises MemoryPressureError if that lasts.
        """
        until = self._clock.monotonic() + MEMORY_WAIT_SECONDS_MAX
        while True:
            reading = self._read()
            chance = reject_chance(reading)
            self.reason = f"slowed: memory is at {reading.percent:.0f} % of its limit" if chance else ""
            if chance < 1:
                return chance * MEMORY_WAIT_MS_MAX
            if self._stopping.is_set() or self._clock.monotonic() >= until:
                raise MemoryPressureError(
                    "the round waits for memory", table=full_name(kafka), percent=f"{reading.percent:.0f}"
                )
            self._clock.wait(self._stopping, _MEMORY_POLL_SECONDS)
