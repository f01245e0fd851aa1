"""Position of a consumer: the offsets of its last committed round, and the ranges that may be read from there. Pure.

Covers: a consumer's offsets between its rounds, and the check that a round has read the messages that its offsets stand
for. Does not cover: sharing a round among tasks (policy/ranges.py). Always holds: offsets move only by a round that was
committed, and a round is committed only if the topic and its leaders are the same before and after it was read.

Tests: tests/unit/ingest/kafka/test_gaps.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tilth.ingest.errors import BrokerUnavailableError, LeaderChangedError, OffsetGapError
from tilth.ingest.kafka.gaps import is_other_topic, is_stale
from tilth.ingest.kafka.metadata import PartitionEnd
from tilth.ingest.policy.ranges import plan_round
from tilth.model.offset import OffsetRange, StoredOffset, TopicPartition

_HINT = "SYSTEM RESET CONSUME OFFSET decides where to go on"


class ConsumerPosition:
    """Position of one consumer."""

    def __init__(self, table: str, stored: Mapping[TopicPartition, StoredOffset]) -> None:
        """`table`: `database.table` of the Kafka table, for messages."""
        self._table = table
        self._stored = dict(stored)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Return the next offset to read of each topic partition."""
        return {partition: stored.offset for partition, stored in self._stored.items()}

    def check_ends(self, ends: Mapping[TopicPartition, PartitionEnd]) -> None:
        """Check the ends of the topic partitions. Raises OffsetGapError if one ends before its offset, and
        BrokerUnavailableError if an older leader reported its end.
        """
        for partition, stored in self._stored.items():
            end = ends[partition]
            if end.high >= stored.offset:
                continue
            if is_stale(stored, end):
                why = "a leader answers that is older than the one that was read from"
                raise BrokerUnavailableError(
                    why, table=self._table, topic=partition.topic, partition=partition.partition, end=end.high
                )
            raise OffsetGapError(
                "the topic ends before the stored offset: it was truncated or made anew",
                table=self._table,
                topic=partition.topic,
                partition=partition.partition,
                stored=stored.offset,
                end=end.high,
                hint=_HINT,
            )

    def plan(self, ends: Mapping[TopicPartition, PartitionEnd], *, messages_max: int) -> tuple[OffsetRange, ...]:
        """Return the ranges of the next round, with their topic ids and the leader epochs at both ends."""
        stable = {partition: end.stable for partition, end in ends.items()}
        ranges = plan_round(positions=self.offsets, ends=stable, messages_max=messages_max)
        return tuple(
            msgspec.structs.replace(
                each,
                topic_id=self._of(each).topic_id,
                epoch=self._of(each).epoch,
                end_epoch=ends[each.topic_partition].epoch,
            )
            for each in ranges
        )

    def check_same(
        self,
        ranges: Sequence[OffsetRange],
        *,
        ids: Mapping[str, str],
        ends: Mapping[TopicPartition, PartitionEnd],
    ) -> None:
        """Check a round after it was read. Raises OffsetGapError if its topic was recreated before or meanwhile, and
        LeaderChangedError if its messages may come from two logs.
        """
        for each in ranges:
            if is_other_topic(self._of(each), ids[each.topic]):
                why = "the topic was deleted and made anew"
                raise OffsetGapError(why, table=self._table, topic=each.topic, partition=each.partition, hint=_HINT)
            if ends[each.topic_partition].epoch != each.end_epoch:
                hint = "the round is read again by itself"
                raise LeaderChangedError(table=self._table, topic=each.topic, partition=each.partition, hint=hint)

    def advance(self, ranges: Iterable[OffsetRange]) -> None:
        """Move the offsets to the ends of these ranges, whose round was committed."""
        for each in ranges:
            stored = msgspec.structs.replace(self._of(each), offset=each.end, epoch=each.end_epoch)
            self._stored[each.topic_partition] = stored

    def _of(self, each: OffsetRange) -> StoredOffset:
        return self._stored[each.topic_partition]
