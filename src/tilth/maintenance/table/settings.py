"""Settings of each table for maintenance, which its policies receive.

Covers: names (the ones users of ByConity, ClickHouse and Kudu know), defaults, checks, what each direction costs.
Does not cover: those of the node (maintenance/settings.py).
Always holds: policies see plain values, which do not contradict each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from tilth.base.settings import (
    SWITCH,
    BadSettingError,
    SettingCheck,
    SettingGroup,
    contained,
    read_settings,
    setting_of,
    settings_of,
    table_setting,
    within,
)
from tilth.base.units import MIB, parse_bytes, parse_seconds


class MergePolicy(StrEnum):
    """Ways to find the parts to merge."""

    #: Neighbours of like size.
    SIZE_TIERED = "size_tiered"
    #: Parts whose keys overlap, and small ones.
    KEY_RANGE = "key_range"


class PartitionStrategy(StrEnum):
    """Ways to rank the partitions of a round."""

    #: Half by newest insert, half by slowest merging.
    ADAPTIVE = "adaptive"
    #: Newest insert first.
    NEWEST = "newest"
    #: Most visible parts first.
    PARTS = "parts"
    #: One after another.
    ROTATION = "rotation"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSettings:
    """Number of partitions that a round of merges handles, and their choice."""

    strategy: PartitionStrategy = table_setting(
        "partition_strategy",
        PartitionStrategy.ADAPTIVE,
        SettingCheck(PartitionStrategy, "adaptive, newest, parts or rotation"),
        "How partitions are ranked for merges. adaptive: new and neglected ones, half and half. newest: fresh data "
        "reads fastest, old partitions wait. parts: the most crowded first. rotation: all alike, busy ones wait.",
    )
    number: int = table_setting(
        "max_partition_for_multi_select",
        10,
        within(int, 0, 10_000),
        "Partitions whose parts are read in one round of merges; 0 takes one after another. More: a better choice. "
        "Fewer: a cheaper round.",
    )
    rotation_interval: float = table_setting(
        "cnch_merge_round_robin_partitions_interval",
        300.0,
        SettingCheck(parse_seconds, "above 0", lambda s: s > 0),
        "Time between two rounds that take the next partitions in turn instead of the best. Shorter: quiet partitions "
        "get their turn sooner. Longer: more rounds go where they pay most.",
        unit="s",
    )
    only_newest: bool = table_setting(
        "cnch_merge_only_realtime_partition",
        False,
        SWITCH,
        "On: the same as partition_strategy = newest. Fresh data reads faster, old partitions are merged by rotation "
        "only.",
    )
    postpone_time: float = table_setting(
        "merge_postpone_time",
        30.0,
        within(parse_seconds, 0),
        "For how long a partition without a merge comes last. Longer: others get their turn. Shorter: a "
        "partition that has just become worth merging is found sooner.",
        unit="s",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRangeSettings:
    """Settings of the key_range policy (docs/policies/key-range.md#value-and-gain)."""

    budget: int = table_setting(
        "tablet_compaction_budget_mb",
        256,
        within(int, 2, 65_536),
        "key_range: what the sources of one merge may weigh; a part weighs one at least. More: a key is found in fewer "
        "parts sooner. Less: shorter merges; parts that weigh more are never merged again.",
        unit="MiB",
    )
    target_size: int = table_setting(
        "budgeted_compaction_target_rowset_size",
        32 << 20,
        within(parse_bytes, 1),
        "key_range: a part of this size is no small part any more, and merged only where keys overlap. More: fewer "
        "parts. Less: less rewriting.",
        unit="bytes",
    )
    gain_min: float = table_setting(
        "compaction_minimum_improvement",
        0.01,
        SettingCheck(float, "above 0", lambda x: x > 0),
        "key_range: the fewest parts by which a merge must shorten the average lookup. More: less rewriting. Less: "
        "merges begin with less overlap.",
    )
    small_part_gain: float = table_setting(
        "compaction_small_rowset_tradeoff",
        0.009,
        within(float, 0, words="0 or more; less than compaction_minimum_improvement"),
        "key_range: what getting rid of a small part is worth; as much as compaction_minimum_improvement would merge "
        "for ever. More: fewer small parts. Less: less rewriting.",
    )
    approximation_ratio: float = table_setting(
        "compaction_approximation_ratio",
        1.05,
        within(float, 1, 10),
        "key_range: how many times better the best merge may be than the one found. More: a cheaper choice among "
        "thousands of parts. Less: a better one.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """Limits of a table's merges; sizes in bytes, times in seconds, 0 is no limit where a limit is meant."""

    policy: MergePolicy = table_setting(
        "merge_policy",
        MergePolicy.SIZE_TIERED,
        SettingCheck(MergePolicy, "size_tiered or key_range"),
        "How parts to merge are found; a table with UNIQUE KEY takes key_range unless set otherwise. size_tiered: "
        "neighbours of like size, least rewriting for the fewest files. key_range: parts whose sort keys overlap, so "
        "that a key is looked up in fewer parts; large parts that overlap with nothing are left alone.",
    )
    is_disabled: bool = table_setting(
        "disable_compaction",
        False,
        SWITCH,
        "On: the table is merged by OPTIMIZE only, so that parts pile up until writes are slowed and refused. Off: it "
        "keeps itself in shape. To stop merges for a while, SYSTEM STOP MERGES also records who did it and why.",
    )
    key_range: KeyRangeSettings = contained(KeyRangeSettings)
    #: The smaller one of this limit and the next; the name of the setting that gives it.
    bytes_max: int = table_setting(
        "cnch_merge_max_total_bytes_to_merge",
        150 << 30,
        within(parse_bytes, 0),
        "Bytes of the sources of one merge; 0 is no limit. More: fewer parts in the end. Less: shorter merges, less "
        "lost by a failure.",
        unit="bytes",
    )
    bytes_in_pool_max: int = table_setting(
        "max_bytes_to_merge_at_max_space_in_pool",
        150 << 30,
        within(parse_bytes, 0),
        "The same limit under the name ClickHouse gives it; the smaller one counts, 0 is no limit. More: fewer parts "
        "in the end. Less: shorter merges.",
        unit="bytes",
    )
    bytes_max_name: str = "cnch_merge_max_total_bytes_to_merge"
    rows_max: int = table_setting(
        "cnch_merge_max_total_rows_to_merge",
        50_000_000,
        within(int, 0),
        "Rows of the sources of one merge; 0 is no limit. More: fewer parts in the end. Less: shorter merges, smaller "
        "row maps.",
        unit="rows",
    )
    #: The smaller one of this limit and the next.
    parts_max: int = table_setting(
        "cnch_merge_max_parts_to_merge",
        100,
        SettingCheck(int, "0, or 2 or more", lambda n: n == 0 or n >= 2),
        "Parts of one merge; 0 leaves it at 1000. More: bursts of small parts fold in one go. Fewer: less memory for a "
        "merge, and a cheaper choice.",
    )
    parts_at_once_max: int = table_setting(
        "max_parts_to_merge_at_once",
        100,
        SettingCheck(int, "0, or 2 or more", lambda n: n == 0 or n >= 2),
        "The same limit under the name ClickHouse gives it; the smaller one counts, 0 leaves it at 1000. More: bursts "
        "of small parts fold in one go. Fewer: less memory for a merge.",
    )
    expected_parts: int = table_setting(
        "cnch_merge_expected_parts_number",
        0,
        within(int, -1),
        "Parts a partition may keep: 0 is the number of workers, -1 switches the controller off. More: less rewriting, "
        "more parts to read in parallel. Fewer: fewer files to open.",
    )
    write_amplification_threshold: float = table_setting(
        "cnch_merge_write_amplification_optimize_threshold",
        4.0,
        within(float, 0),
        "Up to this many times the expected parts, merges wait for better ranges when rewriting has been costly; 0 "
        "never waits. More: less rewriting. Less: fewer parts.",
    )
    is_batch_select: bool = table_setting(
        "cnch_merge_enable_batch_select",
        True,
        SWITCH,
        "On: a partition with many parts gets several merges in one round. Off: one merge a round for the whole table, "
        "so that merges leave more to others but fall behind a fast import.",
    )
    batch_select_parts_min: int = table_setting(
        "min_parts_to_enable_multi_selection",
        200,
        within(int, 2),
        "Parts from which on a partition gets several merges in one round. Fewer: more merges at once. More: the "
        "table's merges go where they pay most.",
    )
    lone_age_min: float = table_setting(
        "merge_with_ttl_timeout",
        14_400.0,
        within(parse_seconds, 0),
        "Age from which on a part that has no neighbour folds its deltas, and a part with expired rows is written anew "
        "without them: rows stay no longer than this after their TTL, and the time of the merge. Shorter: parts read "
        "natively sooner, rows go sooner. Longer: parts are rewritten less often.",
        unit="s",
    )
    ttl_only_drop_parts: bool = table_setting(
        "ttl_only_drop_parts",
        False,
        SWITCH,
        "On: no part is written anew for its expired rows; they go with other merges, or with the part when all its "
        "rows have expired. Off: they go when the part is `merge_with_ttl_timeout` old.",
    )
    base: float = table_setting(
        "merge_selector_base",
        5.0,
        within(float, 1, 1000),
        "How many times its largest part a range must be before age lowers it. More: every byte is rewritten more "
        "rarely. Less: fewer parts.",
    )
    size_log_min: float = table_setting(
        "merge_selector_size_log_min",
        13.0,
        within(float, 0, 60),
        "Natural logarithm of the bytes up to which a range is merged at the age of an hour whatever its balance. "
        "Less: small parts wait longer. More: they are folded sooner and rewritten more often.",
    )
    size_log_max: float = table_setting(
        "merge_selector_size_log_max",
        25.0,
        SettingCheck(float, "above 0, up to 60; above merge_selector_size_log_min", lambda x: 0 < x <= 60),
        "Natural logarithm of the bytes from which on that age is thirty days. More: middling parts are folded sooner. "
        "Less: they wait longer and are rewritten less often.",
    )
    task_bytes: int = table_setting(
        "merge_task_bytes",
        0,
        within(parse_bytes, 0),
        "Bytes of the sources above which a merge is cut into key ranges, a Spark task for about so many bytes each; "
        "0: as the node's setting of this name. Less: large merges use more cores, and make more files. More: fewer "
        "and larger files.",
        unit="bytes",
    )
    running_max: int = table_setting(
        "max_addition_bg_task_num",
        32,
        within(int, 0),
        "Merges of this table that run at once; 0 starts none. More: it catches up faster. Fewer: other tables and "
        "queries keep the workers.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MutateSettings:
    """Settings that cut a table's mutations into tasks."""

    running_max: int = table_setting(
        "max_addition_mutation_task_num",
        10,
        within(int, 0),
        "Rewrites for the table's mutations that run at once; 0 starts none. More: an ALTER is through sooner. Fewer: "
        "merges and queries keep the workers.",
    )
    parts_max: int = table_setting(
        "cnch_mutate_max_parts_to_mutate",
        100,
        within(int, 1, 1000),
        "Parts that one task of a mutation rewrites. More: fewer tasks and commits. Fewer: less is lost when one fails "
        "or is cancelled.",
    )
    bytes_max: int = table_setting(
        "cnch_mutate_max_total_bytes_to_mutate",
        50 << 30,
        within(parse_bytes, 0),
        "Bytes of the parts that one task of a mutation rewrites; 0 is no limit, and a larger part goes alone. More: "
        "fewer tasks. Less: less is lost when one fails or is cancelled.",
        unit="bytes",
    )
    postpone_ms_max: int = table_setting(
        "max_postpone_time_for_failed_mutations_ms",
        300_000,
        within(int, 1),
        "Longest wait before a part whose rewrite failed is tried again; each failure in a row doubles the wait, from "
        "one second on. Longer: hopeless parts cost less. Shorter: a cause that is gone is noticed sooner.",
        unit="ms",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GcSettings:
    """Settings of how long a table retains what is hidden, and how it is collected; times in seconds."""

    old_parts_lifetime: float = table_setting(
        "old_parts_lifetime",
        1800.0,
        within(parse_seconds, 0),
        "How long a merged or dropped part stays in the catalog after it was hidden. Longer: slow readers and mistakes "
        "are safe for longer. Shorter: smaller catalog; near 0 it is unsafe for readers that hold no lease.",
        unit="s",
    )
    trash_lifetime: float = table_setting(
        "ttl_for_trash_items",
        10_800.0,
        within(parse_seconds, 0),
        "How long files stay in the trash, counted from when they were hidden. Longer: more can be brought back. "
        "Shorter: less disk.",
        unit="s",
    )
    move_batch: int = table_setting(
        "gc_trash_part_batch_size",
        5000,
        within(int, 1, 10_000),
        "Records moved to the trash in one catalog transaction. More: fewer transactions. Less: shorter ones; take "
        "1000 where the catalog's transactions are small.",
    )
    move_max: int = table_setting(
        "gc_trash_part_limit",
        0,
        within(int, 0),
        "Records moved to the trash in one round; 0 is no limit. More: a backlog is gone sooner. Less: rounds stay "
        "short.",
    )
    remove_batch: int = table_setting(
        "gc_remove_part_batch_size",
        200,
        within(int, 1, 100_000),
        "Items of trash that one deleter takes in a round. More: the disk is freed sooner. Less: the store has fewer "
        "requests at once.",
    )
    deleters_max: int = table_setting(
        "gc_remove_part_thread_pool_size",
        20,
        within(int, 1, 256),
        "Deleters at work at once, after several rounds with work. More: the disk is freed sooner. Fewer: the store "
        "has fewer requests.",
    )
    pause: float = table_setting(
        "cleanup_delay_period",
        30.0,
        within(parse_seconds, 0),
        "Pause after a round of collecting that found nothing. Shorter: space is freed sooner. Longer: an idle table "
        "costs less.",
        unit="s",
    )
    pause_random: float = table_setting(
        "cleanup_delay_period_random_add",
        10.0,
        within(parse_seconds, 0),
        "What is drawn on top of each pause of collecting. More: tables spread out better. Less: more even times.",
        unit="s",
    )
    pause_max: float = table_setting(
        "cleanup_delay_period_upper_bound",
        900.0,
        within(parse_seconds, 0),
        "Pause after a pass over the trash that removed nothing. Shorter: files are deleted sooner after their time. "
        "Longer: fewer checks of the trash.",
        unit="s",
    )
    history: float = table_setting(
        "tablet_history_max_age_sec",
        3600.0,
        SettingCheck(float, "-1, or 0 and more", lambda s: s == -1 or s >= 0),
        "How far back the table's past can be read, besides what the other lifetimes keep; -1 promises nothing. "
        "Longer: older snapshots. Shorter: less disk, as each merge keeps a copy of its rows for so long.",
        unit="s",
        aliases=("history_max_age_sec",),
    )
    partition_ttl_fallback: bool = table_setting(
        "enable_partition_ttl_fallback",
        True,
        SWITCH,
        "On: a partition whose key does not bound its expiry is dropped when every part of it has expired. Off: such "
        "partitions stay.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GcPartitionSettings:
    """Number of partitions that a round of collecting handles."""

    number: int = table_setting(
        "cnch_gc_round_robin_partitions_number",
        10,
        within(int, 1, 10_000),
        "Partitions checked in one round of collecting. More: space is freed sooner. Fewer: a cheaper round.",
    )
    rotation_interval: float = table_setting(
        "cnch_gc_round_robin_partitions_interval",
        600.0,
        SettingCheck(parse_seconds, "above 0", lambda s: s > 0),
        "Time between two rounds of collecting that take the next partitions in turn. Shorter: quiet partitions are "
        "freed sooner. Longer: more rounds go where most is waiting.",
        unit="s",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubSettings:
    """Settings of how often a table's files are compared with their checksums, and how fast."""

    interval: float = table_setting(
        "scrub_interval",
        604_800.0,
        within(parse_seconds, 0),
        "Time between two readings of all copies of all files, which find damage before a query does. Shorter: it is "
        "found sooner. Longer: less is read. 0: files are not read for that.",
        unit="s",
    )
    bytes_per_second: int = table_setting(
        "scrub_bytes_per_second",
        16 * MIB,
        within(parse_bytes, 0, words="0 bytes and up"),
        "Bytes of files that such a reading takes in a second at most, over several rounds. More: it is over sooner. "
        "Less: disks and network are left to others. 0: files are not read for that.",
        unit="bytes",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """Maintenance's share of a table's settings."""

    merge: MergeSettings = contained(MergeSettings)
    merge_partitions: PartitionSettings = contained(PartitionSettings)
    mutate: MutateSettings = contained(MutateSettings)
    gc: GcSettings = contained(GcSettings)
    scrub: ScrubSettings = contained(ScrubSettings)
    gc_partitions: GcPartitionSettings = contained(GcPartitionSettings)
    priority: int = table_setting(
        "maintenance_priority",
        0,
        within(int, -100, 100),
        "Where this table stands among tables with a like gain. Higher: its merges come sooner. Lower: those of others "
        "do.",
    )


TABLE_SETTINGS = SettingGroup(settings_of(TableSettings))


def table_settings(given: Mapping[str, str]) -> TableSettings:
    """Return the values among a table's settings, those of other rooms left out.

    Raises BadSettingError, also where two of them contradict each other.
    """
    read = read_settings(TableSettings, given)
    partitions = read.merge_partitions
    if partitions.only_newest:
        partitions = replace(partitions, strategy=PartitionStrategy.NEWEST)
    return replace(read, merge=_merge_settings(read.merge), merge_partitions=partitions)


def gc_settings(given: Mapping[str, str]) -> GcSettings:
    """Return the values among a table's settings, those of other rooms left out."""
    return read_settings(GcSettings, given)


def _merge_settings(read: MergeSettings) -> MergeSettings:
    if read.size_log_max <= read.size_log_min:
        raise BadSettingError(
            "merge_selector_size_log_max must be more than merge_selector_size_log_min",
            merge_selector_size_log_max=read.size_log_max,
            merge_selector_size_log_min=read.size_log_min,
            hint="set both in one statement",
        )
    # docs/policies/key-range.md#settings: a small part alone would be worth a merge, and merging would never end.
    if read.key_range.small_part_gain >= read.key_range.gain_min:
        raise BadSettingError(
            "compaction_small_rowset_tradeoff must be less than compaction_minimum_improvement",
            compaction_small_rowset_tradeoff=read.key_range.small_part_gain,
            compaction_minimum_improvement=read.key_range.gain_min,
            hint="set both in one statement",
        )
    bytes_max = _smaller(read.bytes_max, read.bytes_in_pool_max)
    deciding = "bytes_max" if bytes_max == read.bytes_max else "bytes_in_pool_max"
    return replace(
        read,
        bytes_max=bytes_max,
        bytes_max_name=setting_of(MergeSettings, deciding).name,
        parts_max=_smaller(read.parts_max, read.parts_at_once_max),
    )


def _smaller(one: int, other: int) -> int:
    return min(one, other) if one and other else one or other
