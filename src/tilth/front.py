"""The two public verbs that need more than a connection: a node in this process, and a table in your own Spark.

Covers: `tilth.open` and `tilth.read`. Does not cover: how a node is put together (node.py), how a snapshot becomes a
DataFrame (storage/spark.py). Always holds: while a DataFrame of `read` lives, its files are not collected.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tilth.base.clock import SystemClock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.client.http import DEFAULT_URL, Connection, Result, connect
from tilth.model.wire import Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tilth.node import Node

#: A third of the time that the server gives a reader.
RENEW_SECONDS = 20.0
#: How long the files of a snapshot are kept when the caller does not say.
HOLD_SECONDS = 3600.0

_log = Log("front")


class LocalNode:
    """A whole node in this process: catalog, Spark, services and SQL, without HTTP. Close it, or use `with`."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def sql(self, text: str, *, database: str = "default", settings: Mapping[str, str] | None = None) -> Result:
        """Runs one statement; raises TilthErrors."""
        answer = self._node.engine.run(text, database=database, settings=settings)
        summary = Summary(
            query_id=answer.query_id, elapsed_ms=answer.elapsed_ms, rows=answer.table.num_rows, message=answer.message
        )
        return Result(answer.table, summary)

    def close(self) -> None:
        """Stops the services, Spark and the store."""
        self._node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def open(path: str | Path, *, settings: Mapping[str, str] | None = None) -> LocalNode:
    """Starts a node over the folder: `with tilth.open("data") as node: node.sql("SELECT 1").pandas()`.

    The settings are those of docs/reference/settings.md with scope `node`. Raises UnavailableError when another node
    holds the folder or Java is missing.
    """
    from tilth.node import open_node

    return LocalNode(open_node(Path(path), settings or {}))


def read(
    spark: SparkSession,
    table: str,
    *,
    url: str = DEFAULT_URL,
    database: str = "default",
    hold_seconds: float = HOLD_SECONDS,
) -> DataFrame:
    """A table as a DataFrame of your own Spark session: one consistent snapshot, read from the files directly.

    The session's executors must see the files under the same path as the server does. The server keeps the snapshot's
    files for `hold_seconds`, or until this process ends. Raises ServerError when there is no such table.
    """
    from tilth.storage.spark import read_snapshot

    named_database, _, name = table.rpartition(".")
    connection = connect(url)
    snapshot, lease, root = connection.pin(named_database or database, name, None)
    frame = read_snapshot(spark, snapshot, root)
    threading.Thread(
        target=_hold, args=(connection, lease.id, hold_seconds), name=f"tilth-reader-{lease.id}", daemon=True
    ).start()
    return frame


def _hold(connection: Connection, lease_id: str, seconds: float) -> None:
    """Renews the lease for that long. Derived frames need it too, so nobody can tell when it is unused."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    try:
        while clock.monotonic() < deadline:
            clock.sleep(min(RENEW_SECONDS, seconds))
            connection.renew(lease_id)
        connection.unpin(lease_id)
    except TilthError as error:
        _log.warning("reader_lease_lost", lease=lease_id, reason=error)
    finally:
        connection.close()
