"""What the rooms' policies and the manager get of the settings: frozen values, read once.

Covers: the way from values by name to values by field. Does not cover: names, defaults and checks (settings.py).
Always holds: policies see plain values, never a setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilth.base.settings import BadSettingError, value_of
from tilth.maintenance import settings as given
from tilth.maintenance.manager.scheduler import SchedulerSettings
from tilth.maintenance.op import OpKind
from tilth.maintenance.policy import settings as of_table
from tilth.maintenance.policy.candidates import KeyRangeSettings, MergeSettings
from tilth.maintenance.policy.flush_scores import DeltaSettings, FlushSettings
from tilth.maintenance.policy.gc import GcSettings
from tilth.maintenance.policy.mutate import MutateSettings
from tilth.maintenance.policy.partitions import PartitionSettings, PartitionStrategy
from tilth.maintenance.work.workload import WorkloadSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings:
    """What the maintenance manager of a node is given."""

    is_enabled: bool
    workers: int
    polling_interval: float
    history_size: int
    scheduler: SchedulerSettings
    #: Seconds that a dropped table can be brought back.
    dropped_table_keep: float = given.DROPPED_TABLE_KEEP.default
    #: Bytes; 0 is four fifths of the machine's, negative no limit.
    memory_limit_hard: int = given.MEMORY_LIMIT_HARD_BYTES.default
    memory_limit_warn_percentage: float = given.MEMORY_LIMIT_WARN_PERCENTAGE.default
    workload: WorkloadSettings = field(default_factory=WorkloadSettings)
    #: Of rows, and of changes of rows.
    flush: FlushSettings = field(default_factory=FlushSettings)
    deltas: DeltaSettings = field(default_factory=DeltaSettings)
    #: Of each op that does not run on this node, the setting that says so.
    switched_off: Mapping[OpKind, str] = field(default_factory=dict)


#: Which setting lets which op run.
_SWITCHES = {
    OpKind.FLUSH: given.ENABLE_FLUSH_MEMROWSET,
    OpKind.FLUSH_DELTAS: given.ENABLE_FLUSH_DELTAMEMSTORES,
    OpKind.MINOR_DELTA: given.ENABLE_MINOR_DELTA_COMPACTION,
    OpKind.MAJOR_DELTA: given.ENABLE_MAJOR_DELTA_COMPACTION,
    OpKind.LOG_GC: given.ENABLE_LOG_GC,
    OpKind.HISTORY_GC: given.ENABLE_UNDO_DELTA_BLOCK_GC,
    OpKind.DELETED_PART_GC: given.ENABLE_DELETED_ROWSET_GC,
}


def manager_settings(values: Mapping[str, object]) -> ManagerSettings:
    """From what `given.NODE_SETTINGS.read`, or a group that contains them, returned."""
    return ManagerSettings(
        is_enabled=value_of(values, given.ENABLE_MAINTENANCE_MANAGER),
        workers=value_of(values, given.MAINTENANCE_MANAGER_NUM_THREADS),
        polling_interval=value_of(values, given.MAINTENANCE_MANAGER_POLLING_INTERVAL_MS) / 1000,
        history_size=value_of(values, given.MAINTENANCE_MANAGER_HISTORY_SIZE),
        scheduler=SchedulerSettings(
            log_target_replay_size_mb=value_of(values, given.LOG_TARGET_REPLAY_SIZE_MB),
            data_gc_min_size_mb=value_of(values, given.DATA_GC_MIN_SIZE_MB),
            data_gc_prioritization_prob=value_of(values, given.DATA_GC_PRIORITIZATION_PROB),
            run_non_memory_ops_prob=value_of(values, given.RUN_NON_MEMORY_OPS_PROB),
            maintenance_op_multiplier=value_of(values, given.MAINTENANCE_OP_MULTIPLIER),
            max_priority_range=value_of(values, given.MAX_PRIORITY_RANGE),
            memory_pressure_percentage=value_of(values, given.MEMORY_PRESSURE_PERCENTAGE),
            memory_limit_soft_percentage=value_of(values, given.MEMORY_LIMIT_SOFT_PERCENTAGE),
        ),
        dropped_table_keep=value_of(values, given.DROPPED_TABLE_KEEP),
        memory_limit_hard=value_of(values, given.MEMORY_LIMIT_HARD_BYTES),
        memory_limit_warn_percentage=value_of(values, given.MEMORY_LIMIT_WARN_PERCENTAGE),
        workload=WorkloadSettings(
            is_enabled=value_of(values, given.ENABLE_WORKLOAD_SCORE),
            upper_bound=value_of(values, given.WORKLOAD_SCORE_UPPER_BOUND),
            hot_scans_per_second=value_of(values, given.HOT_SCANS_PER_SECOND),
            hot_rows_per_second=value_of(values, given.HOT_ROWS_PER_SECOND),
        ),
        flush=FlushSettings(
            threshold_mb=value_of(values, given.FLUSH_THRESHOLD_MB),
            threshold_secs=value_of(values, given.FLUSH_THRESHOLD_SECS),
            upper_bound_ms=value_of(values, given.FLUSH_UPPER_BOUND_MS),
        ),
        deltas=DeltaSettings(
            minor_files_max=value_of(values, given.MINOR_DELTA_FILES),
            major_ratio_min=value_of(values, given.MAJOR_DELTA_RATIO),
        ),
        switched_off={kind: switch.name for kind, switch in _SWITCHES.items() if not value_of(values, switch)},
    )


def check_table_settings(given: Mapping[str, str]) -> None:
    """What a table's settings must satisfy together, those of other rooms left out. Raises BadSettingError."""
    names = {name for setting in of_table.TABLE_SETTINGS.all for name in (setting.name, *setting.aliases)}
    merge_settings(of_table.TABLE_SETTINGS.read({name: text for name, text in given.items() if name in names}))


def merge_settings(values: Mapping[str, object]) -> MergeSettings:
    """From what `of_table.TABLE_SETTINGS.read`, or a group that contains them, returned.

    Raises BadSettingError where two of them contradict each other.
    """
    size_log_min = value_of(values, of_table.MERGE_SIZE_LOG_MIN)
    size_log_max = value_of(values, of_table.MERGE_SIZE_LOG_MAX)
    if size_log_max <= size_log_min:
        raise BadSettingError(
            "merge_selector_size_log_max must be more than merge_selector_size_log_min",
            merge_selector_size_log_max=size_log_max,
            merge_selector_size_log_min=size_log_min,
            hint="set both in one statement",
        )
    bytes_max, in_pool = (
        value_of(values, each) for each in (of_table.MERGE_MAX_TOTAL_BYTES, of_table.MERGE_MAX_BYTES_IN_POOL)
    )
    is_pool_smaller = _smaller(bytes_max, in_pool) != bytes_max
    deciding = of_table.MERGE_MAX_BYTES_IN_POOL if is_pool_smaller else of_table.MERGE_MAX_TOTAL_BYTES
    return MergeSettings(
        bytes_max=_smaller(bytes_max, in_pool),
        bytes_max_name=deciding.name,
        rows_max=value_of(values, of_table.MERGE_MAX_TOTAL_ROWS),
        parts_max=_smaller(
            value_of(values, of_table.MERGE_MAX_PARTS), value_of(values, of_table.MERGE_MAX_PARTS_AT_ONCE)
        ),
        base=value_of(values, of_table.MERGE_BASE),
        size_log_min=size_log_min,
        size_log_max=size_log_max,
        is_batch_select=value_of(values, of_table.MERGE_ENABLE_BATCH_SELECT),
        batch_select_parts_min=value_of(values, of_table.MERGE_BATCH_SELECT_PARTS),
        lone_chain_age_min=value_of(values, of_table.MERGE_LONE_CHAIN_AGE),
        expected_parts=value_of(values, of_table.MERGE_EXPECTED_PARTS),
        write_amplification_threshold=value_of(values, of_table.MERGE_WRITE_AMPLIFICATION_THRESHOLD),
        running_max=value_of(values, of_table.MERGE_RUNNING_MAX),
        is_disabled=value_of(values, of_table.MERGE_DISABLED),
        policy=value_of(values, of_table.MERGE_POLICY),
        key_range=_key_range_settings(values),
    )


def _key_range_settings(values: Mapping[str, object]) -> KeyRangeSettings:
    gain_min = value_of(values, of_table.KEY_RANGE_GAIN_MIN)
    small_part_gain = value_of(values, of_table.KEY_RANGE_SMALL_PART_GAIN)
    # docs/policies/key-range.md#settings: a small part alone would be worth a merge, and merging would never end.
    if small_part_gain >= gain_min:
        raise BadSettingError(
            "compaction_small_rowset_tradeoff must be less than compaction_minimum_improvement",
            compaction_small_rowset_tradeoff=small_part_gain,
            compaction_minimum_improvement=gain_min,
            hint="set both in one statement",
        )
    return KeyRangeSettings(
        budget=value_of(values, of_table.KEY_RANGE_BUDGET),
        target_size=value_of(values, of_table.KEY_RANGE_TARGET_SIZE),
        gain_min=gain_min,
        small_part_gain=small_part_gain,
        approximation_ratio=value_of(values, of_table.KEY_RANGE_APPROXIMATION),
    )


def merge_partition_settings(values: Mapping[str, object]) -> PartitionSettings:
    """How partitions are chosen for merges."""
    only_newest = value_of(values, of_table.MERGE_ONLY_REALTIME_PARTITION)
    return PartitionSettings(
        strategy=PartitionStrategy.NEWEST if only_newest else value_of(values, of_table.PARTITION_STRATEGY),
        number=value_of(values, of_table.MAX_PARTITION_FOR_MULTI_SELECT),
        rotation_interval=value_of(values, of_table.MERGE_ROTATION_INTERVAL),
        postpone_time=value_of(values, of_table.MERGE_POSTPONE_TIME),
    )


def mutate_settings(values: Mapping[str, object]) -> MutateSettings:
    """How the table's mutations are cut into tasks."""
    return MutateSettings(
        parts_max=value_of(values, of_table.MUTATE_MAX_PARTS),
        bytes_max=value_of(values, of_table.MUTATE_MAX_TOTAL_BYTES),
        running_max=value_of(values, of_table.MUTATE_RUNNING_MAX),
        postpone_ms_max=value_of(values, of_table.MUTATE_POSTPONE_MAX),
    )


def gc_settings(values: Mapping[str, object]) -> GcSettings:
    """What the collecting of a table is given."""
    return GcSettings(
        old_parts_lifetime=value_of(values, of_table.OLD_PARTS_LIFETIME),
        trash_lifetime=value_of(values, of_table.TTL_FOR_TRASH_ITEMS),
        move_batch=value_of(values, of_table.GC_TRASH_PART_BATCH_SIZE),
        move_max=value_of(values, of_table.GC_TRASH_PART_LIMIT),
        remove_batch=value_of(values, of_table.GC_REMOVE_PART_BATCH_SIZE),
        deleters_max=value_of(values, of_table.GC_REMOVE_PART_THREAD_POOL_SIZE),
        pause=value_of(values, of_table.CLEANUP_DELAY_PERIOD),
        pause_random=value_of(values, of_table.CLEANUP_DELAY_RANDOM_ADD),
        pause_max=value_of(values, of_table.CLEANUP_DELAY_UPPER_BOUND),
        partition_ttl_fallback=value_of(values, of_table.ENABLE_PARTITION_TTL_FALLBACK),
        history=value_of(values, of_table.TABLET_HISTORY_MAX_AGE),
    )


def gc_partition_settings(values: Mapping[str, object]) -> PartitionSettings:
    """How partitions are chosen for collecting."""
    return PartitionSettings(
        number=value_of(values, of_table.GC_PARTITIONS_NUMBER),
        rotation_interval=value_of(values, of_table.GC_ROTATION_INTERVAL),
    )


def _smaller(one: int, other: int) -> int:
    """The smaller limit, where 0 is none."""
    return min(one, other) if one and other else one or other
