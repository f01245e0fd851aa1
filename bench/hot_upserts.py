"""A table of ten million rows with a unique key: upserts from Kafka, and what queries pay for changed rows."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
from confluent_kafka import Producer
from rich.table import Table

from bench.hot_node import HotNode
from bench.rivals import Kit

ROWS = 10_000_000
CHANGED = ROWS // 100
UPSERTS = 600_000
PARTITIONS = 2
QUERIES = 9
DRAIN_SECONDS_MAX = 600.0
#: Rows of one MERGE or upsert of each rival: enough for some seconds.
RIVALS = {"delta-rs": ("venv", 100_000), "pyiceberg": ("venv", 1_000), "pypaimon": ("venv-paimon", 100_000)}
RIVAL_SECONDS_MAX = 900
COLUMNS = "k BIGINT, a BIGINT, b BIGINT, price DOUBLE, region STRING, name STRING"
LOAD = """INSERT INTO u SELECT id, id % 1000, 0, cast(id % 10000 AS DOUBLE) / 4, concat('region-', id % 20),
    concat('name-', id % 100000) FROM range({rows})"""
QUERY = "SELECT region, count(*), sum(a), sum(b), sum(price), max(k) FROM u GROUP BY region ORDER BY region"


def run(node: HotNode, kit: Kit, with_rivals: bool) -> tuple[dict[str, float], list[Table]]:
    """Return the figures; the answer in every state is checked against the messages."""
    for name in ("changes", "upserts"):
        node.broker.create_topic(name, PARTITIONS)
    node.sql(
        f"CREATE TABLE u ({COLUMNS}) ENGINE = MergeTree UNIQUE KEY (k) ORDER BY (k)",
        LOAD.format(rows=ROWS),
        "SYSTEM FLUSH u",
        "OPTIMIZE TABLE u",
        *(f"SYSTEM STOP {what} u" for what in ("MERGES", "FLUSH", "DELTAS")),
    )
    expected = np.zeros(ROWS, np.int64)
    clean_s = _query(node, expected)
    _change(node, "changes", expected, CHANGED, seed=1)
    dirty_s = _query(node, expected)
    node.sql(
        *(f"SYSTEM START {what} u" for what in ("MERGES", "FLUSH", "DELTAS")),
        "SYSTEM FLUSH u",
        "OPTIMIZE TABLE u FINAL",
    )
    compacted_s = _query(node, expected)
    upsert_s = _change(node, "upserts", expected, UPSERTS, seed=2)
    _query(node, expected)
    table = Table("state", "query s", "x clean", title=f"a query of {ROWS:,} rows")
    for name, seconds in (("clean", clean_s), (f"{CHANGED:,} rows changed", dirty_s), ("compacted", compacted_s)):
        table.add_row(name, f"{seconds:.3f}", f"{seconds / clean_s:.2f}")
    speed = Table("who", "rows", "seconds", "rows/s", title=f"upserts into {ROWS:,} rows")
    speed.add_row("tilth, from Kafka", f"{UPSERTS:,}", f"{upsert_s:.1f}", f"{UPSERTS / upsert_s:,.0f}")
    node.process.stop()
    for name, (venv, rows) in RIVALS.items() if with_rivals else ():
        speed.add_row(name, f"{rows:,}", *_rival(kit, name, venv, rows))
    figures = {
        "upsert_rows_s": UPSERTS / upsert_s,
        "query_dirty_ratio": dirty_s / clean_s,
        "query_compacted_ratio": compacted_s / clean_s,
    }
    return figures, [table, speed]


def _query(node: HotNode, expected: np.ndarray) -> float:
    """The median time of the query; its answer must be right."""
    times = []
    for _ in range(QUERIES):
        began = time.perf_counter()
        rows = node.process.connection.sql(QUERY).rows
        times.append(time.perf_counter() - began)
        found = (sum(row[1] for row in rows), sum(row[3] for row in rows))
        if found != (ROWS, int(expected.sum())):
            raise SystemExit(f"a result is wrong: {found} instead of {(ROWS, int(expected.sum()))}")
    # The first ones warm what is not measured.
    return statistics.median(times[2:])


def _change(node: HotNode, topic: str, expected: np.ndarray, count: int, *, seed: int) -> float:
    """Sends messages with random keys and drains them; seconds until the last one counts."""
    keys = np.random.default_rng(seed).integers(0, ROWS, count)
    producer = Producer({"bootstrap.servers": node.broker.bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    for number, key in enumerate(keys.tolist(), start=1):
        message = b'{"k":%d,"a":%d,"b":%d,"price":%d.25,"region":"region-%d","name":"name-%d"}' % (
            key, key % 1000, number, key % 2500, key % 20, key % 100_000,
        )  # fmt: skip
        while True:
            try:
                producer.produce(topic, message, partition=key % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(60)
    # The last of several messages of one key counts.
    expected[keys] = np.arange(1, count + 1)
    node.sql(
        f"""CREATE TABLE {topic}_topic ({COLUMNS}) ENGINE = Kafka SETTINGS kafka_topic_list = '{topic}',
            kafka_broker_list = '{node.broker.bootstrap}', kafka_group_name = '{topic}',
            kafka_format = 'JSONEachRow'""",
        f"SYSTEM STOP CONSUME {topic}_topic",
        f"CREATE MATERIALIZED VIEW {topic}_view TO u AS SELECT * FROM {topic}_topic",
    )
    return node.drain(f"{topic}_topic", count, seconds_max=DRAIN_SECONDS_MAX)


def _rival(kit: Kit, name: str, venv: str, rows: int) -> tuple[str, str]:
    """Seconds and rows a second of one upsert into as many rows, or why there is none."""
    python = kit.work / venv / "bin" / "python"
    if not python.exists():
        return "-", "not installed"
    script = Path(__file__).with_name("rival_upserts.py")
    command = [str(python), str(script), name, str(kit.work / f"upserts-{name}"), str(ROWS), str(rows)]
    try:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=RIVAL_SECONDS_MAX)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return "-", type(error).__name__
    seconds = json.loads(done.stdout.splitlines()[-1])["seconds"]
    return f"{seconds:.1f}", f"{rows / seconds:,.0f}"
