"""Poll of the ops that could run: tables are polled when something changed or is due, never all of them.

Covers: when an op is polled, the workload of its table, the wait of one whose poll failed. Does not cover: the
choice (scheduler.py), what an op answers and failures of its runs (the folders of their kinds).
Always holds: a table where nothing is due costs nothing; a turn polls for a bounded time and the next one goes on
where it ended, so that busy tables hide no others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.maintenance.kinds import OpStats, OpView
from tilth.maintenance.manager.ranking import Ranking
from tilth.maintenance.manager.table_ops import TableOps
from tilth.maintenance.settings import SchedulerSettings, WorkloadSettings
from tilth.maintenance.state import NEVER_MS, Failure, failed_again, standing
from tilth.maintenance.table.watch import TableWatch
from tilth.maintenance.table.workload import load_score
from tilth.maintenance.work.op import Op

#: Maximum time of polling in one iteration; the tables that remain are polled in the next one.
POLL_SECONDS_MAX = 0.01
#: Poll interval of a table with runnable ops, and the same for each such table; it is polled earlier when something has
#: changed.
POLL_AGAIN_MS = 1_000
POLL_AGAIN_MS_PER_TABLE = 2
#: Minimum number of due times kept before old ones are removed.
TIMES_MIN = 10_000

_log = Log("maintenance")


def poll_failed(op: Op, error: TilthError, now_ms: int) -> Failure:
    """Note that polling or preparing the op has failed: the next try comes after a wait."""
    op.poll_failure = failed_again(standing(op.poll_failure, now_ms), error, now_ms=now_ms)
    _log.warning("op_not_refreshed", op=op.name, reason=error)
    return op.poll_failure


class Poller:
    """Observer of the ops of all tables. For the manager's thread alone."""

    def __init__(
        self,
        clock: Clock,
        workload: WorkloadSettings,
        scheduler: SchedulerSettings,
        find: Callable[[str], TableOps | None],
        woken: deque[str],
    ) -> None:
        """`find` gives a table by its uuid, while it is there; `woken`: tables that are new or in which something has
        changed since the last turn, to which any thread adds.
        """
        self._clock = clock
        self._workload = workload
        #: The ops that could run: those that rewrite parts, and all others; all by table and by name, and by name.
        self._rewrites, self._others = Ranking(scheduler), Ranking(scheduler)
        self._runnable: dict[str, dict[str, Op]] = {}
        self._ops: dict[str, Op] = {}
        #: Tables that go first, in the order in which something happened to them.
        self._urgent: dict[str, TableOps] = {}
        self._find = find
        self._woken = woken
        #: Due times of tables, the earliest first; some are old and wake a table that is not due.
        self._due: list[tuple[int, str]] = []
        self._due_max = TIMES_MIN
        #: Tables to be polled, in their order; those that a turn has no time for wait for the next one.
        self._ready: dict[str, None] = {}
        #: Seconds that the last turn polled, if it did not come to the end of what is due; else 0.
        self.behind_seconds = 0.0

    def urge(self, table: TableOps) -> None:
        """Poll the table, which something has just happened to, before those of which nothing is known yet."""
        self._urgent.setdefault(table.watch.uuid, table)

    def poll(self) -> None:
        """Bring up to date which ops could run."""
        now_ms = self._clock.now_ms()
        began = self._clock.monotonic()
        self.behind_seconds = 0.0
        while self._urgent:
            if self._is_over(began):
                return
            table = self._urgent.pop(next(iter(self._urgent)))
            if _is_due(table, now_ms):
                self._poll_table(table, now_ms)
        self._gather(now_ms)
        # No table twice in one turn, also where it is due again at once.
        for _ in range(len(self._ready)):
            if self._is_over(began):
                return
            uuid = next(iter(self._ready))
            del self._ready[uuid]
            found = self._find(uuid)
            if found is None:
                continue
            if not _is_due(found, now_ms):
                # It was polled meanwhile, or the clock was put back.
                self._is_due_at(found, found.watch.due_ms)
                continue
            try:
                self._poll_table(found, now_ms)
            except BaseException:
                # It waits behind the others.
                found.watch.is_woken = True
                raise

    def _gather(self, now_ms: int) -> None:
        """Queue the tables that were woken, and those that have become due, behind those of earlier turns."""
        while self._woken:
            self._ready.setdefault(self._woken.popleft())
        while self._due and self._due[0][0] <= now_ms:
            self._ready.setdefault(heapq.heappop(self._due)[1])

    def _is_due_at(self, table: TableOps, due_ms: int) -> None:
        """Poll the table then, if nothing happens before."""
        table.watch.due_ms = due_ms
        if due_ms >= NEVER_MS:
            return
        heapq.heappush(self._due, (due_ms, table.watch.uuid))
        if len(self._due) > self._due_max:
            self._forget_old_times()

    def _forget_old_times(self) -> None:
        """Leave only the newest time of each table: each poll adds one, and it stays until it comes."""
        tables = {uuid: self._find(uuid) for _, uuid in self._due}
        times = [(found.watch.due_ms, uuid) for uuid, found in tables.items() if found is not None]
        self._due = [each for each in times if each[0] < NEVER_MS]
        heapq.heapify(self._due)
        self._due_max = 2 * len(self._due) + TIMES_MIN

    def rankings(self, *, with_rewrites: bool) -> list[Ranking]:
        """Return the ops that could run, with or without those that rewrite parts."""
        return [self._others, self._rewrites] if with_rewrites else [self._others]

    def found(self, name: str) -> Op:
        return self._ops[name]

    def forget(self, table: TableOps) -> None:
        self._urgent.pop(table.watch.uuid, None)
        self._ready.pop(table.watch.uuid, None)
        self._drop(table)

    def _is_over(self, began: float) -> bool:
        spent = self._clock.monotonic() - began
        if spent <= POLL_SECONDS_MAX:
            return False
        self.behind_seconds = spent
        return True

    def _drop(self, table: TableOps) -> None:
        self._forget_ops(self._runnable.pop(table.watch.uuid, {}))

    def _forget_ops(self, ops: Mapping[str, Op]) -> None:
        for name, op in ops.items():
            # After a change of names another table's op may have the name.
            if self._ops.get(name) is op:
                del self._ops[name]
                self._ranking(op).drop(name)

    def _ranking(self, op: Op) -> Ranking:
        return self._rewrites if op.kind.traits.is_rewrite else self._others

    def _poll_table(self, table: TableOps, now_ms: int) -> None:
        watch = table.watch
        # Lowered first: what is noticed from here on leads to another poll.
        watch.is_woken = False
        runnable = {op.name: op for op in table.ops if self._weigh(watch, op, now_ms)}
        before = self._runnable.pop(watch.uuid, {})
        self._forget_ops({name: op for name, op in before.items() if runnable.get(name) is not op})
        due_ms = min((self._due_ms(watch, op, now_ms) for op in table.ops if op.name not in runnable), default=NEVER_MS)
        if runnable:
            for name, op in runnable.items():
                self._ops[name] = op
                self._ranking(op).put(OpView(name=name, table=watch.name, stats=op.observed))
            self._runnable[watch.uuid] = runnable
            # Another op of the table may be due before.
            again_ms = max(POLL_AGAIN_MS, POLL_AGAIN_MS_PER_TABLE * len(self._runnable))
            due_ms = now_ms + min(again_ms, max(POLL_AGAIN_MS, due_ms - now_ms))
        self._is_due_at(table, due_ms)

    def _weigh(self, watch: TableWatch, op: Op, now_ms: int) -> bool:
        """Get the statistics of the op; true if it could run now. After a failure it is left alone for a while."""
        failure = standing(op.poll_failure, now_ms)
        if failure is not None and now_ms < failure.until_ms:
            return False
        try:
            stats = op.stats()
        except TilthError as error:
            stats = OpStats.idle(f"failed: {poll_failed(op, error, now_ms).reason}")
        else:
            # One that is runnable has shown nothing yet: preparing it may fail again.
            if not stats.is_runnable:
                op.poll_failure = None
        if self._workload.is_enabled:
            with watch.lock:
                rates = watch.workload.rates(now_ms)
            stats = replace(stats, workload_score=load_score(op.kind.traits.load, rates, self._workload))
        op.observed = stats
        return stats.is_runnable

    def _due_ms(self, watch: TableWatch, op: Op, now_ms: int) -> int:
        failure = standing(op.poll_failure, now_ms)
        if failure is not None:
            return failure.until_ms
        if op.has_unknown or watch.is_on(op.kind.traits.service, now_ms):
            return op.due_ms
        switch = watch.switch(op.kind.traits.service, now_ms)
        return NEVER_MS if switch is None or switch.until_ms == 0 else switch.until_ms


def _is_due(table: TableOps, now_ms: int) -> bool:
    return table.watch.is_woken or table.watch.due_ms <= now_ms
