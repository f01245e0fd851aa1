"""Blows to a Spark cluster in the middle of rounds of many files: what is lost, doubled or left behind afterwards.

    python -m bench.cluster_chaos --rounds 60 --partitions 60 [--bucket] [--seed N]

A topic is consumed into a table of so many partitions, and each round writes a file for each of them. A strike waits
until a transaction of the consumer runs, hits one or two processes, and ends with the next commits. In the end each
message must be a row, once, and SYSTEM CHECK FILES must find no orphan once the grace is over.
The last line is one JSON object: `rounds` (strikes), `sent`, `lost`, `twice`, `unknown_files`, `verified`, the times
until commits went on, the number of each kind of blow.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil

from bench.cluster_stream import ROUNDS, TOPIC, consumed, streaming
from tools.spark_cluster import SparkCluster
from tools.stage import Stage, wait

#: Seconds for which an executor is stopped: shorter and longer than the grace before files are removed.
PAUSES = (0.5, 5.0, 25.0)
#: Time limit for the removal of orphans at the end: the grace, and the first sweeps for files that are written late.
GRACE_SECONDS = 150.0
POLL_SECONDS = 5.0
#: Time limit for the commits after a strike.
GO_ON_SECONDS_MAX = 240.0
_SETTINGS = "kafka_num_consumers = 1, stream_flush_interval_ms = 300"


class Chaos:
    """A cluster, a node that computes on it, and the blows."""

    def __init__(self, stage: Stage, cluster: SparkCluster, rng: random.Random) -> None:
        self._stage = stage
        self._cluster = cluster
        self._rng = rng
        self.struck: Counter[str] = Counter()
        self._blows: dict[str, tuple[int, Callable[[], None]]] = {
            "executor killed": (5, cluster.kill_executor),
            "executor paused": (3, self._pause),
            "worker killed": (1, self._restart_worker),
            "server killed": (1, self._restart_server),
        }

    def strike(self) -> float:
        """Hit one or two processes in the middle of a round; return the seconds until rounds commit again."""
        self._wait_for_round()
        names, weights = list(self._blows), [weight for weight, _ in self._blows.values()]
        chosen = self._rng.choices(names, weights, k=self._rng.choice((1, 1, 2)))
        began = time.monotonic()
        for name in chosen:
            self.struck[name] += 1
            try:
                self._blows[name][1]()
            except (IndexError, ValueError, psutil.NoSuchProcess):
                # The other blow has ended all executors.
                self.struck[f"{name}: nobody there"] += 1
        rounds = self._rounds()
        wait(lambda: self._rounds() >= rounds + 2, f"rounds after {chosen}", seconds_max=GO_ON_SECONDS_MAX)
        return time.monotonic() - began

    def _rounds(self) -> int:
        return self._stage.node.value(ROUNDS)

    def _wait_for_round(self) -> None:
        """Wait until a transaction of the consumer runs, and for a random moment more."""
        running = "SELECT count(*) FROM system.transactions WHERE state = 'running' AND actor LIKE 'consume%'"
        wait(lambda: self._stage.node.value(running) > 0, "a round", seconds_max=GO_ON_SECONDS_MAX)
        time.sleep(self._rng.uniform(0, 0.8))

    def _pause(self) -> None:
        process = self._cluster.signal_executor(signal.SIGSTOP)
        time.sleep(self._rng.choice(PAUSES))
        if process.is_running():
            process.send_signal(signal.SIGCONT)

    def _restart_worker(self) -> None:
        number = self._rng.randrange(2)
        self._cluster.kill_worker(number)
        time.sleep(self._rng.uniform(0, 3))
        self._cluster.start_worker(number)

    def _restart_server(self) -> None:
        self._stage.node.kill()
        self._stage.node.start()
        self._stage.node.wait_ready()


def chaos(folder: Path, *, rounds: int, partitions: int, seed: int, in_bucket: bool) -> dict[str, object]:
    """Run so many strikes; return the object of the last line."""
    cluster = SparkCluster(folder / "cluster", workers=2, cores=2)
    (folder / "cluster").mkdir(parents=True)
    cluster.start()
    try:
        with Stage(folder / "stage") as stage:
            stage.start_broker()
            stage.broker.create_topic(TOPIC, 2)
            root = stage.start_store() if in_bucket else {}
            conf = "spark.cores.max=2 spark.executor.cores=1 spark.executor.memory=600m"
            stage.start_node(cluster.settings | {"warehouse.spark-conf": conf} | root)
            stage.sql(
                "CREATE DATABASE d",
                f"CREATE TABLE d.t (id BIGINT, v STRING) ENGINE = MergeTree PARTITION BY id % {partitions} ORDER BY id",
                "CREATE TABLE d.k (id BIGINT, v STRING) ENGINE = Kafka SETTINGS kafka_broker_list = '{bootstrap}', "
                f"kafka_topic_list = '{TOPIC}', kafka_group_name = 'g', kafka_format = 'JSONEachRow', {_SETTINGS}",
                "CREATE MATERIALIZED VIEW d.v TO d.t AS SELECT id, v FROM d.k",
            )
            blows = Chaos(stage, cluster, random.Random(seed))
            seconds: list[float] = []
            with streaming(stage.broker.bootstrap) as stream:
                wait(lambda: stage.node.value(ROUNDS) >= 2, "the first rounds")
                for number in range(rounds):
                    seconds.append(blows.strike())
                    print(f"{number + 1}: {seconds[-1]:.1f} s", file=sys.stderr, flush=True)
            wait(lambda: consumed(stage.node, "k") >= stream.sent, "all messages", seconds_max=GO_ON_SECONDS_MAX)
            stage.sql("SYSTEM STOP CONSUME d.k")
            return {"seed": seed, "rounds": rounds, **_found(stage, stream.sent), **_times(seconds)} | blows.struck
    finally:
        cluster.stop()


def _found(stage: Stage, sent: int) -> dict[str, object]:
    deadline = time.monotonic() + GRACE_SECONDS
    while (unknown := _orphans(stage)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    rows, distinct = stage.node.connection.sql("SELECT count(*), count(DISTINCT id) FROM d.t").rows[0]
    verified = stage.node.connection.sql("SYSTEM VERIFY d.t")
    is_verified = all(row[verified.names.index("ok")] for row in verified.rows)
    return {
        "sent": sent,
        "lost": sent - distinct,
        "twice": rows - distinct,
        "unknown_files": unknown,
        "verified": is_verified,
    }


def _orphans(stage: Stage) -> int:
    found = stage.node.connection.sql("SYSTEM CHECK FILES d.t")
    state = found.names.index("state")
    return sum(row[state] in ("orphan", "sidecar without file") for row in found.rows)


def _times(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {"go_on_p50_s": round(ordered[len(ordered) // 2], 1), "go_on_max_s": round(ordered[-1], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="0: drawn")
    parser.add_argument("--bucket", action="store_true", help="the tables are in a bucket")
    arguments = parser.parse_args()
    seed = arguments.seed or secrets.randbelow(1 << 31)
    print(f"seed {seed}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="tilth-chaos-") as folder:
        found = chaos(
            Path(folder),
            rounds=arguments.rounds,
            partitions=arguments.partitions,
            seed=seed,
            in_bucket=arguments.bucket,
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
