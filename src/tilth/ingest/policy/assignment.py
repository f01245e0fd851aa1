"""Partitions to consumers. Pure: the same topics and settings always give the same assignment.

Covers: how many consumers there are and what each reads. Does not cover: starting them (service/manager.py).
Always holds: every partition has exactly one consumer. See also: docs/policies/consumers.md#assignment.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilth.model.offset import TopicPartition


def consumer_count(*, wanted: int, partitions: Mapping[str, int]) -> int:
    """Return the number of consumers that have work: no more than the largest topic has partitions."""
    return min(wanted, max(partitions.values(), default=0))


def assign(*, consumers: int, partitions: Mapping[str, int]) -> tuple[tuple[TopicPartition, ...], ...]:
    """Assign partition p of every topic to consumer p mod n; return the partitions of each, in the order of topics."""
    return tuple(
        tuple(
            TopicPartition(topic, p) for topic in sorted(partitions) for p in range(index, partitions[topic], consumers)
        )
        for index in range(consumers)
    )
