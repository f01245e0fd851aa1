"""ALTER TABLE .. UPDATE and DELETE: checked by Spark's analysis, made as one entry of the mutations, waited for.

Covers: rows that are rewritten in the background. Does not cover: DELETE FROM and UPDATE, which change rows at once
(statements/rows/delete_update.py), the entry (mutation_entry.py), the rewriting of parts (maintenance).
Always holds: nothing is made before everything is checked, by this server and by a worker. See also:
docs/policies/mutations.md, query/worker/expressions.py.

Tests: tests/unit/statements/test_computed_ddl.py.
"""

from __future__ import annotations

import msgspec

from tilth.base.settings import BadSettingError
from tilth.catalog import StartMutation
from tilth.control.context.services import Call, Services, run_on_worker
from tilth.grammar.render import render_operations
from tilth.grammar.statements import MutateDelete, MutateUpdate
from tilth.model.mutation import MutationKind
from tilth.model.table import TableDef, full_name
from tilth.model.text.zones import UTC_NAMES, ZONE
from tilth.query.results.answer import Outcome
from tilth.query.snapshots.protocol import CheckedExpressions, ExpressionsTask
from tilth.statements.alter.mutation_entry import mutation_outcome, start_mutation
from tilth.statements.definitions.columns import check_updated
from tilth.statements.errors import BadAlterError


def alter_rows(
    services: Services, call: Call, table: TableDef, operation: MutateUpdate | MutateDelete, *, is_waiting: bool
) -> Outcome:
    """Start an UPDATE or DELETE of the rows for which the condition is true, in every part that is there now."""
    if call.zone_name not in UTC_NAMES:
        hint = "write times with their zone: TIMESTAMP '2026-01-31 12:00:00+02:00'"
        raise BadSettingError(
            "a mutation computes times only in UTC", setting=ZONE, value=call.zone_name, allowed="UTC", hint=hint
        )
    assignments = operation.assignments if isinstance(operation, MutateUpdate) else ()
    columns = check_updated(table, [name for name, _ in assignments])
    named = [(column.name, text) for column, (_, text) in zip(columns, assignments, strict=True)]
    task = ExpressionsTask(
        table=full_name(table),
        schema=table.schema,
        assignments=tuple(named),
        predicate=operation.predicate,
        now_ms=services.clock.now_ms(),
    )
    checked = msgspec.msgpack.decode(run_on_worker(services, task), type=CheckedExpressions)
    update = StartMutation(
        table=table.uuid,
        from_version=table.schema_version,
        kind=MutationKind.UPDATE if isinstance(operation, MutateUpdate) else MutationKind.DELETE,
        command=render_operations([operation]),
        assignments=checked.assignments,
        predicate=checked.predicate,
    )
    entry = start_mutation(services, call, table, update)
    return mutation_outcome(services, call, table, entry, update.command, is_waiting=is_waiting)


def check_mutable(table: TableDef, operation: MutateUpdate | MutateDelete) -> None:
    """Raises BadAlterError for a table with a unique key: parts that are rewritten much later than the statement was
    said would mix its effect with that of newer upserts."""
    if table.unique_key:
        verb, instead = (
            ("UPDATE", "UPDATE t SET ..") if isinstance(operation, MutateUpdate) else ("DELETE", "DELETE FROM t")
        )
        raise BadAlterError(
            f"ALTER TABLE .. {verb} cannot be used for tables with a UNIQUE KEY",
            table=full_name(table),
            hint=f"write {instead} WHERE ..: it changes the rows at once",
        )
