"""A server that has nothing to do: the processor, the statements and the writes that it needs, by number of tables.

    python -m bench.ha_idle --tables 10000

A real server with its Spark, over a catalog in PostgreSQL; each table has two parts, too large to be merged. The
database logs all statements that it gets while it is watched: heartbeats, polls for news, and what the server does by
the way. The server has come to rest when the database gets few transactions for some seconds.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
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
#: Transactions a second, for so many seconds, below which a server has come to rest; the longest wait for that.
REST_TRANSACTIONS = 50.0
REST_SECONDS = 10.0
SETTLE_SECONDS_MAX = 900.0
WATCH_SECONDS = 60.0
#: Line of the database's log that has a statement, the first words of which are its kind.
STATEMENT = re.compile(r"LOG:  (?:execute [^:]*|statement): (.{0,60})")
COUNTED = (
    "SELECT xact_commit + xact_rollback, tup_inserted + tup_updated + tup_deleted "
    "FROM pg_stat_database WHERE datname = current_database()"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    #: Cores that are busy: of the server with its JVM, of the database.
    server_cpu: float
    database_cpu: float
    #: Time from the begin of the server's start until it has come to rest.
    settled_s: float
    #: Statements by their first words; transactions and written rows, as the database counts them.
    statements_s: dict[str, float]
    transactions_s: float
    rows_written_s: float
    #: Memory of the server without its JVM.
    memory_mb: float


def idle(folder: Path, *, tables: int) -> Idle:
    """Start a server over so many tables, and watch it do nothing."""
    with HaStage(folder) as stage:
        stage.start_database()
        _build(stage.database.address(), tables)
        started = time.monotonic()
        stage.start_servers(("a",), ONE_CORE)
        server, database = psutil.Process(stage.nodes["a"].pid), psutil.Process(stage.database.pid)
        with stage.database.connect() as connection:

            def counts() -> tuple[int, int]:
                row = connection.execute(COUNTED).fetchone()
                assert row is not None
                return int(str(row[0])), int(str(row[1]))

            settled_s = _wait_for_rest(lambda: counts()[0], started)
            log = folder / "postgres" / "postgres.log"
            stage.database.configure("log_statement", "all")
            skipped = log.stat().st_size
            before, began = counts(), time.monotonic()
            cpu = cpu_seconds(server), cpu_seconds(database)
            time.sleep(WATCH_SECONDS)
            after, seconds = counts(), time.monotonic() - began
            logged = log.read_text(errors="replace")[skipped:]
            return Idle(
                server_cpu=(cpu_seconds(server) - cpu[0]) / seconds,
                database_cpu=(cpu_seconds(database) - cpu[1]) / seconds,
                settled_s=settled_s,
                statements_s={kind: count / seconds for kind, count in Counter(STATEMENT.findall(logged)).items()},
                transactions_s=(after[0] - before[0]) / seconds,
                rows_written_s=(after[1] - before[1]) / seconds,
                memory_mb=server.memory_info().rss / (1 << 20),
            )


def _wait_for_rest(transactions: Callable[[], int], started: float) -> float:
    """Wait until the database gets few transactions; return since when, in seconds after `started`."""
    while True:
        began, before = time.monotonic(), transactions()
        time.sleep(REST_SECONDS)
        now = time.monotonic()
        is_over = now - started > SETTLE_SECONDS_MAX
        if is_over or (transactions() - before) / (now - began) < REST_TRANSACTIONS:
            return began - started


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
        found = idle(Path(folder), tables=arguments.tables)
    for kind, count in sorted(found.statements_s.items(), key=lambda each: -each[1]):
        print(f"{count:8.2f}/s  {kind}")
    print(replace(found, statements_s={}), f"statements_s={sum(found.statements_s.values()):.1f}")


if __name__ == "__main__":
    main()
