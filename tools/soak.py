"""A soak: a node under ingestion, upserts and queries for some minutes, while parts of it are killed.

    python -m tools.soak --minutes 40 [--folder DIR]          or: make soak MINUTES=40

Starts a Kafka broker and a node whose Kafka table also lists an address where nobody listens. Kills Spark's JVM and
Python workers in turn. Each minute it prints a line of a table and appends a line of JSON to DIR/samples.jsonl: memory,
threads, open files, temporary files, what was done. The last line is one JSON object: values at the start and at the
end, the trend of each per hour, and whether every message is stored once and SYSTEM VERIFY finds nothing. The exit code
is 1 where that is not so. Every process that it starts it ends.

Covers: running the load, measuring from outside. Does not cover: how fast anything is (bench). Always holds: only
processes below the node that was started here are killed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import psutil
from confluent_kafka import Producer

from tilth.base.errors import TilthError
from tools.broker import Broker
from tools.node_process import NodeProcess
from tools.node_watch import file_sizes, processes_below, resident

TOPIC = "events"
PARTITIONS = 2
MESSAGES_PER_SECOND = 1_000
BATCH_SECONDS = 0.2
UPSERT_KEYS = 500
UPSERT_ROWS = 20
UPSERT_SECONDS = 0.5
QUERY_SECONDS = 0.5
SAMPLE_SECONDS = 60.0
#: Between two kills: long enough to come back, and some in a short run too.
KILL_SECONDS_MIN, KILL_SECONDS_MAX, KILLS_WANTED = 40.0, 180.0, 12
SEND_SECONDS_MAX = 60
READY_TRIES_MAX = 4
DRAIN_SECONDS_MAX = 240
#: Nobody listens there.
DEAD = "127.0.0.1:1"
KEEPS_LITTLE = "old_parts_lifetime = 5, tablet_history_max_age_sec = 5, ttl_for_trash_items = 5"

STATEMENTS = [
    "CREATE DATABASE soak",
    f"CREATE TABLE soak.events (id BIGINT, k INT, s STRING) ENGINE = MergeTree ORDER BY id SETTINGS {KEEPS_LITTLE}",
    f"""CREATE TABLE soak.events_topic (id BIGINT, k INT, s STRING) ENGINE = Kafka SETTINGS
        kafka_broker_list = '{DEAD},{{bootstrap}}', kafka_topic_list = '{TOPIC}', kafka_group_name = 'soak',
        kafka_format = 'JSONEachRow', stream_flush_interval_ms = 500""",
    "CREATE MATERIALIZED VIEW soak.events_view TO soak.events AS SELECT * FROM soak.events_topic",
    f"CREATE TABLE soak.state (k INT, n BIGINT) ENGINE = MergeTree UNIQUE KEY k SETTINGS {KEEPS_LITTLE}",
]
QUERIES = [
    "SELECT count(*), max(id) FROM soak.events",
    "SELECT k % 10 AS g, count(*), sum(id) FROM soak.events GROUP BY k % 10",
    "SELECT count(*), sum(n) FROM soak.state",
    "SELECT table, service, state, reason FROM system.bg_threads WHERE database = 'soak'",
]
COLUMNS = (
    "minute  rss MiB  node  jvm  workers  threads  open files  temp files  temp MiB  parts     sent  inserts queries "
    "failed kills"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The node at one moment, seen from outside."""

    minute: float
    #: Resident bytes of the node's process, of Spark's JVM, of all others below the node, and of all together.
    node_bytes: int
    jvm_bytes: int
    workers_bytes: int
    rss_bytes: int
    #: Threads and open files of the node's process.
    threads: int
    open_files: int
    #: Files below the node's folders for temporary files and logs.
    temp_files: int
    temp_bytes: int
    #: Records of parts of both tables; -1: the node did not say.
    parts: int
    sent: int
    inserts: int
    queries: int
    failed: int
    kills: int

    def line(self) -> str:
        return (
            f"{self.minute:6.1f} {_mib(self.rss_bytes):8.0f} {_mib(self.node_bytes):5.0f} {_mib(self.jvm_bytes):4.0f} "
            f"{_mib(self.workers_bytes):8.0f} {self.threads:8} {self.open_files:11} {self.temp_files:11} "
            f"{_mib(self.temp_bytes):9.1f} {self.parts:6} {self.sent:8} {self.inserts:8} {self.queries:7} "
            f"{self.failed:6} {self.kills:5}"
        )


#: Fields of a sample that must not grow.
WATCHED = ("rss_bytes", "node_bytes", "jvm_bytes", "workers_bytes", "threads", "open_files", "temp_files", "temp_bytes")


@dataclass(slots=True)
class Load:
    """Load on the node, each kind in a thread of its own; the numbers are totals since the start."""

    node: NodeProcess
    bootstrap: str
    sent: int = 0
    inserts: int = 0
    queries: int = 0
    kills: int = 0
    #: Failures by error code.
    failed: Counter[str] = field(default_factory=Counter)
    is_over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, *, kill_seconds: float) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        actions: list[tuple[Callable[[], None], float]] = [
            (lambda: self._produce(producer), BATCH_SECONDS),
            (self._upsert, UPSERT_SECONDS),
            (self._query, QUERY_SECONDS),
            (self._kill, kill_seconds),
        ]
        for act, seconds in actions:
            thread = threading.Thread(target=self._repeat, args=(act, seconds), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join(SEND_SECONDS_MAX)

    def _repeat(self, act: Callable[[], None], seconds: float) -> None:
        while not self.is_over.wait(seconds):
            try:
                act()
            except TilthError as error:
                self.failed[error.code] += 1

    def _produce(self, producer: Producer) -> None:
        count = round(MESSAGES_PER_SECOND * BATCH_SECONDS)
        for number in range(self.sent, self.sent + count):
            producer.produce(TOPIC, json.dumps({"id": number, "k": number % 1000, "s": f"message {number}"}).encode())
        if producer.flush(SEND_SECONDS_MAX):
            raise RuntimeError("the broker takes no messages")
        self.sent += count

    def _upsert(self) -> None:
        first = self.inserts * UPSERT_ROWS
        rows = ", ".join(f"({number % UPSERT_KEYS}, {number})" for number in range(first, first + UPSERT_ROWS))
        self.node.connection.sql(f"INSERT INTO soak.state VALUES {rows}")
        self.inserts += 1

    def _query(self) -> None:
        self.node.connection.sql(QUERIES[self.queries % len(QUERIES)])
        self.queries += 1

    def _kill(self) -> None:
        """The JVM and a Python worker in turn; nothing while Spark is not back from the last kill."""
        jvms, workers = processes_below(self.node.pid)
        if not jvms or not workers:
            return
        with suppress(psutil.NoSuchProcess):
            (jvms if self.kills % 2 else workers)[-1].kill()
            self.kills += 1


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description="A node under load for some minutes.")
    parser.add_argument("--minutes", type=float, default=40.0)
    parser.add_argument("--folder", type=Path, help="where everything is kept; a new temporary folder if not given")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="tilth-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    outcome = soak(folder, minutes=arguments.minutes)
    print(json.dumps(outcome))
    sys.exit(0 if outcome["verified"] else 1)


def soak(folder: Path, *, minutes: float) -> dict[str, object]:
    """Runs it; returns the last line."""
    broker = Broker(folder / "broker")
    node = NodeProcess(folder / "node", settings={"warehouse.driver-memory": "1g", "warehouse.master": "local[2]"})
    load: Load | None = None
    try:
        bootstrap = broker.start()
        broker.create_topic(TOPIC, PARTITIONS)
        node.start()
        _wait_ready(node)
        for statement in STATEMENTS:
            node.connection.sql(statement.format(bootstrap=bootstrap))
        load = Load(node, bootstrap)
        load.start(kill_seconds=min(KILL_SECONDS_MAX, max(KILL_SECONDS_MIN, minutes * 60 / KILLS_WANTED)))
        samples = _sampled(node, load, folder, minutes=minutes)
        load.stop()
        return _outcome(samples, load) | _verified(node, load)
    finally:
        if load is not None:
            load.stop()
        node.stop()
        broker.stop()


def _wait_ready(node: NodeProcess) -> None:
    """More patient than a test: the machine may be busy with other things."""
    for _ in range(READY_TRIES_MAX - 1):
        with suppress(RuntimeError):
            node.wait_ready()
            return
        if node.has_ended:
            break
    node.wait_ready()


def _sampled(node: NodeProcess, load: Load, folder: Path, *, minutes: float) -> list[Sample]:
    """One each minute, the first at the beginning, the last at the end."""
    print(COLUMNS, flush=True)
    samples: list[Sample] = []
    started = time.monotonic()
    end = started + minutes * 60
    due = started
    with (folder / "samples.jsonl").open("w") as lines:
        while True:
            load.is_over.wait(max(0.0, due - time.monotonic()))
            sample = _sample(node, load, minute=(time.monotonic() - started) / 60)
            samples.append(sample)
            print(sample.line(), flush=True)
            lines.write(json.dumps(asdict(sample)) + "\n")
            lines.flush()
            if due >= end:
                return samples
            due = min(due + SAMPLE_SECONDS, end)


def _sample(node: NodeProcess, load: Load, *, minute: float) -> Sample:
    process = psutil.Process(node.pid)
    jvms, workers = processes_below(node.pid)
    own, jvm, others = resident([process]), resident(jvms), resident(workers)
    files = file_sizes(node.data / "spark", node.data / "log")
    return Sample(
        minute=round(minute, 2),
        node_bytes=own,
        jvm_bytes=jvm,
        workers_bytes=others,
        rss_bytes=own + jvm + others,
        threads=process.num_threads(),
        open_files=process.num_fds(),
        temp_files=len(files),
        temp_bytes=sum(files),
        parts=_parts(node),
        sent=load.sent,
        inserts=load.inserts,
        queries=load.queries,
        failed=sum(load.failed.values()),
        kills=load.kills,
    )


def _parts(node: NodeProcess) -> int:
    try:
        return node.value("SELECT count(*) FROM system.parts WHERE database = 'soak'")
    except TilthError:
        # It was killed a moment ago, or answers later.
        return -1


def _outcome(samples: list[Sample], load: Load) -> dict[str, object]:
    """Values at the start, which is the first sample under load, and at the end, and how they go on per hour."""
    first, last = samples[min(1, len(samples) - 1)], samples[-1]
    return {
        "minutes": last.minute,
        "sent": load.sent,
        "inserts": load.inserts,
        "queries": load.queries,
        "kills": load.kills,
        "failed": dict(sorted(load.failed.items())),
        "start": {name: getattr(first, name) for name in WATCHED},
        "end": {name: getattr(last, name) for name in WATCHED},
        "trend_per_hour": {name: _trend(samples[1:], name) for name in WATCHED},
    }


def _trend(samples: list[Sample], name: str) -> float | None:
    """The slope of a line through the samples; None: there are too few."""
    if len(samples) < 2:
        return None
    slope, _ = np.polyfit([each.minute / 60 for each in samples], [getattr(each, name) for each in samples], 1)
    return round(float(slope), 1)


def _verified(node: NodeProcess, load: Load) -> dict[str, object]:
    """Return the numbers of lost and doubled messages and keys, and the checks of SYSTEM VERIFY that fail."""
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    stored = 0
    while stored < load.sent and time.monotonic() < deadline:
        time.sleep(1)
        with suppress(TilthError):
            stored = node.value("SELECT count(*) FROM soak.events")
    distinct = node.value("SELECT count(DISTINCT id) FROM soak.events")
    keys = node.value("SELECT count(*) FROM soak.state")
    distinct_keys = node.value("SELECT count(DISTINCT k) FROM soak.state")
    failing = [
        f"{subject}: {check}: {detail}"
        for table in ("events", "events_topic", "state")
        for subject, check, is_ok, detail in node.connection.sql(f"SYSTEM VERIFY soak.{table}").rows
        if not is_ok
    ]
    return {
        "lost": load.sent - distinct,
        "twice": stored - distinct,
        "keys_twice": keys - distinct_keys,
        "verify": failing,
        "verified": stored == distinct == load.sent and keys == distinct_keys and not failing,
    }


def _mib(size: int) -> float:
    return size / (1 << 20)


if __name__ == "__main__":
    main()
