"""Maintenance operations, as values: their kinds, what one would gain, the choice of one.

Covers: what is declared of each kind, statistics, choices. Does not cover: ops that run (work/op.py), how one is chosen
(manager/scheduler.py).
Always holds: statistics are a value of one poll; a choice and a refusal to choose both carry their reason.

Tests: tests/unit/maintenance/manager/test_manager.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from tilth.model.service import ServiceKind
from tilth.model.task import TaskKind


class LoadScore(StrEnum):
    """Loads of a table that raise the gain of an op."""

    #: Queries.
    READ = "read"
    #: Queries, and rows that come in.
    USED = "used"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTraits:
    """Facts about all ops of a kind; its setting, its metrics and the lists of the manager follow from them."""

    #: Service whose switch stops it.
    service: ServiceKind
    #: Kind of its tasks; None: the server does the work itself.
    task: TaskKind | None = None
    #: Runs in words.
    runs: str
    #: Kudu's names of its metrics: runs under way, and how long they took.
    running: str
    duration: str
    #: Metric of the bytes that wait for it, and its sentence.
    waiting: tuple[str, str] | None = None
    #: Metric of the bytes that it has removed or hidden, and its sentence.
    removed: tuple[str, str] | None = None
    #: Setting of the node that turns it off, and what off means.
    switch: tuple[str, str] | None = None
    load: LoadScore | None = None
    #: It rewrites parts, and takes one of the slots for that.
    is_rewrite: bool = False
    #: It leaves out parts that cannot be read.
    skips_damaged: bool = False


class OpKind(StrEnum):
    """Kinds of ops, each declared here only; the value begins an op's name."""

    FLUSH = (
        "FLUSH",
        OpTraits(
            service=ServiceKind.FLUSH,
            task=TaskKind.FLUSH,
            runs="flushes of row segments",
            running="flush_mrs_running",
            duration="flush_mrs_duration",
            waiting=("memrowset_size", "Bytes of row segments that are not flushed yet."),
            switch=(
                "enable_flush_memrowset",
                "Off: row segments are not flushed into parts, and queries read more and more unsorted rows.",
            ),
            load=LoadScore.READ,
            skips_damaged=True,
        ),
    )
    FLUSH_DELTAS = (
        "FLUSH_DELTAS",
        OpTraits(
            service=ServiceKind.DELTA,
            task=TaskKind.DELTA,
            runs="flushes of change segments",
            running="flush_dms_running",
            duration="flush_dms_duration",
            switch=(
                "enable_flush_deltamemstores",
                "Off: change segments are not made into deltas of their parts, and queries read more and more of them.",
            ),
            load=LoadScore.READ,
            skips_damaged=True,
        ),
    )
    MERGE = (
        "MERGE",
        OpTraits(
            service=ServiceKind.MERGE,
            task=TaskKind.MERGE,
            runs="merges",
            running="compact_rs_running",
            duration="compact_rs_duration",
            load=LoadScore.USED,
            is_rewrite=True,
            skips_damaged=True,
        ),
    )
    MINOR_DELTA = (
        "MINOR_DELTA",
        OpTraits(
            service=ServiceKind.DELTA,
            task=TaskKind.DELTA,
            runs="compactions of a part's deltas",
            running="delta_minor_compact_rs_running",
            duration="delta_minor_compact_rs_duration",
            switch=(
                "enable_minor_delta_compaction",
                "Off: the deltas of a part are not made into one, and each flush of changes adds a file that queries "
                "read.",
            ),
            load=LoadScore.USED,
            is_rewrite=True,
            skips_damaged=True,
        ),
    )
    MAJOR_DELTA = (
        "MAJOR_DELTA",
        OpTraits(
            service=ServiceKind.DELTA,
            task=TaskKind.DELTA,
            runs="rewrites of updated columns",
            running="delta_major_compact_rs_running",
            duration="delta_major_compact_rs_duration",
            switch=(
                "enable_major_delta_compaction",
                "Off: updates are not written into columns, and queries patch each row that was updated.",
            ),
            load=LoadScore.USED,
            is_rewrite=True,
            skips_damaged=True,
        ),
    )
    MUTATE = (
        "MUTATE",
        OpTraits(
            service=ServiceKind.MUTATE,
            task=TaskKind.MUTATE,
            runs="rewrites of parts for mutations",
            running="mutate_running",
            duration="mutate_duration",
            is_rewrite=True,
            skips_damaged=True,
        ),
    )
    LOG_GC = (
        "LOG_GC",
        OpTraits(
            service=ServiceKind.GC,
            runs="collections of flushed segments",
            running="log_gc_running",
            duration="log_gc_duration",
            switch=("enable_log_gc", "Off: row segments that were flushed stay on the disk for ever."),
        ),
    )
    PART_GC = (
        "PART_GC",
        OpTraits(
            service=ServiceKind.GC,
            runs="collections of parts",
            running="part_gc_running",
            duration="part_gc_duration",
        ),
    )
    HISTORY_GC = (
        "HISTORY_GC",
        OpTraits(
            service=ServiceKind.GC,
            runs="collections of ended deltas",
            running="undo_delta_block_gc_running",
            duration="undo_delta_block_gc_perform_duration",
            waiting=(
                "undo_delta_block_estimated_retained_bytes",
                "Estimated bytes of ended deltas that the next due collection removes.",
            ),
            removed=("undo_delta_block_gc_bytes_deleted_total", "Bytes of deltas that were removed."),
            switch=(
                "enable_undo_delta_block_gc",
                "Off: deltas that were compacted, or whose parts are gone, stay on the disk for ever.",
            ),
        ),
    )
    DELETED_PART_GC = (
        "DELETED_PART_GC",
        OpTraits(
            service=ServiceKind.GC,
            runs="collections of parts without rows",
            running="deleted_rowset_gc_running",
            duration="deleted_rowset_gc_duration",
            waiting=(
                "deleted_rowset_estimated_retained_bytes",
                "Estimated bytes of parts without rows that the next due collection hides.",
            ),
            removed=(
                "deleted_rowset_gc_bytes_deleted_total",
                "Bytes of parts that were hidden because no row was left.",
            ),
            switch=("enable_deleted_rowset_gc", "Off: parts whose rows are all deleted stay until a merge takes them."),
        ),
    )
    REPLICATE = (
        "REPLICATE",
        OpTraits(
            service=ServiceKind.REPLICATE,
            task=TaskKind.COPY,
            runs="rounds that make missing copies",
            running="replicate_running",
            duration="replicate_duration",
            switch=("enable_replication", "Off: copies that replicas of storages lack are not made."),
        ),
    )
    SCRUB = (
        "SCRUB",
        OpTraits(
            service=ServiceKind.SCRUB,
            task=TaskKind.COPY,
            runs="rounds that compare files with their checksums",
            running="scrub_running",
            duration="scrub_duration",
            switch=(
                "enable_scrubs",
                "Off: files are not compared with their checksums in the background, and damage shows when they are "
                "read.",
            ),
        ),
    )

    traits: OpTraits

    def __new__(cls, value: str, traits: OpTraits) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.traits = traits
        return member


class IoUsage(StrEnum):
    #: Records only; such an op may free log before anything else is weighed.
    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpStats:
    """The cost of skipping this op, as of one observation."""

    #: `True` if it could run now.
    is_runnable: bool
    io: IoUsage = IoUsage.HIGH
    #: Bytes of memory that it frees.
    ram_anchored_bytes: int = 0
    #: Bytes of log kept alive until it runs.
    logs_retained_bytes: int = 0
    #: Bytes on the store that it frees.
    data_retained_bytes: int = 0
    #: Gain for readers; 0 is none.
    perf_improvement: float = 0.0
    #: Score of the table's load, added to a gain above 0.
    workload_score: float = 0.0
    #: Priority of the table, set by the user; -5 to 5 count.
    priority: int = 0
    #: Reason why it is not runnable, or its next work; for the status.
    about: str = ""

    @staticmethod
    def idle(about: str) -> OpStats:
        """Return the statistics of an op that cannot run now, with the reason."""
        return OpStats(is_runnable=False, about=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpView:
    """An op at the time of choice."""

    #: `KIND(table)`; unique.
    name: str
    #: Tables of about equal gain take turns.
    table: str
    stats: OpStats


class ChoiceRule(StrEnum):
    """The rule that found the op, or why there is none."""

    NO_FREE_WORKER = "no_free_worker"
    FREE_LOG = "free_log"
    MEMORY_PRESSURE = "memory_pressure"
    REPLAY_SIZE = "replay_size"
    FREE_DATA = "free_data"
    READ_GAIN = "read_gain"
    NOTHING_TO_GAIN = "nothing_to_gain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The op to run next, or none, and why."""

    op_name: str | None
    rule: ChoiceRule
    reason: str
    #: Gain with workload and priority; 0 if another rule than the gain decided.
    score: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Work that an op has reserved, so that nothing else begins it."""

    #: Human-readable description of the work.
    about: str
    #: Reserved work, for the op alone.
    work: object


@dataclass(frozen=True, slots=True)
class Refused:
    """The reason why nothing is done now."""

    reason: str


def op_name(kind: OpKind, table: str) -> str:
    """`MERGE(db.t)`."""
    return f"{kind}({table})"
