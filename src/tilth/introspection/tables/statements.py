"""Statements under way and past ones, what they changed, what is set, as rows.

Covers: `system.processes`, `system.query_log`, `system.audit_log`, `system.settings`.

Tests: tests/unit/introspection/test_registry.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.base.settings import SettingScope
from tilth.base.sources import SettingSource
from tilth.control.context.services import Services
from tilth.control.running import Running, sending_id
from tilth.introspection.system_table import (
    FLAG,
    INTEGER,
    NUMBER,
    TEXT,
    TEXTS,
    TIME,
    ColumnDoc,
    Row,
    SystemTable,
    time_of_ms,
)
from tilth.model.pushdown import Pushdown
from tilth.model.task import TaskInfo, TaskState
from tilth.query.settings import all_settings


def _rows_of_processes(services: Services, _: Pushdown) -> Iterator[Row]:
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
            total_rows_approx=services.snapshots.rows_to_read(
                sending_id(running.query_id, is_again=bool(running.sent_again))
            ),
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


PROCESSES = SystemTable(
    name="processes",
    doc="One row for each statement under way, oldest first; `KILL QUERY` ends them.",
    is_of_servers=True,
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
        ColumnDoc(
            "total_rows_approx",
            INTEGER,
            "Rows of the parts that it reads: `read_rows` ends below where Spark passes over some; NULL: it reads no "
            "table, or its snapshots are not there yet.",
        ),
        ColumnDoc("stages_done", INTEGER, "Stages that Spark has done."),
        ColumnDoc("stages_total", INTEGER, "Stages of the jobs that Spark has begun; more may follow."),
        ColumnDoc("tasks_done", INTEGER, "Spark tasks of these stages that are done."),
        ColumnDoc("tasks_total", INTEGER, "All Spark tasks of these stages."),
    ),
    rows=_rows_of_processes,
)


def _rows_of_query_log(services: Services, _: Pushdown) -> Iterator[Row]:
    for event in services.query_log.recent():
        yield Row(
            event,
            error_code=event.error_code or None,
            error=event.error or None,
            client=event.client or None,
            sent_again=event.sent_again or None,
        )


QUERY_LOG = SystemTable(
    name="query_log",
    doc="One row for each of the last statements of this server, oldest first; empty after a restart.",
    is_of_servers=True,
    columns=(
        ColumnDoc("query_id", TEXT, "The statement's id; the log names it as cause_id."),
        ColumnDoc("client", TEXT, "Address of whoever sent it, with the client's name; NULL: the server itself."),
        ColumnDoc("kind", TEXT, "`Query`, `CreateTable`, `InsertValues`, ..."),
        ColumnDoc(
            "text",
            TEXT,
            "What was sent, without secrets, with literals as `audit.literals` says; of more than 4,000 characters "
            "the beginning and the end.",
        ),
        ColumnDoc("database", TEXT, "The default database."),
        ColumnDoc("started", TIME, "When it came in."),
        ColumnDoc("elapsed_ms", NUMBER, "How long it took."),
        ColumnDoc("rows", INTEGER, "Rows of the answer."),
        ColumnDoc("rows_written", INTEGER, "Rows that it stored."),
        ColumnDoc("result_bytes", INTEGER, "Size of the answer in memory."),
        ColumnDoc("parts_read", INTEGER, "Parts that its tables gave."),
        ColumnDoc("parts_pruned", INTEGER, "Parts that its predicates ruled out."),
        ColumnDoc("error_code", TEXT, "NULL where it went well."),
        ColumnDoc("error", TEXT, "What went wrong."),
        ColumnDoc("exception_code", INTEGER, "The number of ClickHouse's error that is most like it; 0: it went well."),
        ColumnDoc(
            "sent_again",
            TEXT,
            "Why its work in Spark was lost before anything was answered, and done again; NULL: it was not.",
        ),
    ),
    rows=_rows_of_query_log,
)
#: All lines that the catalog keeps.
_LINES_MAX = 10_000


def _rows_of_audit_log(services: Services, _: Pushdown) -> Iterator[Row]:
    for event in services.catalog.audit.recent(_LINES_MAX):
        yield Row(
            event,
            time=time_of_ms(event.at_ms),
            table=event.table or None,
            seconds=event.duration_ms / 1000 if event.duration_ms else None,
            because=event.because or None,
            client=event.client or None,
        )


AUDIT_LOG = SystemTable(
    name="audit_log",
    doc="One row for each word to the background services and each change of a table, newest first; the newest 10,000, "
    "kept over restarts.",
    columns=(
        ColumnDoc("time", TIME, "When it was said."),
        ColumnDoc("verb", TEXT, "The statement without names, as in `SYSTEM STOP MERGES`."),
        ColumnDoc("table", TEXT, "`database.table`; NULL: no single one."),
        ColumnDoc(
            "statement",
            TEXT,
            "As it was written, without secrets, with literals as `audit.literals` says; its first 1,000 characters.",
        ),
        ColumnDoc("seconds", NUMBER, "How long it holds; NULL: until it is changed."),
        ColumnDoc("because", TEXT, "The reason, in the user's words."),
        ColumnDoc("query_id", TEXT, "The query, as in `system.query_log`."),
        ColumnDoc("client", TEXT, "Address of whoever sent it, with the client's name; NULL: the server itself."),
        ColumnDoc("outcome", TEXT, "`done`, what came of it, or the error that refused it."),
    ),
    rows=_rows_of_audit_log,
)


def _rows_of_settings(services: Services, _: Pushdown) -> Iterator[Row]:
    given = services.node_settings
    for setting in all_settings(services.upper_settings):
        text = given.texts.get(setting.name) if setting.scope is SettingScope.NODE else None
        yield Row(
            setting,
            value=setting.default_text if text is None else setting.shown(text),
            default_value=setting.default_text,
            is_set=text is not None,
            aliases=list(setting.aliases),
            source=(SettingSource.DEFAULT if text is None else given.source(setting.name)).value,
        )


SETTINGS = SystemTable(
    name="settings",
    doc="One row for each setting of every scope. Values of tables are in SHOW CREATE TABLE.",
    columns=(
        ColumnDoc("name", TEXT, "The setting."),
        ColumnDoc("scope", TEXT, "`node`, `table`, `kafka`, `session` or `warehouse`."),
        ColumnDoc("value", TEXT, "Of a node's setting: its value; of others: the default."),
        ColumnDoc("default_value", TEXT, "What holds where nothing is said."),
        ColumnDoc("is_set", FLAG, "Whether this node was given a value."),
        ColumnDoc("unit", TEXT, "What its number counts."),
        ColumnDoc("allowed", TEXT, "What it may be."),
        ColumnDoc("aliases", TEXTS, "Further names."),
        ColumnDoc("doc", TEXT, "What gets better and what gets worse in each direction."),
        ColumnDoc(
            "source", TEXT, "Where the value comes from: `default`, `file`, `environment` or `flag` (or a program)."
        ),
    ),
    rows=_rows_of_settings,
)
