"""Pipes and the files that they could not load, as rows.

Covers: `system.pipes`, `system.pipe_errors`. Does not cover: files that were loaded (files.py).

Tests: tests/unit/introspection/test_registry.py, tests/unit/statements/files/test_pipe_manager.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.control.context.services import Services
from tilth.control.pipe_stats import PipeState
from tilth.introspection.pushdown import stored_tables
from tilth.introspection.system_table import (
    INTEGER,
    NUMBER,
    TABLE_NAME_COLUMNS,
    TEXT,
    TIME,
    ColumnDoc,
    Row,
    SystemTable,
    time_of_ms,
)
from tilth.model.pipe import Pipe
from tilth.model.pushdown import Pushdown
from tilth.model.service import ServiceState
from tilth.model.table import TableDef


def _pipes(services: Services, wanted: Pushdown) -> Iterator[tuple[TableDef, Pipe]]:
    every = services.catalog.pipes.all()
    tables = {each.uuid: each for each in stored_tables(services, wanted)} if every else {}
    return ((tables[pipe.table], pipe) for pipe in every if pipe.table in tables)


def _rows_of_pipes(services: Services, wanted: Pushdown) -> Iterator[Row]:
    states = {(each.pipe.table, each.pipe.id): each for each in services.pipes.states()}
    for table, pipe in _pipes(services, wanted):
        if not services.hosts(pipe.table):
            continue
        state = states.get((pipe.table, pipe.id)) or PipeState(
            pipe=pipe,
            database=table.database,
            table=table.name,
            state=ServiceState.WAITING,
            reason="it has just been created, or has moved to this server",
        )
        yield Row(
            pipe,
            state,
            database=table.database,
            table=table.name,
            pattern=pipe.pattern or None,
            every_seconds=pipe.every_ms / 1000,
            state=state.state.value,
            last_error_time=time_of_ms(state.last_error_ms),
            last_query_id=state.last_query_id or None,
            last_error_code=state.last_error_code or None,
            last_error=state.last_error or None,
        )


def _rows_of_pipe_errors(services: Services, wanted: Pushdown) -> Iterator[Row]:
    for table, pipe in _pipes(services, wanted):
        for each in services.catalog.pipes.failed(pipe).values():
            yield Row(
                each,
                database=table.database,
                table=table.name,
                pipe=pipe.name,
                bytes=each.size,
                query_id=each.query_id or None,
            )


PIPES = SystemTable(
    name="pipes",
    doc="One row for each pipe: what it loads, what it does now, what went wrong last. Counts are those since the "
    "server that hosts its table began to.",
    is_of_servers=True,
    columns=(
        *TABLE_NAME_COLUMNS,
        ColumnDoc("name", TEXT, "The pipe."),
        ColumnDoc("address", TEXT, "The folder or file that it polls."),
        ColumnDoc("format", TEXT, "The files' format."),
        ColumnDoc("pattern", TEXT, "Pattern of their paths below the address; NULL: all."),
        ColumnDoc("every_seconds", NUMBER, "Time between two polls."),
        ColumnDoc("created", TIME, "When it was created."),
        ColumnDoc("state", TEXT, "`running`, `idle`, `waiting`, `stopped` or `failed`."),
        ColumnDoc("reason", TEXT, "Why it is in this state."),
        ColumnDoc("polls", INTEGER, "Its polls."),
        ColumnDoc("last_poll", TIME, "When the last one began; NULL: none has."),
        ColumnDoc("next_poll", TIME, "When the next one is due; NULL: not before somebody starts it."),
        ColumnDoc("files_found", INTEGER, "Files that the last poll found, loaded ones among them."),
        ColumnDoc("files_waiting", INTEGER, "Those of them that are to be loaded."),
        ColumnDoc(
            "files_failed", INTEGER, "Those of them that could not be loaded, as `system.pipe_errors` lists them."
        ),
        ColumnDoc("files_loaded", INTEGER, "Files that it has loaded; all of them are in `system.loaded_files`."),
        ColumnDoc("rows_loaded", INTEGER, "Their rows."),
        ColumnDoc("last_load", TIME, "When it committed files last."),
        ColumnDoc("last_query_id", TEXT, "The statement that did, or that loads files now, as in `system.query_log`."),
        ColumnDoc("failures", INTEGER, "Polls in a row that failed as a whole; it waits longer after each."),
        ColumnDoc("last_error_code", TEXT, "Code of the last error, of a poll or of a file; NULL: there was none."),
        ColumnDoc("last_error", TEXT, "Its text."),
        ColumnDoc("last_error_time", TIME, "When."),
    ),
    rows=_rows_of_pipes,
)
PIPE_ERRORS = SystemTable(
    name="pipe_errors",
    doc="One row for each file that a pipe could not load: it is tried again when the file or the table's columns "
    "have changed, or by ALTER PIPE .. REFRESH.",
    columns=(
        *TABLE_NAME_COLUMNS,
        ColumnDoc("pipe", TEXT, "The pipe."),
        ColumnDoc("file", TEXT, "The file's address."),
        ColumnDoc("bytes", INTEGER, "Its size when it failed."),
        ColumnDoc("modified", TIME, "When it had changed last, by the clock of its store."),
        ColumnDoc("code", TEXT, "Code of the error."),
        ColumnDoc("error", TEXT, "The error, with the row where it is one of a row."),
        ColumnDoc("failed", TIME, "When."),
        ColumnDoc("query_id", TEXT, "The statement that failed; NULL: none was run, as for a file that has changed."),
    ),
    rows=_rows_of_pipe_errors,
)
