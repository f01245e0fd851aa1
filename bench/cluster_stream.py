"""A table that a topic is consumed into, and messages for it: what the sections of bench_cluster have in common."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Producer

from tools.node_process import NodeProcess
from tools.stage import Stage, wait

TOPIC = "events"
ROUNDS = "SELECT count(*) FROM system.ingest_ledger WHERE table = 'k'"
STATEMENTS = (
    "CREATE DATABASE d",
    "CREATE TABLE d.t (id BIGINT, v STRING) ENGINE = MergeTree ORDER BY id",
    "CREATE TABLE d.k (id BIGINT, v STRING) ENGINE = Kafka SETTINGS kafka_broker_list = '{bootstrap}', "
    "kafka_topic_list = 'events', kafka_group_name = 'g', kafka_format = 'JSONEachRow', "
    "stream_flush_interval_ms = 500",
    "CREATE MATERIALIZED VIEW d.v TO d.t AS SELECT id, v FROM d.k",
)
_MESSAGES_PER_SECOND = 1000


@dataclass
class Stream:
    """Messages that keep coming."""

    sent: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def run(self, bootstrap: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True})
        while not self.over.wait(0.1):
            for _ in range(_MESSAGES_PER_SECOND // 10):
                value = b'{"id": %d, "v": "value %d"}' % (self.sent, self.sent)
                producer.produce(TOPIC, value, partition=self.sent % 2)
                self.sent += 1
            producer.poll(0)
        producer.flush(30)


@contextmanager
def streaming(bootstrap: str) -> Iterator[Stream]:
    """Send messages until the end of the block."""
    stream = Stream()
    thread = threading.Thread(target=stream.run, args=(bootstrap,))
    thread.start()
    try:
        yield stream
    finally:
        stream.over.set()
        thread.join()


def fill(bootstrap: str, topic: str, messages: int) -> int:
    """Put so many events of about 190 bytes into the two partitions of the topic; return their bytes."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    size = 0
    for number in range(messages):
        value = (
            b'{"id": %d, "user_id": %d, "ts": %d, "item_id": %d, "action": "view", "price": %d.25, '
            b'"region": "region-%d", "session": "session-%d", "agent": "Mozilla/5.0 (X11; Linux x86_64)"}'
        ) % (number, number * 7 % 100_003, 1_700_000_000 + number, number % 5003, number % 900, number % 17, number)
        size += len(value)
        while True:
            try:
                producer.produce(topic, value, partition=number % 2)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("the broker did not take all messages")
    return size


EVENT_COLUMNS = (
    "id BIGINT, user_id BIGINT, ts BIGINT, item_id BIGINT, action STRING, price DOUBLE, region STRING, "
    "session STRING, agent STRING"
)


def create_import(stage: Stage, name: str, topic: str) -> None:
    """Create a table `name`, a Kafka table `name_k` of a group of its own, stopped, and the view between them."""
    stage.sql(
        f"CREATE TABLE d.{name} ({EVENT_COLUMNS}) ENGINE = MergeTree ORDER BY (user_id, ts)",
        f"CREATE TABLE d.{name}_k ({EVENT_COLUMNS}) ENGINE = Kafka SETTINGS kafka_broker_list = '{{bootstrap}}', "
        f"kafka_topic_list = '{topic}', kafka_group_name = '{name}', kafka_format = 'JSONEachRow'",
        f"SYSTEM STOP CONSUME d.{name}_k",
        f"CREATE MATERIALIZED VIEW d.{name}_v TO d.{name} AS SELECT * FROM d.{name}_k",
    )


def drop_import(stage: Stage, name: str) -> None:
    stage.sql(f"DROP VIEW d.{name}_v", f"DROP TABLE d.{name}_k", f"DROP TABLE d.{name}")


def consumed(node: NodeProcess, kafka: str) -> int:
    """Return the messages of a Kafka table that rounds have committed."""
    return node.value(f"SELECT sum(messages) FROM system.ingest_ledger WHERE table = '{kafka}'")


def check_stream(stage: Stage, sent: int) -> bool:
    """Return whether each message is a row, once, and VERIFY finds nothing."""
    wait(lambda: consumed(stage.node, "k") >= sent, "all messages")
    found = stage.node.connection.sql("SELECT count(*), count(DISTINCT id) FROM d.t").rows
    verified = stage.node.connection.sql("SYSTEM VERIFY d.t")
    return found == [(sent, sent)] and all(row[verified.names.index("ok")] for row in verified.rows)
