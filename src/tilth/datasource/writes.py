"""A batch write: tasks of a user's Spark write the files, the driver commits them at once.

Covers: Spark's classes for `frame.write.format("tilth")`. Does not cover: files (task_files.py), calls (commits.py),
the road of `tilth.write` (frame_writes.py).
Always holds: a write begins when its job does, which is when Spark requests the writer; of each task Spark hands over
the message of one attempt.

Tests: tests/unit/datasource/test_writers.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tilth.base.clock import SystemClock
from tilth.base.logs import Log
from tilth.datasource.attachment import Attachment, HeldWrite
from tilth.datasource.commits import abort, begin, commit, files_of, said_of
from tilth.datasource.errors import said
from tilth.datasource.shipped import opener
from tilth.datasource.task_files import TaskFacts, TaskWrite, write_task
from tilth.datasource.write_options import WriteOptions
from tilth.model.outside_write import WriteOutcome, WriteUnknownError, WrittenFiles
from tilth.model.table import full_name

_OPEN = opener("tilth.datasource.writes:opened_writer")
_log = Log("datasource")


@dataclass
class FilesMessage(WriterCommitMessage):
    """Facts of one task on their way to the driver, encoded."""

    packed: bytes
    #: Id of the streaming query that the task belongs to; empty: none.
    query: str = ""

    @property
    def facts(self) -> TaskFacts:
        return msgspec.msgpack.decode(self.packed, type=TaskFacts)


class SentWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write as it travels to the tasks, and to the process that commits it."""

    task: TaskWrite
    #: Folder of the session's attachment, on the driver's disk.
    folder: str
    is_speculative: bool


class TableWriter(DataSourceArrowWriter):
    """Writer of one save: in its tasks, and in the process that commits."""

    def __init__(self, sent: SentWrite) -> None:
        self._sent = sent

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesMessage:
        with said():
            return written_in_task(self._sent.task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with said():
            opened = self._sent.task.opened
            if not opened.id:
                _log.info("label_taken", table=full_name(opened.table), rows=opened.labelled_rows)
                return
            files = files_of(opened.txn, facts_of(messages), is_speculative=self._sent.is_speculative)
            outcome = commit_held(Attachment(self._sent.folder), files)
            _log.info("write_committed", cause_id=str(opened.txn), outcome=said_of(opened.table, outcome))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with said():
            abort_held(Attachment(self._sent.folder), self._sent.task.opened.txn)

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return _OPEN, (msgspec.msgpack.encode(self._sent),)


def opened_writer(packed: bytes) -> TableWriter:
    """Make the writer of another process of its pickle."""
    return TableWriter(msgspec.msgpack.decode(packed, type=SentWrite))


def table_writer(attachment: Attachment, options: WriteOptions, schema: StructType) -> TableWriter:
    """Begin a write and return its writer."""
    task = begun_write(attachment, options, schema)
    return TableWriter(SentWrite(task=task, folder=attachment.folder, is_speculative=options.is_speculative))


def begun_write(attachment: Attachment, options: WriteOptions, schema: StructType) -> TaskWrite:
    """Begin a write, which the driver keeps open from now on."""
    with attachment.connection(options.url) as connection:
        opened = begin(connection, options, schema.names, to_arrow_schema(schema, timezone="UTC"))
    if opened.id:
        url, table = attachment.address(options.url), full_name(opened.table)
        silence = options.silence_seconds
        attachment.hold_write(HeldWrite(id=opened.id, txn=opened.txn, url=url, silence_seconds=silence, table=table))
    return TaskWrite(opened=opened, names=tuple(schema.names))


def written_in_task(task: TaskWrite, batches: Iterator[pa.RecordBatch]) -> FilesMessage:
    """Write the rows of the task that runs; a write whose label is taken writes none."""
    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty("sql.streaming.queryId") or ""
    number, attempt = context.partitionId(), context.attemptNumber()
    if not task.opened.txn:
        facts = TaskFacts(txn=0, task=number, attempt=attempt, parts=())
    else:
        facts = write_task(task, batches, task=number, attempt=attempt)
    return FilesMessage(msgspec.msgpack.encode(facts), query)


def facts_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskFacts | None]:
    """Return the facts of the tasks, None for each without a message."""
    return [each.facts if isinstance(each, FilesMessage) else None for each in messages]


def commit_held(attachment: Attachment, files: WrittenFiles) -> WriteOutcome:
    """Commit a write that the driver holds. Raises WriteUnknownError: it holds it no more."""
    held = attachment.write_of(files.txn)
    with attachment.connection(held.url) as connection:
        outcome = commit(SystemClock(), connection, held.id, files)
    attachment.forget_write(files.txn)
    return outcome


def abort_held(attachment: Attachment, txn: int) -> None:
    """Abort a write that the driver holds; nothing happens if it holds it no more."""
    try:
        held = attachment.write_of(txn)
    except WriteUnknownError:
        return
    attachment.forget_write(txn)
    with attachment.connection(held.url) as connection:
        abort(connection, held.id, "Spark's job failed")
