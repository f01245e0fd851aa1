"""An op: one kind of maintenance of one table, as the manager sees it.

Covers: what all ops have in common: the switch, the last poll, the state. Does not cover: ops that write parts
(part_work.py), ops that come due by time or news (routine.py), when an op is polled and run (maintenance/manager).

Tests: tests/unit/maintenance/manager/test_manager.py, tests/unit/maintenance/merge/test_op.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from tilth.maintenance.kinds import OpKind, OpStats, Prepared, Refused, op_name
from tilth.maintenance.state import NEVER_MS, Failure, ServiceWork, failed_status, service_status, standing
from tilth.maintenance.work.context import TableContext
from tilth.model.part import PartEvent
from tilth.model.service import ServiceState


class Op(ABC):
    """One kind of maintenance of one table. Several runs of it may be under way at once.

    `stats`, `prepare`, `abandon`, `observe` and `notice_all` are called on the manager's thread, `perform` on a thread
    of the run, all others on any.
    """

    def __init__(self, context: TableContext, kind: OpKind) -> None:
        self.kind = kind
        self.context = context
        self.watch = context.watch
        self._clock = context.server.clock
        self._switched_off_by = context.server.settings.switched_off_by(kind)
        #: Runs under way, commands among them.
        self.running = 0
        #: Number of refreshes or rounds, and the time of the last one; 0: not yet.
        self.wakeups = 0
        self.last_wakeup_ms = 0
        #: Statistics of the manager's last poll, and the failure of a poll or of preparing, after which the op waits.
        self.observed = OpStats.idle("not checked yet")
        self.poll_failure: Failure | None = None

    @property
    def table(self) -> str:
        """The table's full name."""
        return self.watch.name

    @property
    def name(self) -> str:
        """`KIND(table)`, see `op_name`."""
        return op_name(self.kind, self.watch.name)

    @property
    def is_cancelled(self) -> bool:
        """True if the table is gone or the server stops."""
        return self.watch.is_cancelled.is_set()

    @property
    def has_unknown(self) -> bool:
        """True if the outcome of a commit is unknown: it is resolved while the service is stopped, too."""
        return False

    @property
    def due_ms(self) -> int:
        """Return when `stats` may change, if nothing is noticed before; NEVER_MS: never."""
        if self.has_unknown:
            return 0
        return NEVER_MS if self._switched_off_by else self.next_due_ms()

    def stats(self) -> OpStats:
        """Estimate cheaply what could be gained."""
        if self.is_cancelled:
            return OpStats.idle("cancelled")
        self.resolve()
        now_ms = self._clock.now_ms()
        reason = f"{self._switched_off_by} is off" if self._switched_off_by else ""
        if not self.watch.is_on(self.kind.traits.service, now_ms):
            reason = "stopped by the user"
        if reason:
            self.stopped()
            return OpStats.idle(reason)
        stats = self.weigh(now_ms)
        return replace(stats, priority=self.watch.settings.priority) if stats.is_runnable else stats

    def state(self, now_ms: int) -> tuple[ServiceState, str, Failure | None]:
        """Return the content of `system.bg_threads`: the state, why, and the last failure that still stands."""
        work = self.status(now_ms)
        if self._switched_off_by:
            return ServiceState.STOPPED, f"{self._switched_off_by} is off", work.failure
        status = service_status(self.watch.switch(self.kind.traits.service, now_ms), work, now_ms=now_ms)
        poll_failure = standing(self.poll_failure, now_ms)
        if poll_failure is None or status[0] is ServiceState.STOPPED:
            return status
        return failed_status(poll_failure, now_ms)

    @property
    def has_failed(self) -> bool:
        """True if a failure of its own may stand, as `state` says in detail; damaged parts are those of the table."""
        return self.poll_failure is not None or self.has_failure()

    def cancel(self) -> None:
        """Begin nothing new and cancel running work: the table is gone or the server stops."""
        self.watch.is_cancelled.set()

    def cancel_partition(self, partition: str | None) -> int:
        """Cancel work in the partition; none means everywhere. Return the number of runs."""
        return 0

    def resolve(self) -> None:  # noqa: B027  # most have nothing to resolve
        """Repeat the commits whose outcome is unknown."""

    def stopped(self) -> None:  # noqa: B027  # most have nothing that waits
        """Let nothing wait for its turn: the op is switched off."""

    @abstractmethod
    def has_failure(self) -> bool:
        """Return whether work of the op has failed that was not done since."""

    @abstractmethod
    def observe(self, event: PartEvent, partition: str) -> None:
        """Note a line of the part log about this table."""

    @abstractmethod
    def notice_all(self) -> None:
        """Refresh everything: news were lost, or definition, settings or mutations have changed."""

    @abstractmethod
    def next_due_ms(self) -> int:
        """Return when `weigh` may say something new."""

    @abstractmethod
    def weigh(self, now_ms: int) -> OpStats:
        """Return the gain of the next run, or why there is none; its priority is added."""

    @abstractmethod
    def prepare(self) -> Prepared | Refused:
        """Reserve the work of one run; quick, on the manager's own thread."""

    @abstractmethod
    def perform(self, prepared: Prepared) -> str:
        """Do the work and release its inputs, also on failure; on a worker thread. Return what was done."""

    @abstractmethod
    def abandon(self, prepared: Prepared) -> None:
        """Release what was reserved for a run that will not happen."""

    @abstractmethod
    def status(self, now_ms: int) -> ServiceWork:
        """Return what runs and waits, in numbers and words."""
