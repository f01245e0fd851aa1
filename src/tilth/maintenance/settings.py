"""Settings of the node's maintenance manager; those of each table are in table/settings.py.

Covers: names (the ones users of Kudu and ByConity know), defaults, checks, what each direction costs, and the values
that the manager, the scheduler and the ops receive.
"""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from typing import Any

from tilth.base.settings import (
    SWITCH,
    SettingCheck,
    SettingGroup,
    contained,
    node_setting,
    settings_of,
    within,
)
from tilth.base.units import parse_bytes, parse_seconds
from tilth.maintenance.kinds import OpKind


def _bytes_or_none(text: str) -> int:
    return -1 if text.strip() == "-1" else parse_bytes(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Weights in the choice of the next op."""

    log_target_replay_size_mb: int = node_setting(
        "log_target_replay_size_mb",
        1024,
        within(int, 0),
        "Log kept alive by one op from which on it runs before any merge. Less: restarts replay less. More: fewer, "
        "larger parts.",
        unit="MiB",
    )
    data_gc_min_size_mb: int = node_setting(
        "data_gc_min_size_mb",
        0,
        within(int, 0),
        "Data that must be waiting, more than this, before it is collected. Less: the disk is freed sooner. More: "
        "fewer, larger rounds.",
        unit="MiB",
    )
    data_gc_prioritization_prob: float = node_setting(
        "data_gc_prioritization_prob",
        0.5,
        within(float, 0, 1),
        "Chance that collecting data goes before an op that speeds up reads. More: the disk is freed sooner. Less: "
        "reads gain sooner.",
    )
    run_non_memory_ops_prob: float = node_setting(
        "run_non_memory_ops_prob",
        0.0,
        within(float, 0, 1),
        "Chance that other ops run where memory pressure begins. More: merges go on on a node that is always half "
        "full. Less: memory is freed sooner.",
    )
    maintenance_op_multiplier: float = node_setting(
        "maintenance_op_multiplier",
        1.1,
        within(float, 1, 10),
        "What one step of a table's maintenance_priority multiplies its gain by. More: priorities weigh more. Less: "
        "the gain alone decides; also the width of the band in which tables take turns.",
    )
    max_priority_range: int = node_setting(
        "max_priority_range",
        5,
        within(int, 0, 100),
        "Steps of maintenance_priority that count, up and down. More: a table can go further before others. Less: no "
        "table can starve the rest.",
    )
    memory_pressure_percentage: float = node_setting(
        "memory_pressure_percentage",
        60.0,
        SettingCheck(float, "above 0, up to 100", lambda p: 0 < p <= 100),
        "Share of the hard memory limit from which on memory is freed first. Less: writes are refused more rarely. "
        "More: fewer small flushes.",
        unit="percent",
    )
    memory_limit_soft_percentage: float = node_setting(
        "memory_limit_soft_percentage",
        80.0,
        SettingCheck(float, "above 0, up to 100", lambda p: 0 < p <= 100),
        "Share of the hard memory limit from which on only memory is freed, and writes begin to be refused. Less: the "
        "hard limit is farther away. More: more memory is used before anything suffers. Keep it well above "
        "memory_pressure_percentage.",
        unit="percent",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """Bounds from which on a table counts as busy."""

    is_enabled: bool = node_setting(
        "enable_workload_score_for_perf_improvement_ops",
        False,
        SWITCH,
        "On: tables that are read and written more are merged before others of a like gain. Off: the gain alone "
        "decides, and quiet tables keep their turn.",
    )
    upper_bound: float = node_setting(
        "workload_score_upper_bound",
        1.0,
        within(float, 0, 100),
        "What a busy table's gain is raised by at most. More: busy tables go further before quiet ones. Less: the gain "
        "weighs more.",
    )
    hot_scans_per_second: float = node_setting(
        "scans_started_per_sec_for_hot_tablets",
        1.0,
        SettingCheck(float, "above 0", lambda n: n > 0),
        "Queries of a table a second from which on it counts as busy. Fewer: more tables count. More: only the busiest "
        "do.",
    )
    hot_rows_per_second: float = node_setting(
        "rows_writed_per_sec_for_hot_tablets",
        1000.0,
        SettingCheck(float, "above 0", lambda n: n > 0),
        "Rows written into a table a second from which on it counts as busy. Fewer: more tables count. More: only the "
        "busiest do.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushSettings:
    """Settings of when rows and changes of rows are flushed."""

    threshold_mb: int = node_setting(
        "flush_threshold_mb",
        1024,
        within(int, 1),
        "Rows, or changes of rows, that wait for a flush, from which on their size alone is a reason to flush. Less: "
        "queries read fewer unsorted rows and changes. More: fewer, larger parts.",
        unit="MiB",
    )
    threshold_secs: int = node_setting(
        "flush_threshold_secs",
        120,
        within(int, 0),
        "Age from which on rows or changes of rows are flushed however few they are. Shorter: queries read fewer "
        "unsorted rows and changes. Longer: fewer, larger parts.",
        unit="s",
    )
    upper_bound_ms: int = node_setting(
        "flush_upper_bound_ms",
        3_600_000,
        within(int, 1),
        "Age at which the gain of a flush is 1, as much as age can give. Shorter: old rows go before merges sooner. "
        "Longer: merges go first for longer.",
        unit="ms",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSettings:
    """Settings of when the deltas of a part are compacted."""

    minor_files_max: int = node_setting(
        "tablet_delta_store_minor_compact_max",
        1000,
        within(int, 1),
        "Delta files of one part and kind at which making them one gains as much as it can. Fewer: queries open fewer "
        "files. More: changes are written again less often.",
    )
    major_ratio_min: float = node_setting(
        "tablet_delta_store_major_compact_min_ratio",
        0.1,
        within(float, 0, 1),
        "Share of a part's bytes that its deltas must have before its updated columns are written anew. Less: queries "
        "patch fewer rows. More: columns are written again less often.",
    )


#: Switches of a node's ops, as the kinds declare them; a field is named as its OpKind. Any: all fields are booleans.
_OpSwitches: Any = make_dataclass(
    "_OpSwitches",
    [
        (kind.name.lower(), bool, node_setting(kind.traits.switch[0], True, SWITCH, kind.traits.switch[1]))
        for kind in OpKind
        if kind.traits.switch is not None
    ],
    frozen=True,
    slots=True,
    kw_only=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings:
    """Settings of the maintenance manager of a node."""

    is_enabled: bool = node_setting(
        "enable_maintenance_manager",
        True,
        SWITCH,
        "Off: nothing is flushed, merged or collected on this node, and parts, log and memory grow until writes are "
        "refused.",
    )
    workers: int = node_setting(
        "maintenance_manager_num_threads",
        4,
        within(int, 1, 64),
        "Ops that run at once; with one, a long merge holds up all others. More: parts fold sooner. Fewer: queries and "
        "imports keep disk and cores.",
    )
    polling_ms: int = node_setting(
        "maintenance_manager_polling_interval_ms",
        250,
        within(int, 1, 60_000),
        "Pause between two rounds of choices when nothing was to be done. Shorter: work starts sooner. Longer: an idle "
        "node costs less.",
        unit="ms",
    )
    merge_task_bytes: int = node_setting(
        "merge_task_bytes",
        1 << 30,
        SettingCheck(parse_bytes, "1 byte and up", lambda size: size > 0),
        "Bytes of the sources above which a merge is cut into key ranges, a Spark task for about so many bytes each; "
        "the table setting of this name goes first. Less: large merges use more cores, and make more files. More: "
        "fewer and larger files.",
        unit="bytes",
    )
    history_size: int = node_setting(
        "maintenance_manager_history_size",
        8,
        within(int, 0, 10_000),
        "Finished ops that are shown. More: the list reaches further back. Fewer: less memory.",
    )
    dropped_table_keep: float = node_setting(
        "dropped_table_keep_seconds",
        259_200.0,
        within(parse_seconds, 0),
        "How long a dropped table can be brought back by UNDROP. Longer: mistakes are safe for longer. Shorter: its "
        "disk is free sooner.",
        unit="s",
    )
    failover_grace: float = node_setting(
        "failover_grace_seconds",
        600.0,
        within(parse_seconds, 0),
        "How long after a failover of the catalog's database files of aborted transactions stay that other processes "
        "had begun before it: these may know of commits that the failover has lost, and record them when they can. "
        "Longer: a server that was paused or cut off has more time to do so. Shorter: the disk is free sooner.",
        unit="s",
    )
    memory_limit_hard: int = node_setting(
        "memory_limit_hard_bytes",
        0,
        within(_bytes_or_none, -1),
        "Memory that the node may use: this process and all below it, Spark's JVM and Python workers in local mode; 0 "
        "is four fifths of the machine's, -1 no limit. More: fewer small flushes, writes are refused more rarely. "
        "Less: more is left to others on the machine.",
        unit="bytes",
    )
    memory_limit_warn_percentage: float = node_setting(
        "memory_limit_warn_threshold_percentage",
        98.0,
        SettingCheck(float, "above 0, up to 100", lambda p: 0 < p <= 100),
        "Share of the hard memory limit from which on the log warns. Less: earlier warnings. More: fewer of them.",
        unit="percent",
    )
    scheduler: SchedulerSettings = contained(SchedulerSettings)
    workload: WorkloadSettings = contained(WorkloadSettings)
    flush: FlushSettings = contained(FlushSettings)
    deltas: DeltaSettings = contained(DeltaSettings)
    switches: Any = contained(_OpSwitches)

    def switched_off_by(self, kind: OpKind) -> str:
        """Return the name of the setting that keeps ops of this kind from running on this node, if one does."""
        switch = kind.traits.switch
        return "" if switch is None or getattr(self.switches, kind.name.lower()) else switch[0]


NODE_SETTINGS = SettingGroup(settings_of(ManagerSettings))
