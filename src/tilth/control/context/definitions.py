"""A relation as the statement that makes it.

Tests: tests/unit/statements/test_sql_secrets.py, tests/unit/statements/alter/test_alter.py.
"""

from __future__ import annotations

from tilth.control.context.services import Services
from tilth.grammar.render import quoted_name, table_text, view_text
from tilth.grammar.statements import ColumnSpec, CreateTable, CreateView, Name
from tilth.model.computed import shown_expression
from tilth.model.table import Column, Engine, KafkaDef, Relation, Schema, TableDef, ViewDef
from tilth.model.types import Array, DataType, Kind, Map, Simple, Struct, quoted


def create_statement(services: Services, relation: Relation) -> str:
    """Statement that makes the relation as it is now; it can be run again."""
    name = Name(relation.database, relation.name)
    match relation:
        case TableDef():
            return table_text(
                CreateTable(
                    name=name,
                    columns=tuple(_spec(column, relation.schema) for column in relation.schema.all_columns),
                    engine=Engine.MERGE_TREE,
                    partition_by=relation.partition_by,
                    order_by=relation.order_by,
                    unique_key=relation.unique_key,
                    version_column=relation.version_column,
                    ttl=relation.ttl,
                    settings=tuple(relation.settings.items()),
                    comment=relation.comment,
                )
            )
        case KafkaDef():
            return table_text(
                CreateTable(
                    name=name,
                    columns=tuple(_spec(column, relation.schema) for column in relation.schema.columns),
                    engine=Engine.KAFKA,
                    settings=tuple(relation.settings.items()),
                    comment=relation.comment,
                )
            )
        case ViewDef():
            target = services.catalog.tables.by_id(relation.target)
            into = Name(target.database, target.name) if target is not None else Name(None, relation.target)
            return view_text(
                CreateView(name=name, target=into, select=_select(relation, target), comment=relation.comment)
            )


def _select(view: ViewDef, target: Relation | None) -> str:
    now = {column.id: column.name for column in target.schema.columns} if isinstance(target, TableDef) else {}
    names = [(name, now.get(identity, name)) for name, identity in view.target_columns]
    if all(old.lower() == new.lower() for old, new in names):
        return view.select
    columns = ", ".join(f"{quoted(old)} AS {quoted(new)}" for old, new in names)
    return f"SELECT {columns} FROM ({view.select})"


def _spec(column: Column, schema: Schema) -> ColumnSpec:
    return ColumnSpec(
        name=column.name,
        type=column.type,
        declared=column.declared_type,
        checks=column.checks,
        zones=column.zones,
        nullable=column.nullable,
        default=_shown_default(column, schema),
        kind=column.kind,
        comment=column.comment,
    )


def written_expression(column: Column, schema: Schema) -> str | None:
    """The column's expression as a statement would give it, with the names that columns have now; None: it has none."""
    return shown_expression(column, schema, quoted_name) if column.expression else column.written_default


def default_kind(column: Column) -> str:
    """ClickHouse's word for where the column's values come from; empty: it has no expression."""
    return column.kind.value if column.expression or column.written_default is not None else ""


def _shown_default(column: Column, schema: Schema) -> str | None:
    """Text as the user wrote it; a constant time as it was understood, since a session may have another zone."""
    if column.expression:
        return written_expression(column, schema)
    is_fixed = column.is_default_computed is False and _has_instants(column.type)
    return column.default if is_fixed else column.written_default


def _has_instants(data_type: DataType) -> bool:
    match data_type:
        case Array(element=element):
            return _has_instants(element)
        case Map(key=key, value=value):
            return _has_instants(key) or _has_instants(value)
        case Struct(fields=fields):
            return any(_has_instants(field.type) for field in fields)
    return data_type == Simple(Kind.TIMESTAMP)
