"""Client of the brokers: metadata, offsets, messages of explicit ranges.

Covers: everything that needs the Kafka client. Does not cover: decoding (messages/decode.py), which offsets are right
(offsets/positions.py).
Always holds: partitions are assigned by hand, no consumer group is joined, nothing is committed to the broker but by
`commit` (group_offsets.py); a range ends by position, so holes of compacted topics and of transactions are passed; an
answer without an offset is an error, never an offset (metadata.py). See also:
docs/design/0006-measured.md#fetching-from-kafka.

Tests: tests/integration/ingest/test_faulty_broker.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import groupby
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.secrets import without_secrets
from tilth.ingest.errors import BrokerUnavailableError, OffsetGapError, UnknownTopicError
from tilth.ingest.kafka.group_offsets import EVENTS_MAX, GroupOffsets
from tilth.ingest.kafka.metadata import Offset, PartitionEnd, Topics, offset_or_none, topic_id_of
from tilth.ingest.settings import KafkaConfig
from tilth.model.offset import OffsetRange, StoredOffset, TopicPartition

REQUEST_SECONDS_MAX = 5.0
#: A range whose next message does not come for so long is given up; the next round tries again.
STALL_SECONDS_MAX = 30.0
_BATCH_MESSAGES = 5_000
_POLL_SECONDS = 0.1
_RECEIVE_BYTES_MIN = 100_000_000
_QUEUED_KIB = 16_384
_PROBE_BYTES = 65_536
_UNCOMMITTED = "READ_UNCOMMITTED"
_HINT = "check that the brokers run and that kafka_broker_list names them"

_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_UNKNOWN = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
)
#: Passing troubles that the client library mends by itself.
_PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)

_error_of = operator.methodcaller("error")
_topic_of, _number_of = operator.methodcaller("topic"), operator.methodcaller("partition")
_FIRST, _SECOND = operator.itemgetter(0), operator.itemgetter(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Some messages of one topic partition, in the order of their offsets."""

    topic: str
    partition: int
    # Any: the client library's messages; decode.Message says what is used of them.
    messages: Sequence[Any]


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
            self._admin: AdminClient | None = AdminClient(_settings(config))
        except (KafkaException, ValueError, TypeError) as error:
            raise _unavailable(config, error) from None
        #: Made when offsets are first sent.
        self._group_offsets: GroupOffsets | None = None

    def topics(self) -> Topics:
        """The cluster, how many partitions each topic of the Kafka table has, and the topics' ids."""
        admin = self._client()
        try:
            found = admin.list_topics(timeout=REQUEST_SECONDS_MAX)
        except KafkaException as error:
            raise _unavailable(self._config, error) from error
        counts = {topic: len(found.topics[topic].partitions) for topic in self._config.topics if topic in found.topics}
        missing = [topic for topic in self._config.topics if not counts.get(topic)]
        if missing:
            raise _unknown(self._config, missing[0])
        # Any: the library declares it as None.
        cluster: Any = found.cluster_id
        return Topics(cluster=cluster or "", partitions=counts, ids=self.topic_ids())

    def cluster(self, seconds_max: float = REQUEST_SECONDS_MAX) -> tuple[str, list[str]]:
        """The cluster's id, empty if the broker does not report it, and the addresses that its brokers announce."""
        try:
            found = self._client().list_topics(timeout=seconds_max)
        except KafkaException as error:
            raise _unavailable(self._config, error) from error
        # Any: the library declares it as None.
        cluster: Any = found.cluster_id
        return cluster or "", [f"{each.host}:{each.port}" for each in found.brokers.values()]

    def topic_ids(self) -> dict[str, str]:
        """An id for each topic that is another one once the topic was deleted and made again."""
        topics, admin = confluent_kafka.TopicCollection(list(self._config.topics)), self._client()
        futures = self._request(lambda: admin.describe_topics(topics, request_timeout=REQUEST_SECONDS_MAX))
        return {topic: topic_id_of(self._answer(future, topic).topic_id, topic) for topic, future in futures.items()}

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The first offsets that are still there."""
        answers = self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the library's own
        return {partition: self._offset(partition, answer.offset) for partition, answer in answers()}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionEnd]:
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library's own
        # Both requests are sent before either answer is awaited. The high watermark comes last: it is never the smaller
        # one.
        stable = self._offsets(partitions, latest)
        high = stable if self._isolation == _UNCOMMITTED else self._offsets(partitions, latest, isolation=_UNCOMMITTED)
        stables = {partition: self._offset(partition, answer.offset) for partition, answer in stable()}
        return {
            partition: PartitionEnd(
                stable=stables[partition],
                high=max(stables[partition], self._offset(partition, answer.offset)),
                epoch=_epoch(answer.leader_epoch),
            )
            for partition, answer in high()
        }

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
                self._config.table, _settings(self._config) | {"group.id": self._config.group}
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
            hint=_HINT,
        )

    def _first_event(self, partition: TopicPartition, stored: StoredOffset, *, reset: str) -> _Event | None:
        """The first message that a consumer finds, or the partition's end; None: an error, or nothing in time."""
        settings = _fetch_settings(self._config) | {"auto.offset.reset": reset, "queued.min.messages": 1}
        settings |= {"max.partition.fetch.bytes": _PROBE_BYTES}
        try:
            consumer = _consumer(self._config, settings)
            try:
                start = (partition.topic, partition.partition, stored.offset)
                consumer.assign([confluent_kafka.TopicPartition(*start, leader_epoch=stored.epoch)])
                for _ in range(round(REQUEST_SECONDS_MAX / _POLL_SECONDS)):
                    message = consumer.poll(_POLL_SECONDS)
                    error = None if message is None else message.error()
                    if message is None or (error is not None and error.code() in _PASSING):
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
            raise _unavailable(self._config, error) from error

    # Any: futures of the client library.
    def _request(self, call: Callable[[], Any]) -> dict[Any, Any]:
        try:
            return dict(call())
        except KafkaException as error:
            raise _unavailable(self._config, error) from error

    def _answer(self, future: Any, topic: str) -> Any:
        try:
            return future.result(REQUEST_SECONDS_MAX + 1)
        except KafkaException as error:
            if error.args[0].code() in _UNKNOWN:
                raise _unknown(self._config, topic) from error
            raise _unavailable(self._config, error) from error
        except TimeoutError as error:
            raise _unavailable(self._config, error) from error


def fetch(clock: Clock, config: KafkaConfig, ranges: Iterable[OffsetRange]) -> Iterator[Fetched]:
    """The messages of the ranges, a few thousand at a time; ranges are of different partitions.

    Raises OffsetGapError if the broker no longer has these offsets, BrokerUnavailableError when no message arrives.
    """
    left = {(each.topic, each.partition): each for each in ranges if each.start < each.end}
    if not left:
        return
    next_offsets = {partition: each.start for partition, each in left.items()}
    only = next(iter(left)) if len(left) == 1 else None
    consumer = _consumer(config, _fetch_settings(config))
    try:
        consumer.assign([_assigned(each) for each in left.values()])
        received_at = clock.monotonic()
        while left:
            wanted = sum(each.end - next_offsets[partition] for partition, each in left.items())
            batch = consumer.consume(min(_BATCH_MESSAGES, wanted), _POLL_SECONDS)
            if batch:
                received_at = clock.monotonic()
            elif clock.monotonic() - received_at > STALL_SECONDS_MAX:
                raise _stalled(config, next_offsets, left)
            groups = {} if not batch else {only: batch} if only else _by_partition(batch)
            for partition, messages in groups.items():
                if partition not in left:
                    continue
                kept, position = _within(config, messages, left[partition])
                next_offsets[partition] = max(next_offsets[partition], position)
                if next_offsets[partition] >= left[partition].end:
                    del left[partition]
                    if left:
                        consumer.pause([confluent_kafka.TopicPartition(*partition)])
                if kept:
                    yield Fetched(topic=partition[0], partition=partition[1], messages=kept)
    finally:
        consumer.close()


def _consumer(config: KafkaConfig, settings: dict[str, Any]) -> confluent_kafka.Consumer:
    """Raises BrokerUnavailableError for settings that the client library does not accept."""
    try:
        return confluent_kafka.Consumer(settings)
    except (KafkaException, ValueError, TypeError) as error:
        # The library's error quotes values, secrets included.
        raise _unavailable(config, error) from None


def _assigned(each: OffsetRange) -> confluent_kafka.TopicPartition:
    """Return the position to read from; with a leader epoch, the client library first checks that the log still is
    that one.
    """
    if each.epoch < 0:
        return confluent_kafka.TopicPartition(each.topic, each.partition, each.start)
    return confluent_kafka.TopicPartition(each.topic, each.partition, each.start, leader_epoch=each.epoch)


def _by_partition(batch: list[Any]) -> dict[tuple[str, int], list[Any]]:
    """The messages by topic partition, each list in the order of offsets."""
    partitions = list(zip(map(_topic_of, batch), map(_number_of, batch), strict=True))
    if partitions.count(partitions[0]) == len(batch):
        return {partitions[0]: batch}
    groups: dict[tuple[str, int], list[Any]] = {}
    for partition, run in groupby(zip(partitions, batch, strict=True), _FIRST):
        groups.setdefault(partition, []).extend(map(_SECOND, run))
    return groups


def _within(config: KafkaConfig, messages: list[Any], wanted: OffsetRange) -> tuple[list[Any], int]:
    """Return those of one partition's messages that are in the range, and the position reached."""
    last = messages[-1]
    if (last.offset() or 0) < wanted.end and not any(map(_error_of, messages)):
        return messages, last.offset() + 1
    kept, position = [], wanted.start
    for message in messages:
        error = message.error()
        if error is not None:
            position = max(position, _after_error(config, message, error))
        else:
            position = message.offset() + 1
            if message.offset() < wanted.end:
                kept.append(message)
    return kept, position


# Any: the client library's messages and errors.
def _after_error(config: KafkaConfig, message: Any, error: Any) -> int:
    """Return the position of an event of the client library; raises if it is a failure."""
    if error.code() == KafkaError._PARTITION_EOF:
        return int(message.offset())
    if error.code() in _OUT_OF_RANGE:
        hint = "SYSTEM RESET CONSUME OFFSET decides where to go on"
        raise OffsetGapError(
            table=config.table, topic=message.topic(), partition=message.partition(), why=error.str(), hint=hint
        )
    if error.code() in _UNKNOWN:
        raise _unknown(config, message.topic())
    if error.code() in _PASSING:
        return -1
    raise _unavailable(config, error)


def _settings(config: KafkaConfig) -> dict[str, Any]:
    return {
        "bootstrap.servers": config.brokers,
        "socket.connection.setup.timeout.ms": 5_000,
        "reconnect.backoff.max.ms": 1_000,
        # The client library's own lines would go to standard error, or into a queue that nobody empties; what matters
        # comes back as an error.
        "log_level": 0,
        **dict(config.library),
    }


def _fetch_settings(config: KafkaConfig) -> dict[str, Any]:
    """Return the client's settings. With small fetches the first message of a fresh consumer comes within 15 ms."""
    return {
        "group.id": config.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": config.isolation,
        "fetch.max.bytes": max(config.fetch_bytes, 1_000_000),
        "max.partition.fetch.bytes": config.fetch_bytes,
        "receive.message.max.bytes": max(_RECEIVE_BYTES_MIN, 2 * config.fetch_bytes),
        "queued.max.messages.kbytes": _QUEUED_KIB,
        "queued.min.messages": 100_000,
        "fetch.wait.max.ms": 10,
        "fetch.queue.backoff.ms": 5,
        # The range must be whole and as it was sent.
        "check.crcs": True,
        **_settings(config),
    }


def _unavailable(config: KafkaConfig, error: object) -> BrokerUnavailableError:
    text = error.args[0].str() if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError) else error
    why = without_secrets(str(text), config.secrets) or "no answer"
    return BrokerUnavailableError(table=config.table, brokers=config.brokers, why=why, hint=_HINT)


def _epoch(answer: int | None) -> int:
    return -1 if answer is None else answer


def _unknown(config: KafkaConfig, topic: str) -> UnknownTopicError:
    hint = "create the topic, or correct kafka_topic_list"
    return UnknownTopicError(table=config.table, topic=topic, brokers=config.brokers, hint=hint)


def _stalled(
    config: KafkaConfig, next_offsets: Mapping[tuple[str, int], int], left: Mapping[tuple[str, int], OffsetRange]
) -> TilthError:
    (topic, partition), wanted = next(iter(left.items()))
    return BrokerUnavailableError(
        "the next message does not come",
        table=config.table,
        brokers=config.brokers,
        topic=topic,
        partition=partition,
        offset=next_offsets[topic, partition],
        end=wanted.end,
        seconds=STALL_SECONDS_MAX,
    )
