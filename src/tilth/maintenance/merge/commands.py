"""Commands about the merges of one table: OPTIMIZE of a partition, EXPLAIN MERGE.

Covers: merging until nothing is left to merge, the lines of EXPLAIN gathered. Does not cover: what the lines say
(explain_merge.py), OPTIMIZE of a whole table with its flush (the manager).

Tests: tests/unit/maintenance/merge/test_op.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilth.base.cancel import raise_if_cancelled
from tilth.catalog import PartsGoneError
from tilth.maintenance.kinds import Prepared
from tilth.maintenance.merge.choice import MergeChoice
from tilth.maintenance.merge.explain_merge import (
    MergeCandidateRow,
    MergeSnapshot,
    explain_damaged,
    explain_held,
    explain_history,
    explain_now,
    policy_named,
)
from tilth.maintenance.merge.op import DISABLED, PARTS_MAX, Merge, MergeOp, MergePlanner, MergeProcedure
from tilth.maintenance.merge.policy.candidates import Effort, MergeSpec
from tilth.maintenance.merge.policy.replay import EVENTS_MAX, replay
from tilth.maintenance.table.sources import PartsNow, parts_by_partition, parts_now
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.part_work import PartWorkOp
from tilth.model.service import ServiceKind


class MergeCommands:
    """The op of one table's merges, and the commands about them. For any thread."""

    def __init__(self, context: TableContext) -> None:
        self._clock = context.server.clock
        self._catalog = context.server.catalog
        self._watch = context.watch
        self._choice = MergeChoice(context)
        self._planner = MergePlanner(context, self._choice)
        self.op: MergeOp = PartWorkOp(context, self._planner, MergeProcedure(context, self._choice))

    def explain(self, policy: str | None = None) -> list[MergeCandidateRow]:
        """Every candidate as of now: what would be merged, what is not and why.

        With a policy: what that one would do with the parts as they are, then what it would have made of the history
        that the part log still has, beside what really happened. Raises InvalidInputError for an unknown policy.
        """
        wanted = self._choice.policy if policy is None else policy_named(policy)
        now_ms = self._clock.now_ms()
        snapshot = self._snapshot(now_ms)
        # Copied before parts are read.
        being = self._watch.reserved.now()
        damaged = frozenset(snapshot.damaged) & self._watch.damaged.left_out(now_ms)
        there = parts_now(self._catalog, self._watch.uuid)
        candidates = self._choice.explain(
            there.parts, there.changes, being_merged=being | damaged, policy=wanted, now_ms=now_ms
        )
        merging = [part for part in there.parts if str(part.name) in being and not part.is_segment]
        left_out = [part for part in there.parts if str(part.name) in damaged - being]
        rows = [*explain_now(candidates, merging, snapshot), *explain_damaged(left_out, snapshot)]
        why, until_ms = self._held(now_ms)
        if why:
            rows = explain_held(rows, why, until_ms)
        if policy is None:
            return rows
        events = self._catalog.part_log.recent(table=self._watch.uuid, limit=EVENTS_MAX)
        found = replay(events, select=self._choice.selector(wanted), keys_of=self._choice.keys_of)
        return rows + explain_history(found, wanted)

    def separated(self, partitions: Sequence[str]) -> str:
        """Return which of these partitions a pending mutation keeps in several parts; empty if none."""
        pending = self._watch.mutations
        if not pending:
            return ""
        now_ms = self._clock.now_ms()
        apart = [name for name in partitions if self._choice.is_separated(self._parts(name).parts, now_ms)]
        named = f"{apart[0]} and {len(apart) - 1} more" if len(apart) > 1 else "".join(apart)
        return f"a pending mutation ({pending[0].command}) keeps parts of {named} apart" if apart else ""

    def optimize(self, partition: str, effort: Effort, *, deadline_ms: int) -> list[tuple[int, int, int]]:
        """Merges the partition's parts until nothing is left to merge; waits for merges under way there.

        Returns sources, rows and bytes of each merge. Raises the error of a merge that failed.
        """
        done: list[tuple[int, int, int]] = []
        #: Blocks of parts that were written anew alone: as time goes on, more of their rows expire.
        rewritten: set[tuple[int, int]] = set()
        while not self.op.is_cancelled:
            raise_if_cancelled()
            being = self._watch.reserved.now()
            there = self._parts(partition)
            now_ms = self._clock.now_ms()
            left_out = being | self._watch.damaged.left_out(now_ms)
            selection = self._choice.select(
                there.parts, there.changes, being_merged=left_out, effort=effort, now_ms=now_ms
            )
            specs = [spec for spec in selection.specs if not _is_repeated(spec, there, rewritten)]
            if not specs:
                is_busy = any(str(part.name) in being for part in there.parts)
                if not is_busy or self._clock.now_ms() >= deadline_ms:
                    return done
                self._watch.reserved.wait()
                self.op.resolve()
                continue
            for merge in self.op.begin([Merge(spec=specs[0])]):
                try:
                    self.op.perform(Prepared(about="optimize", work=[merge]))
                except PartsGoneError:
                    # Their partition was dropped, or had expired: the present parts are read again.
                    continue
                sources = merge.sources
                rewritten.update(part.name.blocks for part in sources if merge.spec.is_lone)
                done.append((len(sources), sum(part.rows for part in sources), sum(part.bytes for part in sources)))
        return done

    def _snapshot(self, now_ms: int) -> MergeSnapshot:
        """Return what the op knows beside its parts."""
        with self.op.locked():
            return MergeSnapshot(
                now_ms=now_ms,
                next_refresh_ms=self._planner.next_refresh_ms,
                waiting=frozenset(name for merge in self._planner.held for name in merge.names),
                failures=self._planner.failures.all(),
                damaged=self._watch.damaged.all(),
                postponed=self._planner.postponed_until(),
            )

    def _held(self, now_ms: int) -> tuple[str, int]:
        """Return why no merge begins in the background, empty where some may; and until when, 0: until somebody says
        so."""
        switch = self._watch.switch(ServiceKind.MERGE, now_ms)
        if switch is not None and not self._watch.is_on(ServiceKind.MERGE, now_ms):
            because = f" ({switch.because})" if switch.because else ""
            return f"merges are {switch.state.value} by the user{because}", switch.until_ms
        return (DISABLED, 0) if self._watch.settings.merge.is_disabled else ("", 0)

    def _parts(self, partition: str) -> PartsNow:
        return parts_by_partition(self._catalog, self._watch.uuid, [partition], parts_max=PARTS_MAX)[partition]


def _is_repeated(spec: MergeSpec, there: PartsNow, rewritten: Collection[tuple[int, int]]) -> bool:
    """True if the part was written anew for its expired rows already, and has no changes."""
    [part, *others] = there.named(spec.parts)
    return not others and part.file.name not in there.changes and part.name.blocks in rewritten
