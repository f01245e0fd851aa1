"""Merging sorted part files: how fast on one core inside Spark, and beside Iceberg's sort and Delta's OPTIMIZE.

    python -m bench.bench_merge [--kit DIR] [--work DIR] [--rows 2000000] [--files 16] [--passes 5]

The same rows for all: the kit's sorted Parquet files of narrow events, which Iceberg and Delta take over and Tilth
writes as parts, file by file, off the clock. Passes take turns; the first of each is a run-up and does not count; the
best of the others does. Every result of ours is read back: rows, sums and order.

- `one core`: one Spark task, pinned to one core, merges all files into one sorted file.
- `both cores`: two tasks at once, each merging half of the files into one sorted file: what a table with two merges due
  does. The rows of both count, over the time of both.
- Iceberg `rewrite_data_files(sort)` and Delta `OPTIMIZE` (which keeps no order) have both cores for all files.

The ratios are `both cores` over the rival, by rows a second. Beside each of them stands the same by processor time of
all processes that take part, the JVM too: the steadier one where other programs run as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.table import Table

from bench.own_spark import own_spark
from bench.report import more, print_report
from bench.rivals import Rival, add_kit_arguments, kit_of
from tilth.model.delta import PartSource
from tilth.model.part import DataFile, PartName
from tilth.storage import MergeResult, NewPart, TableLayout, local_folder, merge_parts, schema_from_arrow, write_parts
from tilth.warehouse import run_in_tasks

ORDER = ("user_id", "ts")
CORES = 2
#: Transaction of the merges; those of the inputs are lower.
MERGED = 1_000_000
RIVALS = {"iceberg sort": "ratio_iceberg_sort", "delta optimize": "ratio_delta_optimize"}
TARGETS = {"merge_mrows_s_core": 2.0, "ratio_iceberg_sort": 10.0, "ratio_delta_optimize": 10.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass over all rows."""

    wall_s: float
    #: User and system time of all its processes.
    cpu_s: float


def plain(layout: TableLayout, file: DataFile) -> PartSource:
    """The file as a part that nothing has changed."""
    return PartSource(name=PartName("all", 1, 1, 0, 1), file=file, rows=0, is_segment=False, schema=layout.schema)


def merge_in_spark(session: SparkSession, layout: TableLayout, groups: Sequence[Sequence[DataFile]], txn: int) -> Pass:
    """Merges each group in a Spark task of its own, all at once and in the job that maintenance runs: the time from the
    call to the results.
    """
    is_alone = len(groups) == 1
    new = NewPart(layout=layout, partition="all", values=(), txn=txn)

    def merge(*, task: int, attempt: int) -> MergeResult:
        cores = os.sched_getaffinity(0)
        if is_alone:
            os.sched_setaffinity(0, {max(cores)})
        try:
            return merge_parts(new, [plain(layout, file) for file in groups[task]], task=task, attempt=attempt)
        finally:
            os.sched_setaffinity(0, cores)

    begin, used = time.perf_counter(), _cpu_seconds()
    results = run_in_tasks(session, merge, MergeResult, tasks=len(groups))
    found = Pass(wall_s=time.perf_counter() - begin, cpu_s=_cpu_seconds() - used)
    assert sum(result.rows_in for result in results) == sum(_rows(layout, group) for group in groups)
    return found


def _cpu_seconds() -> float:
    """Seconds that this process and its descendants have used."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return float(sum(each.user + each.system + each.children_user + each.children_system for each in times))


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
    passes: dict[str, list[Pass]] = {"tilth, one core": [], "tilth, both cores": [], **{name: [] for name in RIVALS}}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=kit.work)))
        parts = write_as_parts(inputs, scratch / "inputs")
        session = stack.enter_context(own_spark(cores=CORES, scratch=scratch))
        rivals = {name: Rival(kit, stack) for name in RIVALS}
        for number in range(arguments.passes + 1):
            passes["tilth, one core"].append(_own_pass(session, scratch, parts, tasks=1))
            passes["tilth, both cores"].append(_own_pass(session, scratch, parts, tasks=CORES))
            for name, rival in rivals.items():
                passes[name].append(_rival_pass(rival, name, kit.work, inputs, number, arguments.rows))
    _report(passes, arguments.rows)


def write_as_parts(inputs: Sequence[Path], folder: Path) -> list[Path]:
    """Writes the rows of each file as a part; returns the parts' paths."""
    layout = _layout(inputs, folder)
    written = [
        write_parts(layout, pq.read_table(path, partitioning=None), txn=number, task=0, attempt=0)
        for number, path in enumerate(inputs)
    ]
    return [folder / part.file.name for parts in written for part in parts]


def _layout(inputs: Sequence[Path], folder: Path) -> TableLayout:
    folder.mkdir()
    return TableLayout(folder=local_folder(folder), schema=schema_from_arrow(pq.read_schema(inputs[0])), order_by=ORDER)


def _own_pass(session: SparkSession, scratch: Path, inputs: Sequence[Path], *, tasks: int) -> Pass:
    folder = scratch / "parts"
    layout = _layout(inputs, folder)
    for path in inputs:
        os.link(path, folder / path.name)
    files = [DataFile(name=path.name, size=path.stat().st_size, checksum=0) for path in inputs]
    share = -(-len(files) // tasks)
    groups = [files[start : start + share] for start in range(0, len(files), share)]
    found = merge_in_spark(session, layout, groups, txn=MERGED)
    check(layout, inputs, sorted(folder.glob(f"{MERGED}-*.parquet")))
    shutil.rmtree(folder)
    return found


def _rival_pass(rival: Rival, name: str, work: Path, inputs: Sequence[Path], number: int, rows: int) -> Pass:
    arguments = {"work": str(work), "case": name, "parts": list(map(str, inputs)), "cores": CORES, "number": number}
    row = rival.call("anchors_merge:spark_pass", arguments)
    if not row["verified"]:
        raise SystemExit(f"the rival's result is wrong: rival={name}")
    # It may leave files alone; only what it rewrote counts.
    share = rows / row["rows_rewritten"]
    return Pass(wall_s=row["wall_s"] * share, cpu_s=row["cpu_s"] * share)


def _report(passes: dict[str, list[Pass]], rows: int) -> None:
    wall = {name: min(each.wall_s for each in all_of[1:]) for name, all_of in passes.items()}
    cpu = {name: min(each.cpu_s for each in all_of[1:]) for name, all_of in passes.items()}
    table = Table(
        "what", "best, s", "all passes, s", "processor, s", "M rows/s", "M rows/processor s", title=f"{rows:,} rows"
    )
    for name, all_of in passes.items():
        passes_text = " ".join(f"{each.wall_s:.2f}" for each in all_of)
        cpu_text = " ".join(f"{each.cpu_s:.2f}" for each in all_of)
        speeds = (f"{rows / seconds / 1e6:.2f}" for seconds in (wall[name], cpu[name]))
        table.add_row(name, f"{wall[name]:.2f}", passes_text, cpu_text, *speeds)
    speed = rows / wall["tilth, one core"] / 1e6
    figures = [more("merge_mrows_s_core", speed, "M rows/s", TARGETS["merge_mrows_s_core"])]
    for name, figure in RIVALS.items():
        figures.append(more(figure, wall[name] / wall["tilth, both cores"], "x", TARGETS[figure]))
        figures.append(more(f"{figure}_cpu", cpu[name] / cpu["tilth, both cores"], "x"))
    print_report("merge", figures, [table])


def _rows(layout: TableLayout, files: Sequence[DataFile]) -> int:
    return sum(pq.read_metadata(Path(layout.folder, file.name)).num_rows for file in files)


if __name__ == "__main__":
    main()
