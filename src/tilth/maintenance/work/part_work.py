"""The op of all work that writes files and commits: `PartWorkOp(context, planner, procedure)`.

Covers: outcomes that nobody knows, refreshes, reserving parts, running, what follows from the end of a run. Does not
cover: what is worth doing (the planner), what the work is (the procedure), one piece of work from files to commit
(attempt.py), the slot it runs in (the manager).
Always holds: a part is reserved by one work at a time and released when the outcome is known; the set of reserved parts
is copied before parts are read (docs/policies/size-tiered.md#inputs). Unknown outcomes are resolved first of all, also
while the service is stopped. At the event of an end the parts are released and the run is counted no more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Generic, cast

from tilth.base.cancel import carry
from tilth.base.errors import FencedError, UnknownOutcomeError
from tilth.base.logs import Log
from tilth.maintenance.kinds import OpStats, Prepared, Refused
from tilth.maintenance.state import ServiceWork
from tilth.maintenance.work.attempt import Attempts
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.op import Op
from tilth.maintenance.work.planner import (
    Busy,
    Cancelled,
    Denied,
    OpSnapshot,
    PartLogged,
    PartWork,
    Planner,
    Renewed,
    Stopped,
    WorkEnded,
    WorkEvent,
    WorkT,
    is_left_alone,
)
from tilth.maintenance.work.procedure import FactsT, Procedure
from tilth.model.part import PartEvent

#: Pieces of work of one run at once; the warehouse's slots bound it further.
RUN_THREADS = 4
#: Report of work for which other work was faster.
OVERTAKEN = "its part was merged meanwhile"

_log = Log("maintenance")


class PartWorkOp(Op, Generic[WorkT, FactsT]):
    """The op of one kind of work in one table. For any thread."""

    def __init__(self, context: TableContext, planner: Planner[WorkT], procedure: Procedure[WorkT, FactsT]) -> None:
        super().__init__(context, procedure.kind)
        self._planner = planner
        self._procedure = procedure
        self._attempts = Attempts(context, procedure)
        #: Held while the planner is called. Before the table's lock, never after it.
        self._lock = threading.RLock()
        #: Work that waits with its parts reserved, and the parts of work that runs or whose outcome is unknown.
        self._held: list[WorkT] = []
        self._own: set[str] = set()
        self._refusals: frozenset[tuple[str, str]] = frozenset()
        self._has_news = True

    @property
    def has_unknown(self) -> bool:
        return self._attempts.has_unknown

    def has_failure(self) -> bool:
        return self._planner.failures.has_any()

    def next_due_ms(self) -> int:
        with self._lock:
            return self._planner.due_ms(self.snapshot())

    def observe(self, event: PartEvent, partition: str) -> None:
        self._notify(PartLogged(event, partition))

    def notice_all(self) -> None:
        cancelled = self._attempts.cancel(self._planner.is_outdated)
        if cancelled:
            _log.info(f"{self._procedure.noun}_tasks_cancelled", table=self.table, tasks=cancelled)
        # A wake-up in the future comes from a clock that was ahead.
        self.last_wakeup_ms = min(self.last_wakeup_ms, self._clock.now_ms())
        self._notify(Renewed())

    def cancel(self) -> None:
        super().cancel()
        self._attempts.cancel(lambda _: True)

    def cancel_partition(self, partition: str | None) -> int:
        self._notify(Cancelled(partition))
        return self._attempts.cancel(lambda work: partition is None or partition in work.partitions)

    def stopped(self) -> None:
        self._notify(Stopped())

    def weigh(self, now_ms: int) -> OpStats:
        with self._lock:
            if now_ms >= self._planner.refresh_due_ms(self.snapshot()):
                self._refresh(now_ms)
            stats = self._planner.choose(self.snapshot())
            self._hold()
        return stats

    def prepare(self) -> Prepared | Refused:
        with self._lock:
            reason = ""
            # Each turn dequeues more.
            while True:
                snapshot = self.snapshot()
                dequeued = self._planner.dequeue(snapshot, self.busy(snapshot.now_ms))
                if isinstance(dequeued, Refused):
                    self._hold()
                    return Refused(reason or dequeued.reason)
                works = self.begin(dequeued)
                self._hold()
                if works:
                    return Prepared(about=self._procedure.about(works), work=works)
                reason = f"{dequeued[0].subject}: its parts are not free any more"

    def abandon(self, prepared: Prepared) -> None:
        for work in cast("list[WorkT]", prepared.work):
            self._let_go(work)
            self._notify(Denied(work))

    def perform(self, prepared: Prepared) -> str:
        works = cast("list[WorkT]", prepared.work)
        reports = self.run(works)
        for report in reports:
            if isinstance(report, Exception):
                raise report
        return self._procedure.summary(works, [str(report) for report in reports])

    def status(self, now_ms: int) -> ServiceWork:
        with self._lock:
            return self._planner.status(self.snapshot())

    # --- for commands ---

    def snapshot(self) -> OpSnapshot:
        """The op now."""
        return OpSnapshot(
            now_ms=self._clock.now_ms(),
            running=self.running,
            has_news=self._has_news,
            refreshed_ms=self.last_wakeup_ms,
        )

    def busy(self, now_ms: int) -> Busy:
        """Return what cannot be chosen now. To be called before parts are read."""
        with self._lock:
            return Busy(
                reserved=self.watch.reserved.now().difference(_names(self._held)),
                own=frozenset(self._own),
                damaged=self.watch.damaged.left_out(now_ms),
            )

    def locked(self) -> AbstractContextManager[object]:
        """Lock under which no event is handled and nothing is chosen: for calls of the planner that belong together."""
        return self._lock

    def begin(self, works: Iterable[WorkT]) -> list[WorkT]:
        """Reserve and load the works that can be; each that is returned has to be given to `run`."""
        begun: list[WorkT] = []
        try:
            for work in works:
                loaded = self._load(work)
                if loaded is not None:
                    begun.append(loaded)
        except BaseException:
            for work in begun:
                self._let_go(work)
            raise
        return begun

    def run(self, works: Sequence[WorkT]) -> list[str | Exception]:
        """Run from files to commits; return for each what was done, or why it was not."""
        with self.context.server.counters.run(self.kind):
            if len(works) == 1:
                return [self._run(works[0])]
            with ThreadPoolExecutor(min(RUN_THREADS, len(works)), thread_name_prefix="tilth-work") as pool:
                return list(pool.map(carry(self._run), works))

    def resolve(self) -> None:
        """Repeat the commits whose outcome is unknown."""
        for work, error in self._attempts.resolve():
            self._judge(work, error)
            self._release(work)
            self._notify(WorkEnded(work, error))

    # --- refreshes ---

    def _refresh(self, now_ms: int) -> None:
        self.wakeups += 1
        snapshot = self.snapshot()
        self.last_wakeup_ms = now_ms
        self._has_news = False
        try:
            self._planner.refresh(snapshot, self.busy(now_ms))
        except BaseException:
            # Parts that were not read are still news: the next refresh reads them.
            self._has_news = True
            raise
        self._hold()
        refusals = self._planner.refusals
        for subject, reason in refusals:
            if (subject, reason) not in self._refusals:
                self._refused(subject, reason)
        self._refusals = frozenset(refusals)

    def _notify(self, event: WorkEvent[WorkT]) -> None:
        with self._lock:
            if self._planner.observe(event, self._clock.now_ms()):
                self._has_news = True
                self.watch.is_woken = True
            self._hold()

    def _refused(self, subject: str, reason: str) -> None:
        self.context.server.refused(self.name, self.table, f"{subject}: {reason}")

    # --- reserving and releasing ---

    def _hold(self) -> None:
        """Reserve the parts of what waits now, release those of what waits no more. Hold the lock."""
        wanted = list(self._planner.held)
        if wanted == self._held:
            return
        before, self._held = self._held, []
        # The lock makes it one step, so that nothing else gets in between.
        with self.watch.lock:
            self.watch.reserved.release(_names(before))
            denied: list[WorkT] = []
            for work in wanted:
                (self._held if self.watch.reserved.reserve(work.names) else denied).append(work)
        for work in denied:
            self._planner.observe(Denied(work), self._clock.now_ms())

    def _load(self, work: WorkT) -> WorkT | None:
        """Return the work with those of its parts that are free, counted as running; None where it cannot be done."""
        with self._lock:
            if work in self._held:
                self._held.remove(work)
                free = list(work.names)
            else:
                free = self.watch.reserved.reserve_free(work.names)
            loaded: WorkT | None = None
            try:
                if free and (self._procedure.is_divisible or len(free) == len(work.names)):
                    loaded = self._planner.load(work, free)
            finally:
                kept = frozenset() if loaded is None else frozenset(loaded.names)
                self._own |= kept
                self.watch.reserved.release(name for name in free if name not in kept)
                if len(kept) < len(work.names):
                    self._notify(Denied(work))
            self.running += loaded is not None
            return loaded

    def _let_go(self, work: WorkT) -> None:
        """It runs no more."""
        with self._lock:
            self.running -= 1
        self._release(work)

    def _release(self, work: WorkT) -> None:
        with self._lock:
            self._own.difference_update(work.names)
            self.watch.reserved.release(work.names)

    # --- doing ---

    def _run(self, work: WorkT) -> str | Exception:
        try:
            report: str | Exception = self._attempts.perform(work)
        except UnknownOutcomeError as error:
            # Its parts stay reserved.
            with self._lock:
                self.running -= 1
            self._notify(WorkEnded(work, error))
            return error
        # Whatever it was, it is remembered and waits before the next try.
        except Exception as error:
            report = OVERTAKEN if isinstance(error, self._procedure.overtaken) else error
            self._ended(work, error)
        except BaseException:
            self._let_go(work)
            raise
        else:
            self._ended(work, None)
        return report

    def _ended(self, work: WorkT, error: Exception | None) -> None:
        try:
            self._judge(work, error)
        finally:
            self._let_go(work)
            self._notify(WorkEnded(work, error))

    def _judge(self, work: WorkT, error: Exception | None) -> None:
        """Note the end of a run; a failure stands in `system.bg_threads` and waits."""
        if error is None:
            self._planner.failures.landed(work)
            return
        if isinstance(error, FencedError):
            # Another server has it; the next work takes it anew.
            self.context.server.table_leases.lose(self.watch.uuid)
        if isinstance(error, self._procedure.overtaken):
            self._refused(work.subject, f"{OVERTAKEN}: {error}")
            return
        if is_left_alone(error):
            # A drop or a stop of the server, or the table went on without us.
            self._refused(work.subject, str(error))
            return
        reason = self._planner.failures.missed(work, error, self._clock.now_ms())
        if reason:
            self._refused(work.subject, reason)


def _names(works: Iterable[PartWork]) -> list[str]:
    return [name for work in works for name in work.names]
