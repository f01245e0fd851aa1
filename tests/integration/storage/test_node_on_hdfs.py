"""A node whose tables are on an HDFS: rounds of a consumer, merges and changes, the NameNode and the node ending in the
middle."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.waiting import wait_until
from tools.broker import Broker
from tools.hdfs_cluster import HdfsCluster
from tools.node_process import NodeProcess

pytestmark = pytest.mark.integration
HOSTILE = "it''s \\\\ \"q\" \U0001f680 naïve\u2028"


@pytest.fixture
def node(hdfs: HdfsCluster, tmp_path: Path) -> Iterator[NodeProcess]:
    settings = {"storage.root": f"{hdfs.address}/{uuid.uuid4().hex}", "warehouse.driver-memory": "1g"}
    with NodeProcess(tmp_path / "node", settings=settings).serving() as node:
        yield node


def test_a_consumer_goes_on_after_the_name_node_and_the_node_ended(
    hdfs: HdfsCluster, node: NodeProcess, broker: Broker
) -> None:
    topic = f"hdfs-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 2)
    for statement in (
        "CREATE TABLE t (id BIGINT, v STRING) ENGINE = MergeTree ORDER BY id",
        f"CREATE TABLE k (id BIGINT, v STRING) ENGINE = Kafka SETTINGS kafka_broker_list = '{broker.bootstrap}', "
        f"kafka_topic_list = '{topic}', kafka_group_name = '{topic}', kafka_format = 'JSONEachRow', "
        "stream_flush_interval_ms = 300",
        "CREATE MATERIALIZED VIEW m TO t AS SELECT id, v FROM k",
        f"INSERT INTO t SELECT -id - 1, '{HOSTILE}' FROM range(1000)",
    ):
        node.connection.sql(statement)
    consumed = "SELECT sum(messages) FROM system.ingest_ledger WHERE table = 'k'"
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def send(count: int) -> None:
        for number in range(sent, sent + count):
            producer.produce(topic, b'{"id": %d, "v": "x"}' % number, partition=number % 2)
        assert producer.flush(30) == 0

    sent = 0
    send(300)
    sent += 300
    wait_until(lambda: node.value(consumed) >= 300, "the first rounds")
    hdfs.name_node.kill()
    send(300)
    sent += 300
    failed = "SELECT count(*) FROM system.bg_threads WHERE table = 'k' AND last_exception LIKE '%hdfs://%'"
    wait_until(lambda: node.value(failed) > 0, "the consumer to name the store")
    hdfs.start_name_node()
    wait_until(lambda: node.value(consumed) >= 600, "rounds after the NameNode came back")
    node.kill()
    send(300)
    sent += 300
    node.start()
    node.wait_ready()
    wait_until(lambda: node.value(consumed) >= 900, "rounds after the node came back")
    node.connection.sql("DELETE FROM t WHERE id % 10 = 3")
    node.connection.sql("UPDATE t SET v = 'new' WHERE id BETWEEN 0 AND 9")
    node.connection.sql("OPTIMIZE TABLE t FINAL")
    found = node.connection.sql("SELECT count(*), count(DISTINCT id), count_if(v = 'new') FROM t WHERE v <> ''").rows
    assert found == [(1810, 1810, 9)]
    verified = node.connection.sql("SYSTEM VERIFY t")
    assert all(row[verified.names.index("ok")] for row in verified.rows)
