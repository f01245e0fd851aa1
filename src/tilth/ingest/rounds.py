"""What a round is told and what it reports. Values only; they travel to Spark tasks and over calls.

Covers: the job of a round and its facts. Does not cover: doing it (spark.py), deciding on it (task.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tilth.ingest.decode import RowCheck
from tilth.ingest.settings import KafkaConfig
from tilth.ingest.views import FusedPlan, SqlPlan, ViewPlan
from tilth.model.delta import Seen, WrittenDelta
from tilth.model.offset import LedgerRange, OffsetRange
from tilth.model.part import WrittenPart
from tilth.model.table import Schema
from tilth.storage import TableLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """Where broken messages go."""

    #: The table's uuid.
    table: str
    layout: TableLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundJob:
    """All that the Spark jobs of one round must know."""

    config: KafkaConfig
    #: Of the Kafka table.
    schema: Schema
    #: Its name, which is the temporary view's.
    name: str
    defaults: dict[str, object]
    plans: tuple[ViewPlan, ...]
    #: By target's uuid.
    layouts: dict[str, TableLayout]
    #: None: broken messages are rows, or fail the round.
    dead_letters: DeadLetters | None
    txn: int
    #: By Spark task; a long range may be cut into several tasks.
    groups: tuple[tuple[OffsetRange, ...], ...]

    @property
    def fused(self) -> tuple[FusedPlan, ...]:
        return tuple(plan for plan in self.plans if isinstance(plan, FusedPlan))

    @property
    def checks(self) -> tuple[RowCheck, ...]:
        """The same in every pass of the round: a message that one view cannot take is broken for all."""
        return tuple(dict.fromkeys(check for plan in self.plans for check in plan.checks))

    @property
    def computed(self) -> tuple[SqlPlan, ...]:
        return tuple(plan for plan in self.plans if isinstance(plan, SqlPlan))


class WrittenTo(msgspec.Struct, frozen=True, kw_only=True):
    """A part that a round wrote."""

    #: The table's uuid.
    table: str
    part: WrittenPart


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Where the rows of unique keys are looked for."""

    #: The table's uuid.
    table: str
    #: None: in all of them.
    partitions: tuple[str, ...] | None


class TableChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows that a round wrote to a table with a unique key replace, as far as it was looked."""

    scope: Scope
    #: Hybrid time of the snapshot that was looked at.
    ts: int
    deltas: tuple[WrittenDelta, ...]
    seen: Seen


class RoundFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a task, or all tasks of a round, did."""

    ranges: tuple[LedgerRange, ...] = ()
    parts: tuple[WrittenTo, ...] = ()
    #: Of the messages' values.
    bytes: int = 0
    #: The first broken message, in words; empty if there is none.
    broken: str = ""

    @property
    def messages(self) -> int:
        return sum(each.messages for each in self.ranges)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.ranges)

    @property
    def dead(self) -> int:
        return sum(each.dead for each in self.ranges)


def tasks_reserved(job_tasks: int, plans: tuple[ViewPlan, ...]) -> int:
    """How many task numbers the jobs of a round may use in each table's file names."""
    return job_tasks * (1 + sum(isinstance(plan, SqlPlan) for plan in plans))


def joined_ranges(ranges: tuple[LedgerRange, ...]) -> tuple[LedgerRange, ...]:
    """One range for each partition, out of the contiguous ones of several tasks."""
    joined: dict[tuple[str, int], LedgerRange] = {}
    for each in sorted(ranges, key=lambda r: (r.topic, r.partition, r.start)):
        before = joined.get((each.topic, each.partition))
        if before is None:
            joined[each.topic, each.partition] = each
            continue
        assert before.end == each.start, (before, each)
        joined[each.topic, each.partition] = msgspec.structs.replace(
            before,
            end=each.end,
            messages=before.messages + each.messages,
            rows=before.rows + each.rows,
            dead=before.dead + each.dead,
        )
    return tuple(joined.values())
