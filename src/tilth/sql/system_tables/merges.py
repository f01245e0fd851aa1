"""`system.merges`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.model.task import TaskKind, TaskState
from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import FLAG, INTEGER, NUMBER, TEXT, TIME, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    now_ms = services.clock.now_ms()
    for task in services.dispatcher.tasks():
        if task.kind not in (TaskKind.MERGE, TaskKind.MUTATE) or task.state not in (
            TaskState.PENDING,
            TaskState.RUNNING,
        ):
            continue
        database, _, table = task.table.partition(".")
        elapsed = (now_ms - task.started_ms) / 1000 if task.started_ms else 0.0
        expected = task.estimate.seconds
        yield Row(
            task,
            database=database,
            table=table,
            task=task.id,
            elapsed=elapsed,
            progress=min(1.0, elapsed / expected) if expected else 0.0,
            is_mutation=task.kind is TaskKind.MUTATE,
            input_bytes=task.estimate.input_bytes,
        )


TABLE = SystemTable(
    name="merges",
    doc="One row for each merge and each rewriting of a mutation that runs or waits for a worker, as ClickHouse "
    "has it. All tasks are in `system.tasks`, merges that ended in `system.part_log`.",
    columns=(
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("task", TEXT, "The task's id, as in `system.tasks`."),
        ColumnDoc("state", TEXT, "`pending` or `running`."),
        ColumnDoc("elapsed", NUMBER, "Seconds since a worker took it; 0: none has."),
        ColumnDoc("progress", NUMBER, "The elapsed part of its estimated time, 1 at most; 0: there is no estimate."),
        ColumnDoc("is_mutation", FLAG, "Whether it rewrites parts for a mutation."),
        ColumnDoc("input_bytes", INTEGER, "Bytes that it is expected to read."),
        ColumnDoc("started", TIME, "When a worker took it; NULL: none has."),
        ColumnDoc("reason", TEXT, "Why it runs where it does, or why it waits."),
    ),
    rows=_rows,
)
