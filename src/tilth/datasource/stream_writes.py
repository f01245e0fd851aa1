"""A write of a stream: each batch is one write, and the commit has the query and the batch, so that it lands once.

Covers: Spark's classes for `frame.writeStream.format("tilth")`. Does not cover: which batch may follow
(catalog/rules/fold_streams.py), files and calls (task_files.py, commits.py).
Always holds: Spark makes a writer for each batch in the process that plans it and another one in the process that
commits it, which know nothing of each other; a write begins when the first one is sent to the tasks, and their messages
lead the second one to it.

Tests: tests/unit/datasource/test_writers.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tilth.base.logs import Log
from tilth.datasource.attachment import Attachment
from tilth.datasource.commits import files_of
from tilth.datasource.errors import said
from tilth.datasource.shipped import opener
from tilth.datasource.task_files import TaskWrite
from tilth.datasource.write_options import WriteOptions
from tilth.datasource.writes import FilesMessage, abort_held, begun_write, commit_held, facts_of, written_in_task
from tilth.model.outside_write import StreamBatch

_OPEN = opener("tilth.datasource.stream_writes:opened_stream_writer")
_log = Log("datasource")


class TaskStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a batch in its tasks."""

    def __init__(self, task: TaskWrite) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesMessage:
        with said():
            return written_in_task(self._task, iterator)


class StreamTableWriter(DataSourceStreamArrowWriter):
    """The writer of a batch in the driver."""

    def __init__(self, attachment: Attachment, options: WriteOptions, schema: StructType) -> None:
        self._attachment = attachment
        self._options = options
        self._schema = schema
        self._task: TaskWrite | None = None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesMessage:
        with said():
            return written_in_task(self._begun(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        with said():
            found = [each for each in messages if isinstance(each, FilesMessage)]
            if not found:
                # A batch without tasks has no rows.
                return
            [query] = {each.query for each in found}
            stream = StreamBatch(
                query=query, batch=batchId, name=self._options.stream, new_query=self._options.new_query
            )
            files = files_of(
                found[0].facts.txn,
                facts_of(messages),
                is_speculative=self._options.is_speculative,
                stream=stream,
            )
            outcome = commit_held(self._attachment, files)
            for notice in outcome.notices:
                _log.warning("stream_is_new", cause_id=str(files.txn), notice=notice)
            _log.info(
                "batch_committed", cause_id=str(files.txn), batch=batchId, rows=outcome.rows, again=outcome.is_repeated
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        with said():
            for txn in {each.facts.txn for each in messages if isinstance(each, FilesMessage)}:
                abort_held(self._attachment, txn)

    def _begun(self) -> TaskWrite:
        if self._task is None:
            self._task = begun_write(self._attachment, self._options, self._schema)
        return self._task

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        with said():
            return _OPEN, (msgspec.msgpack.encode(self._begun()),)


def opened_stream_writer(packed: bytes) -> TaskStreamWriter:
    """Make the writer of a task of its pickle."""
    return TaskStreamWriter(msgspec.msgpack.decode(packed, type=TaskWrite))
