"""Key ranges of merges that were cut, as one candidate for each such merge. Pure.

Covers: candidates of ranges, back to their parts, the number of ranges of a merge. Does not cover: which parts are
worth merging (size_tiered.py, key_range.py), where a merge is cut (storage).
Always holds: to a policy by size the ranges of a merge are the one part that it would have been, so that they are not
merged with each other again, and never one without the others, unless its file is damaged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tilth.base.units import show_bytes
from tilth.maintenance.merge.policy.candidates import CandidatePart, MergeCandidate, MergeSelection, MergeSpec

#: Ranges, and so Spark tasks, of one merge.
MERGE_RANGES_MAX = 64
#: The least size of a range with key_range, in budgeted_compaction_target_rowset_size: smaller ones would count as
#: small parts, and be merged again.
TARGETS_PER_RANGE = 2
_FOLDED = "; those of one key range"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRanges:
    """Candidates for a policy by size."""

    candidates: tuple[CandidatePart, ...]
    #: Parts of those that are ranges, by the name of the candidate.
    members: Mapping[str, tuple[CandidatePart, ...]]
    #: Names of candidates that cannot be merged now.
    busy: frozenset[str]

    def with_parts(self, selection: MergeSelection) -> MergeSelection:
        """Return the selection with all parts of its candidates. A range alone is merged alone."""
        return replace(selection, specs=tuple(each for spec in selection.specs for each in self._specs(spec)))

    def explained(self, rows: Sequence[MergeCandidate]) -> tuple[MergeCandidate, ...]:
        """Return candidates with all their parts."""
        return tuple(
            replace(row, parts=self._names(row.parts), reason=row.reason + self._text(row.parts)) for row in rows
        )

    def _specs(self, spec: MergeSpec) -> list[MergeSpec]:
        if spec.is_lone and spec.parts[0] in self.members:
            changed = [part for part in self.members[spec.parts[0]] if part.chain_depth]
            return [
                replace(spec, parts=(part.name,), size=part.size, rows=part.rows, reason=spec.reason + _FOLDED)
                for part in changed
            ]
        return [
            replace(
                spec,
                parts=self._names(spec.parts),
                counted_parts=len(spec.parts),
                reason=spec.reason + self._text(spec.parts),
            )
        ]

    def _names(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(part for name in names for part in ([each.name for each in self.members.get(name, ())] or [name]))

    def _text(self, names: Sequence[str]) -> str:
        joined = [name for name in names if name in self.members]
        ranges = sum(len(self.members[name]) for name in joined)
        if not joined:
            return ""
        return f"; {len(joined)} of them in {ranges} key ranges" if len(names) > 1 else f"; in {ranges} key ranges"


def join_candidates(
    parts: Sequence[CandidatePart],
    cuts: Mapping[str, int],
    *,
    being_merged: Collection[str],
    damaged: Collection[str],
) -> JoinedRanges:
    """Make one candidate of the ranges of each merge.

    `cuts`: the merge of each part that is a range, by the part's name. Damaged ranges stand for themselves. The ranges
    of a merge that differ, as while a mutation goes through them, are busy like those that are under merge.
    """
    members: dict[tuple[str, int], list[CandidatePart]] = {}
    for part in parts:
        if part.name in cuts and part.name not in damaged:
            members.setdefault((part.partition, cuts[part.name]), []).append(part)
    joined = {ranges[0].name: tuple(ranges) for ranges in members.values() if len(ranges) > 1}
    inside = {part.name for ranges in joined.values() for part in ranges[1:]}
    busy = {
        name
        for name, ranges in joined.items()
        if any(part.name in being_merged for part in ranges) or len({_shape(part) for part in ranges}) > 1
    }
    return JoinedRanges(
        candidates=tuple(
            _as_one(joined[part.name]) if part.name in joined else part for part in parts if part.name not in inside
        ),
        members=joined,
        busy=frozenset(busy),
    )


def ranges_wanted(parts: int, size: int, *, task_bytes: int, range_bytes_min: int = 0) -> int:
    """Return the number of key ranges of a merge of so many parts and bytes; 1: it is not cut.

    A part alone is cut from twice the bytes of a task on: else a range that is written anew, and is a little larger
    than it was meant to be, would become two. `range_bytes_min`: no range is smaller by intention.
    """
    if size <= task_bytes:
        return 1
    ranges = min(size // task_bytes if parts == 1 else -(-size // task_bytes), MERGE_RANGES_MAX)
    return max(1, min(ranges, size // range_bytes_min)) if range_bytes_min else ranges


def why_cut(ranges: int, *, task_bytes: int) -> str:
    """Return why a merge is cut into so many ranges; empty if it is not."""
    if ranges < 2:
        return ""
    return f"; cut into {ranges} key ranges, a task each: more than merge_task_bytes, {show_bytes(task_bytes)}"


def _as_one(ranges: Sequence[CandidatePart]) -> CandidatePart:
    return replace(
        ranges[0],
        size=sum(part.size for part in ranges),
        rows=sum(part.rows for part in ranges),
        age=min(part.age for part in ranges),
        chain_depth=sum(part.chain_depth for part in ranges),
        low=min(part.low for part in ranges),
        high=max(part.high for part in ranges),
    )


def _shape(part: CandidatePart) -> tuple[object, ...]:
    return part.columns_commit_time, part.mutation_effective_time, part.first_needed_mutation
