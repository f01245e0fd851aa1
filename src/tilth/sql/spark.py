"""Runs queries and INSERT .. SELECT on a worker's Spark.

Covers: the runners of QUERY and INSERT tasks: a query's relations become snapshots, the rest reaches Spark as it is.
Does not cover: what names mean and which parts are read (desk.py, by calls). Always holds: every query has a session
of its own; what the optimizer does not say for certain rules out nothing; results and buffers are bounded. See also:
protocol.py, relations.py, shadow.py.
"""

from __future__ import annotations

import io
import logging
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Protocol, TypeVar, assert_never

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext as SparkTask
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.serializers import ArrowCollectSerializer, ArrowStreamSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import _load_from_socket

from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.model.part import WrittenPart
from tilth.model.table import KafkaDef, TableDef
from tilth.model.task import Cost
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct, quoted, spark_name
from tilth.model.wire import ColumnInfo
from tilth.sql.coerce import is_assignable
from tilth.sql.errors import BadDefinitionError, BadValueError, ResultTooLargeError
from tilth.sql.expressions import ExpressionChecker
from tilth.sql.predicates import Predicate, Unknown
from tilth.sql.protocol import (
    COLUMNS_KEY,
    CheckedExpressions,
    CheckTask,
    ExpressionsTask,
    InsertResult,
    InsertTask,
    NamesTask,
    QueryCalls,
    QueryTask,
    Resolved,
    Source,
    WorkerTask,
)
from tilth.sql.relations import TIME_WORDS, Relations, find_relations, frozen_times, long_references
from tilth.sql.rewrite import Edit, rewrite
from tilth.sql.shadow import ask_predicates, create_views, make_active
from tilth.sql.spark_errors import from_spark
from tilth.storage import TableLayout, conform, layout_of, write_parts
from tilth.storage.spark import file_error, read_snapshot
from tilth.warehouse import TaskContext, TaskResult

#: Bytes of rows that a task of an INSERT holds before it sorts and writes them.
INSERT_BUFFER_BYTES = 256 * 1024 * 1024
_FACTS = "facts binary"
_VIEW_PREFIX = "__tilth_"
_PREDICATE_WORDS = re.compile(r"\b(where|on|having|join|filter|using|qualify)\b", re.IGNORECASE)

_log = Log("sql")
#: PySpark prints every refused query there; the caller is told anyway.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)

T = TypeVar("T")


class CheckedView(Protocol):
    """What a check of a view gives back, as far as it matters here."""

    @property
    def outputs(self) -> tuple[tuple[str, int], ...]: ...


class ViewCheck(Protocol):
    """`tilth.ingest.check_view`; handed in, for that room also knows the catalog, which code for workers must not."""

    def __call__(
        self,
        session: SparkSession,
        kafka: KafkaDef,
        target: TableDef,
        select: str,
        *,
        view: str,
        target_columns: Sequence[tuple[str, int]],
    ) -> CheckedView: ...


class QueryRunner:
    """The runner of QUERY tasks."""

    def __init__(self, calls: QueryCalls, check_view: ViewCheck) -> None:
        self._calls = calls
        self._check_view = check_view

    def __call__(self, context: TaskContext) -> TaskResult:
        task = msgspec.msgpack.decode(context.spec.payload, type=WorkerTask)
        match task:
            case QueryTask():
                return self._run(context, task)
            case NamesTask():
                return TaskResult(payload=msgspec.msgpack.encode(_names(context.session, task.text)))
            case CheckTask():
                checked = self._check_view(
                    context.session,
                    task.kafka,
                    task.target,
                    task.select,
                    view=task.view,
                    target_columns=task.target_columns,
                )
                return TaskResult(payload=msgspec.msgpack.encode(checked.outputs))
            case ExpressionsTask():
                return TaskResult(payload=msgspec.msgpack.encode(_expressions(context.session, task)))
        assert_never(task)

    def _run(self, context: TaskContext, task: QueryTask) -> TaskResult:
        query = PreparedQuery(context.session, self._calls, task.query_id, task.text, task.spark)
        table = query.guarded(lambda: collected(query.frame(), task.result_bytes_max))
        payload = to_stream(table)
        return TaskResult(payload=payload, actual=Cost(input_bytes=query.input_bytes, output_bytes=len(payload)))


def _names(session: SparkSession, text: str) -> list[tuple[str, ...]]:
    try:
        return [relation.name for relation in _parsed(session, text).relations]
    except PySparkException as error:
        raise from_spark(error, text, lambda place: place, text) from error


def _expressions(session: SparkSession, task: ExpressionsTask) -> CheckedExpressions:
    checker = ExpressionChecker(session, task, model_type)
    try:
        return checker.check()
    except PySparkException as error:
        raise from_spark(error, checker.text, checker.original, checker.sent, is_whole=False) from error


def _parsed(session: SparkSession, text: str) -> Relations:
    # `${env:..}` would read the server's environment, and move the places of everything behind it.
    session.conf.set("spark.sql.variable.substitute", "false")
    make_active(session)
    return find_relations(session._jsparkSession.sessionState().sqlParser().parsePlan, text)


class InsertRunner:
    """The runner of INSERT tasks."""

    def __init__(self, calls: QueryCalls) -> None:
        self._calls = calls

    def __call__(self, context: TaskContext) -> TaskResult:
        task = msgspec.msgpack.decode(context.spec.payload, type=InsertTask)
        query = PreparedQuery(context.session, self._calls, task.query_id, task.text, task.spark)
        parts = query.guarded(lambda: inserted(query.frame(), task, context.raise_if_cancelled))
        cost = Cost(input_bytes=query.input_bytes, output_bytes=sum(part.file.size for part in parts))
        return TaskResult(payload=msgspec.msgpack.encode(InsertResult(parts=tuple(parts))), actual=cost)


class PreparedQuery:
    """A query's text with snapshots in the place of its relations."""

    def __init__(
        self, session: SparkSession, calls: QueryCalls, query_id: str, text: str, spark_settings: dict[str, str]
    ) -> None:
        self._session = session
        self._calls = calls
        self._query_id = query_id
        self._text = text
        self._spark_settings = spark_settings
        #: What Spark gets, for the places in its messages.
        self._sent = rewrite(text, [])
        self.input_bytes = 0

    def guarded(self, act: Callable[[], T]) -> T:
        """Runs it; raises Spark's errors as TilthErrors that point into the user's text."""
        try:
            return act()
        except (PySparkException, Py4JError) as error:
            damage = file_error(error)
            if damage is not None:
                raise damage from error
            raise from_spark(error, self._text, self._sent.original, self._sent.text) from error

    def frame(self) -> DataFrame:
        """The rows; nothing has run yet but analysis."""
        session = self._session
        for name, value in self._spark_settings.items():
            session.conf.set(name, value)
        found = _parsed(session, self._text)
        if not found.relations:
            return session.sql(self._text)
        resolved = self._calls.resolve(self._query_id, [relation.name for relation in found.relations])
        views = [f"{_VIEW_PREFIX}{index}" for index in range(len(resolved))]
        edits = _edits(found, resolved, views)
        predicates, times, names = self._predicates(found, resolved, views, edits)
        sources = self._calls.pin(self._query_id, predicates)
        for view, source, one in zip(views, sources, resolved, strict=True):
            self._rows_of(source, one).createOrReplaceTempView(view)
        self._sent = rewrite(self._text, edits + times)
        frame = session.sql(self._sent.text)
        return frame.toDF(*names) if names is not None else frame

    def _predicates(
        self, found: Relations, resolved: list[Resolved], views: list[str], edits: list[Edit]
    ) -> tuple[list[Predicate], list[Edit], list[str] | None]:
        """What each relation's rows must satisfy, with the edits that fix the time it holds for, and then the
        columns' names, which must not show those edits."""
        nothing_known: list[Predicate] = [Unknown()] * len(resolved)
        if not _PREDICATE_WORDS.search(self._text):
            return nothing_known, [], None
        times = self._frozen_times(found, resolved)
        try:
            create_views(self._session, views, [one.schema for one in resolved])
            names = None
            if times:
                self._sent = rewrite(self._text, edits)
                names = self._session.sql(self._sent.text).columns
            self._sent = rewrite(self._text, edits + (times or []))
            predicates = ask_predicates(self._session, self._sent.text, len(resolved))
        except PySparkException:
            raise
        except (Py4JError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            _log.warning("query_not_pruned", cause_id=self._query_id, reason=f"{type(error).__name__}: {error}")
            return nothing_known, [], None
        return (nothing_known, [], None) if times is None else (predicates, times, names)

    def _frozen_times(self, found: Relations, resolved: list[Resolved]) -> list[Edit] | None:
        """None: the query depends on the time in a way that cannot be fixed, so parts must not be chosen by it."""
        if not TIME_WORDS.search(self._text):
            return []
        if any(TIME_WORDS.fullmatch(column) for one in resolved for column in one.schema.names):
            return None
        jvm: Any = self._session._jvm
        now = jvm.java.time.Instant.now()
        return frozen_times(found, now.getEpochSecond() * 1_000_000 + now.getNano() // 1000)

    def _rows_of(self, source: Source, resolved: Resolved) -> DataFrame:
        if source.snapshot is not None:
            self.input_bytes += source.snapshot.bytes
            return read_snapshot(self._session, source.snapshot, source.root)
        assert source.rows is not None
        with pa.ipc.open_stream(source.rows) as reader:
            table = reader.read_all()
        self.input_bytes += table.nbytes
        return self._session.createDataFrame(table)


def collected(frame: DataFrame, bytes_max: int) -> pa.Table:
    """The rows as Arrow, the columns' Spark types in the schema's metadata. Raises ResultTooLargeError."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    port, secret, server = frame._jdf.collectAsArrowToPython()
    is_read = False
    try:
        with _load_from_socket((port, secret), _BoundedCollection(bytes_max)) as stream:
            batches = list(stream)
        is_read = True
    except ResultTooLargeError:
        is_read = True
        raise
    finally:
        if not is_read:
            # The reason why the stream broke off.
            server.getResult()
    server.getResult()
    columns = [ColumnInfo(f.name, f.dataType.simpleString()) for f in frame.schema.fields]
    table = pa.Table.from_batches(batches) if batches else schema.empty_table()
    return table.cast(schema).replace_schema_metadata({COLUMNS_KEY: msgspec.json.encode(columns)})


class _BoundedStream(ArrowStreamSerializer):
    """Stops to read when the batches together are too large."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self._bytes_max = bytes_max

    def load_stream(self, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
        size = 0
        for batch in super().load_stream(stream):
            size += batch.nbytes
            if size > self._bytes_max:
                raise ResultTooLargeError(
                    bytes_max=self._bytes_max,
                    hint="ask for fewer rows or columns, add a LIMIT, or raise the setting max_result_bytes",
                )
            yield batch


class _BoundedCollection(ArrowCollectSerializer, _BoundedStream):
    """Puts the batches in order like the first, reads them from the second."""


def to_stream(table: pa.Table) -> bytes:
    """The table as an Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def inserted(frame: DataFrame, task: InsertTask, check: Callable[[], None]) -> list[WrittenPart]:
    """Sorts and writes the rows in the tasks of one job; raises what the first failed task met."""
    rows = _conformed(frame, task)
    writer = _PartWriter(layout=layout_of(task.target, task.root), txn=task.txn)
    facts = rows.coalesce(task.tasks_max).mapInArrow(writer, _FACTS).collect()
    check()
    parts: list[WrittenPart] = []
    for (fact,) in facts:
        outcome = pickle.loads(fact)
        if isinstance(outcome, TilthError):
            raise outcome
        parts += outcome
    return parts


class _PartWriter:
    """Runs in Spark's tasks: rows in, facts of the parts written out."""

    def __init__(self, *, layout: TableLayout, txn: int) -> None:
        self._layout = layout
        self._txn = txn

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            outcome: object = self._write_all(batches)
        except TilthError as error:
            # As a row, it keeps its kind and its facts; Spark would make text of it.
            outcome = error
        yield pa.record_batch([pa.array([pickle.dumps(outcome)], pa.binary())], names=["facts"])

    def _write_all(self, batches: Iterator[pa.RecordBatch]) -> list[WrittenPart]:
        written: list[WrittenPart] = []
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size >= INSERT_BUFFER_BYTES:
                written += self._write(held, len(written))
                held, size = [], 0
        return written + (self._write(held, len(written)) if held else [])

    def _write(self, batches: list[pa.RecordBatch], first_n: int) -> list[WrittenPart]:
        spark_task = SparkTask.get()
        assert spark_task is not None
        table = conform(pa.Table.from_batches(batches), self._layout.schema)
        if not table.num_rows:
            return []
        return write_parts(
            self._layout,
            table,
            txn=self._txn,
            task=spark_task.partitionId(),
            attempt=spark_task.attemptNumber(),
            first_n=first_n,
        )


def _conformed(frame: DataFrame, task: InsertTask) -> DataFrame:
    """The rows in the target's columns, by position; raises BadValueError naming the column whose type does not fit."""
    fields = frame.schema.fields
    if len(fields) != len(task.columns):
        raise BadDefinitionError(
            "the SELECT gives another number of columns than the INSERT takes",
            given=len(fields),
            taken=len(task.columns),
            columns=", ".join(task.columns),
        )
    position = {name.lower(): index for index, name in enumerate(task.columns)}
    expressions = []
    for column in task.target.schema.columns:
        index = position.get(column.name.lower())
        wanted = spark_name(column.type)
        if index is None:
            value = column.default or "NULL"
        else:
            value = f"`{index}`"
            given = fields[index].dataType
            if not isinstance(given, spark_types.NullType) and not is_assignable(model_type(given), column.type):
                raise BadValueError(
                    "a value might be lost on the way into the column",
                    column=column.name,
                    type=wanted,
                    given=given.simpleString(),
                    hint="say with CAST what is wanted",
                )
        expressions.append(f"CAST({value} AS {wanted}) AS {quoted(column.name)}")
    # With ANSI casts a value that does not fit fails; without, it would change silently.
    frame.sparkSession.conf.set("spark.sql.ansi.enabled", "true")
    return frame.toDF(*(str(index) for index in range(len(fields)))).selectExpr(*expressions)


_KINDS: dict[str, Kind] = {kind.value: kind for kind in Kind}


def model_type(given: spark_types.DataType) -> DataType:
    """Spark's type as ours; raises BadValueError for a type that no table can store."""
    if isinstance(given, spark_types.DecimalType):
        return Decimal(given.precision, given.scale)
    if isinstance(given, spark_types.ArrayType):
        return Array(model_type(given.elementType))
    if isinstance(given, spark_types.MapType):
        return Map(model_type(given.keyType), model_type(given.valueType))
    if isinstance(given, spark_types.StructType):
        return Struct(tuple(Field(f.name, model_type(f.dataType)) for f in given.fields))
    kind = Kind.STRING if isinstance(given, spark_types.StringType) else _KINDS.get(given.simpleString())
    if kind is None:
        raise BadValueError("no table can store this type", type=given.simpleString(), hint="CAST it to another one")
    return Simple(kind)


def _edits(found: Relations, resolved: list[Resolved], views: list[str]) -> list[Edit]:
    """The views' names in the place of the tables', each with the alias by which the query knows it."""
    bare = {(one.database.lower(), one.table.lower()) for one in resolved}
    tables = [table for _, table in bare]
    edits: list[Edit] = []
    aliases: dict[tuple[str, str], str] = {}
    for relation, one, view in zip(found.relations, resolved, views, strict=True):
        edits.append(Edit(relation.start, relation.end, view))
        if relation.alias_at is None:
            continue
        key = (one.database.lower(), one.table.lower())
        alias = relation.name[-1]
        if tables.count(key[1]) > 1 and len(relation.name) > 1 and _names_its_database(found.text, relation.name):
            # Two tables of one name; only with their databases can the query tell them apart.
            alias = f"{relation.name[-2]}_{alias}"
        if len(relation.name) > 1:
            key = (relation.name[-2].lower(), relation.name[-1].lower())
        aliases[key] = alias
        edits.append(Edit(relation.alias_at, relation.alias_at, f" AS {quoted(alias)}"))
    return _joined(edits) + long_references(found, aliases)


def _names_its_database(text: str, name: tuple[str, ...]) -> bool:
    parts = (rf"(?:`{re.escape(part)}`|{re.escape(part)})" for part in name[-2:])
    return re.search(r"\s*\.\s*".join(parts) + r"\s*\.", text, re.IGNORECASE) is not None


def _joined(edits: list[Edit]) -> list[Edit]:
    """An alias right behind its view becomes part of the same edit."""
    joined: list[Edit] = []
    for edit in sorted(edits):
        last = joined[-1] if joined else None
        if last is not None and last.end == edit.start == edit.end:
            joined[-1] = Edit(last.start, last.end, last.text + edit.text)
        else:
            joined.append(edit)
    return joined
