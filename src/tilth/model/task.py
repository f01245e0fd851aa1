"""Tasks: pieces of work that a server sends to a worker of a warehouse.

Tests: tests/unit/warehouse/tasks/test_state.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import msgspec

from tilth.base.units import GIB, MIB


class WorkKind(StrEnum):
    """A kind of task that a warehouse runs."""

    QUERIES = "queries"
    IMPORTS = "imports"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTraits:
    """Facts about all tasks of a kind: the first guess of their cost, before anything was measured, and how a worker
    treats them.
    """

    #: Base time of every task, however small.
    seconds_min: float
    #: Input bytes per second.
    speed: float
    #: Output bytes per input byte.
    output: float
    #: Memory bytes per input byte, and their ceiling: kernels work in blocks.
    memory: float
    memory_max: int
    #: Temporary bytes per input byte, which Spark shuffles and spills. Rewrites of parts keep nothing on the disk.
    temporary: float = 0.0
    #: Kinds of work of a warehouse that include it.
    work: tuple[WorkKind, ...]
    #: It stays until it is stopped.
    is_resident: bool = False
    #: It leaves slots to others: long tasks that nobody waits for use half of the slots at most, all together.
    is_yielding: bool = False
    #: Somebody waits for it, who cannot be kept waiting until Spark is back.
    is_statement: bool = False


class TaskKind(StrEnum):
    """Kinds of tasks, each declared here only."""

    #: A resident consumer; its rounds are tasks of their own, whose cost this is. A consumer itself reads nothing.
    CONSUME = (
        "consume",
        TaskTraits(
            seconds_min=0.0,
            speed=50.0 * MIB,
            output=0.3,
            memory=4.0,
            memory_max=256 * MIB,
            work=(WorkKind.IMPORTS,),
            is_resident=True,
        ),
    )
    INSERT = (
        "insert",
        TaskTraits(
            seconds_min=0.1,
            speed=40.0 * MIB,
            output=0.3,
            memory=4.0,
            memory_max=1 * GIB,
            temporary=0.2,
            work=(WorkKind.QUERIES, WorkKind.IMPORTS),
            is_statement=True,
        ),
    )
    #: Row segments become a part.
    FLUSH = (
        "flush",
        TaskTraits(
            seconds_min=0.1,
            speed=20.0 * MIB,
            output=0.7,
            memory=8.0,
            memory_max=1 * GIB,
            work=(WorkKind.MAINTENANCE,),
        ),
    )
    MERGE = (
        "merge",
        TaskTraits(
            seconds_min=0.1,
            speed=20.0 * MIB,
            output=0.95,
            memory=8.0,
            memory_max=512 * MIB,
            work=(WorkKind.MAINTENANCE,),
            is_yielding=True,
        ),
    )
    MUTATE = (
        "mutate",
        TaskTraits(
            seconds_min=0.5,
            speed=15.0 * MIB,
            output=1.0,
            memory=8.0,
            memory_max=512 * MIB,
            work=(WorkKind.MAINTENANCE,),
            is_yielding=True,
        ),
    )
    #: Deltas of parts become fewer.
    DELTA = (
        "delta",
        TaskTraits(
            seconds_min=0.1,
            speed=40.0 * MIB,
            output=0.9,
            memory=6.0,
            memory_max=1 * GIB,
            work=(WorkKind.MAINTENANCE,),
            is_yielding=True,
        ),
    )
    #: Changes that came to the sources of a part while it was written are rebased onto it; a commit waits for the task.
    REBASE = (
        "rebase",
        TaskTraits(
            seconds_min=0.1,
            speed=100.0 * MIB,
            output=0.1,
            memory=4.0,
            memory_max=512 * MIB,
            work=(WorkKind.MAINTENANCE,),
        ),
    )
    #: Copies of files are compared, or made.
    COPY = (
        "copy",
        TaskTraits(
            seconds_min=0.1,
            speed=100.0 * MIB,
            output=0.0,
            memory=1.0,
            memory_max=64 * MIB,
            work=(WorkKind.MAINTENANCE,),
            is_yielding=True,
        ),
    )
    #: Files that are said to be damaged are read.
    CHECK = (
        "check",
        TaskTraits(
            seconds_min=0.1,
            speed=100.0 * MIB,
            output=0.0,
            memory=1.0,
            memory_max=64 * MIB,
            work=(WorkKind.MAINTENANCE,),
            is_statement=True,
        ),
    )
    QUERY = (
        "query",
        TaskTraits(
            seconds_min=0.1,
            speed=100.0 * MIB,
            output=0.01,
            memory=0.1,
            memory_max=256 * MIB,
            temporary=0.2,
            work=(WorkKind.QUERIES,),
            is_statement=True,
        ),
    )

    traits: TaskTraits

    def __new__(cls, value: str, traits: TaskTraits) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.traits = traits
        return member


class ScheduleMode(StrEnum):
    """Choice of a worker for tasks that stay."""

    #: The worker that has the fewest; they move when one has many more than others.
    LEAST_CONSUMERS = "least_consumers"
    #: The same worker for the same key, as long as it is connected.
    HASH = "hash"
    #: Any worker; none moves.
    RANDOM = "random"


class TaskState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of a task: estimated before it is sent, measured after it ended."""

    input_bytes: int = 0
    output_bytes: int = 0
    memory_bytes: int = 0
    #: On the disk where Spark shuffles and spills. None: not measured.
    temporary_bytes: int | None = None
    seconds: float = 0.0


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Order for a worker. The payload is for the runner of its kind."""

    id: str
    kind: TaskKind
    warehouse: str
    #: `database.table`, for people.
    table: str
    txn: int
    estimate: Cost
    payload: bytes
    #: Schedule mode of a resident task.
    mode: ScheduleMode = ScheduleMode.LEAST_CONSUMERS
    #: Key of a resident task: the same for those that replace each other.
    key: str = ""
    #: `True` if the task waits while no worker has its Spark, and does not fail: for statements that only read.
    waits_for_spark: bool = False
    #: Span that it is a part of, as W3C's header `traceparent` has it; empty: none.
    trace: str = ""

    def __repr__(self) -> str:
        # The payload may contain passwords.
        return f"TaskSpec(id={self.id!r}, kind={self.kind.value!r}, table={self.table!r})"


class TaskInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `system.tasks`."""

    id: str
    kind: TaskKind
    warehouse: str
    worker: str
    table: str
    txn: int
    state: TaskState
    #: Reason for the choice of this worker, for the wait, or for the failure.
    reason: str
    #: Reason for the choice of this worker, retained when it has ended; empty while it waits.
    placement_reason: str = ""
    created_ms: int
    started_ms: int
    ended_ms: int
    estimate: Cost
    actual: Cost

    @property
    def estimate_error(self) -> float | None:
        """Excess over the estimated time: 1 is twice as long, -0.5 half; None: not known."""
        if self.state is not TaskState.DONE or self.estimate.seconds <= 0:
            return None
        return self.actual.seconds / self.estimate.seconds - 1
