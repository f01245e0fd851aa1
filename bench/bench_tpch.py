"""The 22 queries of TPC-H by a node, beside Spark over the same Parquet files, and beside Iceberg tables.

    python -m bench.bench_tpch [--kit DIR] [--work DIR] [--scale 0.1] [--passes 5] [--no-iceberg] [--queries q1,q7]

The node answers over HTTP; plain Spark reads the files of the node's parts, and Iceberg has the same rows, each in a
process of its own, all with as much memory and, on a machine with two, as many cores: the node uses all cores, the
others two. Apart from that the others have Spark's defaults, among them a cache of 100 generated classes, where the
node has 1,000 and the 22 queries 300. Each query runs in turns; the first passes are a run-up and do not count, the
best of the others does. All answers are compared.

- `tpch_geo_ratio`, `tpch_worst_ratio`: the node's time over plain Spark's, geometric mean and largest.
- `tpch_geo_ratio_iceberg`: likewise over Iceberg's.
- `tpch_equal`: queries that all answer alike.
- `tpch_cpu_ratio`: processor time of the node's processes over that of plain Spark's, in the passes that count, for
  a machine that does other things too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from math import exp, log
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from bench.report import Figure, less, more, print_report
from bench.rivals import Kit, add_kit_arguments, clean_environment, kit_of
from bench.tpch_queries import QUERIES, TABLES
from tools.durations import processor_seconds
from tools.node_process import NodeProcess

CORES = 2
MEMORY = "2g"
#: Passes before those that count: the compiler of Java needs some.
RUN_UP = 3
TARGET_GEO, TARGET_WORST = 1.05, 1.2
DATABASE = "tpch"
#: Digits behind the decimal point that have to be equal.
_DIGITS = 4
_SPARK_END_SECONDS_MAX = 60

Rows = list[list[str | None]]


@dataclass(slots=True)
class Times:
    """Seconds of one engine, by query, in the order of the passes."""

    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def add(self, query: str, wall: float, cpu: float) -> None:
        self.wall.setdefault(query, []).append(wall)
        self.cpu.setdefault(query, []).append(cpu)

    def best(self, query: str) -> float:
        return min(self.wall[query][RUN_UP:])

    @property
    def cpu_seconds(self) -> float:
        return sum(sum(seconds[RUN_UP:]) for seconds in self.cpu.values())


class SparkProcess:
    """A Spark that answers calls in a process of its own; see tpch_spark.py."""

    def __init__(self, python: str, folder: Path, kit: Kit | None = None) -> None:
        folders = (str(kit.folder), str(kit.work)) if kit is not None else ("", "")
        script = Path(__file__).with_name("tpch_spark.py")
        self._process = subprocess.Popen(
            [python, str(script), *folders, str(CORES), MEMORY, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    # Any: what the verb returns as JSON.
    def call(self, verb: str, arguments: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([verb, arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"Spark has ended: exit={self._process.wait()}")
        return json.loads(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_SPARK_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def generate(folder: Path, scale: float) -> None:
    """One Parquet file for each table."""
    command = [str(Path(sys.executable).with_name("tpchgen-cli")), "parquet", "-s", str(scale), "-o", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def load(node: NodeProcess, folder: Path) -> dict[str, list[str]]:
    """Fill the node's tables; return the files of each."""
    node.connection.sql(f"CREATE DATABASE {DATABASE}")
    paths: dict[str, list[str]] = {}
    for table in TABLES:
        name = f"{DATABASE}.{table.name}"
        node.connection.sql(f"CREATE TABLE {name} ({table.columns}) ENGINE = MergeTree ORDER BY ({table.key})")
        node.connection.insert(name, _plain_strings(pq.read_table(folder / f"{table.name}.parquet")))
        node.connection.sql(f"OPTIMIZE TABLE {name} FINAL")
        node.connection.sql(f"SYSTEM STOP MERGES {name}")
        parts = f"SELECT file FROM system.parts WHERE database = '{DATABASE}' AND table = '{table.name}' AND active"
        files = [str(row[0]) for row in node.connection.sql(parts).rows]
        paths[table.name] = [str(found) for file in files for found in node.data.rglob(file)]
        assert len(paths[table.name]) == len(files) > 0, name
    node.connection.database = DATABASE
    return paths


def _plain_strings(rows: pa.Table) -> pa.Table:
    fields = [pa.field(each.name, pa.string() if each.type == pa.string_view() else each.type) for each in rows.schema]
    return rows.cast(pa.schema(fields))


def comparable(rows: Rows) -> Rows:
    """Rows in an order of their own, with numbers of few digits."""

    def cell(text: str | None) -> str | None:
        if text is None or "." not in text:
            return text
        try:
            return str(round(Decimal(text), _DIGITS).normalize())
        except InvalidOperation:
            return text

    return sorted(([cell(each) for each in row] for row in rows), key=repr)


Engine = Callable[[str], tuple[float, Rows]]


def by_node(node: NodeProcess) -> Engine:
    """The node as an engine, timed by its client."""

    def answer(text: str) -> tuple[float, Rows]:
        began = time.perf_counter()
        table = node.connection.sql(text).arrow()
        seconds = time.perf_counter() - began
        rows = [[None if cell is None else str(cell) for cell in row.values()] for row in table.to_pylist()]
        return seconds, rows

    return answer


def by_spark(process: SparkProcess, *, in_iceberg: bool) -> Engine:
    """A Spark as an engine, timed by itself."""

    def answer(text: str) -> tuple[float, Rows]:
        found = process.call("query", [text, in_iceberg])
        return found["seconds"], found["rows"]

    return answer


def measure(
    engines: dict[str, tuple[Engine, int]], queries: Sequence[str], passes: int
) -> tuple[dict[str, Times], dict[str, bool]]:
    """Times of each engine, and for each query whether all answer alike."""
    times = {name: Times() for name in engines}
    equal = dict.fromkeys(queries, True)
    for _ in range(RUN_UP + passes):
        for query in queries:
            answers = []
            for name, (engine, pid) in engines.items():
                before = processor_seconds(pid)
                seconds, rows = engine(QUERIES[query])
                times[name].add(query, seconds, processor_seconds(pid) - before)
                answers.append(comparable(rows))
            equal[query] &= all(answer == answers[0] for answer in answers)
    return times, equal


def geometric_mean(values: Sequence[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


def report(times: dict[str, Times], equal: dict[str, bool], title: str) -> None:
    """Print the times and the figures."""
    table = Table("query", *(f"{name}, s" for name in times), "over spark", "cpu over spark", "equal", title=title)
    ours, plain = times["tilth"], times["spark"]
    ratios = {query: ours.best(query) / plain.best(query) for query in equal}
    for query, is_equal in equal.items():
        seconds = [f"{each.best(query):.3f}" for each in times.values()]
        cpu = sum(ours.cpu[query][RUN_UP:]) / max(0.01, sum(plain.cpu[query][RUN_UP:]))
        table.add_row(query, *seconds, f"{ratios[query]:.2f}", f"{cpu:.2f}", "yes" if is_equal else "NO")
    figures: list[Figure] = [
        less("tpch_geo_ratio", geometric_mean(list(ratios.values())), "x", TARGET_GEO),
        less("tpch_worst_ratio", max(ratios.values()), "x", TARGET_WORST),
        more("tpch_equal", sum(equal.values()), "queries", len(equal)),
        less("tpch_cpu_ratio", ours.cpu_seconds / plain.cpu_seconds, "x"),
    ]
    if "iceberg" in times:
        over = [ours.best(query) / times["iceberg"].best(query) for query in equal]
        figures.insert(2, less("tpch_geo_ratio_iceberg", geometric_mean(over), "x"))
    print_report("tpch", figures, [table])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The 22 queries of TPC-H, beside Spark and Iceberg.")
    add_kit_arguments(parser)
    parser.add_argument("--scale", type=float, default=0.1, help="scale factor; 1 is about a gigabyte")
    parser.add_argument("--passes", type=int, default=5, help=f"those that count; {RUN_UP} more are the run-up")
    parser.add_argument("--queries", default=",".join(QUERIES), help="names of some of them")
    parser.add_argument("--no-iceberg", action="store_true", help="plain Spark alone, without the kit of rivals")
    given = parser.parse_args(arguments)
    queries = given.queries.split(",")
    kit = None if given.no_iceberg else kit_of(given)
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        generate(folder / "rows", given.scale)
        # Spark below a node is nice unless set otherwise, and the other engines are not.
        settings = {"warehouse.driver-memory": MEMORY, "warehouse.nice": "0"}
        node = stack.enter_context(NodeProcess(folder / "node", settings=settings).serving())
        files = load(node, folder / "rows")
        plain = stack.enter_context(SparkProcess(sys.executable, folder / "plain"))
        plain.call("views", files)
        engines = {
            "tilth": (by_node(node), node.pid),
            "spark": (by_spark(plain, in_iceberg=False), plain.pid),
        }
        if kit is not None:
            iceberg = stack.enter_context(SparkProcess(str(kit.python), folder / "iceberg", kit))
            tables = {
                table.name: {
                    "path": str(folder / "rows" / f"{table.name}.parquet"),
                    "columns": table.columns,
                    "order": table.key,
                }
                for table in TABLES
            }
            iceberg.call("iceberg", tables)
            engines["iceberg"] = (by_spark(iceberg, in_iceberg=True), iceberg.pid)
        times, equal = measure(engines, queries, given.passes)
    report(times, equal, f"TPC-H at scale factor {given.scale:g}, best of {given.passes}")


if __name__ == "__main__":
    main()
