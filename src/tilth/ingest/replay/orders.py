"""Orders of a replay to a worker, and the answers. Values only.

Always holds: an order says all that the worker must know; the worker changes nothing but files that nobody knows yet.
"""

from __future__ import annotations

import msgspec

from tilth.ingest.consumer.calls import ViewOrder
from tilth.ingest.policy.evaluation import Evaluation
from tilth.ingest.rounds.letters import SAME_MAX
from tilth.ingest.rounds.round import RoundFacts, tasks_max
from tilth.model.delta import WrittenDelta
from tilth.model.snapshot import Snapshot
from tilth.model.table import KafkaDef
from tilth.storage import TableRoots, UpsertRequest

#: Letters of one transaction, at most.
LETTERS_MAX = 100_000
#: Spark tasks that read letters from their table.
READERS_MAX = 8
#: Maximum number of splits of the round, each read by a task.
SPLITS_MAX = READERS_MAX * SAME_MAX


class LetterPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Topic, partition and offset of a letter's message; letters are replayed in this order."""

    topic: str
    partition: int
    offset: int


class LetterSource(msgspec.Struct, frozen=True, kw_only=True):
    """The letters that a statement is about."""

    #: Snapshot of the dead-letter table.
    snapshot: Snapshot
    #: Roots of all tables that the replay reads or writes.
    root: TableRoots
    #: Spark SQL, as checked; empty: all letters.
    predicate: str
    #: None: letters of any topic.
    topics: tuple[str, ...] | None


class CountLetters(msgspec.Struct, frozen=True, kw_only=True, tag="count"):
    """Counts the letters; the answer is a dictionary by the view's name, empty: for all views."""

    source: LetterSource


class ReplayLetters(msgspec.Struct, frozen=True, kw_only=True, tag="replay"):
    """Sends some letters through their views; the answer is a `Replayed`."""

    source: LetterSource
    kafka: KafkaDef
    #: Views that get the messages.
    views: tuple[ViewOrder, ...]
    #: The view whose letters are replayed, as `database.view`; empty: letters for all views.
    addressee: str
    #: Only letters with a greater position are replayed; None: all.
    after: LetterPosition | None
    letters_max: int
    bytes_max: int
    #: Evaluation of views that have failed, as in RoundJob.
    failing: dict[str, Evaluation]
    txn: int

    @property
    def first_task(self) -> int:
        """The first task number that the round does not use."""
        return tasks_max(SPLITS_MAX, len(self.views))


class ResolveKeys(msgspec.Struct, frozen=True, kw_only=True, tag="keys"):
    """Finds the rows that replayed rows replace in tables with unique keys; the answer is a tuple of changes by
    request, in the same order.
    """

    requests: tuple[tuple[UpsertRequest, ...], ...]


#: Payload of a replay's task.
ReplayOrder = CountLetters | ReplayLetters | ResolveKeys


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a replay of some letters; nothing is committed yet."""

    facts: RoundFacts = RoundFacts()
    #: Change segments that delete the letters from their table.
    deletions: tuple[WrittenDelta, ...] = ()
    #: Letters that were read.
    letters: int = 0
    #: Letters that were left out: there are too many of the same message.
    left: int = 0
    #: Greatest position among the letters that were read; None: there was no letter.
    last: LetterPosition | None = None
    #: True if no letter has a greater position.
    is_end: bool = True
    #: Reasons why views failed, by view: the round is repeated in another way, and the other fields are empty.
    failures: dict[str, str] = {}


def tasks_reserved(views: int) -> int:
    """Return how many task numbers a replay may use in the names of files, for so many views."""
    return tasks_max(SPLITS_MAX, views) + READERS_MAX + 1
