"""MUTATE of one table: apply the entries of ALTER to the parts, entry by entry, a batch of parts in each task.

Covers: refreshes, the end of an entry. Does not cover: which parts are next (policy.py), what a rewrite is
(rewrite.py), the part that a failure belongs to (failures.py), progress of entries (commands.py), reserving and running
(maintenance/work).
Always holds: entries are read after parts (docs/policies/mutations.md#inputs); an entry is begun when the one before it
has ended. Parts of batches that wait are not reserved, so that merges go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilth.base.errors import TilthError
from tilth.base.hybrid import pack
from tilth.base.logs import Log
from tilth.base.retry import Retry
from tilth.maintenance.kinds import OpStats, Refused
from tilth.maintenance.mutate.failures import EntryFailures
from tilth.maintenance.mutate.policy import (
    MutateSelection,
    MutateView,
    mutation_gain,
    select_mutations,
)
from tilth.maintenance.mutate.rewrite import Rewrite
from tilth.maintenance.state import NEVER_MS, ServiceWork, rule_of
from tilth.maintenance.table.sources import changes_of, parts_now
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.planner import (
    Busy,
    Cancelled,
    Denied,
    OpSnapshot,
    PartLogged,
    Planner,
    Renewed,
    Stopped,
    WorkEnded,
    WorkEvent,
    is_left_alone,
)
from tilth.model.history import ancient_mark
from tilth.model.mutation import Mutation, needs
from tilth.model.part import parse_part_name

#: Time between two refreshes of a table whose parts change, also after a task was lost; and of one whose parts do not,
#: or where batches wait for their turn.
REFRESH_BUSY_MS = 1_000
REFRESH_QUIET_MS = 10_000

#: Events after which the parts differ from the last refresh. A new part never needs an entry.
_NEWS = frozenset({"merge", "flush", "hide", "undrop", "mutate"})

_log = Log("maintenance")


class MutatePlanner(Planner[Rewrite]):
    """The batches of parts that the oldest mutation of one table has left to do."""

    failures: EntryFailures

    def __init__(self, context: TableContext) -> None:
        self._catalog = context.server.catalog
        self._workers = context.server.workers
        self._watch = context.watch
        self.failures = EntryFailures(context.watch)
        self._waiting: list[Rewrite] = []
        #: Parts that the oldest entry has left to do.
        self._to_do: frozenset[str] = frozenset()
        self._refusals: Sequence[tuple[str, str]] = ()
        #: `True` if the last poll found a batch.
        self._is_fruitful = False
        self._next_refresh_ms = 0

    @property
    def refusals(self) -> Sequence[tuple[str, str]]:
        return self._refusals

    def observe(self, event: WorkEvent[Rewrite], now_ms: int) -> bool:
        match event:
            case PartLogged():
                return event.event.event in _NEWS and bool(self._watch.mutations)
            case Renewed():
                self._waiting = []
                return True
            case Cancelled(partition=partition):
                self._waiting = [
                    each for each in self._waiting if partition is not None and partition not in each.partitions
                ]
                return False
            case Stopped():
                return False
            case Denied():
                return True
            case WorkEnded(work=work, error=error):
                if error is None:
                    self._landed(work, now_ms)
                elif is_left_alone(error) or self.failures.loss is not None:
                    # The known entries are outdated, or a worker is gone: no haste.
                    self._is_fruitful = False
                    if rule_of(error) is Retry.STOP:
                        self._waiting = []
                return True

    def refresh_due_ms(self, snapshot: OpSnapshot) -> int:
        if not self._watch.mutations:
            return NEVER_MS
        loss = self.failures.loss
        return max(self._next_due_ms(snapshot), 0 if loss is None else loss.until_ms)

    def due_ms(self, snapshot: OpSnapshot) -> int:
        if self._waiting and self._watch.mutations and snapshot.running < self._watch.settings.mutate.running_max:
            return 0
        return self.refresh_due_ms(snapshot)

    def refresh(self, snapshot: OpSnapshot, busy: Busy) -> None:
        """Do one round of selection; end the entries that have nothing left to do."""
        self._next_refresh_ms = snapshot.now_ms + REFRESH_QUIET_MS
        selection, is_stale = self._select(snapshot, busy)
        self._is_fruitful = bool(selection.specs)
        if is_stale:
            self._next_refresh_ms = snapshot.now_ms + REFRESH_BUSY_MS
        if selection.next_try_ms:
            self._next_refresh_ms = min(self._next_refresh_ms, selection.next_try_ms)
        self._waiting = [Rewrite(spec=spec) for spec in selection.specs]
        self._refusals = [(_named(refusal.mutation), refusal.reason) for refusal in selection.refusals]

    def choose(self, snapshot: OpSnapshot) -> OpStats:
        if not self._watch.mutations:
            self._forget()
            return OpStats.idle("no mutation is pending")
        if not self._waiting:
            return OpStats.idle(self._idle_reason("nothing to rewrite"))
        if snapshot.running >= self._watch.settings.mutate.running_max:
            return OpStats.idle(f"{snapshot.running} rewrites are running, more are not allowed")
        spec = self._waiting[0].spec
        return OpStats(
            is_runnable=True, perf_improvement=mutation_gain(spec.mutation, now_ms=snapshot.now_ms), about=spec.reason
        )

    def dequeue(self, snapshot: OpSnapshot, busy: Busy) -> Sequence[Rewrite] | Refused:
        if not self._waiting:
            return Refused("no rewrite is waiting")
        return [self._waiting.pop(0)]

    def load(self, work: Rewrite, names: Sequence[str]) -> Rewrite | None:
        there = parts_now(self._catalog, self._watch.uuid, {parse_part_name(name).partition for name in names})
        found = tuple(part for part in there.named(names) if needs(part, work.spec.mutation))
        return Rewrite(spec=work.spec, sources=found, changes=changes_of(found, there.changes)) if found else None

    def is_outdated(self, work: Rewrite) -> bool:
        return work.spec.mutation.id not in {entry.id for entry in self._watch.mutations}

    def status(self, snapshot: OpSnapshot) -> ServiceWork:
        waiting = len(self._waiting)
        return ServiceWork(
            running=snapshot.running,
            waiting=waiting,
            failure=self.failures.newest(),
            running_reason=f"{snapshot.running} rewrites are running, {waiting} are waiting",
            waiting_reason=f"{waiting} rewrites wait for a free thread",
            idle_reason=self._idle_reason("no mutation is pending"),
        )

    def view(self, snapshot: OpSnapshot, busy: Busy) -> tuple[MutateView, tuple[Mutation, ...]]:
        """Return the state of the table, and apart from it the entries that are pending, oldest first."""
        failures, suspects = self.failures.by_part()
        parts = self._catalog.parts.snapshot(self._watch.uuid).parts
        # Entries that the manager has not reported yet wait for it: then the definition is as new as they are.
        known = {entry.id for entry in self._watch.mutations}
        pending = tuple(entry for entry in self._catalog.mutations.pending(self._watch.uuid) if entry.id in known)
        view = MutateView(
            parts=parts,
            pending=(),
            reserved=busy.reserved,
            mutating=busy.own,
            running=snapshot.running,
            workers=self._workers(),
            failures=failures,
            suspects=suspects,
            now_ms=snapshot.now_ms,
        )
        return view, pending

    def _next_due_ms(self, snapshot: OpSnapshot) -> int:
        if not snapshot.has_news:
            return self._next_refresh_ms
        if self._waiting:
            return snapshot.refreshed_ms + REFRESH_QUIET_MS
        # While refreshes lead to work, the next one follows the last task at once.
        return 0 if self._is_fruitful else snapshot.refreshed_ms + REFRESH_BUSY_MS

    def _select(self, snapshot: OpSnapshot, busy: Busy) -> tuple[MutateSelection, bool]:
        """Return the selection of the oldest entry that is not done, and whether its inputs are out of date already."""
        view, pending = self.view(snapshot, busy)
        is_stale = False
        while True:
            if pending:
                self.failures.begin(pending[0].id)
            failures, suspects = self.failures.by_part()
            view = replace(view, pending=pending, failures=failures, suspects=suspects)
            selection = select_mutations(view, self._watch.settings.mutate)
            if selection.head is None or not selection.is_finished:
                break
            if not self._finish(selection.head.id, snapshot.now_ms):
                # A part that needs it has come since the parts were read.
                is_stale = True
                break
            pending = pending[1:]
        self._to_do = selection.to_do
        self.failures.keep(selection.to_do)
        self._watch.set_mutations(pending)
        return selection, is_stale

    def _landed(self, work: Rewrite, now_ms: int) -> None:
        """End the entry if this was its last part. If that is not known yet, the next observation does it."""
        entry = work.spec.mutation.id
        if self.failures.entry != entry:
            return
        self._to_do = self._to_do.difference(work.names)
        if not self._to_do:
            try:
                self._finish(entry, now_ms)
            except TilthError as error:
                _log.warning("mutation_not_finished", cause_id=str(entry), table=self._watch.name, reason=error)

    def _finish(self, entry: int, now_ms: int) -> bool:
        # Reads of the past need the columns of then up to here.
        mark = ancient_mark(pack(now_ms), self._watch.settings.gc.history)
        is_done = self._catalog.mutations.finish(self._watch.uuid, entry, keep_ts=mark)
        if is_done:
            _log.info("mutation_done", cause_id=str(entry), table=self._watch.name)
        return is_done

    def _forget(self) -> None:
        """Forget the last entry and its failures."""
        self._waiting = []
        self.failures.forget()
        self._to_do = frozenset()
        self._refusals = ()

    def _idle_reason(self, otherwise: str) -> str:
        return self._refusals[0][1] if self._refusals else otherwise


def _named(entry: int) -> str:
    return f"mutation {entry}"
