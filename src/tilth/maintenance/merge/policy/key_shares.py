"""Distribution of the bytes of a table along its keys: the share of all bytes below each part's bounds.

Formula: docs/policies/key-range.md#shares-of-keys.
Covers: shares, widths, the average number of parts that hold a key. Does not cover: which parts are merged
(key_range.py), how keys become bytes (key_bytes.py).
Always holds: shares lie between 0 and 1 and grow with the key; stretches that no part covers weigh nothing, as do parts
of one key.

Tests: tests/unit/maintenance/merge/policy/test_key_range.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Number of bytes compared after the common prefix of a part's keys.
DIGITS = 8

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyShares:
    """One element for each part, in the order given."""

    #: Share of all bytes below the part's smallest and below its largest key.
    low: Floats
    high: Floats
    #: Number of parts that hold a key, averaged over the bytes; 0 if there are no bytes.
    average_height: float


def key_shares(lows: Sequence[bytes], highs: Sequence[bytes], sizes: Sequence[int]) -> KeyShares:
    """The shares of parts with these smallest and largest keys and bytes; keys compare as bytes do."""
    count = len(sizes)
    keys = sorted({*lows, *highs})
    index_of = {key: index for index, key in enumerate(keys)}
    first = [index_of[key] for key in lows]
    last = [index_of[key] for key in highs]
    mass = np.zeros(max(0, len(keys) - 1))
    opened = np.zeros(len(keys) + 1, dtype=np.int64)
    np.add.at(opened, first, 1)
    np.subtract.at(opened, last, 1)
    by_prefix: dict[int, list[int]] = {}
    for part in range(count):
        if first[part] < last[part] and sizes[part] > 0:
            by_prefix.setdefault(_common(lows[part], highs[part]), []).append(part)
    for prefix, members in by_prefix.items():
        begin, end = min(first[part] for part in members), max(last[part] for part in members)
        digits = np.array([_digits(key, prefix) for key in keys[begin : end + 1]], dtype=np.uint64)
        # Exact while still integers; where keys of other prefixes lie between, the differences are not used.
        steps = (digits[1:] - digits[:-1]).astype(np.float64)
        for part in members:
            low, high = first[part], last[part]
            span = float(digits[high - begin] - digits[low - begin])
            if span > 0:
                mass[low:high] += steps[low - begin : high - begin] * (sizes[part] / span)
    total = float(mass.sum())
    if total <= 0:
        return KeyShares(low=np.zeros(count), high=np.zeros(count), average_height=0.0)
    below = np.concatenate(([0.0], np.cumsum(mass))) / total
    height = float(np.dot(mass, np.cumsum(opened)[: len(mass)])) / total
    return KeyShares(low=below[first], high=below[last], average_height=height)


def _common(low: bytes, high: bytes) -> int:
    """Count the bytes that both begin with."""
    pairs = enumerate(zip(low, high, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(low), len(high)))


def _digits(key: bytes, prefix: int) -> int:
    return int.from_bytes(key[prefix : prefix + DIGITS].ljust(DIGITS, b"\0"), "big")
