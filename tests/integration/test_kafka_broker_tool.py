"""The broker that other tests rely on: what it acknowledged survives `kill -9`, and topics can be changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tools.broker import Broker, BrokerError
from tools.kafka_proxy import Api, Fate, KafkaProxy, Rule

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


def test_a_proxy_loses_what_its_rules_name_and_nothing_else(tmp_path: Path, java_home: Path) -> None:
    with KafkaProxy() as proxy:
        proxied = Broker(tmp_path / "proxied", java_home=java_home)
        proxied.start(proxy_port=proxy.port)
        proxy.connect(proxied.proxied_port)
        try:
            proxied.create_topic("through")
            quick: dict[str, str | int | float | bool] = {"bootstrap.servers": proxy.address, "log_level": 0}
            named, other = AdminClient(quick | {"client.id": "named"}), AdminClient(quick | {"client.id": "other"})
            # A client that comes through the proxy stays behind it.
            assert {each.port for each in named.list_topics(timeout=10).brokers.values()} == {proxy.port}
            rule = proxy.add(Rule(Api.METADATA, Fate.DROP, client="named"))
            with pytest.raises(KafkaException):
                named.list_topics(timeout=0.5)
            assert rule.hits > 0
            assert "through" in other.list_topics(timeout=10).topics
            proxy.remove(rule)
            assert "through" in named.list_topics(timeout=10).topics
            late = proxy.add(Rule(Api.METADATA, Fate.DELAY, client="named", seconds=0.3))
            assert "through" in named.list_topics(timeout=10).topics
            proxy.remove(late)
            cut = proxy.add(Rule(Api.METADATA, Fate.CUT, client="named"))
            with pytest.raises(KafkaException):
                named.list_topics(timeout=0.5)
            proxy.remove(cut)
            assert "through" in named.list_topics(timeout=10).topics
            # The proxy's listener is there again when the broker is.
            proxied.restart()
            proxy.connect(proxied.proxied_port)
            assert "through" in named.list_topics(timeout=20).topics
        finally:
            proxied.stop()


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
