"""The public verbs that need more than a connection: a node in this process, and tables in your own Spark.

Covers: `tilth.open`, `tilth.read`, `tilth.sql` and `tilth.write`. Does not cover: how a node is put together (node.py),
how a snapshot becomes a DataFrame (storage/read/spark.py). Always holds: while a DataFrame of `read` lives, its files
are not collected.

Tests: tests/acceptance/test_foreign_words.py.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tilth.base.clock import SystemClock
from tilth.base.errors import TilthError
from tilth.base.installed import require_server
from tilth.base.logs import Log
from tilth.client.http import Connection, Result, connect
from tilth.datasource.options import HOLD_SECONDS, milliseconds_of
from tilth.model.outside_write import TASKS_DEFAULT, WriteOutcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tilth.node import Node

#: A third of the time that the server gives a reader.
RENEW_SECONDS = 20.0
#: Maximum delay at process exit for the release of a lease.
RELEASE_SECONDS_MAX = 2.0

_log = Log("front")


class LocalNode:
    """A whole node in this process: catalog, Spark, services and SQL, without HTTP. Close it, or use `with`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._settings: dict[str, str] = {}

    def sql(self, text: str, *, database: str = "default", settings: Mapping[str, str] | None = None) -> Result:
        """Run one statement with the settings of SET before it; raises TilthErrors."""
        answer = self._node.engine.run(text, database=database, settings={**self._settings, **(settings or {})})
        self._settings |= answer.connection_settings
        return Result(answer.table, answer.summary())

    def close(self) -> None:
        """Stop the services, Spark and the store."""
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
    holds the folder or Java is missing, and UnavailableError (NOT_INSTALLED) in an installation for clients.
    """
    require_server("tilth.open")
    from tilth.node import open_node

    return LocalNode(open_node(Path(path), settings or {}))


def read(
    spark: SparkSession,
    table: str,
    *,
    url: str | None = None,
    database: str = "default",
    hold_seconds: float = HOLD_SECONDS,
    as_of: datetime | str | int | None = None,
) -> DataFrame:
    """A table as a DataFrame of your own Spark session: one consistent snapshot, read from the files directly.

    `url`: address of the server; none: that of TILTH_URL, as `connect`. The session's executors must see the files
    under the same path as the server does. The server keeps the snapshot's files for `hold_seconds`, or until this
    process ends. `as_of`: a time (a datetime, or a text as in `2026-01-31 12:00:00`; UTC without a zone) or the
    number of a version; none: the newest. Raises ServerError when there is no such table, or when it cannot be read as
    of then, InvalidInputError for what is no time, and UnavailableError (NOT_INSTALLED) in an installation for clients.
    """
    require_server("tilth.read")
    from tilth.storage import parse_root
    from tilth.storage.read.spark import read_snapshot

    named_database, _, name = table.rpartition(".")
    connection = connect(url)
    if isinstance(as_of, int):
        snapshot, lease, root = connection.pin(named_database or database, name, version=as_of)
    else:
        as_of_ms = None if as_of is None else milliseconds_of(as_of)
        snapshot, lease, root = connection.pin(named_database or database, name, as_of_ms)
    frame = read_snapshot(spark, snapshot, parse_root(root))
    threading.Thread(
        target=_hold, args=(connection, lease.id, hold_seconds), name=f"tilth-reader-{lease.id}", daemon=True
    ).start()
    return frame


def sql(spark: SparkSession, text: str, *, database: str = "default", hold_seconds: float = HOLD_SECONDS) -> DataFrame:
    """Run a statement in your own Spark session, in which names of Tilth's tables mean these tables, as of one time.

    All other names are the session's own. `tilth.db.t` is always a table of Tilth; `database`: that of names of one
    part that the session does not know. The session must be attached. The snapshots are held for `hold_seconds`, and
    while the session runs jobs. Raises NotAttachedError, ServerError, InvalidInputError (AMBIGUOUS_TABLE),
    Spark's own errors.
    """
    require_server("tilth.sql")
    from tilth.datasource.statements import run_sql

    return run_sql(spark, text, database=database, hold_seconds=hold_seconds)


def write(
    frame: DataFrame,
    table: str,
    *,
    label: str = "",
    mode: str = "append",
    partitions: Sequence[str] = (),
    tasks: int = TASKS_DEFAULT,
    url: str | None = None,
) -> WriteOutcome:
    """Write the rows of a DataFrame into a table; columns are found by name, missing ones get their defaults.

    `label`: the rows are stored once, however often they are written with it; `mode`: `overwrite` replaces the table,
    or the partitions that are named by id or value; `tasks`: partitions that the frame may have; `url`: the server;
    none: that of `tilth.attach`, else as `connect`. Returns the number of rows, and whether they were there already.
    Raises what refuses an INSERT, and ServerError (WRITE_ENDED) if the driver was silent for two minutes.
    """
    require_server("tilth.write")
    from tilth.datasource.frame_writes import write_frame

    return write_frame(frame, table, label=label, mode=mode, partitions=partitions, tasks=tasks, url=url)


def _hold(connection: Connection, lease_id: str, seconds: float) -> None:
    """Renew the lease for that long. Derived frames need it too, so nobody knows when it is unused."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    # A process that ends keeps no files; the thread itself would not live long enough.
    release = partial(_release, connection.url, lease_id)
    atexit.register(release)
    try:
        while clock.monotonic() < deadline:
            clock.sleep(min(RENEW_SECONDS, seconds))
            connection.renew(lease_id)
        connection.unpin(lease_id)
    except TilthError as error:
        _log.warning("reader_lease_lost", lease=lease_id, reason=error)
    finally:
        atexit.unregister(release)
        connection.close()


def _release(url: str, lease_id: str) -> None:
    """Release the lease when the process ends, and do not hold it up for long."""
    try:
        with connect(url, timeout_seconds=RELEASE_SECONDS_MAX) as connection:
            connection.unpin(lease_id)
    except TilthError as error:
        # It ends by itself when it is not renewed.
        _log.warning("reader_lease_left", lease=lease_id, reason=error)
