"""A statement to its canonical text. Pure.

Always holds: `parse(render(s)) == s`; types in Spark's words, engines by Tilth's names; names in quotes where needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import TypeVar, assert_never

from tilth.grammar.literal_values import ArrayValue, CastValue, MapValue, StructValue, TupleValue, Value
from tilth.grammar.statements import (
    AddColumn,
    AlterOperation,
    AlterTable,
    BackupCatalog,
    CheckFiles,
    ColumnSpec,
    CreateDatabase,
    CreateTable,
    CreateView,
    DeleteRows,
    Describe,
    DescribeColumn,
    DrillFailover,
    DropColumn,
    DropDatabase,
    DropPartition,
    DropTable,
    DropView,
    ExistsTable,
    ExplainGc,
    ExplainMerge,
    InsertData,
    InsertQuery,
    InsertValues,
    KillMode,
    KillMutation,
    KillQuery,
    ModifyColumn,
    ModifySetting,
    ModifyTtl,
    MutateDelete,
    MutateUpdate,
    Name,
    NothingToDo,
    OptimizeTable,
    Partition,
    PartitionId,
    Query,
    RemoveTtl,
    RenameColumn,
    RenameTable,
    ReplayDeadLetters,
    ResetConsumeOffset,
    ResetSetting,
    ResetToMark,
    ResetToOffsets,
    ResetToTimestamp,
    RunService,
    SetSettings,
    SettingTexts,
    ShowCreate,
    ShowDatabases,
    ShowFunctions,
    ShowPartitions,
    ShowProcesses,
    ShowSettings,
    ShowTables,
    Statement,
    SwitchService,
    TruncateTable,
    UndropPartition,
    UndropTable,
    UpdateRows,
    UseDatabase,
)
from tilth.grammar.storage_statements import (
    AlterStorage,
    CreateStorage,
    DropStorage,
    ShowCreateStorage,
    ShowStorages,
    StorageStatement,
)
from tilth.grammar.warehouse_statements import (
    AlterServer,
    AlterWarehouse,
    AlterWorker,
    CreateWarehouse,
    DropWarehouse,
    ShowCreateWarehouse,
    ShowWarehouses,
    WarehouseStatement,
)
from tilth.model.table import Transform, TransformKind
from tilth.model.types import quoted, spark_name

#: Longer numbers keep their exponent.
_DIGITS_SPELLED_MAX = 308
_SIMPLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE_SETTING = re.compile(r"-?[0-9]+(\.[0-9]+)?|true|false")
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}
_TO_ESCAPE = re.compile(r"[\\'\n\t\r\0]")
#: Words that begin something where a name may stand too.
_KEYWORDS_TEXT = (
    "ADD AFTER ALTER AS ASC ASYNC BECAUSE CLONE CLUSTER CODEC COMMENT CONSTRAINT DATE DEFAULT DELETE DESC DISTRIBUTED "
    "DROP ENGINE EXISTS LOGS SAMPLE "
    "FINAL FIRST FOR FORMAT FROM FUNCTION GC ID IF IN INDEX INTO LIKE MERGE MODIFY NOT NULL ON ORDER PARTITION "
    "POLICY PRIMARY PROJECTION REFRESH SELECT SET SETTINGS TABLE TIMESTAMP TO TTL UNIQUE UPDATE VALUES VIEW WHERE "
    "WITH"
)
_KEYWORDS = frozenset(_KEYWORDS_TEXT.split())


def render(statement: Statement) -> str:
    """Return the statement's text, without a `;`."""
    if isinstance(statement, WarehouseStatement):
        return _warehouse(statement)
    if isinstance(statement, StorageStatement):
        return _storage(statement)
    match statement:
        case CreateTable():
            return _create_table(statement)
        case CreateView():
            return _create_view(statement)
        case AlterTable(name=name, operations=operations, settings=settings):
            return f"ALTER TABLE {_name(name)} {render_operations(operations)}{_own_settings(settings)}"
        case InsertValues() | InsertQuery() | InsertData():
            return _insert(statement)
        case Query():
            return _query(statement)
        case SwitchService():
            return _switch(statement)
        case ResetConsumeOffset():
            return _reset(statement)
        case ReplayDeadLetters(name=name, predicate=predicate):
            return f"SYSTEM REPLAY DEAD LETTERS {_name(name)}{f' WHERE {predicate}' if predicate else ''}"
        case _:
            return _short(statement)


def render_operations(operations: Iterable[AlterOperation]) -> str:
    """Return the text behind the name of ALTER TABLE."""
    return _list(operations, _operation)


def quoted_name(name: str) -> str:
    """The name, in backticks if it needs them."""
    if _SIMPLE_NAME.fullmatch(name) and name.upper() not in _KEYWORDS:
        return name
    return quoted(name)


def quoted_string(text: str) -> str:
    return f"'{_TO_ESCAPE.sub(lambda found: _ESCAPES[found[0]], text)}'"


# Statements


_Short = (
    CreateDatabase
    | DropDatabase
    | UseDatabase
    | ShowDatabases
    | ShowTables
    | ShowSettings
    | ShowPartitions
    | ShowFunctions
    | SetSettings
    | NothingToDo
    | ShowCreate
    | Describe
    | ExistsTable
    | DropTable
    | DropView
    | UndropTable
    | TruncateTable
    | RenameTable
    | DeleteRows
    | UpdateRows
    | OptimizeTable
    | KillMutation
    | KillQuery
    | BackupCatalog
    | DrillFailover
    | ShowProcesses
    | RunService
    | CheckFiles
    | ExplainMerge
    | ExplainGc
)


def _short(statement: _Short) -> str:
    match statement:
        case CreateDatabase(database=database, if_not_exists=if_not_exists, comment=comment):
            return f"CREATE DATABASE {_if_not_exists(if_not_exists)}{quoted_name(database)}{_comment(comment)}"
        case DropDatabase(database=database, if_exists=if_exists):
            return f"DROP DATABASE {_if_exists(if_exists)}{quoted_name(database)}"
        case UseDatabase(database=database):
            return f"USE {quoted_name(database)}"
        case ShowDatabases(like=like):
            return f"SHOW DATABASES{_like(like)}"
        case ShowTables(database=database, like=like, limit=limit):
            limited = "" if limit is None else f" LIMIT {limit}"
            return f"SHOW TABLES{f' FROM {quoted_name(database)}' if database else ''}{_like(like)}{limited}"
        case ShowPartitions(name=name):
            return f"SHOW PARTITIONS FROM {_name(name)}"
        case ShowFunctions(like=like):
            return f"SHOW FUNCTIONS{_like(like)}"
        case SetSettings(settings=settings):
            return f"SET {_settings(settings)}"
        case NothingToDo(words=words):
            return words
        case ShowSettings(like=like):
            return f"SHOW SETTINGS{_like(like)}"
        case ShowCreate(name=name):
            return f"SHOW CREATE TABLE {_name(name)}"
        case Describe(name=name):
            return f"DESCRIBE TABLE {_name(name)}"
        case ExistsTable(name=name):
            return f"EXISTS TABLE {_name(name)}"
        case DropTable(name=name, if_exists=if_exists):
            return f"DROP TABLE {_if_exists(if_exists)}{_name(name)}"
        case DropView(name=name, if_exists=if_exists):
            return f"DROP VIEW {_if_exists(if_exists)}{_name(name)}"
        case UndropTable(name=name):
            return f"UNDROP TABLE {_name(name)}"
        case TruncateTable(name=name, if_exists=if_exists):
            return f"TRUNCATE TABLE {_if_exists(if_exists)}{_name(name)}"
        case RenameTable(old=old, new=new):
            return f"RENAME TABLE {_name(old)} TO {_name(new)}"
        case DeleteRows(name=name, predicate=predicate, settings=settings):
            return f"DELETE FROM {_name(name)} WHERE {predicate}{_own_settings(settings)}"
        case UpdateRows(name=name, assignments=assignments, predicate=predicate, settings=settings):
            assigned = _list(assignments, _assignment)
            return f"UPDATE {_name(name)} SET {assigned} WHERE {predicate}{_own_settings(settings)}"
        case OptimizeTable(name=name, partition=partition, final=final):
            return f"OPTIMIZE TABLE {_name(name)}{_partition_clause(partition)}{' FINAL' if final else ''}"
        case KillMutation(mutation=mutation, predicate=predicate):
            return f"KILL MUTATION {quoted_string(mutation) if mutation is not None else f'WHERE {predicate}'}"
        case KillQuery(query_id=query_id, predicate=predicate, mode=mode):
            chosen = quoted_string(query_id) if query_id is not None else f"WHERE {predicate}"
            return f"KILL QUERY {chosen}{f' {mode.value}' if mode is not KillMode.ASYNC else ''}"
        case BackupCatalog(path=path):
            return f"BACKUP CATALOG TO {quoted_string(path)}"
        case DrillFailover(name=name, seconds=seconds):
            return f"DRILL FAILOVER {_name(name)}{'' if seconds is None else f' FOR SECONDS {seconds}'}"
        case ShowProcesses():
            return "SHOW PROCESSLIST"
        case RunService(verb=verb, name=name, partition=partition, is_forced=is_forced):
            return f"SYSTEM {'FORCE ' if is_forced else ''}{verb} {_name(name)}{_partition_clause(partition)}"
        case CheckFiles(name=name, is_repair=is_repair):
            return f"SYSTEM CHECK FILES {_name(name)}{' REPAIR' if is_repair else ''}"
        case ExplainMerge(name=name, policy=policy):
            return f"EXPLAIN MERGE {_name(name)}{f' POLICY {quoted_name(policy)}' if policy else ''}"
        case ExplainGc(name=name):
            return f"EXPLAIN GC {_name(name)}"
    assert_never(statement)


def _create_table(table: CreateTable) -> str:
    lines = [f"CREATE TABLE {_if_not_exists(table.if_not_exists)}{_name(table.name)}", "("]
    lines.append(",\n".join(f"    {_column(column)}" for column in table.columns))
    version = f"({quoted_name(table.version_column)})" if table.version_column is not None else ""
    lines += [")", f"ENGINE = {table.engine}{version}"]
    if table.partition_by:
        lines.append(f"PARTITION BY {_tuple(table.partition_by, _transform)}")
    for clause, key in (
        ("ORDER BY", table.order_by),
        ("PRIMARY KEY", table.primary_key),
        ("UNIQUE KEY", table.unique_key),
    ):
        if key:
            lines.append(f"{clause} {_tuple(key, quoted_name)}")
        elif clause == "ORDER BY" and table.unique_key:
            # Without it, the unique key would be the sort key.
            lines.append("ORDER BY tuple()")
    if table.ttl is not None:
        lines.append(f"TTL {table.ttl}")
    if table.settings:
        lines.append(f"SETTINGS {_settings(table.settings)}")
    if table.comment:
        lines.append(f"COMMENT {quoted_string(table.comment)}")
    return "\n".join(lines)


def _create_view(view: CreateView) -> str:
    head = f"CREATE MATERIALIZED VIEW {_if_not_exists(view.if_not_exists)}{_name(view.name)} TO {_name(view.target)}"
    return f"{head}{_names(view.columns)}{_comment(view.comment)}\nAS {view.select}{_own_settings(view.settings)}"


def _insert(insert: InsertValues | InsertQuery | InsertData) -> str:
    head = f"INSERT INTO {_name(insert.name)}{_names(insert.columns)}"
    if insert.settings:
        head += f" SETTINGS {_settings(insert.settings)}"
    match insert:
        case InsertValues(rows=rows):
            return f"{head} VALUES {_list(rows, lambda row: f'({_list(row, _value)})')}"
        case InsertQuery(query=query):
            return f"{head} {query}"
        case InsertData(format=format_name, data=data):
            return f"{head} FORMAT {format_name}\n{data}"
    assert_never(insert)


def _query(query: Query) -> str:
    return f"{query.text}{_own_settings(query.settings)}{f' FORMAT {query.format}' if query.format else ''}"


def _storage(statement: StorageStatement) -> str:
    match statement:
        case CreateStorage(storage=name, if_not_exists=if_not_exists):
            return f"CREATE STORAGE {_if_not_exists(if_not_exists)}{quoted_name(name)} {_places(statement)}"
        case AlterStorage(storage=name, change=change, replica=replica, substitute=new):
            substitute = f" WITH {quoted_string(new)}" if new else ""
            return f"ALTER STORAGE {quoted_name(name)} {change.value} REPLICA {quoted_string(replica)}{substitute}"
        case DropStorage(storage=name, if_exists=if_exists):
            return f"DROP STORAGE {_if_exists(if_exists)}{quoted_name(name)}"
        case ShowStorages(like=like):
            return f"SHOW STORAGES{_like(like)}"
        case ShowCreateStorage(storage=name):
            return f"SHOW CREATE STORAGE {quoted_name(name)}"


def _places(statement: CreateStorage) -> str:
    if not statement.replicas:
        return f"ROOT {quoted_string(statement.root)}"
    quorum = "" if statement.quorum is None else f" QUORUM {statement.quorum}"
    return f"REPLICAS ({', '.join(map(quoted_string, statement.replicas))}){quorum}"


def _warehouse(statement: WarehouseStatement) -> str:
    match statement:
        case CreateWarehouse(warehouse=name, if_not_exists=if_not_exists, settings=settings):
            return f"CREATE WAREHOUSE {_if_not_exists(if_not_exists)}{quoted_name(name)}{_own_settings(settings)}"
        case AlterWarehouse(warehouse=name, settings=settings, reset=reset):
            change = _own_settings(settings) if settings else f" RESET SETTING {_list(reset, quoted_name)}"
            return f"ALTER WAREHOUSE {quoted_name(name)}{change}"
        case DropWarehouse(warehouse=name, if_exists=if_exists):
            return f"DROP WAREHOUSE {_if_exists(if_exists)}{quoted_name(name)}"
        case ShowWarehouses(like=like, warehouse=name):
            return f"SHOW WAREHOUSES{_like(like)}" if name is None else f"SHOW WAREHOUSE {quoted_name(name)}"
        case ShowCreateWarehouse(warehouse=name):
            return f"SHOW CREATE WAREHOUSE {quoted_name(name)}"
        case AlterWorker(worker=worker, drains=drains, because=because):
            return f"ALTER WORKER {quoted_name(worker)}{_drain(drains, because)}"
        case AlterServer(server=server, drains=drains, because=because):
            return f"ALTER SERVER {quoted_name(server)}{_drain(drains, because)}"
    assert_never(statement)


def _drain(drains: bool, because: str) -> str:
    reason = f" BECAUSE {quoted_string(because)}" if because else ""
    return f" {'DRAIN' if drains else 'RESUME'}{reason}"


def _switch(switch: SwitchService) -> str:
    text = f"SYSTEM {switch.verb} {switch.service.word}"
    if switch.name is not None:
        text += f" {_name(switch.name)}"
    if switch.duration_ms is not None:
        text += f" FOR {switch.duration_ms} ms"
    return f"{text} BECAUSE {quoted_string(switch.because)}" if switch.because else text


def _reset(reset: ResetConsumeOffset) -> str:
    head = f"SYSTEM RESET CONSUME OFFSET {_name(reset.name)} TO"
    match reset.target:
        case ResetToMark(mark=mark):
            return f"{head} {mark.name}"
        case ResetToTimestamp(milliseconds=milliseconds):
            return f"{head} TIMESTAMP {milliseconds}"
        case ResetToOffsets(offsets=offsets):
            return (
                f"{head} OFFSETS {_list(offsets, lambda o: f'({quoted_string(o.topic)}, {o.partition}, {o.offset})')}"
            )
    assert_never(reset.target)


def _operation(operation: AlterOperation) -> str:
    match operation:
        case AddColumn(column=column, if_not_exists=if_not_exists, after=after, first=first):
            place = " FIRST" if first else f" AFTER {quoted_name(after)}" if after is not None else ""
            return f"ADD COLUMN {_if_not_exists(if_not_exists)}{_column(column)}{place}"
        case DropColumn(column=name, if_exists=if_exists):
            return f"DROP COLUMN {_if_exists(if_exists)}{quoted_name(name)}"
        case ModifyColumn(column=column, if_exists=if_exists):
            return f"MODIFY COLUMN {_if_exists(if_exists)}{_column(column)}"
        case DescribeColumn():
            return _described(operation)
        case RenameColumn(old=old, new=new, if_exists=if_exists):
            return f"RENAME COLUMN {_if_exists(if_exists)}{quoted_name(old)} TO {quoted_name(new)}"
        case ModifySetting(settings=settings):
            return f"MODIFY SETTING {_settings(settings)}"
        case ResetSetting(names=names):
            return f"RESET SETTING {_list(names, quoted_name)}"
        case ModifyTtl(ttl=ttl):
            return f"MODIFY TTL {ttl}"
        case RemoveTtl():
            return "REMOVE TTL"
        case MutateUpdate(assignments=assignments, predicate=predicate):
            return f"UPDATE {_list(assignments, _assignment)} WHERE {predicate}"
        case MutateDelete(predicate=predicate):
            return f"DELETE WHERE {predicate}"
        case DropPartition(partition=partition):
            return f"DROP{_partition_clause(partition)}"
        case UndropPartition(partition=partition):
            return f"UNDROP{_partition_clause(partition)}"
    assert_never(operation)


# Phrases


def _name(name: Name) -> str:
    return f"{quoted_name(name.database)}.{quoted_name(name.table)}" if name.database else quoted_name(name.table)


def _names(names: tuple[str, ...]) -> str:
    return f" ({_list(names, quoted_name)})" if names else ""


def _column(column: ColumnSpec) -> str:
    text = f"{quoted_name(column.name)} {column.declared}"
    if not column.nullable:
        text += " NOT NULL"
    elif column.says_null:
        text += " NULL"
    if column.default is not None:
        text += f" {column.kind} {column.default}"
    if column.codec is not None:
        text += f" CODEC({column.codec})"
    return text + _comment(column.comment)


def _transform(transform: Transform) -> str:
    column = quoted_name(transform.column)
    if transform.kind is TransformKind.IDENTITY:
        return column
    return f"{transform.kind}({column if transform.argument is None else f'{transform.argument}, {column}'})"


def _settings(settings: SettingTexts) -> str:
    return _list(
        settings, lambda s: f"{quoted_name(s[0])} = {s[1] if _BARE_SETTING.fullmatch(s[1]) else quoted_string(s[1])}"
    )


def _own_settings(settings: SettingTexts) -> str:
    return f" SETTINGS {_settings(settings)}" if settings else ""


def _described(operation: DescribeColumn) -> str:
    text = f"MODIFY COLUMN {_if_exists(operation.if_exists)}{quoted_name(operation.column)}"
    if operation.no_default:
        return f"{text} REMOVE {operation.kind}"
    if operation.default is not None:
        text += f" {operation.kind} {operation.default}"
    return text if operation.comment is None else f"{text} COMMENT {quoted_string(operation.comment)}"


def _assignment(assignment: tuple[str, str]) -> str:
    return f"{quoted_name(assignment[0])} = {assignment[1]}"


def _if_exists(said: bool) -> str:
    return "IF EXISTS " if said else ""


def _if_not_exists(said: bool) -> str:
    return "IF NOT EXISTS " if said else ""


def _comment(comment: str) -> str:
    return f" COMMENT {quoted_string(comment)}" if comment else ""


def _like(pattern: str | None) -> str:
    return f" LIKE {quoted_string(pattern)}" if pattern is not None else ""


def _partition_clause(partition: Partition | None) -> str:
    if partition is None:
        return ""
    if isinstance(partition, PartitionId):
        return f" PARTITION ID {quoted_string(partition.id)}"
    return f" PARTITION tuple({_list(partition.values, _value)})"


def _value(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            text = repr(value)
            return text if text.lstrip("-") in ("nan", "inf") or "e" in text else f"{text}e0"
        case Decimal() if value.adjusted() > _DIGITS_SPELLED_MAX:
            return str(value)
        case Decimal():
            text = format(value, "f")
            return text if "." in text else f"{text}.0"
        case str():
            return quoted_string(value)
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            return f"TIMESTAMP {quoted_string(value.isoformat(sep=' '))}"
        case date():
            return f"DATE {quoted_string(value.isoformat())}"
        case ArrayValue(items=items):
            return f"[{_list(items, _value)}]"
        case TupleValue(items=items):
            return f"({_list(items, _value)})"
        case StructValue(fields=fields):
            return f"named_struct({_list(fields, lambda field: f'{quoted_string(field[0])}, {_value(field[1])}')})"
        case CastValue(value=inner, type=data_type):
            return f"CAST({_value(inner)} AS {spark_name(data_type)})"
        case MapValue(entries=entries):
            return f"{{{_list(entries, lambda entry: f'{_value(entry[0])}: {_value(entry[1])}')}}}"
    assert_never(value)


_Item = TypeVar("_Item")


def _tuple(items: tuple[_Item, ...], show: Callable[[_Item], str]) -> str:
    return show(items[0]) if len(items) == 1 else f"({_list(items, show)})"


def _list(items: Iterable[_Item], show: Callable[[_Item], str]) -> str:
    return ", ".join(show(item) for item in items)
