"""The gain of flushing segments, of rows and of changes. Pure. docs/policies/flush.md.

Always holds: age is that of the oldest change that is not flushed, whenever the last flush was.

Tests: tests/unit/maintenance/deltas/test_policy.py.
"""

from __future__ import annotations

from tilth.base.units import MIB
from tilth.maintenance.settings import FlushSettings


def flush_gain(size: int, elapsed_ms: int, settings: FlushSettings) -> float:
    """Return the gain of flushing a memory table: by size once it is large, by age before."""
    mb = size / MIB
    if mb >= settings.threshold_mb:
        return max(1.0, mb - settings.threshold_mb)
    if elapsed_ms > settings.threshold_secs * 1000:
        return min(1.0, max(elapsed_ms / settings.upper_bound_ms, mb / settings.threshold_mb))
    return 0.0
