"""Score of a range of a run: its cost by its gain, and whether it may be merged.

Covers: score, allow rule, lowering of the base with age, alignment bonus, penalty for a tiny last part, the exception
for a whole run, all limits while widening. Does not cover: which ranges are taken together (size_tiered.py).
Always holds: of equal scores the first begin wins, then the shorter range; time and memory grow with the number of
parts times the parts of one merge.

Tests: tests/unit/maintenance/merge/policy/test_size_tiered.py, tests/property/test_merge_selection.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilth.base.units import MIB, show_bytes, show_count
from tilth.maintenance.merge.policy.candidates import CandidatePart
from tilth.maintenance.table.settings import MergeSettings

#: Cost of opening one more file, in bytes read.
FILE_COST = 5 * MIB
#: A base at or below this is not lowered any more.
BASE_LOWEST = 2.0
#: Age at which the base begins to fall, and at which it has fallen, for the smallest and for the largest sum of sizes.
AGE_MIN = 10.0
AGE_MAX_SMALL = 3600.0
AGE_MAX_LARGE = 30 * 86_400.0
#: Exponent and shift of the gain by number of parts.
GAIN_POWER = 1.15
GAIN_SHIFT = 1.9
#: A range about as large as its left neighbour lets the two merge well later.
BONUS_NEIGHBOUR_MIN = 0.9
BONUS_DISTANCE_MAX = 0.5
BONUS_FACTOR = 0.75
#: A long range whose last part is tiny had better wait for it to grow.
PENALTY_PARTS_MIN = 10
PENALTY_FACTOR = 1.15
#: The run as a whole is exempt from the allow rule when its last part is this old, and it is this short.
WHOLE_AGE_MIN = 3600.0
WHOLE_PARTS_MAX = 100
#: Parts of one range where the settings set no limit.
WIDENING_MAX = 1000
#: Cells evaluated at once.
CELLS_MAX = 1 << 19

#: Names of settings, for people.
_ROWS_MAX = "cnch_merge_max_total_rows_to_merge"
_EXPECTED_PARTS = "cnch_merge_expected_parts_number"

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the ranges of a run; none is no limit."""

    base: float
    bytes_max: int | None = None
    rows_max: int | None = None
    #: The settings that give these two, for people.
    bytes_max_name: str = ""
    rows_max_name: str = ""
    parts_max: int = WIDENING_MAX
    size_log_min: float = 13.0
    size_log_max: float = 25.0
    #: `True` if the whole run may be merged whatever the age of its last part.
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class RangeScore:
    """A range of a run: its first part, its number of parts, its cost."""

    begin: int
    length: int
    score: float
    #: Size of the range in multiples of its largest part, and the minimum.
    ratio: float
    base: float

    @property
    def end(self) -> int:
        return self.begin + self.length


@dataclass(frozen=True, slots=True)
class _Cells:
    """One row per begin, one column per length, from two parts on."""

    #: Infinite where the range is not allowed.
    score: Floats
    ratio: Floats
    base: Floats
    #: Age of the youngest part, and the age at which the base has fallen.
    youngest: Floats
    age_max: Floats
    #: `True` if the range lies within the limits.
    is_within: NDArray[np.bool_]


class RunScores:
    """The scores of all ranges of one run."""

    def __init__(self, parts: Sequence[CandidatePart], limits: Limits) -> None:
        self._limits = limits
        self._width = max(0, min(limits.parts_max, WIDENING_MAX, len(parts)))
        self._sizes: Integers = np.array([part.size for part in parts], dtype=np.int64)
        self._ages: Floats = np.array([part.age for part in parts], dtype=np.float64)
        self._bytes_before: Integers = np.concatenate(([0], np.cumsum(self._sizes)))
        self._rows_before: Integers = np.concatenate(
            ([0], np.cumsum(np.array([part.rows for part in parts], dtype=np.int64)))
        )
        self._best: tuple[Floats, Integers] | None = None
        if not self._has_pair():
            self._width = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def best(self, begin: int, end: int, *, parts_max: int | None = None) -> RangeScore | None:
        """Return the allowed range with the lowest score that lies in the stretch; none if there is none."""
        width = self._width if parts_max is None else min(self._width, parts_max)
        if width < 2 or end - begin < 2:
            return None
        # A range that begins early enough cannot leave the stretch, so its best was found once for all.
        early = max(begin, end - width + 1) if width == self._width else begin
        if end == len(self) and width == self._width:
            early = end - 1
        scores, lengths = self._best_of_all()
        late_scores, late_lengths = self._best_per_begin(early, end - 1, end, width)
        all_scores = np.concatenate((scores[begin:early], late_scores))
        all_lengths = np.concatenate((lengths[begin:early], late_lengths))
        index = int(np.argmin(all_scores))
        if not np.isfinite(all_scores[index]):
            return None
        return self.of(begin + index, int(all_lengths[index]))

    def of(self, begin: int, length: int) -> RangeScore:
        """Score one range, whatever the limits say; its score is infinite if it is not allowed."""
        cells = self._cells(begin, begin + 1, begin + length, length)
        last = length - 2
        return RangeScore(
            begin, length, float(cells.score[0, last]), float(cells.ratio[0, last]), float(cells.base[0, last])
        )

    def nearest(self) -> RangeScore | None:
        """Range within the limits that comes nearest to its base; none if not even two parts fit the limits."""
        best: tuple[float, int, int] | None = None
        for begin, stop in self._chunks(0, len(self) - 1, self._width):
            cells = self._cells(begin, stop, len(self), self._width)
            reach = np.where(cells.is_within, cells.ratio / cells.base, -np.inf)
            row, column = divmod(int(np.argmax(reach)), reach.shape[1])
            if np.isfinite(reach[row, column]) and (best is None or reach[row, column] > best[0]):
                best = (float(reach[row, column]), begin + row, column + 2)
        return None if best is None else self.of(best[1], best[2])

    def ripe_seconds(self) -> float:
        """Return in how many seconds the first range is allowed because its parts are older by then; infinite: none is,
        however old. Nothing is allowed now.
        """
        base = self._limits.base
        found = np.inf
        for begin, stop in self._chunks(0, len(self) - 1, self._width):
            cells = self._cells(begin, stop, len(self), self._width)
            if base > BASE_LOWEST:
                # The share of the way to the lowest base at which the range reaches the lowered one.
                share = (base - cells.ratio) / (base - BASE_LOWEST)
                wait = AGE_MIN + share * (cells.age_max - AGE_MIN) - cells.youngest
                found = min(found, float(np.min(wait, initial=np.inf, where=cells.is_within & (share <= 1.0))))
        if 2 <= len(self) <= min(WHOLE_PARTS_MAX, self._width) and self._is_whole_within():
            found = min(found, WHOLE_AGE_MIN - float(self._ages[-1]))
        return max(0.0, found)

    def apart(self) -> Iterator[tuple[int, str]]:
        """Yield parts that are within the limits with neither of their neighbours: the index of each, and why."""
        pairs = np.concatenate(([False], self._pairs(), [False]))
        for index in np.flatnonzero(~(pairs[:-1] | pairs[1:])).tolist():
            yield index, self._why_apart(index)

    def _why_apart(self, index: int) -> str:
        """Say which limits the part exceeds with its lighter neighbour."""
        limits = self._limits
        begins = [begin for begin in (index - 1, index) if 0 <= begin < len(self) - 1]
        sizes = {begin: int(self._bytes_before[begin + 2] - self._bytes_before[begin]) for begin in begins}
        lighter = min(sizes, key=lambda begin: sizes[begin])
        size, rows = sizes[lighter], int(self._rows_before[lighter + 2] - self._rows_before[lighter])
        exceeded: list[str] = []
        if limits.bytes_max is not None and size > limits.bytes_max:
            exceeded.append(f"{show_bytes(size)}, {limits.bytes_max_name} = {show_bytes(limits.bytes_max)}")
        if limits.rows_max is not None and rows > limits.rows_max:
            exceeded.append(f"{show_count(rows)} rows, {limits.rows_max_name} = {show_count(limits.rows_max)}")
        return f"too large to be merged: with the lighter neighbour {' and '.join(exceeded)}"

    def _is_whole_within(self) -> bool:
        return bool(self._cells(0, 1, len(self), len(self)).is_within[0, -1])

    def _has_pair(self) -> bool:
        """True if any two neighbours are within the limits; a table that has come to rest has none."""
        return bool(self._pairs().any())

    def _pairs(self) -> NDArray[np.bool_]:
        """Return for each part but the last one whether it and the next one are within the limits."""
        limits = self._limits
        pairs = np.full(max(0, len(self) - 1), True)
        if limits.bytes_max is not None:
            pairs &= self._bytes_before[2:] - self._bytes_before[:-2] <= limits.bytes_max
        if limits.rows_max is not None:
            pairs &= self._rows_before[2:] - self._rows_before[:-2] <= limits.rows_max
        return pairs

    def _best_of_all(self) -> tuple[Floats, Integers]:
        if self._best is None:
            self._best = self._best_per_begin(0, len(self) - 1, len(self), self._width)
        return self._best

    def _best_per_begin(self, begin: int, stop: int, end: int, width: int) -> tuple[Floats, Integers]:
        """Return for each begin the lowest score of a range that ends at or before `end`, and its length."""
        scores: list[Floats] = [np.empty(0)]
        lengths: list[Integers] = [np.empty(0, dtype=np.int64)]
        for first, last in self._chunks(begin, stop, width):
            cells = self._cells(first, last, end, width)
            column = np.argmin(cells.score, axis=1)
            scores.append(cells.score[np.arange(last - first), column])
            lengths.append(column.astype(np.int64) + 2)
        return np.concatenate(scores), np.concatenate(lengths)

    def _chunks(self, begin: int, stop: int, width: int) -> list[tuple[int, int]]:
        if width < 2:
            return []
        step = max(1, CELLS_MAX // width)
        return [(first, min(first + step, stop)) for first in range(begin, stop, step)]

    def _cells(self, begin: int, stop: int, end: int, width: int) -> _Cells:
        begins = np.arange(begin, stop)[:, None]
        lengths = np.arange(2, width + 1)[None, :]
        ends = np.minimum(begins + lengths, len(self))
        total = self._bytes_before[ends] - self._bytes_before[begins]
        is_within = begins + lengths <= end
        if self._limits.bytes_max is not None:
            is_within &= total <= self._limits.bytes_max
        if self._limits.rows_max is not None:
            is_within &= self._rows_before[ends] - self._rows_before[begins] <= self._limits.rows_max
        reach = stop - begin + width - 1
        largest = np.maximum.accumulate(_windows(self._sizes[begin : begin + reach], reach, width, 0), axis=1)[:, 1:]
        youngest = np.minimum.accumulate(_windows(self._ages[begin : begin + reach], reach, width, np.inf), axis=1)
        cost = total + float(FILE_COST) * lengths
        ratio = cost / (largest + float(FILE_COST))
        age_max = self._age_max(total)
        base = self._lowered_base(age_max, youngest[:, 1:])
        is_allowed = (ratio >= base) | self._is_exempt(begins, lengths)
        score = cost / (lengths - GAIN_SHIFT) ** GAIN_POWER
        self._align(score, total, begins)
        last = self._sizes[ends - 1]
        score[(lengths >= PENALTY_PARTS_MIN) & (last < (0.001 + 0.1 / lengths) * total)] *= PENALTY_FACTOR
        score[~(is_within & is_allowed)] = np.inf
        return _Cells(score, ratio, base, youngest[:, 1:], age_max, is_within)

    def _age_max(self, total: Integers) -> Floats:
        limits = self._limits
        span = limits.size_log_max - limits.size_log_min
        largeness = np.clip((np.log1p(total) - limits.size_log_min) / span, 0.0, 1.0)
        age_max: Floats = AGE_MAX_SMALL + largeness * (AGE_MAX_LARGE - AGE_MAX_SMALL)
        return age_max

    def _lowered_base(self, age_max: Floats, youngest: Floats) -> Floats:
        base = self._limits.base
        if base <= BASE_LOWEST:
            return np.full(age_max.shape, base)
        ageing = np.clip((youngest - AGE_MIN) / (age_max - AGE_MIN), 0.0, 1.0)
        lowered: Floats = base - (base - BASE_LOWEST) * ageing
        return lowered

    def _is_exempt(self, begins: Integers, lengths: Integers) -> NDArray[np.bool_]:
        is_open = len(self) <= WHOLE_PARTS_MAX and (self._limits.is_final or float(self._ages[-1]) >= WHOLE_AGE_MIN)
        exempt: NDArray[np.bool_] = (begins == 0) & (lengths == len(self)) & is_open
        return exempt

    def _align(self, score: Floats, total: Integers, begins: Integers) -> None:
        left = np.where(begins > 0, self._sizes[begins - 1], 0)
        rows, columns = np.nonzero((left > BONUS_NEIGHBOUR_MIN * total) & (total > 0))
        distance = np.abs(np.log2(total[rows, columns] / left[rows, 0]))
        factor = BONUS_FACTOR + (1 - BONUS_FACTOR) * distance / BONUS_DISTANCE_MAX
        score[rows, columns] *= np.where(distance < BONUS_DISTANCE_MAX, factor, 1.0)


def limits_of(
    settings: MergeSettings, *, base: float, parts_max: int | None, rows_max: int | None, is_final: bool
) -> Limits:
    """Return the limits of a table's merges, narrowed by those of this round."""
    allowed_rows = _narrower(settings.rows_max or None, rows_max)
    is_paced = allowed_rows is not None and allowed_rows != settings.rows_max
    return Limits(
        base=base,
        bytes_max=settings.bytes_max or None,
        rows_max=allowed_rows,
        bytes_max_name=settings.bytes_max_name,
        rows_max_name=f"the share of {_EXPECTED_PARTS}" if is_paced else _ROWS_MAX,
        parts_max=_narrower(settings.parts_max or WIDENING_MAX, parts_max) or WIDENING_MAX,
        size_log_min=settings.size_log_min,
        size_log_max=settings.size_log_max,
        is_final=is_final,
    )


def _narrower(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _windows(values: NDArray[np.int64] | Floats, reach: int, width: int, padding: float) -> Floats:
    """The windows of `width` values that begin at each of them, padded at the end of the run."""
    padded = np.full(reach, padding, dtype=np.float64)
    padded[: len(values)] = values
    windows: Floats = np.lib.stride_tricks.sliding_window_view(padded, width)
    return windows
