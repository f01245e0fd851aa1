"""Appends by a user's own Spark: `tilth.write` and the format `tilth` beside Delta, Iceberg and Parquet.

    python -m bench.spark_writes [--kit DIR] [--work DIR] [--gib 1.0] [--passes 3] [--no-rivals]

The same Parquet files of narrow events are read and appended by all, with two cores, zstd and no sort key. Passes of
ours and of Parquet take turns, those of the rivals follow; the first of each is a run-up and does not count, the best
of the others does. Rows are counted at the end.
`--no-rivals` leaves Delta and Iceberg out, which need the kit.

Covers: `write_ratio_delta`, `write_ratio_iceberg` (`tilth.write` over each, by rows a second), the same of the format,
and `write_ratio_parquet`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from rich.table import Table

import tilth
from bench.event_files import COLUMNS, make_event_files, rows_of
from bench.own_spark import own_spark
from bench.report import Figure, more, print_report
from bench.rivals import Kit, add_kit_arguments, kit_of
from tools.node_process import NodeProcess

CORES = 2
RIVALS = ("delta", "iceberg")
_SECONDS_MAX = 900
_APPEND = """
import json, sys, time
from pathlib import Path
from lake_table import Kind, LakeTable
from local_spark import open_spark
from work import WorkDir
work, source, columns, passes = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
scratch = WorkDir(Path(work)).scratch("append")
spark = open_spark(WorkDir(Path(work)), cores=2, scratch=scratch)
found = {}
for kind in (Kind.DELTA, Kind.ICEBERG):
    table = LakeTable(kind=kind, scratch=scratch, name=f"append_{kind}")
    spark.sql(f"CREATE TABLE {table.sql_name} ({columns}) USING {kind}")
    seconds = []
    for number in range(passes):
        begin = time.perf_counter()
        frame = spark.read.schema(columns).parquet(source)
        if kind is Kind.ICEBERG:
            frame.writeTo(table.sql_name).append()
        else:
            frame.write.format("delta").mode("append").save(str(table.folder))
        seconds.append(time.perf_counter() - begin)
    found[str(kind)] = {"seconds": seconds, "rows": table.read(spark).count()}
print(json.dumps(found))
"""


def own_appends(scratch: Path, source: Path, *, rows: int, passes: int) -> dict[str, list[float]]:
    """Return the seconds of each pass of ours, and of plain Parquet. Raises SystemExit where rows are missing."""
    with NodeProcess(scratch / "node").serving() as node:
        for name in ("by_write", "by_source"):
            node.connection.sql(f"CREATE TABLE default.{name} ({COLUMNS}) ENGINE = MergeTree")
        node.connection.sql("SYSTEM STOP MERGES")
        with own_spark(cores=CORES, scratch=scratch) as session, tilth.attach(session, url=node.url):
            found = _passes(session, scratch, source, passes)
        for name in ("by_write", "by_source"):
            count = node.value(f"SELECT count(*) FROM default.{name}")
            if count != rows * passes:
                raise SystemExit(f"rows are missing: table={name} rows={count} sent={rows * passes}")
    return found


def _passes(session: SparkSession, scratch: Path, source: Path, passes: int) -> dict[str, list[float]]:
    session.conf.set("spark.sql.parquet.compression.codec", "zstd")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    ways: dict[str, Callable[[], object]] = {
        "write": lambda: tilth.write(session.read.parquet(str(source)), "by_write"),
        "source": lambda: session.read.parquet(str(source)).write.format("tilth").mode("append").save("by_source"),
        "parquet": lambda: session.read.parquet(str(source)).write.mode("append").parquet(str(scratch / "plain")),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(passes):
        for way, append in ways.items():
            begin = time.perf_counter()
            append()
            seconds[way].append(time.perf_counter() - begin)
    return seconds


def rival_appends(kit: Kit, source: Path, *, rows: int, passes: int) -> dict[str, list[float]]:
    """Return the seconds of each pass of the rivals. Raises SystemExit where rows are missing."""
    answer = kit.run_script(_APPEND, str(kit.work), str(source), COLUMNS, str(passes), seconds_max=_SECONDS_MAX)
    found = json.loads(answer)
    for name, one in found.items():
        if one["rows"] != rows * passes:
            raise SystemExit(f"rows are missing: table={name} rows={one['rows']} sent={rows * passes}")
    return {name: one["seconds"] for name, one in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="appends by a user's own Spark")
    add_kit_arguments(parser)
    parser.add_argument("--gib", type=float, default=1.0, help="GiB of the files, about")
    parser.add_argument("--passes", type=int, default=3, help="passes that count")
    parser.add_argument("--no-rivals", action="store_true", help="leave Delta and Iceberg out")
    arguments = parser.parse_args()
    kit = None if arguments.no_rivals else kit_of(arguments)
    rows = rows_of(arguments.gib, "PARQUET")
    scratch = Path(tempfile.mkdtemp(prefix="tilth-writes-", dir=None if kit is None else kit.work))
    try:
        source = scratch / "source"
        make_event_files(source, "PARQUET", rows)
        seconds = own_appends(scratch, source, rows=rows, passes=arguments.passes + 1)
        if kit is not None:
            seconds |= rival_appends(kit, source, rows=rows, passes=arguments.passes + 1)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    best = {way: min(each[1:]) for way, each in seconds.items()}
    table = Table("append", "s", "rows/s", title=f"{rows:,} rows, best pass")
    for way, value in best.items():
        table.add_row(way, f"{value:.3f}", f"{rows / value:,.0f}")
    print_report("spark_writes", _figures(best), [table])


def _figures(best: dict[str, float]) -> list[Figure]:
    figures = [
        more("write_ratio_parquet", best["parquet"] / best["write"], "x"),
        more("write_source_ratio_parquet", best["parquet"] / best["source"], "x"),
    ]
    for rival in RIVALS:
        if rival in best:
            figures.append(more(f"write_ratio_{rival}", best[rival] / best["write"], "x", 1.0))
            figures.append(more(f"write_source_ratio_{rival}", best[rival] / best["source"], "x"))
    return figures


if __name__ == "__main__":
    main()
