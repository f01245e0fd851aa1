"""SHOW, DESCRIBE, EXISTS.

Tests: tests/unit/grammar/test_queries.py, tests/unit/statements/definitions/test_tables.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tilth.catalog import SYSTEM_DATABASE
from tilth.control.context.definitions import create_statement, default_kind, written_expression
from tilth.control.context.names import database_and_name, relation_of, table_of
from tilth.control.context.services import Call, Services
from tilth.control.kinds import StatementKind
from tilth.control.running import LISTED_TEXT_MAX
from tilth.control.slots import Queue
from tilth.grammar.literals import skip_settings
from tilth.grammar.parse import Form
from tilth.grammar.phrases import parse_name
from tilth.grammar.statements import Name, Statement
from tilth.grammar.text.cursor import Cursor
from tilth.introspection.registry import find_system_table, system_table_names
from tilth.model.table import Column, Schema, TableDef, ViewDef
from tilth.model.types import spark_name
from tilth.query.language.redact import shortened
from tilth.query.results.answer import Outcome
from tilth.query.settings import all_settings
from tilth.storage import schema_from_arrow
from tilth.warehouse import allow_list

#: Columns of `system.processes` in SHOW PROCESSLIST.
_PROCESS_COLUMNS = ["query_id", "address", "elapsed", "state", "stages_done", "stages_total", "query"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowDatabases(Statement):
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTables(Statement):
    database: str | None = None
    like: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowPartitions(Statement):
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowFunctions(Statement):
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSettings(Statement):
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreate(Statement):
    name: Name


@dataclass(frozen=True, slots=True)
class ShowProcesses(Statement):
    """SHOW PROCESSLIST."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(Statement):
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistsTable(Statement):
    name: Name


def _parse_tables(cursor: Cursor) -> ShowTables:
    is_elsewhere = cursor.accept("FROM") or cursor.accept("IN")
    database = cursor.name("the name of a database") if is_elsewhere else None
    like = _like(cursor)
    limit = cursor.integer("a number of tables") if cursor.accept("LIMIT") else None
    return ShowTables(database=database, like=like, limit=limit)


def _parse_create(cursor: Cursor) -> ShowCreate:
    if cursor.is_name(1) and (cursor.at("DATABASE") or cursor.at("SCHEMA")):
        hint = "CREATE DATABASE name makes it: a database has nothing but its name"
        raise cursor.refused("SHOW CREATE DATABASE is not supported", hint=hint)
    if not cursor.accept("TABLE"):
        cursor.accept("VIEW")
    return ShowCreate(name=parse_name(cursor))


def _name_from(cursor: Cursor) -> Name:
    """`FROM db.t`, `FROM t FROM db` or the name alone."""
    if not cursor.accept("FROM"):
        cursor.accept("IN")
    name = parse_name(cursor)
    if cursor.accept("FROM") or cursor.accept("IN"):
        return Name(cursor.name("the name of a database"), name.table)
    return name


def _like(cursor: Cursor) -> str | None:
    return cursor.string("a pattern") if cursor.accept("LIKE") else None


def _parse_describe(cursor: Cursor) -> Describe:
    cursor.accept("TABLE")
    if cursor.is_symbol("(") or cursor.at("SELECT"):
        hint = "over HTTP, SELECT .. LIMIT 0 FORMAT JSON answers its names and types; DESCRIBE t those of a table"
        raise cursor.refused("DESCRIBE of a query is not supported", hint=hint)
    name = parse_name(cursor)
    if cursor.is_symbol("("):
        hint = "DESCRIBE takes the name of a table: queries read no files and no addresses"
        raise cursor.refused(f"DESCRIBE of {name}(..) is not supported", hint=hint)
    skip_settings(cursor)
    return Describe(name=name)


def _parse_exists(cursor: Cursor) -> ExistsTable:
    if cursor.is_name(1) and (cursor.at("DATABASE") or cursor.at("DICTIONARY")):
        hint = "SELECT name FROM system.databases" if cursor.at("DATABASE") else "create a table and join it"
        raise cursor.refused(f"EXISTS {cursor.peek().text.upper()} is not supported", hint=hint)
    cursor.accept("TEMPORARY")
    if not cursor.accept("TABLE"):
        cursor.accept("VIEW")
    return ExistsTable(name=parse_name(cursor))


def show_processes(services: Services, call: Call, statement: ShowProcesses) -> Outcome:
    """List the statements under way; long ones are shortened, which `system.processes` has whole."""
    table = find_system_table("processes").build(services).select(_PROCESS_COLUMNS)
    texts = [shortened(text, LISTED_TEXT_MAX) for text in table.column("query").to_pylist()]
    index = _PROCESS_COLUMNS.index("query")
    return Outcome(table=table.set_column(index, "query", pa.array(texts, pa.string())))


def show_partitions(services: Services, call: Call, statement: ShowPartitions) -> Outcome:
    """List the partitions of a table that have rows."""
    table = table_of(services, call, statement.name, what="SHOW PARTITIONS")
    rows = find_system_table("partitions").build(services)
    mine = pc.and_(pc.equal(rows["database"], table.database), pc.equal(rows["table"], table.name))
    return Outcome(table=rows.filter(mine))


def show_functions(services: Services, call: Call, statement: ShowFunctions) -> Outcome:
    """List the functions that queries can call."""
    allowed = allow_list()
    spelled = [spelling for spelling, _ in allowed.clickhouse.values()]
    names = {each for each in (*allowed.functions, *spelled) if each[0].isalpha() and is_like(each, statement.like)}
    return _texts({"name": sorted(names, key=str.lower)})


def show_databases(services: Services, call: Call, statement: ShowDatabases) -> Outcome:
    names = [*services.catalog.tables.databases(), SYSTEM_DATABASE]
    return _texts({"name": [name for name in names if is_like(name, statement.like)]})


def show_tables(services: Services, call: Call, statement: ShowTables) -> Outcome:
    database = statement.database or call.database
    if database.lower() == SYSTEM_DATABASE:
        found = [(name, "System") for name in system_table_names()]
    else:
        if database not in services.catalog.tables.databases():
            # Raises with the names that are near.
            services.catalog.tables.get(database, "")
        found = [(one.name, one.engine.value) for one in services.catalog.tables.list(database)]
    kept = [(name, engine) for name, engine in found if is_like(name, statement.like)][: statement.limit]
    return _texts({"name": [name for name, _ in kept], "engine": [engine for _, engine in kept]})


def show_settings(services: Services, call: Call, statement: ShowSettings) -> Outcome:
    found = [setting for setting in all_settings(services.upper_settings) if is_like(setting.name, statement.like)]
    return _texts(
        {
            "name": [setting.name for setting in found],
            "scope": [setting.scope.value for setting in found],
            "default": [setting.default_text for setting in found],
            "unit": [setting.unit for setting in found],
            "doc": [setting.doc for setting in found],
        }
    )


def show_create(services: Services, call: Call, statement: ShowCreate) -> Outcome:
    return _texts({"statement": [create_statement(services, relation_of(services, call, statement.name))]})


def describe(services: Services, call: Call, statement: Describe) -> Outcome:
    schema = _columns(services, call, statement.name)
    columns = schema.all_columns
    return Outcome(
        table=pa.table(
            {
                "name": pa.array([column.name for column in columns], pa.string()),
                "type": pa.array([spark_name(column.type) for column in columns], pa.string()),
                "declared": pa.array([column.declared_type for column in columns], pa.string()),
                "nullable": pa.array([column.nullable for column in columns], pa.bool_()),
                "default_kind": pa.array([default_kind(column) for column in columns], pa.string()),
                "default": pa.array([written_expression(column, schema) for column in columns], pa.string()),
                "comment": pa.array([column.comment for column in columns], pa.string()),
            }
        )
    )


def _columns(services: Services, call: Call, name: Name) -> Schema:
    if (name.database or call.database).lower() == SYSTEM_DATABASE:
        found = find_system_table(name.table)
        columns = schema_from_arrow(found.schema).columns
        documented = zip(columns, found.all_columns, strict=True)
        return Schema(
            columns=tuple(Column(id=one.id, name=one.name, type=one.type, comment=of.doc) for one, of in documented)
        )
    relation = relation_of(services, call, name)
    if isinstance(relation, ViewDef):
        target = services.catalog.tables.by_id(relation.target)
        return target.schema if isinstance(target, TableDef) else Schema(columns=())
    return relation.schema


def exists_table(services: Services, call: Call, statement: ExistsTable) -> Outcome:
    if (statement.name.database or call.database).lower() == SYSTEM_DATABASE:
        is_there = statement.name.table.lower() in system_table_names()
    else:
        is_there = services.catalog.tables.find(*database_and_name(call, statement.name)) is not None
    return Outcome(table=pa.table({"result": pa.array([is_there], pa.bool_())}))


def is_like(text: str, pattern: str | None) -> bool:
    """SQL's LIKE without regard to case; no pattern fits everything."""
    if pattern is None:
        return True
    wanted = "".join({"%": ".*", "_": "."}.get(letter, re.escape(letter)) for letter in pattern)
    return re.fullmatch(wanted, text, re.IGNORECASE | re.DOTALL) is not None


def _texts(columns: dict[str, list[str]]) -> Outcome:
    return Outcome(table=pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}))


KINDS = (
    StatementKind(
        value=ShowDatabases,
        forms=(Form(words="SHOW DATABASES", parse=lambda cursor: ShowDatabases(like=_like(cursor))),),
        perform=show_databases,
        queue=Queue.WATCH,
        only_reads=True,
    ),
    StatementKind(
        value=ShowTables,
        forms=(Form(words="SHOW TABLES", parse=_parse_tables),),
        perform=show_tables,
        queue=Queue.WATCH,
        only_reads=True,
    ),
    StatementKind(
        value=ShowPartitions,
        forms=(Form(words="SHOW PARTITIONS", parse=lambda cursor: ShowPartitions(name=_name_from(cursor))),),
        perform=show_partitions,
        queue=Queue.WATCH,
        only_reads=True,
    ),
    StatementKind(
        value=ShowFunctions,
        forms=(Form(words="SHOW FUNCTIONS", parse=lambda cursor: ShowFunctions(like=_like(cursor))),),
        perform=show_functions,
        queue=Queue.WATCH,
        only_reads=True,
    ),
    StatementKind(
        value=ShowSettings,
        forms=(
            Form(words="SHOW SETTINGS", parse=lambda cursor: ShowSettings(like=_like(cursor))),
            Form(words="SHOW SETTING", parse=lambda cursor: ShowSettings(like=cursor.name("the name of a setting"))),
        ),
        perform=show_settings,
        queue=Queue.WATCH,
        only_reads=True,
    ),
    StatementKind(
        value=ShowProcesses,
        forms=(Form(words="SHOW PROCESSLIST", parse=lambda cursor: ShowProcesses()),),
        perform=show_processes,
        queue=Queue.WATCH,
        only_reads=True,
    ),
    StatementKind(
        value=ShowCreate,
        forms=(Form(words="SHOW CREATE", parse=_parse_create),),
        perform=show_create,
        queue=Queue.WATCH,
        only_reads=True,
    ),
    StatementKind(
        value=Describe,
        forms=(
            Form(words="DESCRIBE", also=("DESC",), parse=_parse_describe),
            Form(words="SHOW COLUMNS", parse=lambda cursor: Describe(name=_name_from(cursor))),
        ),
        perform=describe,
        queue=Queue.WATCH,
        only_reads=True,
    ),
    StatementKind(
        value=ExistsTable,
        forms=(Form(words="EXISTS", parse=_parse_exists),),
        perform=exists_table,
        queue=Queue.WATCH,
        only_reads=True,
    ),
)
