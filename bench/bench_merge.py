"""Merging sorted part files: how fast on one core inside Spark, and beside Iceberg's sort and Delta's OPTIMIZE.

    python -m bench.bench_merge [--kit DIR] [--work DIR] [--rows 2000000] [--files 16] [--passes 5]

The same input for all: the kit's sorted Parquet files of narrow events. Passes take turns; the first of each is a
run-up and does not count; the best of the others does. Every result of ours is read back: rows, sums and order.

- `one core`: one Spark task (mapInArrow), pinned to one core, merges all files into one sorted file.
- `both cores`: two tasks at once, each merging half of the files into one sorted file: what a table with two merges due
  does. The rows of both count, over the time of both.
- Iceberg `rewrite_data_files(sort)` and Delta `OPTIMIZE` (which keeps no order) have both cores for all files.

The ratios are `both cores` over the rival, by rows a second.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.table import Table

from bench.own_spark import own_spark
from bench.report import Figure, print_report
from bench.rivals import Rival, add_kit_arguments, kit_of
from tilth.model.delta import PartSource
from tilth.model.part import DataFile, PartName
from tilth.storage import NewPart, TableLayout, local_folder, merge_parts, schema_from_arrow

ORDER = ("user_id", "ts")
CORES = 2
RIVALS = {"iceberg sort": "ratio_iceberg_sort", "delta optimize": "ratio_delta_optimize"}
TARGETS = {"ratio_iceberg_sort": 5.0, "ratio_delta_optimize": 4.0}


def plain(layout: TableLayout, file: DataFile) -> PartSource:
    """The file as a part that nothing has changed."""
    return PartSource(name=PartName("all", 1, 1, 0, 1), file=file, rows=0, is_segment=False, schema=layout.schema)


def merge_in_spark(session: SparkSession, layout: TableLayout, groups: Sequence[Sequence[DataFile]], txn: int) -> float:
    """Merges each group in a Spark task of its own, all at once; returns the seconds from the call to the results."""
    is_alone = len(groups) == 1

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cores = os.sched_getaffinity(0)
        pa.set_cpu_count(1)
        if is_alone:
            os.sched_setaffinity(0, {max(cores)})
        for batch in batches:
            for number in batch.column(0).to_pylist():
                sources = [plain(layout, file) for file in groups[number]]
                result = merge_parts(
                    NewPart(layout=layout, partition="all", values=(), txn=txn), sources, task=number, attempt=0
                )
                yield pa.record_batch({"rows": pa.array([result.rows_in], pa.int64())})
        os.sched_setaffinity(0, cores)

    begin = time.perf_counter()
    rows = session.range(0, len(groups), 1, len(groups)).mapInArrow(task, "rows long").collect()
    seconds = time.perf_counter() - begin
    assert sum(row.rows for row in rows) == sum(_rows(layout, group) for group in groups)
    return seconds


def check(layout: TableLayout, inputs: Sequence[Path], outputs: Sequence[Path]) -> None:
    """Raises SystemExit unless the outputs hold the rows of the inputs, each of them sorted."""
    before = pa.concat_tables([pq.read_table(path, partitioning=None) for path in inputs])
    after = [pq.read_table(path, partitioning=None) for path in outputs]
    by = [(name, "ascending") for name in (*ORDER, "event_id")]
    if not pa.concat_tables(after).sort_by(by).equals(before.sort_by(by)):
        raise SystemExit(f"the merged rows are not those of the inputs: folder={layout.folder}")
    keys = [table.select(ORDER) for table in after]
    if any(not table.equals(table.sort_by(by[:-1])) for table in keys):
        raise SystemExit(f"the merged rows are not sorted: folder={layout.folder}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Merges of sorted part files, beside Iceberg and Delta.")
    add_kit_arguments(parser)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--passes", type=int, default=5, help="those that count; one more is the run-up")
    arguments = parser.parse_args()
    kit = kit_of(arguments)
    inputs = kit.merge_inputs(rows=arguments.rows, files=arguments.files)
    seconds: dict[str, list[float]] = {"tilth, one core": [], "tilth, both cores": [], **{name: [] for name in RIVALS}}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=kit.work)))
        session = stack.enter_context(own_spark(cores=CORES, scratch=scratch))
        rivals = {name: Rival(kit, stack) for name in RIVALS}
        for number in range(arguments.passes + 1):
            seconds["tilth, one core"].append(_own_pass(session, scratch, inputs, tasks=1))
            seconds["tilth, both cores"].append(_own_pass(session, scratch, inputs, tasks=CORES))
            for name, rival in rivals.items():
                seconds[name].append(_rival_pass(rival, name, kit.work, inputs, number, arguments.rows))
    _report(seconds, arguments.rows)


def _own_pass(session: SparkSession, scratch: Path, inputs: Sequence[Path], *, tasks: int) -> float:
    folder = scratch / "parts"
    folder.mkdir()
    for path in inputs:
        os.link(path, folder / path.name)
    layout = TableLayout(
        folder=local_folder(folder), schema=schema_from_arrow(pq.read_schema(inputs[0])), order_by=ORDER
    )
    files = [DataFile(name=path.name, size=path.stat().st_size, checksum=0) for path in inputs]
    share = -(-len(files) // tasks)
    groups = [files[start : start + share] for start in range(0, len(files), share)]
    seconds_taken = merge_in_spark(session, layout, groups, txn=1)
    check(layout, inputs, sorted(folder.glob("1-*.parquet")))
    shutil.rmtree(folder)
    return seconds_taken


def _rival_pass(rival: Rival, name: str, work: Path, inputs: Sequence[Path], number: int, rows: int) -> float:
    arguments = {"work": str(work), "case": name, "parts": list(map(str, inputs)), "cores": CORES, "number": number}
    row = rival.call("anchors_merge:spark_pass", arguments)
    if not row["verified"]:
        raise SystemExit(f"the rival's result is wrong: rival={name}")
    # It may leave files alone; only what it rewrote counts.
    seconds_taken: float = row["wall_s"] * rows / row["rows_rewritten"]
    return seconds_taken


def _report(seconds: dict[str, list[float]], rows: int) -> None:
    speed = {name: rows / min(passes[1:]) / 1e6 for name, passes in seconds.items()}
    table = Table("what", "best, s", "all passes, s", "M rows/s", title=f"merge of {rows:,} rows")
    for name, passes in seconds.items():
        passes_text = " ".join(f"{seconds_taken:.2f}" for seconds_taken in passes)
        table.add_row(name, f"{min(passes[1:]):.2f}", passes_text, f"{speed[name]:.2f}")
    figures = [
        Figure(
            name="merge_mrows_s_core",
            value=speed["tilth, one core"],
            unit="M rows/s",
            target=1.0,
            higher_is_better=True,
        )
    ]
    for name, figure in RIVALS.items():
        ratio = speed["tilth, both cores"] / speed[name]
        figures.append(Figure(name=figure, value=ratio, unit="x", target=TARGETS[figure], higher_is_better=True))
    print_report("merge", figures, [table])


def _rows(layout: TableLayout, files: Sequence[DataFile]) -> int:
    return sum(pq.read_metadata(Path(layout.folder, file.name)).num_rows for file in files)


if __name__ == "__main__":
    main()
