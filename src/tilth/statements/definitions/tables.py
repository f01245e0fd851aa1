"""CREATE TABLE and CREATE MATERIALIZED VIEW.

Always holds: everything is checked before anything is written, and what is written is one catalog change, or is taken
back; a view's SELECT is analysed by a worker before the view exists, and a column that does not fit is named.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tilth.base.errors import TilthError
from tilth.base.settings import read_settings
from tilth.clickhouse.dialect_sessions import check_zones
from tilth.clickhouse.dialect_words import CLICKHOUSE
from tilth.control.context.names import database_and_name, table_of, wrong_kind
from tilth.control.context.services import Call, Services, run_on_worker
from tilth.control.context.warehouse_choice import check_named
from tilth.control.kinds import StatementKind
from tilth.grammar.create import parse_create_table, parse_create_view
from tilth.grammar.parse import Form
from tilth.grammar.statements import CreateTable, CreateView
from tilth.ingest import IngestSettings, check_allowed, check_group, describe_group_offsets, read_config
from tilth.model.storage import STORAGE_SETTING
from tilth.model.table import Column, ColumnKind, Engine, KafkaDef, Schema, TableDef, ViewDef, full_name
from tilth.model.text.zones import UTC_NAMES
from tilth.query.errors import BadDefinitionError, UnknownColumnError
from tilth.query.results.answer import Outcome, done
from tilth.query.settings import KAFKA_TABLE_SETTINGS, TABLE_SETTINGS, check_together, check_typed
from tilth.query.snapshots.protocol import CheckTask, NamesTask
from tilth.query.snapshots.snapshots import qualified
from tilth.statements.definitions.clauses import can_be_key, check_computed, check_not_alias, check_ttl, keyed_schema
from tilth.statements.definitions.columns import column_of
from tilth.statements.definitions.kafka import ensure_dead_letters
from tilth.statements.definitions.storages import create_in_storage
from tilth.statements.definitions.type_defaults import without_null
from tilth.statements.errors import ComputedColumnError
from tilth.statements.inserts.defaults import settled
from tilth.storage import check_partition_by

#: Prefixes of the default storage policies of ByConity, which its DDL always names.
_BYCONITY_POLICIES = ("cnch_default",)


def create_table(services: Services, call: Call, statement: CreateTable) -> Outcome:
    database, name = database_and_name(call, statement.name)
    existing = services.catalog.tables.find(database, name)
    if existing is not None and statement.if_not_exists:
        return done(f"exists already: {full_name(existing)}")
    schema = _schema(call, statement)
    if statement.engine is Engine.KAFKA:
        return _create_kafka(services, call, statement, schema)
    schema = _with_defaults(services, call, statement, keyed_schema(statement, schema))
    settings, notices = _without_byconity_policy(services, TABLE_SETTINGS.canonical(dict(statement.settings)))
    check_together(settings)
    check_named(services, settings)
    table = TableDef(
        uuid=services.ids(),
        database=database,
        name=name,
        schema=schema,
        partition_by=statement.partition_by,
        order_by=tuple(_sort_column(schema, column).name for column in statement.order_by),
        unique_key=tuple(find_column(schema, column, "UNIQUE KEY").name for column in statement.unique_key),
        version_column=_version(schema, statement),
        ttl=statement.ttl,
        settings=settings,
        comment=statement.comment,
        created_ms=services.clock.now_ms(),
        next_column_id=len(schema.columns) + 1,
    )
    _check_table(statement, table)
    made = create_in_storage(services, table, if_not_exists=statement.if_not_exists)
    services.maintenance.wake(made.uuid)
    return replace(done(f"table created: {full_name(made)}"), notices=notices)


def _without_byconity_policy(services: Services, settings: dict[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the settings without a default policy of ByConity, and a notice; a storage of that name is used."""
    named = settings.get(STORAGE_SETTING, "")
    if not named.startswith(_BYCONITY_POLICIES) or named in services.root.all():
        return settings, ()
    kept = {name: text for name, text in settings.items() if name != STORAGE_SETTING}
    return kept, (f"{STORAGE_SETTING} = '{named}' has no effect: the table is where new tables are",)


def _create_kafka(services: Services, call: Call, statement: CreateTable, schema: Schema) -> Outcome:
    database, name = database_and_name(call, statement.name)
    if statement.partition_by or statement.order_by or statement.unique_key or statement.ttl:
        raise BadDefinitionError(
            "a Kafka table stores no rows: it has no keys, partitions or TTL", table=f"{database}.{name}"
        )
    given = KAFKA_TABLE_SETTINGS.canonical(dict(statement.settings))
    check_typed(given)
    check_named(services, given)
    shown, secrets = KAFKA_TABLE_SETTINGS.split_secrets(given)
    kafka = KafkaDef(
        uuid="",
        database=database,
        name=name,
        schema=_with_defaults(services, call, statement, schema),
        settings=shown,
        comment=statement.comment,
        created_ms=services.clock.now_ms(),
    )
    config = read_config(kafka, secrets)
    check_allowed(config, read_settings(IngestSettings, services.node_settings.texts))
    if services.catalog.tables.find(database, name) is not None:
        # Raises, before a dead-letter table is made for nothing.
        services.catalog.tables.create(kafka)
    check_group(kafka, services.catalog.tables.list())
    dead_letters = ensure_dead_letters(services, kafka, config)
    try:
        made = services.catalog.tables.create(kafka, if_not_exists=statement.if_not_exists, secrets=secrets)
    except TilthError:
        if dead_letters.is_new and dead_letters.table is not None:
            services.catalog.tables.drop(dead_letters.table.uuid)
        raise
    services.consume.wake(made.uuid)
    beside = f", with {full_name(dead_letters.table)}" if dead_letters.table is not None else ""
    stood = describe_group_offsets(services.catalog, kafka)
    goes_on = f"; {stood}, and goes on there if the broker has the same topics" if stood else ""
    return done(f"Kafka table created: {full_name(made)}{beside}{goes_on}")


def _schema(call: Call, statement: CreateTable) -> Schema:
    if not statement.columns:
        raise BadDefinitionError("a table needs columns", table=statement.name)
    may_be_null = call.settings.data_type_default_nullable
    specs = [spec if may_be_null else without_null(spec) for spec in statement.columns]
    aliases = [spec for spec in specs if spec.kind is ColumnKind.ALIAS]
    stored = [spec for spec in specs if spec.kind is not ColumnKind.ALIAS]
    return Schema(
        columns=tuple(column_of(spec, identity) for identity, spec in enumerate(stored, start=1)),
        aliases=tuple(column_of(spec, -identity) for identity, spec in enumerate(aliases, start=1)),
    )


def _with_defaults(services: Services, call: Call, statement: CreateTable, schema: Schema) -> Schema:
    database, name = database_and_name(call, statement.name)
    given = [column.id for column in schema.all_columns]
    return settled(services, call, f"{database}.{name}", schema, given, is_kafka=statement.engine is Engine.KAFKA)


def _version(schema: Schema, statement: CreateTable) -> str | None:
    name = statement.version_column
    return None if name is None else find_column(schema, name, "ENGINE = MergeTree(..)").name


def _check_table(statement: CreateTable, table: TableDef) -> None:
    check_computed(table)
    if statement.ttl is not None:
        check_ttl(statement.ttl, table.schema, table.created_ms)
    for transform in table.partition_by:
        find_column(table.schema, transform.column, "PARTITION BY")
    check_partition_by(table.schema, table.partition_by)
    for name in statement.primary_key:
        find_column(table.schema, name, "PRIMARY KEY")


def _sort_column(schema: Schema, name: str) -> Column:
    column = find_column(schema, name, "ORDER BY")
    # Rows can be sorted by every type whose values can be compared.
    if not can_be_key(column.type):
        raise BadDefinitionError(
            "rows cannot be sorted by a column of this type", column=column.name, type=column.declared_type
        )
    return column


def find_column(schema: Schema, name: str, clause: str) -> Column:
    """Return the column of that name; raises UnknownColumnError that names the clause and the columns there are."""
    check_not_alias(schema, name, clause)
    column = schema.find(name)
    if column is None:
        raise UnknownColumnError(column=name, clause=clause, hint=f"the columns are: {', '.join(schema.names)}")
    return column


def create_view(services: Services, call: Call, statement: CreateView) -> Outcome:
    database, name = database_and_name(call, statement.name)
    existing = services.catalog.tables.find(database, name)
    if existing is not None and statement.if_not_exists:
        return done(f"exists already: {full_name(existing)}")
    target = table_of(services, call, statement.target, what="CREATE MATERIALIZED VIEW .. TO")
    for name_of_column in statement.columns:
        filled_column = find_column(target.schema, name_of_column, "the view's columns")
        if filled_column.kind is not ColumnKind.DEFAULT:
            hint = "leave it out: the table computes it when a row is written"
            raise ComputedColumnError("no view fills this column", column=filled_column.name, hint=hint)
    kafka = _view_source(services, call, statement, f"{database}.{name}")
    if call.settings.dialect == CLICKHOUSE:
        # Views compute in UTC.
        check_zones(kafka.schema, UTC_NAMES[0], full_name(kafka))
    filled = run_on_worker(
        services, CheckTask(view=f"{database}.{name}", kafka=kafka, target=target, select=statement.select)
    )
    view = ViewDef(
        uuid="",
        database=database,
        name=name,
        source=kafka.uuid,
        target=target.uuid,
        select=statement.select,
        target_columns=msgspec.msgpack.decode(filled, type=tuple[tuple[str, int], ...]),
        comment=statement.comment,
        created_ms=services.clock.now_ms(),
    )
    made = services.catalog.tables.create(view, if_not_exists=statement.if_not_exists)
    services.consume.wake(kafka.uuid)
    return done(f"view created: {full_name(made)}, from {full_name(kafka)} into {full_name(target)}")


def _view_source(services: Services, call: Call, statement: CreateView, view: str) -> KafkaDef:
    payload = run_on_worker(services, NamesTask(text=statement.select))
    names = [qualified(name, call.database) for name in msgspec.msgpack.decode(payload, type=list[tuple[str, ...]])]
    if len(set(names)) != 1:
        raise BadDefinitionError(
            "a materialized view reads exactly one Kafka table",
            view=view,
            reads=", ".join(f"{database}.{table}" for database, table in dict.fromkeys(names)) or "nothing",
        )
    relation = services.catalog.tables.get(*names[0])
    if not isinstance(relation, KafkaDef):
        raise wrong_kind(relation, what="a materialized view's SELECT", needed="a Kafka table")
    return relation


KINDS = (
    StatementKind(
        value=CreateTable, forms=(Form(words="CREATE TABLE", parse=parse_create_table),), perform=create_table
    ),
    StatementKind(
        value=CreateView, forms=(Form(words="CREATE MATERIALIZED", parse=parse_create_view),), perform=create_view
    ),
)
