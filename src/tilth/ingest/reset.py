"""Where SYSTEM RESET CONSUME OFFSET moves a Kafka table, and what is told of it. Pure.

Covers: the forms of POLICIES.md 10.5 and checking them. Does not cover: stopping consumers, the commit (service.py).
Always holds: a move is remembered in the ledger, from the old to the new offset, so that VERIFY can tell a decision
from a loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from tilth.ingest.errors import ResetError
from tilth.model.offset import LedgerEntry, LedgerRange, TopicPartition

#: The consumer of a ledger entry whose ranges were not read but passed over, forward or back.
MOVED = -1


class OffsetMark(IntEnum):
    """The named positions; the values are those of the Kafka client library."""

    #: The first message that is still there.
    BEGIN = -2
    #: Behind the last message.
    END = -1
    #: Where the catalog says it stands: nothing moves, open gaps are taken as decided.
    STORED = -1000
    #: Where kafka_auto_offset_reset would start.
    INVALID = -1001


@dataclass(frozen=True, slots=True)
class ToMark:
    """Every partition to a named position."""

    mark: OffsetMark


@dataclass(frozen=True, slots=True)
class ToTime:
    """Every partition to its first message at or after a time, in milliseconds since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ToOffsets:
    """These partitions to these offsets; marks BEGIN and END may stand for an offset."""

    offsets: Mapping[TopicPartition, int]


OffsetReset = ToMark | ToTime | ToOffsets


def check_offsets(
    wanted: Mapping[TopicPartition, int],
    *,
    earliest: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    table: str,
) -> dict[TopicPartition, int]:
    """The offsets with marks filled in. Raises ResetError naming the partition that does not exist or reach so far."""
    filled: dict[TopicPartition, int] = {}
    for place, offset in wanted.items():
        if place not in ends:
            known = ", ".join(sorted({f"{each.topic}/{each.partition}" for each in ends}))
            raise ResetError(
                "no such partition",
                table=table,
                topic=place.topic,
                partition=place.partition,
                hint=f"there are: {known}",
            )
        low, high = earliest[place], ends[place]
        match offset:
            case OffsetMark.BEGIN:
                filled[place] = low
            case OffsetMark.END:
                filled[place] = high
            case _:
                filled[place] = offset
        if not low <= filled[place] <= high:
            hint = f"the partition holds {low} to {high}"
            raise ResetError(table=table, topic=place.topic, partition=place.partition, offset=offset, hint=hint)
    return filled


def moved(
    kafka_table: str, *, stored: Mapping[TopicPartition, int], wanted: Mapping[TopicPartition, int]
) -> LedgerEntry | None:
    """The ledger's line of a move; None if nothing moves."""
    ranges = tuple(
        LedgerRange(
            topic=place.topic, partition=place.partition, start=stored[place], end=offset, messages=0, rows=0, dead=0
        )
        for place, offset in sorted(wanted.items())
        if place in stored and stored[place] != offset
    )
    if not ranges:
        return None
    return LedgerEntry(txn=0, kafka_table=kafka_table, consumer=MOVED, ranges=ranges, stored={})
