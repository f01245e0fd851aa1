"""The shell of all collecting, as the manager sees it: `GcOp(duty, table)`; when a round is due, and how it ends.

Covers: the switch, one round after the other, failures, status, commands. Does not cover: what a round does
(part_gc.py, log_gc.py, history_gc.py, deleted_part_gc.py).
Always holds: one round at a time, of the background or of a command; what failed waits and is reported.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Protocol

from tilth.base.logs import Log
from tilth.base.retry import Retry
from tilth.maintenance.gc.round import GcTable, Round
from tilth.maintenance.op import IoUsage, NotPrepared, OpKind, OpStats, Prepared, op_name
from tilth.maintenance.state import FAR_MS, Failure, ServiceWork, failed_again, is_failure, rule_of, service_status
from tilth.maintenance.stats import GcReport
from tilth.model.part import PartEvent
from tilth.model.service import ServiceKind, ServiceState

#: The first look at a table comes some time within this, and within so much for each table of the server.
FIRST_LOOK_MS = 20_000
FIRST_LOOK_MS_PER_TABLE = 60

_log = Log("maintenance")


class GcDuty(Protocol):
    """The duty of one of these ops. `run` is called by one thread at a time, everything else by any."""

    kind: OpKind

    @property
    def io(self) -> IoUsage:
        """Return what the next round costs."""

    def due_ms(self) -> int:
        """Return when the next round is due; FAR_MS: something has to happen first."""

    def observe(self, event: PartEvent, partition: str) -> bool:
        """A line of the part log about the table; whether it changes what is due."""

    def ask(self, at_ms: int) -> None:
        """Something may have happened that was not reported: the catalog is asked then, if not before."""

    def look(self, now_ms: int) -> None:
        """Ask, if it is time to: a cheap read that leaves nothing pending where there is nothing."""

    def retained(self) -> int:
        """Bytes that are known to wait for the next round."""

    def run(self, done: Round) -> str:
        """One round over what is due; of a command over everything. Returns what was done."""

    def about(self) -> str:
        """Describe what the next round is about."""

    def waits(self) -> str:
        """Describe what waits for its time; empty where nothing does."""


class GcOp:
    """`tilth.maintenance.op.Op` for one duty."""

    service = ServiceKind.GC
    #: A round's commits are decided by the round.
    has_unknown = False

    def __init__(self, duty: GcDuty, table: GcTable) -> None:
        self.kind = duty.kind
        self._clock = table.clock
        self._duty = duty
        self._table = table
        self._switched_off_by = table.context.switched_off_by(duty.kind)
        self._counters = table.context.server.counters
        self._table_count = table.context.server.table_count
        self._has_begun = False
        self._round = threading.Lock()
        self._running = 0
        self._failure: Failure | None = None
        #: A round that was out of date is not repeated before.
        self._rests_until_ms = 0
        self._last_reason = ""
        #: Rounds so far, and when the last one was.
        self.wakeups = 0
        self.last_wakeup_ms = 0

    @property
    def table(self) -> str:
        return self._table.watch.name

    @property
    def name(self) -> str:
        return op_name(self.kind, self._table.watch.name)

    @property
    def running(self) -> int:
        """Rounds under way: 0 or 1."""
        return self._running

    @property
    def due_ms(self) -> int:
        if self._switched_off_by:
            return FAR_MS
        return max(self._duty.due_ms(), self._rests_until_ms, 0 if self._failure is None else self._failure.until_ms)

    def observe(self, event: PartEvent, partition: str) -> None:
        if self._duty.observe(event, partition):
            self._table.watch.is_woken = True

    def notice_all(self) -> None:
        self._duty.ask(self._clock.now_ms())
        self._table.watch.is_woken = True

    def cancel(self) -> None:
        self._table.is_cancelled.set()

    def cancel_partition(self, partition: str | None) -> int:
        """None: a round takes nothing that anybody waits for."""
        return 0

    def stats(self) -> OpStats | None:
        if self._table.is_cancelled.is_set():
            return None
        now_ms = self._clock.now_ms()
        if not self._table.watch.is_on(self.service, now_ms):
            return OpStats.idle("stopped by the user")
        if self._switched_off_by:
            return OpStats.idle(f"{self._switched_off_by} is off")
        if self._failure is not None and now_ms < self._failure.until_ms:
            return OpStats.idle(f"failed: {self._failure.reason}")
        if now_ms < self._rests_until_ms:
            return OpStats.idle("the last round was out of date")
        if self._running:
            return OpStats.idle("a round is running")
        self._begin(now_ms)
        self._duty.look(now_ms)
        if self._duty.due_ms() > now_ms:
            return OpStats.idle(self._duty.waits() or "nothing is due")
        # How much is known after the look only; something is enough to be considered.
        size = max(1, self._duty.retained())
        is_log = self.kind is OpKind.LOG_GC
        return OpStats(
            is_runnable=True,
            io=self._duty.io,
            logs_retained_bytes=size if is_log else 0,
            data_retained_bytes=0 if is_log else size,
            priority=self._table.watch.settings.priority,
            about=self._duty.about(),
        )

    def _begin(self, now_ms: int) -> None:
        """Begin once: a table that was never used is not looked at until something is reported of it."""
        if self._has_begun:
            return
        if self._table.catalog.parts.version(self._table.uuid).counter > 0:
            within_ms = max(FIRST_LOOK_MS, self._table_count() * FIRST_LOOK_MS_PER_TABLE)
            self._duty.ask(now_ms + int(self._table.rng.random() * within_ms))
        self._has_begun = True

    def prepare(self) -> Prepared | NotPrepared:
        if self._running or self._duty.due_ms() > self._clock.now_ms():
            return NotPrepared("nothing is due")
        self._running = 1
        return Prepared(about=self._duty.about(), work=None)

    def abandon(self, prepared: Prepared) -> None:
        self._running = 0

    def perform(self, prepared: Prepared) -> str:
        self.wakeups += 1
        self.last_wakeup_ms = self._clock.now_ms()
        done = Round(settings=self._table.settings)
        try:
            report = self._run(done)
            if not any(map(is_failure, done.failures)):
                self._failure = None
            return report
        # Whatever it was, it stands in `system.bg_threads` and waits before the next try.
        except Exception as error:
            self._failed(error)
            # What was due and not done is due again.
            self._duty.ask(self.last_wakeup_ms)
            raise
        finally:
            self._last_reason = done.reason
            self._running = 0
            self._table.watch.is_woken = True

    def state(self, now_ms: int) -> tuple[ServiceState, str, Failure | None]:
        work = ServiceWork(
            running=self._running,
            waiting=int(not self._switched_off_by and self._duty.due_ms() <= now_ms),
            failure=self._failure,
            running_reason="a round is running",
            waiting_reason="a round is due and waits for a free thread",
            idle_reason=self._duty.waits() or self._last_reason,
        )
        if self._switched_off_by:
            return ServiceState.STOPPED, f"{self._switched_off_by} is off", self._failure
        return service_status(self._table.watch.switch(self.service, now_ms), work, now_ms=now_ms)

    def run_now(self, partition: str | None = None, *, is_forced: bool = False) -> GcReport:
        """A round over the table or one partition at once, as far as readers and transactions allow.

        `is_forced` takes lifetimes and history for 0.
        """
        settings = self._table.settings
        if is_forced:
            settings = replace(settings, old_parts_lifetime=0.0, trash_lifetime=0.0, history=0.0)
        done = Round(settings=settings, partition=partition, is_command=True)
        self._run(done)
        return done.report()

    def _run(self, done: Round) -> str:
        try:
            with self._round, self._counters.run(self.kind):
                return self._duty.run(done)
        finally:
            self._counters.freed(self.kind, done.report())
            for error in done.failures:
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Note the failure by the rule of all background services; one that counts stands in `system.bg_threads` and
        waits."""
        if rule_of(error) is Retry.STOP:
            self._table.table_leases.lose(self._table.uuid)
        failure = failed_again(self._failure, error, now_ms=self._clock.now_ms())
        if not is_failure(error):
            self._rests_until_ms = failure.until_ms
            _log.info("gc_out_of_date", op=self.kind, table=self.table, reason=error)
            return
        self._failure = failure
        _log.warning("gc_failed", op=self.kind, table=self.table, reason=error)
