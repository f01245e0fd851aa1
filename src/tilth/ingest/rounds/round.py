"""Orders and reports of a round. Values only; they travel to Spark tasks and over calls.

Covers: the job of a round, the numbers of its messages and tasks, its facts. Does not cover: doing it (spark.py),
deciding on it (consumer/task.py).

Tests: tests/unit/ingest/rounds/test_failing_view.py, tests/integration/ingest/test_ingest_rounds.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

import msgspec

from tilth.base.clock import Clock, SystemClock
from tilth.ingest.kafka.fetch import Fetched, fetch
from tilth.ingest.policy.evaluation import Evaluation
from tilth.ingest.rounds.letters import Letters
from tilth.ingest.settings import KafkaConfig
from tilth.ingest.views.plans import FusedPlan, SqlPlan, ViewPlan
from tilth.model.delta import Seen, WrittenDelta
from tilth.model.offset import LedgerRange, OffsetRange
from tilth.model.part import WrittenPart
from tilth.model.table import Schema
from tilth.storage import TableLayout


class Fetch(Protocol):
    """Function that yields the messages of ranges, as kafka.fetch does."""

    def __call__(
        self, clock: Clock, config: KafkaConfig, ranges: Iterable[OffsetRange], *, has_headers: bool
    ) -> Iterator[Fetched]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """Destination of messages that cannot be decoded, or that a view cannot take."""

    #: The table's uuid.
    table: str
    layout: TableLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundJob:
    """All that the Spark jobs of one round must know."""

    config: KafkaConfig
    #: Schema of the Kafka table.
    schema: Schema
    #: Name of the Kafka table and of the temporary view.
    name: str
    defaults: dict[str, object]
    plans: tuple[ViewPlan, ...]
    #: Layouts by uuid of the target.
    layouts: dict[str, TableLayout]
    #: None: they are counted, and stored nowhere.
    dead_letters: DeadLetters | None
    txn: int
    #: Ranges by Spark task; a long range may be split into several tasks.
    splits: tuple[tuple[OffsetRange, ...], ...]
    #: Evaluation of each view that has failed lately; other views are not in it.
    failing: Mapping[str, Evaluation] = field(default_factory=dict)
    #: Views that kernels compute.
    compiled: Collection[str] = ()
    fetch: Fetch = fetch
    #: Reads the messages where the thread of the consumer does the round; None: tasks of Spark do it. Not for them.
    fetch_inline: Fetch | None = None
    #: The messages, where they are dead letters and not read from the topic.
    letters: Letters | None = None

    def messages(self, split: int) -> Iterator[Fetched]:
        """Yield the messages of a split; raises as `fetch` does."""
        if self.letters is not None:
            return self.letters.fetch(split)
        fetch = self.fetch_inline or self.fetch
        return fetch(SystemClock(), self.config, self.splits[split], has_headers="_headers" in self.columns)

    def joined(self, ranges: tuple[LedgerRange, ...]) -> tuple[LedgerRange, ...]:
        """One range for each partition, out of those of several tasks."""
        return joined_ranges(ranges, has_gaps=self.letters is not None)

    @property
    def fused(self) -> tuple[FusedPlan, ...]:
        return tuple(plan for plan in self.plans if isinstance(plan, FusedPlan))

    @property
    def by_kernel(self) -> tuple[SqlPlan, ...]:
        return tuple(plan for plan in self.plans if isinstance(plan, SqlPlan) and plan.view in self.compiled)

    @property
    def computed(self) -> tuple[SqlPlan, ...]:
        """The views that Spark SQL computes."""
        return tuple(plan for plan in self.plans if isinstance(plan, SqlPlan) and plan.view not in self.compiled)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to decode: all that any view reads or checks."""
        return tuple(dict.fromkeys(name for plan in self.plans for name in plan.decoded))

    @property
    def numbers(self) -> MessageNumbers:
        return MessageNumbers(self.splits)

    @property
    def keeps_messages(self) -> bool:
        """True if messages may become dead letters later than when they are read."""
        return self.dead_letters is not None and any(plan.view in self.failing for plan in self.computed)

    # Task numbers. Each step of the round has as many as there are splits: first those that read, then those
    # that write for each computed view, then the rows that are kept for the time of the round, then dead letters.

    def task_of_view(self, index: int) -> int:
        """The first task number of a computed view, counted from 0."""
        return (1 + index) * len(self.splits)

    @property
    def task_of_kept(self) -> int:
        return (1 + len(self.computed)) * len(self.splits)

    @property
    def task_of_dead(self) -> int:
        return (2 + len(self.computed)) * len(self.splits)


def tasks_reserved(job_tasks: int, plans: tuple[ViewPlan, ...]) -> int:
    """Return how many task numbers the jobs of a round may use in each table's file names."""
    computed = sum(isinstance(plan, SqlPlan) for plan in plans)
    return tasks_max(job_tasks, computed) if computed else job_tasks


def tasks_max(job_tasks: int, computed: int) -> int:
    """Return the most task numbers that a round may use, of which so many views are computed."""
    return job_tasks * (3 + computed)


class MessageNumbers:
    """Numbers the messages of a round: from 0, on through its ranges; where a message is missing a number is free."""

    def __init__(self, splits: tuple[tuple[OffsetRange, ...], ...]) -> None:
        self._ranges = [each for split in splits for each in split]
        self._starts = list(accumulate((each.end - each.start for each in self._ranges), initial=0))
        self._firsts = list(accumulate(map(len, splits), initial=0))

    @property
    def total(self) -> int:
        return self._starts[-1]

    def shifts(self, split: int) -> dict[tuple[str, int], int]:
        """Return what is added to an offset, by topic partition of a split; in a split each has one range."""
        positions = range(self._firsts[split], self._firsts[split + 1])
        ranges = ((self._ranges[position], self._starts[position]) for position in positions)
        return {(each.topic, each.partition): start - each.start for each, start in ranges}

    def position(self, number: int) -> tuple[str, int, int]:
        """Topic, partition and offset."""
        position = bisect_right(self._starts, number) - 1
        each = self._ranges[position]
        return each.topic, each.partition, each.start + number - self._starts[position]


class WrittenTo(msgspec.Struct, frozen=True, kw_only=True):
    """A part that a round wrote."""

    #: The table's uuid.
    table: str
    part: WrittenPart


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions in which the rows of unique keys are looked up."""

    #: The table's uuid.
    table: str
    #: None: in all of them.
    partitions: tuple[str, ...] | None


class TableChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of older rows by the rows that a round wrote to a table with a unique key, as of one snapshot."""

    scope: Scope
    #: Hybrid time of the snapshot in which the rows were looked up.
    ts: int
    deltas: tuple[WrittenDelta, ...]
    seen: Seen


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a computed view cannot take."""

    #: Its number in the round.
    number: int
    #: Empty: a row of it could not be computed, for a reason that is not known yet.
    reason: str = ""
    #: Step that failed: above 0 the target's column, counted from 1; see views/probe.py.
    step: int = 0


class ViewRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A view cannot take a message."""

    #: The message's number in the round.
    number: int
    #: `database.view`.
    view: str
    reason: str


class NewestRead(msgspec.Struct, frozen=True, kw_only=True):
    """Time of the last message of a topic partition that was read."""

    topic: str
    partition: int
    #: Time of the producer or of the broker, in milliseconds since 1970.
    sent_ms: int


class RoundFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one task, or of all tasks of a round."""

    ranges: tuple[LedgerRange, ...] = ()
    parts: tuple[WrittenTo, ...] = ()
    #: Total size of the messages' values.
    bytes: int = 0
    #: The first message that is broken, or refused by a view, in words; empty if there is none.
    broken: str = ""
    #: The views that have refused a message, by name.
    refusing: tuple[str, ...] = ()
    #: Attempt number; only in results of one task.
    attempt: int = 0
    #: Time to read and decode; only in results of one task whose rows stream on.
    reading_seconds: float = 0.0
    #: The last messages, with a valid time, of each topic partition.
    newest: tuple[NewestRead, ...] = ()
    #: Time to wait for messages, to decode and check them, to write parts: of one task, or of the task of a round that
    #: took longest for it; the last one with `view_seconds`.
    fetch_seconds: float = 0.0
    decode_seconds: float = 0.0
    write_seconds: float = 0.0
    #: Time to compute and write the rows of each view that computes, of the task that took longest for it.
    view_seconds: dict[str, float] = {}

    @property
    def messages(self) -> int:
        return sum(each.messages for each in self.ranges)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.ranges)

    @property
    def dead(self) -> int:
        return sum(each.dead for each in self.ranges)

    @property
    def refused(self) -> int:
        return sum(each.refused for each in self.ranges)


def total_of(answers: Iterable[RoundFacts]) -> RoundFacts:
    known = list(answers)
    return RoundFacts(
        ranges=tuple(each for facts in known for each in facts.ranges),
        parts=tuple(each for facts in known for each in facts.parts),
        bytes=sum(facts.bytes for facts in known),
        broken=next((facts.broken for facts in known if facts.broken), ""),
        refusing=tuple(dict.fromkeys(view for facts in known for view in facts.refusing)),
        newest=_newest(each for facts in known for each in facts.newest),
        fetch_seconds=max((facts.fetch_seconds for facts in known), default=0.0),
        decode_seconds=max((facts.decode_seconds for facts in known), default=0.0),
        write_seconds=max((facts.write_seconds for facts in known), default=0.0),
        view_seconds=_longest(known),
    )


def _longest(known: Iterable[RoundFacts]) -> dict[str, float]:
    longest: dict[str, float] = {}
    for facts in known:
        for view, seconds in facts.view_seconds.items():
            longest[view] = max(seconds, longest.get(view, 0.0))
    return longest


def _newest(found: Iterable[NewestRead]) -> tuple[NewestRead, ...]:
    """Return one for each topic partition, out of those of several tasks."""
    newest: dict[tuple[str, int], NewestRead] = {}
    for each in found:
        before = newest.get((each.topic, each.partition), each)
        newest[each.topic, each.partition] = max(before, each, key=lambda one: one.sent_ms)
    return tuple(newest.values())


def with_refused(facts: RoundFacts, job: RoundJob, refusals: Sequence[ViewRefusal]) -> RoundFacts:
    """Add the messages that computed views have refused, of which there is one at least."""
    positions = [job.numbers.position(each.number) for each in refusals]
    counts = Counter((topic, partition) for topic, partition, _ in positions)
    ranges = (
        msgspec.structs.replace(each, refused=each.refused + counts[each.topic, each.partition])
        for each in job.joined(facts.ranges)
    )
    topic, partition, offset = positions[0]
    first = f"{topic}/{partition}@{offset}: view {refusals[0].view}: {refusals[0].reason}"
    return msgspec.structs.replace(
        facts,
        ranges=tuple(ranges),
        broken=facts.broken or first,
        refusing=tuple(dict.fromkeys((*facts.refusing, *(each.view for each in refusals)))),
    )


def joined_ranges(ranges: tuple[LedgerRange, ...], *, has_gaps: bool = False) -> tuple[LedgerRange, ...]:
    """One range for each partition, out of those of several tasks, which are contiguous unless `has_gaps`."""
    joined: dict[tuple[str, int], LedgerRange] = {}
    for each in sorted(ranges, key=lambda r: (r.topic, r.partition, r.start)):
        before = joined.get((each.topic, each.partition))
        assert has_gaps or before is None or before.end == each.start, (before, each)
        if before is not None:
            each = msgspec.structs.replace(before.joined(each), end=max(before.end, each.end))
        joined[each.topic, each.partition] = each
    return tuple(joined.values())
