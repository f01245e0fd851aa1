"""Queries over plain parts, beside Spark over the same files.

    python -m bench.bench_query [--rows 4000000] [--files 20] [--passes 5]

Each query runs twice, by turns: over `read_snapshot`, which has the files from the catalog, and over
`spark.read.parquet` with the schema given, which lists the file system. The time is from the making of the DataFrame to
its rows. The first pass is a run-up and does not count; the best of the others does. The ratio is the sum of our best
times over the sum of Spark's.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from rich.table import Table

from bench.own_spark import own_spark
from bench.report import Figure, print_report
from tilth.model.part import Part, PartName, WrittenPart
from tilth.model.snapshot import Snapshot
from tilth.model.table import TableDef
from tilth.storage import StoreRoot, layout_of, local_root, schema_from_arrow, write_parts
from tilth.storage.read.spark import read_snapshot

CORES = 2
SEED = 20261121
TARGET = 1.1
UUID = "be" * 16
QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "count": lambda frame: frame.selectExpr("count(*)"),
    "sum": lambda frame: frame.selectExpr("sum(price)", "max(ts)"),
    "group by": lambda frame: frame.groupBy("region").agg({"price": "sum", "user_id": "max"}).orderBy("region"),
    "filter": lambda frame: frame.where("user_id BETWEEN 1000 AND 2000").selectExpr("count(*)", "sum(price)"),
}


def events(rows: int, first: int) -> pa.Table:
    """Events from a number on; the same for the same arguments."""
    source = np.random.default_rng([SEED, first])
    regions = pa.array([f"region-{number:02d}" for number in range(20)])
    return pa.table(
        {
            "event_id": np.arange(first, first + rows),
            "user_id": source.integers(0, 1_000_000, rows),
            "ts": 1_760_000_000_000 + np.arange(first, first + rows) * 3,
            "price": np.round(source.random(rows) * 100, 2),
            "region": regions.take(pa.array(source.integers(0, 20, rows))),
        }
    )


def make_snapshot(root: StoreRoot, *, rows: int, files: int) -> Snapshot:
    """Writes the parts of a table."""
    schema = schema_from_arrow(events(1, 0).schema)
    table = TableDef(uuid=UUID, database="bench", name="events", schema=schema, order_by=("user_id", "ts"))
    written: list[WrittenPart] = []
    for number in range(files):
        part = events(rows // files, number * (rows // files))
        written += write_parts(layout_of(table, root, fsync=False), part, txn=number, task=0, attempt=0)
    parts = tuple(
        Part(name=PartName("all", number, number, 0, number), schema_version=1, rows=part.rows, file=part.file)
        for number, part in enumerate(written)
    )
    return Snapshot(table=table, ts=1, version=1, parts=parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Queries over plain parts, beside Spark over the same files.")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--passes", type=int, default=5, help="those that count; one more is the run-up")
    arguments = parser.parse_args()
    ours: dict[str, list[float]] = {name: [] for name in QUERIES}
    plain: dict[str, list[float]] = {name: [] for name in QUERIES}
    with ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory())
        snapshot = make_snapshot(local_root(f"{root}/tables"), rows=arguments.rows, files=arguments.files)
        paths = [f"{root}/tables/{UUID}/data/{part.file.name}" for part in snapshot.parts]
        session = stack.enter_context(own_spark(cores=CORES, scratch=Path(root)))
        schema = read_snapshot(session, snapshot, local_root(f"{root}/tables")).schema
        for _ in range(arguments.passes + 1):
            for name, query in QUERIES.items():
                seconds, rows = _timed(query, lambda: read_snapshot(session, snapshot, local_root(f"{root}/tables")))
                ours[name].append(seconds)
                seconds, expected = _timed(query, lambda: session.read.schema(schema).parquet(*paths))
                plain[name].append(seconds)
                if repr(rows) != repr(expected):
                    raise SystemExit(f"the answers differ: query={name} ours={rows} spark={expected}")
    _report(ours, plain, arguments.rows, arguments.files)


def _timed(query: Callable[[DataFrame], DataFrame], make: Callable[[], DataFrame]) -> tuple[float, list[object]]:
    begin = time.perf_counter()
    rows = query(make()).collect()
    seconds = time.perf_counter() - begin
    # Sums of floating-point numbers depend on the order of addition.
    return seconds, [[round(cell, 3) if isinstance(cell, float) else cell for cell in row] for row in rows]


def _report(ours: dict[str, list[float]], plain: dict[str, list[float]], rows: int, files: int) -> None:
    table = Table("query", "tilth, s", "spark, s", "ratio", title=f"{rows:,} rows in {files} parts, best pass")
    for name in QUERIES:
        own, other = min(ours[name][1:]), min(plain[name][1:])
        table.add_row(name, f"{own:.3f}", f"{other:.3f}", f"{own / other:.2f}")
    total, total_plain = (sum(min(passes[1:]) for passes in times.values()) for times in (ours, plain))
    figure = Figure(
        name="ratio_plain_spark", value=total / total_plain, unit="x", target=TARGET, higher_is_better=False
    )
    print_report("query", [figure], [table])


if __name__ == "__main__":
    main()
