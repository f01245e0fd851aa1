"""The nouns of part selection: candidates, runs of neighbours that may merge, specs and refusals.

Covers: what a policy is given and gives, and the predicate that cuts a partition into runs. Does not cover: scores.
Always holds: a run has parts of one partition only, in name order, none of them under merge.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Effort(StrEnum):
    """How hard a selection tries."""

    #: In the background: only what pays.
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
    #: Commit time of the schema it was written with; 0 if not known.
    columns_commit_time: int
    #: Commit time of the newest mutation it already has, or was born after.
    mutation_effective_time: int = 0
    #: Commit time of the first pending mutation that it still needs; none if it needs none.
    first_needed_mutation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """What a table allows its merges; sizes in bytes, times in seconds, 0 is no limit where a limit is meant."""

    bytes_max: int = 150 << 30
    rows_max: int = 50_000_000
    parts_max: int = 100
    #: How many times its largest part (fixed cost included) a range must be.
    base: float = 5.0
    #: Logarithms of the sizes between which age lowers the base later and later.
    size_log_min: float = 13.0
    size_log_max: float = 25.0
    #: Whether a large partition may give several ranges in one round, and from how many parts on.
    is_batch_select: bool = True
    batch_select_parts_min: int = 200
    #: From this age on a lone part folds its deltas.
    lone_chain_age_min: float = 14_400.0
    #: Parts a partition may keep; negative: no controller, 0: the number of workers.
    expected_parts: int = 0
    #: The base is raised against write amplification up to this many times the expected parts; 0 never raises it.
    write_amplification_threshold: float = 4.0
    #: Merges of the table that may run at once.
    running_max: int = 32


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbours that may be merged with each other."""

    parts: tuple[CandidatePart, ...]
    #: What separates it from the part before it.
    cut: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSpec:
    """Parts worth merging into one, in name order. One part alone folds its deltas and draws a new block id."""

    partition: str
    parts: tuple[str, ...]
    size: int
    rows: int
    #: Cost of the merge by what it gains: lower is better. Infinite for a lone part, which comes last.
    score: float
    reason: str

    @property
    def is_lone(self) -> bool:
        return len(self.parts) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a partition gives no merge in this round."""

    partition: str
    reason: str
    #: Whether it has nothing worth merging, so that others should be looked at first for a while.
    should_postpone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSelection:
    """Disjoint merges, best first, lone parts last; and a refusal for each partition without one."""

    specs: tuple[MergeSpec, ...] = ()
    refusals: tuple[Refusal, ...] = ()


def by_partition(parts: Sequence[CandidatePart]) -> dict[str, list[CandidatePart]]:
    """The parts of each partition, in the order given."""
    grouped: dict[str, list[CandidatePart]] = {}
    for part in parts:
        grouped.setdefault(part.partition, []).append(part)
    return grouped


def split_runs(parts: Sequence[CandidatePart], *, being_merged: Collection[str]) -> tuple[Run, ...]:
    """The runs of one partition; parts under merge or mutation belong to none and cut."""
    runs: list[Run] = []
    members: list[CandidatePart] = []
    cut = "first part"
    before: CandidatePart | None = None
    for part in parts:
        if part.name in being_merged:
            found: str | None = f"{part.name} is under merge"
        else:
            found = None if before is None else why_apart(before, part)
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
    """Why two neighbours may not be merged with each other; none if they may."""
    pair = f"{left.name} and {right.name}"
    if left.columns_commit_time == 0 or right.columns_commit_time == 0:
        return f"the schema version of {pair} is not known"
    if left.columns_commit_time != right.columns_commit_time:
        return f"{pair} have different schema versions"
    if left.mutation_effective_time != right.mutation_effective_time:
        return f"{pair} have different mutations applied"
    if left.first_needed_mutation != right.first_needed_mutation:
        return f"{pair} wait for different mutations"
    return None
