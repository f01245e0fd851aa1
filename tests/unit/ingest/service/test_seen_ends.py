"""The lag of topic partitions by the ends that were seen last, and for how long it is known."""

from __future__ import annotations

from dataclasses import replace

from tilth.ingest.kafka.metadata import Offset, PartitionEnd
from tilth.ingest.service.seen_ends import KNOWN_SECONDS_MIN, SeenEnds
from tilth.model.offset import StoredOffset, TopicPartition
from tilth.testing import ManualClock

PARTITION, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
STORED = StoredOffset(offset=10, topic_id="id", epoch=0)


def end(high: int) -> PartitionEnd:
    return PartitionEnd(stable=Offset(high), high=Offset(high))


def test_a_lag_is_known_as_long_as_the_end_was_seen_lately() -> None:
    clock = ManualClock()
    seen = SeenEnds(clock, interval_seconds=7.0)
    assert (seen.stats(PARTITION, STORED).lag, seen.stats(PARTITION, STORED).end_age) == (None, None)
    seen.replace({PARTITION: end(30)}, {"t": "id"})
    clock.advance(21)
    found = seen.stats(PARTITION, STORED)
    assert (found.lag, found.uncommitted, found.end_age) == (20, 0, 21.0)
    clock.advance(1)
    found = seen.stats(PARTITION, STORED)
    assert (found.lag, found.uncommitted, found.end_age) == (None, None, 22.0)
    seen.record({PARTITION: end(31)})
    assert seen.stats(PARTITION, STORED).lag == 21
    # Without a stored offset nobody knows how much is left to read.
    assert seen.stats(PARTITION, None).lag is None


def test_looks_that_follow_closely_do_not_make_it_unknown_at_once() -> None:
    clock = ManualClock()
    seen = SeenEnds(clock, interval_seconds=0.05)
    seen.record({PARTITION: end(30)})
    clock.advance(KNOWN_SECONDS_MIN)
    assert seen.stats(PARTITION, STORED).lag == 20


def test_partitions_that_are_gone_and_topics_made_anew() -> None:
    seen = SeenEnds(ManualClock(), interval_seconds=7.0)
    seen.replace({PARTITION: end(30), OTHER: end(5)}, {"t": "id"})
    seen.replace({PARTITION: end(4)}, {"t": "another id"})
    assert seen.stats(OTHER, STORED).lag is None
    # All messages of the other topic are new.
    assert seen.stats(PARTITION, STORED).lag == 4
    assert replace(seen.stats(PARTITION, STORED), is_of_other_topic=False).lag == 0
