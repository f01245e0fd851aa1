"""ALTER TABLE .. ADD | DROP | MODIFY | RENAME COLUMN: checked by Spark's analysis, one commit, waited for.

Covers: tables of rows. Does not cover: what columns become (definitions/columns.py), columns of Kafka tables
(definitions/kafka.py), the entry in the list of mutations and the wait for it (mutation_entry.py), the rewriting of
parts (maintenance).
Always holds: nothing is made before everything is checked, by this server and by a worker; the entry and the new
columns are one commit. See also: docs/policies/mutations.md, query/worker/expressions.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from tilth.catalog import StartMutation, TableInUseError
from tilth.control.context.services import Call, Services, run_on_worker
from tilth.grammar.render import render_operations
from tilth.grammar.statements import ColumnOperation
from tilth.model.mutation import MutationKind
from tilth.model.table import ColumnKind, Expression, KafkaDef, Schema, TableDef, ViewDef, full_name
from tilth.query.results.answer import Outcome, done
from tilth.query.snapshots.as_of import mark_of
from tilth.query.snapshots.protocol import CheckTask
from tilth.statements.alter.mutation_entry import mutation_outcome, start_mutation
from tilth.statements.definitions.clauses import check_computed
from tilth.statements.definitions.columns import NewColumns, changed
from tilth.statements.definitions.kafka import has_dead_letters_in
from tilth.statements.inserts.defaults import altered


def alter_columns(services: Services, call: Call, table: TableDef, operations: Sequence[ColumnOperation]) -> Outcome:
    """All operations in one commit; readers see it at once. Parts that read differently now are rewritten in the
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
    check_computed(msgspec.structs.replace(table, schema=new.schema))
    views = services.catalog.tables.views_into(table.uuid)
    if new.schema.is_stored_as(table.schema):
        # Defaults and comments: no part reads differently for it.
        for view in views if _computed(new.schema) != _computed(table.schema) else ():
            _check_view(services, view, table, new)
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
    entry = start_mutation(services, call, table, update)
    _wake_consumers(services, views)
    return mutation_outcome(services, call, table, entry, update.command, is_waiting=call.settings.mutations_sync > 0)


def _computed(schema: Schema) -> list[tuple[ColumnKind, Expression]]:
    """Return what decides which of the columns a view fills, where they are stored as before."""
    return [(column.kind, column.expression) for column in schema.columns]


def _wake_consumers(services: Services, views: Sequence[ViewDef]) -> None:
    """End rounds with the old columns; the consumers begin anew with the new ones."""
    for view in views:
        services.consume.wake(view.source)


def _check_no_dead_letters(services: Services, table: TableDef) -> None:
    for kafka in services.catalog.tables.list(table.database):
        if isinstance(kafka, KafkaDef) and has_dead_letters_in(kafka, table):
            raise TableInUseError(
                "dead letters go into this table: its columns cannot be changed",
                table=full_name(table),
                kafka_table=full_name(kafka),
                hint="name another table by kafka_dead_letter_table first",
            )


def _check_view(services: Services, view: ViewDef, table: TableDef, new: NewColumns) -> None:
    """Raises TableInUseError for a column that the view fills and that is dropped, ViewError where it would not fit."""
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
        run_on_worker(
            services,
            CheckTask(
                view=full_name(view),
                kafka=kafka,
                target=target,
                select=view.select,
                target_columns=view.target_columns,
            ),
        )
