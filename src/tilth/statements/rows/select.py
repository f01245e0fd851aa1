"""SELECT: over system tables in this process, over anything else by Spark; and other calls to a worker.

A query whose JVM or worker is lost before its first row is run again once, with a new snapshot; see control/resends.py.

Tests: tests/integration/sql/test_sql_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock

import msgspec
import pyarrow as pa

from tilth.base import tracing
from tilth.base.cancel import working_under
from tilth.base.errors import TilthError, UnavailableError
from tilth.base.logs import Log
from tilth.catalog import SchemaChangedError
from tilth.control.context.services import Call, Services
from tilth.control.context.warehouse_choice import warehouse_of_query
from tilth.control.kinds import StatementKind
from tilth.control.slots import Queue
from tilth.grammar.parse import Form
from tilth.grammar.queries import parse_explain
from tilth.grammar.statements import Query
from tilth.introspection.registry import find_system_table
from tilth.introspection.system_queries import NotASystemQueryError, answer_from_system, system_tables_of
from tilth.model.task import TaskKind
from tilth.query.errors import BadQueryError, ResultTooLargeError, SnapshotLostError
from tilth.query.language.explained import explains
from tilth.query.language.unpacked import read_own
from tilth.query.results.answer import Outcome
from tilth.query.results.files import (
    COLLECTED_BYTES_WITHOUT_LIMIT,
    POLL_SECONDS,
    TOO_LARGE_HINT,
    follow,
    has_schema,
    read_schema,
)
from tilth.query.results.stored import StoredReader, stored_in
from tilth.query.results.stream import RowStream, begun_again, rows_of_table
from tilth.query.results.waiting import bytes_in
from tilth.query.snapshots.damaged import TRIES_MAX as TRIES_OF_READING_MAX
from tilth.query.snapshots.damaged import QueryParts, naming
from tilth.query.snapshots.protocol import QueryTask
from tilth.warehouse import Handle, TaskResult, make_result_folder, remove_result_folder

#: Each ALTER of columns may hit a query once between two of its steps.
TRIES_MAX = 5
_log = Log("sql")


def run_query(services: Services, call: Call, statement: Query) -> Outcome:
    names = system_tables_of(statement.text, call.database)
    if names is None:
        return _by_spark(services, call, statement.text)
    for name in names:
        # A wrong name is an error before anything is computed.
        find_system_table(name)
    try:
        table = answer_from_system(
            statement.text,
            lambda name, wanted: find_system_table(name).build(services, wanted),
            before_long=lambda: services.running.move(call.query_id, Queue.APART),
        )
        return Outcome(table=table)
    except NotASystemQueryError as refused:
        try:
            # A query for the state of a server without Spark shows its mistake at once.
            return _by_spark(services, replace(call, waits_for_spark=False), statement.text)
        except UnavailableError as error:
            raise BadQueryError(
                str(refused), hint="without a worker, system tables are read with what DataFusion's SQL offers"
            ) from error


def _by_spark(services: Services, call: Call, text: str) -> Outcome:
    """Run the query, and once more where it is lost before its first row."""

    def send(is_again: bool) -> Outcome:
        return _sent(services, replace(call, is_sent_again=is_again), text)

    statement = services.running.current()
    outcome = services.resends.once_more(send)
    if outcome.stream is None or statement is None:
        return outcome

    def stream_again(error: TilthError) -> RowStream:
        services.resends.note(statement, error)
        # Its slot went with the first task; and this is the thread of whoever takes the rows.
        services.running.move(statement.query_id, statement.queue or Queue.QUERY)
        with working_under(statement.origin.cancellation):
            found = send(True)
        return found.stream or rows_of_table(found.table)

    return replace(outcome, stream=begun_again(outcome.stream, stream_again))


def _sent(services: Services, call: Call, text: str) -> Outcome:
    """Run the query; begin anew when columns change before the snapshot, or files of it go: nothing has been answered
    yet.
    """
    for _ in range(TRIES_MAX - 1):
        try:
            return _answered(services, call, text)
        except (SchemaChangedError, SnapshotLostError) as error:
            _log.info("query_begins_anew", cause_id=call.query_id, reason=error)
    return _answered(services, call, text)


def _answered(services: Services, call: Call, text: str) -> Outcome:
    """Run the query; begin anew without a part that turns out to be damaged, if settings allow it
    (query/snapshots/damaged.py).
    """
    is_explained = explains(text)
    reading = QueryParts(services.damage, skips=call.settings.skip_damaged_parts, explains=is_explained)
    for left in reversed(range(TRIES_OF_READING_MAX)):
        reading.begin()
        try:
            outcome = _run_query(services, call, text, reading)
        except TilthError as error:
            if not left or not reading.may_try_again(error):
                with naming(reading.named):
                    raise
            _log.info("query_begins_anew", cause_id=call.query_id, reason=error)
            continue
        table = reading.explained(outcome.table) if is_explained else outcome.table
        return replace(outcome, table=table, notices=(*outcome.notices, *reading.notices()))
    raise AssertionError("the last try returns or raises")


def _run_query(services: Services, call: Call, text: str, reading: QueryParts) -> Outcome:
    with ExitStack() as stack:
        query = stack.enter_context(services.opened(call, seen=reading.seen))
        folder: Path | None = None
        if call.streams and services.results:
            folder = make_result_folder(Path(services.results), call.sending_id)
            stack.callback(remove_result_folder, folder)
        task = QueryTask(
            query_id=call.sending_id,
            text=text,
            spark=dict(call.settings.spark),
            result_bytes_max=call.settings.max_result_bytes,
            folder=str(folder) if folder is not None else "",
            stored_bytes_max=services.open_results.bytes_max,
        )
        spec = services.dispatcher.new_spec(
            TaskKind.QUERY,
            warehouse=warehouse_of_query(services, call, text),
            table="",
            payload=msgspec.msgpack.encode(task),
        )
        spec = msgspec.structs.replace(spec, waits_for_spark=call.waits_for_spark or call.is_sent_again)
        if folder is None:
            result: TaskResult | Handle = services.dispatcher.run(spec)
        else:
            may_begin = reading.may_begin_early
            result = services.dispatcher.run_until(
                spec, lambda: may_begin and has_schema(folder), poll_seconds=POLL_SECONDS
            )
        stored = stored_in(result.payload) if isinstance(result, TaskResult) else None
        if folder is not None and (isinstance(result, Handle) or not result.payload):

            @contextmanager
            def named() -> Iterator[None]:
                with naming(reading.named), services.snapshots.naming_lapse(query):
                    yield

            schema = read_schema(folder)
            stream = _streamed(services, call, folder, result, schema, named, stack.pop_all())
            return Outcome(stream=stream, parts_read=query.parts_read, parts_pruned=query.parts_pruned)
        if stored is not None:
            stored_folder = services.snapshots.open_result(call.sending_id)
            stream = _stored(services, call, StoredReader(stored_folder, stored.files), stored.schema, stack.pop_all())
            return Outcome(stream=stream, parts_read=query.parts_read, parts_pruned=query.parts_pruned)
    assert isinstance(result, TaskResult)
    limit = call.settings.max_result_bytes or COLLECTED_BYTES_WITHOUT_LIMIT
    # The worker keeps to it, too; what one says that does not is refused before it is unpacked.
    with tracing.part("collect"):
        table = read_own(result.payload, limit, partial(_too_large, spec.id, limit))
    return Outcome(table=table, parts_read=query.parts_read, parts_pruned=query.parts_pruned)


def _too_large(task: str, limit: int, size: int) -> ResultTooLargeError:
    return ResultTooLargeError(task=task, bytes=size, bytes_max=limit, hint=TOO_LARGE_HINT)


def _streamed(
    services: Services,
    call: Call,
    folder: Path,
    result: TaskResult | Handle,
    schema: pa.Schema,
    named: Callable[[], AbstractContextManager[None]],
    stack: ExitStack,
) -> RowStream:
    """The rows of a task that writes them to files, or has done so. The end of the stream ends the task and closes the
    stack, with the query's leases and its folder. `named`: the context in which errors of the task get their names.
    """
    cancellation = services.running.cancellation_of(call.query_id)
    handle = result if isinstance(result, Handle) else None
    slot = _Slot(services, call.query_id)
    if handle is not None:
        cancellation.hand_over(handle)
        # Rows that wait for their client take no slot.
        handle.when_ended(slot.release)

    def wait(seconds: float) -> bool:
        return handle is None or handle.ends_within(seconds)

    def check() -> None:
        cancellation.raise_if_cancelled()
        if handle is not None and handle.is_done():
            with named():
                handle.wait()

    waiting = services.open_results.open(call.query_id, partial(bytes_in, folder), cancellation)
    stack.callback(services.open_results.close, call.query_id)

    def close(rows: int, size: int, error: TilthError | None) -> None:
        slot.release()
        if handle is not None:
            cancellation.let_go(handle)
            handle.cancel()
            # Spark may still be writing into the folder.
            handle.when_ended(stack.close)
        else:
            stack.close()

    batches = follow(folder, wait, check, bytes_max=call.settings.max_result_bytes)
    return RowStream(schema, services.open_results.followed(waiting, batches), close)


def _stored(services: Services, call: Call, reader: StoredReader, schema: pa.Schema, stack: ExitStack) -> RowStream:
    """The rows of a task that has stored them all. The end of the stream closes the stack, and so removes them."""
    cancellation = services.running.cancellation_of(call.query_id)
    # Rows that wait for their client take no slot.
    _Slot(services, call.query_id).release()
    waiting = services.open_results.open(call.query_id, lambda: reader.bytes, cancellation)
    stack.callback(services.open_results.close, call.query_id)
    batches = reader.batches(cancellation.raise_if_cancelled, bytes_max=call.settings.max_result_bytes)
    return RowStream(schema, services.open_results.followed(waiting, batches), lambda rows, size, error: stack.close())


class _Slot:
    """The slot of a query that is being streamed, released once: when the query is sent again, it has another one."""

    def __init__(self, services: Services, query_id: str) -> None:
        self._services = services
        self._query_id = query_id
        self._lock = Lock()
        self._is_released = False

    def release(self) -> None:
        with self._lock:
            if not self._is_released:
                self._is_released = True
                self._services.running.leave(self._query_id)


def _queue(statement: Query, database: str) -> Queue:
    return Queue.WATCH if system_tables_of(statement.text, database) is not None else Queue.QUERY


KINDS = (
    StatementKind(
        value=Query,
        forms=(Form(words="EXPLAIN", parse=parse_explain),),
        perform=run_query,
        queue=_queue,
        only_reads=True,
    ),
)
