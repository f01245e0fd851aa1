"""The compactions of one table's deltas: FLUSH_DELTAS, MINOR_DELTA and MAJOR_DELTA.

Covers: what the three share, the procedure. Does not cover: which deltas are worth it (policy.py), reading what there
is (observation.py), reserving, running, failures (maintenance/work), the bytes (tilth.storage).
Always holds: newer changes than those that were read stay as they are, for they apply later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal

from tilth.base.units import show_bytes
from tilth.catalog import DeltasGoneError, PartsGoneError, ReplaceDeltas, Update
from tilth.maintenance.deltas.observation import DeltaObservation
from tilth.maintenance.deltas.policy import (
    DeltaChoice,
    DeltaWork,
    PartitionDeltas,
    choose_flush,
    choose_major,
    choose_minor,
    column_shares,
)
from tilth.maintenance.deltas.task_spark import DeltaFacts, DeltaTask, DeltaWay
from tilth.maintenance.kinds import OpKind, OpStats, Refused
from tilth.maintenance.state import NEVER_MS, ServiceWork
from tilth.maintenance.table.sources import sources_of
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.failures import PartitionFailures
from tilth.maintenance.work.part_work import PartWorkOp
from tilth.maintenance.work.planner import (
    Busy,
    Denied,
    OpSnapshot,
    PartLogged,
    Planner,
    Renewed,
    WorkEnded,
    WorkEvent,
)
from tilth.maintenance.work.procedure import Job, Output, Procedure
from tilth.model.delta import Seen
from tilth.storage import layout_of

#: Function of the partitions with deltas, the names of busy parts and the time.
ChooseDeltas = Callable[[Sequence[PartitionDeltas], Collection[str], int], DeltaChoice]

#: Action of the worker and event in the part log, by op.
_WAYS: Final[dict[OpKind, tuple[DeltaWay, Literal["flush_deltas", "minor_delta", "major_delta"]]]] = {
    OpKind.FLUSH_DELTAS: (DeltaWay.FLUSH, "flush_deltas"),
    OpKind.MINOR_DELTA: (DeltaWay.MINOR, "minor_delta"),
    OpKind.MAJOR_DELTA: (DeltaWay.MAJOR, "major_delta"),
}


class DeltaPlanner(Planner[DeltaWork]):
    """One kind of compaction of one table's deltas."""

    failures: PartitionFailures

    def __init__(
        self, context: TableContext, kind: OpKind, choose: ChooseDeltas, observation: DeltaObservation
    ) -> None:
        """`observation` is shared with the table's other compactions."""
        self._watch = context.watch
        self._kind = kind
        self._choose = choose
        self._observation = observation
        self.failures = PartitionFailures(kind, context.watch)
        self._choice = DeltaChoice(about="not checked yet")

    def observe(self, event: WorkEvent[DeltaWork], now_ms: int) -> bool:
        match event:
            case PartLogged():
                return self._observation.observe(event.event, event.partition)
            case Renewed():
                self._observation.notice_all()
                return True
            case Denied(work=work) | WorkEnded(work=work):
                self._observation.notice(work.partition)
                return True
        return False

    def refresh_due_ms(self, snapshot: OpSnapshot) -> int:
        # It costs nothing: what has not changed is not read again.
        return 0

    def due_ms(self, snapshot: OpSnapshot) -> int:
        retries = [each.until_ms for each in self.failures.waiting(snapshot.refreshed_ms).values()]
        return min([self._observation.due_ms, self._choice.due_ms, *retries])

    def refresh(self, snapshot: OpSnapshot, busy: Busy) -> None:
        partitions = self._observation.partitions()
        self._choice = self._chosen(partitions, busy, snapshot.now_ms)
        there, is_idle = {each.partition for each in partitions}, self._choice.work is None
        # A failure is over where nothing is left that could fail.
        self.failures.keep(lambda name, each: name in there and not (is_idle and each.until_ms <= snapshot.now_ms))

    def choose(self, snapshot: OpSnapshot) -> OpStats:
        work = self._choice.work
        if work is None:
            return OpStats.idle(self._choice.about)
        return OpStats(
            is_runnable=True, perf_improvement=work.gain, logs_retained_bytes=work.log_bytes, about=work.about
        )

    def dequeue(self, snapshot: OpSnapshot, busy: Busy) -> Sequence[DeltaWork] | Refused:
        wanted = self._choice.work
        if wanted is None:
            return Refused("nothing is chosen")
        self._choice = self._chosen([self._observation.fresh(wanted.partition)], busy, snapshot.now_ms)
        work = self._choice.work
        if work is None:
            return Refused(f"{wanted.partition}: {self._choice.about}")
        self._choice = DeltaChoice(about=work.about, due_ms=0)
        return [work]

    def status(self, snapshot: OpSnapshot) -> ServiceWork:
        work = self._choice.work
        return ServiceWork(
            running=snapshot.running,
            waiting=int(work is not None),
            failure=self.failures.newest(),
            running_reason=f"{snapshot.running} {self._kind} are running",
            waiting_reason="" if work is None else work.about,
            idle_reason=self._choice.about,
        )

    def _chosen(self, partitions: Sequence[PartitionDeltas], busy: Busy, now_ms: int) -> DeltaChoice:
        failing = self.failures.waiting(now_ms)
        if busy.damaged and self._kind is OpKind.FLUSH_DELTAS:
            partitions = [each.apart_from(busy.damaged) for each in partitions]
        choice = self._choose([each for each in partitions if each.partition not in failing], busy.all, now_ms)
        if choice.work is not None:
            return choice
        due_ms = min(choice.due_ms, *self._watch.damaged.next_try_ms(now_ms), NEVER_MS)
        about = next(iter(failing.values())).reason if failing else choice.about
        return DeltaChoice(about=about, due_ms=due_ms)


class DeltaProcedure(Procedure[DeltaWork, DeltaFacts]):
    """Procedure of compactions of one kind."""

    facts_type = DeltaFacts
    overtaken = (PartsGoneError, DeltasGoneError)

    def __init__(self, context: TableContext, kind: OpKind) -> None:
        self.kind = kind
        self._way, self._event = _WAYS[kind]
        self.verb: str = self._event
        self.noun: str = self._event
        self._context = context
        self._root = context.server.root
        self._watch = context.watch

    def about(self, works: Sequence[DeltaWork]) -> str:
        [work] = works
        return work.about

    def job(self, work: DeltaWork) -> Job:
        definition = self._watch.definition
        is_flush, is_major = self._way is DeltaWay.FLUSH, self._way is DeltaWay.MAJOR
        # Change segments say themselves what they change.
        targets = sources_of(definition, work.sources, {} if is_flush else work.changes)
        task = DeltaTask(
            layout=layout_of(definition, self._root),
            way=self._way,
            partition=work.partition,
            sources=work.deltas,
            targets=targets,
            kept=tuple(part.file.name for part in work.kept),
            columns=column_shares(targets[0], task_bytes=self._context.merge_task_bytes) if is_major else (),
            txn=0,
        )
        return Job(
            task=task,
            tasks=max(1, len(task.columns)),
            input_bytes=work.bytes + (sum(part.bytes for part in work.parts) if is_major else 0),
            rows=_rows(work, is_major=is_major),
        )

    def outputs(self, work: DeltaWork, facts: DeltaFacts) -> list[Output]:
        """None: newer changes apply after what was written."""
        return []

    def updates(self, work: DeltaWork, facts: DeltaFacts, duration_ms: int, seen: Seen) -> list[Update]:
        # Changes of a visible part are never made nothing of.
        assert facts.written, work.deltas
        replaced = ReplaceDeltas(
            table=self._watch.uuid,
            partition=work.partition,
            sources=tuple(delta.file.name for delta in work.deltas),
            written=facts.written,
            event=self._event,
            duration_ms=duration_ms,
            reason=work.reason,
        )
        return [replaced]

    def report(self, work: DeltaWork, facts: DeltaFacts, duration_ms: int) -> str:
        size = show_bytes(sum(delta.file.size for delta in facts.written))
        became = f"{len(work.deltas)} deltas of {work.partition} became {len(facts.written)} with {size}"
        return f"{became} for {len(work.parts)} parts in {duration_ms} ms"


def delta_ops(context: TableContext) -> list[PartWorkOp[DeltaWork, DeltaFacts]]:
    """Return the three compactions of one table, which share their observation."""
    settings, used_percent = context.server.settings, context.server.used_percent
    choices: dict[OpKind, ChooseDeltas] = {
        OpKind.FLUSH_DELTAS: lambda partitions, busy, now_ms: choose_flush(
            partitions, busy=busy, now_ms=now_ms, settings=settings.flush, used_percent=used_percent()
        ),
        OpKind.MINOR_DELTA: lambda partitions, busy, _: choose_minor(partitions, busy=busy, settings=settings.deltas),
        OpKind.MAJOR_DELTA: lambda partitions, busy, _: choose_major(partitions, busy=busy, settings=settings.deltas),
    }
    observation = DeltaObservation(context.server.clock, context.server.catalog, context.watch)
    return [
        PartWorkOp(context, DeltaPlanner(context, kind, choose, observation), DeltaProcedure(context, kind))
        for kind, choose in choices.items()
    ]


def _rows(work: DeltaWork, *, is_major: bool) -> int:
    if is_major:
        return sum(part.rows for part in work.parts)
    return sum(target.deleted + target.updated for delta in work.deltas for target in delta.targets)
