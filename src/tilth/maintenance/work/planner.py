"""The op's questions to each kind of work: a planner says what is worth doing.

Covers: the protocol of planners and works, the events that planners get, their answers. Does not cover: the op
(part_work.py), how work is done (attempt.py).
Always holds: a planner has no thread, no lock and no clock, and reserves nothing: the op calls it on one thread at a
time, with the time and with what is reserved; what it wants of the catalog it reads.

                 refresh              dequeue, load            Ended
    nothing  ----------->  waiting  ---------------> running  --------> nothing
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from tilth.maintenance.kinds import OpStats, Refused
from tilth.maintenance.state import ServiceWork, is_failure
from tilth.maintenance.table.sources import ChangesOf
from tilth.model.part import Part, PartEvent
from tilth.warehouse import TaskCancelledError


class PartWork(Protocol):
    """Parts of one table that become others."""

    @property
    def names(self) -> Sequence[str]:
        """The parts to be reserved, and those that have been once it is loaded."""

    @property
    def partitions(self) -> Collection[str]: ...

    @property
    def subject(self) -> str:
        """Subject of a refusal: a partition or a mutation."""

    @property
    def sources(self) -> Sequence[Part]:
        """The parts as they were read; empty until it is loaded."""

    @property
    def changes(self) -> ChangesOf:
        """The changes of the sources, as of then."""


WorkT = TypeVar("WorkT", bound=PartWork)
WorkT_contra = TypeVar("WorkT_contra", bound=PartWork, contravariant=True)


@dataclass(frozen=True, slots=True)
class PartLogged:
    """A line of the part log about the table."""

    event: PartEvent
    partition: str


@dataclass(frozen=True, slots=True)
class Renewed:
    """Event: news were lost, or definition, settings or mutations have changed; everything is refreshed."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The service is switched off: nothing waits for its turn."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Event: what waits in the partition is forgotten; none means everywhere."""

    partition: str | None


@dataclass(frozen=True, slots=True)
class Denied(Generic[WorkT]):
    """Work that cannot begin: other work has reserved its parts, they are gone, or nobody runs it."""

    work: WorkT


@dataclass(frozen=True, slots=True)
class WorkEnded(Generic[WorkT]):
    """A run ended. With UnknownOutcomeError it ends once more when its outcome is known."""

    work: WorkT
    error: Exception | None


WorkEvent: TypeAlias = PartLogged | Renewed | Stopped | Cancelled | Denied[WorkT] | WorkEnded[WorkT]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSnapshot:
    """The op at one snapshot."""

    now_ms: int
    #: Pieces of work under way, of the background and of commands.
    running: int
    #: `True` if something has happened since the last poll, and the time of that poll.
    has_news: bool
    refreshed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """Names of parts that cannot be chosen. Copied before parts are read, so that no part is missed in between."""

    #: Parts reserved by any work, without work still queued in the op itself.
    reserved: frozenset[str]
    #: Parts of running work of the op itself, and of work whose outcome is unknown.
    own: frozenset[str]
    damaged: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return self.reserved | self.damaged


def is_left_alone(error: Exception) -> bool:
    """True if the end of a run counts as no failure: it was cancelled, or what was planned is out of date."""
    return isinstance(error, TaskCancelledError) or not is_failure(error)


class WorkFailures(Protocol[WorkT_contra]):
    """Failed work, which waits, longer each time; it stands in `system.bg_threads` until it is over. For any thread."""

    def landed(self, work: WorkT_contra) -> None:
        """Forget what had failed there."""

    def has_any(self) -> bool:
        """Return whether a failure stands; takes no lock."""

    def missed(self, work: WorkT_contra, error: Exception, now_ms: int) -> str:
        """It failed once more. Returns why it is left alone, where that is a refusal; else it is empty and logged."""


class Planner(Protocol[WorkT]):
    """The choice of one kind of work in one table. What has an answer here is what most kinds say."""

    failures: WorkFailures[WorkT]

    @property
    def held(self) -> Sequence[WorkT]:
        """Work that waits for its turn with its parts reserved already."""
        return ()

    @property
    def refusals(self) -> Sequence[tuple[str, str]]:
        """Return what the last observation left alone, each with the reason."""
        return ()

    def observe(self, event: WorkEvent[WorkT], now_ms: int) -> bool:
        """Note an event; return whether something else may be chosen now."""

    def refresh_due_ms(self, snapshot: OpSnapshot) -> int:
        """Return when the next observation is worth it; NEVER_MS: something has to happen first."""

    def due_ms(self, snapshot: OpSnapshot) -> int:
        """Return when `choose` may say something new, if there are no events before."""

    def refresh(self, snapshot: OpSnapshot, busy: Busy) -> None:
        """Read the state of the table."""

    def choose(self, snapshot: OpSnapshot) -> OpStats:
        """Return what the next run would gain, or why there is none, from the last observation."""

    def dequeue(self, snapshot: OpSnapshot, busy: Busy) -> Sequence[WorkT] | Refused:
        """Return the work of one run; it waits no more."""

    def load(self, work: WorkT, names: Sequence[str]) -> WorkT | None:
        """Return the work with these of its parts, which are reserved now, as the catalog has them; None where that is
        nothing that can be done. For work that was read when it was chosen this is the work."""
        return work

    def is_outdated(self, work: WorkT) -> bool:
        """True if running work is to be cancelled, because nobody wants it any more."""
        return False

    def status(self, snapshot: OpSnapshot) -> ServiceWork: ...
