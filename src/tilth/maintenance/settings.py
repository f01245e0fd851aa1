"""The knobs of the node's maintenance manager; those of each table are in policy/settings.py.

Covers: names (the ones users of Kudu and ByConity know), defaults, checks, what each direction costs.
See also: knobs.py, which makes values of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tilth.base.settings import Scope, Setting, SettingGroup
from tilth.base.units import parse_bytes, parse_seconds
from tilth.maintenance.policy.settings import at_least, between, switch

T = TypeVar("T")


def _node(
    name: str, default: T, parse: Callable[[str], T], check: Callable[[T], bool], allowed: str, doc: str, unit: str = ""
) -> Setting[T]:
    return Setting(
        name=name, scope=Scope.NODE, default=default, parse=parse, check=check, allowed=allowed, doc=doc, unit=unit
    )


def _bytes_or_none(text: str) -> int:
    return -1 if text.strip() == "-1" else parse_bytes(text)


# The manager of a node.

ENABLE_MAINTENANCE_MANAGER = switch(
    Scope.NODE,
    "enable_maintenance_manager",
    True,
    "Off: nothing is flushed, merged or collected on this node, and parts, log and memory grow until writes are "
    "refused.",
)
MAINTENANCE_MANAGER_NUM_THREADS = _node(
    "maintenance_manager_num_threads",
    4,
    int,
    *between(1, 64),
    "Ops that run at once; with one, a long merge holds up all others. More: parts fold sooner. Fewer: queries and "
    "imports keep disk and cores.",
)
MAINTENANCE_MANAGER_POLLING_INTERVAL_MS = _node(
    "maintenance_manager_polling_interval_ms",
    250,
    int,
    *between(1, 60_000),
    "Pause between two looks when nothing was worth doing. Shorter: work starts sooner. Longer: an idle node costs "
    "less.",
    "ms",
)
MAINTENANCE_MANAGER_HISTORY_SIZE = _node(
    "maintenance_manager_history_size",
    8,
    int,
    *between(0, 10_000),
    "Finished ops that are shown. More: the past is told further back. Fewer: less memory.",
)
LOG_TARGET_REPLAY_SIZE_MB = _node(
    "log_target_replay_size_mb",
    1024,
    int,
    *at_least(0),
    "Log kept alive by one op from which on it runs before any merge. Less: restarts replay less. More: fewer, "
    "larger parts.",
    "MiB",
)
DATA_GC_MIN_SIZE_MB = _node(
    "data_gc_min_size_mb",
    0,
    int,
    *at_least(0),
    "Data that must be waiting, more than this, before it is collected. Less: the disk is freed sooner. More: "
    "fewer, larger rounds.",
    "MiB",
)
DATA_GC_PRIORITIZATION_PROB = _node(
    "data_gc_prioritization_prob",
    0.5,
    float,
    *between(0, 1),
    "Chance that collecting data goes before an op that speeds up reads. More: the disk is freed sooner. Less: "
    "reads gain sooner.",
)
RUN_NON_MEMORY_OPS_PROB = _node(
    "run_non_memory_ops_prob",
    0.0,
    float,
    *between(0, 1),
    "Chance that other ops run where memory pressure begins. More: merges go on on a node that is always half full. "
    "Less: memory is freed sooner.",
)
MAINTENANCE_OP_MULTIPLIER = _node(
    "maintenance_op_multiplier",
    1.1,
    float,
    *between(1, 10),
    "What one step of a table's maintenance_priority multiplies its gain by. More: priorities weigh more. "
    "Less: the gain alone decides; also the width of the band in which tables take turns.",
)
MAX_PRIORITY_RANGE = _node(
    "max_priority_range",
    5,
    int,
    *between(0, 100),
    "Steps of maintenance_priority that count, up and down. More: a table can go further before others. "
    "Less: no table can starve the rest.",
)
MEMORY_PRESSURE_PERCENTAGE = _node(
    "memory_pressure_percentage",
    60.0,
    float,
    lambda p: 0 < p <= 100,
    "above 0, up to 100",
    "Share of the hard memory limit from which on memory is freed first. Less: writes are refused more rarely. "
    "More: fewer small flushes.",
    "percent",
)
MEMORY_LIMIT_SOFT_PERCENTAGE = _node(
    "memory_limit_soft_percentage",
    80.0,
    float,
    lambda p: 0 < p <= 100,
    "above 0, up to 100",
    "Share of the hard memory limit from which on only memory is freed, and writes begin to be refused. Less: the "
    "hard limit is farther away. More: more memory is used before anything suffers. Keep it well above "
    "memory_pressure_percentage.",
    "percent",
)
MEMORY_LIMIT_HARD_BYTES = _node(
    "memory_limit_hard_bytes",
    0,
    _bytes_or_none,
    *at_least(-1),
    "Memory that the node may use: this process and all below it, Spark's JVM and Python workers in local mode; 0 is "
    "four fifths of the machine's, -1 no limit. More: fewer small flushes, writes are refused more rarely. Less: more "
    "is left to others on the machine.",
    "bytes",
)
MEMORY_LIMIT_WARN_PERCENTAGE = _node(
    "memory_limit_warn_threshold_percentage",
    98.0,
    float,
    lambda p: 0 < p <= 100,
    "above 0, up to 100",
    "Share of the hard memory limit from which on the log warns. Less: earlier warnings. More: fewer of them.",
    "percent",
)
ENABLE_WORKLOAD_SCORE = switch(
    Scope.NODE,
    "enable_workload_score_for_perf_improvement_ops",
    False,
    "On: tables that are read and written more are merged before others of a like gain. Off: the gain alone decides, "
    "and quiet tables keep their turn.",
)
WORKLOAD_SCORE_UPPER_BOUND = _node(
    "workload_score_upper_bound",
    1.0,
    float,
    *between(0, 100),
    "What a busy table's gain is raised by at most. More: busy tables go further before quiet ones. Less: the gain "
    "weighs more.",
)
HOT_SCANS_PER_SECOND = _node(
    "scans_started_per_sec_for_hot_tablets",
    1.0,
    float,
    lambda n: n > 0,
    "above 0",
    "Queries of a table a second from which on it counts as busy. Fewer: more tables count. More: only the busiest do.",
)
HOT_ROWS_PER_SECOND = _node(
    "rows_writed_per_sec_for_hot_tablets",
    1000.0,
    float,
    lambda n: n > 0,
    "above 0",
    "Rows written into a table a second from which on it counts as busy. Fewer: more tables count. More: only the "
    "busiest do.",
)

# Flushes, compactions of deltas and collecting on a node.

FLUSH_THRESHOLD_MB = _node(
    "flush_threshold_mb",
    1024,
    int,
    *at_least(1),
    "Rows, or changes of rows, that wait for a flush, from which on their size alone is a reason to flush. Less: "
    "queries read fewer unsorted rows and changes. More: fewer, larger parts.",
    "MiB",
)
FLUSH_THRESHOLD_SECS = _node(
    "flush_threshold_secs",
    120,
    int,
    *at_least(0),
    "Age from which on rows or changes of rows are flushed however few they are. Shorter: queries read fewer unsorted "
    "rows and changes. Longer: fewer, larger parts.",
    "s",
)
FLUSH_UPPER_BOUND_MS = _node(
    "flush_upper_bound_ms",
    3_600_000,
    int,
    *at_least(1),
    "Age at which the gain of a flush is 1, as much as age can give. Shorter: old rows go before merges sooner. "
    "Longer: merges go first for longer.",
    "ms",
)
ENABLE_FLUSH_MEMROWSET = switch(
    Scope.NODE,
    "enable_flush_memrowset",
    True,
    "Off: row segments are not flushed into parts, and queries read more and more unsorted rows.",
)
ENABLE_FLUSH_DELTAMEMSTORES = switch(
    Scope.NODE,
    "enable_flush_deltamemstores",
    True,
    "Off: change segments are not made into deltas of their parts, and queries read more and more of them.",
)
ENABLE_MINOR_DELTA_COMPACTION = switch(
    Scope.NODE,
    "enable_minor_delta_compaction",
    True,
    "Off: the deltas of a part are not made into one, and each flush of changes adds a file that queries read.",
)
ENABLE_MAJOR_DELTA_COMPACTION = switch(
    Scope.NODE,
    "enable_major_delta_compaction",
    True,
    "Off: updates are not written into columns, and queries patch each row that was updated.",
)
ENABLE_LOG_GC = switch(
    Scope.NODE, "enable_log_gc", True, "Off: row segments that were flushed stay on the disk for ever."
)
ENABLE_UNDO_DELTA_BLOCK_GC = switch(
    Scope.NODE,
    "enable_undo_delta_block_gc",
    True,
    "Off: deltas that were compacted, or whose parts are gone, stay on the disk for ever.",
)
ENABLE_DELETED_ROWSET_GC = switch(
    Scope.NODE,
    "enable_deleted_rowset_gc",
    True,
    "Off: parts whose rows are all deleted stay until a merge takes them.",
)
MINOR_DELTA_FILES = _node(
    "tablet_delta_store_minor_compact_max",
    1000,
    int,
    *at_least(1),
    "Delta files of one part and kind at which making them one gains as much as it can. Fewer: queries open fewer "
    "files. More: changes are written again less often.",
)
MAJOR_DELTA_RATIO = _node(
    "tablet_delta_store_major_compact_min_ratio",
    0.1,
    float,
    *between(0, 1),
    "Share of a part's bytes that its deltas must have before its updated columns are written anew. Less: queries "
    "patch fewer rows. More: columns are written again less often.",
)

DROPPED_TABLE_KEEP = _node(
    "dropped_table_keep_seconds",
    259_200.0,
    parse_seconds,
    *at_least(0),
    "How long a dropped table can be brought back by UNDROP. Longer: mistakes are safe for longer. Shorter: its disk "
    "is free sooner.",
    "s",
)

NODE_SETTINGS = SettingGroup(
    [
        ENABLE_MAINTENANCE_MANAGER,
        MAINTENANCE_MANAGER_NUM_THREADS,
        MAINTENANCE_MANAGER_POLLING_INTERVAL_MS,
        MAINTENANCE_MANAGER_HISTORY_SIZE,
        LOG_TARGET_REPLAY_SIZE_MB,
        DATA_GC_MIN_SIZE_MB,
        DATA_GC_PRIORITIZATION_PROB,
        RUN_NON_MEMORY_OPS_PROB,
        MAINTENANCE_OP_MULTIPLIER,
        MAX_PRIORITY_RANGE,
        MEMORY_PRESSURE_PERCENTAGE,
        MEMORY_LIMIT_SOFT_PERCENTAGE,
        MEMORY_LIMIT_HARD_BYTES,
        MEMORY_LIMIT_WARN_PERCENTAGE,
        ENABLE_WORKLOAD_SCORE,
        WORKLOAD_SCORE_UPPER_BOUND,
        HOT_SCANS_PER_SECOND,
        HOT_ROWS_PER_SECOND,
        FLUSH_THRESHOLD_MB,
        FLUSH_THRESHOLD_SECS,
        FLUSH_UPPER_BOUND_MS,
        ENABLE_FLUSH_MEMROWSET,
        ENABLE_FLUSH_DELTAMEMSTORES,
        ENABLE_MINOR_DELTA_COMPACTION,
        ENABLE_MAJOR_DELTA_COMPACTION,
        ENABLE_LOG_GC,
        ENABLE_UNDO_DELTA_BLOCK_GC,
        ENABLE_DELETED_ROWSET_GC,
        MINOR_DELTA_FILES,
        MAJOR_DELTA_RATIO,
        DROPPED_TABLE_KEEP,
    ]
)
