"""Small INSERTs one after the other into a memory table."""

from __future__ import annotations

import statistics
import time

import numpy as np
import pyarrow as pa
from rich.table import Table

from bench.hot_node import HotNode
from bench.rivals import Kit

INSERTS = 10_000
ROWS = 100
#: At either end, for the comparison of both.
EDGE = 1_000
WARM = 50


def run(node: HotNode, _: Kit, __: bool) -> tuple[dict[str, float], list[Table]]:
    """The times of all, and of the first and last ones."""
    node.sql(
        "CREATE TABLE small (id BIGINT, user_id BIGINT, price DOUBLE, action STRING, ts TIMESTAMP) ENGINE = MergeTree "
        "ORDER BY (user_id, id) SETTINGS memory_buffer = 1"
    )
    draw = np.random.default_rng(7)
    times: list[float] = []
    for number in range(WARM + INSERTS):
        rows = pa.table(
            {
                "id": np.arange(number * ROWS, (number + 1) * ROWS),
                "user_id": draw.integers(0, 10**6, ROWS),
                "price": draw.random(ROWS),
                "action": pa.array(["view", "click", "cart", "buy"]).take(pa.array(draw.integers(0, 4, ROWS))),
                "ts": pa.array(np.full(ROWS, 1_760_000_000_000_000 + number), pa.timestamp("us", tz="UTC")),
            }
        )
        began = time.perf_counter()
        node.process.connection.insert("small", rows)
        times.append((time.perf_counter() - began) * 1000)
    found = node.value("SELECT count(DISTINCT id) FROM small")
    if found != (WARM + INSERTS) * ROWS:
        raise SystemExit(f"rows are missing: {found} of {(WARM + INSERTS) * ROWS}")
    measured = times[WARM:]
    table = Table("inserts", "p50 ms", "p99 ms", "max ms", title=f"INSERT of {ROWS} rows")
    for name, some in (("all", measured), ("first", measured[:EDGE]), ("last", measured[-EDGE:])):
        p50, p99 = np.percentile(some, [50, 99])
        table.add_row(f"{name} {len(some):,}", f"{p50:.1f}", f"{p99:.1f}", f"{max(some):.1f}")
    figures = {
        "insert100_p50_ms": statistics.median(measured),
        "insert100_p99_ms": float(np.percentile(measured, 99)),
        "insert100_last_over_first": statistics.median(measured[-EDGE:]) / statistics.median(measured[:EDGE]),
    }
    return figures, [table]
