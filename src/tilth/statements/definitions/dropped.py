"""DROP, UNDROP, TRUNCATE and RENAME of tables and views.

Always holds: what is written is one catalog change; services that work on a table are notified at once.

Tests: tests/unit/statements/test_sql_answers.py, tests/unit/grammar/test_queries.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilth.base.units import show_time
from tilth.catalog import HideEverything, TableInUseError, TableNotFoundError
from tilth.control.context.audit import audited
from tilth.control.context.lifetimes import dropped_keep_ms
from tilth.control.context.names import database_and_name, relation_of, table_of, wrong_kind
from tilth.control.context.services import Call, Services
from tilth.control.kinds import StatementKind
from tilth.grammar.literals import skip_settings
from tilth.grammar.parse import Form
from tilth.grammar.phrases import parse_name, parse_table_name, read_if_exists, refuse_list, skip_sync
from tilth.grammar.statements import Name, RenameTable, Statement
from tilth.grammar.text.cursor import Cursor
from tilth.ingest import check_group, group_of, pinned_group
from tilth.model.table import KafkaDef, Relation, TableDef, ViewDef, full_name
from tilth.query.results.answer import Outcome, done


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable(Statement):
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropView(Statement):
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UndropTable(Statement):
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateTable(Statement):
    name: Name
    if_exists: bool = False


def _parse_drop_table(cursor: Cursor) -> DropTable:
    if_exists = read_if_exists(cursor)
    return DropTable(name=_dropped_name(cursor, "DROP TABLE"), if_exists=if_exists)


def _parse_drop_view(cursor: Cursor) -> DropView:
    if_exists = read_if_exists(cursor)
    return DropView(name=_dropped_name(cursor, "DROP VIEW"), if_exists=if_exists)


def _dropped_name(cursor: Cursor, what: str) -> Name:
    name = parse_table_name(cursor)
    skip_sync(cursor)
    skip_settings(cursor)
    refuse_list(cursor, what)
    return name


def _parse_undrop(cursor: Cursor) -> UndropTable:
    if cursor.at("DATABASE") or cursor.at("SCHEMA"):
        hint = "CREATE DATABASE it, then UNDROP TABLE each table; system.dropped_tables lists them"
        raise cursor.refused("UNDROP DATABASE is not supported", hint=hint)
    cursor.expect("TABLE")
    return UndropTable(name=parse_table_name(cursor))


def _parse_truncate(cursor: Cursor) -> TruncateTable:
    cursor.accept("TABLE")
    if_exists = read_if_exists(cursor)
    name = parse_table_name(cursor)
    if cursor.at("PARTITION"):
        hint = "ALTER TABLE t DROP PARTITION p empties one partition"
        raise cursor.refused("TRUNCATE of a partition is not supported", hint=hint)
    skip_sync(cursor)
    skip_settings(cursor)
    refuse_list(cursor, "TRUNCATE TABLE")
    return TruncateTable(name=name, if_exists=if_exists)


def _parse_rename(cursor: Cursor) -> RenameTable:
    cursor.expect("TABLE")
    old = parse_name(cursor)
    cursor.expect("TO")
    new = parse_table_name(cursor)
    if cursor.is_symbol(","):
        raise cursor.refused("RENAME of several tables is not supported", hint="write one RENAME for each")
    return RenameTable(old=old, new=new)


def drop_table(services: Services, call: Call, statement: DropTable | DropView) -> Outcome:
    database, name = database_and_name(call, statement.name)
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
    database, name = database_and_name(call, statement.name)
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
    database, name = database_and_name(call, statement.name)
    if statement.if_exists and services.catalog.tables.find(database, name) is None:
        return done(f"there was no {database}.{name}")
    table = table_of(services, call, statement.name, what="TRUNCATE")
    with audited(services, call, verb="TRUNCATE TABLE", table=full_name(table)):
        services.catalog.transactions.apply(
            f"truncate {full_name(table)} by {call.query_id}", [HideEverything(table=table.uuid)]
        )
    # Tasks that still run there could not commit any more.
    services.maintenance.cancel_partition(table.uuid, None)
    services.maintenance.wake(table.uuid)
    return done(f"emptied: {full_name(table)}")


def rename_table(services: Services, call: Call, statement: RenameTable) -> Outcome:
    relation = relation_of(services, call, statement.old)
    database, name = database_and_name(call, statement.new)
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


KINDS = (
    StatementKind(value=DropTable, forms=(Form(words="DROP TABLE", parse=_parse_drop_table),), perform=drop_table),
    StatementKind(
        value=DropView,
        forms=(Form(words="DROP VIEW", also=("DROP MATERIALIZED VIEW",), parse=_parse_drop_view),),
        perform=drop_table,
    ),
    StatementKind(value=UndropTable, forms=(Form(words="UNDROP", parse=_parse_undrop),), perform=undrop_table),
    StatementKind(value=TruncateTable, forms=(Form(words="TRUNCATE", parse=_parse_truncate),), perform=truncate_table),
    StatementKind(value=RenameTable, forms=(Form(words="RENAME", parse=_parse_rename),), perform=rename_table),
)
