"""Seconds to visible, rows that change: the memory table, small inserts, fresh rows, upserts.

    python -m bench.bench_hot [--kit DIR] [--work DIR] [--only wide,inserts,visible,upserts] [--without-rivals]

Everything goes through the doors that a user has: a `tilth serve` process, HTTP, a real broker.

    wide       500 columns, messages of 7.5 KB in rounds of 1,000 (half a second at 2,000 messages a second): a table
               with memory_buffer = 1 over one without, the same topic, passes in turn. Beside it: rounds of 65,536,
               and over these the Iceberg and Delta sinks (4 micro-batches, both cores).
    inserts    10,000 INSERTs of 100 rows, one after the other, each answered after its commit; then those of 100
               clients at once, and of one beside 20 that SELECT.
    visible    2,000 messages a second, rounds of 500 ms, flushes and merges meanwhile; from the call that produced a
               row to the end of the SELECT that showed it. Beside it the Iceberg and Delta sinks, as the kit has them.
    upserts    a table of 10 M rows with a unique key: a query of it clean, with 1 % of its rows changed, and compacted;
               then messages with random keys, until the last one counts. Beside it what delta-rs, PyIceberg and
               PyPaimon need for one upsert.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.table import Table

from bench import hot_inserts, hot_upserts, hot_visible, hot_wide
from bench.hot_node import HotNode
from bench.report import Figure, print_report
from bench.rivals import Kit, add_kit_arguments, kit_of
from tools.broker import Broker
from tools.node_process import NodeProcess

#: Name, unit, target, whether more is better.
FIGURES = {
    "wide_ratio": ("x", 3.0, True),
    "wide_ratio_large_rounds": ("x", None, True),
    "wide_ratio_iceberg": ("x", 3.0, True),
    "wide_ratio_delta": ("x", 3.0, True),
    "insert100_p50_ms": ("ms", 5.0, False),
    "insert100_p99_ms": ("ms", 200.0, False),
    "insert100_last_over_first": ("x", None, False),
    "inserts_s_100_clients": ("/s", 2_000.0, True),
    "inserts_s_100_clients_json": ("/s", 2_000.0, True),
    "insert_beside_readers_p50_ms": ("ms", 50.0, False),
    "disk_sync_ms": ("ms", None, False),
    "visible_p50_s": ("s", 0.4, False),
    "visible_p99_s": ("s", 1.0, False),
    "upsert_rows_s": ("rows/s", 200_000.0, True),
    "query_dirty_ratio": ("x", 1.2, False),
    "query_compacted_ratio": ("x", 1.1, False),
}
SECTIONS: dict[str, Callable[[HotNode, Kit, bool], tuple[dict[str, float], list[Table]]]] = {
    "wide": hot_wide.run,
    "inserts": hot_inserts.run,
    "visible": hot_visible.run,
    "upserts": hot_upserts.run,
}

#: Settings of the node by section, where the defaults do not fit.
NODE_SETTINGS = {"visible": hot_visible.NODE_SETTINGS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_kit_arguments(parser)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--without-rivals", action="store_true", help="only our own passes")
    arguments = parser.parse_args()
    kit = kit_of(arguments)
    found: dict[str, float] = {}
    tables: list[Table] = []
    for name in arguments.only.split(","):
        # Each with a broker and a node of its own: no section inherits another's files, memory or background work.
        folder = Path(tempfile.mkdtemp(prefix=f"tilth-hot-{name}-"))
        try:
            with ExitStack() as stack:
                broker = Broker(folder / "broker")
                stack.callback(broker.stop)
                broker.start()
                process = NodeProcess(folder / "node", settings=NODE_SETTINGS.get(name))
                stack.callback(process.stop)
                process.start()
                process.wait_ready()
                figures, more = SECTIONS[name](HotNode(process, broker), kit, not arguments.without_rivals)
                found |= figures
                tables += more
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    figures_found = [
        Figure(name=name, value=found[name], unit=unit, target=target, higher_is_better=is_better)
        for name, (unit, target, is_better) in FIGURES.items()
        if name in found
    ]
    print_report("hot", figures_found, tables)


if __name__ == "__main__":
    main()
