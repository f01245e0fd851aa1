"""A query while imports run at full speed: on cores of its own, and on one Spark with the imports.

    python -m bench.cluster_reads --messages 2000000 --queries 15

Apart: server and worker for queries on one core, broker and worker for imports on the other. Together: one node with
one Spark for both kinds of work, on both cores, and the broker beside. Each is compared with itself while nothing is
imported, so the two may have different numbers of cores. Only queries that end before the imports do count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cluster_stream import consumed, create_import, fill
from tools.stage import Stage, wait

TOPIC = "whole"
ROWS = 3_000_000
#: Each reads the whole topic: imports go on for longer.
IMPORTS = tuple(f"import_{number}" for number in range(10))
QUERY = "SELECT g, count(*), sum(v), max(id) FROM d.read WHERE v >= 0 GROUP BY g ORDER BY g"
RUN_UP = 5
QUERIES_MIN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """Median seconds of the query."""

    idle_s: float
    importing_s: float

    @property
    def ratio(self) -> float:
        return self.importing_s / self.idle_s


@contextmanager
def on_core(number: int) -> Iterator[None]:
    """Let processes that start meanwhile run on this core only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[number]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def read_apart(folder: Path, *, messages: int, queries: int) -> Reads:
    """Queries and imports in two warehouses, a core each."""
    with Stage(folder) as stage:
        with on_core(1):
            stage.start_broker()
        with on_core(0):
            stage.start_node({"warehouse.embedded": ""})
            stage.add("query", "default", {"warehouse.master": "local[1]"})
        with on_core(1):
            stage.add("write", "write", {"warehouse.master": "local[1]"})
        stage.wait_alive("query", "write")
        return _measure(stage, messages=messages, queries=queries)


def read_together(folder: Path, *, messages: int, queries: int) -> Reads:
    """Queries and imports with one Spark on both cores."""
    with Stage(folder) as stage:
        stage.start_broker()
        stage.start_node({"warehouse.master": "local[2]"})
        return _measure(stage, messages=messages, queries=queries)


def _measure(stage: Stage, *, messages: int, queries: int) -> Reads:
    stage.sql("CREATE DATABASE d")
    stage.sql("CREATE TABLE d.read (id BIGINT, g INT, v DOUBLE) ENGINE = MergeTree ORDER BY id")
    stage.sql(f"INSERT INTO d.read SELECT id, CAST(id % 100 AS INT), id * 0.5 FROM range({ROWS})")
    stage.broker.create_topic(TOPIC, 2)
    fill(stage.broker.bootstrap, TOPIC, messages)
    for name in IMPORTS:
        create_import(stage, name, TOPIC)
    _seconds(stage, RUN_UP)
    idle = _seconds(stage, queries)
    stage.sql(*(f"SYSTEM START CONSUME d.{name}_k" for name in IMPORTS))
    wait(lambda: all(consumed(stage.node, f"{name}_k") > 0 for name in IMPORTS), "the imports to begin")
    importing = _seconds(stage, queries, while_=lambda: any(_left(stage, messages)))
    print(f"idle {idle}, importing {importing}, messages left {_left(stage, messages)}", file=sys.stderr, flush=True)
    if len(importing) < QUERIES_MIN:
        raise RuntimeError("the imports ended before the queries: give more messages")
    return Reads(idle_s=statistics.median(idle), importing_s=statistics.median(importing))


def _left(stage: Stage, messages: int) -> list[int]:
    return [messages - consumed(stage.node, f"{name}_k") for name in IMPORTS]


def _seconds(stage: Stage, queries: int, *, while_: Callable[[], bool] = lambda: True) -> list[float]:
    found: list[float] = []
    for _ in range(queries):
        began = time.perf_counter()
        stage.sql(QUERY)
        seconds = time.perf_counter() - began
        if not while_():
            break
        found.append(round(seconds, 3))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--queries", type=int, default=15)
    arguments = parser.parse_args()
    for read in (read_apart, read_together):
        with tempfile.TemporaryDirectory(prefix="tilth-reads-") as folder:
            print(read.__name__, read(Path(folder), messages=arguments.messages, queries=arguments.queries))


if __name__ == "__main__":
    main()
