"""`tilth.attach`: a Spark session gets the data source `tilth` and keeps the address and the token of a server.

Covers: registering, the thread that holds snapshots, finding the attachment of a session. Does not cover: reads and
writes. Always holds: neither address nor token is in the session's configuration, where every job sees it.

Tests: tests/integration/datasource/test_spark_source.py.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tilth.base.clock import SystemClock
from tilth.base.errors import InvalidInputError
from tilth.base.installed import require_server
from tilth.base.logs import hide_in_lines
from tilth.client.http import connect, default_url
from tilth.datasource.attachment import Attachment, new_attachment
from tilth.datasource.errors import NotAttachedError
from tilth.datasource.keeper import RENEW_SECONDS, LeaseKeeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Setting of a session with the folder of its attachment.
FOLDER_SETTING = "spark.tilth.attachment"
#: Setting without which Spark refuses data sources that filters are pushed down to.
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class AttachedSession:
    """A session that is attached. It stays so until the process ends, `close`, or the end of a `with`."""

    def __init__(self, attachment: Attachment, keeper: LeaseKeeper) -> None:
        self._attachment = attachment
        self._keeper = keeper

    def close(self) -> None:
        """Release all snapshots; frames of the session cannot be read any more."""
        self._keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def attach(spark: SparkSession, *, url: str | None = None, token: str = "") -> AttachedSession:
    """Let a Spark session read and write tables of a server: `spark.read.format("tilth").load("db.t")`.

    `url`: address of the server; none: that of TILTH_URL, as `connect`. `token`: sent with each call to this address
    as `Authorization: Bearer`, for a proxy that checks it. Nothing is sent before the first use. The executors need
    Tilth and must reach the files of the tables; see docs/spark.md. Raises BadUrlError, InvalidInputError for a session
    of Spark Connect, and UnavailableError (NOT_INSTALLED) in an installation for clients.
    """
    require_server("tilth.attach")
    from tilth.datasource.source import attached_source

    if not hasattr(spark, "_jsparkSession"):
        raise InvalidInputError(
            "a session of Spark Connect cannot be attached: its driver is another process",
            hint="attach in a classic session, made by SparkSession.builder.master(..) or spark-submit",
        )
    address = url or default_url()
    # Raises what is wrong with them here, and not in the first read.
    connect(address, token=token).close()
    if token:
        hide_in_lines([token])
    attachment = new_attachment()
    attachment.add_server(address, token)
    keeper = LeaseKeeper(
        SystemClock(),
        attachment,
        is_busy=lambda: _runs_jobs(spark),
        connect=lambda url: attachment.connection(url, timeout_seconds=RENEW_SECONDS),
    )
    _make_active(spark)
    spark.conf.set(_PUSHDOWN, "true")
    spark.conf.set(FOLDER_SETTING, attachment.folder)
    spark.dataSource.register(attached_source(attachment))
    keeper.start()
    return AttachedSession(attachment, keeper)


def attachment_of(spark: SparkSession) -> Attachment:
    """Return the attachment of a session; raises NotAttachedError."""
    folder = spark.conf.get(FOLDER_SETTING, None)
    if not folder:
        raise NotAttachedError(hint="call tilth.attach(spark, url=..) first")
    return Attachment(folder)


def _make_active(spark: SparkSession) -> None:
    """Let Spark look formats up in this session: where another one is active that is attached, too, it would find the
    name taken.
    """
    # Any: handles of py4j have no types.
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def _runs_jobs(spark: SparkSession) -> bool:
    return bool(spark.sparkContext.statusTracker().getActiveJobsIds())
