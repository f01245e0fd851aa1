"""Every range that the size_tiered policy considers, with its verdict.

Covers: the ranges chosen, the best of each run that others outdid, those that would be best or nearest if they were
allowed, lone parts. Does not cover: parts under merge, the key_range policy, which explains itself.
Always holds: what it calls chosen is what `select_merges` chooses from the same values.

Tests: tests/unit/maintenance/merge/test_explain_merge.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tilth.maintenance.merge.policy.adaptive import Hold, Pace, pace
from tilth.maintenance.merge.policy.candidates import (
    CandidatePart,
    CandidateState,
    Effort,
    MergeCandidate,
    MergeSpec,
    Run,
    by_partition,
    candidate_of,
    split_runs,
)
from tilth.maintenance.merge.policy.scoring import Limits, RangeScore, RunScores, limits_of
from tilth.maintenance.merge.policy.size_tiered import select_merges
from tilth.maintenance.table.partition_counts import PartitionStats
from tilth.maintenance.table.settings import MergeSettings

#: Base that allows every range within the limits.
_ANY_BASE = 0.0


def explain_merges(
    parts: Sequence[CandidatePart],
    *,
    being_merged: Collection[str],
    stats: Mapping[str, PartitionStats],
    workers: int,
    now: float,
    settings: MergeSettings,
) -> tuple[MergeCandidate, ...]:
    """Return the candidates of all partitions given, run by run; arguments as for `select_merges`."""
    selection = select_merges(
        parts, being_merged=being_merged, stats=stats, workers=workers, now=now, settings=settings
    )
    chosen: dict[str, list[MergeSpec]] = {}
    for spec in selection.specs:
        chosen.setdefault(spec.partition, []).append(spec)
    refused = {refusal.partition: refusal.reason for refusal in selection.refusals}
    rows: list[MergeCandidate] = []
    for partition, members in by_partition(parts).items():
        runs = split_runs(members, being_merged=being_merged)
        found = pace(
            members,
            selectable=[part for run in runs for part in run.parts],
            stats=stats.get(partition),
            workers=workers,
            now=now,
            settings=settings,
            effort=Effort.NORMAL,
        )
        for run in runs:
            rows += _run(run, found, settings, chosen.get(partition, []), refused.get(partition, ""))
    return tuple(rows)


def _run(
    run: Run, found: Pace | Hold, settings: MergeSettings, chosen: Sequence[MergeSpec], refused: str
) -> list[MergeCandidate]:
    by_name = {part.name: part for part in run.parts}
    rows = [
        candidate_of([by_name[name] for name in spec.parts], CandidateState.WOULD_RUN, spec.reason, spec.score)
        for spec in chosen
        if spec.parts[0] in by_name
    ]
    if rows:
        return rows
    apart = "" if run.cut == "first part" else f"; {run.cut}"
    if len(run.parts) == 1:
        return [candidate_of(run.parts, CandidateState.LONE, f"one part alone{apart}")]
    base, parts_max, rows_max = settings.base, None, None
    if isinstance(found, Pace):
        base, parts_max, rows_max = found.base, found.parts_max, found.rows_max
    limits = limits_of(settings, base=base, parts_max=parts_max, rows_max=rows_max, is_final=False)
    scores = RunScores(run.parts, limits)
    return [*_ranges(run, scores, limits, found, refused, apart), *_too_large(run, scores, apart)]


def _too_large(run: Run, scores: RunScores, apart: str) -> list[MergeCandidate]:
    """Return the parts that fit with no neighbour."""
    return [candidate_of([run.parts[index]], CandidateState.REFUSED, f"{why}{apart}") for index, why in scores.apart()]


def _ranges(
    run: Run, scores: RunScores, limits: Limits, found: Pace | Hold, refused: str, apart: str
) -> list[MergeCandidate]:
    best = scores.best(0, len(scores))
    if best is not None:
        is_held = isinstance(found, Hold)
        state = CandidateState.REFUSED if is_held else CandidateState.LOST
        why = found.reason if isinstance(found, Hold) else refused or "a better range of the partition goes first"
        return [_row(run, best, state, f"{why}{apart}")]
    return _not_allowed(run, scores, limits, apart)


def _not_allowed(run: Run, scores: RunScores, limits: Limits, apart: str) -> list[MergeCandidate]:
    """Return the range that would be the best one, and the one that comes nearest to being allowed."""
    nearest = scores.nearest()
    if nearest is None:
        return []
    free = RunScores(run.parts, replace(limits, base=_ANY_BASE))
    best = free.best(0, len(free))
    assert best is not None
    ranges = [best] if (best.begin, best.length) == (nearest.begin, nearest.length) else [best, nearest]
    words = ("the best range is not balanced", "the nearest to balance")
    rows: list[MergeCandidate] = []
    for each, word in zip(ranges, words, strict=False):
        real = scores.of(each.begin, each.length)
        why = f"{word}: {real.ratio:.2f} times its largest part, {real.base:.2f} needed{apart}"
        rows.append(_row(run, free.of(each.begin, each.length), CandidateState.REFUSED, why))
    return rows


def _row(run: Run, found: RangeScore, state: CandidateState, reason: str) -> MergeCandidate:
    return candidate_of(run.parts[found.begin : found.end], state, reason, found.score)
