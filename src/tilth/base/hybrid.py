"""Hybrid time: milliseconds << 18 | counter, in one integer that orders all transactions, blocks and commits.

Pure. The clock that draws such times is `tilth.catalog.records.hybrid_clock`.

Tests: tests/unit/model/test_history.py.
"""

from __future__ import annotations

COUNTER_BITS = 18
COUNTER_MAX = (1 << COUNTER_BITS) - 1


def pack(milliseconds: int, counter: int = 0) -> int:
    """The hybrid time of a wall-clock time and a counter."""
    assert 0 <= counter <= COUNTER_MAX
    return milliseconds << COUNTER_BITS | counter


def milliseconds(hybrid: int) -> int:
    """The wall-clock part, in milliseconds since 1970."""
    return hybrid >> COUNTER_BITS


def counter(hybrid: int) -> int:
    return hybrid & COUNTER_MAX


def next_after(*, now_ms: int, last: int) -> int:
    """The smallest hybrid time that is at or after the wall clock and after `last`."""
    return max(pack(now_ms), last + 1)
