"""Client of the brokers: metadata and offsets.

Covers: what is requested of brokers but messages. Does not cover: fetching (fetch.py), which offsets are right
(offsets/positions.py).
Always holds: no consumer group is joined, nothing is committed to the broker but by `commit` (group_offsets.py); an
answer without an offset is an error, never an offset (metadata.py).

Tests: tests/integration/ingest/test_faulty_broker.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from tilth.ingest.errors import BrokerUnavailableError
from tilth.ingest.kafka.client import (
    HINT,
    PASSING,
    UNKNOWN,
    client_settings,
    fetch_settings,
    unavailable,
    unknown_topic,
)
from tilth.ingest.kafka.group_offsets import EVENTS_MAX, GroupOffsets
from tilth.ingest.kafka.metadata import Offset, PartitionEnd, Topics, offset_or_none, topic_id_of
from tilth.ingest.settings import KafkaConfig
from tilth.model.offset import StoredOffset, TopicPartition

REQUEST_SECONDS_MAX = 5.0
_POLL_SECONDS = 0.1
_PROBE_BYTES = 65_536
_UNCOMMITTED = "READ_UNCOMMITTED"


@dataclass(frozen=True, slots=True)
class _Event:
    """Event that a consumer reads: a message, or the end of its topic partition."""

    offset: int
    #: Epoch of the message's leader; -1 at the end.
    epoch: int


class Holds(Enum):
    """Verdict whether a topic partition still is the log in which a stored offset was reached."""

    YES = auto()
    #: A leader says that the log of that time ended before the offset.
    NO = auto()
    UNKNOWN = auto()


class BrokerClient:
    """Client of the brokers of one Kafka table. Every call raises BrokerUnavailableError or UnknownTopicError.

    One thread at a time. Nothing runs in the background: events of the client library between two calls are dropped by
    the next call.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        try:
            self._admin: AdminClient | None = AdminClient(client_settings(config))
        except (KafkaException, ValueError, TypeError) as error:
            raise unavailable(config, error) from None
        #: Made when offsets are first sent.
        self._group_offsets: GroupOffsets | None = None

    def topics(self) -> Topics:
        """The cluster, how many partitions each topic of the Kafka table has, and the topics' ids."""
        admin = self._client()
        try:
            found = admin.list_topics(timeout=REQUEST_SECONDS_MAX)
        except KafkaException as error:
            raise unavailable(self._config, error) from error
        counts = {topic: len(found.topics[topic].partitions) for topic in self._config.topics if topic in found.topics}
        missing = [topic for topic in self._config.topics if not counts.get(topic)]
        if missing:
            raise unknown_topic(self._config, missing[0])
        # Any: the library declares it as None.
        cluster: Any = found.cluster_id
        return Topics(cluster=cluster or "", partitions=counts, ids=self.topic_ids())

    def cluster(self, seconds_max: float = REQUEST_SECONDS_MAX) -> tuple[str, list[str]]:
        """The cluster's id, empty if the broker does not report it, and the addresses that its brokers announce."""
        try:
            found = self._client().list_topics(timeout=seconds_max)
        except KafkaException as error:
            raise unavailable(self._config, error) from error
        # Any: the library declares it as None.
        cluster: Any = found.cluster_id
        return cluster or "", [f"{each.host}:{each.port}" for each in found.brokers.values()]

    def topic_ids(self) -> dict[str, str]:
        """An id for each topic that is another one once the topic was deleted and made again."""
        return self._topic_ids()()

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The first offsets that are still there."""
        answers = self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the library's own
        return {partition: self._offset(partition, answer.offset) for partition, answer in answers()}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionEnd]:
        return self._ends(partitions)()

    def ids_and_ends(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[str, str], dict[TopicPartition, PartitionEnd]]:
        """Return `topic_ids` and `ends`, which are requested together."""
        ids, ends = self._topic_ids(), self._ends(partitions)
        return ids(), ends()

    def _topic_ids(self) -> Callable[[], dict[str, str]]:
        """Send the request; the returned function waits for the answers."""
        topics, admin = confluent_kafka.TopicCollection(list(self._config.topics)), self._client()
        futures = self._request(lambda: admin.describe_topics(topics, request_timeout=REQUEST_SECONDS_MAX))
        return lambda: {
            topic: topic_id_of(self._answer(future, topic).topic_id, topic) for topic, future in futures.items()
        }

    def _ends(self, partitions: Collection[TopicPartition]) -> Callable[[], dict[TopicPartition, PartitionEnd]]:
        """Send the requests; the returned function waits for the answers."""
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library's own
        # Both requests are sent before either answer is awaited. The high watermark comes last: it is never the smaller
        # one.
        stable = self._offsets(partitions, latest)
        high = stable if self._isolation == _UNCOMMITTED else self._offsets(partitions, latest, isolation=_UNCOMMITTED)

        def answers() -> dict[TopicPartition, PartitionEnd]:
            stables = {partition: self._offset(partition, answer.offset) for partition, answer in stable()}
            return {
                partition: PartitionEnd(
                    stable=stables[partition],
                    high=max(stables[partition], self._offset(partition, answer.offset)),
                    epoch=_epoch(answer.leader_epoch),
                )
                for partition, answer in high()
            }

        return answers

    def at_time(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, Offset]:
        """The offsets of the first messages at or after a time; the end where there is none."""
        answers = self._offsets(partitions, OffsetSpec.for_timestamp(timestamp_ms))
        found = {partition: self._offset_or_none(partition, answer.offset) for partition, answer in answers()}
        late = self.ends([partition for partition, offset in found.items() if offset is None])
        return {partition: late[partition].stable if offset is None else offset for partition, offset in found.items()}

    def holds(self, partition: TopicPartition, stored: StoredOffset) -> tuple[Holds, int]:
        """Check whether the topic partition still is the log in which the offset was stored, by the leader epoch of
        then; with NO, return also the offset up to which it is. UNKNOWN if no broker answers in time, and without an
        epoch.
        """
        self._client()
        if stored.epoch < 0:
            return Holds.UNKNOWN, -1
        # A consumer that may not move proves that the offset is valid: it reads there.
        if self._first_event(partition, stored, reset="error") is not None:
            return Holds.YES, -1
        # One that may move goes to where the logs diverge, and finds there what a later leader has written. If no
        # broker knows that offset, it goes to the end; a stale leader has no message of a later one.
        found = self._first_event(partition, stored, reset="latest")
        if found is not None and found.offset < stored.offset and found.epoch > stored.epoch:
            return Holds.NO, found.offset
        return Holds.UNKNOWN, -1

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Send the offsets to the broker for lag monitors; best effort: errors are ignored."""
        if self._group_offsets is None:
            self._group_offsets = GroupOffsets(
                self._config.table, client_settings(self._config) | {"group.id": self._config.group}
            )
        self._group_offsets.send(offsets)

    def close(self) -> None:
        """End the client's threads; the object cannot be used any more."""
        self._admin = None
        if self._group_offsets is not None:
            self._group_offsets.close()
            self._group_offsets = None

    def _client(self) -> AdminClient:
        """Return the client, after its events since the last call were dropped: it would keep them all."""
        assert self._admin is not None, "the client is closed"
        for _ in range(EVENTS_MAX):
            if not self._admin.poll(0):
                break
        return self._admin

    @property
    def _isolation(self) -> str:
        return "READ_COMMITTED" if self._config.isolation == "read_committed" else _UNCOMMITTED

    # Any: the client library's answers.
    def _offsets(
        self, partitions: Collection[TopicPartition], spec: OffsetSpec, *, isolation: str | None = None
    ) -> Callable[[], Iterator[tuple[TopicPartition, Any]]]:
        """Send the requests; the returned function waits for the answers."""
        if not partitions:
            return lambda: iter(())
        admin, level = self._client(), getattr(confluent_kafka.IsolationLevel, isolation or self._isolation)
        requests = {
            confluent_kafka.TopicPartition(partition.topic, partition.partition): spec for partition in partitions
        }
        futures = self._request(
            lambda: admin.list_offsets(requests, isolation_level=level, request_timeout=REQUEST_SECONDS_MAX)
        )
        return lambda: (
            (TopicPartition(each.topic, each.partition), self._answer(future, each.topic))
            for each, future in futures.items()
        )

    def _offset(self, partition: TopicPartition, answer: int) -> Offset:
        found = self._offset_or_none(partition, answer)
        if found is None:
            raise self._no_offset(partition, answer)
        return found

    def _offset_or_none(self, partition: TopicPartition, answer: int) -> Offset | None:
        try:
            return offset_or_none(int(answer))
        except ValueError as error:
            raise self._no_offset(partition, answer) from error

    def _no_offset(self, partition: TopicPartition, answer: int) -> BrokerUnavailableError:
        return BrokerUnavailableError(
            "the Kafka broker does not answer how far a topic partition reaches",
            table=self._config.table,
            brokers=self._config.brokers,
            topic=partition.topic,
            partition=partition.partition,
            answer=answer,
            hint=HINT,
        )

    def _first_event(self, partition: TopicPartition, stored: StoredOffset, *, reset: str) -> _Event | None:
        """The first message that a consumer finds, or the partition's end; None: an error, or nothing in time."""
        settings = fetch_settings(self._config) | {"auto.offset.reset": reset, "queued.min.messages": 1}
        settings |= {"max.partition.fetch.bytes": _PROBE_BYTES}
        try:
            consumer = _consumer(self._config, settings)
            try:
                start = (partition.topic, partition.partition, stored.offset)
                consumer.assign([confluent_kafka.TopicPartition(*start, leader_epoch=stored.epoch)])
                for _ in range(round(REQUEST_SECONDS_MAX / _POLL_SECONDS)):
                    message = consumer.poll(_POLL_SECONDS)
                    error = None if message is None else message.error()
                    if message is None or (error is not None and error.code() in PASSING):
                        continue
                    offset = message.offset()
                    is_event = error is None or error.code() == KafkaError._PARTITION_EOF
                    if offset is None or not is_event:
                        return None
                    return _Event(offset, _epoch(message.leader_epoch()) if error is None else -1)
                return None
            finally:
                consumer.close()
        except (KafkaException, RuntimeError) as error:
            raise unavailable(self._config, error) from error

    # Any: futures of the client library.
    def _request(self, call: Callable[[], Any]) -> dict[Any, Any]:
        try:
            return dict(call())
        except KafkaException as error:
            raise unavailable(self._config, error) from error

    def _answer(self, future: Any, topic: str) -> Any:
        try:
            return future.result(REQUEST_SECONDS_MAX + 1)
        except KafkaException as error:
            if error.args[0].code() in UNKNOWN:
                raise unknown_topic(self._config, topic) from error
            raise unavailable(self._config, error) from error
        except TimeoutError as error:
            raise unavailable(self._config, error) from error


def _consumer(config: KafkaConfig, settings: dict[str, Any]) -> confluent_kafka.Consumer:
    """Raises BrokerUnavailableError for settings that the client library does not accept."""
    try:
        return confluent_kafka.Consumer(settings)
    except (KafkaException, ValueError, TypeError) as error:
        # The library's error quotes values, secrets included.
        raise unavailable(config, error) from None


def _epoch(answer: int | None) -> int:
    return -1 if answer is None else answer
