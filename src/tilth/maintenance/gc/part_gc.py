"""PART_GC of one table: what was replaced or dropped goes to the trash, then its files go, then the marks.

    visible -> hidden (a mark, a rewrite or a range) -> trash -> gone
                                        phase 1, a record      phase 2, files

Covers: when a round is due, SYSTEM GC, its status. Does not cover: phase 1 (move.py), phase 2 (trash.py),
partitions that expire (expiry.py), verdicts (policy/gc.py), end times (catalog).
Always holds: one round at a time, of the background or of a command; an item that fails stays and stops no other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tilth.base.errors import NotFoundError
from tilth.base.logs import Log
from tilth.base.retry import Retry
from tilth.maintenance.gc.expiry import ExpiryPhase
from tilth.maintenance.gc.explain import explain_table
from tilth.maintenance.gc.move import MovePhase
from tilth.maintenance.gc.round import GcTable, Round
from tilth.maintenance.gc.trash import TrashPhase
from tilth.maintenance.op import IoUsage, NotPrepared, OpKind, OpStats, Prepared, op_name
from tilth.maintenance.state import FAR_MS, Failure, ServiceWork, failed_again, is_failure, rule_of, service_status
from tilth.maintenance.stats import GcReport, GcRow
from tilth.maintenance.work.context import TableContext
from tilth.model.part import Part, PartEvent
from tilth.model.service import ServiceKind, ServiceState

#: The first look at a table comes at a random time within this, and within so much for each table of the server: a
#: start does not read everything at once, and what must be weighed in a turn stays little.
FIRST_LOOK_MS = 20_000
FIRST_LOOK_MS_PER_TABLE = 60
#: Rounds of SYSTEM GC: expired partitions, data, marks, ranges, and one that finds nothing.
NOW_ROUNDS_MAX = 6

_log = Log("maintenance")


class PartGcOp:
    """`tilth.maintenance.op.Op` for the garbage of one table."""

    kind = OpKind.PART_GC
    service = ServiceKind.GC

    def __init__(self, context: TableContext) -> None:
        server = context.server
        self._clock = server.clock
        self._watch = context.watch
        self._table_count = server.table_count
        self._table_leases = server.table_leases
        self._counters = server.counters
        self._table = GcTable(context=context, failed=self._failed)
        self._expiry = ExpiryPhase(self._table)
        self._trash = TrashPhase(self._table)
        self._moves = MovePhase(
            self._table, self._expiry, self._trash, found=lambda partition, ended: self._found(partition, ended)
        )
        #: Called with segments that have ended: they are for LOG_GC.
        self._found: Callable[[str, Sequence[tuple[Part, int]]], None] = lambda partition, ended: None
        self._has_begun = False
        #: One round at a time.
        self._round = threading.Lock()
        self._running = 0
        self._failure: Failure | None = None
        #: A round that was out of date is not repeated before.
        self._rests_until_ms = 0
        self._has_failed = False
        self._last_reason = ""
        #: Rounds so far, and when the last one was.
        self.wakeups = 0
        self.last_wakeup_ms = 0

    @property
    def table(self) -> str:
        return self._watch.name

    @property
    def name(self) -> str:
        return op_name(self.kind, self._watch.name)

    @property
    def due_ms(self) -> int:
        """Return when `stats` may change, if nothing is noticed before."""
        due_ms = min(self._moves.due_ms(), self._trash.due_ms())
        return max(due_ms, self._rests_until_ms, 0 if self._failure is None else self._failure.until_ms)

    #: A round's commits are decided by the round.
    has_unknown = False

    @property
    def running(self) -> int:
        """Rounds under way: 0 or 1."""
        return self._running

    @property
    def live_txns(self) -> Collection[int]:
        txn = self._expiry.txn
        return () if txn is None else (txn,)

    def hand_segments_to(self, found: Callable[[str, Sequence[tuple[Part, int]]], None]) -> None:
        """`found(partition, ended)` is called with segments that have ended, with their ends."""
        self._found = found

    def segments_moved(self, partition: str, left: Sequence[tuple[Part, int]]) -> None:
        """Note that segments have left the partition; these, with their ends, wait in the trash."""
        self._moves.data_moved(partition)
        self._trash.expect(left, self._table.settings)

    def observe(self, event: PartEvent, partition: str) -> None:
        match event.event:
            case "merge" | "flush" | "mutate" | "hide" | "remove_deleted":
                self._moves.has_ended(partition, event.at_ms)
            case "new" | "undrop":
                self._moves.has_grown(partition, event.at_ms)
            case _:
                return
        self._watch.is_woken = True

    def notice_all(self) -> None:
        now_ms = self._clock.now_ms()
        self._expiry.forget()
        self._moves.notice_all(now_ms)
        self._trash.notice_all(now_ms)
        self._watch.is_woken = True

    def cancel(self) -> None:
        self._table.is_cancelled.set()

    def cancel_partition(self, partition: str | None) -> int:
        """None: a round takes nothing that anybody waits for, and what it moves is hidden already."""
        return 0

    def stats(self) -> OpStats | None:
        if self._table.is_cancelled.is_set():
            return None
        now_ms = self._clock.now_ms()
        if not self._watch.is_on(ServiceKind.GC, now_ms):
            return OpStats.idle("stopped by the user")
        if self._failure is not None and now_ms < self._failure.until_ms:
            return OpStats.idle(f"failed: {self._failure.reason}")
        if now_ms < self._rests_until_ms:
            return OpStats.idle("the last round was out of date")
        if self._running:
            return OpStats.idle("a round is running")
        self._begin(now_ms)
        is_move, is_removal = self._due(now_ms)
        if not is_move and not is_removal:
            return OpStats.idle("nothing is due")
        return OpStats(
            is_runnable=True,
            io=IoUsage.HIGH if is_removal else IoUsage.LOW,
            # How much is known after the look only; something is enough to be considered.
            data_retained_bytes=max(1, self._trash.bytes if is_removal else 1),
            priority=self._watch.settings.priority,
            about="files of the trash" if is_removal else "hidden parts",
        )

    def _begin(self, now_ms: int) -> None:
        """Begin once: a table that was never used is not looked at until something is reported of it. Not when it is
        registered, for that must take ten thousand tables in a moment.
        """
        if self._has_begun:
            return
        if self._table.catalog.parts.version(self._watch.uuid).counter > 0:
            within_ms = max(FIRST_LOOK_MS, self._table_count() * FIRST_LOOK_MS_PER_TABLE)
            self._trash.look_first(now_ms + int(self._table.rng.random() * within_ms))
            self._moves.look_first(now_ms + int(self._table.rng.random() * within_ms))
        self._has_begun = True

    def prepare(self) -> Prepared | NotPrepared:
        is_move, is_removal = self._due(self._clock.now_ms())
        if self._running or not (is_move or is_removal):
            return NotPrepared("nothing is due")
        self._running = 1
        phases = " and ".join(phase for phase, due in (("move", is_move), ("remove", is_removal)) if due)
        return Prepared(about=phases, work=(is_move, is_removal))

    def abandon(self, prepared: Prepared) -> None:
        self._running = 0

    def perform(self, prepared: Prepared) -> str:
        assert isinstance(prepared.work, tuple)
        is_move, is_removal = prepared.work
        done = Round(settings=self._table.settings)
        self.wakeups += 1
        self.last_wakeup_ms = self._clock.now_ms()
        self._has_failed = False
        try:
            with self._round, self._counters.run(self.kind):
                if is_move:
                    self._moves.run(done)
                if is_removal:
                    self._trash.run(done)
            if not self._has_failed:
                self._failure = None
        # Whatever it was, it stands in `system.bg_threads` and waits before the next try.
        except Exception as error:
            self._failed(error)
            raise
        finally:
            self._counters.collected(done.report())
            self._last_reason = done.reason
            self._running = 0
            self._watch.is_woken = True
        expired = f"{done.expired} partitions expired, " if done.expired else ""
        return f"{expired}{done.moved} to the trash, {done.removed} files removed, {done.kept + done.in_trash} stay"

    def state(self, now_ms: int) -> tuple[ServiceState, str, Failure | None]:
        work = ServiceWork(
            running=self._running,
            waiting=int(any(self._due(now_ms))),
            failure=self._failure,
            running_reason="a round is running",
            waiting_reason="a round is due and waits for a free thread",
            idle_reason=self._idle_reason(now_ms),
        )
        return service_status(self._watch.switch(self.service, now_ms), work, now_ms=now_ms)

    def _idle_reason(self, now_ms: int) -> str:
        if self._last_reason:
            return self._last_reason
        partitions, due_ms = self._moves.waits()
        if partitions:
            wait = max(0, due_ms - now_ms) / 1000
            return f"what is hidden in {partitions} partitions waits, of the first for {wait:.0f} s more"
        if not self._has_begun or self._moves.is_unread():
            return "not looked at since the start"
        trash_ms = self._trash.due_ms()
        if trash_ms != FAR_MS:
            return f"what is in the trash waits, the next look is in {max(0, trash_ms - now_ms) / 1000:.0f} s"
        return "nothing is hidden"

    def run_now(self, partition: str | None = None, *, is_forced: bool = False) -> GcReport:
        """Both phases for the table or one partition at once, as far as readers and transactions allow.

        `is_forced` takes lifetimes and history for 0: what could be brought back is gone, readers without a lease may
        fail. Raises NotFoundError for a partition that is not there.
        """
        self.check_partition(partition)
        settings = self._table.settings
        if is_forced:
            settings = replace(settings, old_parts_lifetime=0.0, trash_lifetime=0.0, history=0.0)
        done = Round(settings=settings, partition=partition, is_command=True)
        try:
            with self._round, self._counters.run(self.kind):
                self._collect_now(done)
        finally:
            self._counters.collected(done.report())
        return done.report()

    def check_partition(self, partition: str | None) -> None:
        """Raise NotFoundError for a partition that is not there."""
        known = self._table.catalog.parts.partitions(self._watch.uuid)
        if partition is not None and partition not in known:
            raise NotFoundError("no such partition", table=self.table, partition=partition)

    def explain(self) -> list[GcRow]:
        """Return what the table has beside its visible rows, what retains it and until when; then what is visible."""
        return explain_table(self._table)

    def _collect_now(self, done: Round) -> None:
        for _ in range(NOW_ROUNDS_MAX):
            before = done.moved, done.expired
            done.kept = 0
            known = self._table.catalog.parts.partitions(self._watch.uuid)
            self._moves.collect(done, [name for name in known if done.partition in (None, name)])
            if (done.moved, done.expired) == before:
                break
        self._trash.collect_all(done)

    def _due(self, now_ms: int) -> tuple[bool, bool]:
        return self._moves.due_ms() <= now_ms, self._trash.due_ms() <= now_ms

    def _failed(self, error: Exception) -> None:
        """Note the failure by the rule of all background services; one that counts stands in `system.bg_threads` and
        waits."""
        if rule_of(error) is Retry.STOP:
            self._table_leases.lose(self._watch.uuid)
        failure = failed_again(self._failure, error, now_ms=self._clock.now_ms())
        if not is_failure(error):
            self._rests_until_ms = failure.until_ms
            _log.info("gc_out_of_date", table=self._watch.name, reason=error)
            return
        self._has_failed = True
        self._failure = failure
        _log.warning("gc_failed", table=self._watch.name, reason=error)
