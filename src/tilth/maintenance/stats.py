"""Reports of the manager: rows of system tables, its status, its numbers."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

import msgspec

from tilth.base.metrics import counter
from tilth.maintenance.kinds import OpKind, OpStats

#: Upper ends of the histogram of how long runs took; beyond the last one there is one more bucket.
RUN_MILLISECONDS = (10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_200_000, 3_600_000)


class OpRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `system.maintenance_ops`; a struct, for ten thousand tables have a hundred thousand."""

    #: `KIND(table)`.
    name: str
    kind: OpKind
    database: str
    table: str
    uuid: str
    #: Runs under way.
    running: int
    #: Statistics of the last poll.
    stats: OpStats
    #: The table's maintenance_priority.
    priority: int = 0
    #: The gain with load and priority: what is compared with other ops.
    score: float = 0.0
    #: Parts that it leaves out because they cannot be read, why, and what to do; empty: none.
    damaged: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRun:
    """A run of an op, under way or among the last that ended."""

    name: str
    #: Description of its work.
    about: str
    thread_id: int
    started_ms: int
    #: 0 while under way.
    ended_ms: int
    #: Empty when it went well.
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerStatus:
    """Status of the manager at one snapshot."""

    is_enabled: bool
    #: Slots, and those in use.
    threads: int
    busy: int
    #: Bytes at the last reading; None: there is no limit.
    memory_used: int
    memory_limit: int | None
    registered: tuple[OpRow, ...]
    running: tuple[OpRun, ...]
    #: The last that ended, newest first.
    completed: tuple[OpRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRow:
    """One row of `system.maintenance_choices`: a choice, or a refusal."""

    at_ms: int
    #: Empty when nothing was chosen.
    op: str
    #: `database.table`; empty when nothing was chosen.
    table: str
    #: The rule that chose, or `refused`.
    rule: str
    reason: str
    #: Gain of the chosen op, with workload and priority.
    score: float = 0.0
    #: Number of ops that could have run, and the best of the others with their scores.
    runnable: int = 0
    others: str = ""


@dataclass(slots=True, kw_only=True)
class OpNumbers:
    """Counters of one kind of op."""

    #: Under way now.
    running: int = 0
    #: Ended since the start, well or not.
    ended: int = 0
    #: Total duration of those that ended.
    milliseconds: float = 0.0
    #: Bytes that wait for such ops, and those that they have removed or hidden, where a metric shows them.
    waiting_bytes: int = 0
    removed_bytes: int = 0
    #: Number of them that took up to each of RUN_MILLISECONDS and longer than the one before; the last one: longer.
    counts: list[int] = field(default_factory=lambda: [0] * (len(RUN_MILLISECONDS) + 1))

    def add(self, milliseconds: float) -> None:
        self.ended += 1
        self.milliseconds += milliseconds
        self.counts[bisect_left(RUN_MILLISECONDS, milliseconds)] += 1


@dataclass(slots=True, kw_only=True)
class MaintenanceNumbers:
    """Counters since the start. A caller gets a copy of its own."""

    ops: dict[OpKind, OpNumbers] = field(default_factory=lambda: {kind: OpNumbers() for kind in OpKind})
    copied_bytes: int = counter("tilth_copied_bytes_total", "Bytes of copies that were made in replicas.")
    scrubbed_bytes: int = counter("tilth_scrubbed_bytes_total", "Bytes of files that were compared with checksums.")
    wrong_copies: int = counter("tilth_wrong_copies_total", "Copies of files that were not what was written.")
    merge_ranges: int = counter(
        "tilth_merge_ranges_total", "Key ranges that merges made which were cut (`merge_task_bytes`), a task each."
    )
    rebased_rows: int = counter(
        "tilth_rebased_rows_total",
        "Rows that had changed while their parts were rewritten, and that were changed in the result, too.",
    )
    rebase_tasks: int = counter(
        "tilth_rebase_tasks_total", "Tasks that rebased such changes, where they were too many for the server."
    )
    flushed_bytes: int = counter(
        "tilth_flushed_bytes_total", "Bytes of the parts that flushes made.", twin="bytes_flushed_total"
    )
    expired: int = counter(
        "tilth_gc_expired_partitions_total", "Partitions that were dropped because all their rows had expired."
    )
    moved: int = counter("tilth_gc_moved_total", "Records that were moved to the trash.")
    removed: int = counter("tilth_gc_removed_files_total", "Files that were removed.")
    removed_bytes: int = counter("tilth_gc_removed_bytes_total", "Bytes of the files that were removed.")
    prepare_failed: int = counter(
        "tilth_maintenance_prepare_failed_total",
        "Ops that were chosen and then had nothing to do.",
        twin="maintenance_op_prepare_failed_total",
    )
    #: Choices and refusals, and how long they took together with the polls before them; one metric for both.
    choices: int = 0
    choosing_microseconds: float = 0.0
