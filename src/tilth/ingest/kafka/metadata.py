"""Answers of brokers about topics and offsets, after they were checked. Pure.

Covers: the values, and the only code that turns a number of the client library into an offset. Does not cover:
requests (broker.py), gaps (gaps.py). Always holds: an Offset is a number from 0 up. The client library answers
requests that nobody answered with the offset -1001 and no error; such a number never gets further than here.

Tests: tests/unit/ingest/kafka/test_gaps.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

import msgspec

from tilth.model.offset import TopicPartition

#: Kafka offset: 0 or more.
Offset = NewType("Offset", int)
#: Answer of the protocol if there is no offset, as for a time after the last message.
_NONE = -1
#: The answer of a broker that knows no topic ids.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class PartitionEnd(msgspec.Struct, frozen=True, kw_only=True):
    """End of a topic partition, as its leader reports it."""

    #: Offset at which reading ends now: with read_committed, before the first message of an open transaction.
    stable: Offset
    #: High watermark: the offset after the last message.
    high: Offset
    #: The newest leader epoch of the log; -1: the broker does not report it.
    epoch: int = -1


class ReportedEnd(msgspec.Struct, frozen=True, kw_only=True):
    """End of a topic partition, on its way from a consumer to the server."""

    topic_partition: TopicPartition
    end: PartitionEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics of a Kafka table, as one cluster has them."""

    #: The cluster's id; empty: the broker does not report it.
    cluster: str
    #: Number of partitions of each topic.
    partitions: Mapping[str, int]
    #: Id of each topic; a topic that is deleted and created again gets another one.
    ids: Mapping[str, str]

    @property
    def positions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, count in self.partitions.items() for number in range(count)]


def offset_of(answer: int) -> Offset:
    """Raises ValueError for an answer that is none."""
    if answer < 0:
        raise ValueError(answer)
    return Offset(answer)


def offset_or_none(answer: int) -> Offset | None:
    """Return None if there is no such offset; raises ValueError for an answer that is none."""
    return None if answer == _NONE else offset_of(answer)


def topic_id_of(answer: object, topic: str) -> str:
    """Return the topic's id as Kafka itself spells it, whichever of the two spellings of base64 the client library has;
    of brokers that know no ids, the topic's name.
    """
    text = "" if answer is None else str(answer).replace("+", "-").replace("/", "_")
    return f"name:{topic}" if text in ("", _NO_ID) else text
