"""A server that has nothing to do: the processor, the questions and the writes that it needs, with few and many tables.

    python -m bench.ha_idle --tables 10000

A real server with its Spark, over a catalog in PostgreSQL; each table has two parts, too large to be merged. What the
database counts are all statements that it got: the heartbeats, the polls for news, and what the server does by the way.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil

from tilth.base.clock import SystemClock
from tilth.base.ids import random_id
from tilth.catalog import Catalog, InsertPart, PostgresKV, parse_postgres
from tilth.model.part import DataFile, WrittenPart
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Kind, Simple
from tools.ha_stage import ONE_CORE, HaStage

SCHEMA = Schema(columns=(Column(id=1, name="a", type=Simple(Kind.INT64)),))
PART_BYTES = 100 << 30
#: Time until the effects of a start are over.
SETTLE_SECONDS = 30.0
WATCH_SECONDS = 60.0
COUNTED = (
    "SELECT xact_commit + xact_rollback, tup_inserted + tup_updated + tup_deleted "
    "FROM pg_stat_database WHERE datname = current_database()"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    #: Cores that are busy: of the server with its JVM, of the database.
    server_cpu: float
    database_cpu: float
    #: Transactions and written rows, as the database counts them.
    transactions_s: float
    rows_written_s: float
    #: Memory of the server without its JVM.
    memory_mb: float


def idle(folder: Path, *, tables: int) -> Idle:
    """Start a server over so many tables, and watch it do nothing."""
    with HaStage(folder) as stage:
        stage.start_database()
        _build(stage.database.address(), tables)
        stage.start_servers(("a",), ONE_CORE)
        time.sleep(SETTLE_SECONDS)
        server, database = psutil.Process(stage.nodes["a"].pid), psutil.Process(stage.database.pid)
        with stage.database.connect() as connection:

            def counts() -> tuple[int, int]:
                row = connection.execute(COUNTED).fetchone()
                assert row is not None
                return int(str(row[0])), int(str(row[1]))

            before, began = counts(), time.monotonic()
            cpu = cpu_seconds(server), cpu_seconds(database)
            time.sleep(WATCH_SECONDS)
            after, seconds = counts(), time.monotonic() - began
            return Idle(
                server_cpu=(cpu_seconds(server) - cpu[0]) / seconds,
                database_cpu=(cpu_seconds(database) - cpu[1]) / seconds,
                transactions_s=(after[0] - before[0]) / seconds,
                rows_written_s=(after[1] - before[1]) / seconds,
                memory_mb=server.memory_info().rss / (1 << 20),
            )


def _build(address: str, tables: int) -> None:
    with closing(PostgresKV(SystemClock(), parse_postgres(address))) as kv:
        clock = SystemClock()
        catalog = Catalog(kv, clock, "bench", random_id)
        for number in range(tables):
            definition = TableDef(
                uuid=random_id(),
                database="default",
                name=f"t{number:05d}",
                schema=SCHEMA,
                next_column_id=2,
                created_ms=clock.now_ms(),
            )
            table = catalog.tables.create(definition).uuid
            catalog.transactions.apply("bench", [InsertPart(table=table, written=_written(part)) for part in range(2)])


def _written(number: int) -> WrittenPart:
    file = DataFile(name=f"{number}.parquet", size=PART_BYTES, checksum=1)
    return WrittenPart(partition="all", values=("all",), rows=1000, file=file, ranges={})


def cpu_seconds(process: psutil.Process) -> float:
    """Return the total processor time of a process and of all that it has started."""
    times = [each.cpu_times() for each in [process, *process.children(recursive=True)]]
    return sum(each.user + each.system for each in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=10_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilth-idle-") as folder:
        print(idle(Path(folder), tables=arguments.tables))


if __name__ == "__main__":
    main()
