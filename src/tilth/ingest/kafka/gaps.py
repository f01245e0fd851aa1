"""Messages that should have been read and are not there. Pure.

Covers: finding gaps from the stored offsets and what the topics hold, and gaps that turned out to be none. Does not
cover: requests to the broker, recording. Always holds: a stored offset within its topic's range, or right behind it, is
no gap, unless a leader reports that the log of that time ended before it; an answer of a leader that is older than the
one that the offset was read from proves nothing. See also: docs/policies/consumers.md#gaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from tilth.ingest.kafka.metadata import Offset, PartitionEnd
from tilth.model.offset import IngestGap, StoredOffset, TopicPartition

DELETED = "the broker has deleted these messages before they were read"
TRUNCATED = "the topic ends before the stored offset: it was truncated"
REPLACED = (
    "the log was truncated below the stored offset, and other messages stand there now: an unclean leader election"
)
#: Also the resolution of a gap in the former topic, where nothing had been read of it.
RECREATED = "the topic was deleted and made anew"
#: The resolution of a gap that was none.
CLOSED = "closed: the topic holds the offset again"
#: The end of a gap that is not known.
_UNKNOWN_END = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Answers of brokers about a Kafka table's topics, at one time."""

    #: Topic ids by topic.
    ids: Mapping[str, str]
    #: First offsets that are still there.
    earliest: Mapping[TopicPartition, Offset]
    ends: Mapping[TopicPartition, PartitionEnd]


@dataclass(slots=True, kw_only=True)
class Findings:
    """Conclusions from stored offsets and an observation."""

    gaps: list[IngestGap] = field(default_factory=list)
    #: New offsets of partitions of topics made anew, of which nothing had been read.
    anew: dict[TopicPartition, StoredOffset] = field(default_factory=dict)
    #: Topic partitions that nothing had been read of, and that the topic made anew does not have.
    vanished: list[TopicPartition] = field(default_factory=list)
    #: Topic partitions whose leader is older than the one that was read from: it proves nothing.
    stale: list[TopicPartition] = field(default_factory=list)


def find_gaps(
    kafka_table: str, *, stored: Mapping[TopicPartition, StoredOffset], observed: Observed, now_ms: int
) -> Findings:
    """Return the gaps of all topic partitions with a stored offset whose topics were observed."""
    findings = Findings()
    for partition, known in sorted(stored.items()):
        if partition.topic not in observed.ids:
            continue
        end, low = observed.ends.get(partition), observed.earliest.get(partition)
        if is_other_topic(known, observed.ids[partition.topic]):
            if known.offset == (low or 0):
                _begin_anew(findings, partition, observed)
                continue
            reason, gap_end = RECREATED, _UNKNOWN_END if low is None else low
        elif end is None or low is None:
            # The metadata is older than the partition.
            continue
        elif is_stale(known, end):
            findings.stale.append(partition)
            continue
        elif known.offset < low:
            reason, gap_end = DELETED, low
        elif known.offset > end.high:
            reason, gap_end = TRUNCATED, end.high
        else:
            continue
        findings.gaps.append(gap_at(kafka_table, partition, known, end=gap_end, reason=reason, now_ms=now_ms))
    return findings


def gap_at(
    kafka_table: str, partition: TopicPartition, stored: StoredOffset, *, end: int, reason: str, now_ms: int
) -> IngestGap:
    """The gap that begins at a stored offset."""
    return IngestGap(
        kafka_table=kafka_table,
        topic=partition.topic,
        partition=partition.partition,
        start=stored.offset,
        end=end,
        reason=reason,
        at_ms=now_ms,
    )


def is_other_topic(stored: StoredOffset, topic_id: str) -> bool:
    """True if the offset was stored of a topic of the same name that is not this one."""
    return stored.topic_id != topic_id


def is_stale(stored: StoredOffset, end: PartitionEnd) -> bool:
    """True if the leader that answered is older than the one that the offset was read from."""
    return 0 <= end.epoch < stored.epoch


class Closing(Enum):
    """Verdict of an observation about an open gap."""

    #: It is one, or nothing proves that it is none.
    STAYS = auto()
    #: It is none.
    CLOSES = auto()
    #: It is none if the log still is the one of the stored offset, by its leader epoch.
    IF_LOG_HOLDS = auto()


def closing(gap: IngestGap, stored: StoredOffset | None, observed: Observed) -> Closing:
    """Decide whether a gap turned out to be none.

    That the topic reaches the offset again is no proof by itself: other messages may stand there. The topic id proves
    that a topic taken for another one is the one that was read; the leader epoch proves that the log was not truncated.
    """
    partition = TopicPartition(gap.topic, gap.partition)
    end, low = observed.ends.get(partition), observed.earliest.get(partition)
    if stored is None or end is None or low is None or stored.offset != gap.start:
        return Closing.STAYS
    if is_other_topic(stored, observed.ids[gap.topic]) or is_stale(stored, end):
        return Closing.STAYS
    if not low <= stored.offset <= end.high:
        return Closing.STAYS
    if gap.reason == RECREATED:
        return Closing.CLOSES
    return Closing.IF_LOG_HOLDS if stored.epoch >= 0 else Closing.STAYS


def _begin_anew(findings: Findings, partition: TopicPartition, observed: Observed) -> None:
    low, end = observed.earliest.get(partition), observed.ends.get(partition)
    if low is None or end is None:
        findings.vanished.append(partition)
    else:
        findings.anew[partition] = StoredOffset(low, observed.ids[partition.topic], end.epoch)
