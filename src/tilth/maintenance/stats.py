"""What maintenance tells of itself: rows of system tables and reports of commands."""

from __future__ import annotations

from dataclasses import dataclass

from tilth.maintenance.op import OpKind


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """One row of `system.maintenance_ops`."""

    #: `KIND(table)`.
    name: str
    kind: OpKind
    database: str
    table: str
    uuid: str
    is_runnable: bool
    #: Runs under way.
    running: int
    logs_retained_bytes: int
    ram_anchored_bytes: int
    data_retained_bytes: int
    perf_improvement: float
    #: What it would do, or why it cannot.
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRun:
    """A run of an op, under way or among the last that ended."""

    name: str
    #: What is or was done.
    about: str
    started_ms: int
    #: 0 while under way.
    ended_ms: int
    #: Empty when it went well.
    error: str


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCandidateRow:
    """One line of EXPLAIN MERGE."""

    partition: str
    #: Parts of the range, or of the partition if it has no range.
    parts: int
    rows: int
    bytes: int
    #: Lower is better; 0 where there is no range.
    score: float
    #: `running`, `waiting`, `would run`, `refused`, `failed`.
    state: str
    reason: str
    #: Milliseconds since 1970; 0: at the next look.
    next_attempt_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeReport:
    """What OPTIMIZE did."""

    partitions: int
    merges: int
    parts_before: int
    parts_after: int
    rows_merged: int
    bytes_read: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GcReport:
    """What one round of collecting did; for SYSTEM GC, of the whole table."""

    partitions: int = 0
    #: Records that left the table.
    moved: int = 0
    #: Ended records that stay for now.
    kept: int = 0
    #: Files that are gone, and their bytes.
    removed: int = 0
    removed_bytes: int = 0
    #: Items that stay in the trash for now, of those looked at.
    in_trash: int = 0
    #: Why the first of those that stay stays.
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpNumbers:
    """What was counted of one kind of op."""

    #: Under way now.
    running: int = 0
    #: Ended since the start, well or not.
    ended: int = 0
    #: How long those that ended took together.
    milliseconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceNumbers:
    """What was counted since the start."""

    merges: OpNumbers
    #: Rounds of collecting.
    collections: OpNumbers
    #: Records that were moved to the trash.
    moved: int = 0
    #: Files that are gone, and their bytes.
    removed: int = 0
    removed_bytes: int = 0
    #: Choices that came to nothing: there was no work left, or it could not be prepared.
    prepare_failed: int = 0
    #: Choices and refusals, and how long they took together with the looks before them.
    choices: int = 0
    choosing_microseconds: float = 0.0
