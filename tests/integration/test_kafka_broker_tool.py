"""The broker that other tests rely on: what it acknowledged survives `kill -9`, and topics can be changed."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tools.broker import Broker, BrokerError

pytestmark = pytest.mark.integration

RECORDS = 1_000
SECONDS_MAX = 30.0


def test_records_survive_a_kill_and_the_address_stays(own_broker: Broker) -> None:
    own_broker.create_topic("kept", partitions=2)
    _produce(own_broker, "kept")
    bootstrap, killed = own_broker.bootstrap, own_broker.pid
    own_broker.kill()
    assert own_broker.restart() == bootstrap
    assert own_broker.pid != killed
    assert _count(own_broker, "kept", partitions=2) == RECORDS


def test_topics_are_created_grown_and_deleted(broker: Broker) -> None:
    broker.create_topic("changing")
    with pytest.raises(BrokerError, match="already exists"):
        broker.create_topic("changing")
    broker.add_partitions("changing", 3)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert len(admin.list_topics("changing", timeout=SECONDS_MAX).topics["changing"].partitions) == 3
    broker.delete_topic("changing")
    assert "changing" not in admin.list_topics(timeout=SECONDS_MAX).topics


def _produce(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), partition=number % 2)
    assert producer.flush(SECONDS_MAX) == 0


def _count(broker: Broker, topic: str, *, partitions: int) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "counter"})
    total = 0
    for partition in range(partitions):
        ends = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS_MAX)
        assert ends is not None
        total += ends[1] - ends[0]
    consumer.close()
    return total
