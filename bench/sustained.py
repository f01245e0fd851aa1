"""Continuous ingestion: does the table keep its shape while it never rests?

    python -m bench.sustained [--minutes 20] [--work DIR]

A producer in a process of its own keeps a window of messages ahead of what is stored, so the rate is what one consumer
with rounds of 500 ms sustains on this machine, beside the broker, the merges, the collecting and the queries. The
table is partitioned by a running number: each partition has exactly `PARTITION_ROWS` rows when it is full. The query
aggregates the partition that was filled last: once when the second one is full, and at the end. Both times the load
goes on.

Covers: parts per partition, query time for equal rows, write amplification. Does not cover: idle tables
(bench_maintenance.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from rich.console import Console

from tilth.front import LocalNode
from tilth.front import open as open_node
from tools.broker import Broker

PARTITION_ROWS = 5_000_000
#: Messages that the producer is ahead of what is stored: more than one round can take, so that no round waits for it.
WINDOW_ROWS = 600_000
QUERIES = 5
SAMPLE_SECONDS = 2.0
TOPIC = "sustained"
TOPIC_PARTITIONS = 2
#: Only so much of the topic is kept; the window is far smaller.
TOPIC_CONFIG = {"retention.bytes": str(1 << 30), "segment.bytes": str(128 << 20)}
VARIANTS = 20_000
MIB = 1 << 20
COLUMNS = "event_id BIGINT, user_id BIGINT, ts BIGINT, item_id BIGINT, action STRING, price DOUBLE, region STRING"
STATEMENTS = (
    f"""CREATE TABLE events ({COLUMNS}) ENGINE = MergeTree
        PARTITION BY truncate({PARTITION_ROWS}, event_id) ORDER BY (user_id, ts)
        SETTINGS old_parts_lifetime = 30, tablet_history_max_age_sec = 30, ttl_for_trash_items = 30""",
    f"""CREATE TABLE topic ({COLUMNS}) ENGINE = Kafka SETTINGS kafka_broker_list = '{{bootstrap}}',
        kafka_topic_list = '{TOPIC}', kafka_group_name = 'sustained', kafka_format = 'JSONEachRow',
        stream_flush_interval_ms = 500""",
    "CREATE MATERIALIZED VIEW feed TO events AS SELECT * FROM topic",
)
QUERY = """SELECT action, region, count(*), sum(price), max(ts) FROM events
    WHERE event_id >= {start} AND event_id < {end} GROUP BY action, region"""
PARTS = """SELECT partition, count(*) AS parts, sum(rows) AS rows FROM system.parts
    WHERE table = 'events' AND active GROUP BY partition"""
AMPLIFICATION = """SELECT event, count(*), sum(bytes) FROM system.part_log
    WHERE table = 'events' AND event IN ('new', 'merge') GROUP BY event"""


@dataclass(slots=True, kw_only=True)
class Sustained:
    """Results of a run."""

    minutes: float = 0.0
    rows: int = 0
    mib_s: float = 0.0
    parts_max: int = 0
    query_start_s: float = 0.0
    query_end_s: float = 0.0
    query_end_over_start: float = 0.0
    write_amplification: float = 0.0
    merges: int = 0
    #: Most parts in a partition, minute by minute.
    parts_by_minute: list[int] = field(default_factory=list)
    #: Rows stored, minute by minute.
    rows_by_minute: list[int] = field(default_factory=list)


def run(work: Path, *, minutes: float) -> Sustained:
    """One run with a broker and a node of its own, whose folders are removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="sustained-", dir=work))
    broker = Broker(folder / "broker")
    try:
        bootstrap = broker.start()
        broker.create_topic(TOPIC, TOPIC_PARTITIONS, TOPIC_CONFIG)
        with open_node(folder / "node") as node:
            for statement in STATEMENTS:
                node.sql(statement.format(bootstrap=bootstrap))
            with _producer(bootstrap, folder / "allowed") as allowed:
                return _observe(node, allowed, minutes)
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _observe(node: LocalNode, allowed: mmap.mmap, minutes: float) -> Sustained:
    console = Console()
    found = Sustained()
    started = time.monotonic()
    next_sample = started
    peak = stored = 0
    while (elapsed := time.monotonic() - started) < minutes * 60:
        stored = _stored(node)
        allowed[:8] = struct.pack("<q", stored + WINDOW_ROWS)
        if time.monotonic() >= next_sample:
            next_sample = time.monotonic() + SAMPLE_SECONDS
            peak = max([peak, *(row[1] for row in node.sql(PARTS).rows)])
            found.parts_max = max(found.parts_max, peak)
        if not found.query_start_s and stored >= 2 * PARTITION_ROWS + WINDOW_ROWS:
            found.query_start_s = _query(node, stored)
        if elapsed >= 60 * (len(found.rows_by_minute) + 1):
            found.rows_by_minute.append(stored)
            found.parts_by_minute.append(peak)
            console.print(
                f"  minute {len(found.rows_by_minute)}: {stored:,} rows, at most {peak} parts", highlight=False
            )
            peak = 0
        time.sleep(0.1)
    if found.query_start_s:
        found.query_end_s = _query(node, _stored(node))
        found.query_end_over_start = found.query_end_s / found.query_start_s
    found.minutes, found.rows = minutes, stored
    found.mib_s = stored * _message_bytes() / MIB / (minutes * 60)
    sizes = {row[0]: (row[1], row[2]) for row in node.sql(AMPLIFICATION).rows}
    found.merges = sizes.get("merge", (0, 0))[0]
    inserted = sizes["new"][1]
    found.write_amplification = (inserted + sizes.get("merge", (0, 0))[1]) / inserted
    return found


def _stored(node: LocalNode) -> int:
    rows = node.sql("SELECT rows FROM system.tables WHERE name = 'events'").rows
    return int(rows[0][0] or 0)


def _query(node: LocalNode, stored: int) -> float:
    """The median time of the query over the partition that was filled last."""
    # The topic's partitions are not read in step: the newest rows may have holes before them.
    start = ((stored - WINDOW_ROWS) // PARTITION_ROWS - 1) * PARTITION_ROWS
    times = []
    for _ in range(QUERIES):
        began = time.monotonic()
        result = node.sql(QUERY.format(start=start, end=start + PARTITION_ROWS))
        times.append(time.monotonic() - began)
        assert sum(row[2] for row in result.rows) == PARTITION_ROWS, "a full partition has all its rows"
    return statistics.median(times)


@contextlib.contextmanager
def _producer(bootstrap: str, path: Path) -> Iterator[mmap.mmap]:
    """The producer's process, and the number up to which it may send."""
    path.write_bytes(struct.pack("<q", WINDOW_ROWS))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 8) as allowed:
        process = subprocess.Popen([sys.executable, "-m", "bench.sustained", "--produce", str(path), bootstrap])
        try:
            yield allowed
        finally:
            process.terminate()
            process.wait(30)


def produce(path: Path, bootstrap: str) -> None:
    """Sends numbered messages, never further than the number in the file; until it is ended."""
    tails = _tails()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": "lz4", "acks": 1})
    sent = 0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 8) as allowed:
        while True:
            end = struct.unpack("<q", allowed[:8])[0]
            while sent < end:
                message = b'{"event_id":%d%s' % (sent, tails[sent % VARIANTS])
                try:
                    producer.produce(TOPIC, message, partition=sent % TOPIC_PARTITIONS)
                except BufferError:
                    producer.poll(0.05)
                    continue
                sent += 1
            producer.poll(0)
            time.sleep(0.01)


def _tails() -> list[bytes]:
    draw = random.Random(7)
    actions = ("view", "click", "cart", "buy")
    regions = ("eu-west", "eu-north", "us-east", "us-west", "ap-south")
    return [
        b',"user_id":%d,"ts":%d,"item_id":%d,"action":"%s","price":%.2f,"region":"%s"}'
        % (
            draw.randrange(10**6),
            1_700_000_000_000 + number * 37,
            draw.randrange(10**5),
            draw.choice(actions).encode(),
            draw.random() * 500,
            draw.choice(regions).encode(),
        )
        for number in range(VARIANTS)
    ]


def _message_bytes() -> float:
    tails = _tails()
    return len(b'{"event_id":12345678') + statistics.mean(map(len, tails))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--produce", nargs=2, metavar=("FILE", "BOOTSTRAP"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.produce:
        produce(Path(given.produce[0]), given.produce[1])
    else:
        print(json.dumps(asdict(run(given.work, minutes=given.minutes))), flush=True)


if __name__ == "__main__":
    main()
