"""Positions to which SYSTEM RESET CONSUME OFFSET moves a Kafka table, and the report of the move. Pure.

Covers: the forms (docs/policies/consumers.md#offset-reset) and checking them. Does not cover: stopping consumers,
the commit (service/service.py).
Always holds: a move is remembered in the ledger, from the old to the new offset, so that VERIFY can
distinguish a decision from a loss.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from tilth.ingest.errors import ResetError
from tilth.ingest.kafka.gaps import Observed
from tilth.ingest.kafka.metadata import Offset, PartitionEnd
from tilth.model.offset import LedgerEntry, LedgerRange, StoredOffset, TopicPartition

#: The consumer of a ledger entry whose ranges were not read but passed over, forward or back.
MOVED = -1
#: End of such a range if the topic partition is gone.
GONE = -1


class OffsetMark(IntEnum):
    """The named positions; the values are those of the Kafka client library."""

    #: The first message that is still there.
    BEGIN = -2
    #: Offset after the last message.
    END = -1
    #: Offset that the catalog stores: open gaps count as decided, if the topic holds the offsets.
    STORED = -1000
    #: Start position by kafka_auto_offset_reset.
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
    earliest: Mapping[TopicPartition, Offset],
    ends: Mapping[TopicPartition, PartitionEnd],
    table: str,
) -> dict[TopicPartition, int]:
    """The offsets with marks filled in. Raises ResetError naming a partition that is missing or shorter."""
    filled: dict[TopicPartition, int] = {}
    for partition, offset in wanted.items():
        if partition not in ends:
            known = ", ".join(sorted({f"{each.topic}/{each.partition}" for each in ends}))
            raise ResetError(
                "no such partition",
                table=table,
                topic=partition.topic,
                partition=partition.partition,
                hint=f"there are: {known}",
            )
        low, end = earliest[partition], ends[partition]
        match offset:
            case OffsetMark.BEGIN:
                filled[partition] = low
            case OffsetMark.END:
                filled[partition] = end.stable
            case _:
                filled[partition] = offset
        if not low <= filled[partition] <= end.high:
            hint = f"the partition holds {low} to {end.high}"
            raise ResetError(
                table=table, topic=partition.topic, partition=partition.partition, offset=offset, hint=hint
            )
    return filled


def kept(
    stored: Mapping[TopicPartition, StoredOffset],
    *,
    gaps: Collection[TopicPartition],
    observed: Observed,
    table: str,
) -> dict[TopicPartition, StoredOffset]:
    """The stored offsets; those with an open gap become offsets of the present logs.

    Raises ResetError naming the partition that does not reach its stored offset.
    """
    known = {partition: each for partition, each in stored.items() if partition in observed.ends}
    wanted = {partition: each.offset for partition, each in known.items()}
    check_offsets(wanted, earliest=observed.earliest, ends=observed.ends, table=table)
    return {
        partition: stored_at(partition, each.offset, observed) if partition in gaps else each
        for partition, each in known.items()
    }


def stored_at(partition: TopicPartition, offset: int, observed: Observed) -> StoredOffset:
    """The offset, which the topic partition holds, as it is stored."""
    return StoredOffset(offset, observed.ids[partition.topic], observed.ends[partition].epoch)


def moved(
    kafka_table: str,
    *,
    stored: Mapping[TopicPartition, StoredOffset],
    wanted: Mapping[TopicPartition, StoredOffset],
    gone: Iterable[TopicPartition] = (),
) -> LedgerEntry | None:
    """The ledger's line of a move; None if nothing moves. `gone`: topic partitions that have no offset any more."""
    ends = {partition: (each.offset, each.topic_id) for partition, each in wanted.items()} | dict.fromkeys(
        gone, (GONE, "")
    )
    ranges = tuple(
        LedgerRange(
            topic=partition.topic,
            partition=partition.partition,
            start=stored[partition].offset,
            end=offset,
            messages=0,
            rows=0,
            dead=0,
            topic_id=topic_id,
        )
        for partition, (offset, topic_id) in sorted(ends.items())
        if partition in stored and (stored[partition].offset, stored[partition].topic_id) != (offset, topic_id)
    )
    if not ranges:
        return None
    return LedgerEntry(txn=0, kafka_table=kafka_table, consumer=MOVED, ranges=ranges, stored={})
