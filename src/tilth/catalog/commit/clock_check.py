"""Checks that the clock of this machine is right, before anything is committed or removed by its time.

Covers: the last comparison with the clock of the catalog's database, jumps since then, and jumps on a single node,
which has no other clock to compare with. Does not cover: comparing (tilth.membership), hybrid times
(records/hybrid_clock.py).
Always holds: a jump of the wall clock is detected at the next check, by the monotonic clock, without waiting for the
next comparison with the database.

Tests: tests/unit/membership/test_ended_servers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilth.base.clock import Clock
from tilth.base.hybrid import milliseconds
from tilth.base.logs import Log
from tilth.catalog.errors import CLOCK_HINT, ClockSkewError
from tilth.catalog.kv import TimeReached

#: On a single node, a greater jump ahead is treated as a fault for `QUARANTINE_SECONDS`.
JUMP_MS_MAX = 60_000.0
#: Time after a jump or an absence during which a single node removes nothing because of its age.
QUARANTINE_SECONDS = 3600.0
#: A single node whose newest record is older than this at its start may have a wrong clock.
ABSENCE_MS_MAX = 86_400_000

_log = Log("catalog")


@dataclass(frozen=True, slots=True)
class _Reading:
    """Both clocks at one time."""

    now_ms: int
    monotonic: float


class ClockCheck:
    """`catalog.clock_check`. For any thread."""

    def __init__(self, clock: Clock, *, server: Callable[[], str]) -> None:
        self._clock = clock
        self._server = server
        self._reading = self._read()
        #: Greatest difference allowed to the database's clock; None on a single node, which has no other clock.
        self._bound_ms: float | None = None
        self._error: ClockSkewError | None = None
        self._quarantine_until = 0.0
        self._quarantine_reason = ""

    def preconditions(self, ts: int) -> list[TimeReached]:
        """Return the precondition that a hybrid time is at most the bound ahead of the database's clock; none on a
        single node.
        """
        if self._bound_ms is None:
            return []
        return [TimeReached(milliseconds(ts) - round(self._bound_ms))]

    def compare(self, offset_ms: float, *, doubt_ms: float, bound_ms: float) -> ClockSkewError | None:
        """Record by how many milliseconds the clock is ahead of the database's, known within `doubt_ms`; return the
        error where that exceeds `bound_ms`.
        """
        error = None
        if abs(offset_ms) - doubt_ms > bound_ms:
            error = ClockSkewError(
                server=self._server(), offset_ms=round(offset_ms), bound_ms=round(bound_ms), hint=CLOCK_HINT
            )
        self._bound_ms, self._error, self._reading = bound_ms, error, self._read()
        return error

    def alone(self, newest_ms: int) -> None:
        """Record that there is no other clock; `newest_ms` is the newest time in the catalog."""
        away_ms = self._clock.now_ms() - newest_ms
        if newest_ms and away_ms > ABSENCE_MS_MAX:
            self._begin_quarantine(f"the newest record of the catalog is {away_ms / 3_600_000:.0f} hours old")

    def error(self) -> ClockSkewError | None:
        """Return why nothing may be committed with this machine's time; None: commits are allowed."""
        if self._bound_ms is None or self._error is not None:
            return self._error
        jump_ms = self._jump_ms()
        if abs(jump_ms) <= self._bound_ms:
            return None
        return ClockSkewError(
            "the clock of this server has jumped since it was compared with the database's",
            server=self._server(),
            jump_ms=round(jump_ms),
            bound_ms=round(self._bound_ms),
            hint="it is compared again within a second",
        )

    def check_removal(self) -> None:
        """Make sure that something may be removed because of its age. Raises ClockSkewError."""
        error = self.removal_error()
        if error is not None:
            raise error

    def removal_error(self) -> ClockSkewError | None:
        """Return why nothing may be removed because of its age; None: removals are allowed."""
        error = self.error()
        if error is not None or self._bound_ms is not None:
            return error
        jump_ms = self._jump_ms()
        self._reading = self._read()
        if jump_ms > JUMP_MS_MAX:
            self._begin_quarantine(f"the clock of this machine has jumped {jump_ms / 1000:.0f} s ahead")
        left = self._quarantine_until - self._clock.monotonic()
        if left <= 0:
            return None
        return ClockSkewError(
            "nothing is removed for its age until the clock had time to be set right",
            reason=self._quarantine_reason,
            seconds_left=round(left),
            hint="check the date of this machine",
        )

    def _begin_quarantine(self, reason: str) -> None:
        self._quarantine_until = self._clock.monotonic() + QUARANTINE_SECONDS
        self._quarantine_reason = reason
        _log.warning("clock_in_doubt", reason=reason, seconds=QUARANTINE_SECONDS)

    def _jump_ms(self) -> float:
        """Return by how many milliseconds more the wall clock has advanced than the monotonic one."""
        then, now = self._reading, self._read()
        return (now.now_ms - then.now_ms) - (now.monotonic - then.monotonic) * 1000

    def _read(self) -> _Reading:
        return _Reading(self._clock.now_ms(), self._clock.monotonic())
