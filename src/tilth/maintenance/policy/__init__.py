"""Settings of tables and rules of several ops, decided purely: views in, specs and verdicts out.

Covers: the nouns of merges, partitions of a round, mutations, garbage collection, expiry, scores of flushes. Does not
cover: merges by size and by key (merge/policy), which segments go together (flush/policy.py), which deltas are
compacted (deltas/policy.py), when an op runs (manager/scheduler.py), how it runs.
Always holds: no clock, no I/O, no settings read here; each decision and each refusal has its reason.
See also: docs/policies/README.md.
"""

from tilth.maintenance.policy.candidates import (
    CandidatePart,
    CandidateState,
    Effort,
    MergeCandidate,
    MergeRefusal,
    MergeSelection,
    MergeSpec,
)
from tilth.maintenance.policy.partitions import (
    BackOff,
    PartitionSelection,
    PartitionStats,
    Rotation,
    postpone,
    select_for_gc,
    select_for_merge,
    with_partitions,
)
from tilth.maintenance.policy.settings import (
    GcSettings,
    KeyRangeSettings,
    MergePolicy,
    MergeSettings,
    MutateSettings,
    PartitionSettings,
    PartitionStrategy,
)

__all__ = [
    "BackOff",
    "CandidatePart",
    "CandidateState",
    "Effort",
    "GcSettings",
    "KeyRangeSettings",
    "MergeCandidate",
    "MergePolicy",
    "MergeRefusal",
    "MergeSelection",
    "MergeSettings",
    "MergeSpec",
    "MutateSettings",
    "PartitionSelection",
    "PartitionSettings",
    "PartitionStats",
    "PartitionStrategy",
    "Rotation",
    "postpone",
    "select_for_gc",
    "select_for_merge",
    "with_partitions",
]
