"""What changes columns and rows: checked by Spark's analysis, made as one entry of the catalog's list, waited for.

Covers: ALTER .. ADD | DROP | MODIFY | RENAME COLUMN, UPDATE and DELETE in both spellings.
Does not cover: what columns become (columns.py), the wait (mutation_entry.py), KILL MUTATION (kill_mutation.py), the
rewriting of parts (maintenance).
Always holds: nothing is made before everything is checked, by this server and by a worker; the entry and the new
columns are one commit. See also: docs/policies/mutations.md, expressions.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from tilth.base.settings import BadSettingError
from tilth.catalog import StartMutation, TableInUseError
from tilth.model.mutation import MutationKind
from tilth.model.table import KafkaDef, TableDef, ViewDef, full_name
from tilth.sql.context.services import Call, Services
from tilth.sql.grammar import (
    ColumnOperation,
    MutateDelete,
    MutateUpdate,
    render_operations,
)
from tilth.sql.inserts.defaults import altered
from tilth.sql.query.past import mark_of
from tilth.sql.query.protocol import CheckedExpressions, CheckTask, ExpressionsTask
from tilth.sql.results.answer import Outcome, done
from tilth.sql.settings import UTC_NAMES, ZONE
from tilth.sql.statements.columns import NewColumns, changed, check_unprotected, find_in
from tilth.sql.statements.dead_letters import has_dead_letters_in
from tilth.sql.statements.mutation_entry import wait_for_mutation
from tilth.sql.statements.select import ask_worker

# Columns


def alter_columns(services: Services, call: Call, table: TableDef, operations: Sequence[ColumnOperation]) -> Outcome:
    """All operations in one commit; readers see it at once. Parts that look different now are rewritten in the
    background."""
    _check_no_dead_letters(services, table)
    is_checking = call.settings.force_alter_conflict_check
    versions = {part.schema_version for part in services.catalog.parts.snapshot(table.uuid).parts}
    pending = services.catalog.mutations.pending(table.uuid) if is_checking else []
    new = changed(table, operations, pending, versions=versions)
    new = (
        None
        if new is None
        else replace(new, schema=altered(services, call, full_name(table), table.schema, new.schema))
    )
    if new is None or new.schema == table.schema:
        return done(f"nothing to change in {full_name(table)}")
    views = services.catalog.tables.views_into(table.uuid)
    if new.schema.is_stored_as(table.schema):
        # Defaults and comments: no part looks different for it.
        services.catalog.tables.describe_columns(
            table.uuid, table.schema_version, new.schema, keep_ts=mark_of(table, services.clock)
        )
        _wake_consumers(services, views)
        return done(f"columns changed: {full_name(table)}")
    for view in views:
        _check_view(services, view, table, new)
    update = StartMutation(
        table=table.uuid,
        from_version=table.schema_version,
        kind=MutationKind.COLUMNS,
        command=render_operations(operations),
        schema=new.schema,
        next_column_id=new.next_column_id,
    )
    entry = _start(services, table, update)
    _wake_consumers(services, views)
    return _answer(services, call, table, entry, update.command, is_waiting=call.settings.mutations_sync > 0)


def _wake_consumers(services: Services, views: Sequence[ViewDef]) -> None:
    """They end with the old columns' rounds and begin anew with the new ones."""
    for view in views:
        services.consume.wake(view.source)


def _check_no_dead_letters(services: Services, table: TableDef) -> None:
    for kafka in services.catalog.tables.list(table.database):
        if isinstance(kafka, KafkaDef) and has_dead_letters_in(kafka, table):
            raise TableInUseError(
                "dead letters go into this table: its columns stay as they are",
                table=full_name(table),
                kafka_table=full_name(kafka),
                hint="name another table by kafka_dead_letter_table first",
            )


def _check_view(services: Services, view: ViewDef, table: TableDef, new: NewColumns) -> None:
    """Raises TableInUseError for a column that the view fills and that goes, ViewError where it would not fit."""
    kept = {column.id for column in new.schema.columns}
    filled = {identity for _, identity in view.target_columns}
    for column in table.schema.columns:
        if column.id in filled and column.id not in kept:
            raise TableInUseError(
                "a view fills this column",
                table=full_name(table),
                column=column.name,
                view=full_name(view),
                hint="DROP VIEW it, and create it again without the column; offsets are kept",
            )
    kafka = services.catalog.tables.by_id(view.source)
    if isinstance(kafka, KafkaDef):
        target = msgspec.structs.replace(table, schema=new.schema)
        ask_worker(
            services,
            CheckTask(
                view=full_name(view),
                kafka=kafka,
                target=target,
                select=view.select,
                target_columns=view.target_columns,
                quotes_names=view.quotes_names,
            ),
        )


# Rows


def alter_rows(
    services: Services, call: Call, table: TableDef, operation: MutateUpdate | MutateDelete, *, is_waiting: bool
) -> Outcome:
    """UPDATE or DELETE of the rows that the condition is true for, in every part that is there now."""
    if call.zone_name not in UTC_NAMES:
        hint = "write times with their zone: TIMESTAMP '2026-01-31 12:00:00+02:00'"
        raise BadSettingError(
            "a mutation computes times in UTC only", setting=ZONE, value=call.zone_name, allowed="UTC", hint=hint
        )
    assignments = operation.assignments if isinstance(operation, MutateUpdate) else ()
    named = []
    for name, text in assignments:
        column = find_in(table.schema, name)
        check_unprotected(table, column, "UPDATE")
        named.append((column.name, text))
    task = ExpressionsTask(
        table=full_name(table),
        schema=table.schema,
        assignments=tuple(named),
        predicate=operation.predicate,
        now_ms=services.clock.now_ms(),
    )
    checked = msgspec.msgpack.decode(ask_worker(services, task), type=CheckedExpressions)
    update = StartMutation(
        table=table.uuid,
        from_version=table.schema_version,
        kind=MutationKind.UPDATE if isinstance(operation, MutateUpdate) else MutationKind.DELETE,
        command=render_operations([operation]),
        assignments=checked.assignments,
        predicate=checked.predicate,
    )
    entry = _start(services, table, update)
    return _answer(services, call, table, entry, update.command, is_waiting=is_waiting)


# The entry


def _start(services: Services, table: TableDef, update: StartMutation) -> int:
    entry = services.catalog.transactions.apply(f"alter {full_name(table)}", [update])
    services.maintenance.wake(table.uuid)
    return entry


def _answer(services: Services, call: Call, table: TableDef, entry: int, command: str, *, is_waiting: bool) -> Outcome:
    if not is_waiting:
        return done(f"mutation {entry} of {full_name(table)} has begun: {command}")
    wait_for_mutation(services, table, entry, call.settings.mutations_wait_timeout_seconds)
    return done(f"mutation {entry} of {full_name(table)} is done: {command}")
