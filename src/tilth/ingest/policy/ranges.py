"""Ranges that one round reads, and their distribution to its Spark tasks. Pure.

Covers: cutting a backlog into explicit ranges. Does not cover: the ends of a topic (kafka/broker.py).
Always holds: the ranges of a partition are contiguous and start at its stored offset, so that a retry reads the same.
See also: docs/policies/consumers.md#rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilth.base.units import MIB
from tilth.model.offset import OffsetRange, TopicPartition

#: A task that reads fewer messages than this costs more than it saves.
TASK_MESSAGES_MIN = 8_192
#: Limits of rounds that need no task of Spark: a job costs more than to read and decode so little.
SMALL_MESSAGES_MAX = 4_096
SMALL_BYTES_MAX = MIB


def backlog(*, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Offsets between the present positions and the ends of the partitions."""
    return sum(max(0, ends[partition] - position) for partition, position in positions.items() if partition in ends)


def message_budget(*, rows_max: int, bytes_max: int, message_bytes: float) -> int:
    """Return how many messages a round may read, when messages are of this size on average."""
    return max(1, min(rows_max, int(bytes_max / max(1.0, message_bytes))))


def plan_round(
    *, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], messages_max: int
) -> tuple[OffsetRange, ...]:
    """Share the budget fairly: the shortest backlog first, what it leaves goes to the others."""
    waiting = {
        partition: ends[partition] - position
        for partition, position in positions.items()
        if ends.get(partition, 0) > position
    }
    left, ranges = messages_max, []
    by_size = sorted(waiting, key=lambda partition: (waiting[partition], partition))
    for index, partition in enumerate(by_size):
        count = min(waiting[partition], -(-left // (len(by_size) - index)))
        if count > 0:
            start = positions[partition]
            ranges.append(
                OffsetRange(topic=partition.topic, partition=partition.partition, start=start, end=start + count)
            )
            left -= count
    return tuple(sorted(ranges, key=lambda r: (r.topic, r.partition)))


def task_count(ranges: Sequence[OffsetRange], *, tasks_max: int) -> int:
    """Return as many tasks as there is work for."""
    total = sum(r.end - r.start for r in ranges)
    return max(1, min(tasks_max, total // TASK_MESSAGES_MIN))


def is_small(ranges: Sequence[OffsetRange], *, message_bytes: float) -> bool:
    """Return whether a round is small, when messages are of this size on average."""
    total = sum(r.end - r.start for r in ranges)
    return total <= SMALL_MESSAGES_MAX and total * message_bytes <= SMALL_BYTES_MAX


def split_ranges(ranges: Sequence[OffsetRange], *, tasks: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """Divide the ranges into splits, one for each task, of about equally many offsets; a long range is cut."""
    total = sum(r.end - r.start for r in ranges)
    splits: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    done = 0
    for whole in ranges:
        start = whole.start
        while start < whole.end:
            split = min(done * tasks // total, tasks - 1)
            # The first offset count that belongs to the next task.
            border = -(-(split + 1) * total // tasks)
            end = min(whole.end, start + border - done)
            # The leader epoch is that of the range's own start.
            epoch = whole.epoch if start == whole.start else -1
            splits[split].append(
                OffsetRange(topic=whole.topic, partition=whole.partition, start=start, end=end, epoch=epoch)
            )
            done += end - start
            start = end
    return tuple(tuple(split) for split in splits if split)
