"""Skew of topic partitions: messages of the fullest over the mean."""

from __future__ import annotations

import pytest

from tilth.ingest import TopicPartitionStats, partition_skew
from tilth.ingest.kafka.metadata import Offset, PartitionEnd
from tilth.model.offset import TopicPartition


def stats_of(*highs: int | None) -> list[TopicPartitionStats]:
    ends = [None if high is None else PartitionEnd(stable=Offset(0), high=Offset(high)) for high in highs]
    return [
        TopicPartitionStats(topic_partition=TopicPartition("t", number), offset=0, end=end)
        for number, end in enumerate(ends)
    ]


@pytest.mark.parametrize(
    ("highs", "skew"),
    [
        ((5, 5, 5), 1.0),
        ((8, 0), 2.0),
        ((6, 2, 1), 2.0),
        # An end that was never seen, no message yet, no partition at all.
        ((5, None), None),
        ((0, 0), None),
        ((), None),
    ],
)
def test_skew(highs: tuple[int | None, ...], skew: float | None) -> None:
    assert partition_skew(stats_of(*highs)) == skew
