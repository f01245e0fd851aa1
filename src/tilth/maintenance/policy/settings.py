"""The knobs of each table: partitions, merges, mutations, collecting.

Covers: names (the ones users of ByConity, ClickHouse and Kudu know), defaults, checks, what each direction costs.
Does not cover: flushes and deltas; the node's own knobs (maintenance/settings.py).
See also: knobs.py, which makes values of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tilth.base.settings import Scope, Setting, SettingGroup, parse_bool
from tilth.base.units import parse_bytes, parse_seconds
from tilth.maintenance.policy.candidates import MergePolicy
from tilth.maintenance.policy.partitions import PartitionStrategy

T = TypeVar("T")


def switch(scope: Scope, name: str, default: bool, doc: str) -> Setting[bool]:
    """A setting that is on or off."""
    return Setting(name=name, scope=scope, default=default, parse=parse_bool, allowed="true or false", doc=doc)


def at_least(low: int) -> tuple[Callable[[float], bool], str]:
    """A check and its words."""
    return lambda value: value >= low, f"{low} or more"


def between(low: int, high: int) -> tuple[Callable[[float], bool], str]:
    """A check and its words."""
    return lambda value: low <= value <= high, f"{low} to {high}"


def _table(
    name: str, default: T, parse: Callable[[str], T], check: Callable[[T], bool], allowed: str, doc: str, unit: str = ""
) -> Setting[T]:
    return Setting(
        name=name, scope=Scope.TABLE, default=default, parse=parse, check=check, allowed=allowed, doc=doc, unit=unit
    )


# A table: which partitions are looked at.

MAINTENANCE_PRIORITY = _table(
    "maintenance_priority",
    0,
    int,
    *between(-100, 100),
    "Where this table stands among tables with a like gain. Higher: its merges come sooner. Lower: those of others do.",
)
PARTITION_STRATEGY = _table(
    "partition_strategy",
    PartitionStrategy.ADAPTIVE,
    PartitionStrategy,
    lambda _: True,
    "adaptive, newest, parts or rotation",
    "How partitions are ranked for merges. adaptive: new and neglected ones, half and half. newest: fresh data "
    "reads fastest, old partitions wait. parts: the most crowded first. rotation: all alike, busy ones wait.",
)
MAX_PARTITION_FOR_MULTI_SELECT = _table(
    "max_partition_for_multi_select",
    10,
    int,
    *between(0, 10_000),
    "Partitions whose parts are read in one round of merges; 0 takes one after another. More: a better choice. "
    "Fewer: a cheaper round.",
)
MERGE_ROTATION_INTERVAL = _table(
    "cnch_merge_round_robin_partitions_interval",
    300.0,
    parse_seconds,
    lambda s: s > 0,
    "above 0",
    "Time between two rounds that take the next partitions in turn instead of the best. Shorter: quiet partitions "
    "get their turn sooner. Longer: more rounds go where they pay most.",
    "s",
)
MERGE_ONLY_REALTIME_PARTITION = switch(
    Scope.TABLE,
    "cnch_merge_only_realtime_partition",
    False,
    "On: the same as partition_strategy = newest. Fresh data reads faster, old partitions are merged by rotation only.",
)
MERGE_POSTPONE_TIME = _table(
    "merge_postpone_time",
    30.0,
    parse_seconds,
    *at_least(0),
    "For how long a partition without a merge is looked at last. Longer: others get their turn. "
    "Shorter: a partition that has just become worth merging is found sooner.",
    "s",
)

# A table: which parts are merged.

MERGE_POLICY = _table(
    "merge_policy",
    MergePolicy.SIZE_TIERED,
    MergePolicy,
    lambda _: True,
    "size_tiered or key_range",
    "How parts to merge are found; a table with UNIQUE KEY takes key_range unless told otherwise. size_tiered: "
    "neighbours of like size, least rewriting for the fewest files. key_range: parts whose sort keys overlap, so that "
    "a key is looked up in fewer parts; large parts that overlap with nothing are left alone.",
)
KEY_RANGE_BUDGET = _table(
    "tablet_compaction_budget_mb",
    256,
    int,
    *between(2, 65_536),
    "key_range: what the sources of one merge may weigh; a part weighs one at least. More: a key is found in fewer "
    "parts sooner. Less: shorter merges; parts that weigh more are never merged again.",
    "MiB",
)
KEY_RANGE_TARGET_SIZE = _table(
    "budgeted_compaction_target_rowset_size",
    32 << 20,
    parse_bytes,
    *at_least(1),
    "key_range: a part of this size is no small part any more, and merged only where keys overlap. More: fewer parts. "
    "Less: less rewriting.",
    "bytes",
)
KEY_RANGE_GAIN_MIN = _table(
    "compaction_minimum_improvement",
    0.01,
    float,
    lambda x: x > 0,
    "above 0",
    "key_range: the fewest parts by which a merge must shorten the average lookup. More: less rewriting. Less: merges "
    "begin with less overlap.",
)
KEY_RANGE_SMALL_PART_GAIN = _table(
    "compaction_small_rowset_tradeoff",
    0.009,
    float,
    lambda x: x >= 0,
    "0 or more; less than compaction_minimum_improvement",
    "key_range: what getting rid of a small part is worth; as much as compaction_minimum_improvement would merge for "
    "ever. More: fewer small parts. Less: less rewriting.",
)
KEY_RANGE_APPROXIMATION = _table(
    "compaction_approximation_ratio",
    1.05,
    float,
    *between(1, 10),
    "key_range: how many times better the best merge may be than the one found. More: a cheaper choice among "
    "thousands of parts. Less: a better one.",
)
MERGE_MAX_TOTAL_BYTES = _table(
    "cnch_merge_max_total_bytes_to_merge",
    150 << 30,
    parse_bytes,
    *at_least(0),
    "Bytes of the sources of one merge; 0 is no limit. More: fewer parts in the end. Less: shorter merges, less "
    "lost by a failure.",
    "bytes",
)
MERGE_MAX_BYTES_IN_POOL = _table(
    "max_bytes_to_merge_at_max_space_in_pool",
    150 << 30,
    parse_bytes,
    *at_least(0),
    "The same limit under the name ClickHouse gives it; the smaller one counts, 0 is no limit. More: fewer parts in "
    "the end. Less: shorter merges.",
    "bytes",
)
MERGE_MAX_TOTAL_ROWS = _table(
    "cnch_merge_max_total_rows_to_merge",
    50_000_000,
    int,
    *at_least(0),
    "Rows of the sources of one merge; 0 is no limit. More: fewer parts in the end. Less: shorter merges, smaller "
    "row maps.",
    "rows",
)
MERGE_MAX_PARTS = _table(
    "cnch_merge_max_parts_to_merge",
    100,
    int,
    lambda n: n == 0 or n >= 2,
    "0, or 2 or more",
    "Parts of one merge; 0 leaves it at 1000. More: bursts of small parts fold in one go. Fewer: less memory for a "
    "merge, and a cheaper choice.",
)
MERGE_MAX_PARTS_AT_ONCE = _table(
    "max_parts_to_merge_at_once",
    100,
    int,
    lambda n: n == 0 or n >= 2,
    "0, or 2 or more",
    "The same limit under the name ClickHouse gives it; the smaller one counts, 0 leaves it at 1000. More: bursts "
    "of small parts fold in one go. Fewer: less memory for a merge.",
)
MERGE_EXPECTED_PARTS = _table(
    "cnch_merge_expected_parts_number",
    0,
    int,
    *at_least(-1),
    "Parts a partition may keep: 0 is the number of workers, -1 switches the controller off. More: less rewriting, "
    "more parts to read in parallel. Fewer: fewer files to open.",
)
MERGE_WRITE_AMPLIFICATION_THRESHOLD = _table(
    "cnch_merge_write_amplification_optimize_threshold",
    4.0,
    float,
    *at_least(0),
    "Up to this many times the expected parts, merges wait for better ranges when rewriting has been costly; 0 "
    "never waits. More: less rewriting. Less: fewer parts.",
)
MERGE_ENABLE_BATCH_SELECT = switch(
    Scope.TABLE,
    "cnch_merge_enable_batch_select",
    True,
    "On: a partition with many parts gets several merges in one round. Off: one merge a round for the whole table, "
    "so that merges leave more to others but fall behind a fast import.",
)
MERGE_BATCH_SELECT_PARTS = _table(
    "min_parts_to_enable_multi_selection",
    200,
    int,
    *at_least(2),
    "Parts from which on a partition gets several merges in one round. Fewer: more merges at once. More: the "
    "table's merges go where they pay most.",
)
MERGE_LONE_CHAIN_AGE = _table(
    "merge_with_ttl_timeout",
    14_400.0,
    parse_seconds,
    *at_least(0),
    "Age from which on a part that has no neighbour folds its deltas. Shorter: it reads natively sooner. Longer: it "
    "is rewritten less often.",
    "s",
)
MERGE_BASE = _table(
    "merge_selector_base",
    5.0,
    float,
    *between(1, 1000),
    "How many times its largest part a range must be before age lowers it. More: every byte is rewritten more rarely. "
    "Less: fewer parts.",
)
MERGE_SIZE_LOG_MIN = _table(
    "merge_selector_size_log_min",
    13.0,
    float,
    *between(0, 60),
    "Natural logarithm of the bytes up to which a range is merged at the age of an hour whatever its balance. Less: "
    "small parts wait longer. More: they are folded sooner and rewritten more often.",
)
MERGE_SIZE_LOG_MAX = _table(
    "merge_selector_size_log_max",
    25.0,
    float,
    lambda x: 0 < x <= 60,
    "above 0, up to 60; above merge_selector_size_log_min",
    "Natural logarithm of the bytes from which on that age is thirty days. More: middling parts are folded sooner. "
    "Less: they wait longer and are rewritten less often.",
)
MERGE_DISABLED = switch(
    Scope.TABLE,
    "disable_compaction",
    False,
    "On: the table is merged by OPTIMIZE only, so that parts pile up until writes are slowed and refused. Off: it "
    "keeps itself in shape. To stop merges for a while, SYSTEM STOP MERGES also tells who did it and why.",
)
MERGE_RUNNING_MAX = _table(
    "max_addition_bg_task_num",
    32,
    int,
    *at_least(0),
    "Merges of this table that run at once; 0 starts none. More: it catches up faster. Fewer: other tables and "
    "queries keep the workers.",
)

# A table: how an ALTER is carried out.

MUTATE_RUNNING_MAX = _table(
    "max_addition_mutation_task_num",
    10,
    int,
    *at_least(0),
    "Rewrites for the table's mutations that run at once; 0 starts none. More: an ALTER is through sooner. Fewer: "
    "merges and queries keep the workers.",
)
MUTATE_MAX_PARTS = _table(
    "cnch_mutate_max_parts_to_mutate",
    100,
    int,
    *between(1, 1000),
    "Parts that one task of a mutation rewrites. More: fewer tasks and commits. Fewer: less is lost when one fails or "
    "is cancelled.",
)
MUTATE_MAX_TOTAL_BYTES = _table(
    "cnch_mutate_max_total_bytes_to_mutate",
    50 << 30,
    parse_bytes,
    *at_least(0),
    "Bytes of the parts that one task of a mutation rewrites; 0 is no limit, and a larger part goes alone. More: fewer "
    "tasks. Less: less is lost when one fails or is cancelled.",
    "bytes",
)
MUTATE_POSTPONE_MAX = _table(
    "max_postpone_time_for_failed_mutations_ms",
    300_000,
    int,
    *at_least(1),
    "Longest wait before a part whose rewrite failed is tried again; each failure in a row doubles the wait, from one "
    "second on. Longer: hopeless parts cost less. Shorter: a cause that is gone is noticed sooner.",
    "ms",
)

# A table: what is collected.

OLD_PARTS_LIFETIME = _table(
    "old_parts_lifetime",
    1800.0,
    parse_seconds,
    *at_least(0),
    "How long a merged or dropped part stays in the catalog after it was hidden. Longer: slow readers and mistakes "
    "are safe for longer. Shorter: smaller catalog; near 0 it is unsafe for readers that hold no lease.",
    "s",
)
TTL_FOR_TRASH_ITEMS = _table(
    "ttl_for_trash_items",
    10_800.0,
    parse_seconds,
    *at_least(0),
    "How long files stay in the trash, counted from when they were hidden. Longer: more can be brought back. "
    "Shorter: less disk.",
    "s",
)
GC_TRASH_PART_BATCH_SIZE = _table(
    "gc_trash_part_batch_size",
    5000,
    int,
    *between(1, 10_000),
    "Records moved to the trash in one catalog transaction. More: fewer transactions. Less: shorter ones; take 1000 "
    "where the catalog's transactions are small.",
)
GC_TRASH_PART_LIMIT = _table(
    "gc_trash_part_limit",
    0,
    int,
    *at_least(0),
    "Records moved to the trash in one round; 0 is no limit. More: a backlog is gone sooner. Less: rounds stay short.",
)
GC_REMOVE_PART_BATCH_SIZE = _table(
    "gc_remove_part_batch_size",
    200,
    int,
    *between(1, 100_000),
    "Items of trash that one deleter takes in a round. More: the disk is freed sooner. Less: the store has fewer "
    "requests at once.",
)
GC_REMOVE_PART_THREAD_POOL_SIZE = _table(
    "gc_remove_part_thread_pool_size",
    20,
    int,
    *between(1, 256),
    "Deleters at work at once, after several rounds with work. More: the disk is freed sooner. Fewer: the store has "
    "fewer requests.",
)
GC_ROTATION_INTERVAL = _table(
    "cnch_gc_round_robin_partitions_interval",
    600.0,
    parse_seconds,
    lambda s: s > 0,
    "above 0",
    "Time between two rounds of collecting that take the next partitions in turn. Shorter: quiet partitions are "
    "freed sooner. Longer: more rounds go where most is waiting.",
    "s",
)
GC_PARTITIONS_NUMBER = _table(
    "cnch_gc_round_robin_partitions_number",
    10,
    int,
    *between(1, 10_000),
    "Partitions looked at in one round of collecting. More: space is freed sooner. Fewer: a cheaper round.",
)
CLEANUP_DELAY_PERIOD = _table(
    "cleanup_delay_period",
    30.0,
    parse_seconds,
    *at_least(0),
    "Pause after a round of collecting that found nothing. Shorter: space is freed sooner. Longer: an idle table "
    "costs less.",
    "s",
)
CLEANUP_DELAY_RANDOM_ADD = _table(
    "cleanup_delay_period_random_add",
    10.0,
    parse_seconds,
    *at_least(0),
    "What is drawn on top of each pause of collecting. More: tables spread out better. Less: more even times.",
    "s",
)
CLEANUP_DELAY_UPPER_BOUND = _table(
    "cleanup_delay_period_upper_bound",
    900.0,
    parse_seconds,
    *at_least(0),
    "Pause after a pass over the trash that removed nothing. Shorter: files are deleted sooner after their time. "
    "Longer: fewer looks at the trash.",
    "s",
)
TABLET_HISTORY_MAX_AGE = Setting(
    name="tablet_history_max_age_sec",
    scope=Scope.TABLE,
    default=3600.0,
    parse=float,
    check=lambda s: s == -1 or s >= 0,
    allowed="-1, or 0 and more",
    doc="How far back the table's past can be read, besides what the other lifetimes keep; -1 promises nothing. "
    "Longer: older snapshots. Shorter: less disk, as each merge keeps a copy of its rows for so long.",
    unit="s",
    aliases=("history_max_age_sec",),
)
ENABLE_PARTITION_TTL_FALLBACK = switch(
    Scope.TABLE,
    "enable_partition_ttl_fallback",
    True,
    "On: a partition whose key does not tell its expiry is dropped when every part of it has expired. Off: such "
    "partitions stay.",
)

TABLE_SETTINGS = SettingGroup(
    [
        MAINTENANCE_PRIORITY,
        PARTITION_STRATEGY,
        MAX_PARTITION_FOR_MULTI_SELECT,
        MERGE_ROTATION_INTERVAL,
        MERGE_ONLY_REALTIME_PARTITION,
        MERGE_POSTPONE_TIME,
        MERGE_POLICY,
        MERGE_DISABLED,
        KEY_RANGE_BUDGET,
        KEY_RANGE_TARGET_SIZE,
        KEY_RANGE_GAIN_MIN,
        KEY_RANGE_SMALL_PART_GAIN,
        KEY_RANGE_APPROXIMATION,
        MERGE_MAX_TOTAL_BYTES,
        MERGE_MAX_BYTES_IN_POOL,
        MERGE_MAX_TOTAL_ROWS,
        MERGE_MAX_PARTS,
        MERGE_MAX_PARTS_AT_ONCE,
        MERGE_EXPECTED_PARTS,
        MERGE_WRITE_AMPLIFICATION_THRESHOLD,
        MERGE_ENABLE_BATCH_SELECT,
        MERGE_BATCH_SELECT_PARTS,
        MERGE_LONE_CHAIN_AGE,
        MERGE_BASE,
        MERGE_SIZE_LOG_MIN,
        MERGE_SIZE_LOG_MAX,
        MERGE_RUNNING_MAX,
        MUTATE_RUNNING_MAX,
        MUTATE_MAX_PARTS,
        MUTATE_MAX_TOTAL_BYTES,
        MUTATE_POSTPONE_MAX,
        OLD_PARTS_LIFETIME,
        TTL_FOR_TRASH_ITEMS,
        GC_TRASH_PART_BATCH_SIZE,
        GC_TRASH_PART_LIMIT,
        GC_REMOVE_PART_BATCH_SIZE,
        GC_REMOVE_PART_THREAD_POOL_SIZE,
        GC_ROTATION_INTERVAL,
        GC_PARTITIONS_NUMBER,
        CLEANUP_DELAY_PERIOD,
        CLEANUP_DELAY_RANDOM_ADD,
        CLEANUP_DELAY_UPPER_BOUND,
        TABLET_HISTORY_MAX_AGE,
        ENABLE_PARTITION_TTL_FALLBACK,
    ]
)
