"""Tasks: pieces of work that a server sends to a worker of a warehouse."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class TaskKind(StrEnum):
    #: A resident consumer; its rounds are tasks of their own.
    CONSUME = "consume"
    INSERT = "insert"
    #: Row segments become a part.
    FLUSH = "flush"
    MERGE = "merge"
    MUTATE = "mutate"
    #: Deltas of parts become fewer.
    DELTA = "delta"
    #: Copies of files are compared, or made.
    COPY = "copy"
    QUERY = "query"


class ScheduleMode(StrEnum):
    """Choice of a worker for tasks that stay."""

    #: The worker that has the fewest; they move when one has many more than others.
    LEAST_CONSUMERS = "least_consumers"
    #: The same worker for the same key, as long as it is there.
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
