"""Observation of the ops that could run: tables are looked at when something changed or is due, never all of them.

Covers: when an op is asked, what it answered, with the workload of its table, the wait of one that failed to answer.
Does not cover: the choice (scheduler.py), what an op answers and failures of its runs (the folders of their kinds).
Always holds: a table where nothing is due costs nothing; a turn looks for a bounded time and the next one goes on
where it ended, so that busy tables hide no others.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.maintenance.manager.tables import TableOps
from tilth.maintenance.op import LoadScore, Op, OpStats, OpView
from tilth.maintenance.settings import WorkloadSettings
from tilth.maintenance.state import FAR_MS, Failure, failed_again
from tilth.maintenance.work.watch import TableWatch
from tilth.maintenance.work.workload import flush_score, merge_score

#: Maximum time of polling in one iteration; the tables that remain are polled in the next one.
POLL_SECONDS_MAX = 0.01
#: Poll interval of a table with runnable ops; it is polled earlier when something has changed.
POLL_AGAIN_MS = 1_000
#: Minimum number of due times kept before old ones are removed.
TIMES_MIN = 10_000

_NOT_LOOKED_AT = OpStats.idle("not looked at yet")

_log = Log("maintenance")


class Observations:
    """Last observation of each op of one manager, and the ops that could not be observed: they wait, and hold nobody
    up. One thread asks, any thread may read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stats: dict[Op, OpStats] = {}
        self._failures: dict[Op, Failure] = {}

    def poll(self, op: Op) -> OpStats:
        """Ask the op for its statistics; after a failure it is left alone for a while."""
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
        with self._lock:
            self._stats[op] = stats

    def last(self, op: Op) -> OpStats:
        with self._lock:
            return self._stats.get(op, _NOT_LOOKED_AT)

    def failure(self, op: Op) -> Failure | None:
        """Return the last failure. One in the future comes from a clock that was ahead and is ignored: its wait would
        be as long as that.
        """
        with self._lock:
            found = self._failures.get(op)
            return None if found is None or found.at_ms > self._clock.now_ms() else found

    def failed(self, op: Op, error: TilthError) -> Failure:
        """Note that polling or preparing failed: the next try comes after a wait."""
        with self._lock:
            failure = failed_again(self._failures.get(op), error, now_ms=self._clock.now_ms())
            self._failures[op] = failure
        _log.warning("op_not_looked_at", op=op.name, reason=error)
        return failure

    def recovered(self, op: Op) -> None:
        with self._lock:
            self._failures.pop(op, None)

    def forget(self, op: Op) -> None:
        with self._lock:
            self._failures.pop(op, None)
            self._stats.pop(op, None)


class Poller:
    """Observer of the ops of all tables. For the manager's thread alone."""

    def __init__(
        self,
        clock: Clock,
        observations: Observations,
        workload: WorkloadSettings,
        find: Callable[[str], TableOps | None],
    ) -> None:
        """`find` gives a table by its uuid, while it is there."""
        self._clock = clock
        self._observations = observations
        self._workload = workload
        #: The ops that could run, by table and by the names of their views.
        self._runnable: dict[str, list[OpView]] = {}
        self._found: dict[str, tuple[TableOps, Op]] = {}
        #: Tables that go first, in the order in which something happened to them.
        self._urgent: dict[str, TableOps] = {}
        self._find = find
        #: Tables that were woken since the last turn; other threads add to it.
        self._woken: deque[str] = deque()
        #: Due times of tables, the earliest first; some are old and wake a table that is not due.
        self._due: list[tuple[int, str]] = []
        self._due_max = TIMES_MIN
        #: Tables to be looked at, in their order; those that a turn has no time for wait for the next one.
        self._ready: dict[str, None] = {}
        #: Seconds that the last turn looked, if it did not come to the end of what is due; else 0.
        self.behind_seconds = 0.0

    def urge(self, table: TableOps) -> None:
        """Poll the table, which something has just happened to, before those of which nothing is known yet."""
        self._urgent.setdefault(table.watch.uuid, table)

    def woken(self, uuid: str) -> None:
        """Poll the table in the next turn: it is new, or something has changed in it. For any thread."""
        self._woken.append(uuid)

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
                # It was looked at meanwhile, or the clock was put back.
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
        if due_ms >= FAR_MS:
            return
        heapq.heappush(self._due, (due_ms, table.watch.uuid))
        if len(self._due) > self._due_max:
            self._forget_old_times()

    def _forget_old_times(self) -> None:
        """Leave only the newest time of each table: each poll adds one, and it stays until it comes."""
        tables = {uuid: self._find(uuid) for _, uuid in self._due}
        times = [(found.watch.due_ms, uuid) for uuid, found in tables.items() if found is not None]
        self._due = [each for each in times if each[0] < FAR_MS]
        heapq.heapify(self._due)
        self._due_max = 2 * len(self._due) + TIMES_MIN

    def views(self) -> list[OpView]:
        return list(itertools.chain.from_iterable(self._runnable.values()))

    def found(self, name: str) -> tuple[TableOps, Op]:
        return self._found[name]

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
        for view in self._runnable.pop(table.watch.uuid, ()):
            self._found.pop(view.name, None)

    def _poll_table(self, table: TableOps, now_ms: int) -> None:
        watch = table.watch
        # Lowered first: what is noticed from here on leads to another look.
        watch.is_woken = False
        asked = [(op, self._with_workload(watch, op, self._observations.poll(op), now_ms)) for op in table.ops]
        self._drop(table)
        runnable = [(op, stats) for op, stats in asked if stats.is_runnable]
        if not runnable:
            self._is_due_at(table, min((self._due_ms(watch, op, now_ms) for op in table.ops), default=FAR_MS))
            return
        views = [OpView(name=op.name, table=watch.name, stats=stats) for op, stats in runnable]
        self._runnable[watch.uuid] = views
        self._found |= {view.name: (table, op) for view, (op, _) in zip(views, runnable, strict=True)}
        self._is_due_at(table, now_ms + POLL_AGAIN_MS)

    def _with_workload(self, watch: TableWatch, op: Op, stats: OpStats, now_ms: int) -> OpStats:
        if not self._workload.is_enabled:
            return stats
        with watch.lock:
            rates = watch.workload.rates(now_ms)
        match op.kind.traits.load:
            case LoadScore.READ:
                score = flush_score(rates, self._workload)
            case LoadScore.USED:
                score = merge_score(rates, self._workload)
            case None:
                score = 0.0
        if not score:
            return stats
        weighed = replace(stats, workload_score=score)
        self._observations.note(op, weighed)
        return weighed

    def _due_ms(self, watch: TableWatch, op: Op, now_ms: int) -> int:
        failure = self._observations.failure(op)
        if failure is not None:
            return failure.until_ms
        if op.has_unknown or watch.is_on(op.kind.traits.service, now_ms):
            return op.due_ms
        switch = watch.switch(op.kind.traits.service, now_ms)
        return FAR_MS if switch is None or switch.until_ms == 0 else switch.until_ms


def _is_due(table: TableOps, now_ms: int) -> bool:
    return table.watch.is_woken or table.watch.due_ms <= now_ms
