"""What a commit may do: one small class for each. Pure.

Covers: the nouns and what each needs to be loaded. Does not cover: their meaning over a state (fold.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilth.model.offset import IngestGap, LedgerEntry, OffsetRange, TopicPartition
from tilth.model.part import PartName, WrittenPart


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertPart:
    """A new part. Its block id is drawn inside the commit, so it lies behind every drop range decided before."""

    table: str
    written: WrittenPart


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceParts:
    """A merge: one part instead of several. Requires that every source is still visible."""

    table: str
    sources: tuple[PartName, ...]
    #: None: no row was left.
    written: WrittenPart | None
    duration_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPartition:
    """Hides what is visible in the partition now."""

    table: str
    partition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateTable:
    """Hides all that is visible now."""

    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceOffsets:
    """The round's ranges are consumed. Requires that each starts at the stored offset, or that none is stored."""

    kafka_table: str
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOffsets:
    """Moves positions, whatever they were."""

    kafka_table: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearOffsets:
    """Forgets all positions."""

    kafka_table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddLedger:
    """What the round did; its commit_ts is filled in."""

    entry: LedgerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class AddGap:
    """Offsets that could not be read."""

    gap: IngestGap


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveGaps:
    """Writes a user's decision into every open gap of a Kafka table."""

    kafka_table: str
    resolution: str


TableUpdate = InsertPart | ReplaceParts | DropPartition | TruncateTable
KafkaUpdate = AdvanceOffsets | SetOffsets | ClearOffsets | AddLedger | AddGap | ResolveGaps
Update = TableUpdate | KafkaUpdate


def kafka_of(update: KafkaUpdate) -> str:
    """The Kafka table that an update is about."""
    match update:
        case AddLedger(entry=entry):
            return entry.kafka_table
        case AddGap(gap=gap):
            return gap.kafka_table
        case _:
            return update.kafka_table


def tables_of(updates: Iterable[Update]) -> set[str]:
    """The uuids of the tables whose parts change."""
    return {update.table for update in updates if isinstance(update, TableUpdate)}


def kafka_tables_of(updates: Iterable[Update]) -> set[str]:
    """The uuids of the Kafka tables whose offsets, ledger or gaps change."""
    return {kafka_of(update) for update in updates if not isinstance(update, TableUpdate)}


def inserts_of(updates: Iterable[Update]) -> int:
    """How many block ids the commit draws."""
    return sum(isinstance(update, InsertPart) for update in updates)
