"""Seconds from kill -9 of an embedded node to its first answer, and to its first commit of a round.

    python -m bench.cluster_restart --kills 5

Messages keep coming while the node is away, so that there is something to commit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from confluent_kafka import Producer

from tilth.base.errors import TilthError
from tools.broker import Broker
from tools.node_process import NodeProcess

TOPIC = "events"
MESSAGES_PER_SECOND = 1000
SECONDS_MAX = 120.0
LOOK_SECONDS = 0.02
STATEMENTS = (
    "CREATE DATABASE d",
    "CREATE TABLE d.t (id BIGINT, v STRING) ENGINE = MergeTree ORDER BY id",
    "CREATE TABLE d.k (id BIGINT, v STRING) ENGINE = Kafka SETTINGS kafka_broker_list = '{bootstrap}', "
    "kafka_topic_list = 'events', kafka_group_name = 'g', kafka_format = 'JSONEachRow', "
    "stream_flush_interval_ms = 500",
    "CREATE MATERIALIZED VIEW d.v TO d.t AS SELECT id, v FROM d.k",
)
ROUNDS = "SELECT count(*) FROM system.ingest_ledger WHERE table = 'k'"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=5)
    kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory(prefix="tilth-restart-") as folder, ExitStack() as parts:
        broker = Broker(Path(folder) / "broker")
        broker.start()
        parts.callback(broker.stop)
        broker.create_topic(TOPIC, 2)
        node = NodeProcess(Path(folder))
        over = threading.Event()
        producer = threading.Thread(target=_produce, args=(broker.bootstrap, over))
        try:
            node.start()
            node.wait_ready()
            for statement in STATEMENTS:
                node.connection.sql(statement.format(bootstrap=broker.bootstrap))
            producer.start()
            _wait_for(node, ROUNDS, 1)
            measured = [_kill(node) for _ in range(kills)]
        finally:
            over.set()
            node.stop()
        producer.join()
    names = ("catalog_s", "answer_s", "commit_s")
    print(json.dumps({name: round(statistics.median(each[name] for each in measured), 2) for name in names}))


def _kill(node: NodeProcess) -> dict[str, float]:
    rounds = node.value(ROUNDS)
    node.kill()
    started = time.monotonic()
    node.start()
    seconds: dict[str, float] = {}

    def look(name: str, query: str, least: int) -> None:
        _wait_for(node, query, least)
        seconds[name] = time.monotonic() - started

    asks = (
        ("catalog_s", ROUNDS, 0),
        ("answer_s", "SELECT count(*) FROM d.t WHERE v <> ''", 1),
        ("commit_s", ROUNDS, rounds + 1),
    )
    threads = [threading.Thread(target=look, args=each) for each in asks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print({name: round(value, 2) for name, value in seconds.items()}, file=sys.stderr, flush=True)
    return seconds


def _wait_for(node: NodeProcess, query: str, least: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        with suppress(TilthError):
            if node.value(query) >= least:
                return
        time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"no answer in {SECONDS_MAX} s: {query}\n{node.log_tail()}")


def _produce(bootstrap: str, over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    number = 0
    while not over.wait(0.1):
        for _ in range(MESSAGES_PER_SECOND // 10):
            producer.produce(TOPIC, b'{"id": %d, "v": "value %d"}' % (number, number), partition=number % 2)
            number += 1
        producer.poll(0)
    producer.flush(10)


if __name__ == "__main__":
    main()
