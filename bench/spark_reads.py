"""Reads in a user's own Spark, beside Spark's scan of the same rows as Parquet, in one run.

    python -m bench.spark_reads [--gib 1] [--passes 3]

Prints `read_ratio_parquet`, of the native scan of `tilth.read`, and `source_ratio_parquet`, of the format `tilth`: time
of `spark.read.parquet` over theirs, for a sum over all columns of numbers, and for a selective filter. The ratios are
of the sums of the best times. A server that knows one table pins it; the files are those of a table's parts.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from rich.table import Table

import tilth
from bench.bench_query import UUID, make_snapshot
from bench.own_spark import own_spark
from bench.report import Figure, more, print_report
from tilth.model.lease import ReaderLease
from tilth.model.snapshot import Snapshot
from tilth.storage import local_root

CORES = 2
#: About the bytes of a row of `bench_query.events` in a part.
ROW_BYTES = 14
FILE_ROWS = 2_000_000
QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "all columns": lambda frame: frame.selectExpr(
        "sum(event_id)", "sum(user_id)", "max(ts)", "sum(price)", "max(region)"
    ),
    "filter": lambda frame: frame.where("user_id BETWEEN 1000 AND 2000").selectExpr("count(*)", "sum(price)"),
}


def reads(session: SparkSession, scratch: Path, *, gib: float, passes: int) -> tuple[list[Figure], Table]:
    """Measure with a session that can import Tilth in its tasks; the figures, and the times behind them."""
    rows = max(100_000, int(gib * 2**30 / ROW_BYTES))
    root = scratch / "tables"
    snapshot = make_snapshot(local_root(root), rows=rows, files=max(2, rows // FILE_ROWS))
    paths = [str(root / UUID / "data" / part.file.name) for part in snapshot.parts]
    with _server(snapshot, str(root)) as url, tilth.attach(session, url=url):
        ways: dict[str, Callable[[], DataFrame]] = {
            "parquet": lambda: session.read.parquet(*paths),
            "native": lambda: tilth.read(session, "bench.events", url=url),
            "source": lambda: session.read.format("tilth").load("bench.events"),
        }
        times = {way: dict.fromkeys(QUERIES, float("inf")) for way in ways}
        for turn in range(passes + 1):
            for name, query in QUERIES.items():
                answers = set()
                for way, make in ways.items():
                    begin = time.perf_counter()
                    row = query(make()).collect()[0]
                    seconds = time.perf_counter() - begin
                    answers.add(repr([round(cell, 2) if isinstance(cell, float) else cell for cell in row]))
                    if turn:
                        times[way][name] = min(times[way][name], seconds)
                if len(answers) > 1:
                    raise SystemExit(f"the answers differ: query={name} answers={answers}")
    total = {way: sum(of.values()) for way, of in times.items()}
    table = Table("query", *(f"{way}, s" for way in ways), title=f"{rows:,} rows in {len(paths)} parts, best pass")
    for name in QUERIES:
        table.add_row(name, *(f"{times[way][name]:.3f}" for way in ways))
    figures = [
        more("read_ratio_parquet", total["parquet"] / total["native"], "x"),
        more("source_ratio_parquet", total["parquet"] / total["source"], "x"),
    ]
    return figures, table


@contextmanager
def _server(snapshot: Snapshot, root: str) -> Iterator[str]:
    """A server that pins one table and knows nothing else."""
    lease = ReaderLease(id="r", table=UUID, snapshot_ts=1, holder="s", expires_ms=2**53, opened_ms=0)
    pinned = msgspec.msgpack.encode((snapshot, lease, root))

    class OneTable(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._answer(pinned if self.path.startswith("/v1/snapshot/") else b"")

        def do_DELETE(self) -> None:
            self._answer(b"")

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

        def _answer(self, body: bytes) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), OneTable)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Reads in a user's own Spark, beside its scan of Parquet.")
    parser.add_argument("--gib", type=float, default=1.0, help="bytes of the table's files")
    parser.add_argument("--passes", type=int, default=3, help="those that count; one more is the run-up")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, own_spark(cores=CORES, scratch=Path(folder)) as session:
        figures, table = reads(session, Path(folder), gib=given.gib, passes=given.passes)
    print_report("spark_reads", figures, [table])


if __name__ == "__main__":
    main()
