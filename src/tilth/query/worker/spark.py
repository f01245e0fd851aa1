"""Runs queries and INSERT .. SELECT on a worker's Spark.

Covers: the runners of QUERY and INSERT tasks: a query's relations become snapshots, the rest reaches Spark as it is.
Does not cover: what names mean and which parts are read (snapshots/snapshots.py, by calls). Always holds: every query
has a session of its own; what the optimizer does not say for certain rules out nothing; results and buffers are
bounded. See also: snapshots/protocol.py, relations.py, needs_spark.py.

Tests: tests/integration/sql/test_sql_on_spark.py.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, assert_never

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tilth.base import tracing
from tilth.base.logs import Log
from tilth.base.mailbox import Mailbox, new_mailbox
from tilth.model.delta import WrittenDelta
from tilth.model.part import WrittenPart
from tilth.model.task import Cost
from tilth.model.types import quoted
from tilth.query.errors import BadQueryError
from tilth.query.language.spark_errors import from_spark, nested_too_deep
from tilth.query.results.spark import ResultRoad, rows_of, to_stream
from tilth.query.results.stored import StoredRows, pack_rows
from tilth.query.snapshots import protocol
from tilth.query.worker.changes_spark import changed_rows
from tilth.query.worker.copy_spark import run_copy
from tilth.query.worker.export_spark import exported
from tilth.query.worker.expressions import ExpressionChecker
from tilth.query.worker.handed import RunReplayOrder, RunVerifyOrder, ViewCheck, WriteBody
from tilth.query.worker.headings import headings
from tilth.query.worker.hidden import ShownColumns, shown_columns, star_edits
from tilth.query.worker.needs_spark import (
    PREDICATE_WORDS,
    Needs,
    answered,
    create_views,
    find_needs,
    nothing_known,
    view_names,
)
from tilth.query.worker.relations import (
    TIME_WORDS,
    Edit,
    Past,
    Relations,
    edits_of,
    frozen_times,
    has_fine_times,
    names_of,
    rewrite,
)
from tilth.query.worker.target_spark import default_text, model_type, parsed_query, target_rows
from tilth.query.worker.writing_spark import written_in_tasks
from tilth.storage import (
    UpsertRequest,
    layout_of,
    note_unanswered,
    resolve_all,
    write_many,
)
from tilth.storage.read.overlay_spark import spark_schema
from tilth.storage.read.spark import file_error, is_changed, read_snapshot
from tilth.warehouse import (
    TaskContext,
    TaskResult,
    run_in_task,
)

_VERSION = re.compile(r"[0-9]{1,18}")

_log = Log("sql")
#: PySpark prints every refused query there; the caller gets the error anyway.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)

T = TypeVar("T")
#: Needs of a query from its relations, the edits that fix its time, and then the names of its columns.
_Answer = tuple[Needs | None, list[Edit], list[str] | None]


class QueryRunner:
    """The runner of QUERY tasks."""

    def __init__(
        self, calls: protocol.QueryCalls, check_view: ViewCheck, replay: RunReplayOrder, verify: RunVerifyOrder
    ) -> None:
        self._calls = calls
        self._check_view = check_view
        self._replay = replay
        self._verify = verify

    def __call__(self, context: TaskContext) -> TaskResult:
        task = msgspec.msgpack.decode(context.spec.payload, type=protocol.WorkerTask)
        try:
            return self._answer(context, task)
        except RecursionError as error:
            raise nested_too_deep() from error

    def _answer(self, context: TaskContext, task: protocol.WorkerTask) -> TaskResult:
        match task:
            case protocol.QueryTask():
                return self._run(context, task)
            case protocol.NamesTask():
                return TaskResult(payload=msgspec.msgpack.encode(_names(context.session, task.text)))
            case protocol.CheckTask():
                checked = self._check_view(
                    context.session,
                    task.kafka,
                    task.target,
                    task.select,
                    view=task.view,
                    target_columns=task.target_columns,
                )
                return TaskResult(payload=msgspec.msgpack.encode(checked.outputs))
            case protocol.ExpressionsTask():
                return TaskResult(payload=msgspec.msgpack.encode(_expressions(context.session, task)))
            case protocol.ComputeTask():
                return TaskResult(payload=_computed(context.session, task))
            case protocol.ChangeTask():
                return _change(context, task)
            case protocol.ExportTask():
                return self._export(context, task)
            case protocol.ReplayTask(order=order, predicate=predicate):
                try:
                    return self._replay(context, order)
                except (PySparkException, Py4JError) as error:
                    raise from_spark(error, predicate, lambda position: position, predicate, is_whole=False) from error
            case protocol.VerifyTask(order=order):
                return self._verify(context, order)
        assert_never(task)

    def _run(self, context: TaskContext, task: protocol.QueryTask) -> TaskResult:
        letters = new_mailbox()
        query = PreparedQuery(context.session, letters, self._calls, task)

        shares_disk = bool(task.folder) and not context.is_on_cluster and Path(task.folder).is_dir()
        road = ResultRoad(
            fit=context.fit,
            open_folder=None if shares_disk else partial(self._calls.open_result, task.query_id),
        )

        def run() -> pa.Table | StoredRows | None:
            frame = query.frame()
            with tracing.part("spark"):
                return rows_of(frame, task, road)

        rows = query.guarded(run)
        if isinstance(rows, StoredRows):
            payload, size = pack_rows(rows), sum(each.size for each in rows.files)
        else:
            payload = to_stream(rows) if rows is not None else b""
            size = len(payload)
        return TaskResult(payload=payload, actual=Cost(input_bytes=query.input_bytes, output_bytes=size))

    def _export(self, context: TaskContext, task: protocol.ExportTask) -> TaskResult:
        query = PreparedQuery(context.session, new_mailbox(), self._calls, task.query)
        files = query.guarded(lambda: exported(query.frame(), task))
        cost = Cost(input_bytes=query.input_bytes, output_bytes=sum(each.size for each in files))
        return TaskResult(payload=msgspec.msgpack.encode(files), actual=cost)


def _names(session: SparkSession, text: str) -> list[tuple[str, ...]]:
    try:
        relations = parsed_query(session, text).relations
    except (PySparkException, Py4JError) as error:
        raise from_spark(error, text, lambda position: position, text) from error
    if any(relation.past is not None for relation in relations):
        raise BadQueryError("a view reads new rows only: AS OF has no meaning there")
    return [relation.name for relation in relations]


def _expressions(session: SparkSession, task: protocol.ExpressionsTask) -> protocol.CheckedExpressions:
    checker = ExpressionChecker(session, task, model_type, to_stream)
    try:
        checked = checker.check()
    except (PySparkException, Py4JError) as error:
        raise from_spark(error, checker.text, checker.original, checker.sent, is_whole=False) from error
    return _with_needs(session, task, checked) if task.with_needs else checked


def _with_needs(
    session: SparkSession, task: protocol.ExpressionsTask, checked: protocol.CheckedExpressions
) -> protocol.CheckedExpressions:
    """Add the needs of the expressions, which were checked, from the table."""
    [view] = view_names(1)
    values = ", ".join(f"({text})" for _, text in checked.assignments) or "1"
    try:
        create_views(session, [view], [task.schema])
        needs = find_needs(session, f"SELECT {values} FROM {view} WHERE {checked.predicate}", 1)
    except (PySparkException, Py4JError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        _log.warning("rows_not_pruned", table=task.table, reason=f"{type(error).__name__}: {error}")
        return checked
    columns = None if needs.columns[0] is None else tuple(sorted(needs.columns[0]))
    return msgspec.structs.replace(checked, where=needs.predicates[0], columns=columns)


def _computed(session: SparkSession, task: protocol.ComputeTask) -> bytes:
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.conf.set("spark.sql.session.timeZone", task.zone)
    try:
        columns = [
            f"{default_text(session, text, task.now_us if task.schema is None else None)} AS {quoted(name)}"
            for name, text in zip(task.columns, task.expressions, strict=True)
        ]
        return to_stream(_given(session, task).selectExpr(*columns).toArrow())
    except PySparkException as error:
        text = ", ".join(task.expressions)
        raise from_spark(error, text, lambda position: position, text, is_whole=False) from error


def _given(session: SparkSession, task: protocol.ComputeTask) -> DataFrame:
    if task.schema is None:
        return session.range(0, task.rows, 1, 1)
    with pa.ipc.open_stream(task.given) as reader:
        return session.createDataFrame(reader.read_all(), spark_schema(task.schema))


def _change(context: TaskContext, task: protocol.ChangeTask) -> TaskResult:
    letters = new_mailbox()
    try:
        written = changed_rows(context.session, task, letters, context.raise_if_cancelled)
    except (PySparkException, Py4JError) as error:
        damage = file_error(error, letters)
        if damage is not None:
            note_unanswered(damage)
            raise damage from error
        shown = ", ".join(text for _, text in task.assignments) or task.predicate
        raise from_spark(error, shown, lambda position: position, shown, is_whole=False) from error
    cost = Cost(input_bytes=task.snapshot.bytes, output_bytes=sum(each.file.size for each in written))
    return TaskResult(payload=msgspec.msgpack.encode(protocol.ChangeResult(written=tuple(written))), actual=cost)


class InsertRunner:
    """The runner of INSERT tasks."""

    def __init__(self, calls: protocol.QueryCalls, write_body: WriteBody) -> None:
        self._calls = calls
        self._write_body = write_body

    def __call__(self, context: TaskContext) -> TaskResult:
        task = msgspec.msgpack.decode(context.spec.payload, type=protocol.InsertPayload)
        match task:
            case protocol.InsertTask():
                return self._insert(context, task)
            case protocol.LoadFilesTask():
                return run_copy(context, task)
            case protocol.BodyTask():
                return self._write_body(context, task)
            case protocol.ResolveTask(requests=requests):
                changes = run_in_task(context.session, partial(_resolved, requests), tuple[WrittenDelta, ...])
                size = sum(change.file.size for change in changes)
                payload = msgspec.msgpack.encode(protocol.ResolveResult(changes=changes))
                return TaskResult(payload=payload, actual=Cost(output_bytes=size))
        assert_never(task)

    def _insert(self, context: TaskContext, task: protocol.InsertTask) -> TaskResult:
        letters = new_mailbox()
        query = PreparedQuery(context.session, letters, self._calls, task)

        def insert() -> list[WrittenPart]:
            frame = query.frame()
            with tracing.part("spark"):
                return inserted(frame, task, context.raise_if_cancelled, query.now_us)

        parts = query.guarded(insert)
        cost = Cost(input_bytes=query.input_bytes, output_bytes=sum(part.file.size for part in parts))
        return TaskResult(payload=msgspec.msgpack.encode(protocol.InsertResult(parts=tuple(parts))), actual=cost)


def _resolved(requests: Sequence[UpsertRequest], *, task: int, attempt: int) -> tuple[WrittenDelta, ...]:
    """Resolve in a task of Spark; the number in the files' names is not this task's, but that of the requests."""
    return resolve_all(requests, attempt=attempt)


class PreparedQuery:
    """A query's text with snapshots instead of its relations."""

    def __init__(
        self,
        session: SparkSession,
        mailbox: Mailbox,
        calls: protocol.QueryCalls,
        task: protocol.QueryTask | protocol.InsertTask,
    ) -> None:
        self._session = session
        self._mailbox = mailbox
        self._calls = calls
        self._query_id = task.query_id
        self._text = task.text
        self._spark_settings = task.spark
        #: Its rows are stored, so no value may differ from its text.
        self._is_insert = isinstance(task, protocol.InsertTask)
        #: Text sent to Spark, for the positions in its messages.
        self._sent = rewrite(task.text, [])
        self._shown: list[ShownColumns] = []
        #: The instant of the whole query, where it was fixed before Spark ran it.
        self.now_us: int | None = None
        self.input_bytes = 0

    def guarded(self, act: Callable[[], T]) -> T:
        """Run it; raises Spark's errors as TilthErrors that point into the user's text."""
        try:
            return act()
        except (PySparkException, Py4JError, RecursionError) as error:
            damage = file_error(error, self._mailbox)
            if damage is not None:
                note_unanswered(damage)
                raise damage from error
            raise from_spark(error, self._text, self._sent.original, self._sent.text) from error

    def frame(self) -> DataFrame:
        """Analyze the query; nothing else has run yet."""
        with tracing.part("analyze"):
            return self._frame()

    def _frame(self) -> DataFrame:
        session = self._session
        for name, value in self._spark_settings.items():
            session.conf.set(name, value)
        found = parsed_query(session, self._text)
        if self._is_insert and has_fine_times(found):
            raise BadQueryError("a time has microseconds at most", hint="remove the digits after the sixth")
        if not found.relations:
            return self._named(found, session.sql(self._text))
        as_of = points_in_time(session, [relation.past for relation in found.relations])
        with tracing.part("snapshot"):
            resolved = self._calls.resolve(self._query_id, [relation.name for relation in found.relations], as_of)
        views, known = view_names(len(resolved)), names_of(found, resolved)
        self._shown = [shown_columns(one.schema, self._text) for one in resolved]
        edits = edits_of(found, known, resolved, views) + star_edits(found, self._shown, known)
        nothing = nothing_known(len(resolved))
        otherwise: _Answer = (nothing, [], None)
        needs, times, names = answered(
            lambda: self._needs(found, resolved, views, edits), otherwise, cause_id=self._query_id
        )
        with tracing.part("snapshot"):
            sources = self._calls.pin(self._query_id, (needs or nothing).predicates)
        if needs is None and any(source.snapshot is not None and is_changed(source.snapshot) for source in sources):
            needs = answered(lambda: self._find_needs(resolved, views, edits), nothing, cause_id=self._query_id)
        for view, source, needed, shown in zip(views, sources, (needs or nothing).columns, self._shown, strict=True):
            rows = self._rows_of(source, needed)
            rows = rows if shown.projection is None else rows.selectExpr(*shown.projection)
            rows.createOrReplaceTempView(view)
        self._sent = rewrite(self._text, edits + times)
        frame = session.sql(self._sent.text)
        return self._named(found, frame, names)

    def _named(self, found: Relations, frame: DataFrame, names: Sequence[str] | None = None) -> DataFrame:
        """Return the frame with the headings of its answer; `names`: those that Spark would give to the user's text."""
        wanted = headings(found.nodes[0], self._text, lambda: frame.columns if names is None else names) or names
        return frame if wanted is None else frame.toDF(*wanted)

    def _needs(
        self, found: Relations, resolved: list[protocol.Resolved], views: list[str], edits: list[Edit]
    ) -> _Answer:
        """Return the needs of each relation, with the edits that fix the time they hold for, and then the columns'
        names, which must not show those edits. None: the optimizer was not needed."""
        if not PREDICATE_WORDS.search(self._text):
            return None, [], None
        times = self._frozen_times(found, resolved)
        names = None
        if times:
            self._create_views(views, resolved)
            self._sent = rewrite(self._text, edits)
            names = self._session.sql(self._sent.text).columns
        needs = self._find_needs(resolved, views, edits + (times or []))
        if times is None:
            return replace(needs, predicates=nothing_known(len(resolved)).predicates), [], None
        return needs, times, names

    def _create_views(self, views: list[str], resolved: list[protocol.Resolved]) -> None:
        schemas = [one.schema for one in resolved]
        create_views(self._session, views, schemas, [shown.projection for shown in self._shown])

    def _find_needs(self, resolved: list[protocol.Resolved], views: list[str], edits: list[Edit]) -> Needs:
        self._create_views(views, resolved)
        self._sent = rewrite(self._text, edits)
        return find_needs(self._session, self._sent.text, len(resolved))

    def _frozen_times(self, found: Relations, resolved: list[protocol.Resolved]) -> list[Edit] | None:
        """Return None if the query depends on the time in a way that cannot be fixed: it must not choose parts."""
        if not TIME_WORDS.search(found.present):
            return []
        if any(TIME_WORDS.fullmatch(column.name) for one in resolved for column in one.schema.all_columns):
            return None
        jvm: Any = self._session._jvm
        now = jvm.java.time.Instant.now()
        self.now_us = now.getEpochSecond() * 1_000_000 + now.getNano() // 1000
        return frozen_times(found, self.now_us)

    def _rows_of(self, source: protocol.Source, columns: frozenset[str] | None) -> DataFrame:
        if source.snapshot is not None:
            assert source.root is not None
            self.input_bytes += source.snapshot.bytes
            return read_snapshot(self._session, source.snapshot, source.root, columns, mailbox=self._mailbox)
        table = source.table
        self.input_bytes += table.nbytes
        if not table.num_rows:
            return self._session.createDataFrame([], from_arrow_schema(table.schema))
        return self._session.createDataFrame(table)


def points_in_time(session: SparkSession, pasts: Sequence[Past | None]) -> list[protocol.AsOf | None]:
    """Past states of AS OF clauses; now() is one instant for all of them. Raises BadQueryError."""
    times = list(dict.fromkeys(past.time for past in pasts if past is not None and past.time is not None))
    micros = dict(zip(times, _micros(session, times), strict=True)) if times else {}
    points: list[protocol.AsOf | None] = []
    for past in pasts:
        if past is None:
            points.append(None)
        elif past.time is not None:
            points.append(protocol.AsOfTime(micros=micros[past.time]))
        else:
            points.append(protocol.AsOfVersion(version=_version(past.version or "")))
    return points


def _version(text: str) -> int:
    if not _VERSION.fullmatch(text):
        hint = "system.table_versions lists them; for a time write TIMESTAMP AS OF '2026-01-31 12:00:00'"
        raise BadQueryError("a version is a whole number", version=text, hint=hint)
    return int(text)


def _micros(session: SparkSession, times: Sequence[str]) -> list[int]:
    """Values of constant expressions, in microseconds since 1970."""
    shown = ", ".join(times)
    columns = ", ".join(f"unix_micros(CAST(({time}\n) AS TIMESTAMP))" for time in times)
    try:
        (row,) = session.sql(f"SELECT {columns}").collect()
    except PySparkException as error:
        hint = "write a constant, as in TIMESTAMP AS OF '2026-01-31 12:00:00' or now() - INTERVAL 1 HOUR"
        condition = error.getCondition() or type(error).__name__
        raise BadQueryError("AS OF needs a time", time=shown, reason=condition, hint=hint) from error
    # `in` of a Row checks the names of its fields.
    values = list(row)
    if None in values:
        raise BadQueryError("AS OF needs a time", time=shown, hint="its value is NULL")
    return values


def inserted(
    frame: DataFrame, task: protocol.InsertTask, check: Callable[[], None], now_us: int | None = None
) -> list[WrittenPart]:
    """Sorts and writes the rows in the tasks of one job; raises what the first failed task met.

    `now_us`: the instant of the SELECT, where it was fixed; None: Spark takes one for all of it.
    """
    rows = target_rows(frame, task, now_us)
    write = partial(write_many, layout_of(task.target, task.root, quorum=task.quorum), txn=task.txn)
    return written_in_tasks(rows.coalesce(task.tasks_max), write, check, list[WrittenPart])
