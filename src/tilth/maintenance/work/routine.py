"""Routines: work of one table that comes due by time or news and makes no parts, as an op.

Covers: one round after the other, failures, status. Does not cover: what a round does (gc/, copies/).
Always holds: one round at a time; what failed waits and is reported.

Tests: tests/unit/maintenance/copies/test_replicate.py, tests/unit/maintenance/gc/test_log_gc.py.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from tilth.base.logs import Log
from tilth.base.retry import Retry
from tilth.maintenance.kinds import OpKind, OpStats, Prepared, Refused
from tilth.maintenance.state import Failure, ServiceWork, failed_again, is_failure, rule_of, standing
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.op import Op
from tilth.model.part import PartEvent

_log = Log("maintenance")


class Routine(Protocol):
    """The routine of one of these ops; everything here is called by any thread."""

    kind: OpKind

    def due_ms(self) -> int:
        """Return when the next round is due; NEVER_MS: something has to happen first."""

    def observe(self, event: PartEvent, partition: str) -> bool:
        """Note a line of the part log about the table; return true if it changes what is due."""

    def schedule(self, at_ms: int) -> None:
        """Query the catalog at that time, if not before: something may have happened that was not reported."""

    def poll(self, now_ms: int) -> None:
        """Query the catalog if it is time to: a cheap read that leaves nothing pending where there is nothing."""

    def about(self) -> str:
        """Describe what the next round is about."""

    def waits(self) -> str:
        """Describe what waits for its time; empty where nothing does."""


class RoutineOp(Op):
    """The op of one routine; a kind of routine says what it is worth and what a round is."""

    def __init__(self, routine: Routine, context: TableContext) -> None:
        super().__init__(context, routine.kind)
        self.routine = routine
        self._failure: Failure | None = None
        #: A round that was out of date is not repeated before.
        self._rests_until_ms = 0
        #: Reason why the last round left something.
        self.last_reason = ""

    def begin(self, now_ms: int) -> None:  # most have nothing to do
        """Do what comes before the first poll."""

    def held_back(self) -> str:
        """Return why no background round may run now, even if one is due; empty: it may run."""
        return ""

    @abstractmethod
    def benefit(self) -> OpStats:
        """Return the statistics of a round that could run now."""

    @abstractmethod
    def round(self) -> str:
        """Do one round of the background; return what was done."""

    def has_failure(self) -> bool:
        return self._failure is not None

    def next_due_ms(self) -> int:
        return max(self.routine.due_ms(), self._rests_until_ms, 0 if self._failure is None else self._failure.until_ms)

    def observe(self, event: PartEvent, partition: str) -> None:
        if self.routine.observe(event, partition):
            self.watch.is_woken = True

    def notice_all(self) -> None:
        now_ms = self._clock.now_ms()
        self.routine.schedule(now_ms)
        self._rests_until_ms = 0
        self._failure = standing(self._failure, now_ms)
        self.watch.is_woken = True

    def weigh(self, now_ms: int) -> OpStats:
        if self._failure is not None and now_ms < self._failure.until_ms:
            return OpStats.idle(f"failed: {self._failure.reason}")
        if now_ms < self._rests_until_ms:
            return OpStats.idle("the last round was out of date")
        if self.running:
            return OpStats.idle("a round is running")
        self.begin(now_ms)
        self.routine.poll(now_ms)
        if self.routine.due_ms() > now_ms:
            return OpStats.idle(self.routine.waits() or "nothing is due")
        if reason := self.held_back():
            return OpStats.idle(reason)
        return self.benefit()

    def prepare(self) -> Prepared | Refused:
        if self.running or self.routine.due_ms() > self._clock.now_ms():
            return Refused("nothing is due")
        self.running = 1
        return Prepared(about=self.routine.about(), work=None)

    def abandon(self, prepared: Prepared) -> None:
        self.running = 0

    def perform(self, prepared: Prepared) -> str:
        self.wakeups += 1
        self.last_wakeup_ms = self._clock.now_ms()
        try:
            return self.round()
        # Whatever it was, it stands in `system.bg_threads` and waits before the next try.
        except Exception as error:
            self.failed(error)
            # A round that was due and not done is due again.
            self.routine.schedule(self.last_wakeup_ms)
            raise
        finally:
            self.running = 0
            self.watch.is_woken = True

    def status(self, now_ms: int) -> ServiceWork:
        return ServiceWork(
            running=self.running,
            waiting=int(self.routine.due_ms() <= now_ms),
            failure=self._failure,
            running_reason="a round is running",
            waiting_reason=self.held_back() or "a round is due and waits for a free thread",
            idle_reason=self.routine.waits() or self.last_reason,
        )

    def succeeded(self) -> None:
        """Forget the last failure."""
        self._failure = None

    def failed(self, error: Exception) -> None:
        """Note the failure by the rule of all background services; one that counts stands in `system.bg_threads` and
        waits."""
        if rule_of(error) is Retry.STOP:
            self.context.server.table_leases.lose(self.watch.uuid)
        failure = failed_again(self._failure, error, now_ms=self._clock.now_ms())
        if not is_failure(error):
            self._rests_until_ms = failure.until_ms
            _log.info("round_out_of_date", op=self.kind, table=self.table, reason=error)
            return
        self._failure = failure
        _log.warning("round_failed", op=self.kind, table=self.table, reason=error)
