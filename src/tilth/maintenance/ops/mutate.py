"""MUTATE of one table: bring the parts to what ALTER asked for, entry by entry, a batch of parts a task.

Covers: looking, taking parts, running, the wait after failures, the end of an entry. Does not cover: which parts are
next (policy/mutate.py), one task and its commit (mutate_work.py, attempt.py), the slot it runs in (manager.py).
Always holds: a part is taken by one mutation or merge at a time and given back when the outcome is known; the set of
taken parts is copied before parts are read, and entries are read after them (docs/policies/mutations.md#inputs);
an entry is begun when the one before it has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from tilth.base.clock import Clock
from tilth.base.errors import TilthError, UnknownOutcomeError
from tilth.base.hybrid import pack
from tilth.base.logs import Log
from tilth.base.retry import Retry
from tilth.catalog import Catalog
from tilth.maintenance.cleaner import Cleaner
from tilth.maintenance.op import NotPrepared, OpKind, OpStats, Prepared, op_name
from tilth.maintenance.ops.attempt import Attempts, Translator, translation_of
from tilth.maintenance.ops.mutate_work import Rewrite, RewriteRecipe
from tilth.maintenance.ops.sources import ChangesOf, changes_of, parts_now
from tilth.maintenance.owner import Owner
from tilth.maintenance.policy.mutate import (
    MutateSelection,
    MutateSpec,
    MutateView,
    blame,
    failed_once_more,
    mutation_gain,
    select_mutations,
)
from tilth.maintenance.state import (
    Failure,
    ServiceState,
    ServiceWork,
    failed_again,
    is_failure,
    newest,
    rule_of,
    service_told,
)
from tilth.maintenance.stats import MutationProgress
from tilth.maintenance.tally import Tally
from tilth.maintenance.watch import FAR_MS, TableWatch
from tilth.model.history import ancient_mark
from tilth.model.mutation import Mutation, needs
from tilth.model.part import Part, PartEvent, parse_part_name
from tilth.model.service import ServiceKind
from tilth.warehouse import Dispatcher, TaskCancelledError

#: Between two looks at a table whose parts change, also after a task was lost; while nothing does; and while batches
#: wait for their turn.
LOOK_BUSY_MS = 1_000
LOOK_QUIET_MS = 10_000

#: After these the parts differ from what the last look saw. A new part never needs an entry.
_TELLING_EVENTS = frozenset({"merge", "flush", "hide", "undrop", "mutate"})

_log = Log("maintenance")


class MutateOp:
    """`tilth.maintenance.op.Op` for the mutations of one table."""

    kind = OpKind.MUTATE
    service = ServiceKind.MUTATE

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        dispatcher: Dispatcher,
        root: str,
        *,
        watch: TableWatch,
        owner: Owner,
        cleaner: Cleaner,
        tally: Tally,
        workers: Callable[[], int],
        told: Callable[[str, str], None],
        translator: Translator = translation_of,
    ) -> None:
        """`workers`: how many there are now; `told(entry, reason)` takes refusals for the record; `translator` brings
        over what changes in parts while they are rewritten.
        """
        self._clock = clock
        self._catalog = catalog
        self._watch = watch
        recipe = RewriteRecipe(root, watch=watch)
        self._attempts = Attempts(
            clock,
            catalog,
            dispatcher,
            root,
            recipe,
            watch=watch,
            owner=owner,
            cleaner=cleaner,
            translator=translator,
        )
        self._tally = tally
        self._workers = workers
        self._told = told
        #: What waits for a thread; its parts are not taken yet, so that merges go on.
        self._pending: list[MutateSpec] = []
        self._running = 0
        #: Names of the parts that running rewrites have taken.
        self._mutating: set[str] = set()
        #: The entry that failures, suspects and what is left to do are of.
        self._head = 0
        self._failures: dict[str, Failure] = {}
        self._suspects: set[str] = set()
        #: A loss that is no part's fault: until it is over nothing new is chosen.
        self._loss: Failure | None = None
        self._to_do: set[str] = set()
        self._refusals: tuple[str, ...] = ()
        self._has_news = True
        #: Whether the last look found a batch.
        self._is_fruitful = False
        self._looked_ms = 0
        self._next_look_ms = 0
        self._is_cancelled = threading.Event()
        #: Looks so far.
        self.wakeups = 0

    @property
    def last_wakeup_ms(self) -> int:
        return self._looked_ms

    @property
    def table(self) -> str:
        return self._watch.name

    @property
    def name(self) -> str:
        return op_name(self.kind, self._watch.name)

    @property
    def running(self) -> int:
        """Tasks under way."""
        return self._running

    @property
    def live_txns(self) -> set[int]:
        """Transactions that this op works on, or whose outcome it still has to find out."""
        return self._attempts.txns

    @property
    def due_ms(self) -> int:
        """When `stats` may say something new, if nothing is noticed before."""
        if self._attempts.has_unknown:
            return 0
        if not self._watch.mutations:
            return FAR_MS
        with self._watch.lock:
            has_room = self._running < self._watch.knobs.mutate.running_max
            if self._pending and has_room:
                return 0
        return self._look_due_ms()

    def observe(self, event: PartEvent, partition: str) -> None:
        """A line of the part log about this table."""
        if event.event in _TELLING_EVENTS and self._watch.mutations:
            self._notice()

    def notice_all(self) -> None:
        """Everything is looked at again; work for entries that are not pending any more is asked to end."""
        pending = {entry.id for entry in self._watch.mutations}
        cancelled = self._attempts.cancel(lambda rewrite: rewrite.spec.mutation.id not in pending)
        if cancelled:
            _log.info("mutation_tasks_cancelled", table=self._watch.name, tasks=cancelled)
        with self._watch.lock:
            self._pending.clear()
        self._notice()

    def cancel(self) -> None:
        """The table is gone or the server stops: no new rewrite, running ones are asked to end."""
        self._is_cancelled.set()
        self._attempts.cancel_all()

    def cancel_partition(self, partition: str | None) -> int:
        """Running tasks with parts of the partition are asked to end, all for none; returns how many."""
        with self._watch.lock:
            self._pending = [
                spec for spec in self._pending if partition is not None and partition not in spec.partitions
            ]
        return self._attempts.cancel(lambda rewrite: partition is None or partition in rewrite.spec.partitions)

    def stats(self) -> OpStats | None:
        now_ms = self._clock.now_ms()
        if self._is_cancelled.is_set():
            return None
        self._resolve_unknown()
        if not self._watch.is_on(ServiceKind.MUTATE, now_ms):
            return OpStats.idle("stopped by the user")
        if not self._watch.mutations:
            self._forget()
            return OpStats.idle("no mutation is pending")
        if now_ms >= self._look_due_ms():
            self._look(now_ms)
        with self._watch.lock:
            spec = self._pending[0] if self._pending else None
            running = self._running
        if spec is None:
            return OpStats.idle(self._refusals[0] if self._refusals else "nothing to rewrite")
        if running >= self._watch.knobs.mutate.running_max:
            return OpStats.idle(f"{running} rewrites are running, more are not allowed")
        return OpStats(
            is_runnable=True,
            perf_improvement=mutation_gain(spec.mutation, now_ms=now_ms),
            priority=self._watch.knobs.priority,
            about=spec.reason,
        )

    def prepare(self) -> Prepared | NotPrepared:
        while True:
            with self._watch.lock:
                if not self._pending:
                    return NotPrepared("no rewrite is waiting")
                spec = self._pending.pop(0)
            rewrite = self._take(spec)
            if rewrite is not None:
                return Prepared(about=rewrite.spec.reason, work=rewrite)

    def abandon(self, prepared: Prepared) -> None:
        self._give_back(_work_of(prepared))
        self._notice()

    def perform(self, prepared: Prepared) -> str:
        rewrite = _work_of(prepared)
        keeps_parts = False
        try:
            with self._tally.run(self.kind):
                told = self._attempts.perform(rewrite)
            self._succeeded(rewrite)
            return told
        except UnknownOutcomeError:
            keeps_parts = True
            raise
        # Whatever it was, it is remembered of the part and waits before the next try.
        except Exception as error:
            self._failed(rewrite, error)
            raise
        finally:
            with self._watch.lock:
                self._running -= 1
            if not keeps_parts:
                self._give_back_parts(rewrite)
            self._notice()

    def state(self, now_ms: int) -> tuple[ServiceState, str, Failure | None]:
        with self._watch.lock:
            failure = newest([*self._failures.values(), *([self._loss] if self._loss else [])])
            running, waiting = self._running, len(self._pending)
        work = ServiceWork(
            running=running,
            waiting=waiting,
            failure=failure,
            running_reason=f"{running} rewrites are running, {waiting} are waiting",
            waiting_reason=f"{waiting} rewrites wait for a free thread",
            idle_reason=self._refusals[0] if self._refusals else "no mutation is pending",
        )
        return service_told(self._watch.switch(self.service, now_ms), work, now_ms=now_ms)

    def progress(self) -> list[MutationProgress]:
        """How far each pending entry is, oldest first, as of now."""
        with self._watch.lock:
            head = self._head
        view, pending = self._view(self._clock.now_ms())
        if not pending:
            return []
        view = replace(view, pending=pending)
        if pending[0].id != head:
            # What has failed of the one before is nothing of this one.
            view = replace(view, failures={}, suspects=frozenset())
        selection = select_mutations(view, self._watch.knobs.mutate)
        return [self._progress_of(entry, view, selection) for entry in pending]

    # --- looking ---

    def _look_due_ms(self) -> int:
        loss = self._loss
        return max(self._next_due_ms(), 0 if loss is None else loss.until_ms)

    def _next_due_ms(self) -> int:
        if not self._has_news:
            return self._next_look_ms
        with self._watch.lock:
            if self._pending:
                return self._looked_ms + LOOK_QUIET_MS
        # While looks lead to work, the next one follows the last task at once.
        return 0 if self._is_fruitful else self._looked_ms + LOOK_BUSY_MS

    def _look(self, now_ms: int) -> None:
        """One round of selection; ends the entries that have nothing left to do."""
        self.wakeups += 1
        self._has_news = False
        self._looked_ms = now_ms
        self._next_look_ms = now_ms + LOOK_QUIET_MS
        try:
            selection = self._choose(now_ms)
        except TilthError:
            # What was not read is still news: the next look reads it.
            self._has_news = True
            raise
        self._is_fruitful = bool(selection.specs)
        if selection.next_try_ms:
            self._next_look_ms = min(self._next_look_ms, selection.next_try_ms)
        with self._watch.lock:
            self._pending = list(selection.specs)
        refusals = tuple(refusal.reason for refusal in selection.refusals)
        before = set(self._refusals)
        self._refusals = refusals
        for refusal in selection.refusals:
            if refusal.reason not in before:
                self._told(_named(refusal.mutation), refusal.reason)

    def _choose(self, now_ms: int) -> MutateSelection:
        view, pending = self._view(now_ms)
        while True:
            if pending:
                self._begin_entry(pending[0])
            with self._watch.lock:
                failures, suspects = dict(self._failures), frozenset(self._suspects)
            view = replace(view, pending=pending, failures=failures, suspects=suspects)
            selection = select_mutations(view, self._watch.knobs.mutate)
            if selection.head is None or not selection.is_finished:
                break
            if not self._catalog.mutations.finish(self._watch.uuid, selection.head.id, keep_ts=self._mark()):
                # A part that needs it has come since the parts were read.
                self._has_news = True
                break
            _log.info("mutation_done", cause_id=str(selection.head.id), table=self._watch.name)
            pending = pending[1:]
        self._prune(selection)
        self._watch.set_mutations(pending)
        return selection

    def _view(self, now_ms: int) -> tuple[MutateView, tuple[Mutation, ...]]:
        """What is there, and apart from it the entries that are pending, oldest first."""
        with self._watch.lock:
            taken = self._watch.taken.now()
            mutating = frozenset(self._mutating)
            failures, suspects = dict(self._failures), frozenset(self._suspects)
            running = self._running
        parts = self._catalog.parts.snapshot(self._watch.uuid).parts
        # Those that the manager has not told of yet wait for it: then the definition is as new as they are.
        known = {entry.id for entry in self._watch.mutations}
        pending = tuple(entry for entry in self._catalog.mutations.pending(self._watch.uuid) if entry.id in known)
        view = MutateView(
            parts=parts,
            pending=(),
            taken=taken,
            mutating=mutating,
            running=running,
            workers=self._workers(),
            failures=failures,
            suspects=suspects,
            now_ms=now_ms,
        )
        return view, pending

    def _begin_entry(self, head: Mutation) -> None:
        """What is known of parts that failed is known for one entry."""
        with self._watch.lock:
            if self._head != head.id:
                self._head = head.id
                self._failures.clear()
                self._suspects.clear()

    def _prune(self, selection: MutateSelection) -> None:
        """Forgets what is not to be done any more."""
        with self._watch.lock:
            self._to_do = set(selection.to_do)
            self._suspects &= selection.to_do
            self._failures = {name: failure for name, failure in self._failures.items() if name in selection.to_do}

    def _forget(self) -> None:
        """The last entry has ended, and what has failed of it with it."""
        with self._watch.lock:
            self._head = 0
            self._pending.clear()
            self._failures.clear()
            self._suspects.clear()
            self._loss = None
            self._to_do.clear()
        self._refusals = ()

    def _notice(self) -> None:
        self._has_news = True
        self._watch.is_woken = True

    def _progress_of(self, entry: Mutation, view: MutateView, selection: MutateSelection) -> MutationProgress:
        is_head = selection.head is not None and entry.id == selection.head.id
        failed = max(view.failures.items(), key=lambda item: item[1].at_ms, default=None) if is_head else None
        lasting = newest(failure for failure in view.failures.values() if failure.is_lasting)
        reasons = [refusal.reason for refusal in selection.refusals if refusal.mutation == entry.id]
        if is_head and not self._watch.is_on(ServiceKind.MUTATE, view.now_ms):
            switch = self._watch.switch(ServiceKind.MUTATE, view.now_ms)
            because = switch.because if switch is not None else ""
            reason = f"stopped by the user: {because}" if because else "stopped by the user"
        elif is_head and view.running:
            reason = f"{view.running} rewrites are running"
        else:
            reason = "; ".join(reasons[:3]) or "waits for a free thread"
            if lasting is not None and not is_head:
                reason = f"{reason}, where part {lasting.reason}"
        return MutationProgress(
            uuid=self._watch.uuid,
            id=entry.id,
            parts_to_do=sum(needs(part, entry) for part in view.parts),
            parts_done=entry.parts_done,
            running=view.running if is_head else 0,
            latest_failed_part="" if failed is None else failed[0],
            latest_fail_ms=0 if failed is None else failed[1].at_ms,
            latest_fail_reason="" if failed is None else failed[1].reason.removeprefix(f"{failed[0]}: "),
            next_attempt_ms=0 if failed is None or failed[1].until_ms <= view.now_ms else failed[1].until_ms,
            state_reason=reason,
            lasting_failure=f"part {lasting.reason}" if is_head and lasting is not None else "",
        )

    # --- taking and giving back ---

    def _take(self, spec: MutateSpec) -> Rewrite | None:
        """Those of the spec's parts that are free and still need it, counted as running; None if there is none."""
        with self._watch.lock:
            free = self._watch.taken.take_free(spec.parts)
            self._mutating.update(free)
        sources: tuple[Part, ...] = ()
        changes: ChangesOf = {}
        try:
            sources, changes = self._sources(spec.mutation, free)
        finally:
            kept = {str(part.name) for part in sources}
            self._let_go([name for name in free if name not in kept])
            with self._watch.lock:
                self._running += bool(sources)
            if len(kept) < len(spec.parts):
                self._notice()
        return Rewrite(spec=spec, sources=sources, changes=changes) if sources else None

    def _sources(self, mutation: Mutation, names: Sequence[str]) -> tuple[tuple[Part, ...], ChangesOf]:
        """The parts as the catalog has them now, in the order of the names, with what changes them."""
        partitions = {parse_part_name(name).partition for name in names}
        there = parts_now(self._catalog, self._watch.uuid, partitions)
        found = tuple(part for part in there.named(names) if needs(part, mutation))
        return found, changes_of(found, there.changes)

    def _give_back(self, rewrite: Rewrite) -> None:
        with self._watch.lock:
            self._running -= 1
        self._give_back_parts(rewrite)

    def _give_back_parts(self, rewrite: Rewrite) -> None:
        self._let_go([str(part.name) for part in rewrite.sources])

    def _let_go(self, names: Sequence[str]) -> None:
        with self._watch.lock:
            self._mutating.difference_update(names)
            self._watch.taken.give_back(names)

    # --- what became of a task ---

    def _succeeded(self, rewrite: Rewrite) -> None:
        entry = rewrite.spec.mutation.id
        names = [str(part.name) for part in rewrite.sources]
        with self._watch.lock:
            self._loss = None
            if self._head != entry:
                return
            for name in names:
                self._failures.pop(name, None)
                self._suspects.discard(name)
                self._to_do.discard(name)
            has_more = bool(self._to_do)
        if not has_more:
            self._finish(entry)

    def _mark(self) -> int | None:
        """Reads of the past need the columns of then up to here."""
        return ancient_mark(pack(self._clock.now_ms()), self._watch.knobs.gc.history)

    def _finish(self, entry: int) -> None:
        """Ends the entry if this was its last part. If that is not known yet, the next look does it."""
        try:
            is_done = self._catalog.mutations.finish(self._watch.uuid, entry, keep_ts=self._mark())
        except TilthError as error:
            _log.warning("mutation_not_finished", cause_id=str(entry), table=self._watch.name, reason=error)
            return
        if is_done:
            _log.info("mutation_done", cause_id=str(entry), table=self._watch.name)

    def _failed(self, rewrite: Rewrite, error: Exception) -> None:
        """A loss raises the count of no part, all else that of the part at fault, once that is known.

        Which is which follows the rule of all background services; the waits of a part are those of
        docs/policies/mutations.md#failures.
        """
        spec = rewrite.spec
        culprits = _culprits(rewrite, error)
        is_lost = rule_of(error) is Retry.BACK_OFF and not culprits
        if is_lost or not is_failure(error):
            self._lost(spec.mutation.id, error)
            return
        found = blame([str(part.name) for part in rewrite.sources], culprits)
        now_ms = self._clock.now_ms()
        with self._watch.lock:
            if self._head != spec.mutation.id:
                return
            self._suspects.update(found.suspects)
            for name in found.failed:
                self._suspects.discard(name)
                self._failures[name] = failed_once_more(
                    self._failures.get(name),
                    reason=f"{name}: {error}",
                    now_ms=now_ms,
                    longest_ms=self._watch.knobs.mutate.postpone_ms_max,
                    is_lasting=rule_of(error) is Retry.WAIT_LONG,
                )
        _log.warning(
            "mutation_task_failed",
            cause_id=str(spec.mutation.id),
            table=self._watch.name,
            parts=len(rewrite.sources),
            at_fault=",".join(found.failed),
            reason=error,
        )

    def _lost(self, entry: int, error: Exception) -> None:
        """A worker is gone or something does not answer; or what we know is old. No haste, and longer each time."""
        self._is_fruitful = False
        self._told(_named(entry), str(error))
        with self._watch.lock:
            if rule_of(error) is Retry.STOP:
                self._pending.clear()
            elif is_failure(error) and not isinstance(error, TaskCancelledError):
                self._loss = failed_again(self._loss, error, now_ms=self._clock.now_ms(), about=_named(entry))

    def _resolve_unknown(self) -> None:
        for rewrite, error in self._attempts.resolve():
            if error is None:
                self._succeeded(rewrite)
            else:
                self._failed(rewrite, error)
            self._give_back_parts(rewrite)
            self._notice()


def _work_of(prepared: Prepared) -> Rewrite:
    assert isinstance(prepared.work, Rewrite)
    return prepared.work


def _named(entry: int) -> str:
    return f"mutation {entry}"


def _culprits(rewrite: Rewrite, error: Exception) -> set[str]:
    """The parts that the error names, by themselves or by their files."""
    if not isinstance(error, TilthError):
        return set()
    named = {error.facts.get("part", ""), error.facts.get("file", "").rsplit("/", 1)[-1]}
    return {str(part.name) for part in rewrite.sources if str(part.name) in named or part.file.name in named}
