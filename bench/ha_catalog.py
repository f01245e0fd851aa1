"""A catalog of many parts in PostgreSQL and in RocksDB: opening it, commits, several writers, heartbeats.

    python -m bench.ha_catalog [--partitions 10000]

Each figure of a start is of a fresh process, imports included, from its first line to a snapshot of one partition, as a
server without Spark needs it. Writers are processes of their own, each with a table of its own. The rival of PostgreSQL
is RocksDB in the same run, which one process alone can use.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

#: Before the imports of what is measured: they are a part of getting ready.
_STARTED = time.perf_counter()

from bench.fresh_process import fresh_process  # noqa: E402
from tilth.base.clock import SystemClock  # noqa: E402
from tilth.base.ids import random_id  # noqa: E402
from tilth.catalog import Catalog, InsertPart, Joining, KeyValue, PostgresKV, RocksKV, parse_postgres  # noqa: E402
from tilth.membership import Bounds, Member  # noqa: E402
from tilth.model.part import DataFile, WrittenPart  # noqa: E402
from tilth.model.table import Column, Schema, TableDef  # noqa: E402
from tilth.model.types import Kind, Simple  # noqa: E402

PARTS_OF_PARTITION = 100
WRITERS = 8
WRITER_SECONDS = 8.0
HEARTBEAT_SECONDS = 15.0
PASSES = 3
SCHEMA = Schema(columns=(Column(id=1, name="a", type=Simple(Kind.INT64)),))


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogFigures:
    """Measurements, in seconds and milliseconds."""

    open_rocksdb_s: float
    open_postgres_s: float
    commit_p50_ms: float
    commit_p99_ms: float
    #: Commits a second, latency and conflicts of all writers together.
    commits_s: float
    writers_p99_ms: float
    conflicts: int
    #: Commits of an idle server a second, with few parts and with all.
    proofs_few_s: float
    proofs_many_s: float


def opened(address: str) -> KeyValue:
    return PostgresKV(SystemClock(), parse_postgres(address)) if "://" in address else RocksKV(address)


def build(address: str, *, partitions: int) -> str:
    """Make a table of so many partitions; return its uuid."""
    with closing(opened(address)) as kv:
        catalog = Catalog(kv, SystemClock(), "bench", random_id)
        table = new_table(catalog, "t")
        for partition in range(partitions):
            with catalog.transactions.open("insert") as txn:
                txn.commit([insert(table, f"p{partition:05d}", txn.id, part) for part in range(PARTS_OF_PARTITION)])
        return table


def new_table(catalog: Catalog, name: str) -> str:
    return catalog.tables.create(TableDef(uuid=random_id(), database="default", name=name, schema=SCHEMA)).uuid


def insert(table: str, partition: str, txn: int, number: int) -> InsertPart:
    file = DataFile(name=f"{txn}-0.0-{number}.parquet", size=1_234_567, checksum=number)
    written = WrittenPart(partition=partition, values=(partition,), rows=1000, file=file, ranges={})
    return InsertPart(table=table, written=written)


def joined(kv: KeyValue, name: str) -> tuple[Catalog, Member]:
    """Open the catalog as a server does."""
    clock = SystemClock()
    catalog = Catalog(kv, clock, name, random_id)
    joining = Joining(name=name, run=random_id(), version="bench")
    liveness = kv.liveness() if isinstance(kv, PostgresKV) else None
    member = Member(clock, catalog, joining, bounds=Bounds(3.0), liveness=liveness, on_change=lambda: None)
    member.join()
    return catalog, member


def start(address: str) -> dict[str, float]:
    """Start a server up to its Spark, in a fresh process, and return the seconds since the process began."""
    with closing(opened(address)) as kv:
        catalog, member = joined(kv, "restarted")
        [table] = [each for each in catalog.tables.all() if each.name == "t"]
        assert catalog.transactions.unfinished() == []
        snapshot = catalog.parts.snapshot(table.uuid, partitions=["p00000"])
        assert len(snapshot.parts) == PARTS_OF_PARTITION
        seconds = time.perf_counter() - _STARTED
        member.stop()
    return {"seconds": seconds}


def commit_times(catalog: Catalog, table: str, seconds: float) -> list[float]:
    """Commit one part after the other; return how long each took, in ms."""
    times: list[float] = []
    over = time.perf_counter() + seconds
    while time.perf_counter() < over:
        with catalog.transactions.open("insert") as txn:
            update = insert(table, f"w{len(times) % 10}", txn.id, 0)
            began = time.perf_counter()
            txn.commit([update])
            times.append((time.perf_counter() - began) * 1000)
    return times


def write_as(
    address: str, number: int, begin: multiprocessing.synchronize.Barrier, answers: multiprocessing.Queue
) -> None:  # type: ignore[type-arg]
    """One writer: a process with a table of its own."""
    with closing(opened(address)) as kv:
        catalog, member = joined(kv, f"writer-{number}")
        table = new_table(catalog, f"own{number}")
        commit_times(catalog, table, 0.5)
        begin.wait()
        times = commit_times(catalog, table, WRITER_SECONDS)
        answers.put((len(times), sorted(times)[int(len(times) * 0.99)], catalog.stats().conflicts))
        member.stop()


def heartbeats_a_second(address: str) -> float:
    """Return the commits a second of a server that has nothing to do."""
    with closing(PostgresKV(SystemClock(), parse_postgres(address))) as kv:
        catalog, member = joined(kv, "idle")
        member.start()
        time.sleep(1)
        before = _version(kv)
        time.sleep(HEARTBEAT_SECONDS)
        after = _version(kv)
        member.stop()
        assert catalog.server
    # The two of this measurement draw versions themselves.
    return (after - before - 1) / HEARTBEAT_SECONDS


def _version(kv: PostgresKV) -> int:
    """Commit once more, and return the version of the store, which counts all commits."""
    outcome = kv.commit([], {b"\x01bench": b""}, [])
    return int(getattr(outcome, "version"))  # noqa: B009


def measure(folder: Path, few: str, many: str, *, partitions: int) -> CatalogFigures:
    """`few` and `many`: addresses of two schemas of the database."""
    from tilth.recovery import copy_catalog

    _print_progress(f"building {partitions * PARTS_OF_PARTITION:,} parts")
    node = folder / "node"
    node.mkdir()
    build(str(node / "catalog"), partitions=partitions)
    build(few, partitions=1)
    _print_progress("copying them into the database")
    copy_catalog(str(node), many, keeps_source=True)
    starts = {
        address: min(fresh_process("bench.ha_catalog", ["--start", address])["seconds"] for _ in range(PASSES))
        for address in (str(node / "catalog"), many)
    }
    _print_progress(f"starts: {starts}")
    with closing(opened(many)) as kv:
        catalog, member = joined(kv, "one")
        times = commit_times(catalog, new_table(catalog, "single"), WRITER_SECONDS)
        member.stop()
    _print_progress("several writers")
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[tuple[int, float, int]] = context.Queue()
    begin = context.Barrier(WRITERS)
    writers = [context.Process(target=write_as, args=(many, number, begin, answers)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    found = [answers.get(timeout=120) for _ in writers]
    for writer in writers:
        writer.join(30)
    _print_progress("heartbeats")
    return CatalogFigures(
        open_rocksdb_s=starts[str(node / "catalog")],
        open_postgres_s=starts[many],
        commit_p50_ms=statistics.median(times),
        commit_p99_ms=sorted(times)[int(len(times) * 0.99)],
        commits_s=sum(count for count, _, _ in found) / WRITER_SECONDS,
        writers_p99_ms=max(p99 for _, p99, _ in found),
        conflicts=sum(conflicts for _, _, conflicts in found),
        proofs_few_s=heartbeats_a_second(few),
        proofs_many_s=heartbeats_a_second(many),
    )


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--start", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.start:
        print(json.dumps(start(arguments.start)))
        return
    from tools.postgres import Postgres

    with tempfile.TemporaryDirectory(prefix="tilth-ha-") as name:
        folder = Path(name)
        postgres = Postgres(folder / "postgres")
        try:
            postgres.start()
            few, many = postgres.address(schema="few"), postgres.address(schema="many")
            print(measure(folder, few, many, partitions=arguments.partitions))
        finally:
            postgres.stop()


if __name__ == "__main__":
    main()
