"""`system.tasks`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, NUMBER, TEXT, TIME, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    for task in services.dispatcher.tasks():
        yield Row(
            task,
            txn=task.txn or None,
            placement_reason=task.placement_reason or None,
            estimated_seconds=task.estimate.seconds,
            seconds=task.actual.seconds,
            estimated_input_bytes=task.estimate.input_bytes,
            input_bytes=task.actual.input_bytes,
            estimated_output_bytes=task.estimate.output_bytes,
            output_bytes=task.actual.output_bytes,
            estimated_memory_bytes=task.estimate.memory_bytes,
            memory_bytes=task.actual.memory_bytes,
        )


TABLE = SystemTable(
    name="tasks",
    doc="One row for each task that runs or waits, and for the last ones that ended; estimates beside measures.",
    columns=(
        ColumnDoc("id", TEXT, "The task's id."),
        ColumnDoc("kind", TEXT, "`consume`, `consume_round`, `insert`, `merge`, `mutate` or `query`."),
        ColumnDoc("state", TEXT, "`pending`, `running`, `done`, `failed`, `cancelled` or `lost`."),
        ColumnDoc("warehouse", TEXT, "The warehouse that it was sent to."),
        ColumnDoc("worker", TEXT, "The worker that has it."),
        ColumnDoc("table", TEXT, "`database.table`."),
        ColumnDoc("txn", INTEGER, "The transaction that it works for."),
        ColumnDoc("reason", TEXT, "Why this worker, why it waits, or why it failed."),
        ColumnDoc("placement_reason", TEXT, "Why this worker; it stays when the task has ended."),
        ColumnDoc("created", TIME, "When it was submitted."),
        ColumnDoc("started", TIME, "When a worker took it."),
        ColumnDoc("ended", TIME, "When it ended."),
        ColumnDoc("estimated_seconds", NUMBER, "How long it was thought to take."),
        ColumnDoc("seconds", NUMBER, "How long it took."),
        ColumnDoc(
            "estimate_error", NUMBER, "By how much it took longer than estimated: 1 is twice as long, -0.5 is half."
        ),
        ColumnDoc("estimated_input_bytes", INTEGER, "What it was thought to read."),
        ColumnDoc("input_bytes", INTEGER, "What it read."),
        ColumnDoc("estimated_output_bytes", INTEGER, "What it was thought to write."),
        ColumnDoc("output_bytes", INTEGER, "What it wrote."),
        ColumnDoc("estimated_memory_bytes", INTEGER, "What it was thought to hold in memory."),
        ColumnDoc("memory_bytes", INTEGER, "What it held in memory."),
    ),
    rows=_rows,
)
