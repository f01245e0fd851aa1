"""Merges of one part alone: deltas folded into a part without neighbour, rows left out whose TTL has ended. Pure.

Covers: both for every policy. Does not cover: when rows have expired (maintenance/table/ttl.py).
Always holds: no part is under merge or in another merge of the same selection.

Tests: tests/unit/maintenance/merge/policy/test_expired_rows.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf

from tilth.maintenance.merge.policy.candidates import (
    CandidatePart,
    CandidateState,
    Effort,
    MergeCandidate,
    MergeSelection,
    MergeSpec,
    candidate_of,
)
from tilth.maintenance.table.settings import MergeSettings


def fold_alone(parts: Sequence[CandidatePart], settings: MergeSettings, effort: Effort) -> MergeSpec | None:
    """The merge of a part that has no neighbour and folds its deltas. None if it has none, or is too young."""
    part = parts[0]
    if len(parts) > 1 or not part.chain_depth:
        return None
    if effort is not Effort.FINAL and part.age < settings.lone_age_min:
        return None
    return _alone(part, f"folds {part.chain_depth} deltas of a part that is alone and {part.age:.0f} s old")


def lone_ripe_seconds(parts: Sequence[CandidatePart], settings: MergeSettings) -> float:
    """Return in how many seconds `fold_alone` finds a merge of these parts; infinite: never."""
    part = parts[0]
    if len(parts) > 1 or not part.chain_depth:
        return inf
    return max(0.0, settings.lone_age_min - part.age)


def with_expired_rows(
    selection: MergeSelection, parts: Sequence[CandidatePart], *, being_merged: Collection[str]
) -> MergeSelection:
    """Add the parts whose expired rows are due to go and that no other merge of the selection takes along."""
    chosen = {name for spec in selection.specs for name in spec.parts}
    rewrites = [_alone(part, _why_rewritten(part)) for part in _due(parts, chosen, being_merged)]
    served = {spec.partition for spec in rewrites}
    return MergeSelection(
        specs=(*selection.specs, *rewrites),
        refusals=tuple(each for each in selection.refusals if each.partition not in served),
    )


def explained_with_expired_rows(
    rows: Sequence[MergeCandidate], parts: Sequence[CandidatePart], *, being_merged: Collection[str]
) -> tuple[MergeCandidate, ...]:
    """Add the same parts to an explanation, instead of the rows that refuse each of them alone."""
    chosen = {name for row in rows if row.state is CandidateState.WOULD_RUN for name in row.parts}
    due = _due(parts, chosen, being_merged)
    names = {part.name for part in due}
    kept = [row for row in rows if len(row.parts) != 1 or row.parts[0] not in names]
    return (*kept, *(candidate_of([part], CandidateState.WOULD_RUN, _why_rewritten(part), inf) for part in due))


def _due(parts: Sequence[CandidatePart], chosen: Collection[str], being_merged: Collection[str]) -> list[CandidatePart]:
    return [
        part for part in parts if part.has_expired_rows and part.name not in chosen and part.name not in being_merged
    ]


def _why_rewritten(part: CandidatePart) -> str:
    return f"leaves out expired rows of a part that is {part.age:.0f} s old"


def _alone(part: CandidatePart, reason: str) -> MergeSpec:
    return MergeSpec(
        partition=part.partition, parts=(part.name,), size=part.size, rows=part.rows, score=inf, reason=reason
    )
