"""What each op said of itself when it was looked at last, and those that could not tell.

Covers: asking an op, the wait after a failure. Does not cover: when ops are asked (manager.py), failures of their runs,
which the ops remember. Always holds: one op that cannot tell holds nobody up.
"""

from __future__ import annotations

import threading

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.maintenance.op import Op, OpStats
from tilth.maintenance.state import Failure, failed_again

_NOT_LOOKED_AT = OpStats.idle("not looked at yet")

_log = Log("maintenance")


class Looks:
    """Of all ops of one manager. One thread asks, any thread may read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[Op, OpStats] = {}
        self._failures: dict[Op, Failure] = {}

    def ask(self, op: Op) -> OpStats:
        """What the op says now; it is left alone while it waits after a failure."""
        failure = self.failure(op)
        if failure is not None and self._clock.now_ms() < failure.until_ms:
            return OpStats.idle(f"failed: {failure.reason}")
        try:
            stats = op.stats() or OpStats.idle("cancelled")
        except TilthError as error:
            stats = OpStats.idle(f"failed: {self.failed(op, error).reason}")
        else:
            # One that is runnable has shown nothing yet: preparing it may fail again.
            if not stats.is_runnable:
                self.recovered(op)
        self.note(op, stats)
        return stats

    def note(self, op: Op, stats: OpStats) -> None:
        """What was added to its answer."""
        with self._lock:
            self._said[op] = stats

    def said(self, op: Op) -> OpStats:
        """The last answer."""
        with self._lock:
            return self._said.get(op, _NOT_LOOKED_AT)

    def failure(self, op: Op) -> Failure | None:
        with self._lock:
            return self._failures.get(op)

    def failed(self, op: Op, error: TilthError) -> Failure:
        """Looking at it or preparing it failed: the next try comes after a wait."""
        with self._lock:
            failure = failed_again(self._failures.get(op), error, now_ms=self._clock.now_ms())
            self._failures[op] = failure
        _log.warning("op_not_looked_at", op=op.name, reason=error)
        return failure

    def recovered(self, op: Op) -> None:
        with self._lock:
            self._failures.pop(op, None)

    def forget(self, op: Op) -> None:
        """Its table is gone."""
        with self._lock:
            self._failures.pop(op, None)
            self._said.pop(op, None)
