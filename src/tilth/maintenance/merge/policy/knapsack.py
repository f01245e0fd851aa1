"""The set of parts whose merge saves most height within a budget of bytes (docs/policies/key-range.md).

Covers: the sweep over all stretches of keys with lower and upper bounds, the exact filling where the bounds
differ much, the set behind the best. Does not cover: what parts are worth (key_range.py).
Always holds: the set found is within the budget and gains more than `gain_min`, and no less than what the sweep alone
has found. Up to EXACT_ITEMS_MAX items no other set gains more than `ratio` times as much (where none is found: as
`gain_min`), unless the work is cut short: the sweep has found half of `gain_min` at most, then no set is
chosen at all; the exact fillings have read FILLING_ITEMS_MAX items; one would have more than FILLING_CELLS_MAX
cells. Of more items BORDER_TOLERANCE of the gain may be lost besides.

How: of all items whose stretch lies between a left and a right border the densest are taken, as many as the budget
holds; the last one, in part, gives the upper bound. The sweep adds items by their right end and keeps, for all left
borders at once, the sums and the least dense item that is taken. What was dropped never comes back, so a set of bits
for each left border, by rank of density, is all the memory that is needed.

Tests: tests/property/test_key_range_selection.py, tests/unit/maintenance/merge/policy/test_key_range.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Cost factor of the width of a stretch worth more than its width, so that equal gains prefer fewer bytes.
SUPPORT_ADJUST = 1.003
#: Each left border counts up to this many items, which takes 0.05 to 0.2 s; beyond it, borders that lie close together
#: count as one.
EXACT_ITEMS_MAX = 1024
#: Share of the gain that this may cost.
BORDER_TOLERANCE = 0.02
#: Share of the width of all keys; a step of 0 would keep every border.
BORDER_STEP_MIN = 1e-6
#: Stretches from which a first guess of the gain is made, and items read in exact fillings.
PROBES = 24
FILLING_ITEMS_MAX = 40_000
#: Cells of one exact filling; a larger one is left to the bounds.
FILLING_CELLS_MAX = 1 << 26

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Parallel arrays. Weights are whole, at least 1 and at most the budget."""

    low: Floats
    high: Floats
    values: Floats
    weights: Integers

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The gain, and the chosen items by their index, ascending."""

    gain: float
    items: tuple[int, ...]


NOTHING = Chosen(0.0, ())


@dataclass(slots=True)
class _Best:
    """The best gain that a set is known for, and where it was found."""

    gain: float = 0.0
    left: float = 0.0
    #: Number of items, sorted by right end, that had been seen.
    seen: int = 0
    is_filled: bool = False

    def offer(self, gain: float, *, left: float, seen: int, is_filled: bool) -> None:
        if gain > self.gain:
            self.gain, self.left, self.seen, self.is_filled = gain, left, seen, is_filled


def choose(items: Items, *, budget: int, gain_min: float, ratio: float) -> Chosen:
    """Choose the best set if it gains more than `gain_min`; `ratio` bounds its distance from the best."""
    if len(items) < 2:
        return NOTHING
    ranked = _Ranked(items, budget)
    best = _Best()
    borders = ranked.borders(gain_min)
    upper = _sweep(ranked, borders, best, gain_min=gain_min)
    if 2 * best.gain <= gain_min or float(upper.max(initial=0.0)) <= gain_min:
        return NOTHING
    room = FILLING_ITEMS_MAX
    for index in np.argsort(-upper, kind="stable").tolist():
        if upper[index] <= ratio * best.gain or room <= 0:
            break
        room -= _fill(ranked, float(borders[index]), best)
    if best.gain <= gain_min:
        return NOTHING
    ranks = np.sort(ranked.by_right[: best.seen])
    ranks = ranks[ranked.low[ranks] >= best.left]
    chosen = ranked.filled_exactly(ranks) if best.is_filled else ranked.densest(ranks)
    return Chosen(best.gain, tuple(sorted(chosen)))


def fill_knapsack(values: Floats, weights: Integers, capacity: int) -> tuple[float, tuple[int, ...]]:
    """Find the most valuable set that fits, exactly: its value, and its items, the last one first."""
    capacity = min(capacity, int(weights.sum()))
    worth = np.zeros(capacity + 1)
    is_chosen = np.zeros((len(values), capacity + 1), dtype=np.bool_)
    for index, (value, weight) in enumerate(zip(values.tolist(), weights.tolist(), strict=True)):
        if weight <= capacity:
            with_it = worth[: capacity + 1 - weight] + value
            is_better = with_it > worth[weight:]
            is_chosen[index, weight:] = is_better
            worth[weight:] = np.where(is_better, with_it, worth[weight:])
    chosen: list[int] = []
    left = capacity
    for index in range(len(values) - 1, -1, -1):
        if is_chosen[index, left]:
            chosen.append(index)
            left -= int(weights[index])
    return float(worth[capacity]), tuple(chosen)


class _Ranked:
    """The items in the order of their density, the densest first."""

    def __init__(self, items: Items, budget: int) -> None:
        self.items = items
        self.budget = float(budget)
        density = items.values / items.weights
        self.order: Integers = np.argsort(-density, kind="stable")
        self.low = items.low[self.order]
        self.high = items.high[self.order]
        self.values = items.values[self.order]
        self.weights: Floats = items.weights[self.order].astype(np.float64)
        self.density = density[self.order]
        #: Ranks by the right end of their items.
        self.by_right: Integers = np.argsort(self.high, kind="stable")

    def borders(self, gain_min: float) -> Floats:
        """Return the left borders of the sweep, ascending; of those close together the first."""
        lefts: Floats = np.unique(self.low)
        if len(self.items) <= EXACT_ITEMS_MAX:
            return lefts
        step = max(BORDER_TOLERANCE * max(self._guess(), gain_min / 2), BORDER_STEP_MIN)
        bins = np.floor(lefts / step)
        return lefts[np.concatenate(([True], bins[1:] > bins[:-1]))]

    def most(self) -> float:
        """Return an upper bound of what any set of items within the budget is worth."""
        return self._filled(-np.inf, np.inf)[1]

    def densest(self, ranks: Integers) -> list[int]:
        """Return the items, by index, from which the lower bound of these ranks follows."""
        fitting, value = self._fitting(ranks)
        if fitting < len(ranks) and float(self.values[ranks[fitting]]) > value:
            return [int(self.order[ranks[fitting]])]
        chosen: list[int] = self.order[ranks[:fitting]].tolist()
        return chosen

    def filled_exactly(self, ranks: Integers) -> list[int]:
        _, chosen = fill_knapsack(self.values[ranks], self.weights[ranks].astype(np.int64), int(self.budget))
        found: list[int] = self.order[ranks[list(chosen)]].tolist()
        return found

    def _guess(self) -> float:
        """Return a gain that is surely reached."""
        lefts = np.unique(np.quantile(self.low, np.linspace(0.0, 1.0, PROBES), method="lower"))
        rights = np.unique(np.quantile(self.high, np.linspace(0.0, 1.0, PROBES), method="higher"))
        cells = [(left, right) for left in lefts.tolist() for right in rights.tolist() if left < right]
        return max((_gain(self._filled(*cell)[0], cell[1] - cell[0]) for cell in cells), default=0.0)

    def _filled(self, left: float, right: float) -> tuple[float, float]:
        """Return the lower and the upper bound of what the best set of a stretch is worth."""
        inside = self._inside(left, right)
        fitting, value = self._fitting(inside)
        if fitting == len(inside):
            return value, value
        last = inside[fitting]
        rest = self.budget - float(self.weights[inside[:fitting]].sum())
        return max(value, float(self.values[last])), value + rest * float(self.density[last])

    def _inside(self, left: float, right: float) -> Integers:
        return np.flatnonzero((self.low >= left) & (self.high <= right))

    def _fitting(self, inside: Integers) -> tuple[int, float]:
        """Return how many of the densest fit together, and what they are worth."""
        fitting = int(np.searchsorted(np.cumsum(self.weights[inside]), self.budget, side="right"))
        return fitting, float(self.values[inside[:fitting]].sum())


def _gain(value: float, width: float) -> float:
    return value - width * (1.0 if value <= width else SUPPORT_ADJUST)


def _gains(values: Floats, widths: Floats) -> Floats:
    return values - widths * np.where(values <= widths, 1.0, SUPPORT_ADJUST)


def _sweep(ranked: _Ranked, borders: Floats, best: _Best, *, gain_min: float) -> Floats:
    """Return the upper bound of the gain for each left border; where it cannot matter any more it may be too low."""
    count = len(ranked.items)
    budget = ranked.budget
    upper = np.zeros(len(borders))
    value = np.zeros(len(borders))
    weight = np.zeros(len(borders))
    # The rank of the least dense item that is included; an item above the limit is not included.
    least = np.zeros(len(borders), dtype=np.int64)
    limit = np.full(len(borders), count, dtype=np.int64)
    included = _RankSets(count, len(borders))
    most = ranked.most()
    stops = np.searchsorted(borders, ranked.low, side="right").tolist()
    begin = 0
    for seen, rank in enumerate(ranked.by_right.tolist(), start=1):
        right, stop = float(ranked.high[rank]), stops[rank]
        # A stretch wider than anything is worth gains nothing.
        reach = most - max(best.gain, gain_min / 2)
        begin = max(begin, int(borders.searchsorted(right - reach)))
        if begin >= stop:
            continue
        included.add(rank, begin, stop)
        active = (limit[begin:stop] > rank).nonzero()[0] + begin
        if not len(active):
            continue
        now_value = value[active] + ranked.values[rank]
        now_weight = weight[active] + ranked.weights[rank]
        now_least = np.maximum(least[active], rank)
        over = (now_weight - ranked.weights[now_least] > budget).nonzero()[0]
        while len(over):
            dropped = now_least[over]
            now_value[over] -= ranked.values[dropped]
            now_weight[over] -= ranked.weights[dropped]
            now_least[over] = included.below(active[over], dropped)
            over = over[now_weight[over] - ranked.weights[now_least[over]] > budget]
        value[active], weight[active], least[active] = now_value, now_weight, now_least
        limit[active] = np.where(now_weight >= budget, now_least, count)
        excess = now_weight - budget
        last = ranked.values[now_least]
        lower_value = np.where(excess <= 0, now_value, np.maximum(now_value - last, last))
        upper_value = now_value - np.maximum(excess, 0.0) * ranked.density[now_least]
        width = right - borders[active]
        upper[active] = np.maximum(upper[active], _gains(upper_value, width))
        lower = _gains(lower_value, width)
        top = int(lower.argmax())
        best.offer(float(lower[top]), left=float(borders[active[top]]), seen=seen, is_filled=False)
    return upper


class _RankSets:
    """A set of ranks for each left border: bits, and bits that say which words of those have any."""

    def __init__(self, ranks: int, columns: int) -> None:
        words = ranks // 32 + 1
        self._bits = np.zeros((words, columns), dtype=np.uint32)
        self._words = np.zeros((words // 32 + 1, columns), dtype=np.uint32)

    def add(self, rank: int, begin: int, stop: int) -> None:
        """Add the rank to the sets of the columns from `begin` to before `stop`."""
        word = rank >> 5
        self._bits[word, begin:stop] |= np.uint32(1 << (rank & 31))
        self._words[word >> 5, begin:stop] |= np.uint32(1 << (word & 31))

    def below(self, columns: Integers, ranks: Integers) -> Integers:
        """Return for each column the highest rank of its set below the given one; there is one."""
        words = ranks >> 5
        found = _lower_bits(self._bits[words, columns], ranks)
        empty = (found == 0).nonzero()[0]
        if len(empty):
            words[empty] = self._word_below(columns[empty], words[empty])
            found[empty] = self._bits[words[empty], columns[empty]]
        return (words << 5) + _highest(found)

    def _word_below(self, columns: Integers, words: Integers) -> Integers:
        rows = words >> 5
        found = _lower_bits(self._words[rows, columns], words)
        empty = (found == 0).nonzero()[0]
        while len(empty):
            rows[empty] -= 1
            found[empty] = self._words[rows[empty], columns[empty]]
            empty = empty[found[empty] == 0]
        return (rows << 5) + _highest(found)


def _lower_bits(found: NDArray[np.uint32], positions: Integers) -> NDArray[np.uint32]:
    lower: NDArray[np.uint32] = found & ((np.uint32(1) << (positions & 31).astype(np.uint32)) - np.uint32(1))
    return lower


def _highest(found: NDArray[np.uint32]) -> Integers:
    """Return the position of the highest bit; 32 bits are exact in a float."""
    positions: Integers = np.frexp(found.astype(np.float64))[1].astype(np.int64) - 1
    return positions


def _fill(ranked: _Ranked, left: float, best: _Best) -> int:
    """Fill exactly, for one left border and every right one; return how many items that took."""
    positions = np.flatnonzero(ranked.low[ranked.by_right] >= left)
    ranks = ranked.by_right[positions]
    capacity = int(min(ranked.budget, ranked.weights[ranks].sum()))
    if (capacity + 1) * len(ranks) > FILLING_CELLS_MAX:
        return len(ranks)
    worth = np.zeros(capacity + 1)
    for position, rank in zip(positions.tolist(), ranks.tolist(), strict=True):
        weight = int(ranked.weights[rank])
        worth[weight:] = np.maximum(worth[weight:], worth[: capacity + 1 - weight] + ranked.values[rank])
        gain = _gain(float(worth[capacity]), float(ranked.high[rank]) - left)
        best.offer(gain, left=left, seen=position + 1, is_filled=True)
    return len(ranks)
