"""Messages that should have been read and are not there. Pure.

Covers: telling a gap from the stored offsets and what the topic holds. Does not cover: asking the broker, recording.
Always holds: a stored offset inside of what the topic holds, or right behind it, is no gap, unless the topic is
another.
See also: DESIGN.md 7, "Gaps".
"""

from __future__ import annotations

from collections.abc import Mapping

from tilth.model.offset import IngestGap, TopicPartition

_DELETED = "the broker has deleted these messages before they were read"
_TRUNCATED = "the topic ends before the stored offset: it was truncated"
_RECREATED = "the topic was deleted and made anew"


def find_gaps(
    kafka_table: str,
    *,
    stored: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    recreated: frozenset[str],
    now_ms: int,
) -> list[IngestGap]:
    """The gaps of the partitions that the topics have; those of a topic made anew that nothing was read of are none."""
    found = []
    for place in sorted(ends):
        position = stored.get(place)
        if position is None:
            continue
        low, high = earliest[place], ends[place]
        if place.topic in recreated and position != low:
            reason, end = _RECREATED, low
        elif position < low:
            reason, end = _DELETED, low
        elif position > high:
            reason, end = _TRUNCATED, high
        else:
            continue
        found.append(
            IngestGap(
                kafka_table=kafka_table,
                topic=place.topic,
                partition=place.partition,
                start=position,
                end=end,
                reason=reason,
                at_ms=now_ms,
            )
        )
    return found
