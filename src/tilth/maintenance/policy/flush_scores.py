"""Value of a flush and of a compaction of deltas. Pure. docs/policies/flush.md, docs/policies/delta-compaction.md.

Covers: the scores. Does not cover: memory tables and deltas themselves, what may go of segments (gc/log_gc.py).
Always holds: time is asked of the oldest change that is not flushed, never of the last flush.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilth.base.units import MIB
from tilth.maintenance.policy.settings import DeltaSettings, FlushSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaStore:
    """Changes that are not flushed."""

    bytes: int
    #: Log that would be replayed for them.
    replay_bytes: int


def flush_gain(size: int, elapsed_ms: int, settings: FlushSettings) -> float:
    """Return the gain of flushing a memory table: by size once it is large, by age before."""
    mb = size / MIB
    if mb >= settings.threshold_mb:
        return max(1.0, mb - settings.threshold_mb)
    if elapsed_ms > settings.threshold_secs * 1000:
        return min(1.0, max(elapsed_ms / settings.upper_bound_ms, mb / settings.threshold_mb))
    return 0.0


def best_delta_store(stores: Sequence[DeltaStore], *, used_percent: float) -> int | None:
    """Return the index of the store to flush; `used_percent` is that of memory under pressure, else 0."""
    weight = min(100.0, max(0.0, used_percent))
    best: int | None = None
    best_score, best_bytes = 0.0, 0
    for place, store in enumerate(stores):
        score = store.bytes * weight + store.replay_bytes * (100 - weight)
        if score > best_score or (score > best_score - 1 and store.bytes > best_bytes):
            best, best_score, best_bytes = place, score, store.bytes
    return best


def minor_gain(files_by_kind: Mapping[str, int], settings: DeltaSettings) -> float:
    """Return the gain of merging one part's delta files of one kind; the kind with the most files counts."""
    files = max(files_by_kind.values(), default=0)
    return 0.0 if files <= 1 else min(1.0, files / settings.minor_files_max)


def major_gain(*, update_files: int, delta_bytes: int, base_bytes: int, settings: DeltaSettings) -> float:
    """Return the gain of writing one part's updates into its columns. Deletes alone give nothing."""
    if not update_files or not base_bytes:
        return 0.0
    ratio = delta_bytes / base_bytes
    return 0.0 if ratio < settings.major_ratio_min else min(1.0, ratio)
