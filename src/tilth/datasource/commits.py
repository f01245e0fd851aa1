"""The driver's calls for a write: begin, commit with repeated tries, abort.

Covers: calls to the server, held writes. Does not cover: the tasks (task_files.py), Spark's classes (writes.py,
stream_writes.py). Always holds: while it is not known whether a commit landed it is sent again, and nothing is aborted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from tilth.base.clock import Clock
from tilth.base.errors import ErrorKind, TilthError
from tilth.base.logs import Log
from tilth.client.errors import AnswerLostError, ServerUnreachableError
from tilth.datasource.task_files import TaskFacts, TaskWrite, check_columns
from tilth.datasource.write_options import WriteOptions
from tilth.model.outside_write import OpenWrite, StreamBatch, WriteOutcome, WriteRequest, WrittenFiles
from tilth.model.table import TableDef, full_name

#: Time for which a commit is sent again while its outcome is not known: a server may be started anew meanwhile.
COMMIT_SECONDS_MAX = 120.0
AGAIN_SECONDS = 0.5

_log = Log("datasource")


class WriteCalls(Protocol):
    """Calls of a connection for writes."""

    def begin_write(self, database: str, table: str, request: WriteRequest) -> OpenWrite: ...

    def renew_write(self, write_id: str) -> None: ...

    def commit_write(self, write_id: str, files: WrittenFiles) -> WriteOutcome: ...

    def abort_write(self, write_id: str, reason: str) -> None: ...


def begin(calls: WriteCalls, options: WriteOptions, names: Sequence[str], schema: pa.Schema) -> OpenWrite:
    """Begin a write of rows with these columns; raises what refuses them, before any row is computed."""
    request = WriteRequest(
        columns=tuple(names),
        label=options.label,
        tasks=options.tasks,
        silence_seconds=options.silence_seconds,
        is_overwrite=options.is_overwrite,
        partitions=options.partitions,
        quorum=options.quorum,
    )
    opened = calls.begin_write(options.database, options.table, request)
    if opened.id:
        try:
            check_columns(TaskWrite(opened=opened, names=tuple(names)), schema)
        except Exception as error:
            abort(calls, opened.id, str(error))
            raise
    return opened


def files_of(
    opened_txn: int,
    facts: Sequence[TaskFacts | None],
    *,
    is_speculative: bool = False,
    stream: StreamBatch | None = None,
) -> WrittenFiles:
    """Return the facts of all tasks as a commit names them; None: a task without any."""
    found = [each for each in facts if each is not None]
    assert all(each.txn == opened_txn for each in found)
    return WrittenFiles(
        txn=opened_txn,
        parts=tuple(part for each in found for part in each.parts),
        tasks=max([len(facts), *(each.task + 1 for each in found)]),
        has_retried=is_speculative or any(each.attempt > 0 for each in found),
        may_write_on=is_speculative,
        stream=stream,
    )


def commit(clock: Clock, calls: WriteCalls, write_id: str, files: WrittenFiles) -> WriteOutcome:
    """Commit; while the server is away or the outcome is not known, send it again. Raises what refused it, and after
    `COMMIT_SECONDS_MAX` what hindered it.
    """
    deadline = clock.monotonic() + COMMIT_SECONDS_MAX
    while True:
        try:
            return calls.commit_write(write_id, files)
        except TilthError as error:
            is_unknown = isinstance(error, ServerUnreachableError | AnswerLostError) or (
                error.kind is ErrorKind.UNKNOWN_OUTCOME
            )
            if not is_unknown or clock.monotonic() > deadline:
                raise
            _log.warning("commit_sent_again", cause_id=str(files.txn), reason=error)
            clock.sleep(AGAIN_SECONDS)


def abort(calls: WriteCalls, write_id: str, reason: str) -> None:
    """Abort; an error of the call is logged, for the server ends the write itself when it hears nothing."""
    try:
        calls.abort_write(write_id, reason)
    except TilthError as error:
        _log.warning("write_left", reason=error)


def said_of(table: TableDef, outcome: WriteOutcome) -> str:
    """Return a line about the outcome."""
    if outcome.is_repeated:
        return f"already inserted into {full_name(table)}: {outcome.rows} rows; nothing was written"
    return f"inserted into {full_name(table)}: {outcome.rows} rows"
