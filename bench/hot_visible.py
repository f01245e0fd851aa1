"""Time until a message of a steady load can be read, while flushes and merges run."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import numpy as np
from confluent_kafka import Producer
from rich.table import Table

from bench.hot_node import HotNode
from bench.rivals import Kit, Rival

RATE = 2_000
SECONDS = 30
#: Seconds of load at the same rate before the measurement, as for the rivals.
WARM_SECONDS = 45
DRAIN_SECONDS_MAX = 60.0
#: Pause between two reads and between two bursts, as for the rivals.
READ_GAP_SECONDS = 0.1
SEND_GAP_SECONDS = 0.005
PARTITIONS = 2
RIVALS = ("iceberg", "delta")
#: Short flush interval, so that flushes and merges run all the time.
NODE_SETTINGS = {"flush_threshold_secs": "2"}
COLUMNS = "event_id BIGINT, user_id BIGINT, ts BIGINT, item_id BIGINT, action STRING, price DOUBLE, region STRING"


def run(node: HotNode, kit: Kit, with_rivals: bool) -> tuple[dict[str, float], list[Table]]:
    """The latencies of the rows after the warm-up; the rivals run when ours is done."""
    node.broker.create_topic("visible", PARTITIONS)
    node.sql(
        f"""CREATE TABLE events ({COLUMNS}) ENGINE = MergeTree ORDER BY (user_id, ts)
            SETTINGS memory_buffer = 1""",
        f"""CREATE TABLE topic ({COLUMNS}) ENGINE = Kafka SETTINGS kafka_broker_list = '{node.broker.bootstrap}',
            kafka_topic_list = 'visible', kafka_group_name = 'visible', kafka_format = 'JSONEachRow',
            stream_flush_interval_ms = 500""",
        "CREATE MATERIALIZED VIEW feed TO events AS SELECT * FROM topic",
    )
    produced_at = np.full(RATE * (WARM_SECONDS + SECONDS), np.nan)
    sender = threading.Thread(target=_send, args=(node.broker.bootstrap, produced_at), daemon=True)
    sender.start()
    visible_at, read_seconds = _watch(node, len(produced_at))
    sender.join()
    latency = (visible_at - produced_at)[RATE * WARM_SECONDS :]
    p50, p99 = np.percentile(latency, [50, 99])
    done = {
        event: node.value(f"SELECT count(*) FROM system.part_log WHERE table = 'events' AND event = '{event}'")
        for event in ("flush", "merge")
    }
    table = Table(
        "who",
        "p50 s",
        "p99 s",
        "max s",
        "read p50 s",
        "meanwhile",
        title=f"visible after produce, {RATE:,} messages a second",
    )
    read = float(np.median(read_seconds))
    work = f"{done['flush']} flushes, {done['merge']} merges"
    table.add_row("tilth", f"{p50:.2f}", f"{p99:.2f}", f"{latency.max():.2f}", f"{read:.2f}", work)
    node.process.stop()
    for kind in RIVALS if with_rivals else ():
        with ExitStack() as stack:
            given = {"work": str(kit.work), "bootstrap": node.broker.bootstrap, "kind": kind, "cores": 2, "rate": RATE}
            row = Rival(kit, stack).call(
                "anchors_ingest:measure_latency", {**given, "seconds": SECONDS, "partitions": PARTITIONS}
            )
        figures = (f"{row[name]:.2f}" for name in ("p50_s", "p99_s", "max_s", "read_p50_s"))
        table.add_row(kind, *figures, f"{row['batches']} batches, no merges")
    return {"visible_p50_s": float(p50), "visible_p99_s": float(p99)}, [table]


def _send(bootstrap: str, produced_at: np.ndarray) -> None:
    """Send as many numbered messages as `produced_at` has elements, at a steady rate, and note the time of each."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "compression.type": "lz4"})
    start, sent = time.perf_counter(), 0
    while sent < len(produced_at):
        due = min(int((time.perf_counter() - start) * RATE), len(produced_at))
        for number in range(sent, due):
            message = (
                b'{"event_id":%d,"user_id":%d,"ts":%d,"item_id":%d,"action":"view","price":%d.25,"region":"region-%02d"}'
                % (number, number * 7919 % 10**6, 1_760_000_000_000 + number, number % 9973, number % 500, number % 20)
            )
            produced_at[number] = time.perf_counter()
            producer.produce("visible", message, partition=number % PARTITIONS)
        sent = due
        producer.poll(SEND_GAP_SECONDS)
    producer.flush(30)


def _watch(node: HotNode, rows: int) -> tuple[np.ndarray, list[float]]:
    """Query for rows that were not seen, again and again. Return when each was seen, and the duration of each query."""
    visible_at = np.full(rows, np.nan)
    read_seconds: list[float] = []
    last = -1
    deadline = time.perf_counter() + WARM_SECONDS + SECONDS + DRAIN_SECONDS_MAX
    while last < rows - 1:
        began = time.perf_counter()
        if began > deadline:
            raise TimeoutError(f"rows never became visible: seen={last + 1} expected={rows}")
        answer = node.process.connection.sql(f"SELECT event_id FROM events WHERE event_id > {last}").arrow()
        ended = time.perf_counter()
        read_seconds.append(ended - began)
        ids = answer.column("event_id").to_numpy()
        visible_at[ids[np.isnan(visible_at[ids])]] = ended
        unseen = np.flatnonzero(np.isnan(visible_at))
        last = int(unseen[0]) - 1 if len(unseen) else rows - 1
        time.sleep(READ_GAP_SECONDS)
    return visible_at, read_seconds
