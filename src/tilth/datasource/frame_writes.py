"""`tilth.write`: the rows of a DataFrame into a table, by tasks of its own Spark and one commit.

Covers: the road without Spark's data source API, which spares the processes that plan and commit. Does not cover: files
(task_files.py), calls (commits.py). Always holds: it returns when the rows are readable, or raises with none of them in
the table, but for an error whose kind is UNKNOWN_OUTCOME.

Tests: tests/unit/datasource/test_writers.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from tilth.base.clock import Clock, SystemClock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.client.http import Connection, connect
from tilth.datasource.attach import FOLDER_SETTING, attachment_of
from tilth.datasource.commits import abort, begin, commit, files_of
from tilth.datasource.errors import SparkOptionError
from tilth.datasource.options import table_name
from tilth.datasource.task_files import TaskFacts, TaskWrite, write_task
from tilth.datasource.write_options import WriteOptions
from tilth.model.outside_write import WriteOutcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Interval of signs of life; a sixth of the time after which the server gives a write up.
RENEW_SECONDS = 20.0
_MODES = ("append", "overwrite")

_log = Log("datasource")


def write_frame(
    frame: DataFrame,
    table: str,
    *,
    label: str,
    mode: str,
    partitions: Sequence[str],
    tasks: int,
    url: str | None,
) -> WriteOutcome:
    """`tilth.write`. Raises what refuses an INSERT, and ServerError (WRITE_ENDED) if the driver was silent."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from tilth.warehouse import batched, run_tasks

    if mode not in _MODES:
        raise SparkOptionError("no such mode of a write", mode=mode, known=", ".join(_MODES))
    if partitions and mode != "overwrite":
        raise SparkOptionError("partitions are replaced by an overwrite alone", hint='write with mode="overwrite"')
    named, name = table_name(table)
    options = WriteOptions(
        database=named or "default",
        table=name,
        tasks=tasks,
        label=label,
        is_overwrite=mode == "overwrite",
        partitions=tuple(partitions),
        is_speculative=_is_speculative(frame),
    )
    clock = SystemClock()
    with _connection(frame, url) as connection:
        schema = to_arrow_schema(frame.schema, timezone="UTC")
        opened = begin(connection, options, frame.columns, schema)
        if not opened.id:
            return WriteOutcome(rows=opened.labelled_rows, is_repeated=True)
        task = TaskWrite(opened=opened, names=tuple(frame.columns))
        with _renewed(clock, connection, opened.id):
            try:
                facts = run_tasks(batched(frame), partial(write_task, task), TaskFacts)
            except BaseException as error:
                abort(connection, opened.id, f"{type(error).__name__}: {error}")
                raise
            files = files_of(opened.txn, facts, is_speculative=options.is_speculative)
            return commit(clock, connection, opened.id, files)


def _is_speculative(frame: DataFrame) -> bool:
    return frame.sparkSession.sparkContext.getConf().get("spark.speculation", "false").lower() == "true"


def _connection(frame: DataFrame, url: str | None) -> Connection:
    if url is None and frame.sparkSession.conf.get(FOLDER_SETTING, None):
        return attachment_of(frame.sparkSession).connection()
    return connect(url)


@contextmanager
def _renewed(clock: Clock, connection: Connection, write_id: str) -> Iterator[None]:
    """Renew a write by a thread while the block runs."""
    is_over = threading.Event()

    def renew() -> None:
        while not clock.wait(is_over, RENEW_SECONDS):
            try:
                connection.renew_write(write_id)
            except TilthError as error:
                # The commit says why it has ended.
                _log.warning("write_not_renewed", reason=error)

    thread = threading.Thread(target=renew, name=f"tilth-write-{write_id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
