"""`system.processes`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.model.task import TaskInfo, TaskState
from tilth.sql.context.services import Services
from tilth.sql.control.running import Running
from tilth.sql.system_tables.table import INTEGER, NUMBER, TEXT, TIME, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    tasks = {task.id: task for task in services.dispatcher.tasks()}
    now = services.clock.monotonic()
    for running, ahead in services.running.list():
        task = tasks.get(running.origin.cancellation.work_id)
        progress = services.progress(task.id) if task is not None else None
        yield Row(
            running,
            task,
            progress,
            query=running.text,
            user="default",
            address=running.origin.address,
            elapsed=round(now - running.started, 3),
            max_execution_time=running.seconds_max or None,
            state=_state(running, ahead, task, services.open_results.state(running.query_id)),
            task_id=task and task.id,
            read_rows=progress and progress.rows_read,
            read_bytes=progress and progress.bytes_read,
        )


def _state(running: Running, ahead: int | None, task: TaskInfo | None, result: str) -> str:
    error = running.origin.cancellation.error
    if error is not None:
        return f"being cancelled: {error.code}"
    if result:
        return result
    if ahead is not None:
        return f"waiting for a slot, {ahead} ahead"
    if running.queue is None:
        return "being parsed"
    if task is not None and task.state is TaskState.PENDING:
        return f"waiting for a worker: {task.reason}"
    return "running in Spark" if task is not None else "running"


TABLE = SystemTable(
    name="processes",
    doc="One row for each statement under way, oldest first; `KILL QUERY` ends them.",
    columns=(
        ColumnDoc("query_id", TEXT, "The statement's id, for KILL QUERY."),
        ColumnDoc("kind", TEXT, "`Query`, `InsertData`, `AlterTable`, ...; empty until it has been parsed."),
        ColumnDoc("query", TEXT, "What was sent, without secrets; of more than 128 KiB the beginning and the end."),
        ColumnDoc("database", TEXT, "The default database."),
        ColumnDoc("user", TEXT, "Always `default`: there are no accounts."),
        ColumnDoc("address", TEXT, "Host and port of the client."),
        ColumnDoc("started", TIME, "When it came in."),
        ColumnDoc("elapsed", NUMBER, "Seconds since then."),
        ColumnDoc("max_execution_time", NUMBER, "Its limit in seconds; NULL: none."),
        ColumnDoc("state", TEXT, "What it does or waits for."),
        ColumnDoc(
            "queue",
            TEXT,
            "Its slots: of `query`, `change` (INSERT .. SELECT, DELETE, UPDATE), `insert`, `control`, `watch` or "
            "`apart` (long queries over system tables).",
        ),
        ColumnDoc("warehouse", TEXT, "Where its task runs or waits; NULL while it has none."),
        ColumnDoc("task_id", TEXT, "The same task in `system.tasks`."),
        ColumnDoc("read_rows", INTEGER, "Rows that Spark has read for this task; half a second old at most."),
        ColumnDoc("read_bytes", INTEGER, "The same in bytes."),
        ColumnDoc("stages_done", INTEGER, "Stages that Spark has done."),
        ColumnDoc("stages_total", INTEGER, "Stages of the jobs that Spark has begun; more may follow."),
        ColumnDoc("tasks_done", INTEGER, "Spark tasks of these stages that are done."),
        ColumnDoc("tasks_total", INTEGER, "All Spark tasks of these stages."),
    ),
    rows=_rows,
)
