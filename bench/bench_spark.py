"""Spark's own hands: writes and reads by a user's own Spark, files in, merges, streams that are killed.

    python -m bench.bench_spark [--sections writes,reads,copy,merges,streams] [--gib 1.0] [--kills 20] [--no-rivals]

Each section is a program of its own, bench/spark_*.py, and runs in a process of its own, one after the other. The last
line has the figures of all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from bench.fresh_process import fresh_process
from bench.report import Figure, print_report

#: Program of each section, and its arguments from those of this one.
SECTIONS: dict[str, tuple[str, Callable[[argparse.Namespace], list[str]]]] = {
    "writes": ("bench.spark_writes", lambda given: [*_gib(given), *(["--no-rivals"] if given.no_rivals else [])]),
    "reads": ("bench.spark_reads", lambda given: _gib(given)),
    "copy": ("bench.spark_copy", lambda given: [*_gib(given), *(["--no-rivals"] if given.no_rivals else [])]),
    "merges": ("bench.spark_merges", lambda given: _gib(given)),
    "streams": ("bench.spark_streams", lambda given: ["--kills", str(given.kills), "--files", str(given.files)]),
}


def _gib(given: argparse.Namespace) -> list[str]:
    return ["--gib", str(given.gib)]


def figures_of(record: dict[str, Any]) -> list[Figure]:
    """Return the figures in a section's last line."""
    return [Figure(**each) for each in record["figures"]]


def main() -> None:
    parser = argparse.ArgumentParser(description="writes and reads by a user's own Spark")
    parser.add_argument("--sections", default=",".join(SECTIONS), help="names with commas between")
    parser.add_argument("--gib", type=float, default=1.0, help="GiB of files, about")
    parser.add_argument("--kills", type=int, default=20, help="drivers of the stream that are killed")
    parser.add_argument("--files", type=int, default=200, help="batches of the stream")
    parser.add_argument("--no-rivals", action="store_true", help="leave out what needs the rivals' kit")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    for name in arguments.sections.split(","):
        module, given = SECTIONS[name]
        figures += figures_of(fresh_process(module, given(arguments)))
    print_report("spark", figures)


if __name__ == "__main__":
    main()
