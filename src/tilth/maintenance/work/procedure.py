"""One kind of work: the job for a worker, the changes of its commit, its report.

Does not cover: which work is done (planner.py), the way from files to commit (attempt.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec

from tilth.catalog import Update
from tilth.maintenance.kinds import OpKind
from tilth.model.delta import PartSource, Seen, WrittenDelta
from tilth.model.part import WrittenPart
from tilth.storage import PartRebaser, TableLayout

WorkT = TypeVar("WorkT")
FactsT = TypeVar("FactsT")
WorkT_contra = TypeVar("WorkT_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """The sources of one part."""

    #: Layout of the part.
    layout: TableLayout
    partition: str
    #: Sources as they are read, in the order of the part's row map.
    sources: tuple[PartSource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A part that was made."""

    #: Task number in the names of its files.
    task: int
    #: None: no row was left.
    written: WrittenPart | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job for a worker."""

    #: The message of its task, whose field `txn` gets the transaction when that has begun.
    task: msgspec.Struct
    #: Numbers of tasks in the names of the files that it may write.
    tasks: int
    #: Bytes and rows that it reads.
    input_bytes: int
    rows: int
    #: One for each part that it may make, at the index of the part's task; none if it makes none.
    inputs: tuple[Input, ...] = ()


class Rebaser(Protocol):
    """Writer of changes of the sources of one part as changes of the part; tilth.storage.PartRebaser."""

    def rebase(self, sources: Sequence[PartSource], *, txn: int, task: int, n: int) -> WrittenDelta | None: ...


#: Makes one for a part that was made of that input.
NewRebaser = Callable[[Input, WrittenPart], Rebaser]


def rebaser_of(of: Input, written: WrittenPart) -> Rebaser:
    """Return the rebaser that reads and writes files."""
    return PartRebaser(of.layout, of.partition, written.file)


class Procedure(Protocol[WorkT_contra, FactsT]):
    """The particulars of one kind of work. The answers here are those of most kinds."""

    kind: OpKind
    #: Type of the worker's report.
    facts_type: type[FactsT]
    #: Verb in its transactions and failpoints: `merge`.
    verb: str
    #: Noun in its log lines: `merge`, `mutation`.
    noun: str
    #: `True` if it may be done for some of its parts when others are not free.
    is_divisible: bool = False
    #: Errors that say that other work was faster: such a run is done, and no failure.
    overtaken: tuple[type[Exception], ...] = ()

    def about(self, works: Sequence[WorkT_contra]) -> str:
        """Say what one run of these will do."""

    def job(self, work: WorkT_contra) -> Job:
        """Return the job. Raises TilthError where it cannot be done now; nothing has begun then."""

    def outputs(self, work: WorkT_contra, facts: FactsT) -> list[Output]:
        """The parts that replace others; not those that stay as they are."""

    def updates(self, work: WorkT_contra, facts: FactsT, duration_ms: int, seen: Seen) -> list[Update]:
        """Return the updates of the commit; `seen` are the changes of all sources that are in it, or are rebased."""

    def report(self, work: WorkT_contra, facts: FactsT, duration_ms: int) -> str:
        """Say what was done; called once, when it has landed."""

    def summary(self, works: Sequence[WorkT_contra], reports: Sequence[str]) -> str:
        """Say what one run of these has done."""
        return reports[0]
