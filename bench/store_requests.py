"""Requests of each kind of statement on an object store: `python -m bench.store_requests [--store s3|gs]`.

Covers: one node over an S3 server (s3proxy) or a bucket that speaks as GCS does, each statement alone, counted until
the store is quiet again. Does not cover: time.
Always holds: merges, flushes and collecting are stopped; a mutation that a statement begins counts with it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.table import Table

from bench.report import less, print_report
from tilth.testing import FakeBucket
from tools.broker import ROOT
from tools.node_process import NodeProcess
from tools.s3server import KEY, SECRET, S3Server

#: Without a request for so long, what a statement has begun has ended: leftovers are removed after its answer.
QUIET_SECONDS = 3.0
QUIET_SECONDS_MAX = 60.0
PARTITIONS = 60

BEFORE = (
    "CREATE DATABASE d",
    "CREATE TABLE d.t (id BIGINT, p INT, v STRING) ENGINE = MergeTree PARTITION BY p ORDER BY id",
    "CREATE TABLE d.u (id BIGINT, p INT, v STRING) ENGINE = MergeTree PARTITION BY p ORDER BY id UNIQUE KEY id",
    f"INSERT INTO d.t SELECT id, CAST(id % {PARTITIONS} AS INT), 'a' FROM range(6000)",
    f"INSERT INTO d.u SELECT id, CAST(id % {PARTITIONS} AS INT), 'a' FROM range(6000)",
    "SYSTEM STOP MERGES",
    "SYSTEM STOP FLUSH",
    "SYSTEM STOP GC",
)
STATEMENTS = (
    ("SELECT of one row", "SELECT v FROM d.t WHERE p = 7 AND id = 7"),
    ("SELECT of all", "SELECT count(*), sum(id) FROM d.t WHERE id >= 0"),
    ("INSERT of one row", "INSERT INTO d.t VALUES (-1, 7, 'b')"),
    (
        f"INSERT .. SELECT, {PARTITIONS} partitions",
        f"INSERT INTO d.t SELECT id, CAST(id % {PARTITIONS} AS INT), 'c' FROM range(600)",
    ),
    ("keyed INSERT of one row, new", "INSERT INTO d.u VALUES (-1, 7, 'b')"),
    ("keyed INSERT of one row, known", "INSERT INTO d.u VALUES (7, 7, 'c')"),
    ("DELETE of one row", "DELETE FROM d.t WHERE p = 7 AND id = 67"),
    ("DELETE of one row, all partitions", "DELETE FROM d.t WHERE id = 127"),
    ("UPDATE of one row", "UPDATE d.t SET v = 'd' WHERE p = 7 AND id = 187"),
    ("DELETE of no row", "DELETE FROM d.t WHERE p = 7 AND id = -99"),
    ("ALTER TABLE .. ADD COLUMN", "ALTER TABLE d.t ADD COLUMN w BIGINT"),
    ("OPTIMIZE .. PARTITION", "OPTIMIZE TABLE d.t PARTITION 8"),
    ("DROP PARTITION", "ALTER TABLE d.t DROP PARTITION 9"),
    ("CREATE TABLE", "CREATE TABLE d.x (id BIGINT) ENGINE = MergeTree ORDER BY id"),
    ("DROP TABLE", "DROP TABLE d.x"),
)


class Bucket(Protocol):
    """A store that records its requests."""

    def verbs(self) -> Counter[str]:
        """Return the requests since the last call, by verb."""


class _S3:
    def __init__(self, server: S3Server) -> None:
        self._server = server

    def verbs(self) -> Counter[str]:
        return Counter(
            "LIST" if verb == "GET" and path.strip("/") == "tilth" else verb for verb, path in self._server.requests()
        )


class _Gcs:
    def __init__(self, bucket: FakeBucket) -> None:
        self._bucket = bucket

    def verbs(self) -> Counter[str]:
        return Counter(each.verb for each in self._bucket.requests())


@contextmanager
def _bucket(store: str, folder: Path) -> Iterator[tuple[Bucket, dict[str, str]]]:
    """Start a bucket; give it with the settings of a node whose tables are there."""
    if store == "gs":
        with FakeBucket(is_gcs=True) as bucket:
            account = {"gcs_base_url": bucket.endpoint, "disable_oauth": True, "client_email": "", "private_key": ""}
            (folder / "gcs.json").write_text(json.dumps(account | {"private_key_id": ""}))
            options = f"endpoint={bucket.endpoint}&credentials=file:{folder}/gcs.json"
            yield _Gcs(bucket), {"storage.root": f"gs://tilth/tables?{options}"}
        return
    server = S3Server(folder / "s3")
    server.start()
    try:
        server.create_bucket("tilth")
        (folder / "key").write_text(KEY)
        (folder / "secret").write_text(SECRET)
        keys = f"key=file:{folder / 'key'}&secret=file:{folder / 'secret'}"
        root = f"s3://tilth/tables?endpoint={server.endpoint}&region=us-east-1&{keys}"
        yield _S3(server), {"storage.root": root, "warehouse.jars": str(ROOT / ".cache" / "s3a")}
    finally:
        server.stop()


def _quiet(bucket: Bucket) -> Counter[str]:
    """Return the requests to the store until it is quiet."""
    found: Counter[str] = Counter()
    deadline = time.monotonic() + QUIET_SECONDS_MAX
    since = time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS and time.monotonic() < deadline:
        verbs = bucket.verbs()
        found += verbs
        if verbs:
            since = time.monotonic()
        time.sleep(0.2)
    return found


def count(store: str) -> dict[str, Counter[str]]:
    """Return the requests of each statement, by verb."""
    with tempfile.TemporaryDirectory(prefix="tilth-requests-") as name:
        folder = Path(name)
        with _bucket(store, folder) as (bucket, settings):
            node = NodeProcess(folder / "node", settings=settings | {"warehouse.driver-memory": "1g"})
            try:
                node.start()
                node.wait_ready()
                for statement in BEFORE:
                    node.connection.sql(statement)
                _quiet(bucket)
                found = {}
                for kind, statement in STATEMENTS:
                    # Spark reads rows of GCS by a connector that is not among the jars of the tests.
                    if store == "gs" and not statement.startswith(("INSERT", "CREATE", "DROP")):
                        continue
                    node.connection.sql(statement)
                    found[kind] = _quiet(bucket)
                    print(kind, dict(found[kind]), flush=True)
                return found
            finally:
                node.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["s3", "gs"], default="s3")
    store = parser.parse_args().store
    found = count(store)
    verbs = sorted({verb for counts in found.values() for verb in counts})
    table = Table("statement", *verbs, "all", title=f"requests on {store}")
    for kind, counts in found.items():
        table.add_row(kind, *(str(counts[verb]) for verb in verbs), str(counts.total()))
    changes = {kind: counts.total() for kind, counts in found.items() if "of one row" in kind and "SELECT" not in kind}
    print_report(
        f"store_requests_{store}",
        [less(f"{_figure(kind)}_requests", total, "requests") for kind, total in changes.items()],
        [table],
    )


def _figure(kind: str) -> str:
    return kind.replace(",", "").replace(" ", "_")


if __name__ == "__main__":
    main()
