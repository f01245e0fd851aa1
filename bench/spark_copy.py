"""COPY INTO beside Spark's own write to Delta: files of Parquet and of JSON into a table.

    python -m bench.spark_copy [--kit DIR] [--work DIR] [--gib 1.0] [--passes 3] [--no-rivals]

The same files for both: narrow events, JSON as an object in each line. COPY INTO goes to an empty table of a node with
one embedded worker; the rival is `spark.read.parquet(folder)`, or `.json` with the schema given, written by `.write.
format("delta")`. Both have two cores, zstd, and no sort key. The passes of ours come before those of the rival; the
first of each is a run-up and does not count, the best of the others does. Rows are counted after each pass.

Covers: `copy_parquet_ratio_delta`, `copy_json_ratio_delta`, by bytes of the files a second.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

from rich.table import Table

from bench.event_files import COLUMNS, ROW_BYTES, make_event_files, rows_of
from bench.report import more, print_report
from bench.rivals import Kit, add_kit_arguments, kit_of
from tools.node_process import NodeProcess

CORES = 2
_SECONDS_MAX = 900
_DELTA = """
import json, sys, time
from pathlib import Path
from local_spark import open_spark
from work import WorkDir
work, source, form, columns, passes = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])
scratch = WorkDir(Path(work)).scratch("copy")
spark = open_spark(WorkDir(Path(work)), cores=2, scratch=scratch)
seconds, rows = [], []
for number in range(passes):
    target = str(scratch / f"table{number}")
    begin = time.perf_counter()
    reader = spark.read.schema(columns)
    frame = reader.parquet(source) if form == "PARQUET" else reader.json(source)
    frame.write.format("delta").save(target)
    seconds.append(time.perf_counter() - begin)
    rows.append(spark.read.format("delta").load(target).count())
print(json.dumps({"seconds": seconds, "rows": rows}))
"""


def copy_passes(node: NodeProcess, source: Path, form: str, passes: int) -> tuple[list[float], list[int]]:
    """Return seconds and rows of each COPY INTO."""
    seconds, rows = [], []
    for number in range(passes):
        name = f"{form.lower()}{number}"
        node.connection.sql(f"CREATE TABLE default.{name} ({COLUMNS}) ENGINE = MergeTree")
        begin = time.perf_counter()
        node.connection.sql(f"COPY INTO default.{name} FROM '{source}' FORMAT {form}")
        seconds.append(time.perf_counter() - begin)
        [(count,)] = node.connection.sql(f"SELECT count(*) FROM default.{name}").rows
        rows.append(int(count))
        node.connection.sql(f"DROP TABLE default.{name}")
    return seconds, rows


def delta_passes(kit: Kit, source: Path, form: str, passes: int) -> tuple[list[float], list[int]]:
    """Return the same of Spark and Delta."""
    answer = kit.run_script(_DELTA, str(kit.work), str(source), form, COLUMNS, str(passes), seconds_max=_SECONDS_MAX)
    found = json.loads(answer)
    return found["seconds"], found["rows"]


def measure(kit: Kit | None, scratch: Path, *, gib: float, passes: int) -> dict[str, tuple[float, float]]:
    """Return MiB a second of ours and of Delta (0: there is no kit), by format. Raises SystemExit where rows are
    missing.
    """
    found: dict[str, tuple[float, float]] = {}
    sources = {form: scratch / form.lower() for form in ROW_BYTES}
    rows = {form: rows_of(gib, form) for form in ROW_BYTES}
    for form, source in sources.items():
        make_event_files(source, form, rows[form])
    for form, source in sources.items():
        settings = {"storage.file-locations": str(scratch)}
        with NodeProcess(scratch / f"node-{form.lower()}", settings=settings).serving() as node:
            ours = copy_passes(node, source, form, passes + 1)
        theirs = ([], []) if kit is None else delta_passes(kit, source, form, passes + 1)
        if {*ours[1], *theirs[1]} != {rows[form]}:
            raise SystemExit(f"rows are missing: format={form} ours={ours[1]} delta={theirs[1]} rows={rows[form]}")
        size = sum(path.stat().st_size for path in source.iterdir()) / (1 << 20)
        found[form] = size / min(ours[0][1:]), size / min(theirs[0][1:]) if theirs[0] else 0.0
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="COPY INTO beside Spark's write to Delta")
    add_kit_arguments(parser)
    parser.add_argument("--gib", type=float, default=1.0, help="GiB of the files of each format, about")
    parser.add_argument("--passes", type=int, default=3, help="passes that count")
    parser.add_argument("--no-rivals", action="store_true", help="leave Delta out")
    arguments = parser.parse_args()
    kit = None if arguments.no_rivals else kit_of(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="copy-", dir=None if kit is None else kit.work))
    try:
        found = measure(kit, scratch, gib=arguments.gib, passes=arguments.passes)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    table = Table("format", "COPY INTO, MiB/s", "Spark to Delta, MiB/s", title="files into a table")
    for form, (ours, theirs) in found.items():
        table.add_row(form, f"{ours:.1f}", f"{theirs:.1f}")
    figures = [more(f"copy_{form.lower()}_mib_s", ours, "MiB/s") for form, (ours, _) in found.items()]
    ratios = {form: ours / theirs for form, (ours, theirs) in found.items() if theirs}
    figures += [more(f"copy_{form.lower()}_ratio_delta", ratio, "x", 1.0) for form, ratio in ratios.items()]
    print_report("copy", figures, [table])


if __name__ == "__main__":
    main()
