"""The embedded catalog with a million parts: commits, opening, planning, memory.

Builds a store of 10,000 partitions x 100 parts through transactions, as inserts do, and measures it in fresh
processes, which have nothing in memory. `python -m bench.bench_catalog [--work DIR] [--partitions N] [--passes N]`;
best of the passes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from bench.fresh_process import fresh_process, peak_memory_mib
from bench.report import Figure, print_report

#: Before the imports of what is measured: they are a part of getting ready.
_STARTED = time.perf_counter()

from tilth.base.clock import SystemClock  # noqa: E402
from tilth.base.ids import random_id  # noqa: E402
from tilth.catalog import AddLedger, AdvanceOffsets, Catalog, InsertPart, RocksKV, SetOffsets, Update  # noqa: E402
from tilth.model.offset import LedgerEntry, LedgerRange, OffsetRange, StoredOffset, TopicPartition  # noqa: E402
from tilth.model.part import ColumnRange, DataFile, WrittenPart  # noqa: E402
from tilth.model.table import Column, KafkaDef, Schema, TableDef  # noqa: E402
from tilth.model.types import Kind, Simple  # noqa: E402

PARTS_OF_PARTITION = 100
PLANS = 200
COMMITS = 500
#: Parts that one measured commit makes, as a round of one consumer into a few partitions does.
PARTS_OF_COMMIT = 4
TARGETS = {"commit_p99_ms": 20.0, "open_1m_parts_s": 3.0, "plan_partition_ms": 10.0, "rss_mib": 1024.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Measurements of one fresh process."""

    import_s: float
    open_s: float
    partitions_s: float
    plan_ms: float
    plan_p99_ms: float
    commit_ms: float
    commit_p99_ms: float
    rss_mib: float


def main() -> None:
    arguments = _arguments()
    if arguments.measure:
        print(json.dumps(_measure(arguments.measure)))
        return
    os.makedirs(arguments.work, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="catalog-", dir=arguments.work)
    try:
        built_s = _build(folder, partitions=arguments.partitions)
        size_mib = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 2**20
        passes = [Pass(**fresh_process("bench.bench_catalog", ["--measure", folder])) for _ in range(arguments.passes)]
        _report(passes, partitions=arguments.partitions, built_s=built_s, size_mib=size_mib)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The catalog with a million parts.")
    parser.add_argument("--work", default=".cache/bench", help="where the temporary store is made")
    parser.add_argument("--partitions", type=int, default=10_000, help="partitions of 100 parts each")
    parser.add_argument("--passes", type=int, default=5, help="fresh processes; the best counts")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    return parser.parse_args()


def _build(folder: str, *, partitions: int) -> float:
    started = time.perf_counter()
    kv = RocksKV(folder)
    catalog = Catalog(kv, SystemClock(), "bench", random_id)
    schema = Schema(columns=(Column(id=1, name="a", type=Simple(Kind.INT64)),))
    table = catalog.tables.create(TableDef(uuid=random_id(), database="default", name="t", schema=schema)).uuid
    kafka = catalog.tables.create(KafkaDef(uuid=random_id(), database="default", name="k", schema=schema)).uuid
    first = {TopicPartition("x", 0): StoredOffset(0)}
    catalog.transactions.open("offsets").commit([SetOffsets(kafka_table=kafka, offsets=first, before={})])
    for partition in range(partitions):
        txn = catalog.transactions.open("insert")
        updates = [_insert(table, _partition_name(partition), txn.id, part) for part in range(PARTS_OF_PARTITION)]
        txn.commit(updates)
    kv.close()
    return time.perf_counter() - started


def _measure(folder: str) -> dict[str, float]:
    imported = time.perf_counter()
    kv = RocksKV(folder)
    catalog = Catalog(kv, SystemClock(), "bench", random_id)
    uuids = {relation.name: relation.uuid for relation in catalog.tables.list()}
    unfinished = catalog.transactions.unfinished()
    opened = time.perf_counter()
    assert not unfinished
    partitions = catalog.parts.partitions(uuids["t"])
    listed = time.perf_counter()
    rng = random.Random()
    plans = [_plan_ms(catalog, uuids["t"], rng.choice(partitions)) for _ in range(PLANS)]
    commits = [_commit_ms(catalog, uuids, rng) for _ in range(COMMITS)]
    kv.close()
    return {
        "import_s": imported - _STARTED,
        "open_s": opened - imported,
        "partitions_s": listed - opened,
        "plan_ms": statistics.median(plans),
        "plan_p99_ms": _p99(plans),
        "commit_ms": statistics.median(commits),
        "commit_p99_ms": _p99(commits),
        "rss_mib": peak_memory_mib(),
    }


def _plan_ms(catalog: Catalog, table: str, partition: str) -> float:
    started = time.perf_counter()
    snapshot = catalog.parts.snapshot(table, partitions=[partition])
    assert len(snapshot.parts) >= PARTS_OF_PARTITION
    return (time.perf_counter() - started) * 1000


def _commit_ms(catalog: Catalog, uuids: dict[str, str], rng: random.Random) -> float:
    """A round's commit: parts, offsets and ledger, durable when it returns."""
    kafka = uuids["k"]
    start = catalog.offsets.of(kafka)[TopicPartition("x", 0)]
    moved = OffsetRange(topic="x", partition=0, start=start, end=start + 1000)
    line = LedgerRange(topic="x", partition=0, start=start, end=start + 1000, messages=1000, rows=1000, dead=0)
    txn = catalog.transactions.open("consume")
    entry = LedgerEntry(txn=txn.id, kafka_table=kafka, consumer=0, ranges=(line,), stored={uuids["t"]: 1000})
    updates: list[Update] = [
        _insert(uuids["t"], _partition_name(rng.randrange(100)), txn.id, part) for part in range(PARTS_OF_COMMIT)
    ]
    updates += [AdvanceOffsets(kafka_table=kafka, ranges=(moved,)), AddLedger(entry=entry)]
    started = time.perf_counter()
    txn.commit(updates)
    return (time.perf_counter() - started) * 1000


def _insert(table: str, partition: str, txn: int, number: int) -> InsertPart:
    ranges = {"a": ColumnRange(number, number + 1000, 0), "day": ColumnRange(partition, partition, 0)}
    file = DataFile(name=f"{txn}-0.0-{number}.parquet", size=1_234_567, checksum=number)
    written = WrittenPart(partition=partition, values=(partition,), rows=1000, file=file, ranges=ranges)
    return InsertPart(table=table, written=written)


def _partition_name(number: int) -> str:
    return f"2013-{number:05d}"


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def _report(passes: list[Pass], *, partitions: int, built_s: float, size_mib: float) -> None:
    parts = partitions * PARTS_OF_PARTITION
    table = Table(title=f"{parts:,} parts in {partitions:,} partitions: {size_mib:,.0f} MiB, built in {built_s:.0f} s")
    columns = {
        "imports s": "import_s",
        "open s": "open_s",
        "list partitions s": "partitions_s",
        "plan 100 parts ms": "plan_ms",
        "p99 ms": "plan_p99_ms",
        "commit ms": "commit_ms",
        "commit p99 ms": "commit_p99_ms",
        "peak memory MiB": "rss_mib",
    }
    table.add_column("pass")
    for title in columns:
        table.add_column(title, justify="right")
    for number, each in enumerate(passes, 1):
        table.add_row(str(number), *(f"{getattr(each, name):.3f}" for name in columns.values()))
    best = {
        "commit_p99_ms": (min(each.commit_p99_ms for each in passes), "ms"),
        "open_1m_parts_s": (min(each.import_s + each.open_s for each in passes), "s"),
        "plan_partition_ms": (min(each.plan_ms for each in passes), "ms"),
        "rss_mib": (max(each.rss_mib for each in passes), "MiB"),
    }
    figures = [
        Figure(name=name, value=value, unit=unit, target=TARGETS[name], higher_is_better=False)
        for name, (value, unit) in best.items()
    ]
    print_report("catalog", figures, [table])


if __name__ == "__main__":
    main()
