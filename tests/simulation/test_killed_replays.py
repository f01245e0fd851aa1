"""The node is killed amid a replay of dead letters, before a commit and behind one: each letter brings its row once.

A real broker, a real node in its own process, real SIGKILLs at failpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.waiting import wait_until
from tilth.base.errors import TilthError
from tools.broker import Broker
from tools.node_process import NodeProcess

pytestmark = pytest.mark.simulation

MESSAGES, BATCH = 60, 4
BAD = {number for number in range(MESSAGES) if number % 5 == 2}
WAIT_SECONDS_MAX = 120.0
REPLAY = "SYSTEM REPLAY DEAD LETTERS replays.k"
STATEMENTS = (
    "CREATE DATABASE replays",
    "CREATE TABLE replays.t (id BIGINT, n BIGINT) ENGINE = MergeTree ORDER BY id",
    """CREATE TABLE replays.k (id BIGINT, s STRING) ENGINE = Kafka SETTINGS kafka_broker_list = '{bootstrap}',
       kafka_topic_list = 'killed-replays', kafka_format = 'JSONEachRow', stream_flush_interval_ms = 200""",
    "CREATE MATERIALIZED VIEW replays.v TO replays.t AS SELECT id, CAST(s AS BIGINT) AS n FROM replays.k",
)
MENDED = "CREATE MATERIALIZED VIEW replays.v TO replays.t AS SELECT id, coalesce(try_cast(s AS BIGINT), 0) AS n "


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    settings = {"warehouse.master": "local[2]", "warehouse.driver-memory": "512m"}
    node = NodeProcess(tmp_path, settings=settings)
    yield node
    node.stop()


def test_letters_are_replayed_once_however_often_the_node_dies(node: NodeProcess, broker: Broker) -> None:
    broker.create_topic("killed-replays", 2)
    # One batch is committed before the first death, and one without an answer before the second.
    places = ("replay.before_commit:2", "replay.after_commit:1", "")
    node.start(failpoints=places[0])
    node.wait_ready()
    for statement in STATEMENTS:
        node.connection.sql(statement.format(bootstrap=broker.bootstrap))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(MESSAGES):
        value = json.dumps({"id": number, "s": "x" if number in BAD else str(number)})
        producer.produce("killed-replays", value.encode(), partition=number % 2)
    assert producer.flush(30) == 0
    wait_until(lambda: node.value("SELECT sum(messages) FROM system.ingest_ledger") == MESSAGES)
    assert node.value("SELECT count(*) FROM replays.k_dead_letters") == len(BAD)
    node.connection.sql("DROP VIEW replays.v")
    node.connection.sql(f"{MENDED} FROM replays.k")
    node.connection.sql(f"ALTER TABLE replays.k MODIFY SETTING kafka_max_block_size = {BATCH}")

    left = len(BAD)
    for place in places:
        if place != places[0]:
            node.start(failpoints=place)
            node.wait_ready()
        assert node.value("SELECT count(*) FROM replays.k_dead_letters") == left
        assert node.value("SELECT count(*) FROM replays.t") == MESSAGES - left
        if not place:
            break
        with pytest.raises(TilthError):
            node.connection.sql(REPLAY)
        assert node.wait_end(WAIT_SECONDS_MAX)
        left -= BATCH

    assert f"{len(BAD) - 2 * BATCH} letters in 1 transactions" in str(node.connection.sql(REPLAY))
    rows = node.connection.sql("SELECT id, n FROM replays.t ORDER BY id").rows
    assert [tuple(row) for row in rows] == [(number, 0 if number in BAD else number) for number in range(MESSAGES)]
    assert node.value("SELECT count(*) FROM replays.k_dead_letters") == 0
    for table in ("t", "k", "k_dead_letters"):
        report = node.connection.sql(f"SYSTEM VERIFY replays.{table}")
        assert all(row[report.names.index("ok")] for row in report.rows), report.rows
