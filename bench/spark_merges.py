"""One merge by one Spark task and by two: how much faster it is, and what each task reads.

    python -m bench.spark_merges [--gib 0.05] [--parts 8] [--passes 3]

Parts of one table whose keys overlap everywhere, with strings, numbers and times. Passes take turns, and the first of
each does not count; the best of the others does. Each task has a core of its own. The ranges' rows are those of the
merge by one task, in its order. The ratio by time on the processor says the same where others use the machine, too:
that of one task, over that of the longest range and of the task that draws samples before.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from bench.own_spark import own_spark
from bench.report import Figure, less, more, print_report
from tilth.base.units import GIB
from tilth.model.delta import PartSource
from tilth.model.part import PartName
from tilth.storage import (
    CutPlan,
    KeyRange,
    MergeResult,
    NewPart,
    TableLayout,
    local_folder,
    merge_parts,
    plan_ranges,
    ranges_of,
    read_part,
    schema_from_arrow,
    write_parts,
)
from tilth.warehouse import run_in_task, run_in_tasks

ORDER = ("user", "at")
#: Estimated bytes of a row in a file.
ROW_BYTES = 27
CORES = 2


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A task's answer, and its time on the processor."""

    cpu_seconds: float
    result: MergeResult | None = None
    plan: CutPlan = CutPlan(cuts=())


def merge_figures(session: SparkSession, scratch: Path, *, gib: float, parts: int = 8, passes: int = 3) -> list[Figure]:
    """Measure in a session with two cores; write below `scratch`."""
    layout, sources = _inputs(scratch / "parts", rows=int(gib * GIB / ROW_BYTES), parts=parts)
    size = sum(source.file.size for source in sources)
    seconds: dict[int, list[float]] = {1: [], CORES: []}
    planning: list[float] = []
    cpu: dict[int, list[float]] = {1: [], CORES: []}
    results: dict[int, list[MergeResult]] = {}
    for number in range(passes + 1):
        for tasks in seconds:
            begin = time.perf_counter()
            drawn = Measured(cpu_seconds=0.0)
            if tasks > 1:
                drawn = run_in_task(session, partial(_plan, layout, sources, tasks), Measured)
                planning.append(time.perf_counter() - begin)
            assert len(drawn.plan.cuts) == tasks - 1, drawn
            merge = partial(_merge, layout, sources, ranges_of(drawn.plan), 100 * (number + 1) + tasks)
            measured = run_in_tasks(session, merge, Measured, tasks=tasks)
            seconds[tasks].append(time.perf_counter() - begin)
            cpu[tasks].append(drawn.cpu_seconds + max(each.cpu_seconds for each in measured))
            results[tasks] = [each.result for each in measured if each.result is not None]
    _check(layout, results[1], results[CORES])
    one, two = min(seconds[1][1:]), min(seconds[CORES][1:])
    read = [result.bytes_in for result in results[CORES]]
    return [
        more("merge_two_tasks_ratio", one / two, "x", 1.6),
        more("merge_two_tasks_cpu_ratio", min(cpu[1][1:]) / min(cpu[CORES][1:]), "x", 1.6),
        more("merge_one_task", size / one / 2**20, "MiB/s"),
        less("merge_planning_seconds", min(planning[1:]), "s"),
        less("merge_task_bytes_share", max(read) / size, "of the sources", 0.6),
        less("merge_bytes_read", sum(read) / size, "of the sources", 1.2),
    ]


def _inputs(folder: Path, *, rows: int, parts: int) -> tuple[TableLayout, list[PartSource]]:
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)
    sources: list[PartSource] = []
    layout: TableLayout | None = None
    for number in range(parts):
        count = rows // parts
        users = random.integers(0, 1_000_000, count)
        table = pa.table(
            {
                "user": pa.array(users),
                "at": pa.array(random.integers(0, 10**15, count), pa.timestamp("us", "UTC")),
                "path": pa.array([f"/page/{each % 5000}" for each in users.tolist()]),
                "token": pa.array([f"{each:016x}" for each in random.integers(0, 2**62, count).tolist()]),
                "amount": pa.array(random.random(count)),
            }
        )
        if layout is None:
            schema = schema_from_arrow(table.schema)
            layout = TableLayout(folder=local_folder(folder), schema=schema, order_by=ORDER, row_group_rows=32 * 1024)
        for part in write_parts(layout, table, txn=number + 1, task=0, attempt=0):
            name = PartName("all", number + 1, number + 1, 0, number + 1)
            sources.append(
                PartSource(name=name, file=part.file, rows=part.rows, is_segment=False, schema=layout.schema)
            )
    assert layout is not None
    return layout, sources


def _plan(layout: TableLayout, sources: Sequence[PartSource], ranges: int, *, task: int, attempt: int) -> Measured:
    begin = time.process_time()
    plan = plan_ranges(layout, sources, ranges)
    return Measured(cpu_seconds=time.process_time() - begin, plan=plan)


def _merge(
    layout: TableLayout,
    sources: Sequence[PartSource],
    ranges: Sequence[KeyRange],
    txn: int,
    *,
    task: int,
    attempt: int,
) -> Measured:
    pa.set_cpu_count(1)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[task % len(cores)]})
    new = NewPart(layout=layout, partition="all", values=(), txn=txn)
    within = None if len(ranges) == 1 else ranges[task]
    begin = time.process_time()
    try:
        result = merge_parts(new, sources, task=task, attempt=attempt, within=within)
    finally:
        os.sched_setaffinity(0, cores)
    return Measured(cpu_seconds=time.process_time() - begin, result=result)


def _check(layout: TableLayout, one: Sequence[MergeResult], two: Sequence[MergeResult]) -> None:
    """Raises SystemExit unless both have the same rows in the same order."""
    whole, *others = (read_part(layout.folder, result.written.file) for result in one if result.written is not None)
    assert not others
    first = 0
    for result in two:
        assert result.written is not None
        # One range in memory at a time.
        found = read_part(layout.folder, result.written.file)
        if not whole.slice(first, found.num_rows).equals(found):
            raise SystemExit(f"a range has other rows than the merge: folder={layout.folder} rows from {first}")
        first += found.num_rows
    if first != whole.num_rows:
        raise SystemExit(f"the ranges lack rows of the merge: folder={layout.folder} rows={first}")


def main() -> None:
    parser = argparse.ArgumentParser(description="A merge by one Spark task and by two.")
    parser.add_argument("--gib", type=float, default=0.05, help="bytes of all parts, about")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--passes", type=int, default=3, help="those that count; one more is the run-up")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, own_spark(cores=CORES, scratch=Path(temporary)) as session:
        figures = merge_figures(
            session, Path(temporary), gib=arguments.gib, parts=arguments.parts, passes=arguments.passes
        )
    print_report("spark_merges", figures)


if __name__ == "__main__":
    # Tasks find types by the module's name, which is `__main__` here.
    from bench.spark_merges import main as run

    run()
