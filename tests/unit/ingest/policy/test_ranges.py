"""Assignment and ranges. The oracles are those of docs/policies/consumers.md."""

from __future__ import annotations

import pytest

from tilth.ingest.policy.assignment import assign, consumer_count
from tilth.ingest.policy.ranges import backlog, is_small, message_budget, plan_round, split_ranges, task_count
from tilth.model.offset import OffsetRange, TopicPartition

A, B, C = (TopicPartition("t", p) for p in range(3))


def test_oracle_three_consumers_over_eight_and_two_partitions() -> None:
    topics = {"a": 8, "b": 2}
    count = consumer_count(wanted=3, partitions=topics)
    assert count == 3
    shares = [
        {topic: {p.partition for p in share if p.topic == topic} for topic in topics}
        for share in assign(consumers=count, partitions=topics)
    ]
    assert shares == [{"a": {0, 3, 6}, "b": {0}}, {"a": {1, 4, 7}, "b": {1}}, {"a": {2, 5}, "b": set()}]


def test_oracle_no_more_consumers_than_partitions() -> None:
    assert consumer_count(wanted=16, partitions={"a": 4, "b": 1}) == 4
    assert consumer_count(wanted=16, partitions={}) == 0


@pytest.mark.parametrize("consumers", [1, 2, 3, 7])
def test_every_partition_has_one_consumer(consumers: int) -> None:
    topics = {"a": 5, "b": 13, "c": 1}
    shares = assign(consumers=consumers, partitions=topics)
    partitions = [partition for share in shares for partition in share]
    assert len(partitions) == len(set(partitions)) == 19


def test_oracle_small_rounds() -> None:
    def is_so(*counts: int, message_bytes: float) -> bool:
        ranges = [OffsetRange(topic="t", partition=p, start=7, end=7 + count) for p, count in enumerate(counts)]
        return is_small(ranges, message_bytes=message_bytes)

    assert is_so(4_000, 96, message_bytes=256)
    assert not is_so(4_000, 97, message_bytes=1)
    assert not is_so(4_000, 96, message_bytes=257)


def test_oracle_stored_offset_is_the_next_one() -> None:
    """Last consumed offset 41, stored 42."""
    (planned,) = plan_round(positions={A: 40}, ends={A: 42}, messages_max=100)
    assert (planned.start, planned.end) == (40, 42)


def test_backlog_counts_what_is_there() -> None:
    assert backlog(positions={A: 5, B: 7}, ends={A: 10, B: 7}) == 5
    # Behind the end: nothing to read, and not a negative number of messages.
    assert backlog(positions={A: 11}, ends={A: 10}) == 0


def test_short_backlogs_leave_their_share_to_long_ones() -> None:
    planned = plan_round(positions={A: 0, B: 0, C: 0}, ends={A: 10, B: 1000, C: 1000}, messages_max=100)
    assert {r.partition: r.end - r.start for r in planned} == {0: 10, 1: 45, 2: 45}


def test_nothing_is_planned_without_messages() -> None:
    assert plan_round(positions={A: 3}, ends={A: 3}, messages_max=10) == ()


def test_budget_keeps_both_limits() -> None:
    assert message_budget(rows_max=1000, bytes_max=10_000, message_bytes=5) == 1000
    assert message_budget(rows_max=1000, bytes_max=10_000, message_bytes=100) == 100
    assert message_budget(rows_max=1000, bytes_max=10, message_bytes=100) == 1
    assert message_budget(rows_max=10, bytes_max=10, message_bytes=0) == 10


def test_small_rounds_are_one_task() -> None:
    small = (OffsetRange(topic="t", partition=0, start=0, end=1000),)
    large = (OffsetRange(topic="t", partition=0, start=0, end=1_000_000),)
    assert task_count(small, tasks_max=8) == 1
    assert task_count(large, tasks_max=8) == 8


@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
@pytest.mark.parametrize("sizes", [[10], [1, 1, 1], [7, 0, 13], [100, 1], [1, 100], [5] * 9])
def test_split_covers_each_offset_once(tasks: int, sizes: list[int]) -> None:
    whole = tuple(OffsetRange(topic="t", partition=p, start=50, end=50 + n) for p, n in enumerate(sizes))
    splits = split_ranges(whole, tasks=tasks)
    assert len(splits) <= tasks
    covered = [(r.partition, o) for group in splits for r in group for o in range(r.start, r.end)]
    assert sorted(covered) == [(p, o) for p, n in enumerate(sizes) for o in range(50, 50 + n)]
    lengths = [sum(r.end - r.start for r in group) for group in splits]
    assert max(lengths) - min(lengths) <= max(1, -(-sum(sizes) // tasks))
    for group in splits:
        assert len({r.partition for r in group}) == len(group)
