"""Mutations as tasks: what goes to the worker, what runs there, what comes back. Knows no catalog.

Covers: the messages, the runner, the rewrite of parts by Spark SQL. Does not cover: choice and commit (op.py), the
bytes (tilth.storage).
Always holds: a file is on the disk before its name is reported, its row map beside it; what was deleted or changed
in a part before is so in what becomes of it; no order of rows changes, but that of a segment, which is sorted.

A mutation's job has one Spark partition for each file, so that rows keep their order and each file becomes one file.
Parts without changes are Spark's own scan; of others storage's kernel reads the rows, in Python.

Tests: tests/integration/storage/test_mutate_runner.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec

from tilth.base.errors import InvalidInputError, TilthError
from tilth.base.mailbox import Mailbox, new_mailbox
from tilth.model.delta import PartSource, deleted_rows
from tilth.model.mutation import MutationKind
from tilth.model.part import Bound, DataFile, WrittenPart
from tilth.model.table import Schema
from tilth.model.task import Cost
from tilth.model.types import quoted, spark_name
from tilth.storage import (
    Folder,
    PartFileCorruptError,
    TableLayout,
    can_filter,
    expressions,
    footer_rows,
    rewrite_part,
    rewrite_target,
)
from tilth.warehouse import Runner, TaskContext, TaskResult, run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

#: Large enough that no two files share a Spark partition and none is split.
_PARTITION_BYTES = 1 << 40
_SESSION_CONF = {
    "spark.sql.files.maxPartitionBytes": str(_PARTITION_BYTES),
    "spark.sql.files.openCostInBytes": str(_PARTITION_BYTES),
    # A value that does not fit fails; without, it would change silently.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    # Else Spark would lay two files, read by one partition each, together.
    "spark.sql.unionOutputPartitioning": "false",
    # Copied pages must be those that were written.
    "parquet.page.verify-checksum.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
}
#: Spark's words for what is wrong with a statement or a value; 22 and 42 are the SQL standard's classes for both.
_CONDITION = re.compile(r"\[([A-Z_0-9.]+)\]\s(.*?)\s*SQLSTATE: (?:22|42)\w{3}", re.DOTALL)
_SHOWN_CHARACTERS_MAX = 500


class MutationExpressionError(InvalidInputError):
    """the expression of a mutation fails"""

    code = "MUTATION_EXPRESSION"


class MutateSource(msgspec.Struct, frozen=True, kw_only=True):
    """One part that a mutation rewrites."""

    source: PartSource
    values: tuple[Bound, ...]

    @property
    def name(self) -> str:
        return str(self.source.name)

    @property
    def file(self) -> DataFile:
        return self.source.file

    @property
    def is_plain(self) -> bool:
        return not (self.source.is_segment or self.source.deltas)

    @property
    def is_filterable(self) -> bool:
        return can_filter(self.source.schema, self.file)


class MutateTask(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a worker needs to rewrite parts.

    The file of source `i` is named as that of task `i`, so the transaction's TxnOutput has as many tasks
    as there are sources.
    """

    #: Layout with the columns of the new files.
    layout: TableLayout
    sources: tuple[MutateSource, ...]
    txn: int
    kind: MutationKind
    #: Column and Spark SQL expression of an UPDATE; all see the old values.
    assignments: tuple[tuple[str, str], ...] = ()
    #: Spark SQL over the new files' columns, of an UPDATE or DELETE.
    predicate: str = ""


class MutateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one source."""

    #: Name of the source.
    name: str
    #: None: no row was left, or it was not touched.
    written: WrittenPart | None
    #: True: no row matched, so nothing was written.
    is_untouched: bool
    #: Rows without those deleted before.
    rows_in: int
    rows_out: int


class MutateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's report of a mutation's task."""

    #: Results in the order of the sources.
    results: tuple[MutateResult, ...]


def mutate_runner() -> Runner:
    """The runner of TaskKind.MUTATE: one Spark job counts what matches, a second one rewrites the files that have it.

    Fails with PartFileCorruptError or PartFileNotFoundError naming the file, with MutationExpressionError where the
    expression is wrong or fails for a row, with BadColumnError where a NOT NULL column would get a null.
    """
    return _mutate


def _mutate(context: TaskContext) -> TaskResult:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    task = msgspec.msgpack.decode(context.spec.payload, type=MutateTask)
    for name, value in _SESSION_CONF.items():
        context.session.conf.set(name, value)
    rows = {each.name: _present_rows(task.layout.folder, each.source) for each in task.sources}
    letters = new_mailbox()
    try:
        matched = None if task.kind is MutationKind.COLUMNS else _matched(context.session, task, letters)
        context.raise_if_cancelled()
        indexes = [index for index, source in enumerate(task.sources) if _is_written(task, source, rows, matched)]
        written = _written(context.session, task, indexes, letters) if indexes else {}
    except (PySparkException, Py4JError) as error:
        raise _meaning(error, task, letters) or error from error
    results = []
    for source in task.sources:
        part = written.get(source.file.name)
        is_untouched = matched is not None and not matched.get(source.file.name, 0)
        rows_out = rows[source.name] if is_untouched else 0 if part is None else part.rows
        if task.kind is not MutationKind.DELETE and rows_out != rows[source.name]:
            path = f"{task.layout.folder}/{source.file.name}"
            raise PartFileCorruptError(file=path, rows=rows_out, expected_rows=rows[source.name])
        results.append(
            MutateResult(
                name=source.name,
                written=part,
                is_untouched=is_untouched,
                rows_in=rows[source.name],
                rows_out=rows_out,
            )
        )
    cost = Cost(
        input_bytes=sum(task.sources[index].source.bytes for index in indexes),
        output_bytes=sum(part.file.size for part in written.values()),
    )
    return TaskResult(payload=msgspec.msgpack.encode(MutateFacts(results=tuple(results))), actual=cost)


def _present_rows(folder: Folder, source: PartSource) -> int:
    """Count the rows that no delta deletes, by the file itself."""
    rows = source.rows if source.is_segment else footer_rows(folder, source.file)
    return rows - deleted_rows(source.file.name, source.deltas)


def _is_written(task: MutateTask, source: MutateSource, rows: dict[str, int], matched: dict[str, int] | None) -> bool:
    """True if rows of the source change and some are left."""
    if matched is None:
        return True
    found = matched.get(source.file.name, 0)
    return found > 0 and not (task.kind is MutationKind.DELETE and found == rows[source.name])


def _matched(session: SparkSession, task: MutateTask, letters: Mailbox) -> dict[str, int]:
    """Return by file how many rows the predicate is true for; files without are left out."""
    from pyspark.sql import functions as f

    names = _Names.of(task)
    frame = _rows_of(session, task, task.sources, names, letters).where(f.expr(task.predicate))
    return {row[0]: row[1] for row in frame.groupBy(quoted(names.file)).count().collect()}


def _written(
    session: SparkSession, task: MutateTask, indexes: Sequence[int], letters: Mailbox
) -> dict[str, WrittenPart]:
    """Rewrite the sources of these indexes; return by file what was written for it, nothing where no row was left."""
    by_file = {
        task.sources[index].file.name: rewrite_target(
            task.layout, task.sources[index].source, task.sources[index].values, task=index
        )
        for index in indexes
    }
    layout, txn = task.layout, task.txn

    def write(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> dict[str, WrittenPart]:
        written = rewrite_part(layout, by_file, rows, txn=txn, attempt=attempt)
        return {} if written is None else {written[0]: written[1]}

    names = _Names.of(task)
    sources = [task.sources[index] for index in indexes]
    frame = _changed(task, _rows_of(session, task, sources, names, letters), names)
    return {file: part for written in run_tasks(frame, write, dict[str, WrittenPart]) for file, part in written.items()}


def _rows_of(
    session: SparkSession, task: MutateTask, sources: Sequence[MutateSource], names: _Names, letters: Mailbox
) -> DataFrame:
    """The sources' present rows in the new files' columns, then the name of the file that each is from and its index
    there."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f

    from tilth.storage.read.spark import files_frame, ordered_rows

    by_scan: dict[tuple[Schema, bool, bool], list[PartSource]] = {}
    for each in sources:
        scan = (each.source.schema, each.is_plain, each.is_plain and each.is_filterable)
        by_scan.setdefault(scan, []).append(each.source)
    frames = []
    for (schema, is_plain, is_filterable), scanned in by_scan.items():
        columns = [f.expr(text) for text in expressions(schema, task.layout.schema)]
        if is_plain:
            frame = files_frame(
                session,
                folder=task.layout.folder,
                files=[source.file for source in scanned],
                schema=schema,
                is_filterable=is_filterable,
            )
            found = frame.metadataColumn("_metadata")
            file, row = found["file_name"].alias(names.file), found["row_index"].alias(names.row)
        else:
            frame = ordered_rows(
                session,
                layout=task.layout,
                sources=scanned,
                stored=schema,
                file_column=names.file,
                row_column=names.row,
                mailbox=letters,
            )
            file, row = f.col(quoted(names.file)), f.col(quoted(names.row))
        frames.append(frame.select(*columns, file, row))
    return reduce(DataFrame.union, frames)


def _changed(task: MutateTask, frame: DataFrame, names: _Names) -> DataFrame:
    """Apply the mutation to the rows, their order unchanged."""
    from pyspark.sql import functions as f

    if task.kind is MutationKind.COLUMNS:
        return frame
    # A predicate that is null does not match.
    matches = f.coalesce(f.expr(task.predicate), f.lit(False))
    if task.kind is MutationKind.DELETE:
        return frame.where(~matches)
    assigned = {column.lower(): text for column, text in task.assignments}
    columns: list[Column] = []
    for column in task.layout.schema.columns:
        old = f.col(quoted(column.name))
        text = assigned.pop(column.name.lower(), None)
        if text is not None:
            new = f.expr(f"CAST(({text}) AS {spark_name(column.type)})")
            old = f.when(f.col(quoted(names.matches)), new).otherwise(old).alias(column.name)
        columns.append(old)
    if assigned:
        raise MutationExpressionError("the table has no such column", column=next(iter(assigned)))
    kept = (f.col(quoted(names.file)), f.col(quoted(names.row)))
    return frame.withColumn(names.matches, matches).select(*columns, *kept)


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of columns beside the table's own; no column of the table has one of them, now or in its files."""

    file: str
    row: str
    matches: str

    @staticmethod
    def of(task: MutateTask) -> _Names:
        schemas = (task.layout.schema, *(each.source.schema for each in task.sources))

        def free(name: str) -> str:
            while any(schema.find(name) is not None for schema in schemas):
                name = f"_{name}"
            return name

        return _Names(free("_file"), free("_row"), free("_matches"))


# Any: what py4j and Spark raise has many shapes.
def _meaning(error: Any, task: MutateTask, letters: Mailbox) -> TilthError | None:
    """Return the error of a file or of the expression, if that is why a job failed."""
    from tilth.storage.read.spark import file_error

    of_file = file_error(error, letters)
    if of_file is not None:
        return of_file
    found = _CONDITION.search(str(error))
    if found is None:
        return None
    because = " ".join(found[2].split())[:_SHOWN_CHARACTERS_MAX]
    return MutationExpressionError(
        condition=found[1],
        because=because,
        assignments=", ".join(f"{column} = {text}" for column, text in task.assignments),
        predicate=task.predicate,
        hint="kill the mutation, and run it again with an expression that holds for every row, for instance try_cast",
    )
