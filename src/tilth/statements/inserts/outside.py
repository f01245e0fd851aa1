"""Writes of programs that bring their own Spark: their tasks write the files, a commit here names them.

Covers: begin, signs of life, commit and abort, what becomes of silent writers. Does not cover: the check of facts
(written_facts.py), the commit itself (commit.py), the routes (server/write_routes.py), the tasks (datasource/).
Always holds: a program outside knows no catalog and names only files of its own transaction; a write ends once, and
each further call gets the same answer; one that is silent for too long is aborted, and its files are removed.

    open --commit--> landed     further calls: the same outcome
     |  '--commit refused, abort, silence--> over     further calls: the reason
     '--the server ends--> the next start aborts its transaction; the write is not known any more
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa

from tilth.base.cancel import pause
from tilth.base.errors import (
    ConflictError,
    InvalidInputError,
    RetryError,
    TilthError,
    UnavailableError,
    UnknownOutcomeError,
)
from tilth.base.logs import Log
from tilth.catalog import BatchLandedError, InsertBatch, LabelTakenError, TxnHandle
from tilth.control.context.names import table_of
from tilth.control.context.services import Call, Services
from tilth.formats import BadValueError, Reading, column_array
from tilth.grammar.statements import Name
from tilth.model.outside_write import (
    SILENCE_SECONDS_MAX,
    TASKS_MAX,
    OpenWrite,
    StreamBatch,
    WriteOutcome,
    WriteRequest,
    WriteUnknownError,
    WrittenFiles,
)
from tilth.model.part import WrittenPart
from tilth.model.table import Column, ColumnKind, TableDef, full_name
from tilth.model.txn import TxnState
from tilth.query.snapshots.protocol import stream_of
from tilth.statements.inserts.commit import Writing, begin_insert, commit_written, output_tasks
from tilth.statements.inserts.defaults import of_instant
from tilth.statements.inserts.partition_names import id_of_text
from tilth.statements.inserts.rows import COMPUTED, OP, check_deletes, target_columns, target_of
from tilth.statements.inserts.written_facts import BadFactsError, check_facts, check_replaced, check_sizes
from tilth.storage import array_of, layout_of

#: Writes that are open at a time.
OPEN_MAX = 1_000
#: Writes that have ended and are remembered.
ENDED_MAX = 10_000
#: Time without a sign of life after which a write is aborted: the default, and the least that a writer may set.
SILENCE_SECONDS = 600.0
SILENCE_SECONDS_MIN = 1.0
#: Streams of a table that a notice names.
_NAMED_MAX = 3
#: Interval at which silent writers are found.
_POLL_SECONDS = 1.0
_AGAIN = "send the same commit again; nothing is removed until its outcome is known"

_log = Log("sql")


@dataclass(frozen=True, slots=True)
class _End:
    """End of a write, which is kept without the write: a table may have a thousand columns."""

    txn: int
    #: Answer to further calls.
    answer: WriteOutcome | TilthError

    def outcome(self) -> WriteOutcome:
        """Raises why it can never land: a copy, whose traceback does not keep the facts of all its files."""
        if isinstance(self.answer, TilthError):
            raise copy(self.answer)
        return self.answer


@dataclass(slots=True, kw_only=True)
class _Write:
    """One write; whoever changes it has its lock."""

    id: str
    handle: TxnHandle
    writing: Writing
    silence_seconds: float
    #: Time of the last sign of life, by the monotonic clock.
    last_sign: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    #: None: it is open.
    end: _End | None = None
    #: Rows that were sent to be committed.
    rows: int = 0
    #: `True` after a commit whose outcome is not known.
    is_unknown: bool = False


class OutsideWrites:
    """The writes that programs outside have begun on this server."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._clock = services.clock
        self._lock = threading.Lock()
        self._open: dict[str, _Write] = {}
        self._ended: OrderedDict[str, _End] = OrderedDict()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tilth-outside-writes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Abort all that are open: their transactions would not outlive the server."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        for write in self._all_open():
            try:
                self._end(write, _ended_error(write, "the server stops"))
            except TilthError as error:
                # The next start aborts it.
                _log.warning("outside_write_left", cause_id=str(write.handle.id), reason=error)

    def begin(self, call: Call, database: str, table: str, request: WriteRequest) -> OpenWrite:
        """Begin a write into the table; where its label is taken there is nothing to write. Raises what would refuse an
        INSERT of these columns.
        """
        if self._is_over.is_set():
            raise UnavailableError("the server stops", hint="write the rows to another server, or when it is back")
        services, found = self._services, table_of(self._services, call, Name(database, table), what="INSERT")
        _check_request(request)
        labelled = services.catalog.labels.find(found.uuid, request.label) if request.label else None
        columns = target_columns(target_of(found), request.columns)
        defaults = _defaults(services, call, found, request.columns)
        layout = layout_of(found, services.root, quorum=request.quorum)
        known = services.catalog.parts.partitions(found.uuid) if request.partitions else []
        replaced: frozenset[str] | None = frozenset(id_of_text(found, each, known) for each in request.partitions)
        if request.is_overwrite and not request.partitions:
            replaced = None
        silence = min(max(request.silence_seconds or SILENCE_SECONDS, SILENCE_SECONDS_MIN), SILENCE_SECONDS_MAX)
        opened = OpenWrite(
            id="",
            txn=0,
            table=msgspec.structs.replace(found, older_schemas=()),
            root=msgspec.msgpack.encode(layout.folder.root),
            tasks=request.tasks,
            silence_seconds=silence,
            quorum=request.quorum,
            defaults=defaults,
            op_column=request.columns[columns.index(OP)] if OP in columns else "",
        )
        if labelled is not None:
            return msgspec.structs.replace(opened, labelled_rows=labelled.rows)
        delay = services.catalog.throttle.delay(found)
        if delay is not None:
            _log.info("insert_delayed", cause_id=call.query_id, ms=round(delay.milliseconds, 3), reason=delay.reason)
            pause(self._clock, delay.milliseconds / 1000)
        if len(self._open) >= OPEN_MAX:
            hint = "wait until some have ended; system.transactions lists them"
            raise RetryError.coded("TOO_MANY_WRITES", "too many writes are open", open_max=OPEN_MAX, hint=hint)
        write = self._opened(call, found, request, replaced, silence)
        return msgspec.structs.replace(opened, id=write.id, txn=write.handle.id)

    def renew(self, write_id: str) -> None:
        """Note a sign of life. Raises why the write has ended, or that it is not known."""
        found = self._find(write_id)
        if isinstance(found, _End):
            found.outcome()
        else:
            found.last_sign = self._clock.monotonic()

    def commit(self, write_id: str, files: WrittenFiles) -> WriteOutcome:
        """Commit the write with these files; called again, it returns the same. Raises what refuses it, after which it
        is aborted, or UnknownOutcomeError, after which it may be called again.
        """
        try:
            write = self._find(write_id)
        except WriteUnknownError:
            return self._outcome_of_former(files)
        if isinstance(write, _End):
            return write.outcome()
        with write.lock:
            if write.end is not None:
                return write.end.outcome()
            if write.is_unknown:
                return self._resolved(write)
            write.rows = sum(part.rows for part in files.parts)
            try:
                outcome = self._committed(write, files)
            except UnknownOutcomeError:
                write.is_unknown, write.last_sign = True, self._clock.monotonic()
                raise
            except TilthError as error:
                self._finish(write, error)
                raise
            except Exception as error:
                self._finish(write, TilthError("a defect of Tilth", error=type(error).__name__))
                raise
            self._close(write, outcome)
        # Tasks that still run there could not commit any more.
        replaced = write.writing.replaced
        for partition in (None,) if replaced is None else replaced:
            self._services.maintenance.cancel_partition(write.writing.table.uuid, partition)
        return outcome

    def abort(self, write_id: str, reason: str) -> None:
        """Abort the write; its files are removed when tasks have had time to end. Raises ConflictError (WRITE_LANDED)
        for one that has landed; nothing happens if it has ended otherwise.
        """
        try:
            found = self._find(write_id)
        except WriteUnknownError:
            # The server was started anew, and has aborted it.
            return
        if isinstance(found, _Write):
            end = self._end(found, _ended_error(found, reason[:200] or "its writer gave up"))
        else:
            end = found
        if end is not None and isinstance(end.answer, WriteOutcome):
            hint = "leave it, or remove the rows by DELETE"
            raise ConflictError.coded("WRITE_LANDED", "the write has landed", txn=end.txn, hint=hint)

    def _opened(
        self, call: Call, table: TableDef, request: WriteRequest, replaced: frozenset[str] | None, silence: float
    ) -> _Write:
        writing = Writing(
            table=table,
            actor=f"insert {call.query_id} of Spark, {call.client}",
            tasks=request.tasks,
            labels=((request.label, None),) if request.label else (),
            quorum=request.quorum,
            has_tasks=True,
            replaced=replaced,
        )
        write = _Write(
            id=self._services.ids(),
            handle=begin_insert(self._services, writing),
            writing=writing,
            silence_seconds=silence,
            last_sign=self._clock.monotonic(),
        )
        with self._lock:
            self._open[write.id] = write
        _log.info("outside_write_begun", cause_id=str(write.handle.id), table=full_name(table), client=call.client)
        return write

    def _committed(self, write: _Write, files: WrittenFiles) -> WriteOutcome:
        writing, handle = write.writing, write.handle
        layout = layout_of(writing.table, self._services.root, quorum=writing.quorum)
        if files.txn != handle.id:
            raise BadFactsError("the files are of another transaction", txn=files.txn)
        writing = replace(writing, tasks=max(1, min(files.tasks, writing.tasks)))
        check_facts(writing.table, layout, files.parts, txn=handle.id, tasks=writing.tasks)
        if writing.replaced != frozenset():
            check_replaced(writing.table, files.parts, writing.replaced)
        check_sizes(layout, files.parts)
        notices = self._notices(writing.table, files.stream)
        if files.stream is not None:
            writing = _with_batch(writing, files.stream, files.parts)
        handle.narrow(output_tasks(writing))
        if not files.may_write_on:
            handle.tasks_ended(may_have_retried=files.has_retried)
        try:
            rows = commit_written(self._services, writing, handle, files.parts)
        except (LabelTakenError, BatchLandedError) as error:
            # Tasks outside may go on writing, so that the cleaner removes the files.
            handle.give_up("its rows are there already", is_settled=False)
            return WriteOutcome(rows=int(error.facts["rows"]), is_repeated=True)
        return WriteOutcome(rows=rows, notices=notices)

    def _notices(self, table: TableDef, stream: StreamBatch | None) -> tuple[str, ...]:
        """Say that a query without a name is new to a table into which others have written."""
        if stream is None or stream.name:
            return ()
        streams = self._services.catalog.streams
        # The others are read only for the first batch of a stream.
        others = [] if streams.find(table.uuid, stream.query) else [each.stream for each in streams.of(table.uuid)]
        if not others:
            return ()
        named = ", ".join(others[-_NAMED_MAX:])
        return (
            f"the streaming query {stream.query} writes into {full_name(table)} for the first time, and others have "
            f"before: {named}. If it is one of these with a new checkpoint, rows may be there twice: give the stream a "
            "name by the option stream, which refuses another checkpoint",
        )

    def _resolved(self, write: _Write) -> WriteOutcome:
        """Outcome of a commit whose answer was lost between this server and the catalog."""
        write.last_sign = self._clock.monotonic()
        if self._state(write.handle.id) is TxnState.RUNNING:
            raise UnknownOutcomeError(txn=write.handle.id, hint=_AGAIN)
        self._finish(write, _ended_error(write, "its commit has not landed"))
        assert write.end is not None
        return write.end.outcome()

    def _outcome_of_former(self, files: WrittenFiles) -> WriteOutcome:
        """Outcome of a write that this process does not know: a former one may have committed it."""
        if self._state(files.txn) is TxnState.FINISHED:
            return WriteOutcome(rows=sum(part.rows for part in files.parts))
        raise _unknown_write()

    def _find(self, write_id: str) -> _Write | _End:
        with self._lock:
            found: _Write | _End | None = self._open.get(write_id) or self._ended.get(write_id)
        if found is None:
            raise _unknown_write()
        return found

    def _all_open(self) -> list[_Write]:
        with self._lock:
            return list(self._open.values())

    def _end(self, write: _Write, error: TilthError) -> _End | None:
        """Abort the write, unless it has ended; a commit that runs is waited for. Return the end, None: not known."""
        with write.lock:
            if write.end is None and not write.is_unknown:
                self._finish(write, error)
            return write.end

    def _finish(self, write: _Write, error: TilthError) -> None:
        """Settle the transaction; tasks outside may go on writing, so that the cleaner removes the files. Raises
        UnknownOutcomeError if the catalog does not answer: the write stays open.
        """
        write.handle.give_up(str(error), is_settled=False)
        has_landed = self._state(write.handle.id) is TxnState.FINISHED
        self._close(write, WriteOutcome(rows=write.rows) if has_landed else copy(error))

    def _state(self, txn: int) -> TxnState | None:
        """Return the state of a transaction. Raises UnknownOutcomeError if the catalog does not answer."""
        try:
            return self._services.catalog.transactions.resolve(txn)
        except TilthError as error:
            raise UnknownOutcomeError(txn=txn, reason=error, hint=_AGAIN) from error

    def _close(self, write: _Write, answer: WriteOutcome | TilthError) -> None:
        write.end = _End(write.handle.id, answer)
        with self._lock:
            self._open.pop(write.id, None)
            self._ended[write.id] = write.end
            while len(self._ended) > ENDED_MAX:
                self._ended.popitem(last=False)

    def _watch(self) -> None:
        while not self._clock.wait(self._is_over, _POLL_SECONDS):
            try:
                self.end_silent()
            except Exception as error:
                # The catalog may be away: the next turn tries it again.
                _log.warning("outside_writes_not_ended", reason=error)

    def end_silent(self) -> None:
        """Abort the writes whose writers were silent for too long."""
        for write in self._all_open():
            silent = self._clock.monotonic() - write.last_sign
            if silent <= write.silence_seconds or not write.lock.acquire(blocking=False):
                # One that commits is not silent.
                continue
            try:
                if write.end is None:
                    reason = f"its writer was silent for {silent:.0f} s"
                    _log.warning("outside_write_silent", cause_id=str(write.handle.id), seconds=round(silent, 1))
                    self._finish(write, _ended_error(write, reason))
            finally:
                write.lock.release()


def _check_request(request: WriteRequest) -> None:
    if not 1 <= request.tasks <= TASKS_MAX:
        raise InvalidInputError("a write has from 1 to so many tasks", tasks=request.tasks, tasks_max=TASKS_MAX)
    if request.partitions and not request.is_overwrite:
        raise InvalidInputError("partitions are replaced by an overwrite", hint='use mode("overwrite")')


def _with_batch(writing: Writing, stream: StreamBatch, parts: Sequence[WrittenPart]) -> Writing:
    batch = InsertBatch(
        table=writing.table.uuid,
        stream=stream.name or stream.query,
        query=stream.query,
        batch=stream.batch,
        rows=sum(part.rows for part in parts),
        is_new_checkpoint=stream.new_query == stream.query,
    )
    return replace(writing, beside=lambda: (batch,))


def _defaults(services: Services, call: Call, table: TableDef, names: Sequence[str]) -> bytes:
    """Return the values of the columns that the rows do not bring, as of now: one row.

    Raises BadValueError for a column that has no value without the others.
    """
    target = target_of(table)
    given = target_columns(target, names)
    if not names:
        raise BadValueError("the rows have no columns", table=full_name(table))
    now_us = services.clock.now_ms() * 1000
    found: dict[str, pa.Array] = {}
    for position, column in enumerate(table.schema.columns, start=1):
        if column in given:
            continue
        if OP in given:
            check_deletes(target, column)
        # Rows that delete may lack the column; others are checked when they are written.
        if OP in given and column.default is None and not column.expression and not target.needs(column):
            continue
        value = target.missing_value(column)
        if value is COMPUTED:
            value_now = None if column.expression else of_instant(column, now_us, call.zone)
            if value_now is None:
                raise _computed_error(table, column)
            found[column.name] = array_of([value_now], column.type)
        elif value is not None:
            found[column.name] = column_array(column, [value], reading=Reading(), position=position)
    return stream_of(pa.table(found)) if found else b""


def _computed_error(table: TableDef, column: Column) -> BadValueError:
    is_default = column.kind is ColumnKind.DEFAULT
    how = "give the column in the rows" if is_default else "write them into a table without that column"
    return BadValueError(
        "the values of a column are computed by the server's Spark, which does not see these rows",
        table=full_name(table),
        column=column.name,
        hint=f"{how}, or use INSERT .. SELECT",
    )


def _ended_error(write: _Write, why: str) -> ConflictError:
    return ConflictError.coded(
        "WRITE_ENDED",
        "the write was aborted, and none of its rows are in the table",
        table=full_name(write.writing.table),
        txn=write.handle.id,
        reason=why,
        hint="write the rows again",
    )


def _unknown_write() -> WriteUnknownError:
    return WriteUnknownError(
        "this server has no such write: it was started anew since, or another server has begun it",
        hint="write the rows again, to one server; with a label, or as a batch of a stream, they are stored once",
    )
