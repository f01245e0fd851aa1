"""Reads a large body of an INSERT in Spark's tasks and writes its rows; nothing of it reaches the server.

Covers: ranges to tasks, rows of a range, defaults that Spark computes, files, the number of a row in an error. Does not
cover: storing the body and its ranges (streamed.py), what a value is (tilth.formats, inserts/rows.py), the commit
(inserts/commit.py).
Always holds: rows are judged by the same functions as those of a small INSERT; a task reads its ranges in their order
and tasks follow each other as their ranges do, so that a later row is later in the files, too; a task holds one range
and a bounded number of rows.

Tests: tests/integration/sql/test_large_bodies.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from functools import partial
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, BooleanType, ByteType, StructField, StructType

from tilth.base.errors import InvalidInputError, TilthError
from tilth.base.units import GIB, MIB
from tilth.formats import BadValueError, Reading, RowOptions, find_format
from tilth.model.answer import pack, unpack
from tilth.model.computed import in_dependency_order, shown_expression, value_text
from tilth.model.part import WrittenPart
from tilth.model.table import OP_COLUMN, OP_UPSERT, Column, Schema
from tilth.model.task import Cost
from tilth.model.text.zones import UTC_NAMES, ZONE
from tilth.model.types import quoted, spark_name
from tilth.query.language.spark_errors import from_spark
from tilth.query.language.unpacked import read_stream
from tilth.query.snapshots.protocol import BodyRange, BodyTask, InsertResult
from tilth.query.worker.target_spark import at_instant
from tilth.statements.inserts.arrow_streams import too_large
from tilth.statements.inserts.named_rows import completed
from tilth.statements.inserts.rows import Postponed, read_rows, target_of
from tilth.storage import (
    BUFFER_BYTES,
    TableLayout,
    arrow_schema,
    layout_of,
    nullable,
    open_sized,
    shape_rows,
    stretches,
    write_many,
)
from tilth.storage.read.overlay_spark import spark_schema
from tilth.storage.read.spark import in_utc
from tilth.warehouse import TaskContext, TaskResult, check_plan, parse_expression, run_tasks
from tilth.warehouse.remote.errors import BadBodyError

#: Bytes of a body for one task, where Spark runs fewer tasks than there are ranges.
_TASK_BYTES = 64 * MIB
#: Largest batches of a range, unpacked.
_UNPACKED_BYTES_MAX = 1 * GIB
#: Columns of rows that Spark completes: their numbers, the row's operation, an error, which columns they lack.
_OP, _ERROR = "op", "error"


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of a task."""

    parts: list[WrittenPart] = []
    rows: int = 0
    #: Size of its rows in memory.
    size: int = 0
    #: Error with which it ended early, packed, with the number of the row among those of this task; empty: none.
    error: bytes = b""


def write_body(context: TaskContext, task: BodyTask) -> TaskResult:
    """Run a BodyTask. Raises the error of the first row that cannot be stored, with its number in the body."""
    session = context.session
    shares = _shares(task, tasks_min=context.fit().tasks)
    reader = _Reader(task, shares)
    writer = _Writer(layout_of(task.target, task.root, quorum=task.quorum), task.txn)
    frame = session.range(0, len(shares), 1, len(shares))
    try:
        if reader.lacking:
            rows = _completed(frame.mapInArrow(reader, reader.spark_schema()), reader)
            answers = run_tasks(rows, partial(_write_completed, writer, reader.schema), _Facts)
        else:
            answers = run_tasks(frame, partial(_write_read, writer, reader), _Facts)
    except (PySparkException, Py4JError) as error:
        shown = ", ".join(column.written_default or column.name for column in reader.lacking)
        raise from_spark(error, shown, lambda position: position, shown, is_whole=False) from error
    finally:
        context.raise_if_cancelled()
    parts = _checked(answers, task)
    cost = Cost(input_bytes=task.file.size, output_bytes=sum(part.file.size for part in parts))
    return TaskResult(payload=msgspec.msgpack.encode(InsertResult(parts=tuple(parts))), actual=cost)


def _shares(task: BodyTask, *, tasks_min: int) -> list[list[BodyRange]]:
    """Share the ranges out to tasks, in their order and by size. `tasks_min`: how many of them Spark runs now."""
    total = sum(each.size for each in task.ranges)
    count = min(task.tasks_max, len(task.ranges), max(tasks_min, -(-total // _TASK_BYTES)))
    shares: list[list[BodyRange]] = [[] for _ in range(count)]
    passed = 0
    for each in task.ranges:
        shares[min(count - 1, passed * count // max(1, total))].append(each)
        passed += each.size
    return [share for share in shares if share]


def _checked(answers: Sequence[_Facts], task: BodyTask) -> list[WrittenPart]:
    """Return the files of all tasks. Raises the error of the first task that has one: those before it read all of
    their rows.
    """
    rows = 0
    for number, facts in enumerate(answers):
        if facts.error:
            try:
                unpack(facts.error, type(None), task=number)
            except TilthError as error:
                raise _moved(error, rows) from error
        rows += facts.rows
    size = sum(facts.size for facts in answers)
    if task.rows_bytes_max and size > task.rows_bytes_max:
        raise too_large(size, task.rows_bytes_max)
    return [part for facts in answers for part in facts.parts]


def _moved(error: TilthError, rows: int) -> TilthError:
    """Return the error with the number of its row counted from so many rows earlier."""
    row = error.facts.get("row", "")
    if not rows or not row.isdecimal():
        return error
    return error.with_facts(row=int(row) + rows)


class _Reader:
    """Runs in Spark's tasks: the ranges of a task in, its rows out."""

    def __init__(self, task: BodyTask, shares: Sequence[Sequence[BodyRange]]) -> None:
        self._task = task
        self._shares = shares
        self.schema = task.target.schema
        #: Columns that a row may lack and that Spark computes then.
        self.lacking = [each for each in self.schema.columns if each.expression or each.is_default_computed]

    @property
    def task(self) -> BodyTask:
        return self._task

    @property
    def lack_names(self) -> dict[str, str]:
        """Return the name of the column that says which rows lack a column, by that one's name."""
        return {column.name: f"lack{number}" for number, column in enumerate(self.lacking)}

    @property
    def names(self) -> list[str]:
        """Return the names of the columns of rows that Spark completes; no name of a user's is among them."""
        return [*map(str, range(len(self.schema.columns))), *self.lack_names.values(), _OP, _ERROR]

    def spark_schema(self) -> StructType:
        """Return these columns with their types; for the driver."""
        stored = [field.dataType for field in spark_schema(nullable(self.schema)).fields]
        types = [*stored, *(BooleanType() for _ in self.lacking), ByteType(), BinaryType()]
        return StructType([StructField(name, kind) for name, kind in zip(self.names, types, strict=True)])

    def tables(self, number: int) -> Iterator[tuple[pa.Table, Postponed]]:
        """Yield the rows of each range of a task, shaped but for what is still to be computed. Raises the error of a
        row with its number among the task's.
        """
        rows = 0
        layout = self._loose_layout()
        for each in self._shares[number]:
            postponed = Postponed()
            try:
                table = shape_rows(layout, self._read(each, postponed), is_numbered=True)
            except TilthError as error:
                raise _moved(error, rows) from error
            rows += table.num_rows
            yield table, postponed

    def _loose_layout(self) -> TableLayout:
        """Return a layout for rows that may lack what is still to be computed."""
        layout = layout_of(self.task.target, self.task.root)
        if not self.lacking:
            return layout
        loose = tuple(
            msgspec.structs.replace(each, nullable=True) if each in self.lacking else each
            for each in self.schema.columns
        )
        return replace(layout, schema=Schema(columns=loose), unique_key=())

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task in the columns of `names`; an error as a row of its own."""
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        for number in numbers:
            try:
                for table, postponed in self.tables(number):
                    yield from self._numbered(table, postponed.lacks).to_batches()
            except TilthError as error:
                yield self._of_error(error)

    def _numbered(self, rows: pa.Table, lacks: Mapping[str, Sequence[bool]]) -> pa.Table:
        wanted = arrow_schema(nullable(self.schema), field_ids=False)
        arrays = [rows.column(field.name).cast(field.type) for field in wanted]
        for name in self.lack_names:
            flags = lacks.get(name)
            arrays.append(pa.repeat(False, rows.num_rows) if flags is None else pa.array(flags, pa.bool_()))
        has_op = rows.num_columns > len(wanted)
        arrays.append(rows.column(rows.num_columns - 1) if has_op else pa.nulls(rows.num_rows, pa.int8()))
        arrays.append(pa.nulls(rows.num_rows, pa.binary()))
        return pa.table(arrays, names=self.names).combine_chunks()

    def _of_error(self, error: TilthError) -> pa.RecordBatch:
        wanted = arrow_schema(nullable(self.schema), field_ids=False)
        arrays = [pa.nulls(1, field.type) for field in wanted]
        arrays += [pa.nulls(1, pa.bool_()) for _ in self.lacking]
        arrays += [pa.nulls(1, pa.int8()), pa.array([pack(error)], pa.binary())]
        return pa.RecordBatch.from_arrays(arrays, names=self.names)

    def _read(self, piece: BodyRange, postponed: Postponed) -> pa.Table:
        task, target = self.task, target_of(self.task.target)
        form = find_format(task.format)
        assert form is not None
        heads, data = self._bytes(piece)
        if form.is_arrow:
            try:
                rows = read_stream(heads + data, _UNPACKED_BYTES_MAX, _too_large)
            except (pa.ArrowException, OSError) as error:
                raise BadBodyError("the body is not an Arrow stream", reason=error) from error
            return completed(target, rows.rename_columns(list(task.columns)), postponed)
        options = RowOptions(csv_delimiter=task.csv_delimiter, skip_unknown=task.skip_unknown)
        reading = Reading(zone=_zone(task.zone))
        text = _decoded(heads, piece.start) + _decoded(data, piece.start)
        try:
            return read_rows(
                target, task.columns, task.format, text, reading=reading, compute=postponed, options=options
            )
        except BadValueError as error:
            raise _by_the_first_row(error, piece, len(task.columns or self.schema.inserted)) from error

    def _bytes(self, piece: BodyRange) -> tuple[bytes, bytes]:
        """Return the heads of a range and the range itself."""
        with open_sized(self.task.folder, self.task.file) as file:

            def read(start: int, size: int) -> bytes:
                file.seek(start)
                return bytes(file.read(size))

            return b"".join(read(*head) for head in piece.heads), read(piece.start, piece.size)


def _zone(name: str) -> tzinfo:
    return UTC if name in UTC_NAMES else ZoneInfo(name)


def _decoded(data: bytes, start: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadValueError("the rows are not UTF-8 text", position=start + error.start) from error


def _too_large(size: int) -> InvalidInputError:
    return too_large(size, _UNPACKED_BYTES_MAX, hint="a task reads whole batches: send smaller ones")


def _by_the_first_row(error: BadValueError, piece: BodyRange, columns: int) -> TilthError:
    """Return the error of rows of different widths as of the whole body, whose first row is not this range's."""
    first = error.facts.get("first", "")
    if not piece.start or piece.heads or not first or int(first) == columns:
        return error
    return BadValueError("a row has another number of values than the first one", row=1, values=first, first=columns)


class _Writer:
    """Runs in Spark's tasks: writes rows to files."""

    def __init__(self, layout: TableLayout, txn: int) -> None:
        self.layout = layout
        self._txn = txn

    def write_all(self, tables: Iterator[pa.Table], *, task: int, attempt: int) -> _Facts:
        """Write rows that fit the table; raises what their reading raises."""
        parts: list[WrittenPart] = []
        rows = size = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows, size
            for table in filter(len, tables):
                rows += table.num_rows
                size += table.nbytes
                yield from self._alike(table).to_batches()

        for held in stretches(counted(), bytes_max=BUFFER_BYTES):
            parts += write_many(self.layout, held, txn=self._txn, task=task, attempt=attempt, first_n=len(parts))
        return _Facts(parts=parts, rows=rows, size=size)

    def _alike(self, rows: pa.Table) -> pa.Table:
        """Return rows of a table with a key so that those of all ranges can be held together: some bring operations,
        and then NULL may stand in any column.
        """
        if not self.layout.unique_key:
            return rows
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        if rows.num_columns == len(self.layout.schema.columns):
            columns[OP_COLUMN] = pa.chunked_array([pa.repeat(pa.scalar(OP_UPSERT, pa.int8()), rows.num_rows)])
        return pa.table(columns)


def _write_read(
    writer: _Writer, reader: _Reader, rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int
) -> _Facts:
    """Read and write in one task, where nothing is computed."""
    for _ in rows:
        pass
    try:
        return writer.write_all((table for table, _ in reader.tables(task)), task=task, attempt=attempt)
    except TilthError as error:
        return _Facts(error=pack(error))


def _write_completed(
    writer: _Writer, schema: Schema, rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int
) -> _Facts:
    """Write rows that Spark has completed."""
    names = list(schema.names)
    before = 0

    def shaped() -> Iterator[pa.Table]:
        nonlocal before
        for batch in rows:
            errors = batch.column(batch.num_columns - 1).drop_null()
            if len(errors):
                unpack(errors[0].as_py(), type(None), task=task)
            table = pa.table(batch.columns[: len(names)], names=names)
            ops = batch.column(batch.num_columns - 2)
            if ops.null_count < len(ops):
                table = table.append_column(pa.field(OP_COLUMN, pa.int8()), ops.fill_null(OP_UPSERT))
            try:
                yield shape_rows(writer.layout, table, is_numbered=True)
            except TilthError as error:
                raise _moved(error, before) from error
            before += batch.num_rows

    try:
        return writer.write_all(shaped(), task=task, attempt=attempt)
    except TilthError as error:
        return _Facts(error=pack(error))


def _completed(frame: DataFrame, reader: _Reader) -> DataFrame:
    """Return the rows in the table's columns with what they lack computed, and behind them operation and error."""
    session, schema, task = frame.sparkSession, reader.schema, reader.task
    # With ANSI casts a value that does not fit fails; without, it would change silently.
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.conf.set(ZONE, task.zone)
    lack_names = reader.lack_names
    taken = {name.lower() for name in schema.names}
    own = {name: _free(name, taken) for name in (*lack_names.values(), _OP, _ERROR)}

    def value(column: Column, given: str, computed: str) -> str:
        lack = quoted(own[lack_names[column.name]])
        return f"CASE WHEN {lack} THEN {computed} ELSE {given} END AS {quoted(column.name)}"

    named = [quoted(name) for name in own.values()]
    frame = frame.toDF(*(str(number) for number in range(len(schema.columns))), *own.values())
    columns = []
    for number, column in enumerate(schema.columns):
        if column.is_default_computed and not column.expression:
            check_plan(parse_expression(session, column.default or ""))
            text = at_instant(session, column.default or "", task.now_us)
            columns.append(value(column, f"`{number}`", f"CAST({text}\n AS {spark_name(column.type)})"))
        else:
            columns.append(f"`{number}` AS {quoted(column.name)}")
    frame = frame.selectExpr(*columns, *named)
    for ready in in_dependency_order([each for each in reader.lacking if each.expression], schema):
        ids = {each.id for each in ready}
        for column in ready:
            check_plan(parse_expression(session, shown_expression(column, schema)))
        with in_utc(session):
            frame = frame.selectExpr(
                *(
                    value(each, quoted(each.name), value_text(each, schema)) if each.id in ids else quoted(each.name)
                    for each in schema.columns
                ),
                *named,
            )
    return frame.select(*(quoted(name) for name in (*schema.names, own[_OP], own[_ERROR])))


def _free(name: str, taken: set[str]) -> str:
    """Return a name that no column has."""
    while name in taken:
        name = f"_{name}"
    return name
