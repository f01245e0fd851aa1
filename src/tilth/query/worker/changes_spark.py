"""Finds the rows that a DELETE or UPDATE is about, and writes change segments of them in Spark's tasks.

Covers: one job over a snapshot. Does not cover: checking the expressions (expressions.py), the commit
(statements/rows/delete_update.py).
Always holds: the changes of one part are in one segment of a job; a segment is of one partition.

Tests: tests/integration/sql/test_changes_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tilth.base.mailbox import Mailbox
from tilth.model.delta import WrittenDelta
from tilth.model.table import Column
from tilth.model.types import spark_name
from tilth.query.snapshots.protocol import ChangeTask
from tilth.query.worker.writing_spark import written_in_tasks
from tilth.storage import (
    CHANGE_DELETE,
    CHANGE_UPDATE,
    DeltaWriter,
    TableLayout,
    conform_column,
    layout_of,
    presence_name,
    value_name,
)
from tilth.storage.read.spark import FILE_COLUMN, ROW_COLUMN, located_snapshot


def changed_rows(
    session: SparkSession, task: ChangeTask, mailbox: Mailbox, check: Callable[[], None]
) -> list[WrittenDelta]:
    """The segments of the rows for which the predicate is true; none where it is true for none.

    `mailbox`: for errors of reading; `check` raises when the task was cancelled. Raises what the first failed Spark
    task met, and Spark's own errors.
    """
    for name, value in _conf(task).items():
        session.conf.set(name, value)
    table = task.snapshot.table
    columns = tuple(column for name, _ in task.assignments if (column := table.schema.find(name)) is not None)
    writer = _ChangeWriter(
        layout=layout_of(table, task.root),
        partitions={part.file.name: part.name.partition for part in task.snapshot.parts},
        columns=columns,
        txn=task.txn,
        first_task=task.first_task,
    )
    found = _matching(session, task, columns, mailbox)
    # Files are the partitions, so that two segments of this job never change one part. Few rows have few tasks.
    return written_in_tasks(found.repartition(FILE_COLUMN), writer, check, list[WrittenDelta])


def _conf(task: ChangeTask) -> dict[str, str]:
    return {
        # With ANSI casts a value that does not fit fails; without, it would change silently.
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.variable.substitute": "false",
        "spark.sql.shuffle.partitions": str(task.tasks_max),
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    }


def _matching(session: SparkSession, task: ChangeTask, columns: Sequence[Column], mailbox: Mailbox) -> DataFrame:
    """File and row of each change, then the new values; all expressions see the old ones."""
    rows = located_snapshot(session, task.snapshot, task.root, task.columns, mailbox=mailbox)
    values = [
        f.expr(f"CAST(({text}) AS {spark_name(column.type)})").alias(value_name(column.id))
        for column, (_, text) in zip(columns, task.assignments, strict=True)
    ]
    return rows.where(f.expr(task.predicate)).select(f.col(FILE_COLUMN), f.col(ROW_COLUMN), *values)


class _ChangeWriter:
    """Runs in Spark's tasks: row positions and values in, change segments out."""

    def __init__(
        self,
        *,
        layout: TableLayout,
        partitions: Mapping[str, str],
        columns: Sequence[Column],
        txn: int,
        first_task: int,
    ) -> None:
        """`partitions`: by data file its partition; `columns`: those that get new values, none for a DELETE."""
        self._layout = layout
        self._partitions = dict(partitions)
        self._columns = tuple(columns)
        self._txn = txn
        self._first_task = first_task

    def __call__(self, rows: pa.Table, *, task: int, attempt: int, first_n: int) -> list[WrittenDelta]:
        if not rows.num_rows:
            return []
        found = rows.combine_chunks()
        files = found.column(FILE_COLUMN).combine_chunks()
        files = files if pa.types.is_dictionary(files.type) else files.dictionary_encode()
        if isinstance(files, pa.ChunkedArray):
            files = files.chunk(0)
        partitions = pa.array([self._partitions[name] for name in files.dictionary.to_pylist()], pa.string())
        of_row = partitions.take(files.indices)
        changes = self._changes(found, files)
        with DeltaWriter(
            self._layout, txn=self._txn, task=self._first_task + task, attempt=attempt, first_n=first_n
        ) as out:
            return [
                out.changes(partition, changes.filter(pc.equal(of_row, partition)))
                for partition in sorted(of_row.unique().to_pylist())
            ]

    def _changes(self, found: pa.Table, files: pa.DictionaryArray) -> pa.Table:
        """Return the rows with the columns of a change segment."""
        op = CHANGE_UPDATE if self._columns else CHANGE_DELETE
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            "file": files,
            "row": found.column(ROW_COLUMN).cast(pa.int64()),
            "op": pa.repeat(pa.scalar(op, pa.int8()), found.num_rows),
        }
        for column in self._columns:
            columns[value_name(column.id)] = conform_column(found.column(value_name(column.id)), column)
            columns[presence_name(column.id)] = pa.repeat(pa.scalar(True), found.num_rows)
        return pa.table(columns)
