"""The compactions of one table's deltas: choose one, take its parts, run it in a task, commit.

Covers: looking, taking parts, running, the wait after failures, for FLUSH_DELTAS, MINOR_DELTA and MAJOR_DELTA. Does not
cover: which deltas are worth it (flush_deltas.py, minor_delta.py, major_delta.py), one compaction and its commit
(delta_work.py, attempt.py).
Always holds: a part is taken by one merge, mutation or compaction at a time and given back when its outcome is known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tilth.base.clock import Clock
from tilth.base.errors import UnknownOutcomeError
from tilth.catalog import Catalog, DeltasGoneError, PartsGoneError
from tilth.maintenance.cleaner import Cleaner
from tilth.maintenance.op import NotPrepared, OpKind, OpStats, Prepared, op_name
from tilth.maintenance.ops.attempt import Attempts
from tilth.maintenance.ops.delta_look import DeltaLook, PartitionDeltas
from tilth.maintenance.ops.delta_work import DeltaChoice, DeltaRecipe, DeltaWork
from tilth.maintenance.ops.failures import PartitionFailures
from tilth.maintenance.owner import Owner
from tilth.maintenance.state import (
    Failure,
    ServiceState,
    ServiceWork,
    is_failure,
    service_told,
)
from tilth.maintenance.tally import Tally
from tilth.maintenance.watch import FAR_MS, TableWatch
from tilth.model.delta import by_file
from tilth.model.part import PartEvent
from tilth.model.service import ServiceKind
from tilth.warehouse import Dispatcher, TaskCancelledError

#: What a compaction is told of that came too late; it is no failure.
MERGED_MEANWHILE = "its part was merged meanwhile"

#: From the partitions with deltas, the names of busy parts and the time.
ChooseDeltas = Callable[[Sequence[PartitionDeltas], Collection[str], int], DeltaChoice]


class DeltaOp:
    """`tilth.maintenance.op.Op` for one kind of compaction of one table's deltas."""

    service = ServiceKind.DELTA

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        dispatcher: Dispatcher,
        root: str,
        *,
        kind: OpKind,
        choose: ChooseDeltas,
        switched_off_by: str,
        look: DeltaLook,
        watch: TableWatch,
        owner: Owner,
        cleaner: Cleaner,
        told: Callable[[str, str], None],
        tally: Tally,
    ) -> None:
        """`switched_off_by`: the setting that is off, empty: none; `look` is shared with the table's other ops;
        `told(partition, reason)` takes refusals for the record.
        """
        self.kind = kind
        self._clock = clock
        self._choose = choose
        self._switched_off_by = switched_off_by
        self._look = look
        self._watch = watch
        self._told = told
        self._tally = tally
        recipe = DeltaRecipe(kind, root, watch=watch)
        self._attempts = Attempts(clock, catalog, dispatcher, root, recipe, watch=watch, owner=owner, cleaner=cleaner)
        self._running = 0
        self._choice = DeltaChoice(about="not looked at yet")
        self._failures = PartitionFailures(kind, watch)
        self._is_cancelled = threading.Event()
        #: Looks so far, and when the last one was.
        self.wakeups = 0
        self.last_wakeup_ms = 0

    @property
    def table(self) -> str:
        return self._watch.name

    @property
    def name(self) -> str:
        return op_name(self.kind, self._watch.name)

    @property
    def running(self) -> int:
        """Compactions under way."""
        return self._running

    @property
    def live_txns(self) -> set[int]:
        return self._attempts.txns

    @property
    def due_ms(self) -> int:
        if self._attempts.has_unknown:
            return 0
        if self._switched_off_by:
            return FAR_MS
        retries = [each.until_ms for each in self._failures.waiting(self.last_wakeup_ms).values()]
        return min([self._look.due_ms, self._choice.due_ms, *retries])

    def observe(self, event: PartEvent, partition: str) -> None:
        """A line of the part log about this table."""
        self._look.observe(event, partition)

    def notice_all(self) -> None:
        self._look.notice_all()

    def cancel(self) -> None:
        self._is_cancelled.set()
        self._attempts.cancel_all()

    def cancel_partition(self, partition: str | None) -> int:
        return self._attempts.cancel(lambda work: partition in (None, work.partition))

    def stats(self) -> OpStats | None:
        now_ms = self._clock.now_ms()
        if self._is_cancelled.is_set():
            return None
        if not self._watch.is_on(self.service, now_ms):
            return OpStats.idle("stopped by the user")
        self._resolve_unknown()
        if self._switched_off_by:
            return OpStats.idle(f"{self._switched_off_by} is off")
        self.wakeups += 1
        self.last_wakeup_ms = now_ms
        partitions = self._look.partitions()
        self._choice = self._chosen(partitions, now_ms)
        work = self._choice.work
        self._forget_failures({each.partition for each in partitions}, now_ms, is_idle=work is None)
        if work is None:
            return OpStats.idle(self._choice.about)
        return OpStats(
            is_runnable=True,
            ram_anchored_bytes=work.ram_bytes,
            logs_retained_bytes=work.log_bytes,
            perf_improvement=work.gain,
            priority=self._watch.knobs.priority,
            about=work.about,
        )

    def prepare(self) -> Prepared | NotPrepared:
        wanted = self._choice.work
        if wanted is None:
            return NotPrepared("nothing is chosen")
        self._choice = self._chosen([self._look.fresh(wanted.partition)], self._clock.now_ms())
        work = self._choice.work
        if work is None:
            return NotPrepared(f"{wanted.partition}: {self._choice.about}")
        if not self._watch.taken.take(work.names):
            return NotPrepared(f"{work.partition}: one of the parts was taken meanwhile")
        with self._watch.lock:
            self._running += 1
        self._choice = DeltaChoice(about=work.about, due_ms=0)
        return Prepared(about=work.about, work=work)

    def abandon(self, prepared: Prepared) -> None:
        work = _work_of(prepared)
        self._give_back(work)
        with self._watch.lock:
            self._running -= 1

    def perform(self, prepared: Prepared) -> str:
        work = _work_of(prepared)
        try:
            with self._tally.run(self.kind):
                return self._run(work)
        finally:
            with self._watch.lock:
                self._running -= 1
            self._watch.is_woken = True

    def state(self, now_ms: int) -> tuple[ServiceState, str, Failure | None]:
        choice = self._choice
        work = ServiceWork(
            running=self._running,
            waiting=int(choice.work is not None),
            failure=self._failures.newest(),
            running_reason=f"{self._running} {self.kind} are running",
            waiting_reason=choice.work.about if choice.work is not None else "",
            idle_reason=f"{self._switched_off_by} is off" if self._switched_off_by else choice.about,
        )
        return service_told(self._watch.switch(self.service, now_ms), work, now_ms=now_ms)

    def _chosen(self, partitions: Sequence[PartitionDeltas], now_ms: int) -> DeltaChoice:
        busy, failing = self._watch.taken.now(), self._failures.waiting(now_ms)
        damaged = self._watch.damaged.left_out(now_ms)
        busy |= damaged
        if damaged and self.kind is OpKind.FLUSH_DELTAS:
            partitions = [each.apart_from(damaged) for each in partitions]
        choice = self._choose([each for each in partitions if each.partition not in failing], busy, now_ms)
        retries = self._watch.damaged.next_try_ms(now_ms)
        if choice.work is None and retries:
            choice = replace(choice, due_ms=min(choice.due_ms, *retries))
        if choice.work is None and failing:
            return DeltaChoice(about=next(iter(failing.values())).reason, due_ms=choice.due_ms)
        return choice

    def _forget_failures(self, partitions: Collection[str], now_ms: int, *, is_idle: bool) -> None:
        """Of where nothing is left that could fail."""
        self._failures.keep(lambda name, each: name in partitions and not (is_idle and each.until_ms <= now_ms))

    def _run(self, work: DeltaWork) -> str:
        keeps_parts = False
        try:
            told = self._attempts.perform(work)
            self._failures.succeeded(work.partition)
            self._watch.damaged.read(work.names)
            return told
        except UnknownOutcomeError:
            keeps_parts = True
            raise
        except (PartsGoneError, DeltasGoneError) as error:
            self._told(work.partition, f"{MERGED_MEANWHILE}: {error}")
            return MERGED_MEANWHILE
        # Whatever it was, it is told.
        except Exception as error:
            self._missed(work, error)
            raise
        finally:
            if not keeps_parts:
                self._give_back(work)

    def _give_back(self, work: DeltaWork) -> None:
        self._watch.taken.give_back(work.names)
        self._look.notice(work.partition)

    def _resolve_unknown(self) -> None:
        for work, error in self._attempts.resolve():
            if error is not None and not isinstance(error, PartsGoneError | DeltasGoneError):
                self._missed(work, error)
            self._give_back(work)

    def _missed(self, work: DeltaWork, error: Exception) -> None:
        """What follows from work that did not land; a failure stands in `system.bg_threads` and waits.

        Where a file of one part is damaged, that part alone waits.
        """
        partition, now_ms = work.partition, self._clock.now_ms()
        if isinstance(error, TaskCancelledError):
            self._told(partition, "the compaction was cancelled")
            return
        if not is_failure(error):
            # The table went on without us.
            self._told(partition, str(error))
            return
        name = self._watch.damaged.found(error, [*work.parts, *work.kept], by_file(work.sources), now_ms)
        if name is None:
            self._failures.failed(partition, error, now_ms)
        else:
            self._told(partition, f"part {name} is left out: {error}")


def _work_of(prepared: Prepared) -> DeltaWork:
    assert isinstance(prepared.work, DeltaWork)
    return prepared.work
