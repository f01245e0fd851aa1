"""SHOW, DESCRIBE, EXISTS."""

from __future__ import annotations

import re
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc

from tilth.catalog import SYSTEM_DATABASE
from tilth.control.context.definitions import create_statement, default_kind, written_expression
from tilth.control.context.names import place_of, relation_of, table_of
from tilth.control.context.services import Call, Services
from tilth.control.running import LISTED_TEXT_MAX
from tilth.grammar.statements import (
    Describe,
    ExistsTable,
    Name,
    ShowCreate,
    ShowDatabases,
    ShowFunctions,
    ShowPartitions,
    ShowProcesses,
    ShowSettings,
    ShowTables,
)
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


def show(
    services: Services,
    call: Call,
    statement: ShowDatabases | ShowTables | ShowSettings | ShowProcesses | ShowCreate | Describe | ExistsTable,
) -> Outcome:
    match statement:
        case ShowDatabases():
            return show_databases(services, statement)
        case ShowTables():
            return show_tables(services, call, statement)
        case ShowSettings():
            return show_settings(services, statement)
        case ShowProcesses():
            return show_processes(services)
        case ShowCreate():
            return show_create(services, call, statement)
        case Describe():
            return describe(services, call, statement)
        case ExistsTable():
            return exists_table(services, call, statement)
    assert_never(statement)


def show_processes(services: Services) -> Outcome:
    """List the statements under way; long ones are shortened, which `system.processes` has whole."""
    table = find_system_table("processes").build(services).select(_PROCESS_COLUMNS)
    texts = [shortened(text, LISTED_TEXT_MAX) for text in table.column("query").to_pylist()]
    place = _PROCESS_COLUMNS.index("query")
    return Outcome(table=table.set_column(place, "query", pa.array(texts, pa.string())))


def show_more(services: Services, call: Call, statement: ShowPartitions | ShowFunctions) -> Outcome:
    """List the partitions of a table that have rows, or the functions that queries can call."""
    match statement:
        case ShowPartitions(name=name):
            table = table_of(services, call, name, what="SHOW PARTITIONS")
            rows = find_system_table("partitions").build(services)
            mine = pc.and_(pc.equal(rows["database"], table.database), pc.equal(rows["table"], table.name))
            return Outcome(table=rows.filter(mine))
        case ShowFunctions(like=like):
            allowed = allow_list()
            spelled = [spelling for spelling, _ in allowed.clickhouse.values()]
            names = {each for each in (*allowed.functions, *spelled) if each[0].isalpha() and is_like(each, like)}
            return _texts({"name": sorted(names, key=str.lower)})
    assert_never(statement)


def show_databases(services: Services, statement: ShowDatabases) -> Outcome:
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


def show_settings(services: Services, statement: ShowSettings) -> Outcome:
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
        is_there = services.catalog.tables.find(*place_of(call, statement.name)) is not None
    return Outcome(table=pa.table({"result": pa.array([is_there], pa.bool_())}))


def is_like(text: str, pattern: str | None) -> bool:
    """SQL's LIKE without regard to case; no pattern fits everything."""
    if pattern is None:
        return True
    wanted = "".join({"%": ".*", "_": "."}.get(letter, re.escape(letter)) for letter in pattern)
    return re.fullmatch(wanted, text, re.IGNORECASE | re.DOTALL) is not None


def _texts(columns: dict[str, list[str]]) -> Outcome:
    return Outcome(table=pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}))
