"""Several servers over one catalog: how soon another goes on, and what the catalog in PostgreSQL costs.

    python -m bench.bench_ha [--sections catalog,failover,idle,chaos] [--kills 20]

Two cores for the database, the servers, the broker and the writers together. The rival of PostgreSQL is RocksDB, which
one process alone can use. Each section can be run alone: see bench/ha_*.py.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.ha_catalog import PARTS_OF_PARTITION, measure
from bench.ha_failover import fail_over
from bench.ha_idle import idle
from bench.report import Figure, less, more, print_report
from tools.jepsen.run import Order, run_jepsen
from tools.postgres import Postgres

PERCENTILE = 95


def _catalog(folder: Path, arguments: argparse.Namespace) -> list[Figure]:
    postgres = Postgres(folder / "postgres")
    try:
        postgres.start()
        few, many = postgres.address(schema="few"), postgres.address(schema="many")
        found = measure(folder, few, many, partitions=arguments.partitions)
    finally:
        postgres.stop()
    parts = arguments.partitions * PARTS_OF_PARTITION
    return [
        less("parts", parts, "parts"),
        less("restart_1m_parts_s", found.open_postgres_s, "s", 3),
        less("restart_1m_parts_rocksdb_s", found.open_rocksdb_s, "s", 3),
        less("commit_pg_p50_ms", found.commit_p50_ms, "ms"),
        less("commit_pg_p99_ms", found.commit_p99_ms, "ms", 50),
        more("pg_commits_s", found.commits_s, "commits/s", 1000),
        less("pg_writers_p99_ms", found.writers_p99_ms, "ms"),
        less("pg_conflicts", found.conflicts, "conflicts", 0),
        less("lease_writes_s", found.proofs_many_s, "writes/s"),
        less("lease_writes_ratio", found.proofs_many_s / found.proofs_few_s, "x", 1.05),
    ]


def _failover(folder: Path, arguments: argparse.Namespace) -> list[Figure]:
    found = fail_over(folder, kills=arguments.kills)
    return [
        less("failover_p50_s", statistics.median(found.killed_s), "s", 3),
        less("failover_p95_s", float(np.percentile(found.killed_s, PERCENTILE)), "s", 5),
        less("failover_max_s", max(found.killed_s), "s"),
        less("lost", found.lost, "rows", 0),
        less("twice", found.twice, "rows", 0),
    ]


def _idle(folder: Path, arguments: argparse.Namespace) -> list[Figure]:
    figures = []
    for tables in (10, arguments.tables):
        found = idle(folder / str(tables), tables=tables)
        figures += [
            less(f"idle_{tables}_tables_server_cpu", found.server_cpu, "cores"),
            less(f"idle_{tables}_tables_database_cpu", found.database_cpu, "cores"),
            less(f"idle_{tables}_tables_transactions_s", found.transactions_s, "1/s"),
            less(f"idle_{tables}_tables_statements_s", sum(found.statements_s.values()), "1/s", 50),
            less(f"idle_{tables}_tables_settled_s", found.settled_s, "s", 120),
            less(f"idle_{tables}_tables_rows_written_s", found.rows_written_s, "rows/s"),
            less(f"idle_{tables}_tables_memory_mb", found.memory_mb, "MiB"),
        ]
    return figures


def _chaos(folder: Path, arguments: argparse.Namespace) -> list[Figure]:
    found = run_jepsen(folder, Order(subject="servers", rounds=arguments.rounds, seed=arguments.seed))
    print(found.line())
    go_on_s = [seconds for kind in found.go_on_s.values() for seconds in kind]
    return [
        more("chaos_rounds", found.rounds, "rounds", arguments.rounds),
        less("chaos_go_on_p50_s", statistics.median(go_on_s), "s"),
        less("chaos_go_on_p95_s", float(np.percentile(go_on_s, PERCENTILE)), "s"),
        less("chaos_go_on_max_s", max(go_on_s), "s"),
        less("chaos_lost", found.faults.lost, "rows", 0),
        less("chaos_twice", found.faults.twice, "rows", 0),
        less("chaos_torn", found.faults.torn, "statements", 0),
        less("chaos_files_left", found.faults.unknown_files, "files", 0),
        less("chaos_wrong", found.faults.wrong, "answers", 0),
    ]


SECTIONS: dict[str, Callable[[Path, argparse.Namespace], list[Figure]]] = {
    "catalog": _catalog,
    "failover": _failover,
    "idle": _idle,
    "chaos": _chaos,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=10_000, help="of 100 parts each")
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=100, help="of chaos")
    parser.add_argument("--seed", type=int, default=1, help="of chaos")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    try:
        for name in arguments.sections.split(","):
            with tempfile.TemporaryDirectory(prefix=f"tilth-ha-{name}-") as folder:
                figures += SECTIONS[name](Path(folder), arguments)
    finally:
        # The figures that were measured before a section failed are printed, too.
        print_report("ha", figures)


if __name__ == "__main__":
    main()
