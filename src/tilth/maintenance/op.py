"""A maintenance operation as the manager sees it: what it would gain, and how it is done.

Covers: the kinds of ops, their statistics, the choice of one, the protocol they follow. Does not cover: how one is
chosen (manager/scheduler.py), the ops (the folders of their kinds).
Always holds: statistics are a value of one look; a choice and a refusal to choose both carry their reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tilth.maintenance.state import Failure
from tilth.model.part import PartEvent
from tilth.model.service import ServiceKind, ServiceState


class OpKind(StrEnum):
    """Kinds of ops; the value begins an op's name."""

    FLUSH = "FLUSH"
    FLUSH_DELTAS = "FLUSH_DELTAS"
    MERGE = "MERGE"
    MINOR_DELTA = "MINOR_DELTA"
    MAJOR_DELTA = "MAJOR_DELTA"
    MUTATE = "MUTATE"
    LOG_GC = "LOG_GC"
    PART_GC = "PART_GC"
    HISTORY_GC = "HISTORY_GC"
    DELETED_PART_GC = "DELETED_PART_GC"
    REPLICATE = "REPLICATE"
    SCRUB = "SCRUB"


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
    """An op at the moment of choice."""

    #: `KIND(table)`; unique.
    name: str
    #: Tables of about equal gain take turns.
    table: str
    #: None while nothing valid is known.
    stats: OpStats | None
    is_cancelled: bool = False


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
class NotPrepared:
    """The op found nothing to do, or could not take it."""

    reason: str


class Op(Protocol):
    """One kind of maintenance of one table. Several runs of it may be under way at once.

    `stats`, `prepare`, `abandon`, `observe` and `notice_all` are called on the manager's thread, `perform` on a thread
    of the run, all others on any.
    """

    @property
    def kind(self) -> OpKind: ...

    @property
    def service(self) -> ServiceKind:
        """Service whose switch stops the op: a run under way ends by itself, nothing new begins."""

    @property
    def table(self) -> str:
        """The table's full name."""

    @property
    def name(self) -> str:
        """`KIND(table)`, see `op_name`."""

    @property
    def running(self) -> int:
        """Runs under way, commands among them."""

    @property
    def has_unknown(self) -> bool:
        """True if the outcome of a commit is unknown: it is asked for while the service is stopped too."""

    @property
    def due_ms(self) -> int:
        """Return when `stats` may change, if nothing is noticed before; FAR_MS: never."""

    @property
    def wakeups(self) -> int:
        """Observations or rounds so far."""

    @property
    def last_wakeup_ms(self) -> int:
        """Time of the last one; 0: not yet."""

    def observe(self, event: PartEvent, partition: str) -> None:
        """Note a line of the part log about this table."""

    def notice_all(self) -> None:
        """Look at everything again: news were lost, or definition, settings or mutations have changed."""

    def cancel(self) -> None:
        """Begin nothing new and ask running work to end: the table is gone or the server stops."""

    def cancel_partition(self, partition: str | None) -> int:
        """Ask work in the partition to end; none means everywhere. Return the number of runs."""

    def stats(self) -> OpStats | None:
        """Estimate cheaply what could be gained; none while nothing valid is known."""

    def prepare(self) -> Prepared | NotPrepared:
        """Reserve the work of one run; quick, on the manager's own thread."""

    def perform(self, prepared: Prepared) -> str:
        """Do the work and release its inputs, also on failure; on a worker thread. Return what was done."""

    def abandon(self, prepared: Prepared) -> None:
        """Release what was reserved for a run that will not happen."""

    def state(self, now_ms: int) -> tuple[ServiceState, str, Failure | None]:
        """Return the content of `system.bg_threads`: the state, why, and the last failure that still stands."""


def op_name(kind: OpKind, table: str) -> str:
    """`MERGE(db.t)`."""
    return f"{kind}({table})"
