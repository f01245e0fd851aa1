"""Text in, answer out: each statement goes to the function that does it.

Covers: parsing, settings, the choice of the function, the query log. Does not cover: what statements do. Always
holds: a statement of later work is refused by name, with nothing half made; what a statement raises is a TilthError,
or a defect.

Tests: tests/unit/control/test_resends.py, tests/integration/sql/test_sql_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import pyarrow as pa

from tilth.base import tracing
from tilth.base.cancel import working_under
from tilth.base.errors import ConflictError, TilthError
from tilth.base.full import full_error
from tilth.base.logs import Log, hide_in_lines, log_context
from tilth.base.settings import Setting, read_settings
from tilth.base.sources import GivenSettings
from tilth.base.threads import Completion, completing
from tilth.catalog import AuditSettings, NotHostedError
from tilth.clickhouse import dialect
from tilth.clickhouse.dialect_words import CLICKHOUSE
from tilth.control.context.names import table_of
from tilth.control.context.rooms import Rooms
from tilth.control.context.services import Call, Services
from tilth.control.insert_batches import InsertBatches, InsertStats
from tilth.control.log_masking import LogMasking
from tilth.control.query_log import LOGGED_TEXT_MAX, QueryEvent, QueryLog
from tilth.control.resends import Resends, StatementStats
from tilth.control.running import RUNNING_TEXT_MAX, Origin, Running, RunningStatements, StatementLimits
from tilth.control.slots import Queue
from tilth.formats import BadValueError, answer_format
from tilth.grammar.statements import InsertData, Name, Query, WithSettings
from tilth.grammar.text.date_diff import with_unit_diff
from tilth.introspection.alarms.alarm import Alarm
from tilth.introspection.alarms.alarms import count_findings
from tilth.introspection.numbers import ServerNumbers, server_numbers
from tilth.introspection.registry import build_system_table, find_system_table
from tilth.membership.peers import noting_unanswered
from tilth.model.error_numbers import number_of
from tilth.model.outside_write import OpenWrite, WriteOutcome, WriteRequest, WrittenFiles
from tilth.model.pushdown import EVERYTHING, Pushdown
from tilth.model.service import ServiceKind
from tilth.query.errors import BadQueryError
from tilth.query.language.foreign_clauses import check_select
from tilth.query.language.masking import log_statement
from tilth.query.language.redact import Redacted, redacted, shortened
from tilth.query.language.spark_errors import nested_too_deep
from tilth.query.results.answer import Answer, Outcome, columns_of, done
from tilth.query.results.stream import RowStream
from tilth.query.results.waiting import OpenResults, ResultLimits
from tilth.query.settings import is_given, session_settings, settings_without_effect
from tilth.query.snapshots.snapshots import SnapshotService
from tilth.statements.files.pipe_manager import PipeManager
from tilth.statements.inserts import insert
from tilth.statements.inserts.bodies.heads import InsertHead
from tilth.statements.inserts.bodies.streamed import LargeBody, insert_body
from tilth.statements.inserts.outside import OutsideWrites
from tilth.statements.operate.session import named_settings
from tilth.statements.operate.system import wait_stopped
from tilth.statements.registry import FORMS, KINDS

_log = Log("sql")


class SqlEngine:
    """Runs statements; any number of threads may call it at once."""

    def __init__(
        self,
        rooms: Rooms,
        *,
        settings: GivenSettings | None = None,
        upper_settings: Iterable[Setting[Any]] = (),
        limits: StatementLimits | None = None,
        result_limits: ResultLimits | None = None,
    ) -> None:
        """`settings`: the node's, as given; `upper_settings`: those of rooms above this one, to be shown beside the
        others; `result_limits`: what large results on their way to clients may use.
        """
        clock, catalog, maintenance = rooms.clock, rooms.catalog, rooms.maintenance
        self._clock = clock
        #: The worker's runners of queries and inserts call these.
        self.snapshots = SnapshotService(
            clock,
            catalog,
            root=rooms.root,
            server=rooms.server,
            scanned=maintenance.scanned,
        )
        open_results = OpenResults(clock, result_limits or ResultLimits())
        running = RunningStatements(clock, limits or StatementLimits(), check_others=open_results.check)
        query_log, given = QueryLog(), settings or GivenSettings()
        audit = read_settings(AuditSettings, given.texts)
        #: Masks literals in expired lines of the logs.
        self.log_masking = LogMasking(clock, catalog, query_log, audit)
        #: Pipes of the tables that this server hosts.
        self.pipes = PipeManager(clock, catalog, server=rooms.server, hosts=rooms.hosts)
        self._services = Services(
            **{each.name: getattr(rooms, each.name) for each in fields(rooms)},
            snapshots=self.snapshots,
            pipes=self.pipes,
            insert_batches=InsertBatches(clock),
            started_ms=clock.now_ms(),
            node_settings=given,
            upper_settings=tuple(upper_settings),
            query_log=query_log,
            audit=audit,
            running=running,
            resends=Resends(running),
            open_results=open_results,
            system_table=build_system_table,
        )
        #: Writes of clients with a Spark of their own.
        self.outside_writes = OutsideWrites(self._services)
        self.pipes.serve(self._services, self.run_inside)

    def start(self) -> None:
        self.snapshots.start()
        self.outside_writes.start()
        self._services.running.start()
        self.pipes.start()
        self.log_masking.start()

    def stop(self) -> None:
        """Stop after inserts that wait for their batch are stored and answered; others are refused from now on."""
        self._services.running.stop()
        self.pipes.stop()
        self.outside_writes.stop()
        self._services.insert_batches.stop()
        self.snapshots.stop()
        self.log_masking.stop()

    def cancel_all(self) -> None:
        """End every statement with an error, now and from now on: the node stops."""
        self._services.running.cancel_all()

    def insert_stats(self) -> InsertStats:
        return replace(self._services.insert_batches.stats(), memory_rejections=self._services.memory.rejections)

    def statement_stats(self) -> StatementStats:
        return self._services.resends.stats()

    def alarms(self) -> dict[Alarm, int]:
        """Return the number of findings of each alarm that this server reports."""
        return count_findings(self._services)

    def server_numbers(self, tables_max: int) -> ServerNumbers:
        """Return numbers of tables and disks for metrics. Raises UnavailableError."""
        return server_numbers(self._services, tables_max)

    def run(
        self,
        text: str,
        *,
        database: str = "default",
        settings: Mapping[str, str] | None = None,
        origin: Origin | None = None,
        streams: bool = False,
        is_passed_on: bool = False,
    ) -> Answer:
        """Run one statement; raises TilthErrors. `streams`: the caller takes the rows of a large result as a stream,
        and closes it; otherwise they are collected. `is_passed_on`: another server has sent it to this one."""

        return self._logged(
            text,
            database,
            self._statement(text, database, settings, streams=streams, is_passed_on=is_passed_on),
            origin,
        )

    def run_insert(
        self,
        text: str,
        *,
        database: str = "default",
        settings: Mapping[str, str] | None = None,
        origin: Origin | None = None,
        on_complete: Completion[Answer],
    ) -> Answer | None:
        """Run one statement, an INSERT most likely, as `run`; `on_complete`: as of `insert_arrow`."""
        return self._logged_async(text, database, self._statement(text, database, settings), origin, on_complete)

    def _statement(
        self,
        text: str,
        database: str,
        settings: Mapping[str, str] | None,
        *,
        streams: bool = False,
        is_passed_on: bool = False,
    ) -> Callable[[_Running], Outcome]:
        """Return the function that runs the text."""

        def act(running: _Running) -> Outcome:
            _check_unicode(text)
            with tracing.part("parse"):
                statement, notices = FORMS.parse_noticed(with_unit_diff(text))
            given, is_read_only = dict(settings or {}), False
            if isinstance(statement, WithSettings):
                # The statement's own settings cannot lift the caller's.
                is_read_only = session_settings(given).read_only
                given |= dict(statement.settings)
            running.entry.kind = type(statement).__name__
            if isinstance(statement, Query):
                running.output_format = _known_format(statement.format)
            call = _call(running, database, given, streams=streams)
            if call.settings.dialect != CLICKHOUSE:
                check_select(statement)
            kind = KINDS[type(statement)]
            if not kind.only_reads:
                _check_may_change(running, is_read_only or call.settings.read_only)
            self._services.running.enter(running.entry, kind.queue_of(statement, database))
            with (
                dialect.reading(statement, call.settings.dialect, call.settings.spark) as (statement, read_as),
                noting_unanswered() as unanswered,
            ):

                def performed(perform: Callable[[], Outcome]) -> Outcome:
                    try:
                        outcome = perform()
                    except NotHostedError as error:
                        if is_passed_on:
                            raise
                        return self._services.peers.run(error, text, database=database, settings=given)
                    ignored = settings_without_effect(named_settings(statement))
                    added = (*notices, *read_as, *ignored, *sorted(unanswered))
                    return replace(outcome, notices=(*outcome.notices, *added))

                call = replace(call, on_complete=completing(call.on_complete, performed))
                return performed(lambda: kind.perform(self._services, call, statement))

        return act

    def own_rows(self, name: str, wanted: Pushdown = EVERYTHING) -> pa.Table:
        """Return this server's own rows of a system table, at least those wanted. Raises TableNotFoundError."""
        return find_system_table(name).build_own(self._services, wanted)

    def wait_stopped(self, service: ServiceKind, table: str) -> None:
        """Wait until this server has stopped a service of all tables. Raises UnavailableError."""
        wait_stopped(self._services, service, table)

    def insert_text(
        self,
        database: str,
        table: str,
        *,
        input_format: str,
        data: bytes,
        settings: Mapping[str, str] | None = None,
        origin: Origin | None = None,
        on_complete: Completion[Answer] | None = None,
    ) -> Answer | None:
        """Store rows given as text, as INSERT .. FORMAT does. `on_complete`: as of `insert_arrow`."""

        def act(running: _Running) -> Outcome:
            running.entry.kind = "InsertData"
            call = _call(running, database, settings or {})
            _check_may_change(running, call.settings.read_only)
            self._services.running.enter(running.entry, Queue.INSERT)
            statement = InsertData(name=Name(database, table), format=input_format, data=_decoded(data))
            return insert.insert_data(self._services, call, statement)

        return self._logged_async(
            f"INSERT INTO {database}.{table} FORMAT {input_format}", database, act, origin, on_complete
        )

    def insert_arrow(
        self,
        database: str,
        table: str,
        data: pa.Table | Callable[[int], pa.Table],
        *,
        settings: Mapping[str, str] | None = None,
        origin: Origin | None = None,
        on_complete: Completion[Answer] | None = None,
    ) -> Answer | None:
        """Store rows given as Arrow; columns are found by name. `data`: as of `insert.store_named`.

        `on_complete` gets the answer where None is returned: an INSERT that shares a commit needs no thread meanwhile.
        """

        def act(running: _Running) -> Outcome:
            running.entry.kind = "InsertArrow"
            call = _call(running, database, settings or {})
            _check_may_change(running, call.settings.read_only)
            self._services.running.enter(running.entry, Queue.INSERT)
            target = table_of(self._services, call, Name(database, table), what="INSERT")
            return insert.store_named(self._services, call, target, data)

        return self._logged_async(f"INSERT INTO {database}.{table} FORMAT Arrow", database, act, origin, on_complete)

    def begin_write(
        self,
        database: str,
        table: str,
        request: WriteRequest,
        *,
        settings: Mapping[str, str] | None = None,
        origin: Origin | None = None,
    ) -> OpenWrite:
        """Begin a write whose rows are written by a Spark of the client's own; see statements/inserts/outside.py."""
        begun: list[OpenWrite] = []

        def act(running: _Running) -> Outcome:
            running.entry.kind = "BeginWrite"
            call = _call(running, database, settings or {})
            _check_may_change(running, call.settings.read_only)
            self._services.running.enter(running.entry, Queue.INSERT)
            begun.append(self.outside_writes.begin(call, database, table, request))
            return done(f"write begun into {database}.{table}")

        self._logged(f"BEGIN WRITE {database}.{table} FROM SPARK", database, act, origin)
        return begun[0]

    def commit_write(self, write_id: str, files: WrittenFiles, *, origin: Origin | None = None) -> WriteOutcome:
        """Commit the files of a write that was begun by `begin_write`."""
        landed: list[WriteOutcome] = []

        def act(running: _Running) -> Outcome:
            running.entry.kind = "CommitWrite"
            self._services.running.enter(running.entry, Queue.INSERT)
            outcome = self.outside_writes.commit(write_id, files)
            landed.append(outcome)
            rows = 0 if outcome.is_repeated else outcome.rows
            return done(f"inserted: {rows} rows", rows_written=rows)

        self._logged(f"COMMIT WRITE {files.txn} FROM SPARK", "default", act, origin)
        return landed[0]

    def renew_write(self, write_id: str) -> None:
        """Note a sign of life of a write. Raises why it has ended."""
        self.outside_writes.renew(write_id)

    def abort_write(self, write_id: str, reason: str) -> None:
        """End a write without its rows."""
        self.outside_writes.abort(write_id, reason)

    def run_inside(
        self, text: str, name: Name, settings: Mapping[str, str], origin: Origin, act: Callable[[Call], Outcome]
    ) -> Answer:
        """Run an action of this server over a table as a statement: it is in the query log, and KILL QUERY ends it."""

        def acting(running: _Running) -> Outcome:
            running.entry.kind = "LoadPipe"
            call = _call(running, name.database or "default", settings)
            self._services.running.enter(running.entry, Queue.INSERT)
            return act(call)

        return self._logged(text, name.database or "default", acting, origin)

    def insert_body(
        self,
        head: InsertHead,
        pieces: Iterator[bytes],
        *,
        bytes_max: int,
        database: str = "default",
        settings: Mapping[str, str] | None = None,
        origin: Origin | None = None,
    ) -> Answer:
        """Store the rows of a body that is still coming in, up to so many bytes, by tasks of Spark."""

        def act(running: _Running) -> Outcome:
            running.entry.kind = "InsertBody"
            caller = dict(settings or {})
            given = caller | dict(head.settings)
            call = _call(running, database, given)
            _check_may_change(running, call.settings.read_only or session_settings(caller).read_only)
            self._services.running.enter(running.entry, Queue.INSERT)
            limit = call.settings.max_insert_bytes if is_given(given, "max_insert_bytes") else 0
            body = LargeBody(
                name=head.name,
                columns=head.columns,
                format=head.format,
                pieces=pieces,
                bytes_max=min(limit or bytes_max, bytes_max),
                rows_bytes_max=limit,
            )
            return insert_body(self._services, call, body)

        return self._logged(head.text, database, act, origin)

    def _logged(
        self, text: str, database: str, act: Callable[[_Running], Outcome], origin: Origin | None = None
    ) -> Answer:
        """Run it and write a line of the query log, whatever comes of it. Log and errors are redacted."""
        answer = self._logged_async(text, database, act, origin, None)
        assert answer is not None
        return answer

    def _logged_async(
        self,
        text: str,
        database: str,
        act: Callable[[_Running], Outcome],
        origin: Origin | None,
        on_complete: Completion[Answer] | None,
    ) -> Answer | None:
        """Run it as `_logged`; None: it is pending, and `on_complete` gets the answer."""
        shown = redacted(text)
        hide_in_lines(shown.secrets)
        entry = Running(
            query_id=self._services.ids(),
            text=shortened(shown.text, RUNNING_TEXT_MAX),
            database=database,
            origin=origin or Origin(),
            started_ms=self._clock.now_ms(),
            started=self._clock.monotonic(),
            span=tracing.begin("statement", parent="" if origin is None else origin.trace),
        )
        running = _Running(entry, shown)
        running.on_complete = completing(on_complete, partial(self._settled, running))
        self._services.running.add(entry)
        return self._answered(running, lambda: act(running))

    def _settled(self, running: _Running, settle: Callable[[], Outcome]) -> Answer:
        answer = self._answered(running, settle)
        assert answer is not None
        return answer

    def _answered(self, running: _Running, act: Callable[[], Outcome]) -> Answer | None:
        """Return the answer of a statement that is listed; None: its outcome is pending."""
        entry, shown = running.entry, running.shown
        outcome, error = Outcome(), None
        try:
            with (
                working_under(entry.origin.cancellation),
                log_context(query_id=entry.query_id),
                tracing.using(entry.span),
            ):
                outcome = act()
        except TilthError as refused:
            shown.hide_in(refused)
            error = full_error(refused, folder=str(self._services.root)) or refused
            if error is not refused:
                raise error from refused
            raise
        except RecursionError as deep:
            error = nested_too_deep()
            raise error from deep
        except BaseException as defect:
            entry.span.fail(defect)
            if (full := full_error(defect, folder=str(self._services.root))) is not None:
                error = full
                raise full from defect
            if shown.is_in(str(defect)):
                message = "a defect of Tilth, whose message contains a secret"
                raise TilthError(message, error=type(defect).__name__) from None
            raise
        finally:
            if outcome.stream is None and not outcome.is_pending:
                self._finish(running, outcome, outcome.table.num_rows, outcome.table.nbytes, error)
        if outcome.is_pending:
            return None
        return Answer(
            query_id=entry.query_id,
            columns=columns_of((outcome.stream or outcome.table).schema),
            table=outcome.table,
            stream=self._finished_by_its_end(running, outcome) if outcome.stream is not None else None,
            message=outcome.message,
            notices=outcome.notices,
            connection_settings=outcome.connection_settings,
            output_format=running.output_format,
            elapsed_ms=self._elapsed_ms(entry),
            rows_written=outcome.rows_written,
            parts_read=outcome.parts_read,
            parts_pruned=outcome.parts_pruned,
        )

    def _finished_by_its_end(self, running: _Running, outcome: Outcome) -> RowStream:
        """The statement goes on until its rows have been taken."""
        inner = outcome.stream
        assert inner is not None

        def close(rows: int, size: int, error: TilthError | None) -> None:
            inner.close(error)
            if error is not None:
                running.shown.hide_in(error)
            self._finish(running, outcome, rows, size, error)

        return RowStream(inner.schema, iter(inner), close)

    def _finish(self, running: _Running, outcome: Outcome, rows: int, size: int, error: TilthError | None) -> None:
        """Release what the statement has, and write a line of the query log."""
        entry = running.entry
        self._services.running.remove(entry.query_id)
        event = QueryEvent(
            query_id=entry.query_id,
            client=entry.origin.shown,
            kind=entry.kind,
            text=shortened(log_statement(self._services.audit, entry.text), LOGGED_TEXT_MAX),
            database=entry.database,
            started_ms=entry.started_ms,
            elapsed_ms=self._elapsed_ms(entry),
            rows=rows,
            rows_written=outcome.rows_written,
            result_bytes=size,
            parts_read=outcome.parts_read,
            parts_pruned=outcome.parts_pruned,
            error_code=error.code if error is not None else "",
            exception_code=number_of(error) if error is not None else 0,
            error=str(error) if error is not None and not self._services.audit.is_masking else "",
            sent_again=entry.sent_again,
        )
        if running.is_logged:
            self._services.query_log.add(event)
        _end_span(entry.span, event, error)
        _log.debug(
            "statement_done", cause_id=entry.query_id, kind=entry.kind, ms=event.elapsed_ms, error=event.error_code
        )

    def _elapsed_ms(self, entry: Running) -> float:
        return round((self._clock.monotonic() - entry.started) * 1000, 3)


def _end_span(span: tracing.Span, event: QueryEvent, error: TilthError | None) -> None:
    """End a statement's span, with the names that OpenTelemetry has for those of databases."""
    if span is tracing.NO_SPAN:
        return
    span.set(
        db__system__name="tilth",
        db__namespace=event.database,
        db__operation__name=event.kind,
        db__query__text=event.text,
        db__response__returned_rows=event.rows,
        tilth__query_id=event.query_id,
        tilth__rows_written=event.rows_written,
        tilth__result_bytes=event.result_bytes,
        tilth__parts_read=event.parts_read,
    )
    if error is not None:
        span.fail(error)
    span.end()


@dataclass(slots=True)
class _Running:
    """State of a statement under way."""

    entry: Running
    shown: Redacted
    output_format: str | None = None
    is_logged: bool = True
    on_complete: Completion[Outcome] | None = None


def _check_may_change(running: _Running, is_read_only: bool) -> None:
    if is_read_only:
        hint = "send it without the setting readonly"
        raise ConflictError.coded(
            "READONLY_SETTING", "this statement changes something", statement=running.entry.kind, hint=hint
        )


def _call(running: _Running, database: str, given: Mapping[str, str], *, streams: bool = False) -> Call:
    settings = session_settings(given)
    running.is_logged = settings.log_queries
    running.entry.seconds_max = settings.max_execution_time
    return Call(
        query_id=running.entry.query_id,
        database=database,
        settings=settings,
        text=running.shown.text,
        secrets=running.shown.secrets,
        streams=streams,
        client=running.entry.origin.shown,
        on_complete=running.on_complete,
    )


def _known_format(name: str | None) -> str | None:
    """Refuse a format that nobody can write before the query is run for it."""
    if name is not None:
        answer_format(name)
    return name


def _check_unicode(text: str) -> None:
    """Raises BadQueryError for half of a surrogate pair, which Python's texts may hold and no other."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadQueryError("half of a surrogate pair is not valid Unicode", position=error.start) from error


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadValueError("the rows are not UTF-8 text", position=error.start) from error
