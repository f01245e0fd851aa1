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
    """The offer of one group of parts that may merge with each other."""

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
        """One merge for each group of parts that may merge with each other, the one that gains most first.

        A score is the gain with its sign turned. An OPTIMIZE takes whatever gains anything.
        """
        specs: list[MergeSpec] = []
        lone: list[MergeSpec] = []
        refusals: list[MergeRefusal] = []
        for partition, members in by_partition(parts).items():
            groups = mergeable_groups(members, being_merged=being_merged)
            found = [self._choose(group, settings, effort) for group in groups if len(group) > 1]
            folds = [
                spec
                for group in groups
                if len(group) == 1 and (spec := fold_alone(group, settings, effort)) is not None
            ]
            given = [one.spec for one in found if one.spec is not None]
            specs += given
            lone += folds
            if not given and not folds:
                reason = "; ".join(one.reason for one in found) or _why_no_group(members, groups, being_merged)
                refusals.append(MergeRefusal(partition=partition, reason=reason, should_postpone=True))
        specs.sort(key=lambda spec: spec.score)
        return MergeSelection(specs=tuple(specs + lone), refusals=tuple(refusals))

    def explain(
        self, parts: Sequence[CandidatePart], *, being_merged: Collection[str], settings: MergeSettings
    ) -> tuple[MergeCandidate, ...]:
        """Return every group of every partition with its set, or why it has none."""
        rows: list[MergeCandidate] = []
        for members in by_partition(parts).values():
            for group in mergeable_groups(members, being_merged=being_merged):
                rows += self._explained(group, settings)
        return tuple(rows)

    def _explained(self, group: Sequence[CandidatePart], settings: MergeSettings) -> list[MergeCandidate]:
        if len(group) == 1:
            return [candidate_of(group, CandidateState.LONE, "no other part that it may merge with")]
        found = self._choose(group, settings, Effort.NORMAL)
        if found.spec is None:
            return [candidate_of(group, CandidateState.REFUSED, found.reason)]
        chosen = set(found.spec.parts)
        rest = [part for part in group if part.name not in chosen]
        rows = [
            candidate_of(
                [part for part in group if part.name in chosen],
                CandidateState.WOULD_RUN,
                found.spec.reason,
                found.spec.score,
            )
        ]
        if rest:
            text = f"not in the best set; on average {found.height:.2f} parts hold a key"
            rows.append(candidate_of(rest, CandidateState.LOST, text))
        return rows

    def _choose(self, group: Sequence[CandidatePart], settings: MergeSettings, effort: Effort) -> _Found:
        key = (effort, settings, *(part.name for part in group))
        found = self._remembered.pop(key, None)
        if found is None:
            found = _choice(group, settings, effort)
        # The youngest is last.
        self._remembered[key] = found
        while len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        return found


def mergeable_groups(
    members: Sequence[CandidatePart], *, being_merged: Collection[str]
) -> tuple[tuple[CandidatePart, ...], ...]:
    """The parts of one partition that may merge with each other, neighbours or not; those under merge are in none."""
    groups: dict[object, list[CandidatePart]] = {}
    for part in members:
        if part.name in being_merged:
            continue
        shape: object = (part.columns_commit_time, part.mutation_effective_time, part.first_needed_mutation)
        groups.setdefault(shape if part.columns_commit_time else part.name, []).append(part)
    return tuple(tuple(group) for group in groups.values())


def _choice(group: Sequence[CandidatePart], settings: MergeSettings, effort: Effort) -> _Found:
    wanted = settings.key_range
    if effort is not Effort.NORMAL:
        wanted = replace(wanted, gain_min=0.0)
    budget = min(wanted.budget, settings.bytes_max // MIB) if settings.bytes_max else wanted.budget
    shares = key_shares([part.low for part in group], [part.high for part in group], [part.size for part in group])
    sizes = np.array([part.size for part in group], dtype=np.int64)
    weights = np.maximum(1, sizes // MIB)
    small = np.maximum(0.0, 1.0 - sizes / wanted.target_size)
    values = shares.high - shares.low + wanted.small_part_gain * small
    within = np.flatnonzero(weights <= budget).tolist()
    text = f"on average {shares.average_height:.2f} parts hold a key"
    reason = f"no set within {budget} MiB gains more than {wanted.gain_min:g}, {text}"
    if len(within) < 2:
        reason = f"all but {len(within)} of {len(group)} parts are above the budget of {budget} MiB, {text}"
    for _ in range(TRIES_MAX):
        items = Items(low=shares.low[within], high=shares.high[within], values=values[within], weights=weights[within])
        chosen = choose(items, budget=budget, gain_min=wanted.gain_min, ratio=wanted.approximation_ratio)
        picked = [within[index] for index in chosen.items]
        picked = _within_limits(group, picked, values / weights, settings)
        gain = _gain_of(picked, shares.low, shares.high, values)
        if len(picked) < 2 or gain <= wanted.gain_min:
            return _Found(None, shares.average_height, reason)
        enclosing = _enclosing([group[index].name for index in picked])
        if enclosing is None:
            return _Found(_spec([group[index] for index in picked], gain, text), shares.average_height, "")
        reason = f"the merge would have the blocks of {group[picked[enclosing]].name}, {text}"
        within.remove(picked[enclosing])
    return _Found(None, shares.average_height, reason)


def _within_limits(
    group: Sequence[CandidatePart], picked: list[int], density: Floats, settings: MergeSettings
) -> list[int]:
    """Return the parts without the least dense ones that are too many for the limits of rows and parts."""
    rows_max = settings.rows_max or inf
    parts_max = settings.parts_max or inf
    rows = 0
    kept: list[int] = []
    for index in sorted(picked, key=lambda index: -float(density[index])):
        if len(kept) < parts_max and rows + group[index].rows <= rows_max:
            kept.append(index)
            rows += group[index].rows
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


def _why_no_group(
    members: Sequence[CandidatePart],
    groups: Sequence[Sequence[CandidatePart]],
    being_merged: Collection[str],
) -> str:
    if len(members) == 1:
        return "only one part"
    if len(groups) < 2:
        return f"all but {len(groups)} of {len(members)} parts are under merge"
    apart = why_apart(groups[0][0], groups[1][0]) or "they have different shapes"
    return f"no two of {len(members)} parts may merge: {apart}"
