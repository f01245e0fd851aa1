"""Choice of the ranges of parts worth merging: neighbours of like size, by a score (docs/policies/size-tiered.md).

Covers: one best range for all small partitions together, several for each large one, how many merges may be submitted,
the gain reported to the maintenance manager. Does not cover: the score (scoring.py), parts alone (lone.py), the pace of
a partition (adaptive.py), the choice of partitions (partitions.py).
Always holds: the ranges are disjoint, contain no part under merge and keep all limits; each partition that gives no
merge has a refusal with its reason.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from tilth.base.units import show_bytes
from tilth.maintenance.merge.policy.adaptive import Hold, Pace, pace
from tilth.maintenance.merge.policy.candidates import (
    CandidatePart,
    Effort,
    MergeRefusal,
    MergeSelection,
    MergeSpec,
    Run,
    by_partition,
    split_runs,
)
from tilth.maintenance.merge.policy.lone import fold_alone, lone_ripe_seconds
from tilth.maintenance.merge.policy.scoring import RangeScore, RunScores, limits_of
from tilth.maintenance.table.partition_counts import PartitionStats
from tilth.maintenance.table.settings import MergeSettings

#: Ranges of one selection.
RANGES_MAX = 1000
#: A run of a large partition gives one range per this many parts, and some more.
RUN_PARTS_PER_RANGE = 100
RUN_RANGES_MORE = 3
#: Merges submitted in a round, and waiting or running, whatever the number of workers.
ROUND_MERGES_MIN = 10
OPEN_MERGES_PER_WORKER = 16
OPEN_MERGES_MIN = 32
#: The least gain of a merge, so that it is always better than doing nothing.
READ_GAIN_MIN = 0.01


@dataclass(frozen=True, slots=True)
class _ScoredRun:
    run: Run
    scores: RunScores

    def spec(self, found: RangeScore) -> MergeSpec:
        parts = self.run.parts[found.begin : found.end]
        size = sum(part.size for part in parts)
        text = f"{found.length} parts of {show_bytes(size)}, score {found.score:.0f}"
        if found.ratio >= found.base:
            why = f"{found.ratio:.2f} times the largest, {found.base:.2f} needed"
        else:
            why = f"the whole run, though {found.ratio:.2f} times the largest, {found.base:.2f} needed"
        return MergeSpec(
            partition=parts[0].partition,
            parts=tuple(part.name for part in parts),
            size=size,
            rows=sum(part.rows for part in parts),
            score=found.score,
            reason=f"{text}: {why}",
        )


@dataclass(frozen=True, slots=True)
class _Offer:
    """The offer of one partition in this round."""

    specs: tuple[MergeSpec, ...] = ()
    #: `True` if its only range competes with those of the other small partitions.
    is_shared: bool = False
    #: Reason why there is no range; empty if there is one.
    reason: str = ""


def select_merges(
    parts: Sequence[CandidatePart],
    *,
    being_merged: Collection[str],
    stats: Mapping[str, PartitionStats],
    workers: int,
    now: float,
    settings: MergeSettings,
    effort: Effort = Effort.NORMAL,
) -> MergeSelection:
    """The merges worth doing among the visible `parts` of the chosen partitions, given in name order.

    `being_merged` was copied before the parts were read; a stale copy is harmful, stale parts are not.
    """
    ranges: list[MergeSpec] = []
    shared: list[MergeSpec] = []
    lone: list[MergeSpec] = []
    refusals: list[MergeRefusal] = []
    for partition, members in by_partition(parts).items():
        runs = split_runs(members, being_merged=being_merged)
        alone = [spec for run in runs if (spec := fold_alone(run.parts, settings, effort)) is not None]
        offer = _offer(
            runs, members, stats=stats.get(partition), workers=workers, now=now, settings=settings, effort=effort
        )
        lone += alone
        (shared if offer.is_shared else ranges).extend(offer.specs)
        if offer.reason and not alone:
            refusals.append(MergeRefusal(partition=partition, reason=offer.reason, should_postpone=True))
    if shared:
        winner = min(shared, key=lambda spec: spec.score)
        ranges.append(winner)
        refusals += [_lost(spec, winner) for spec in shared if spec is not winner]
    ranges.sort(key=lambda spec: spec.score)
    refusals += _cut_off(ranges)
    return MergeSelection(specs=tuple(ranges[:RANGES_MAX] + lone), refusals=tuple(refusals))


@dataclass(frozen=True, slots=True)
class Ripening:
    """The time from which a partition without a merge has one if it only gets older."""

    #: Seconds from now, at the earliest; infinite: its age changes nothing.
    seconds: float
    #: `True` if it has few enough parts for this many workers.
    is_held: bool = False


def ripening(
    members: Sequence[CandidatePart], *, being_merged: Collection[str], workers: int, settings: MergeSettings
) -> Ripening:
    """Return when one partition, of which `select_merges` chooses nothing now, is worth another selection."""
    runs = split_runs(members, being_merged=being_merged)
    seconds = min((lone_ripe_seconds(run.parts, settings) for run in runs), default=inf)
    long_runs = [run for run in runs if len(run.parts) >= 2]
    if not long_runs:
        return Ripening(seconds)
    # Without statistics the base is the lowest that any have.
    found = pace(
        members,
        selectable=[part for run in runs for part in run.parts],
        stats=None,
        workers=workers,
        now=0.0,
        settings=settings,
        effort=Effort.NORMAL,
    )
    if isinstance(found, Hold):
        return Ripening(seconds, is_held=True)
    limits = limits_of(settings, base=found.base, parts_max=found.parts_max, rows_max=found.rows_max, is_final=False)
    return Ripening(min(seconds, *(RunScores(run.parts, limits).ripe_seconds() for run in long_runs)))


def submittable(*, workers: int, pending: int, running: int, settings: MergeSettings) -> int:
    """Return how many merges may be submitted now. Zero is no error: the next round tries again."""
    if running >= settings.running_max:
        return 0
    room = max(OPEN_MERGES_PER_WORKER * workers, OPEN_MERGES_MIN) - pending - running
    return max(0, min(room, max(workers, ROUND_MERGES_MIN)))


def read_gain(*, parts: int, bytes_share: float, inserts_share: float) -> float:
    """Return what a merge of `parts` parts saves readers: files not opened, by how likely the partition is read.

    The shares are those of the partition in the table's bytes and in its inserts of the last hour.
    """
    return max(READ_GAIN_MIN, (parts - 1) * max(bytes_share, inserts_share))


def _offer(
    runs: Sequence[Run],
    members: Sequence[CandidatePart],
    *,
    stats: PartitionStats | None,
    workers: int,
    now: float,
    settings: MergeSettings,
    effort: Effort,
) -> _Offer:
    long_runs = [run for run in runs if len(run.parts) >= 2]
    if not long_runs:
        return _Offer(reason=_why_no_run(runs, members))
    selectable = [part for run in runs for part in run.parts]
    found = pace(
        members, selectable=selectable, stats=stats, workers=workers, now=now, settings=settings, effort=effort
    )
    if isinstance(found, Hold):
        return _Offer(reason=found.reason)
    limits = limits_of(
        settings,
        base=found.base,
        parts_max=found.parts_max,
        rows_max=found.rows_max,
        is_final=effort is Effort.FINAL,
    )
    scored = [_ScoredRun(run, RunScores(run.parts, limits)) for run in long_runs]
    count = sum(len(run.parts) for run in long_runs)
    if settings.is_batch_select and count >= settings.batch_select_parts_min:
        specs = _several(scored, found)
    else:
        specs = _one(scored)
    if specs:
        return _Offer(specs, is_shared=not settings.is_batch_select or count < settings.batch_select_parts_min)
    return _Offer(reason=_why_no_range(scored))


def _one(scored: Sequence[_ScoredRun]) -> tuple[MergeSpec, ...]:
    best: tuple[RangeScore, _ScoredRun] | None = None
    for one in scored:
        found = one.scores.best(0, len(one.scores))
        if found is not None and (best is None or found.score < best[0].score):
            best = (found, one)
    return () if best is None else (best[1].spec(best[0]),)


def _several(scored: Sequence[_ScoredRun], found: Pace) -> tuple[MergeSpec, ...]:
    """Pick the best range, then the best left and right of it, until the quota of each run and the pace are used up."""
    remaining = inf if found.reduction_max is None else found.reduction_max
    quota = [(len(one.scores) - 1) // RUN_PARTS_PER_RANGE + RUN_RANGES_MORE for one in scored]
    #: Score, index of the run, begin; then the range and the stretch it was found in.
    heap: list[tuple[float, int, int, RangeScore, int, int]] = []

    def push_best(index: int, begin: int, end: int) -> None:
        parts_max = None if remaining == inf else int(remaining) + 1
        best = scored[index].scores.best(begin, end, parts_max=parts_max)
        if best is not None:
            heapq.heappush(heap, (best.score, index, best.begin, best, begin, end))

    for index, one in enumerate(scored):
        push_best(index, 0, len(one.scores))
    specs: list[MergeSpec] = []
    while heap and len(specs) < RANGES_MAX:
        _, index, _, best, begin, end = heapq.heappop(heap)
        if quota[index] == 0:
            continue
        if best.length - 1 > remaining:
            push_best(index, begin, end)
            continue
        specs.append(scored[index].spec(best))
        quota[index] -= 1
        remaining -= best.length - 1
        push_best(index, begin, best.begin)
        push_best(index, best.end, end)
    return tuple(specs)


def _why_no_run(runs: Sequence[Run], members: Sequence[CandidatePart]) -> str:
    if len(members) == 1:
        return "only one part"
    cuts = [run.cut for run in runs if run.cut != "first part"]
    if cuts:
        return f"no two of {len(members)} parts may merge: {cuts[0]}"
    return f"all but {len(runs)} of {len(members)} parts are under merge"


def _why_no_range(scored: Sequence[_ScoredRun]) -> str:
    nearest = [near for one in scored if (near := one.scores.nearest()) is not None]
    if not nearest:
        _, why = next(scored[0].scores.apart())
        return f"no two neighbours fit the limits; a part is {why}"
    best = max(nearest, key=lambda near: near.ratio / near.base)
    return (
        f"no range is balanced enough: the nearest, of {best.length} parts, is {best.ratio:.2f} times its largest, "
        f"{best.base:.2f} needed"
    )


def _lost(spec: MergeSpec, winner: MergeSpec) -> MergeRefusal:
    return MergeRefusal(
        partition=spec.partition,
        reason=f"score {spec.score:.0f} lost the range that small partitions share to {winner.partition}, "
        f"{winner.score:.0f}",
        should_postpone=False,
    )


def _cut_off(ranges: Sequence[MergeSpec]) -> list[MergeRefusal]:
    kept = {spec.partition for spec in ranges[:RANGES_MAX]}
    lost = dict.fromkeys(spec.partition for spec in ranges[RANGES_MAX:] if spec.partition not in kept)
    return [
        MergeRefusal(partition=name, reason=f"{RANGES_MAX} better ranges elsewhere", should_postpone=False)
        for name in lost
    ]
