"""What one kind of work is: the job for a worker, what its commit changes, what is reported of it.

Does not cover: which work is done (chooser.py), the way from files to commit (attempt.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tilth.catalog import Update
from tilth.maintenance.op import OpKind
from tilth.model.delta import PartSource, Seen, WrittenDelta
from tilth.model.part import WrittenPart
from tilth.model.service import ServiceKind
from tilth.model.task import TaskKind
from tilth.storage import TableLayout, Translation

WorkT = TypeVar("WorkT")
FactsT = TypeVar("FactsT")
WorkT_contra = TypeVar("WorkT_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What one part is made of."""

    #: Of the part.
    layout: TableLayout
    partition: str
    #: As they are read, in the order of the part's row map.
    sources: tuple[PartSource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A part that was made."""

    #: By which its files are named.
    task: int
    #: None: no row was left.
    written: WrittenPart | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a worker is asked to do."""

    #: The payload of its task, for a transaction.
    payload: Callable[[int], bytes]
    #: Numbers of tasks in the names of the files that it may write.
    tasks: int
    #: What it reads.
    input_bytes: int
    rows: int
    #: One for each part that it may make, at the place of the part's task; none where it makes none.
    inputs: tuple[Input, ...] = ()


class Translating(Protocol):
    """Brings changes of the sources of one part onto it; tilth.storage.Translation."""

    def translate(self, sources: Sequence[PartSource], *, txn: int, task: int, n: int) -> WrittenDelta | None: ...


#: Makes one for a part that was made of that input.
Translator = Callable[[Input, WrittenPart], Translating]


def translation_of(of: Input, written: WrittenPart) -> Translating:
    """By the files."""
    return Translation(of.layout, of.partition, written.file)


class Recipe(Protocol[WorkT_contra, FactsT]):
    """What is particular to one kind of work. What has an answer here is what most kinds say."""

    kind: OpKind
    #: Whose switch stops it.
    service: ServiceKind
    #: Of its transactions and failpoints: `merge`.
    verb: str
    #: Of its lines in the log: `merge`, `mutation`.
    noun: str
    task_kind: TaskKind
    #: Whether it may be done for some of its parts, where others are not free.
    is_divisible: bool = False
    #: Errors that say that other work was faster: such a run is done, and no failure.
    overtaken: tuple[type[Exception], ...] = ()

    def about(self, works: Sequence[WorkT_contra]) -> str:
        """What one run of these will do."""

    def job(self, work: WorkT_contra) -> Job:
        """Raises TilthError where it cannot be done now; nothing has begun then."""

    def facts(self, payload: bytes) -> FactsT:
        """What the worker reports."""

    def outputs(self, work: WorkT_contra, facts: FactsT) -> list[Output]:
        """The parts that replace others; not those that stay as they are."""

    def updates(self, work: WorkT_contra, facts: FactsT, duration_ms: int, seen: Seen) -> list[Update]:
        """What the commit makes true; `seen` are the changes of all sources that are in it, or are brought over."""

    def report(self, work: WorkT_contra, facts: FactsT, duration_ms: int) -> str:
        """What was done; asked once, when it has landed."""

    def summary(self, works: Sequence[WorkT_contra], reports: Sequence[str]) -> str:
        """What one run of these has done."""
        return reports[0]
