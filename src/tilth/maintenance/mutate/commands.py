"""Progress of the mutations of one table.

Tests: tests/unit/maintenance/mutate/test_op.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilth.maintenance.mutate.op import MutatePlanner
from tilth.maintenance.mutate.policy import MutateSelection, MutateView, select_mutations
from tilth.maintenance.mutate.rewrite import Rewrite, RewriteProcedure
from tilth.maintenance.mutate.task_spark import MutateFacts
from tilth.maintenance.state import newest
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.part_work import PartWorkOp
from tilth.model.mutation import Mutation, needs
from tilth.model.service import ServiceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationProgress:
    """Progress of a pending mutation; joined with its entry by `uuid` and `id`."""

    #: The table's.
    uuid: str
    id: int
    #: Visible parts that still need it, and those that it has reached.
    parts_to_do: int
    parts_done: int
    #: Tasks under way.
    running: int
    #: Empty, and the times 0, while nothing has failed.
    latest_failed_part: str = ""
    latest_fail_ms: int = 0
    latest_fail_reason: str = ""
    #: Retry time of the part that failed, milliseconds since 1970; 0: at the next poll.
    next_attempt_ms: int = 0
    #: Current activity, or the reason why it waits.
    state_reason: str = ""
    #: `part .. : why`, where a part failed in a way that waiting alone does not heal; empty otherwise.
    lasting_failure: str = ""


class MutateCommands:
    """The op of one table's mutations, and their progress. For any thread."""

    def __init__(self, context: TableContext) -> None:
        self._watch = context.watch
        self._planner = MutatePlanner(context)
        self.op: PartWorkOp[Rewrite, MutateFacts] = PartWorkOp(context, self._planner, RewriteProcedure(context))

    def progress(self) -> list[MutationProgress]:
        """Return the progress of each pending entry, oldest first, as of now."""
        failing = self._planner.failures.entry
        snapshot = self.op.snapshot()
        view, pending = self._planner.view(snapshot, self.op.busy(snapshot.now_ms))
        if not pending:
            return []
        view = replace(view, pending=pending)
        if pending[0].id != failing:
            # The failures are those of the entry before, not of this one.
            view = replace(view, failures={}, suspects=frozenset())
        selection = select_mutations(view, self._watch.settings.mutate)
        return [self._progress_of(entry, view, selection) for entry in pending]

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
