"""The queries to a table's merge policy, and the candidates that they are about.

Covers: parts as candidates, the policy in force, expired partitions, what a merge is worth to readers. Does not cover:
the policies (policy), which parts are read and when (op.py).
Always holds: the answer follows from the parts, the table's definition, its pending mutations and statistics.

Tests: tests/unit/maintenance/merge/test_op.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf

from tilth.base.errors import InvalidInputError
from tilth.base.hybrid import milliseconds
from tilth.base.settings import setting_of
from tilth.maintenance.merge.policy.candidates import (
    CandidatePart,
    CandidateState,
    Effort,
    MergeCandidate,
    MergeSelection,
    MergeSpec,
    by_partition,
)
from tilth.maintenance.merge.policy.expired_rows import has_expired_rows, judge_rows, rewrite_due_ms
from tilth.maintenance.merge.policy.joined_ranges import (
    TARGETS_PER_RANGE,
    JoinedRanges,
    join_candidates,
    ranges_wanted,
    why_cut,
)
from tilth.maintenance.merge.policy.key_bytes import key_bounds
from tilth.maintenance.merge.policy.key_range import KeyRangePolicy, mergeable_by_shape
from tilth.maintenance.merge.policy.lone import (
    explained_with_expired_rows,
    lone_ripe_seconds,
    with_expired_rows,
)
from tilth.maintenance.merge.policy.replay import SelectMerges
from tilth.maintenance.merge.policy.size_tiered import Ripening, read_gain, ripening, select_merges
from tilth.maintenance.merge.policy.size_tiered_candidates import explain_merges
from tilth.maintenance.table.partition_counts import PartitionStats
from tilth.maintenance.table.settings import MergePolicy, MergeSettings
from tilth.maintenance.table.sources import ChangesOf, delta_bytes
from tilth.maintenance.table.ttl import TableTtl, is_expired, ttl_of
from tilth.maintenance.work.context import TableContext
from tilth.model.mutation import Mutation, first_needed
from tilth.model.part import Part, PartEvent
from tilth.model.table import TableDef


class MergeChoice:
    """The merge policy of one table, with its memory."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._watch = context.watch
        self._workers = context.server.workers
        self._clock_check = context.server.catalog.clock_check
        self._key_range = KeyRangePolicy()
        self._ttl_of: TableDef | None = None
        self._ttl: TableTtl | None = None

    @property
    def policy(self) -> MergePolicy:
        """Policy of the table, which follows from its key where none is set."""
        definition = self._watch.definition
        if definition.unique_key and setting_of(MergeSettings, "policy").name not in definition.settings:
            return MergePolicy.KEY_RANGE
        return self._watch.settings.merge.policy

    def select(
        self, parts: Sequence[Part], changes: ChangesOf, *, being_merged: Collection[str], effort: Effort, now_ms: int
    ) -> MergeSelection:
        """Select merges worth doing among these parts, none of them with a segment."""
        policy = self._policy_for(effort)
        candidates = self._with_expired(self._candidates(parts, changes, policy, now_ms), parts, effort, now_ms)
        # The remembered policy belongs to the refreshes of one thread; an OPTIMIZE selects on threads of its own.
        key_range = self._key_range if effort is Effort.NORMAL else KeyRangePolicy()
        joined = self._joined(policy, candidates, parts, being_merged, now_ms)
        busy = joined.busy.union(being_merged)
        found = self._select(policy, key_range, joined.candidates, busy, self._stats(), now_ms / 1000, effort)
        selection = with_expired_rows(joined.with_parts(found), candidates, being_merged=being_merged)
        return replace(
            selection,
            specs=tuple(
                replace(spec, reason=spec.reason + self._why_cut(len(spec.parts), spec.size))
                for spec in selection.specs
            ),
        )

    def ripening(
        self, parts: Sequence[Part], changes: ChangesOf, *, being_merged: Collection[str], now_ms: int
    ) -> dict[str, Ripening]:
        """Return for each partition of these parts, of which `select` chooses nothing now, when its age alone changes
        that.
        """
        settings, policy = self._watch.settings.merge, self.policy
        candidates = self._candidates(parts, changes, policy, now_ms)
        if policy is MergePolicy.KEY_RANGE:
            # Age matters only for a part that folds its deltas alone.
            return {
                name: Ripening(
                    min(
                        (
                            lone_ripe_seconds(mergeable, settings)
                            for mergeable in mergeable_by_shape(members, being_merged=being_merged)
                        ),
                        default=inf,
                    )
                )
                for name, members in by_partition(candidates).items()
            }
        joined = self._joined(policy, candidates, parts, being_merged, now_ms)
        busy = joined.busy.union(being_merged)
        return {
            name: ripening(members, being_merged=busy, workers=self._workers(), settings=settings)
            for name, members in by_partition(joined.candidates).items()
        }

    def ranges_of(self, parts: int, size: int) -> int:
        """Return the number of key ranges of a merge of so many parts and bytes; 1: it is not cut."""
        settings, is_by_key = self._watch.settings.merge, self.policy is MergePolicy.KEY_RANGE
        # The policy `key_range` counts each range as a part; `size_tiered` counts all ranges as one.
        least = TARGETS_PER_RANGE * settings.key_range.target_size if is_by_key else 0
        return ranges_wanted(parts, size, task_bytes=self._context.merge_task_bytes, range_bytes_min=least)

    def _why_cut(self, parts: int, size: int) -> str:
        return why_cut(self.ranges_of(parts, size), task_bytes=self._context.merge_task_bytes)

    def rewrite_due_ms(self, parts: Sequence[Part]) -> int | None:
        """Return when the first of these parts is written anew for its expired rows; None: none of them ever."""
        if self.ttl is None:
            return None
        settings = self._watch.settings.merge
        due = (rewrite_due_ms(self.ttl, part, settings=settings) for part in parts if not part.is_segment)
        return min((each for each in due if each is not None), default=None)

    def explain(
        self,
        parts: Sequence[Part],
        changes: ChangesOf,
        *,
        being_merged: Collection[str],
        policy: MergePolicy,
        now_ms: int,
    ) -> tuple[MergeCandidate, ...]:
        """Return every candidate among these parts, with the verdict of the policy."""
        candidates = self._candidates(parts, changes, policy, now_ms)
        candidates = self._with_expired(candidates, parts, Effort.NORMAL, now_ms)
        settings = self._watch.settings.merge
        by_name = {str(part.name): part for part in parts}
        joined = self._joined(policy, candidates, parts, being_merged, now_ms)
        busy = joined.busy.union(being_merged)
        match policy:
            case MergePolicy.KEY_RANGE:
                found = KeyRangePolicy().explain(joined.candidates, being_merged=busy, settings=settings)
            case MergePolicy.SIZE_TIERED:
                found = explain_merges(
                    joined.candidates,
                    being_merged=busy,
                    stats=self._stats(),
                    workers=self._workers(),
                    now=now_ms / 1000,
                    settings=settings,
                )
        found = explained_with_expired_rows(joined.explained(found), candidates, being_merged=being_merged)
        return tuple(self._with_ttl(self._with_cut(each), by_name, now_ms) for each in found)

    def _with_cut(self, candidate: MergeCandidate) -> MergeCandidate:
        """Add to the reason of a merge that may come into how many key ranges it is cut, and why."""
        if candidate.state not in (CandidateState.WOULD_RUN, CandidateState.LOST):
            return candidate
        return replace(candidate, reason=candidate.reason + self._why_cut(len(candidate.parts), candidate.size))

    def _joined(
        self,
        policy: MergePolicy,
        candidates: Sequence[CandidatePart],
        parts: Sequence[Part],
        being_merged: Collection[str],
        now_ms: int,
    ) -> JoinedRanges:
        """Return the candidates of the policy: by size the ranges of a merge are one, by key each is a part like
        others.
        """
        cuts = {str(part.name): part.cut for part in parts if part.cut and policy is MergePolicy.SIZE_TIERED}
        damaged = self._watch.damaged.left_out(now_ms) if cuts else frozenset()
        return join_candidates(candidates, cuts, being_merged=being_merged, damaged=damaged)

    def _with_expired(
        self, candidates: list[CandidatePart], parts: Sequence[Part], effort: Effort, now_ms: int
    ) -> list[CandidatePart]:
        """Mark the candidates whose expired rows are due to go; with OPTIMIZE FINAL all that have expired."""
        ttl = self.ttl_in_force
        if ttl is None:
            return candidates
        expired = [part for part in parts if has_expired_rows(ttl, part, now_ms)]
        if effort is not Effort.FINAL:
            due = ((part, self.rewrite_due_ms([part])) for part in expired)
            expired = [part for part, due_ms in due if due_ms is not None and due_ms <= now_ms]
        names = {str(part.name) for part in expired}
        return [replace(each, has_expired_rows=each.name in names) for each in candidates]

    def _with_ttl(self, candidate: MergeCandidate, parts: Mapping[str, Part], now_ms: int) -> MergeCandidate:
        """Add to the reason of a part alone what the TTL says of its rows."""
        if self.ttl is None or len(candidate.parts) != 1:
            return candidate
        settings = self._watch.settings.merge
        text = judge_rows(self.ttl, parts[candidate.parts[0]], settings=settings, now_ms=now_ms)
        return replace(candidate, reason=f"{candidate.reason}; {text}") if text else candidate

    def selector(self, policy: MergePolicy) -> SelectMerges:
        """Return the policy alone, for a history of its own, whose parts may have names that others have."""
        key_range = KeyRangePolicy()

        def select(
            candidates: Sequence[CandidatePart], stats: Mapping[str, PartitionStats], now: float
        ) -> MergeSelection:
            return self._select(policy, key_range, candidates, (), stats, now, Effort.NORMAL)

        return select

    def keys_of(self, event: PartEvent) -> tuple[bytes, bytes]:
        """The bounds of the sort key that the part log knows of a new part."""
        definition = self._watch.definition
        first = definition.order_by[:1]
        ranges = {} if event.key is None else dict.fromkeys(first, event.key)
        return key_bounds(ranges, order_by=first, schema=definition.schema, rows=event.rows)

    def is_expired(self, parts: Sequence[Part], now_ms: int) -> bool:
        """True if the partition of these parts is about to be dropped by its TTL."""
        ttl = self.ttl
        return ttl is not None and is_expired(ttl, parts, now_ms=now_ms, settings=self._watch.settings.gc)

    @property
    def ttl(self) -> TableTtl | None:
        """TTL, read once for each definition; none also where it is not understood, which GC reports."""
        definition = self._watch.definition
        if self._ttl_of is not definition:
            try:
                self._ttl = ttl_of(definition)
            except InvalidInputError:
                self._ttl = None
            self._ttl_of = definition
        return self._ttl

    @property
    def ttl_in_force(self) -> TableTtl | None:
        """The TTL; None while the clock is in doubt, too: then no row counts as expired."""
        return self.ttl if self._clock_check.removal_error() is None else None

    def is_separated(self, parts: Sequence[Part], now_ms: int) -> bool:
        """True if some of these parts wait for a mutation that others do not need."""
        found = self._candidates(parts, {}, MergePolicy.SIZE_TIERED, now_ms)
        return len({each.first_needed_mutation for each in found}) > 1

    def gain(self, spec: MergeSpec, *, visible_bytes: Mapping[str, float], now: float) -> float:
        """Return what the merge saves readers."""
        if spec.gain is not None:
            return spec.gain
        hours = {name: stats.hour.at(now) for name, stats in self._stats().items()}
        inserted = {name: float(hour.inserted + hour.last_inserted) for name, hour in hours.items()}
        return read_gain(
            parts=spec.counted_parts or len(spec.parts),
            bytes_share=_share_of(spec.partition, visible_bytes),
            inserts_share=_share_of(spec.partition, inserted),
        )

    def with_counts(self, stats: Mapping[str, PartitionStats], counts: Mapping[str, int]) -> dict[str, PartitionStats]:
        """Add the number of visible parts to the statistics, for the strategy that ranks by it."""
        return {name: replace(known, visible_parts=counts.get(name, 0)) for name, known in stats.items()}

    def _policy_for(self, effort: Effort) -> MergePolicy:
        """Return the policy of an effort; OPTIMIZE FINAL wants one part, whatever the keys."""
        return MergePolicy.SIZE_TIERED if effort is Effort.FINAL else self.policy

    def _select(
        self,
        policy: MergePolicy,
        key_range: KeyRangePolicy,
        candidates: Sequence[CandidatePart],
        being_merged: Collection[str],
        stats: Mapping[str, PartitionStats],
        now: float,
        effort: Effort,
    ) -> MergeSelection:
        settings = self._watch.settings.merge
        match policy:
            case MergePolicy.KEY_RANGE:
                return key_range.select(candidates, being_merged=being_merged, settings=settings, effort=effort)
            case MergePolicy.SIZE_TIERED:
                return select_merges(
                    candidates,
                    being_merged=being_merged,
                    stats=stats,
                    workers=self._workers(),
                    now=now,
                    settings=settings,
                    effort=effort,
                )

    def _candidates(
        self, parts: Sequence[Part], changes: ChangesOf, policy: MergePolicy, now_ms: int
    ) -> list[CandidatePart]:
        definition, mutations = self._watch.definition, self._watch.mutations
        candidates: list[CandidatePart] = []
        is_after_segment = False
        for part in parts:
            if part.is_segment:
                is_after_segment = True
                continue
            candidate = _candidate(part, changes, definition, mutations, now_ms)
            if policy is MergePolicy.KEY_RANGE:
                candidate = _with_keys(candidate, part, definition)
            candidates.append(replace(candidate, is_after_segment=True) if is_after_segment else candidate)
            is_after_segment = False
        return candidates

    def _stats(self) -> dict[str, PartitionStats]:
        with self._watch.lock:
            return dict(self._watch.stats)


def _candidate(
    part: Part, changes: ChangesOf, definition: TableDef, mutations: Sequence[Mutation], now_ms: int
) -> CandidatePart:
    needed = first_needed(part, mutations)
    return CandidatePart(
        name=str(part.name),
        partition=part.name.partition,
        size=part.bytes + delta_bytes(part, changes),
        rows=part.rows,
        age=max(0.0, (now_ms - milliseconds(part.commit_ts)) / 1000),
        chain_depth=len(changes.get(part.file.name, ())),
        # The first columns of a table have no commit; 0 would say that nobody knows it. Schema versions of one time
        # differ in defaults and comments alone.
        columns_commit_time=part.columns_commit_ts or 1,
        mutation_effective_time=max(part.mutation_ts, definition.killed_mutation_ts),
        first_needed_mutation=None if needed is None else needed.commit_ts,
    )


def _with_keys(candidate: CandidatePart, part: Part, definition: TableDef) -> CandidatePart:
    low, high = key_bounds(part.ranges, order_by=definition.order_by, schema=definition.schema, rows=part.rows)
    return replace(candidate, low=low, high=high)


def _share_of(partition: str, values: Mapping[str, float]) -> float:
    """The partition's share in the sum; 0 where there is none."""
    total = sum(values.values())
    return values.get(partition, 0.0) / total if total else 0.0
