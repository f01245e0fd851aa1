"""CREATE, DROP, UNDROP, TRUNCATE, RENAME of databases, tables and views.

Always holds: everything is checked before anything is written, and what is written is one catalog change, or is taken
back; a view's SELECT is analysed by a worker before the view exists, and a column that does not fit is named.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tilth.base.errors import TilthError
from tilth.base.settings import read_settings
from tilth.base.units import show_time
from tilth.catalog import SYSTEM_DATABASE, HideEverything, TableInUseError, TableNotFoundError
from tilth.clickhouse.dialect_sessions import check_zones
from tilth.clickhouse.dialect_words import CLICKHOUSE
from tilth.control.context.audit import audited
from tilth.control.context.lifetimes import dropped_keep_ms
from tilth.control.context.names import place_of, relation_of, table_of, wrong_kind
from tilth.control.context.placing import check_named
from tilth.control.context.services import Call, Services, ask_worker
from tilth.grammar.statements import (
    CreateDatabase,
    CreateTable,
    CreateView,
    DropDatabase,
    DropTable,
    DropView,
    RenameTable,
    TruncateTable,
    UndropTable,
    UseDatabase,
)
from tilth.ingest import IngestSettings, check_allowed, check_group, group_of, pinned_group, read_config, standing_of
from tilth.model.storage import STORAGE_SETTING
from tilth.model.table import Column, ColumnKind, Engine, KafkaDef, Relation, Schema, TableDef, ViewDef, full_name
from tilth.model.text.zones import UTC_NAMES
from tilth.query.errors import BadDefinitionError, ComputedColumnError, UnknownColumnError
from tilth.query.results.answer import Outcome, done
from tilth.query.settings import KAFKA_TABLE_SETTINGS, TABLE_SETTINGS, check_together, check_typed
from tilth.query.snapshots.protocol import CheckTask, NamesTask
from tilth.query.snapshots.snapshots import qualified
from tilth.statements.definitions.clauses import can_be_key, check_computed, check_not_alias, check_ttl, keyed_schema
from tilth.statements.definitions.columns import column_of
from tilth.statements.definitions.kafka import ensure_dead_letters
from tilth.statements.definitions.storages import create_in_storage
from tilth.statements.definitions.type_defaults import without_null
from tilth.statements.inserts.defaults import settled
from tilth.storage import check_partition_by

#: Prefixes of the default storage policies of ByConity, which its DDL always names.
_BYCONITY_POLICIES = ("cnch_default",)


def create_database(services: Services, statement: CreateDatabase) -> Outcome:
    services.catalog.tables.create_database(statement.database, if_not_exists=statement.if_not_exists)
    return done(f"database created: {statement.database}")


def drop_database(services: Services, statement: DropDatabase) -> Outcome:
    services.catalog.tables.drop_database(statement.database, if_exists=statement.if_exists)
    return done(f"database dropped: {statement.database}")


def use_database(services: Services, statement: UseDatabase) -> Outcome:
    """Check that the database exists: the connection is the client's, and so is its database."""
    known = [*services.catalog.tables.databases(), SYSTEM_DATABASE]
    if statement.database not in known:
        # Raises with the names that are near.
        services.catalog.tables.get(statement.database, "")
    return done(f"database: {statement.database}")


def create_table(services: Services, call: Call, statement: CreateTable) -> Outcome:
    database, name = place_of(call, statement.name)
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
    services.maintenance.wake()
    return replace(done(f"table created: {full_name(made)}"), notices=notices)


def _without_byconity_policy(services: Services, settings: dict[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the settings without a default policy of ByConity, and a notice; a storage of that name is used."""
    named = settings.get(STORAGE_SETTING, "")
    if not named.startswith(_BYCONITY_POLICIES) or named in services.root.all():
        return settings, ()
    kept = {name: text for name, text in settings.items() if name != STORAGE_SETTING}
    return kept, (f"{STORAGE_SETTING} = '{named}' has no effect: the table is where new tables are",)


def _create_kafka(services: Services, call: Call, statement: CreateTable, schema: Schema) -> Outcome:
    database, name = place_of(call, statement.name)
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
    stood = standing_of(services.catalog, kafka)
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
    database, name = place_of(call, statement.name)
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
    # What can be compared can be sorted by.
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


def drop_table(services: Services, call: Call, statement: DropTable | DropView) -> Outcome:
    database, name = place_of(call, statement.name)
    relation = services.catalog.tables.find(database, name)
    if relation is None and statement.if_exists:
        return done(f"there was no {database}.{name}")
    if relation is None:
        relation = services.catalog.tables.get(database, name)
    if isinstance(statement, DropView) and not isinstance(relation, ViewDef):
        raise wrong_kind(relation, what="DROP VIEW", needed="a view")
    with audited(services, call, verb=_verb(relation, "DROP"), table=full_name(relation)):
        services.catalog.tables.drop(relation.uuid)
    _wake_after(services, relation)
    until = show_time(services.clock.now_ms() + dropped_keep_ms(services))
    kept = ""
    if isinstance(relation, KafkaDef):
        kept = f"; its offsets stay those of group {group_of(relation)}"
    return done(f"dropped: {full_name(relation)}; UNDROP TABLE brings it back until {until}{kept}")


def undrop_table(services: Services, call: Call, statement: UndropTable) -> Outcome:
    database, name = place_of(call, statement.name)
    with audited(services, call, verb="UNDROP TABLE", table=f"{database}.{name}"):
        relation = _undropped(services, database, name)
    _wake_after(services, relation)
    return done(f"restored: {full_name(relation)}")


def _undropped(services: Services, database: str, name: str) -> Relation:
    kept = [
        each
        for each in services.catalog.tables.dropped()
        if (each.relation.database, each.relation.name) == (database, name) and not each.is_going
    ]
    if not kept:
        hint = "system.dropped_tables lists the tables that can be restored"
        raise TableNotFoundError("there is no dropped table of that name", table=f"{database}.{name}", hint=hint)
    newest = max(kept, key=lambda each: each.dropped_ms).relation
    if isinstance(newest, KafkaDef):
        check_group(newest, services.catalog.tables.list())
    return services.catalog.tables.undrop(database, name)


def _verb(relation: Relation, word: str) -> str:
    return f"{word} {'VIEW' if isinstance(relation, ViewDef) else 'TABLE'}"


def _wake_after(services: Services, relation: Relation) -> None:
    match relation:
        case TableDef():
            services.maintenance.wake()
            services.consume.wake(None)
        case KafkaDef():
            services.consume.wake(relation.uuid)
        case ViewDef():
            services.consume.wake(relation.source)


def truncate_table(services: Services, call: Call, statement: TruncateTable) -> Outcome:
    database, name = place_of(call, statement.name)
    if statement.if_exists and services.catalog.tables.find(database, name) is None:
        return done(f"there was no {database}.{name}")
    table = table_of(services, call, statement.name, what="TRUNCATE")
    with audited(services, call, verb="TRUNCATE TABLE", table=full_name(table)):
        services.catalog.transactions.apply(
            f"truncate {full_name(table)} by {call.query_id}", [HideEverything(table=table.uuid)]
        )
    # What still runs there could not commit any more.
    services.maintenance.cancel_partition(table.uuid, None)
    services.maintenance.wake(table.uuid)
    return done(f"emptied: {full_name(table)}")


def rename_table(services: Services, call: Call, statement: RenameTable) -> Outcome:
    relation = relation_of(services, call, statement.old)
    database, name = place_of(call, statement.new)
    if isinstance(relation, KafkaDef):
        views = services.catalog.tables.views_of(relation.uuid)
        if views:
            raise TableInUseError(
                "views name this table in their SELECT",
                table=full_name(relation),
                views=", ".join(full_name(view) for view in views),
                hint="drop the views, rename, and create them again; offsets are kept",
            )
    # Its group is its name unless it was given one; the offsets are the group's.
    pinned = pinned_group(relation) if isinstance(relation, KafkaDef) else {}
    renamed = services.catalog.tables.rename(relation.uuid, database, name, pinned=pinned)
    _wake_after(services, renamed)
    return done(f"renamed: {full_name(relation)} is {full_name(renamed)}")


def create_view(services: Services, call: Call, statement: CreateView) -> Outcome:
    database, name = place_of(call, statement.name)
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
    filled = ask_worker(
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
    payload = ask_worker(services, NamesTask(text=statement.select))
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
