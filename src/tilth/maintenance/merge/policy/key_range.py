"""Choice of the parts worth merging because their keys overlap: Kudu's budgeted compaction
(docs/policies/key-range.md).

Covers: what a part is worth, one set of parts for each partition, what was chosen before from the same parts. Does not
cover: the choice within the budget (knapsack.py), shares of keys (key_shares.py), the choice of partitions.
Always holds: a set has parts of one partition that may merge with each other, none of them under merge, and keeps all
limits; each partition that gives no merge has a refusal with its reason.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from tilth.base.units import MIB, show_bytes
from tilth.maintenance.merge.policy.candidates import (
    CandidatePart,
    CandidateState,
    Effort,
    MergeCandidate,
    MergeRefusal,
    MergeSelection,
    MergeSpec,
    by_partition,
    candidate_of,
    why_apart,
)
from tilth.maintenance.merge.policy.key_shares import Floats, key_shares
from tilth.maintenance.merge.policy.knapsack import SUPPORT_ADJUST, Items, choose
from tilth.maintenance.merge.policy.lone import fold_alone
from tilth.maintenance.table.settings import MergeSettings
from tilth.model.part import parse_part_name

#: Choices that are remembered.
REMEMBERED_MAX = 256
#: A set whose merge would have the blocks of one of its parts is chosen anew without that part, so many times.
TRIES_MAX = 4


@dataclass(frozen=True, slots=True)
class _Found:
    """The best merge of parts of one shape, or why there is none."""

    spec: MergeSpec | None
    height: float
    reason: str


class KeyRangePolicy:
    """The policy, with its memory: the same parts give the same choice, and a choice among thousands takes long."""

    def __init__(self) -> None:
        self._remembered: dict[tuple[object, ...], _Found] = {}

    def select(
        self,
        parts: Sequence[CandidatePart],
        *,
        being_merged: Collection[str],
        settings: MergeSettings,
        effort: Effort = Effort.NORMAL,
    ) -> MergeSelection:
        """Choose one merge for the parts of each shape, the one that gains most first.

        A score is the gain with its sign turned. An OPTIMIZE takes whatever gains anything.
        """
        specs: list[MergeSpec] = []
        lone: list[MergeSpec] = []
        refusals: list[MergeRefusal] = []
        for partition, members in by_partition(parts).items():
            by_shape = mergeable_by_shape(members, being_merged=being_merged)
            found = [self._choose(mergeable, settings, effort) for mergeable in by_shape if len(mergeable) > 1]
            folds = [
                spec
                for mergeable in by_shape
                if len(mergeable) == 1 and (spec := fold_alone(mergeable, settings, effort)) is not None
            ]
            given = [one.spec for one in found if one.spec is not None]
            specs += given
            lone += folds
            if not given and not folds:
                reason = "; ".join(one.reason for one in found) or _why_no_merge(members, by_shape, being_merged)
                refusals.append(MergeRefusal(partition=partition, reason=reason, should_postpone=True))
        specs.sort(key=lambda spec: spec.score)
        return MergeSelection(specs=tuple(specs + lone), refusals=tuple(refusals))

    def explain(
        self, parts: Sequence[CandidatePart], *, being_merged: Collection[str], settings: MergeSettings
    ) -> tuple[MergeCandidate, ...]:
        """Return the parts of every shape of every partition with their set, or why they have none."""
        rows: list[MergeCandidate] = []
        for members in by_partition(parts).values():
            for mergeable in mergeable_by_shape(members, being_merged=being_merged):
                rows += self._explained(mergeable, settings)
        return tuple(rows)

    def _explained(self, mergeable: Sequence[CandidatePart], settings: MergeSettings) -> list[MergeCandidate]:
        if len(mergeable) == 1:
            return [candidate_of(mergeable, CandidateState.LONE, "no other part that it may merge with")]
        found = self._choose(mergeable, settings, Effort.NORMAL)
        if found.spec is None:
            return [candidate_of(mergeable, CandidateState.REFUSED, found.reason)]
        chosen = set(found.spec.parts)
        rest = [part for part in mergeable if part.name not in chosen]
        rows = [
            candidate_of(
                [part for part in mergeable if part.name in chosen],
                CandidateState.WOULD_RUN,
                found.spec.reason,
                found.spec.score,
            )
        ]
        if rest:
            text = f"not in the best set; on average {found.height:.2f} parts hold a key"
            rows.append(candidate_of(rest, CandidateState.LOST, text))
        return rows

    def _choose(self, mergeable: Sequence[CandidatePart], settings: MergeSettings, effort: Effort) -> _Found:
        key = (effort, settings, *(part.name for part in mergeable))
        found = self._remembered.pop(key, None)
        if found is None:
            found = _choice(mergeable, settings, effort)
        # The youngest is last.
        self._remembered[key] = found
        while len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        return found


def mergeable_by_shape(
    members: Sequence[CandidatePart], *, being_merged: Collection[str]
) -> tuple[tuple[CandidatePart, ...], ...]:
    """Divide the parts of one partition by shape: those of one may merge with each other, neighbours or not. Parts
    under merge are left out."""
    by_shape: dict[object, list[CandidatePart]] = {}
    for part in members:
        if part.name in being_merged:
            continue
        shape: object = (part.columns_commit_time, part.mutation_effective_time, part.first_needed_mutation)
        by_shape.setdefault(shape if part.columns_commit_time else part.name, []).append(part)
    return tuple(tuple(mergeable) for mergeable in by_shape.values())


def _choice(mergeable: Sequence[CandidatePart], settings: MergeSettings, effort: Effort) -> _Found:
    wanted = settings.key_range
    if effort is not Effort.NORMAL:
        wanted = replace(wanted, gain_min=0.0)
    budget = min(wanted.budget, settings.bytes_max // MIB) if settings.bytes_max else wanted.budget
    shares = key_shares(
        [part.low for part in mergeable], [part.high for part in mergeable], [part.size for part in mergeable]
    )
    sizes = np.array([part.size for part in mergeable], dtype=np.int64)
    weights = np.maximum(1, sizes // MIB)
    small = np.maximum(0.0, 1.0 - sizes / wanted.target_size)
    values = shares.high - shares.low + wanted.small_part_gain * small
    within = np.flatnonzero(weights <= budget).tolist()
    text = f"on average {shares.average_height:.2f} parts hold a key"
    reason = f"no set within {budget} MiB gains more than {wanted.gain_min:g}, {text}"
    if len(within) < 2:
        reason = f"all but {len(within)} of {len(mergeable)} parts are above the budget of {budget} MiB, {text}"
    for _ in range(TRIES_MAX):
        items = Items(low=shares.low[within], high=shares.high[within], values=values[within], weights=weights[within])
        chosen = choose(items, budget=budget, gain_min=wanted.gain_min, ratio=wanted.approximation_ratio)
        picked = [within[index] for index in chosen.items]
        picked = _within_limits(mergeable, picked, values / weights, settings)
        gain = _gain_of(picked, shares.low, shares.high, values)
        if len(picked) < 2 or gain <= wanted.gain_min:
            return _Found(None, shares.average_height, reason)
        enclosing = _enclosing([mergeable[index].name for index in picked])
        if enclosing is None:
            return _Found(_spec([mergeable[index] for index in picked], gain, text), shares.average_height, "")
        reason = f"the merge would have the blocks of {mergeable[picked[enclosing]].name}, {text}"
        within.remove(picked[enclosing])
    return _Found(None, shares.average_height, reason)


def _within_limits(
    mergeable: Sequence[CandidatePart], picked: list[int], density: Floats, settings: MergeSettings
) -> list[int]:
    """Return the parts without the least dense ones that are too many for the limits of rows and parts."""
    rows_max = settings.rows_max or inf
    parts_max = settings.parts_max or inf
    rows = 0
    kept: list[int] = []
    for index in sorted(picked, key=lambda index: -float(density[index])):
        if len(kept) < parts_max and rows + mergeable[index].rows <= rows_max:
            kept.append(index)
            rows += mergeable[index].rows
    return sorted(kept)


def _gain_of(picked: Sequence[int], low: Floats, high: Floats, values: Floats) -> float:
    if not picked:
        return 0.0
    members = list(picked)
    value, width = float(values[members].sum()), float(high[members].max() - low[members].min())
    return value - width * (1.0 if value <= width else SUPPORT_ADJUST)


def _enclosing(names: Sequence[str]) -> int | None:
    """Return the part that has all blocks of the others within its own."""
    blocks = [parse_part_name(name).blocks for name in names]
    whole = (min(low for low, _ in blocks), max(high for _, high in blocks))
    return blocks.index(whole) if whole in blocks else None


def _spec(parts: Sequence[CandidatePart], gain: float, text: str) -> MergeSpec:
    size = sum(part.size for part in parts)
    return MergeSpec(
        partition=parts[0].partition,
        parts=tuple(part.name for part in parts),
        size=size,
        rows=sum(part.rows for part in parts),
        score=-gain,
        reason=(
            f"{len(parts)} parts of {show_bytes(size)}, gain {gain:.4f} (fewer parts that a key is looked up in, fewer "
            f"small parts): {text}"
        ),
        gain=gain,
    )


def _why_no_merge(
    members: Sequence[CandidatePart],
    by_shape: Sequence[Sequence[CandidatePart]],
    being_merged: Collection[str],
) -> str:
    if len(members) == 1:
        return "only one part"
    if len(by_shape) < 2:
        return f"all but {len(by_shape)} of {len(members)} parts are under merge"
    apart = why_apart(by_shape[0][0], by_shape[1][0]) or "they have different shapes"
    return f"no two of {len(members)} parts may merge: {apart}"
