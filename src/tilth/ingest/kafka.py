"""Talking to brokers: metadata, offsets, messages of explicit ranges.

Covers: everything that needs the Kafka client. Does not cover: decoding (decode.py), which offsets are right
(manager.py).
Always holds: partitions are assigned by hand, no consumer group is joined, nothing is committed to the broker but by
`commit`; a range ends by position, so holes of compacted topics and of transactions are passed. See also: MEASURED.md.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.secrets import without_secrets
from tilth.ingest.errors import BrokerUnavailableError, OffsetGapError, UnknownTopicError
from tilth.ingest.settings import KafkaConfig
from tilth.model.offset import OffsetRange, TopicPartition

T = TypeVar("T")

REQUEST_SECONDS_MAX = 5.0
#: A range whose next message does not come for so long is given up; the next round tries again.
STALL_SECONDS_MAX = 30.0
_BATCH_MESSAGES = 5_000
_POLL_SECONDS = 0.1
_RECEIVE_BYTES_MIN = 100_000_000
_QUEUED_KIB = 16_384

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

# The client library's own lines would go to standard error; what matters comes back as an error.
_silent = logging.getLogger("tilth.ingest.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Some messages of one topic partition, in the order of their offsets."""

    topic: str
    partition: int
    # Any: the client library's messages; decode.Message says what is used of them.
    messages: Sequence[Any]


class BrokerClient:
    """Asks the brokers of one Kafka table. Every call raises BrokerUnavailableError or UnknownTopicError."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        try:
            self._admin = AdminClient(_settings(config), logger=_silent)
        except (KafkaException, ValueError, TypeError) as error:
            raise _unavailable(config, error) from None
        self._committer: confluent_kafka.Consumer | None = None

    def partitions(self) -> dict[str, int]:
        """How many partitions each topic of the Kafka table has."""
        try:
            found = self._admin.list_topics(timeout=REQUEST_SECONDS_MAX).topics
        except KafkaException as error:
            raise _unavailable(self._config, error) from error
        counts = {topic: len(found[topic].partitions) for topic in self._config.topics if topic in found}
        missing = [topic for topic in self._config.topics if not counts.get(topic)]
        if missing:
            raise _unknown(self._config, missing[0])
        return counts

    def topic_ids(self) -> dict[str, str]:
        """An id for each topic that is another one once the topic was deleted and made again."""
        topics = confluent_kafka.TopicCollection(list(self._config.topics))
        futures = self._ask(lambda: self._admin.describe_topics(topics, request_timeout=REQUEST_SECONDS_MAX))
        return {topic: str(self._answer(future, topic).topic_id) for topic, future in futures.items()}

    def earliest(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets that are still there."""
        return self._offsets(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the library's own

    def ends(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets up to which can be read now: behind the last message that is not in an open transaction."""
        return self._offsets(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # the library's own

    def at_time(self, places: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """The offsets of the first messages at or after a time; the end where there is none."""
        found = self._offsets(places, OffsetSpec.for_timestamp(timestamp_ms))
        late = [place for place, offset in found.items() if offset < 0]
        return found | (self.ends(late) if late else {})

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Tells the broker for lag monitors; best effort: what goes wrong has no consequence, and is not told."""
        try:
            if self._committer is None:
                self._committer = confluent_kafka.Consumer(
                    _settings(self._config) | {"group.id": self._config.group, "enable.auto.commit": False},
                    logger=_silent,
                )
            told = [confluent_kafka.TopicPartition(p.topic, p.partition, offset) for p, offset in offsets.items()]
            self._committer.commit(offsets=told, asynchronous=True)
        except KafkaException as error:
            _silent.debug("commit: %s", error)

    def close(self) -> None:
        if self._committer is not None:
            self._committer.close()
            self._committer = None

    def _offsets(self, places: Collection[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        if not places:
            return {}
        level = "READ_COMMITTED" if self._config.isolation == "read_committed" else "READ_UNCOMMITTED"
        isolation = getattr(confluent_kafka.IsolationLevel, level)
        asked = {confluent_kafka.TopicPartition(place.topic, place.partition): spec for place in places}
        futures = self._ask(
            lambda: self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=REQUEST_SECONDS_MAX)
        )
        return {
            TopicPartition(each.topic, each.partition): int(self._answer(future, each.topic).offset)
            for each, future in futures.items()
        }

    # Any: futures of the client library.
    def _ask(self, call: Any) -> dict[Any, Any]:
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

    Raises OffsetGapError where the broker no longer has what was asked for, BrokerUnavailableError when no message
    comes.
    """
    left = {(each.topic, each.partition): each for each in ranges if each.start < each.end}
    if not left:
        return
    next_offsets = {place: each.start for place, each in left.items()}
    only = next(iter(left)) if len(left) == 1 else None
    consumer = _consumer(config)
    try:
        consumer.assign([confluent_kafka.TopicPartition(t, p, each.start) for (t, p), each in left.items()])
        heard = clock.monotonic()
        while left:
            wanted = sum(each.end - next_offsets[place] for place, each in left.items())
            batch = consumer.consume(min(_BATCH_MESSAGES, wanted), _POLL_SECONDS)
            if batch:
                heard = clock.monotonic()
            elif clock.monotonic() - heard > STALL_SECONDS_MAX:
                raise _stalled(config, next_offsets, left)
            groups = _by_place(batch) if only is None else {only: batch} if batch else {}
            for place, messages in groups.items():
                if place not in left:
                    continue
                kept, position = _within(config, messages, left[place])
                next_offsets[place] = max(next_offsets[place], position)
                if next_offsets[place] >= left[place].end:
                    del left[place]
                    if left:
                        consumer.pause([confluent_kafka.TopicPartition(*place)])
                if kept:
                    yield Fetched(topic=place[0], partition=place[1], messages=kept)
    finally:
        consumer.close()


def _consumer(config: KafkaConfig) -> confluent_kafka.Consumer:
    """Raises BrokerUnavailableError for settings that the client library does not take."""
    try:
        return confluent_kafka.Consumer(_fetch_settings(config), logger=_silent)
    except (KafkaException, ValueError, TypeError) as error:
        # The library's error quotes values, secrets included.
        raise _unavailable(config, error) from None


def _by_place(batch: list[Any]) -> dict[tuple[str, int], list[Any]]:
    """The messages by topic partition, each list in the order of offsets."""
    groups: dict[tuple[str, int], list[Any]] = {}
    for place, run in groupby(batch, _place_of):
        groups.setdefault(place, []).extend(run)
    return groups


# Any: the client library's message.
def _place_of(message: Any) -> tuple[str, int]:
    return message.topic(), message.partition()


def _within(config: KafkaConfig, messages: list[Any], wanted: OffsetRange) -> tuple[list[Any], int]:
    """Of one partition's messages those of the range, and the position reached."""
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
    """The position that an event of the client library tells; raises if it is a failure."""
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
        **dict(config.library),
    }


def _fetch_settings(config: KafkaConfig) -> dict[str, Any]:
    """MEASURED.md: with small fetches the first message of a fresh consumer comes within 15 ms."""
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
    told = error.args[0].str() if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError) else error
    hint = "check that the brokers run and that kafka_broker_list names them"
    why = without_secrets(str(told), config.secrets) or "no answer"
    return BrokerUnavailableError(table=config.table, brokers=config.brokers, why=why, hint=hint)


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
