"""Memory in use and its limits, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """Bytes in use and the two limits."""

    used: int = 0
    #: Hard limit, from which on every write is refused; None: there is no limit.
    hard: int | None = None
    #: Soft limit, from which on some are refused.
    soft: int = 0

    @property
    def percent(self) -> float:
        return self.used * 100 / self.hard if self.hard else 0.0
