"""CREATE, ALTER, DROP, SHOW and EXPLAIN PIPE: a COPY INTO that is repeated for new files.

Covers: their texts, what CREATE PIPE checks, what they answer. Does not cover: polls (pipe_poll.py), who runs them
(pipe_manager.py).
Always holds: a pipe belongs to its table, by its uuid: it follows a RENAME, is dropped and comes back with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tilth.base.errors import ConflictError, NotFoundError
from tilth.control.context.audit import audited
from tilth.control.context.names import table_of
from tilth.control.context.services import Call, Services
from tilth.control.kinds import StatementKind
from tilth.control.slots import Queue
from tilth.grammar.parse import Form
from tilth.grammar.phrases import parse_name, read_if_exists, read_if_not_exists, read_seconds, skip_on_cluster
from tilth.grammar.render import (
    if_not_exists_text,
    name_text,
    names_text,
    quoted_name,
    quoted_string,
    settings_clause,
)
from tilth.grammar.statements import Name, Statement
from tilth.grammar.text.cursor import Cursor
from tilth.introspection.system_table import time_of_ms
from tilth.model.pipe import Pipe
from tilth.model.table import TableDef, full_name
from tilth.query.results.answer import Outcome, done
from tilth.query.settings import session_settings
from tilth.statements.errors import BadCopyOptionError
from tilth.statements.files.copy_into import CopyInto, check_zone, parse_copy_into
from tilth.statements.files.pipe_choice import FileVerdict
from tilth.statements.files.pipe_poll import checked_copy, find_files, statement_of

#: Time between polls where CREATE PIPE names none.
EVERY_MS = 30_000
_EVERY_SECONDS_MIN, _EVERY_SECONDS_MAX = 1, 86_400
#: Maximum number of pipes of one table: each lists its folder at each poll.
PIPES_MAX = 64
#: Maximum number of rows of EXPLAIN PIPE.
_EXPLAINED_MAX = 10_000
_NAME = "the name of a pipe"
_FOREIGN = {
    "AUTO_INGEST": "leave it out: the folder is polled EVERY n SECONDS",
    "ERROR_INTEGRATION": "leave it out: system.pipe_errors lists what failed, system.alarms that something did",
    "AWS_SNS_TOPIC": "leave it out: the folder is polled EVERY n SECONDS",
    "INTEGRATION": "leave it out: the folder is polled EVERY n SECONDS",
    "COMMENT": "leave it out: SYSTEM STOP COPY t BECAUSE '..' says why a pipe stands still",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePipe(Statement):
    """CREATE PIPE p AS COPY INTO .."""

    pipe: str
    if_not_exists: bool = False
    every_ms: int = EVERY_MS
    copy: CopyInto


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPipe(Statement):
    pipe: str
    if_exists: bool = False
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshPipe(Statement):
    """ALTER PIPE p ON t REFRESH."""

    pipe: str
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowPipes(Statement):
    """SHOW PIPES: of one table, of a database, or all."""

    name: Name | None = None
    database: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreatePipe(Statement):
    pipe: str
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainPipe(Statement):
    """EXPLAIN PIPE p ON t: what the next poll does with each file."""

    pipe: str
    name: Name


def _parse_create(cursor: Cursor) -> CreatePipe:
    if_not_exists = read_if_not_exists(cursor)
    pipe = cursor.name(_NAME)
    skip_on_cluster(cursor)
    every_ms = _parse_every(cursor) if cursor.accept("EVERY") else EVERY_MS
    for word, hint in _FOREIGN.items():
        if cursor.at(word):
            raise cursor.refused(f"{word} is not supported in CREATE PIPE", hint=hint)
    cursor.expect("AS")
    cursor.expect("COPY", "INTO")
    copy = parse_copy_into(cursor)
    if copy.is_check:
        raise cursor.refused("a pipe loads: VALIDATE ONLY is not supported", hint="run the COPY INTO alone first")
    return CreatePipe(pipe=pipe, if_not_exists=if_not_exists, every_ms=every_ms, copy=copy)


def _parse_every(cursor: Cursor) -> int:
    """Read `10 SECONDS`, in milliseconds."""
    hint = "write EVERY 30 SECONDS; units: seconds, minutes, hours"
    seconds, text, token = read_seconds(cursor, "time between polls", hint=hint, end="AS")
    if not _EVERY_SECONDS_MIN <= seconds <= _EVERY_SECONDS_MAX:
        raise cursor.error(f"not a time between polls: {text}", at=token, hint="from 1 second to 1 day")
    return round(seconds * 1000)


def _parse_pipe_on(cursor: Cursor) -> tuple[str, Name]:
    pipe = cursor.name(_NAME)
    if not cursor.accept("ON"):
        raise cursor.expected("ON and the name of its table", words=("ON",), hint="a pipe belongs to its table: p ON t")
    return pipe, parse_name(cursor)


def _parse_drop(cursor: Cursor) -> DropPipe:
    if_exists = read_if_exists(cursor)
    pipe, name = _parse_pipe_on(cursor)
    return DropPipe(pipe=pipe, if_exists=if_exists, name=name)


def _parse_alter(cursor: Cursor) -> RefreshPipe:
    pipe, name = _parse_pipe_on(cursor)
    if cursor.at("SET"):
        raise cursor.refused(
            "ALTER PIPE .. SET is not supported", hint="DROP PIPE and CREATE PIPE: no file is loaded twice"
        )
    cursor.expect("REFRESH")
    return RefreshPipe(pipe=pipe, name=name)


def _parse_show(cursor: Cursor) -> ShowPipes:
    if cursor.accept("ON"):
        return ShowPipes(name=parse_name(cursor))
    is_elsewhere = cursor.accept("FROM") or cursor.accept("IN")
    return ShowPipes(database=cursor.name("the name of a database") if is_elsewhere else None)


def _parse_show_create(cursor: Cursor) -> ShowCreatePipe:
    pipe, name = _parse_pipe_on(cursor)
    return ShowCreatePipe(pipe=pipe, name=name)


def _parse_explain(cursor: Cursor) -> ExplainPipe:
    pipe, name = _parse_pipe_on(cursor)
    return ExplainPipe(pipe=pipe, name=name)


def pipe_text(statement: CreatePipe) -> str:
    """Return the statement that makes the pipe."""
    copy, every_ms = statement.copy, statement.every_ms
    every = f"{every_ms} ms" if every_ms % 1000 else f"{every_ms // 1000} SECONDS"
    options = ", ".join(f"{name} = {quoted_string(text)}" for name, text in copy.options)
    return (
        f"CREATE PIPE {if_not_exists_text(statement.if_not_exists)}{quoted_name(statement.pipe)} "
        f"EVERY {every} AS COPY INTO {name_text(copy.name)}{names_text(copy.columns)} "
        f"FROM {quoted_string(copy.address)} FORMAT {copy.format}"
        f"{f' PATTERN {quoted_string(copy.pattern)}' if copy.pattern else ''}"
        f"{f' OPTIONS ({options})' if options else ''}{settings_clause(copy.settings)}"
    )


def create_pipe(services: Services, call: Call, statement: CreatePipe) -> Outcome:
    """Raises ConflictError (PIPE_EXISTS, TOO_MANY_PIPES), and what a COPY INTO of the same text would."""
    copy = statement.copy
    table = table_of(services, call, copy.name, what="CREATE PIPE")
    with audited(services, call, verb="CREATE PIPE", table=full_name(table)):
        _check(services, call, table, copy)
        pipe = Pipe(
            table=table.uuid,
            name=statement.pipe,
            id=services.ids(),
            columns=copy.columns,
            address=copy.address,
            format=copy.format.value,
            pattern=copy.pattern,
            options=tuple(copy.options),
            settings=tuple(copy.settings),
            every_ms=statement.every_ms,
            created_ms=services.clock.now_ms(),
            query_id=call.query_id,
        )
        others = services.catalog.pipes.of(table.uuid)
        is_there = any(each.name == pipe.name for each in others)
        if not is_there and len(others) >= PIPES_MAX:
            hint = "let one pipe load several folders: FROM the folder above them, PATTERN '**/*.json'"
            raise ConflictError.coded(
                "TOO_MANY_PIPES", "the table has too many pipes", table=full_name(table), limit=PIPES_MAX, hint=hint
            )
        if is_there or not services.catalog.pipes.create(pipe):
            if statement.if_not_exists:
                return done(f"pipe {statement.pipe} exists on {full_name(table)}")
            hint = "DROP PIPE it first: no file is loaded twice"
            raise ConflictError.coded(
                "PIPE_EXISTS", "the table has a pipe of this name", pipe=pipe.name, table=full_name(table), hint=hint
            )
        services.pipes.wake(table.uuid)
    return done(f"pipe {pipe.name} created on {full_name(table)}")


def _check(services: Services, call: Call, table: TableDef, copy: CopyInto) -> None:
    """Raises what a poll of the pipe would."""
    options, _ = checked_copy(services, copy, table)
    check_zone(replace(call, settings=session_settings(dict(copy.settings))), copy)
    if options.force:
        hint = "leave FORCE out of the pipe; a COPY INTO with FORCE = true loads files again once"
        raise BadCopyOptionError("a pipe loads each file once", option="FORCE", value="true", hint=hint)


def drop_pipe(services: Services, call: Call, statement: DropPipe) -> Outcome:
    """Drop a pipe; what it has loaded stays. Raises NotFoundError (PIPE_NOT_FOUND)."""
    table = table_of(services, call, statement.name, what="DROP PIPE")
    with audited(services, call, verb="DROP PIPE", table=full_name(table)):
        found = services.catalog.pipes.find(table.uuid, statement.pipe)
        if found is None or not services.catalog.pipes.drop(found):
            if statement.if_exists:
                return done(f"there is no pipe {statement.pipe} on {full_name(table)}")
            raise _not_found(services, table, statement.pipe)
        services.pipes.wake(table.uuid)
    return done(f"pipe {statement.pipe} dropped from {full_name(table)}")


def refresh_pipe(services: Services, call: Call, statement: RefreshPipe) -> Outcome:
    """Poll at once, and try files again that have failed. Raises NotFoundError (PIPE_NOT_FOUND)."""
    table = table_of(services, call, statement.name, what="ALTER PIPE")
    with audited(services, call, verb="ALTER PIPE .. REFRESH", table=full_name(table)):
        pipe = _pipe_of(services, table, statement.pipe)
        services.catalog.pipes.refresh(pipe, now_ms=services.clock.now_ms())
        services.pipes.wake(table.uuid)
    return done(f"pipe {statement.pipe} of {full_name(table)} polls now")


def show_pipes(services: Services, call: Call, statement: ShowPipes) -> Outcome:
    """List pipes by the names of their tables."""
    only = None if statement.name is None else table_of(services, call, statement.name, what="SHOW PIPES")
    found = services.catalog.pipes.all() if only is None else services.catalog.pipes.of(only.uuid)
    tables = {each.uuid: each for each in services.catalog.tables.list()} if only is None else {only.uuid: only}
    rows = sorted(
        (tables[pipe.table].database, tables[pipe.table].name, pipe.name, pipe)
        for pipe in found
        if pipe.table in tables and statement.database in (None, tables[pipe.table].database)
    )
    return Outcome(table=_pipe_rows([(database, table, pipe) for database, table, _, pipe in rows]))


def _pipe_rows(rows: Sequence[tuple[str, str, Pipe]]) -> pa.Table:
    pipes = [pipe for _, _, pipe in rows]
    return pa.table(
        {
            "database": pa.array([database for database, _, _ in rows], pa.string()),
            "table": pa.array([table for _, table, _ in rows], pa.string()),
            "name": pa.array([each.name for each in pipes], pa.string()),
            "every_seconds": pa.array([each.every_ms / 1000 for each in pipes], pa.float64()),
            "address": pa.array([each.address for each in pipes], pa.string()),
            "format": pa.array([each.format for each in pipes], pa.string()),
            "pattern": pa.array([each.pattern or None for each in pipes], pa.string()),
            "created": pa.array([time_of_ms(each.created_ms) for each in pipes], pa.timestamp("us", tz="UTC")),
        }
    )


def show_create_pipe(services: Services, call: Call, statement: ShowCreatePipe) -> Outcome:
    table = table_of(services, call, statement.name, what="SHOW CREATE PIPE")
    pipe = _pipe_of(services, table, statement.pipe)
    text = pipe_text(CreatePipe(pipe=pipe.name, every_ms=pipe.every_ms, copy=statement_of(pipe, table)))
    return Outcome(table=pa.table({"statement": pa.array([text], pa.string())}))


def explain_pipe(services: Services, call: Call, statement: ExplainPipe) -> Outcome:
    """List the folder, and show what a poll would do with each file now. Raises what the poll would."""
    table = table_of(services, call, statement.name, what="EXPLAIN PIPE")
    pipe = _pipe_of(services, table, statement.pipe)
    found = find_files(services, pipe, table, seen={})
    rows = found.files[:_EXPLAINED_MAX]
    files = [file for file, _ in rows]
    reasons = [
        found.failed[file.address].error if verdict is FileVerdict.FAILED else _REASONS.get(verdict)
        for file, verdict in rows
    ]
    return Outcome(
        table=pa.table(
            {
                "file": pa.array([each.address for each in files], pa.string()),
                "bytes": pa.array([each.size for each in files], pa.int64()),
                "modified": pa.array([time_of_ms(each.modified_ms) for each in files], pa.timestamp("us", tz="UTC")),
                "action": pa.array([verdict.value for _, verdict in rows], pa.string()),
                "reason": pa.array(reasons, pa.string()),
            }
        )
    )


_REASONS = {
    FileVerdict.CHANGED: "it has changed since it was loaded: the next poll records an error",
    FileVerdict.SKIPPED: "it has changed since it was loaded, and CHANGED = 'skip'",
    FileVerdict.SETTLING: "it is so new that it may still grow: a later poll loads it if it does not",
    FileVerdict.TOO_OLD: "it is older than the ledger of files: COPY INTO with FORCE = true loads it",
}


def _pipe_of(services: Services, table: TableDef, name: str) -> Pipe:
    """Raises NotFoundError (PIPE_NOT_FOUND)."""
    found = services.catalog.pipes.find(table.uuid, name)
    if found is None:
        raise _not_found(services, table, name)
    return found


def _not_found(services: Services, table: TableDef, name: str) -> NotFoundError:
    known = ", ".join(each.name for each in services.catalog.pipes.of(table.uuid))
    hint = f"its pipes are {known}" if known else "SHOW PIPES lists the pipes of all tables"
    return NotFoundError.coded(
        "PIPE_NOT_FOUND", "the table has no such pipe", pipe=name, table=full_name(table), hint=hint
    )


def _is_pipe(cursor: Cursor) -> bool:
    """Return whether a name follows: a table may be called `pipe`."""
    return cursor.is_name(1)


KINDS = (
    StatementKind(value=CreatePipe, forms=(Form(words="CREATE PIPE", parse=_parse_create),), perform=create_pipe),
    StatementKind(value=DropPipe, forms=(Form(words="DROP PIPE", parse=_parse_drop),), perform=drop_pipe),
    StatementKind(value=RefreshPipe, forms=(Form(words="ALTER PIPE", parse=_parse_alter),), perform=refresh_pipe),
    StatementKind(
        value=ShowPipes,
        forms=(Form(words="SHOW PIPES", parse=_parse_show),),
        perform=show_pipes,
        queue=Queue.WATCH,
        only_reads=True,
    ),
    StatementKind(
        value=ShowCreatePipe,
        forms=(Form(words="SHOW CREATE PIPE", parse=_parse_show_create, fits=lambda cursor: cursor.is_name(2)),),
        perform=show_create_pipe,
        queue=Queue.WATCH,
        only_reads=True,
    ),
    StatementKind(
        value=ExplainPipe,
        forms=(Form(words="EXPLAIN PIPE", parse=_parse_explain, fits=_is_pipe),),
        perform=explain_pipe,
        only_reads=True,
    ),
)
