"""Several servers over one catalog: how soon another goes on, and what the catalog in PostgreSQL costs.

    python -m bench.bench_ha [--sections catalog,failover] [--kills 20] [--partitions 10000]

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
from bench.report import Figure, print_report
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
        _less("parts", parts, "parts"),
        _less("restart_1m_parts_s", found.open_postgres_s, "s", 3),
        _less("restart_1m_parts_rocksdb_s", found.open_rocksdb_s, "s", 3),
        _less("commit_pg_p50_ms", found.commit_p50_ms, "ms"),
        _less("commit_pg_p99_ms", found.commit_p99_ms, "ms", 50),
        _more("pg_commits_s", found.commits_s, "commits/s", 1000),
        _less("pg_writers_p99_ms", found.writers_p99_ms, "ms"),
        _less("pg_conflicts", found.conflicts, "conflicts", 0),
        _less("lease_writes_s", found.proofs_many_s, "writes/s"),
        _less("lease_writes_ratio", found.proofs_many_s / found.proofs_few_s, "x", 1.05),
    ]


def _failover(folder: Path, arguments: argparse.Namespace) -> list[Figure]:
    found = fail_over(folder, kills=arguments.kills)
    return [
        _less("failover_p50_s", statistics.median(found.killed_s), "s", 3),
        _less("failover_p95_s", float(np.percentile(found.killed_s, PERCENTILE)), "s", 5),
        _less("failover_max_s", max(found.killed_s), "s"),
        _less("lost", found.lost, "rows", 0),
        _less("twice", found.twice, "rows", 0),
    ]


SECTIONS: dict[str, Callable[[Path, argparse.Namespace], list[Figure]]] = {
    "catalog": _catalog,
    "failover": _failover,
}


def _less(name: str, value: float, unit: str, target: float | None = None) -> Figure:
    return Figure(name=name, value=value, unit=unit, target=target, higher_is_better=False)


def _more(name: str, value: float, unit: str, target: float | None = None) -> Figure:
    return Figure(name=name, value=value, unit=unit, target=target, higher_is_better=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=10_000, help="of 100 parts each")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    for name in arguments.sections.split(","):
        with tempfile.TemporaryDirectory(prefix=f"tilth-ha-{name}-") as folder:
            figures += SECTIONS[name](Path(folder), arguments)
    print_report("ha", figures)


if __name__ == "__main__":
    main()
