"""Runs queries and INSERT .. SELECT on a worker's Spark.

Covers: the runners of QUERY and INSERT tasks: a query's relations become snapshots, the rest reaches Spark as it is.
Does not cover: what names mean and which parts are read (snapshots/snapshots.py, by calls). Always holds: every query
has a session of its own; what the optimizer does not say for certain rules out nothing; results and buffers are
bounded. See also: snapshots/protocol.py, prepared_spark.py.

Tests: tests/integration/sql/test_sql_on_spark.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar, assert_never

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tilth.base import tracing
from tilth.base.logs import Log
from tilth.base.mailbox import new_mailbox
from tilth.model.delta import WrittenDelta
from tilth.model.part import WrittenPart
from tilth.model.task import Cost
from tilth.model.types import quoted
from tilth.query.errors import BadQueryError
from tilth.query.language.spark_errors import from_spark, nested_too_deep
from tilth.query.results.spark import QueryRows, ResultRoad, rows_of, to_stream
from tilth.query.results.stored import StoredRows, pack_rows
from tilth.query.snapshots import protocol
from tilth.query.worker.changes_spark import changed_rows
from tilth.query.worker.copy_spark import run_copy
from tilth.query.worker.export_spark import exported
from tilth.query.worker.expressions import ExpressionChecker
from tilth.query.worker.handed import RunReplayOrder, RunVerifyOrder, ViewCheck, WriteBody
from tilth.query.worker.needs_spark import create_views, find_needs, view_names
from tilth.query.worker.prepared_spark import PreparedQuery
from tilth.query.worker.query_cache import QueryCache
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
from tilth.storage.read.spark import file_error
from tilth.warehouse import (
    TaskContext,
    TaskResult,
    run_in_task,
)

_log = Log("sql")
#: PySpark prints every refused query there; the caller gets the error anyway.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)

T = TypeVar("T")


class QueryRunner:
    """The runner of QUERY tasks."""

    def __init__(
        self,
        calls: protocol.QueryCalls,
        check_view: ViewCheck,
        replay: RunReplayOrder,
        verify: RunVerifyOrder,
        *,
        cache: QueryCache,
    ) -> None:
        self._calls = calls
        self._check_view = check_view
        self._replay = replay
        self._verify = verify
        self._cache = cache

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
        tasks = context.fit().tasks
        query = PreparedQuery(context.session, letters, self._calls, task, cache=self._cache, tasks=tasks)

        shares_disk = bool(task.folder) and not context.is_on_cluster and Path(task.folder).is_dir()
        road = ResultRoad(
            fit=context.fit,
            open_folder=None if shares_disk else partial(self._calls.open_result, task.query_id),
        )

        def run() -> QueryRows:
            frame = query.frame()
            with tracing.part("spark"):
                return rows_of(frame, task, road, answer_bytes=query.answer_bytes)

        answer = query.guarded(run)
        query.note_answer(answer.bytes)
        rows = answer.rows
        if isinstance(rows, StoredRows):
            payload, size = pack_rows(rows), sum(each.size for each in rows.files)
        else:
            payload = to_stream(rows) if rows is not None else b""
            size = len(payload)
        return TaskResult(payload=payload, actual=Cost(input_bytes=query.input_bytes, output_bytes=size))

    def _export(self, context: TaskContext, task: protocol.ExportTask) -> TaskResult:
        query = PreparedQuery(context.session, new_mailbox(), self._calls, task.query, cache=self._cache)
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

    def __init__(self, calls: protocol.QueryCalls, write_body: WriteBody, *, cache: QueryCache) -> None:
        self._calls = calls
        self._write_body = write_body
        self._cache = cache

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
        query = PreparedQuery(context.session, letters, self._calls, task, cache=self._cache)

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


def inserted(
    frame: DataFrame, task: protocol.InsertTask, check: Callable[[], None], now_us: int | None = None
) -> list[WrittenPart]:
    """Sorts and writes the rows in the tasks of one job; raises what the first failed task met.

    `now_us`: the instant of the SELECT, where it was fixed; None: Spark takes one for all of it.
    """
    rows = target_rows(frame, task, now_us)
    write = partial(write_many, layout_of(task.target, task.root, quorum=task.quorum), txn=task.txn)
    return written_in_tasks(rows.coalesce(task.tasks_max), write, check, list[WrittenPart])
