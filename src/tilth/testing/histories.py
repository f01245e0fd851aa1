"""A store that loses the end of its history, as a database that fails over to a standby that lags.

Tests: tests/unit/membership/test_lost_histories.py.
"""

from __future__ import annotations

from dataclasses import replace

from tilth.base.errors import UnavailableError
from tilth.catalog import DelegatingKV, MemoryKV
from tilth.catalog.kv import Versioned


class LaggingStandbyKV(DelegatingKV):
    """A store in memory with a standby, which has the state of the last `replicate`."""

    def __init__(self) -> None:
        super().__init__(MemoryKV())
        self._standby: list[tuple[bytes, Versioned]] = []
        #: Number of calls of `confirm`.
        self.confirmed = 0
        #: `True` makes `confirm` fail.
        self.is_unconfirmed = False

    def replicate(self) -> None:
        """Copy the present state to the standby."""
        self._standby = list(self._inner.scan(b"", None))

    def fail_over(self, *, opened_ms: int = 0) -> None:
        """Continue with the state of the standby, in the next incarnation."""
        now, promoted = self.incarnation, MemoryKV()
        promoted.incarnation = replace(now, number=now.number + 1, token=str(now.number), opened_ms=opened_ms)
        promoted.restore(self._standby, sequence=promoted.incarnation.version_floor)
        self._inner = promoted

    def confirm(self) -> None:
        self.confirmed += 1
        if self.is_unconfirmed:
            raise UnavailableError("no standby has it yet")
