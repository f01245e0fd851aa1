"""Costs of several processes and a bucket, and the time until service goes on when one of them ends.

    python -m bench.bench_cluster [--sections ingest,kills,store,reads,restart] [--kills 20]

Two cores for everything: ratios and counts, not absolute speed. The rival of a worker in a process of its own is the
server's own Spark, in the same run; the rival of two warehouses is one Spark for both. Each section can be run alone:
see bench/cluster_*.py.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.cluster_ingest import ingest
from bench.cluster_kills import strike
from bench.cluster_reads import read_apart, read_together
from bench.cluster_restart import restart
from bench.cluster_store import count_requests
from bench.report import Figure, less, more, print_report

STOPS = 3
PERCENTILE = 95


def _ingest(folder: Path, arguments: argparse.Namespace) -> list[Figure]:
    found = ingest(folder, messages=arguments.messages, passes=arguments.passes)
    embedded, remote = (statistics.median(found[kind]) for kind in ("embedded", "remote"))
    return [
        more("ingest_embedded_mib_s", embedded, "MiB/s"),
        more("ingest_remote_mib_s", remote, "MiB/s"),
        more("ingest_remote_ratio", remote / embedded, "x", 0.9),
    ]


def _kills(folder: Path, arguments: argparse.Namespace) -> list[Figure]:
    blows = strike(folder, kills=arguments.kills, stops=STOPS)
    return [
        less("replaced_p50_s", statistics.median(blows.killed_s), "s"),
        less("replaced_p95_s", float(np.percentile(blows.killed_s, PERCENTILE)), "s", 5),
        less("replaced_max_s", max(blows.killed_s), "s"),
        less("hung_jvm_found_max_s", max(blows.found_s), "s", 15),
        less("hung_jvm_commit_max_s", max(blows.stopped_s), "s"),
        more("kills_lost_nothing", float(blows.is_right), "yes", 1),
    ]


def _store(folder: Path, arguments: argparse.Namespace) -> list[Figure]:
    requests = count_requests(folder, parts=arguments.parts, rounds=arguments.rounds)
    return [
        less("round_requests_beside_files", requests.a_round_beside_files, "requests", 3),
        more("scan_parts", requests.parts, "parts", arguments.parts),
        less("plan_requests", requests.of_plan, "requests", 0),
        less("scan_gets_a_part", requests.gets_a_part, "requests", 1),
        less("scan_heads_a_part", requests.heads_a_part, "requests", 1),
    ]


def _reads(folder: Path, arguments: argparse.Namespace) -> list[Figure]:
    sizes = {"messages": arguments.messages, "queries": arguments.queries}
    apart = read_apart(folder / "apart", **sizes)
    together = read_together(folder / "together", **sizes)
    return [
        less("query_idle_apart_s", apart.idle_s, "s"),
        less("query_importing_apart_ratio", apart.ratio, "x", 1.5),
        less("query_idle_together_s", together.idle_s, "s"),
        less("query_importing_together_ratio", together.ratio, "x"),
    ]


def _restart(folder: Path, arguments: argparse.Namespace) -> list[Figure]:
    seconds = restart(folder, kills=arguments.restarts)
    return [
        less("restart_catalog_s", seconds["catalog_s"], "s"),
        less("restart_answer_s", seconds["answer_s"], "s", 5),
        less("restart_commit_s", seconds["commit_s"], "s", 6),
    ]


SECTIONS: dict[str, Callable[[Path, argparse.Namespace], list[Figure]]] = {
    "ingest": _ingest,
    "kills": _kills,
    "store": _store,
    "reads": _reads,
    "restart": _restart,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--passes", type=int, default=4, help="of ingest, besides the run-up")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--parts", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--queries", type=int, default=15)
    parser.add_argument("--restarts", type=int, default=5)
    arguments = parser.parse_args()
    figures: list[Figure] = []
    for section in arguments.sections.split(","):
        with tempfile.TemporaryDirectory(prefix=f"tilth-{section}-") as folder:
            figures += SECTIONS[section](Path(folder), arguments)
    print_report("cluster", figures)


if __name__ == "__main__":
    main()
