"""Clients of brokers that do not all live: nothing piles up in them, and nothing of them stays behind.

A client in a process of its own sends over a connection that breaks, while the first tests run.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPosition

from tilth.base.clock import SystemClock
from tilth.ingest import BrokerUnavailableError, OffsetGapError
from tilth.ingest.kafka import broker as kafka_client
from tilth.ingest.kafka import fetch as fetching
from tilth.ingest.kafka.broker import BrokerClient, Holds
from tilth.ingest.kafka.fetch import fetch
from tilth.ingest.settings import KafkaConfig, read_config
from tilth.model.offset import OffsetRange, StoredOffset, TopicPartition
from tilth.model.table import KafkaDef, Schema
from tools.broker import Broker, free_port
from tools.tcp_link import TcpLink

#: Events that librdkafka keeps for whoever polls; between two questions there are a few.
QUEUED_MAX = 60
THREADS_SECONDS_MAX = 10.0
#: It tries to connect as often as it can.
SENDING_SECONDS = 8.0
SENDING = """
import sys, time
from tests.integration.ingest.test_broker_clients import A, config_of
from tilth.ingest.kafka.broker import BrokerClient
client, over, offset = BrokerClient(config_of(sys.argv[1])), time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < over:
    offset += 1
    client.commit({A: offset})
    time.sleep(0.002)
client.close()
"""
EAGER = "reconnect.backoff.ms=1;reconnect.backoff.max.ms=2"
A = TopicPartition("clients", 0)


def config_of(brokers: str, *, library: str = EAGER) -> KafkaConfig:
    settings = {
        "kafka_broker_list": brokers,
        "kafka_topic_list": "clients",
        "kafka_format": "JSONEachRow",
        "kafka_extra_librdkafka_config": library,
    }
    return read_config(KafkaDef(uuid="u", database="db", name="k", schema=Schema(columns=()), settings=settings))


def queued(client: BrokerClient) -> int:
    """Events and lines of its log that wait to be fetched."""
    assert client._admin is not None
    return client._admin.__len__()  # type: ignore[attr-defined, no-any-return]  # the library's types leave it out


def threads() -> int:
    return int(psutil.Process().num_threads())


def wait_threads(wanted: int) -> None:
    """The library's threads end a moment after their client."""
    deadline = time.monotonic() + THREADS_SECONDS_MAX
    while threads() > wanted:
        gc.collect()
        assert time.monotonic() < deadline, f"{threads()} threads, {wanted} before"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def living(broker: Broker) -> str:
    """The address of a broker whose topic holds two messages."""
    broker.create_topic("clients")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in (b"one", b"two"):
        producer.produce("clients", value, partition=0)
    assert producer.flush(30) == 0
    return broker.bootstrap


@dataclass(frozen=True, slots=True)
class Sending:
    """A client that sends offsets for some seconds, and the broker that gets them."""

    client: subprocess.Popen[bytes]
    cutting: threading.Thread
    bootstrap: str


@pytest.fixture(scope="module")
def sending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sending]:
    """In a process of its own: in such moments assertions of the client library have ended whole processes."""
    other = Broker(tmp_path_factory.mktemp("other"))
    with TcpLink() as link:
        other.start(proxy_port=link.port)
        try:
            link.connect(other.proxied_port)
            other.create_topic("clients")
            command = [sys.executable, "-c", SENDING, f"127.0.0.1:{link.port}", str(SENDING_SECONDS)]
            with subprocess.Popen(command) as client:
                cutting = threading.Thread(target=cut_again_and_again, args=(link, client))
                cutting.start()
                yield Sending(client, cutting, other.bootstrap)
                cutting.join()
        finally:
            other.stop()


def cut_again_and_again(link: TcpLink, client: subprocess.Popen[bytes]) -> None:
    """Cut the link until the client has ended."""
    while client.poll() is None:
        time.sleep(0.15)
        link.cut()
        time.sleep(0.02)
        link.mend()


@pytest.mark.usefixtures("sending")
def test_a_dead_address_in_the_list_fills_no_queue(living: str) -> None:
    dead = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    client = BrokerClient(config_of(",".join([*dead, living])))
    longest = 0
    until = time.monotonic() + 4
    while time.monotonic() < until:
        client.topics()
        client.ends([A])
        client.commit({A: 1})
        longest = max(longest, queued(client))
        time.sleep(0.05)
    client.close()
    assert longest <= QUEUED_MAX


def group_offset(bootstrap: str) -> int:
    """Return what the broker has of the offsets that a client of `config_of` has sent."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": config_of(bootstrap).group})
    try:
        (found,) = consumer.committed([KafkaPosition(A.topic, A.partition)], timeout=10)
        return int(found.offset)
    finally:
        consumer.close()


def test_memory_does_not_grow_with_a_broker_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "REQUEST_SECONDS_MAX", 0.3)
    client = BrokerClient(config_of(f"127.0.0.1:{free_port()}"))
    lengths = []
    for _ in range(15):
        with pytest.raises(BrokerUnavailableError):
            client.topics()
        lengths.append(queued(client))
    client.close()
    # Each request removes the leftovers of the one before it.
    assert max(lengths) <= QUEUED_MAX
    assert sum(lengths[-5:]) <= sum(lengths[:5]) + QUEUED_MAX


def test_offsets_are_sent_beside_a_connection_that_breaks_again_and_again(sending: Sending) -> None:
    assert sending.client.wait(SENDING_SECONDS + 30) == 0
    # It is no thread that the next test counts.
    sending.cutting.join()
    assert group_offset(sending.bootstrap) > 0


def test_nothing_stays_behind_of_clients_that_failed(living: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "REQUEST_SECONDS_MAX", 0.3)
    monkeypatch.setattr(fetching, "SILENT_SECONDS", (0.1, 0.2))
    gone, there = config_of(f"127.0.0.1:{free_port()}"), config_of(living)
    missing = OffsetRange(topic="clients", partition=0, start=1_000, end=1_001)

    def read(config: KafkaConfig) -> object:
        return list(fetch(SystemClock(), config, [missing], has_headers=False))

    def ask(config: KafkaConfig) -> object:
        client = BrokerClient(config)
        try:
            return client.topics()
        finally:
            client.close()

    def probe(config: KafkaConfig) -> object:
        client = BrokerClient(config)
        try:
            return client.holds(A, StoredOffset(1_000, "x", 1))
        finally:
            client.close()

    attempts: list[tuple[Callable[[KafkaConfig], object], KafkaConfig]] = [(read, gone), (read, there), (ask, gone)]
    attempts += [(probe, gone), (probe, there), (ask, there)]
    before = threads()
    for _ in range(3):
        for attempt, config in attempts:
            with suppress(BrokerUnavailableError, OffsetGapError):
                attempt(config)
    wait_threads(before)


def test_whether_a_log_holds_an_offset_is_only_said_when_it_is_known(living: str) -> None:
    client = BrokerClient(config_of(living))
    end = client.ends([A])[A]
    assert client.holds(A, StoredOffset(end.high, "x", end.epoch)) == (Holds.YES, -1)
    assert client.holds(A, StoredOffset(0, "x", end.epoch)) == (Holds.YES, -1)
    # Nobody can tell: no epoch is known, or none that this log has ever had.
    assert client.holds(A, StoredOffset(0, "x", -1)) == (Holds.UNKNOWN, -1)
    assert client.holds(A, StoredOffset(end.high, "x", end.epoch + 7)) == (Holds.UNKNOWN, -1)
    client.close()
