"""Memory against its limits: how likely a write is refused, and the refusal (docs/policies/throttling.md#memory).

Covers: the formula, the gate that writers pass, a budget of bytes that requests share. Does not cover: measuring memory
(maintenance/memory/meter.py), freeing it. Always holds: below the soft limit nothing is refused, above the hard one
everything; a refusal applies nothing and may be tried again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilth.base.errors import RetryError
from tilth.base.memory import MemoryReading
from tilth.base.rand import Rng
from tilth.base.units import show_bytes

_HINT = "try again soon; system.bg_threads and /maintenance-manager show what frees memory"


class MemoryPressureError(RetryError):
    """rejecting write request: soft memory limit exceeded"""

    code = "MEMORY_PRESSURE"


def reject_chance(reading: MemoryReading) -> float:
    """Return the probability that a write is refused: 0 below the soft limit, 1 above the hard one, in between in
    proportion.

    Limits that are equal leave only the hard one. docs/policies/throttling.md#memory.
    """
    used, hard, soft = reading.used, reading.hard, reading.soft
    if hard is None or used < soft:
        return 0.0
    if used > hard:
        return 1.0
    return (used - soft) / (hard - soft) if hard > soft else 0.0


def describe_pressure(reading: MemoryReading) -> str:
    """Describe the effect on writers, with the settings that decide it; empty while there is none."""
    chance = reject_chance(reading)
    if not chance:
        return ""
    what = "every write is refused" if chance == 1 else f"{chance:.0%} of writes are refused, rounds of consumers wait"
    return (
        f"{what}: {show_bytes(reading.used)} are in use, {reading.percent:.0f} % of memory_limit_hard_bytes = "
        f"{show_bytes(reading.hard or 0)}; from {show_bytes(reading.soft)} on by memory_limit_soft_percentage"
    )


class MemoryGate:
    """Gate that writers pass before they write; from any thread."""

    def __init__(self, read: Callable[[], MemoryReading], rng: Rng) -> None:
        """`read` samples, or returns a sample that is recent enough."""
        self._read = read
        self._rng = rng
        self._lock = threading.Lock()
        self._rejections = 0

    @property
    def rejections(self) -> int:
        """Writes that were refused until now: `leader_memory_pressure_rejections`."""
        return self._rejections

    def read(self) -> MemoryReading:
        """The present reading, for writers that wait instead of being refused."""
        return self._read()

    def check(self) -> None:
        """Raises MemoryPressureError by chance, the likelier the less memory is left."""
        reading = self._read()
        chance = reject_chance(reading)
        with self._lock:
            if chance <= 0 or (chance < 1 and self._rng.random() >= chance):
                return
            self._rejections += 1
        raise MemoryPressureError(
            f"rejecting write request: soft memory limit exceeded (at {reading.percent:.1f}% of capacity)",
            used=show_bytes(reading.used),
            limit=show_bytes(reading.hard or 0),
            hint=_HINT,
        )


class MemoryShare:
    """Bytes that one request has reserved of a budget."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._users = 0
        self.bytes = 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the bytes reserved meanwhile; the last user's end releases them. A thread that uses them is a user of
        its own, as the one that started it may end first.
        """
        with self._lock:
            if not self._users:
                self._budget.change(self.bytes)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._budget.change(-self.bytes)

    def grow_to(self, size: int) -> None:
        """Reserve so many bytes in all. Raises MemoryPressureError."""
        if size > self.bytes:
            self._budget.reserve(size - self.bytes, had=self.bytes)
            self.bytes = size


class MemoryBudget:
    """Bytes that requests hold together, up to a limit; from any thread."""

    def __init__(self, limit: int, *, free: int, what: str, setting: str) -> None:
        """`free`: bytes of a request that need nothing of the budget. `what` the bytes are, for messages."""
        self.limit = limit
        self._free = free
        self._what = what
        self._setting = setting
        self._lock = threading.Lock()
        self._used = 0
        self._refused = 0

    @property
    def used(self) -> int:
        return self._used

    @property
    def refused(self) -> int:
        return self._refused

    @contextmanager
    def share(self) -> Iterator[MemoryShare]:
        """Yield a share of the budget. At the end, its bytes are released, unless a thread still uses it."""
        share = MemoryShare(self)
        with share.in_use():
            yield share

    def change(self, size: int) -> None:
        """Add the bytes of a share that is in use again, or subtract those of a share that has no user any more."""
        with self._lock:
            self._used += size

    def reserve(self, more: int, *, had: int) -> None:
        """Raises MemoryPressureError, unless the request is small or the only one."""
        with self._lock:
            is_alone = self._used == had
            if had + more <= self._free or is_alone or self._used + more <= self.limit:
                self._used += more
                return
            self._refused += 1
        raise MemoryPressureError(
            f"rejecting request: the memory for {self._what} is in use",
            used=show_bytes(self._used),
            asked=show_bytes(had + more),
            limit=show_bytes(self.limit),
            hint=f"send it again later, or in smaller pieces; the limit is the node's setting {self._setting}",
        )
