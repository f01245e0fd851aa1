"""Messages of explicit ranges of offsets.

Covers: reading ranges to their ends, what events of the client library mean, replacing a client that is silent. Does
not cover: the client library (librdkafka.py), clients that stay open (open_client.py), decoding (messages/decode.py),
which offsets are right (offsets/positions.py).
Always holds: partitions are assigned by hand and no consumer group is joined; a range ends by position, so holes of
compacted topics and of transactions are passed. See also: docs/design/0006-measured.md#fetching-from-kafka.

Tests: tests/integration/ingest/test_fetch.py, tests/integration/ingest/test_faulty_broker.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from confluent_kafka import KafkaError

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.ingest.batch import MessageBatch, Numbers
from tilth.ingest.compiled import KernelLoader
from tilth.ingest.errors import BrokerUnavailableError, OffsetGapError
from tilth.ingest.kafka.client import OUT_OF_RANGE, PASSING, UNKNOWN, fetch_settings, unavailable, unknown_topic
from tilth.ingest.kafka.librdkafka import LibraryError, PolledConsumer
from tilth.ingest.kafka.messages import LOADER, Polled
from tilth.ingest.settings import KafkaConfig
from tilth.model.offset import OffsetRange

#: Times without progress after which a client is replaced by another one; behind the last one the ranges are given up,
#: and the next round tries again. One answer that names no broker leaves librdkafka 2.16 without any for good
#: (confluentinc/librdkafka#5301); a slow broker has the longer ones.
SILENT_SECONDS = (5.0, 10.0, 15.0)
_BATCH_MESSAGES = 5_000
_POLL_SECONDS = 0.1

_log = Log("ingest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Some messages of one topic partition."""

    topic: str
    partition: int
    messages: MessageBatch


class Clients(Protocol):
    """Clients for the fetches of one Kafka table."""

    def open(self, config: KafkaConfig, *, is_replacement: bool) -> PolledConsumer:
        """Return a client that nobody uses; `is_replacement`: a new one. Raises LibraryError."""

    def release(self, consumer: PolledConsumer, *, has_read_all: bool) -> None:
        """End the use of a client; unless it has read all, whatever it does next is in doubt."""

    def leave(self, consumer: PolledConsumer, partition: tuple[str, int]) -> None:
        """Note that a topic partition was read to the end of its range. Raises LibraryError."""


class _NewClients:
    """A new client for each use."""

    def open(self, config: KafkaConfig, *, is_replacement: bool) -> PolledConsumer:
        return PolledConsumer(fetch_settings(config))

    def release(self, consumer: PolledConsumer, *, has_read_all: bool) -> None:
        consumer.close()

    def leave(self, consumer: PolledConsumer, partition: tuple[str, int]) -> None:
        consumer.pause(*partition)


def fetch(
    clock: Clock,
    config: KafkaConfig,
    ranges: Iterable[OffsetRange],
    *,
    has_headers: bool,
    clients: Clients | None = None,
    check: Callable[[], None] = lambda: None,
    loader: KernelLoader | None = None,
) -> Iterator[Fetched]:
    """The messages of the ranges, a few thousand at a time; ranges are of different partitions.

    `has_headers`: with their headers, which cost a call for each message. `clients`: None, where each fetch has a
    client of its own. `check` is called between two polls, and raises to end the fetch. Raises OffsetGapError if the
    broker no longer has these offsets, BrokerUnavailableError when no message arrives.
    """
    progress = _Progress(config, ranges, has_headers=has_headers)
    clients, loader = clients or _NewClients(), loader or LOADER
    silences = 0
    try:
        while progress.left:
            if silences == len(SILENT_SECONDS):
                raise _stalled(config, progress)
            if silences:
                _log.info("kafka_client_replaced", table=config.table, seconds=SILENT_SECONDS[silences - 1])
            consumer, has_read_all = clients.open(config, is_replacement=silences > 0), False
            try:
                consumer.assign(progress.positions())
                silent_seconds = 0.0
                while progress.left and silent_seconds <= SILENT_SECONDS[silences]:
                    check()
                    # The time in which the caller uses messages is not the client's.
                    before, began = progress.messages_max, clock.monotonic()
                    with Polled(consumer.poll(min(_BATCH_MESSAGES, before), _POLL_SECONDS), loader=loader) as polled:
                        found = list(progress.advance(polled))
                    if progress.messages_max < before:
                        silent_seconds, silences = 0.0, 0
                    else:
                        silent_seconds += clock.monotonic() - began
                    for partition in progress.pop_read():
                        clients.leave(consumer, partition)
                    yield from found
                has_read_all = not progress.left
            finally:
                clients.release(consumer, has_read_all=has_read_all)
            silences += 1
    except LibraryError as error:
        # The library's error quotes values, secrets included.
        raise unavailable(config, error) from None


class _Progress:
    """Progress of one fetch: the ranges that are left, and the next position in each."""

    def __init__(self, config: KafkaConfig, ranges: Iterable[OffsetRange], *, has_headers: bool) -> None:
        self._config = config
        self._has_headers = has_headers
        self.left = {(each.topic, each.partition): each for each in ranges if each.start < each.end}
        #: Next offset, and the leader epoch of the message before it.
        self._next = {partition: (each.start, each.epoch) for partition, each in self.left.items()}

    @property
    def messages_max(self) -> int:
        """Number of messages that are left, if the ranges have no holes."""
        return sum(max(0, each.end - self._next[partition][0]) for partition, each in self.left.items())

    def positions(self) -> list[tuple[str, int, int, int]]:
        """Return topic, partition, next offset and leader epoch of what is left."""
        return [(*partition, *self._next[partition]) for partition in self.left]

    def offset(self, partition: tuple[str, int]) -> int:
        return self._next[partition][0]

    def advance(self, polled: Polled) -> Iterator[Fetched]:
        """Yield the messages that are in the ranges, and move on; raises what events of errors mean."""
        for partition, rows in polled.by_partition():
            if partition not in self.left:
                continue
            kept, position = _within(self._config, polled, rows, self.left[partition])
            offset, epoch = self._next[partition]
            if len(kept) and polled.offsets[kept[0]] < offset:
                raise LibraryError(f"a message comes twice: offset={polled.offsets[kept[0]]} next={offset}")
            if len(kept):
                epoch = polled.leader_epoch(kept[-1])
                messages = polled.messages(kept, has_headers=self._has_headers)
                yield Fetched(topic=partition[0], partition=partition[1], messages=messages)
            self._next[partition] = (max(offset, position), epoch)

    def pop_read(self) -> list[tuple[str, int]]:
        """Return the topic partitions that were read to their ends; they are not left any more."""
        read = [partition for partition, each in self.left.items() if self._next[partition][0] >= each.end]
        for partition in read:
            del self.left[partition]
        return read


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


def _stalled(config: KafkaConfig, progress: _Progress) -> TilthError:
    partition, wanted = next(iter(progress.left.items()))
    return BrokerUnavailableError(
        "the next message does not come",
        table=config.table,
        brokers=config.brokers,
        topic=wanted.topic,
        partition=wanted.partition,
        offset=progress.offset(partition),
        end=wanted.end,
        seconds=sum(SILENT_SECONDS),
    )
