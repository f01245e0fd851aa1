"""The nouns of part selection: candidates, runs of neighbours that may merge, specs, refusals, explanations.

Covers: what a policy is given and gives, and the predicate that cuts a partition into runs. Does not cover: scores.
Always holds: a run has parts of one partition only, in name order, none of them under merge or left out.

Tests: tests/unit/maintenance/merge/policy/test_size_tiered.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

#: Neighbours of one run.
RUN_PARTS_MAX = 10_000


class Effort(StrEnum):
    """Effort of a selection."""

    #: Background: only what pays.
    NORMAL = "normal"
    #: OPTIMIZE: anything within the limits.
    AGGRESSIVE = "aggressive"
    #: OPTIMIZE FINAL: a short run as a whole, and lone parts fold their deltas whatever their age.
    FINAL = "final"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePart:
    """A visible part as a merge policy sees it."""

    name: str
    partition: str
    #: Bytes of the part and its deltas.
    size: int
    rows: int
    #: Seconds since the base part's commit.
    age: float
    #: Deltas on it.
    chain_depth: int = 0
    #: True if some of its rows have expired by the table's TTL, and it is time to write it anew without them.
    has_expired_rows: bool = False
    #: `True` if segments that wait to be flushed stand between it and the part before it.
    is_after_segment: bool = False
    #: Commit time of the schema it was written with; 0 if not known.
    columns_commit_time: int
    #: Commit time of the newest mutation it already has, or was born after.
    mutation_effective_time: int = 0
    #: Commit time of the first pending mutation that it still needs; none if it needs none.
    first_needed_mutation: int | None = None
    #: The smallest and the largest sort key as bytes that compare as keys do; as wide as can be where not known.
    low: bytes = b""
    high: bytes = b""


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbours that may be merged with each other."""

    parts: tuple[CandidatePart, ...]
    #: Reason why it is separate from the part before it.
    cut: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSpec:
    """Parts worth merging, in name order. One part alone folds its deltas, or loses its expired rows."""

    partition: str
    parts: tuple[str, ...]
    size: int
    rows: int
    #: Cost of the merge by what it gains: lower is better. Infinite for a lone part, which comes last.
    score: float
    reason: str
    #: Gain for readers as computed by the policy, in parts searched for a key; none if it computes none.
    gain: float | None = None
    #: Number of parts, the key ranges of a merge as one; 0: that of `parts`.
    counted_parts: int = 0

    @property
    def is_lone(self) -> bool:
        return len(self.parts) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRefusal:
    """The reason why a partition gives no merge in this round."""

    partition: str
    reason: str
    #: `True` if it has nothing worth merging, so that others should go first for a while.
    should_postpone: bool


class CandidateState(StrEnum):
    """The fate of parts in a round."""

    WOULD_RUN = "would run"
    #: Allowed, but others go first.
    LOST = "lost"
    REFUSED = "refused"
    #: One part, whose neighbours it may not merge with.
    LONE = "lone"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCandidate:
    """Parts that a selection has considered, with its verdict."""

    partition: str
    #: Part names in name order.
    parts: tuple[str, ...]
    size: int
    rows: int
    #: Lower is better; none where there is no score.
    score: float | None = None
    state: CandidateState
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSelection:
    """Disjoint merges, best first, lone parts last; and a refusal for each partition without one."""

    specs: tuple[MergeSpec, ...] = ()
    refusals: tuple[MergeRefusal, ...] = ()


def by_partition(parts: Sequence[CandidatePart]) -> dict[str, list[CandidatePart]]:
    found: dict[str, list[CandidatePart]] = {}
    for part in parts:
        found.setdefault(part.partition, []).append(part)
    return found


def split_runs(parts: Sequence[CandidatePart], *, being_merged: Collection[str]) -> tuple[Run, ...]:
    """Split a partition into runs; parts under merge or mutation belong to none and cut."""
    runs: list[Run] = []
    members: list[CandidatePart] = []
    cut = "first part"
    before: CandidatePart | None = None
    for part in parts:
        if part.name in being_merged:
            found: str | None = f"{part.name} is under merge or left out"
        elif len(members) == RUN_PARTS_MAX:
            found = f"a run has {RUN_PARTS_MAX} parts at most"
        else:
            found = None if before is None else why_apart(before, part)
            if before is not None and part.is_after_segment:
                found = f"segments between {before.name} and {part.name} are not flushed yet"
        if found is not None:
            if members:
                runs.append(Run(tuple(members), cut))
            members = []
            cut = found
        if part.name in being_merged:
            before = None
        else:
            members.append(part)
            before = part
    if members:
        runs.append(Run(tuple(members), cut))
    return tuple(runs)


def why_apart(left: CandidatePart, right: CandidatePart) -> str | None:
    """Return why two neighbours may not be merged with each other; none if they may."""
    pair = f"{left.name} and {right.name}"
    if left.columns_commit_time == 0 or right.columns_commit_time == 0:
        return f"the schema version of {pair} is not known"
    if left.columns_commit_time != right.columns_commit_time:
        return f"{pair} have different schema versions"
    if left.first_needed_mutation != right.first_needed_mutation:
        return f"{pair} are separated by a pending mutation"
    if left.mutation_effective_time != right.mutation_effective_time:
        return f"{pair} have different mutations applied"
    return None


def candidate_of(
    parts: Sequence[CandidatePart], state: CandidateState, reason: str, score: float | None = None
) -> MergeCandidate:
    return MergeCandidate(
        partition=parts[0].partition,
        parts=tuple(part.name for part in parts),
        size=sum(part.size for part in parts),
        rows=sum(part.rows for part in parts),
        score=score,
        state=state,
        reason=reason,
    )
