"""Routines: work of one table that comes due by time or news and makes no parts, as the manager sees it.

Covers: the switch, one round after the other, failures, status. Does not cover: what a round does (gc/, copies/).
Always holds: one round at a time; what failed waits and is reported.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.base.retry import Retry
from tilth.catalog import Catalog
from tilth.maintenance.op import NotPrepared, OpKind, OpStats, Prepared, op_name
from tilth.maintenance.state import FAR_MS, Failure, ServiceWork, failed_again, is_failure, rule_of, service_status
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.watch import TableWatch
from tilth.model.part import PartEvent
from tilth.model.service import ServiceState

_log = Log("maintenance")


class Routine(Protocol):
    """The routine of one of these ops; everything here is called by any thread."""

    kind: OpKind

    def due_ms(self) -> int:
        """Return when the next round is due; FAR_MS: something has to happen first."""

    def observe(self, event: PartEvent, partition: str) -> bool:
        """A line of the part log about the table; whether it changes what is due."""

    def schedule(self, at_ms: int) -> None:
        """Something may have happened that was not reported: the catalog is asked then, if not before."""

    def poll(self, now_ms: int) -> None:
        """Ask, if it is time to: a cheap read that leaves nothing pending where there is nothing."""

    def about(self) -> str:
        """Describe what the next round is about."""

    def waits(self) -> str:
        """Describe what waits for its time; empty where nothing does."""


@dataclass(frozen=True, slots=True)
class RoutineTable:
    """One table as its routines see it."""

    context: TableContext
    is_cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def clock(self) -> Clock:
        return self.context.server.clock

    @property
    def catalog(self) -> Catalog:
        return self.context.server.catalog

    @property
    def watch(self) -> TableWatch:
        return self.context.watch

    @property
    def uuid(self) -> str:
        return self.watch.uuid


class RoutineOp(ABC):
    """`tilth.maintenance.op.Op` for one routine; a kind of routine says what it is worth and what a round is."""

    # A round's commits are decided by the round.
    has_unknown = False

    def __init__(self, routine: Routine, context: TableContext, is_cancelled: threading.Event) -> None:
        self.kind = routine.kind
        self.routine = routine
        self.context = context
        self.is_cancelled = is_cancelled
        self._clock = context.server.clock
        self._switched_off_by = context.switched_off_by(routine.kind)
        self._running = 0
        self._failure: Failure | None = None
        #: A round that was out of date is not repeated before.
        self._rests_until_ms = 0
        #: Reason why the last round left something.
        self.last_reason = ""
        #: Rounds so far, and when the last one was.
        self.wakeups = 0
        self.last_wakeup_ms = 0

    def begin(self, now_ms: int) -> None:  # noqa: B027  # most have nothing to do
        """Do what comes before the first look."""

    def held_back(self) -> str:
        """Return why no background round may run now, even if one is due; empty: it may run."""
        return ""

    @abstractmethod
    def benefit(self) -> OpStats:
        """Return the statistics of a round that could run now."""

    @abstractmethod
    def round(self) -> str:
        """Do one round of the background; return what was done."""

    @property
    def table(self) -> str:
        return self.context.watch.name

    @property
    def name(self) -> str:
        return op_name(self.kind, self.table)

    @property
    def running(self) -> int:
        """Rounds under way: 0 or 1."""
        return self._running

    @property
    def due_ms(self) -> int:
        if self._switched_off_by:
            return FAR_MS
        return max(self.routine.due_ms(), self._rests_until_ms, 0 if self._failure is None else self._failure.until_ms)

    def observe(self, event: PartEvent, partition: str) -> None:
        if self.routine.observe(event, partition):
            self.context.watch.is_woken = True

    def notice_all(self) -> None:
        now_ms = self._clock.now_ms()
        self.routine.schedule(now_ms)
        self._rests_until_ms = 0
        if self._failure is not None and self._failure.at_ms > now_ms:
            # The failure was recorded by a clock that was ahead: its backoff would end only at that time.
            self._failure = None
        self.context.watch.is_woken = True

    def cancel(self) -> None:
        self.is_cancelled.set()

    def cancel_partition(self, partition: str | None) -> int:
        """None: a round takes nothing that anybody waits for."""
        return 0

    def stats(self) -> OpStats | None:
        if self.is_cancelled.is_set():
            return None
        now_ms = self._clock.now_ms()
        if not self.context.watch.is_on(self.kind.traits.service, now_ms):
            return OpStats.idle("stopped by the user")
        if self._switched_off_by:
            return OpStats.idle(f"{self._switched_off_by} is off")
        if self._failure is not None and now_ms < self._failure.until_ms:
            return OpStats.idle(f"failed: {self._failure.reason}")
        if now_ms < self._rests_until_ms:
            return OpStats.idle("the last round was out of date")
        if self._running:
            return OpStats.idle("a round is running")
        self.begin(now_ms)
        self.routine.poll(now_ms)
        if self.routine.due_ms() > now_ms:
            return OpStats.idle(self.routine.waits() or "nothing is due")
        if reason := self.held_back():
            return OpStats.idle(reason)
        return self.benefit()

    def prepare(self) -> Prepared | NotPrepared:
        if self._running or self.routine.due_ms() > self._clock.now_ms():
            return NotPrepared("nothing is due")
        self._running = 1
        return Prepared(about=self.routine.about(), work=None)

    def abandon(self, prepared: Prepared) -> None:
        self._running = 0

    def perform(self, prepared: Prepared) -> str:
        self.wakeups += 1
        self.last_wakeup_ms = self._clock.now_ms()
        try:
            return self.round()
        # Whatever it was, it stands in `system.bg_threads` and waits before the next try.
        except Exception as error:
            self.failed(error)
            # What was due and not done is due again.
            self.routine.schedule(self.last_wakeup_ms)
            raise
        finally:
            self._running = 0
            self.context.watch.is_woken = True

    def state(self, now_ms: int) -> tuple[ServiceState, str, Failure | None]:
        work = ServiceWork(
            running=self._running,
            waiting=int(not self._switched_off_by and self.routine.due_ms() <= now_ms),
            failure=self._failure,
            running_reason="a round is running",
            waiting_reason=self.held_back() or "a round is due and waits for a free thread",
            idle_reason=self.routine.waits() or self.last_reason,
        )
        if self._switched_off_by:
            return ServiceState.STOPPED, f"{self._switched_off_by} is off", self._failure
        return service_status(self.context.watch.switch(self.kind.traits.service, now_ms), work, now_ms=now_ms)

    def succeeded(self) -> None:
        """Forget the last failure."""
        self._failure = None

    def failed(self, error: Exception) -> None:
        """Note the failure by the rule of all background services; one that counts stands in `system.bg_threads` and
        waits."""
        if rule_of(error) is Retry.STOP:
            self.context.server.table_leases.lose(self.context.watch.uuid)
        failure = failed_again(self._failure, error, now_ms=self._clock.now_ms())
        if not is_failure(error):
            self._rests_until_ms = failure.until_ms
            _log.info("round_out_of_date", op=self.kind, table=self.table, reason=error)
            return
        self._failure = failure
        _log.warning("round_failed", op=self.kind, table=self.table, reason=error)
