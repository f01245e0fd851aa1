"""What to keep in shape, decided purely: views in, specs and verdicts out.

Covers: partitions of a round, merges by size and by key, what another policy would have done, mutations, garbage
collection. Does not cover: when an op runs (scheduler.py), how it runs (ops).
Always holds: no clock, no I/O, no settings read here; each decision and each refusal has its reason.
See also: docs/policies/README.md.
"""

from tilth.maintenance.policy.candidates import (
    CandidatePart,
    CandidateState,
    Effort,
    MergeCandidate,
    MergeSelection,
    MergeSpec,
    Refusal,
)
from tilth.maintenance.policy.explain import explain_merges
from tilth.maintenance.policy.key_bytes import key_bounds
from tilth.maintenance.policy.key_range import KeyRangePolicy
from tilth.maintenance.policy.partitions import (
    BackOff,
    PartitionSelection,
    PartitionStats,
    Rotation,
    postpone,
    select_for_gc,
    select_for_merge,
)
from tilth.maintenance.policy.replay import EVENTS_MAX, AskPolicy, HistorySums, Replay, ReplayedMerge, replay
from tilth.maintenance.policy.settings import (
    GcSettings,
    KeyRangeSettings,
    MergePolicy,
    MergeSettings,
    MutateSettings,
    PartitionSettings,
    PartitionStrategy,
)
from tilth.maintenance.policy.size_tiered import read_gain, select_merges, submittable

__all__ = [
    "EVENTS_MAX",
    "AskPolicy",
    "BackOff",
    "CandidatePart",
    "CandidateState",
    "Effort",
    "GcSettings",
    "HistorySums",
    "KeyRangePolicy",
    "KeyRangeSettings",
    "MergeCandidate",
    "MergePolicy",
    "MergeSelection",
    "MergeSettings",
    "MergeSpec",
    "MutateSettings",
    "PartitionSelection",
    "PartitionSettings",
    "PartitionStats",
    "PartitionStrategy",
    "Refusal",
    "Replay",
    "ReplayedMerge",
    "Rotation",
    "explain_merges",
    "key_bounds",
    "postpone",
    "read_gain",
    "replay",
    "select_for_gc",
    "select_for_merge",
    "select_merges",
    "submittable",
]
