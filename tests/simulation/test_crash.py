"""The node is killed at each step of a round, a merge and a collection: every message stays exactly once.

A real broker, a real node in its own process, real SIGKILLs. Each start arms one failpoint (tilth/base/failpoints.py)
or, one time in ten, none: then the process is killed from outside after a random time. The order comes from a seed that
is printed; TILTH_CRASH_SEED sets another. In the end nothing is lost, nothing is twice, and on disk there is no file
that the catalog does not know.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tools.broker import Broker
from tools.node_process import NodeProcess

pytestmark = pytest.mark.simulation

KILLS = 40
SEED = int(os.environ.get("TILTH_CRASH_SEED", "20261121"))
MESSAGES_PER_START = 400
TOPIC_PARTITIONS = 2
DIE_SECONDS_MAX = 60.0
DRAIN_SECONDS_MAX = 120.0
#: Failpoint and the latest pass at which it strikes.
POINTS = {
    "round.before_files": 3,
    "round.after_files": 3,
    "round.before_commit": 3,
    "round.after_commit": 3,
    "merge.before_files": 2,
    "merge.after_files": 2,
    "merge.before_commit": 2,
    "merge.after_commit": 2,
    "gc.before_trash": 1,
    "gc.after_trash": 1,
    "gc.before_remove": 1,
    "gc.after_remove": 1,
}
ANY_MOMENT = "any moment"

#: A process that lives for seconds: a small Spark, and a JVM that does not optimise what it runs once.
QUICK_START = {
    "warehouse.master": "local[2]",
    "warehouse.driver-memory": "512m",
    "warehouse.spark-conf": "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
}

STATEMENTS = [
    "CREATE DATABASE crash",
    """CREATE TABLE crash.t (id BIGINT, k BIGINT, s STRING) ENGINE = MergeTree PARTITION BY bucket(2, k)
       ORDER BY (k, id)
       SETTINGS old_parts_lifetime = 0, ttl_for_trash_items = 0, tablet_history_max_age_sec = 0""",
    """CREATE TABLE crash.k (id BIGINT, k BIGINT, s STRING) ENGINE = Kafka SETTINGS kafka_broker_list = '{bootstrap}',
       kafka_topic_list = 'crash', kafka_group_name = 'crash', kafka_format = 'JSONEachRow', kafka_num_consumers = 2,
       kafka_max_block_size = 60, stream_flush_interval_ms = 200""",
    """ALTER TABLE crash.k_dead_letters
       MODIFY SETTING old_parts_lifetime = 0, ttl_for_trash_items = 0, tablet_history_max_age_sec = 0""",
    "CREATE MATERIALIZED VIEW crash.v TO crash.t AS SELECT id, k, s FROM crash.k",
]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path, settings=QUICK_START)
    yield node
    node.stop()


def test_every_message_is_stored_exactly_once_over_forty_kills(node: NodeProcess, broker: Broker) -> None:
    print(f"crash suite: seed={SEED} kills={KILLS}")
    draw = random.Random(SEED)
    broker.create_topic("crash", TOPIC_PARTITIONS)
    node.start()
    node.wait_ready()
    for statement in STATEMENTS:
        node.connection.sql(statement.format(bootstrap=broker.bootstrap))
    node.kill()

    produced, broken = 0, 0
    struck: dict[str, int] = {}
    started = time.monotonic()
    for number, place in enumerate(_places(draw), start=1):
        produced, broken = _produce(broker.bootstrap, produced, broken)
        _start_and_die(node, place, draw)
        struck[place] = struck.get(place, 0) + 1
        print(f"crash suite: kill {number} at {place}, {time.monotonic() - started:.0f} s", flush=True)
    print(f"crash suite: struck={struck}")

    node.start()
    node.wait_ready()
    _wait(lambda: _stored(node) + _dead(node) == produced + broken)
    _wait(lambda: _is_settled(node))
    count, distinct, total = node.connection.sql("SELECT count(*), count(DISTINCT id), sum(id) FROM crash.t").rows[0]
    assert (count, distinct, total) == (produced, produced, produced * (produced - 1) // 2)
    assert _dead(node) == broken
    for table in ("crash.t", "crash.k_dead_letters"):
        report = node.connection.sql(f"SYSTEM VERIFY {table}")
        assert all(row[report.names.index("ok")] for row in report.rows), report.rows
    assert _files_on_disk(node) == _files_known(node)
    assert sum(struck.values()) == KILLS
    assert set(POINTS) <= set(struck), "some failpoint was never reached"


def _places(draw: random.Random) -> list[str]:
    """Every failpoint about as often as the others, and some kills at any moment, in a random order."""
    places = [place for place in POINTS for _ in range(3)] + [ANY_MOMENT] * 4
    assert len(places) == KILLS
    draw.shuffle(places)
    return places


def _start_and_die(node: NodeProcess, place: str, draw: random.Random) -> None:
    """Starts the node and sees to it that it dies there."""
    if place == ANY_MOMENT:
        node.start()
        if not node.wait_end(draw.uniform(6.0, 12.0)):
            node.kill()
        return
    node.start(failpoints=f"{place}:{draw.randint(1, POINTS[place])}")
    if not node.wait_end(DIE_SECONDS_MAX):
        raise AssertionError(f"the node did not reach {place}:\n{node.log_tail()}")


def _produce(bootstrap: str, produced: int, broken: int) -> tuple[int, int]:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(produced, produced + MESSAGES_PER_START):
        message = {"id": number, "k": number % 97, "s": f"s{number}"}
        producer.produce("crash", json.dumps(message), partition=number % TOPIC_PARTITIONS)
    producer.produce("crash", b"{broken", partition=0)
    assert producer.flush(30) == 0
    return produced + MESSAGES_PER_START, broken + 1


def _stored(node: NodeProcess) -> int:
    return node.value("SELECT sum(rows) FROM system.parts WHERE database = 'crash' AND table = 't' AND active")


def _dead(node: NodeProcess) -> int:
    return node.value(
        "SELECT sum(rows) FROM system.parts WHERE database = 'crash' AND table = 'k_dead_letters' AND active"
    )


def _is_settled(node: NodeProcess) -> bool:
    hidden = node.value("SELECT count(*) FROM system.parts WHERE database = 'crash' AND NOT active")
    trash = node.value("SELECT count(*) FROM system.trash")
    open_transactions = node.value("SELECT count(*) FROM system.transactions WHERE state <> 'finished'")
    return hidden == trash == open_transactions == 0


def _files_on_disk(node: NodeProcess) -> set[str]:
    return {path.name for path in (node.data / "tables").glob("*/data/*")}


def _files_known(node: NodeProcess) -> set[str]:
    return {name for (name,) in node.connection.sql("SELECT file FROM system.parts").rows if name}


def _wait(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    while not is_done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)
