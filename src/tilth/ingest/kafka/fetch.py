"""Messages of explicit ranges of offsets.

Covers: reading ranges to their ends, what events of the client library mean. Does not cover: the client library
(librdkafka.py), decoding (messages/decode.py), which offsets are right (offsets/positions.py).
Always holds: partitions are assigned by hand and no consumer group is joined; a range ends by position, so holes of
compacted topics and of transactions are passed. See also: docs/design/0006-measured.md#fetching-from-kafka.

Tests: tests/integration/ingest/test_fetch.py, tests/integration/ingest/test_faulty_broker.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from confluent_kafka import KafkaError

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.ingest.batch import MessageBatch, Numbers
from tilth.ingest.errors import BrokerUnavailableError, OffsetGapError
from tilth.ingest.kafka.client import OUT_OF_RANGE, PASSING, UNKNOWN, fetch_settings, unavailable, unknown_topic
from tilth.ingest.kafka.librdkafka import LibraryError, PolledConsumer
from tilth.ingest.kafka.messages import Polled
from tilth.ingest.settings import KafkaConfig
from tilth.model.offset import OffsetRange

#: A range whose next message does not come for so long is given up; the next round tries again.
STALL_SECONDS_MAX = 30.0
_BATCH_MESSAGES = 5_000
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Some messages of one topic partition."""

    topic: str
    partition: int
    messages: MessageBatch


def fetch(clock: Clock, config: KafkaConfig, ranges: Iterable[OffsetRange], *, has_headers: bool) -> Iterator[Fetched]:
    """The messages of the ranges, a few thousand at a time; ranges are of different partitions.

    `has_headers`: with their headers, which cost a call for each message. Raises OffsetGapError if the broker no longer
    has these offsets, BrokerUnavailableError when no message arrives.
    """
    left = {(each.topic, each.partition): each for each in ranges if each.start < each.end}
    if not left:
        return
    next_offsets = {partition: each.start for partition, each in left.items()}
    try:
        with PolledConsumer(fetch_settings(config)) as consumer:
            consumer.assign((each.topic, each.partition, each.start, each.epoch) for each in left.values())
            received_at = clock.monotonic()
            while left:
                wanted = sum(each.end - next_offsets[partition] for partition, each in left.items())
                with Polled(consumer.poll(min(_BATCH_MESSAGES, wanted), _POLL_SECONDS)) as polled:
                    if len(polled):
                        received_at = clock.monotonic()
                    elif clock.monotonic() - received_at > STALL_SECONDS_MAX:
                        raise _stalled(config, next_offsets, left)
                    found = list(_read(config, polled, left, next_offsets, has_headers=has_headers))
                for partition in [each for each in left if next_offsets[each] >= left[each].end]:
                    del left[partition]
                    if left:
                        consumer.pause(*partition)
                yield from found
    except LibraryError as error:
        # The library's error quotes values, secrets included.
        raise unavailable(config, error) from None


def _read(
    config: KafkaConfig,
    polled: Polled,
    left: Mapping[tuple[str, int], OffsetRange],
    next_offsets: dict[tuple[str, int], int],
    *,
    has_headers: bool,
) -> Iterator[Fetched]:
    """Yield the messages that are in the ranges, and move the next offsets on; raises what events of errors mean."""
    for (topic, partition), rows in polled.by_partition():
        if (topic, partition) not in left:
            continue
        kept, position = _within(config, polled, rows, left[topic, partition])
        next_offsets[topic, partition] = max(next_offsets[topic, partition], position)
        if len(kept):
            yield Fetched(topic=topic, partition=partition, messages=polled.messages(kept, has_headers=has_headers))


def _within(config: KafkaConfig, polled: Polled, rows: Numbers, wanted: OffsetRange) -> tuple[Numbers, int]:
    """Return those of one partition's rows that are messages in the range, and the position reached."""
    offsets, errors = polled.offsets[rows], polled.errors[rows]
    position = wanted.start
    for index in np.flatnonzero(errors).tolist():
        position = max(position, _after_error(config, polled, rows[index], wanted))
    are_messages = errors == 0
    if are_messages.any():
        position = max(position, int(offsets[are_messages][-1]) + 1)
    return rows[are_messages & (offsets < wanted.end)], position


def _after_error(config: KafkaConfig, polled: Polled, row: int, wanted: OffsetRange) -> int:
    """Return the position of an event of the client library; raises if it is a failure."""
    code = polled.errors[row]
    if code == KafkaError._PARTITION_EOF:
        return int(polled.offsets[row])
    why = polled.error_text(row)
    if code in OUT_OF_RANGE:
        hint = "SYSTEM RESET CONSUME OFFSET decides where to go on"
        raise OffsetGapError(table=config.table, topic=wanted.topic, partition=wanted.partition, why=why, hint=hint)
    if code in UNKNOWN:
        raise unknown_topic(config, wanted.topic)
    if code in PASSING:
        return -1
    raise unavailable(config, why)


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
