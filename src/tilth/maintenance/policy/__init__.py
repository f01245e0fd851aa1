"""What to keep in shape, decided purely: views in, specs and verdicts out.

Covers: partitions of a round, merges by size, garbage collection. Does not cover: when an op runs (scheduler.py), how
it runs (ops). Always holds: no clock, no I/O, no settings read here; each decision and each refusal has its reason.
See also: POLICIES sections 2, 3 and 9.
"""

from tilth.maintenance.policy.candidates import (
    CandidatePart,
    Effort,
    MergeSelection,
    MergeSettings,
    MergeSpec,
    Refusal,
)
from tilth.maintenance.policy.gc import GcSettings
from tilth.maintenance.policy.partitions import (
    PartitionSelection,
    PartitionSettings,
    PartitionStats,
    PartitionStrategy,
    Rotation,
    postpone,
    select_for_gc,
    select_for_merge,
)
from tilth.maintenance.policy.size_tiered import read_gain, select_merges, submittable

__all__ = [
    "CandidatePart",
    "Effort",
    "GcSettings",
    "MergeSelection",
    "MergeSettings",
    "MergeSpec",
    "PartitionSelection",
    "PartitionSettings",
    "PartitionStats",
    "PartitionStrategy",
    "Refusal",
    "Rotation",
    "postpone",
    "read_gain",
    "select_for_gc",
    "select_for_merge",
    "select_merges",
    "submittable",
]
