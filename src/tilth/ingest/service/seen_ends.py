"""Ends of a Kafka table's topic partitions, as they were seen last, and for how long they count as current.

Covers: what is shown of a topic partition: its offset, its end, the age of the end. Does not cover:
requests to brokers (service.py, consumers). Always holds: an end that was not seen lately gives no lag.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilth.base.clock import Clock
from tilth.ingest.kafka.gaps import is_other_topic
from tilth.ingest.kafka.metadata import PartitionEnd
from tilth.ingest.service.stats import TopicPartitionStats
from tilth.model.offset import StoredOffset, TopicPartition

#: Number of polls of the service, and minimum time, for which an end counts as the current one.
KNOWN_POLLS = 3
KNOWN_SECONDS_MIN = 15.0


class SeenEnds:
    """Ends by topic partition, for any thread."""

    def __init__(self, clock: Clock, *, interval_seconds: float) -> None:
        """`interval_seconds`: time between two polls of the service."""
        self._clock = clock
        self._known_seconds = max(KNOWN_SECONDS_MIN, KNOWN_POLLS * interval_seconds)
        #: Each end with the monotonic time at which it was seen.
        self._ends: dict[TopicPartition, tuple[PartitionEnd, float]] = {}
        #: Ids of the topics.
        self._topic_ids: Mapping[str, str] = {}

    def record(self, ends: Mapping[TopicPartition, PartitionEnd]) -> None:
        """Record ends that were seen now."""
        now = self._clock.monotonic()
        self._ends.update({partition: (end, now) for partition, end in ends.items()})

    def replace(self, ends: Mapping[TopicPartition, PartitionEnd], ids: Mapping[str, str]) -> None:
        """Record all topic partitions that there are, and forget the others."""
        now = self._clock.monotonic()
        self._ends, self._topic_ids = {partition: (end, now) for partition, end in ends.items()}, ids

    def stats(self, partition: TopicPartition, stored: StoredOffset | None) -> TopicPartitionStats:
        topic_id = self._topic_ids.get(partition.topic, "")
        end, seen = self._ends.get(partition, (None, None))
        age = None if seen is None else max(0.0, self._clock.monotonic() - seen)
        return TopicPartitionStats(
            topic_partition=partition,
            offset=-1 if stored is None else stored.offset,
            end=end,
            end_age=age,
            is_end_known=age is not None and age <= self._known_seconds,
            is_of_other_topic=stored is not None and bool(topic_id) and is_other_topic(stored, topic_id),
        )
