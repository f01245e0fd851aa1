"""All collecting as the manager sees it: `GcOp(routine, table)`; when a round is due, and how it ends.

Covers: what a round of collecting is worth, its report, commands. Does not cover: the switch, failures, status
(work/routine.py), what a round does (part_gc.py, log_gc.py, history_gc.py, deleted_part_gc.py).
Always holds: one round at a time, of the background or of a command; what failed waits and is reported.

Tests: tests/unit/maintenance/gc/test_log_gc.py.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Protocol

from tilth.maintenance.gc.round import GcReport, GcTable, Round
from tilth.maintenance.kinds import IoUsage, OpKind, OpStats
from tilth.maintenance.state import is_failure
from tilth.maintenance.work.routine import Routine, RoutineOp

#: The first poll of a table comes at a random time within this, and within so much for each table of the server.
FIRST_POLL_MS = 20_000
FIRST_POLL_MS_PER_TABLE = 6


class GcRoutine(Routine, Protocol):
    """The routine of one of these ops. `run` is called by one thread at a time, everything else by any."""

    @property
    def io(self) -> IoUsage:
        """Return what the next round costs."""

    def has_leftovers(self) -> bool:
        """Return whether the table may have anything for the routine that nobody will report, from before it was
        registered; called where its version and its leftovers are known.
        """

    def retained(self) -> int:
        """Bytes that are known to wait for the next round."""

    def run(self, done: Round) -> str:
        """One round over what is due; of a command over everything. Returns what was done."""


class GcOp(RoutineOp):
    """The op of one such routine."""

    def __init__(self, routine: GcRoutine, table: GcTable) -> None:
        super().__init__(routine, table)
        self._gc = routine
        self._table = table
        self._counters = table.server.counters
        self._table_count = table.server.table_count
        self._has_begun = False
        self._round = threading.Lock()

    def begin(self, now_ms: int) -> None:
        """Begin once: a table that was never used, or has nothing left over, is not read until something is reported
        of it.
        """
        if self._has_begun:
            return
        watch = self._table.watch
        if watch.version.counter > 0 and (watch.leftovers is None or self._gc.has_leftovers()):
            within_ms = max(FIRST_POLL_MS, self._table_count() * FIRST_POLL_MS_PER_TABLE)
            self._gc.schedule(now_ms + int(self._table.rng.random() * within_ms))
        self._has_begun = True

    def held_back(self) -> str:
        error = self._table.catalog.clock_check.removal_error()
        return "" if error is None else str(error)

    def benefit(self) -> OpStats:
        # The bytes are known after the refresh only; one byte is enough to be considered.
        size = max(1, self._gc.retained())
        is_log = self.kind is OpKind.LOG_GC
        return OpStats(
            is_runnable=True,
            io=self._gc.io,
            logs_retained_bytes=size if is_log else 0,
            data_retained_bytes=0 if is_log else size,
            about=self._gc.about(),
        )

    def round(self) -> str:
        done = Round(settings=self._table.settings)
        try:
            report = self._run(done)
            if not any(map(is_failure, done.failures)):
                self.succeeded()
            return report
        finally:
            self.last_reason = done.reason

    def run_now(self, partition: str | None = None, *, is_forced: bool = False) -> GcReport:
        """A round over the table or one partition at once, within the limits that readers and transactions set.

        `is_forced` takes lifetimes and history for 0.
        """
        settings = self._table.settings
        if is_forced:
            settings = replace(settings, old_parts_lifetime=0.0, trash_lifetime=0.0, history=0.0)
        done = Round(settings=settings, partition=partition, is_command=True)
        self._run(done)
        return done.report()

    def _run(self, done: Round) -> str:
        if not done.is_command:
            # A user who gives a command has checked the clock. A background round checks it again here, because it may
            # have jumped since the round was chosen.
            self._table.catalog.clock_check.check_removal()
        try:
            with self._round, self._counters.run(self.kind):
                return self._gc.run(done)
        finally:
            self._count(done)
            for error in done.failures:
                self.failed(error)

    def _count(self, done: Round) -> None:
        """Count a round, also one that broke off."""
        with self._counters.adding() as numbers:
            numbers.expired += done.expired
            numbers.ops[self.kind].removed_bytes += done.removed_bytes
            # Parts without rows are hidden first, and removed by PART_GC.
            if self.kind is not OpKind.DELETED_PART_GC:
                numbers.moved += done.moved
                numbers.removed += done.removed
                numbers.removed_bytes += done.removed_bytes
