"""The canonical text of every statement, for tests: `parse(render(s)) == s`."""

from __future__ import annotations

from typing import assert_never

from tilth.grammar import render as r
from tilth.grammar import statements as g
from tilth.grammar.statements import Statement
from tilth.introspection.statements.explain import ExplainGc, ExplainMerge
from tilth.introspection.statements.show import (
    Describe,
    ExistsTable,
    ShowCreate,
    ShowDatabases,
    ShowFunctions,
    ShowPartitions,
    ShowProcesses,
    ShowSettings,
    ShowTables,
)
from tilth.statements.definitions.databases import CreateDatabase, DropDatabase, UseDatabase
from tilth.statements.definitions.dropped import DropTable, DropView, TruncateTable, UndropTable
from tilth.statements.definitions.storages import (
    AlterStorage,
    CreateStorage,
    DropStorage,
    ShowCreateStorage,
    ShowStorages,
    storage_text,
)
from tilth.statements.definitions.warehouses import (
    AlterServer,
    AlterWarehouse,
    AlterWorker,
    CreateWarehouse,
    DropWarehouse,
    ShowCreateWarehouse,
    ShowWarehouses,
    warehouse_text,
)
from tilth.statements.files.copy_into import CopyInto
from tilth.statements.files.export import Export
from tilth.statements.files.pipes import CreatePipe, DropPipe, ExplainPipe, RefreshPipe, ShowCreatePipe, ShowPipes
from tilth.statements.operate.backup import BackupCatalog
from tilth.statements.operate.check_files import CheckFiles
from tilth.statements.operate.drill import DrillFailover
from tilth.statements.operate.kill import KillMode, KillMutation, KillQuery
from tilth.statements.operate.replay import ReplayDeadLetters
from tilth.statements.operate.reset_offset import ResetConsumeOffset, ResetToMark, ResetToOffsets, ResetToTimestamp
from tilth.statements.operate.session import NothingToDo, SetSettings
from tilth.statements.operate.system import OptimizeTable, RunService, SwitchService


def render(statement: Statement) -> str:
    """Return the statement's text, without a `;`."""
    match statement:
        case g.CreateTable():
            return r.table_text(statement)
        case g.CreateView():
            return r.view_text(statement)
        case g.AlterTable(name=name, operations=operations, settings=settings):
            return f"ALTER TABLE {r.name_text(name)} {r.render_operations(operations)}{r.settings_clause(settings)}"
        case g.InsertValues() | g.InsertQuery() | g.InsertData():
            return _insert(statement)
        case g.Query():
            return _query(statement)
        case CopyInto():
            return _copy(statement)
        case Export():
            return _export(statement)
        case SwitchService():
            return _switch(statement)
        case ResetConsumeOffset():
            return _reset(statement)
        case ReplayDeadLetters(name=name, predicate=predicate):
            return f"SYSTEM REPLAY DEAD LETTERS {r.name_text(name)}{f' WHERE {predicate}' if predicate else ''}"
    return _pipe(statement) or _storage(statement) or _warehouse(statement) or _short(statement)


def _pipe(statement: Statement) -> str | None:
    match statement:
        case CreatePipe(pipe=pipe, if_not_exists=if_not_exists, every_ms=every_ms, copy=copy):
            name = f"{r.if_not_exists_text(if_not_exists)}{r.quoted_name(pipe)}"
            return f"CREATE PIPE {name} EVERY {every_ms} ms AS {_copy(copy)}"
        case DropPipe(pipe=pipe, if_exists=if_exists, name=name):
            return f"DROP PIPE {r.if_exists_text(if_exists)}{r.quoted_name(pipe)} ON {r.name_text(name)}"
        case RefreshPipe(pipe=pipe, name=name):
            return f"ALTER PIPE {r.quoted_name(pipe)} ON {r.name_text(name)} REFRESH"
        case ShowCreatePipe(pipe=pipe, name=name):
            return f"SHOW CREATE PIPE {r.quoted_name(pipe)} ON {r.name_text(name)}"
        case ExplainPipe(pipe=pipe, name=name):
            return f"EXPLAIN PIPE {r.quoted_name(pipe)} ON {r.name_text(name)}"
        case ShowPipes(name=name, database=database):
            table = f" ON {r.name_text(name)}" if name is not None else ""
            return f"SHOW PIPES{table}{f' FROM {r.quoted_name(database)}' if database is not None else ''}"
    return None


def _copy(copy: CopyInto) -> str:
    columns = f" ({', '.join(map(r.quoted_name, copy.columns))})" if copy.columns else ""
    pattern = f" PATTERN {r.quoted_string(copy.pattern)}" if copy.pattern else ""
    options = ", ".join(f"{name} = {r.quoted_string(value)}" for name, value in copy.options)
    return (
        f"COPY INTO {r.name_text(copy.name)}{columns} FROM {r.quoted_string(copy.address)} FORMAT {copy.format}"
        f"{pattern}{f' OPTIONS ({options})' if options else ''}{' VALIDATE ONLY' if copy.is_check else ''}"
        f"{r.settings_clause(copy.settings)}"
    )


def _export(export: Export) -> str:
    what = f"TABLE {r.name_text(export.name)}" if export.name is not None else export.query
    options = ", ".join(f"{name} = {r.quoted_string(value)}" for name, value in export.options)
    head = f"EXPORT {what} TO {r.quoted_string(export.address)} FORMAT {export.format}"
    return f"{head}{f' OPTIONS ({options})' if options else ''}{r.settings_clause(export.settings)}"


def _short(statement: Statement) -> str:
    match statement:
        case CreateDatabase(database=database, if_not_exists=if_not_exists, comment=comment):
            head = f"CREATE DATABASE {r.if_not_exists_text(if_not_exists)}{r.quoted_name(database)}"
            return f"{head}{r.comment_clause(comment)}"
        case DropDatabase(database=database, if_exists=if_exists):
            return f"DROP DATABASE {r.if_exists_text(if_exists)}{r.quoted_name(database)}"
        case UseDatabase(database=database):
            return f"USE {r.quoted_name(database)}"
        case ShowDatabases(like=like):
            return f"SHOW DATABASES{_like(like)}"
        case ShowTables(database=database, like=like, limit=limit):
            limited = "" if limit is None else f" LIMIT {limit}"
            return f"SHOW TABLES{f' FROM {r.quoted_name(database)}' if database else ''}{_like(like)}{limited}"
        case ShowPartitions(name=name):
            return f"SHOW PARTITIONS FROM {r.name_text(name)}"
        case ShowFunctions(like=like):
            return f"SHOW FUNCTIONS{_like(like)}"
        case SetSettings(settings=settings):
            return f"SET {r.settings_text(settings)}"
        case NothingToDo(words=words):
            return words
        case ShowSettings(like=like):
            return f"SHOW SETTINGS{_like(like)}"
        case ShowCreate(name=name):
            return f"SHOW CREATE TABLE {r.name_text(name)}"
        case Describe(name=name):
            return f"DESCRIBE TABLE {r.name_text(name)}"
        case ExistsTable(name=name):
            return f"EXISTS TABLE {r.name_text(name)}"
        case DropTable(name=name, if_exists=if_exists):
            return f"DROP TABLE {r.if_exists_text(if_exists)}{r.name_text(name)}"
        case DropView(name=name, if_exists=if_exists):
            return f"DROP VIEW {r.if_exists_text(if_exists)}{r.name_text(name)}"
        case UndropTable(name=name):
            return f"UNDROP TABLE {r.name_text(name)}"
        case TruncateTable(name=name, if_exists=if_exists):
            return f"TRUNCATE TABLE {r.if_exists_text(if_exists)}{r.name_text(name)}"
        case g.RenameTable(old=old, new=new):
            return f"RENAME TABLE {r.name_text(old)} TO {r.name_text(new)}"
        case g.DeleteRows(name=name, predicate=predicate, settings=settings):
            return f"DELETE FROM {r.name_text(name)} WHERE {predicate}{r.settings_clause(settings)}"
        case g.UpdateRows(name=name, assignments=assignments, predicate=predicate, settings=settings):
            assigned = r.listed_texts(assignments, r.assignment_text)
            return f"UPDATE {r.name_text(name)} SET {assigned} WHERE {predicate}{r.settings_clause(settings)}"
        case OptimizeTable(name=name, partition=partition, final=final):
            return f"OPTIMIZE TABLE {r.name_text(name)}{r.partition_clause(partition)}{' FINAL' if final else ''}"
        case KillMutation(mutation=mutation, predicate=predicate):
            return f"KILL MUTATION {r.quoted_string(mutation) if mutation is not None else f'WHERE {predicate}'}"
        case KillQuery(query_id=query_id, predicate=predicate, mode=mode):
            chosen = r.quoted_string(query_id) if query_id is not None else f"WHERE {predicate}"
            return f"KILL QUERY {chosen}{f' {mode.value}' if mode is not KillMode.ASYNC else ''}"
        case BackupCatalog(path=path):
            return f"BACKUP CATALOG TO {r.quoted_string(path)}"
        case DrillFailover(name=name, seconds=seconds):
            return f"DRILL FAILOVER {r.name_text(name)}{'' if seconds is None else f' FOR SECONDS {seconds}'}"
        case ShowProcesses():
            return "SHOW PROCESSLIST"
        case RunService(verb=verb, name=name, partition=partition, is_forced=is_forced):
            return f"SYSTEM {'FORCE ' if is_forced else ''}{verb} {r.name_text(name)}{r.partition_clause(partition)}"
        case CheckFiles(name=name, is_repair=is_repair):
            return f"SYSTEM CHECK FILES {r.name_text(name)}{' REPAIR' if is_repair else ''}"
        case ExplainMerge(name=name, policy=policy):
            return f"EXPLAIN MERGE {r.name_text(name)}{f' POLICY {r.quoted_name(policy)}' if policy else ''}"
        case ExplainGc(name=name):
            return f"EXPLAIN GC {r.name_text(name)}"
    raise AssertionError(f"no text for {statement}")


def _insert(insert: g.InsertValues | g.InsertQuery | g.InsertData) -> str:
    head = f"INSERT INTO {r.name_text(insert.name)}{r.names_text(insert.columns)}"
    if insert.settings:
        head += f" SETTINGS {r.settings_text(insert.settings)}"
    match insert:
        case g.InsertValues(rows=rows):
            return f"{head} VALUES {r.listed_texts(rows, lambda row: f'({r.listed_texts(row, r.value_text)})')}"
        case g.InsertQuery(query=query):
            return f"{head} {query}"
        case g.InsertData(format=format_name, data=data):
            return f"{head} FORMAT {format_name}\n{data}"
    assert_never(insert)


def _query(query: g.Query) -> str:
    return f"{query.text}{r.settings_clause(query.settings)}{f' FORMAT {query.format}' if query.format else ''}"


def _storage(statement: Statement) -> str | None:
    match statement:
        case CreateStorage():
            return storage_text(statement)
        case AlterStorage(storage=name, change=change, replica=replica, substitute=new):
            substitute = f" WITH {r.quoted_string(new)}" if new else ""
            return f"ALTER STORAGE {r.quoted_name(name)} {change.value} REPLICA {r.quoted_string(replica)}{substitute}"
        case DropStorage(storage=name, if_exists=if_exists):
            return f"DROP STORAGE {r.if_exists_text(if_exists)}{r.quoted_name(name)}"
        case ShowStorages(like=like):
            return f"SHOW STORAGES{_like(like)}"
        case ShowCreateStorage(storage=name):
            return f"SHOW CREATE STORAGE {r.quoted_name(name)}"
    return None


def _warehouse(statement: Statement) -> str | None:
    match statement:
        case CreateWarehouse():
            return warehouse_text(statement)
        case AlterWarehouse(warehouse=name, settings=settings, reset=reset):
            change = (
                r.settings_clause(settings) if settings else f" RESET SETTING {r.listed_texts(reset, r.quoted_name)}"
            )
            return f"ALTER WAREHOUSE {r.quoted_name(name)}{change}"
        case DropWarehouse(warehouse=name, if_exists=if_exists):
            return f"DROP WAREHOUSE {r.if_exists_text(if_exists)}{r.quoted_name(name)}"
        case ShowWarehouses(like=like, warehouse=name):
            return f"SHOW WAREHOUSES{_like(like)}" if name is None else f"SHOW WAREHOUSE {r.quoted_name(name)}"
        case ShowCreateWarehouse(warehouse=name):
            return f"SHOW CREATE WAREHOUSE {r.quoted_name(name)}"
        case AlterWorker(worker=worker, drains=drains, because=because):
            return f"ALTER WORKER {r.quoted_name(worker)}{_drain(drains, because)}"
        case AlterServer(server=server, drains=drains, because=because):
            return f"ALTER SERVER {r.quoted_name(server)}{_drain(drains, because)}"
    return None


def _drain(drains: bool, because: str) -> str:
    reason = f" BECAUSE {r.quoted_string(because)}" if because else ""
    return f" {'DRAIN' if drains else 'RESUME'}{reason}"


def _switch(switch: SwitchService) -> str:
    text = f"SYSTEM {switch.verb} {switch.service.word}"
    if switch.name is not None:
        text += f" {r.name_text(switch.name)}"
    if switch.duration_ms is not None:
        text += f" FOR {switch.duration_ms} ms"
    return f"{text} BECAUSE {r.quoted_string(switch.because)}" if switch.because else text


def _reset(reset: ResetConsumeOffset) -> str:
    head = f"SYSTEM RESET CONSUME OFFSET {r.name_text(reset.name)} TO"
    match reset.target:
        case ResetToMark(mark=mark):
            return f"{head} {mark.name}"
        case ResetToTimestamp(milliseconds=milliseconds):
            return f"{head} TIMESTAMP {milliseconds}"
        case ResetToOffsets(offsets=offsets):
            wanted = (f"({r.quoted_string(each.topic)}, {each.partition}, {each.offset})" for each in offsets)
            return f"{head} OFFSETS {', '.join(wanted)}"
    assert_never(reset.target)


def _like(pattern: str | None) -> str:
    return f" LIKE {r.quoted_string(pattern)}" if pattern is not None else ""
