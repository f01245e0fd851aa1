"""What the client library answers, right and wrong, and what becomes of it; the test plays the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from tilth.ingest.errors import BrokerUnavailableError, UnknownTopicError
from tilth.ingest.kafka.broker import BrokerClient
from tilth.ingest.settings import read_config
from tilth.model.offset import TopicPartition
from tilth.model.table import KafkaDef, Schema

A, B = TopicPartition("a", 0), TopicPartition("a", 1)
# Any: what the library hands out has no types.
Answer = Any


def answered(value: Answer) -> Future[Answer]:
    future: Future[Answer] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


class Library:
    """An AdminClient that says what the test wants."""

    def __init__(self, offsets: Callable[[str, str, int], Answer]) -> None:
        """`offsets`: the answer for a kind of request, an isolation level and a partition."""
        self._offsets = offsets
        #: Events that nobody has asked for.
        self.queued = 3

    def poll(self, timeout: float) -> int:
        self.queued -= 1
        return int(self.queued >= 0)

    def list_offsets(
        self, asked: Mapping[confluent_kafka.TopicPartition, Answer], *, isolation_level: Answer, request_timeout: float
    ) -> dict[confluent_kafka.TopicPartition, Future[Answer]]:
        return {
            each: answered(self._offsets(type(spec).__name__, isolation_level.name, each.partition))
            for each, spec in asked.items()
        }


def client(offsets: Callable[[str, str, int], Answer]) -> tuple[BrokerClient, Library]:
    settings = {"kafka_broker_list": "127.0.0.1:1", "kafka_topic_list": "a", "kafka_format": "JSONEachRow"}
    config = read_config(KafkaDef(uuid="u", database="db", name="k", schema=Schema(columns=()), settings=settings))
    made, library = BrokerClient(config), Library(offsets)
    made._admin = library  # type: ignore[assignment]  # does what is called here
    return made, library


def says(offset: int, epoch: int | None = None) -> Answer:
    return SimpleNamespace(offset=offset, leader_epoch=epoch)


@pytest.mark.parametrize("wrong", [-1001, -1, -7])
def test_a_request_that_nobody_answered_is_an_error_and_no_offset(wrong: int) -> None:
    def offsets(kind: str, isolation: str, partition: int) -> Answer:
        return says(wrong if partition else 5)

    broker, _ = client(offsets)
    for ask in (broker.earliest, broker.ends):
        with pytest.raises(BrokerUnavailableError) as caught:
            ask([A, B])
        assert (caught.value.facts["partition"], caught.value.facts["answer"]) == ("1", str(wrong))
        assert "kafka_broker_list" in caught.value.hint


def test_only_a_time_may_have_no_offset() -> None:
    def offsets(kind: str, isolation: str, partition: int) -> Answer:
        return says({"TimestampSpec": -1 if partition else 7}.get(kind, 20), 3)

    broker, _ = client(offsets)
    assert broker.at_time([A, B], 1_000) == {A: 7, B: 20}

    def stalled(kind: str, isolation: str, partition: int) -> Answer:
        return says(-1001)

    broker, _ = client(stalled)
    with pytest.raises(BrokerUnavailableError):
        broker.at_time([A], 1_000)


def test_what_is_committed_ends_before_what_is_there() -> None:
    def offsets(kind: str, isolation: str, partition: int) -> Answer:
        return says(10 if isolation == "READ_COMMITTED" else 14, 6)

    broker, _ = client(offsets)
    end = broker.ends([A])[A]
    assert (end.stable, end.high, end.epoch) == (10, 14, 6)
    assert broker.earliest([A]) == {A: 10}
    assert (broker.earliest([]), broker.ends([]), broker.at_time([], 1)) == ({}, {}, {})


def test_errors_of_the_broker_keep_their_meaning() -> None:
    def unknown(kind: str, isolation: str, partition: int) -> Answer:
        return KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    with pytest.raises(UnknownTopicError):
        client(unknown)[0].earliest([A])

    def down(kind: str, isolation: str, partition: int) -> Answer:
        return KafkaException(KafkaError(KafkaError._TRANSPORT))

    with pytest.raises(BrokerUnavailableError):
        client(down)[0].ends([A])


def test_each_question_drops_what_the_library_had_to_say_before() -> None:
    broker, library = client(lambda kind, isolation, partition: says(1))
    broker.earliest([A])
    assert library.queued < 0
