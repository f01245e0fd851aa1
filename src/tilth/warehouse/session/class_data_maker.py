"""The process that makes a class-data archive: starts Spark as a node does, runs what nodes run, ends it.

Covers: what is run, which decides what the archive holds. Does not cover: when it is made, by whom (class_data.py).
Always holds: the archive gets its name when it is whole. The process ends when the one that started it does, and takes
its JVM with it.

Tests: tests/integration/warehouse/test_spark_session.py.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from tilth.model.warehouse import QUERY_WAREHOUSE
from tilth.warehouse.session.class_data import MadeClassData, replace_archive
from tilth.warehouse.session.session import WorkerSession
from tilth.warehouse.settings import WarehouseSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 2_000
_STANDARD_INPUT = 0
#: Settings and path, as class_data.py sends them.
_ORDER = msgspec.msgpack.Decoder(tuple[WarehouseSettings, str])


def make(settings: WarehouseSettings, path: Path) -> None:
    """Make the archive at the path."""
    folder = path.parent
    unfinished = path.with_suffix(".tmp")
    unfinished.unlink(missing_ok=True)
    session = WorkerSession(
        settings,
        folder=str(folder),
        log_folder=str(folder / "log"),
        class_data=MadeClassData(unfinished),
    )
    session.start()
    try:
        session.warm()
        session.run_first_query()
        _run_mix(session.new_session(pool=QUERY_WAREHOUSE), session.temporary_folder / "mix")
    finally:
        session.stop()
    unfinished.chmod(0o600)
    replace_archive(unfinished, path)


def _run_mix(session: SparkSession, folder: Path) -> None:
    """Run a little of all that queries, imports and merges use of Spark."""
    rows = session.range(0, _ROWS, 1, 2).selectExpr(
        "id", "id % 7 AS k", "cast(id AS string) AS s", "id / 3.0D AS d", "timestamp_millis(id) AS at"
    )
    rows.write.parquet(str(folder))
    read = session.read.parquet(str(folder))
    read.createOrReplaceTempView("t")
    read.mapInArrow(lambda batches: batches, read.schema).count()
    read.selectExpr("_metadata.file_name", "_metadata.row_index", "id").where("id < 5").toArrow()
    for query in (
        "SELECT k, count(*), sum(d), max(at), approx_count_distinct(s) FROM t WHERE id > 10 GROUP BY k ORDER BY k",
        "SELECT a.s, b.d FROM t a JOIN t b ON a.id = b.id WHERE a.k IN (1, 2) AND b.s LIKE '1%' LIMIT 10",
        "SELECT *, row_number() OVER (PARTITION BY k ORDER BY at DESC) AS n FROM t ORDER BY d DESC LIMIT 5",
        "SELECT date_trunc('DAY', at), upper(s), coalesce(d, 0), CASE WHEN k = 1 THEN 'a' ELSE s END FROM t LIMIT 3",
        "SELECT k FROM t UNION ALL SELECT id FROM t EXCEPT SELECT 5",
    ):
        session.sql(query).toArrow()


def _end_with_parent() -> None:
    """Wait for the end of standard input, then end, and the JVM before it can write an archive."""
    # Past the buffer, which Python wants to itself when it ends.
    os.read(_STANDARD_INPUT, 1)
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            process.kill()
    os._exit(1)


def main() -> None:
    """Read settings and path from standard input, where the process that starts this one writes them."""
    with os.fdopen(_STANDARD_INPUT, "rb", buffering=0, closefd=False) as given:
        size = int.from_bytes(given.read(4), "big")
        settings, path = _ORDER.decode(given.read(size))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    make(settings, Path(path))


if __name__ == "__main__":
    main()
