"""KILL MUTATION: by its id, or all that a condition over `system.mutations` holds for.

Covers: the choice, the answer. Does not cover: what a killed entry means for parts (tilth.catalog).
Always holds: the answer says of each one whether it was killed, and how many parts it had reached.
"""

from __future__ import annotations

import pyarrow as pa

from tilth.catalog import MutationEndedError, MutationNotFoundError, TableNotFoundError
from tilth.model.mutation import Mutation, MutationKind, MutationState
from tilth.sql.context.services import Call, Services
from tilth.sql.errors import BadQueryError
from tilth.sql.grammar import KillMutation
from tilth.sql.results.answer import Outcome
from tilth.sql.system_tables import find_system_table
from tilth.sql.system_tables.lane import NotForThisLaneError, answer_from_system
from tilth.sql.system_tables.table import TableNames

#: So many are told of by name.
_TOLD_MAX = 10


def kill_mutations(services: Services, call: Call, statement: KillMutation) -> Outcome:
    """One row for each mutation that was killed, or that could not be any more, which the message tells.

    Raises MutationNotFoundError; TableNotFoundError for the id of a mutation whose table was dropped.
    """
    names = TableNames(services)
    rows: list[tuple[Mutation, str]] = []
    told: list[str] = []
    for entry in _chosen(services, statement):
        database, table = names.of(entry.table)
        name = f"{database}.{table}" if table else entry.table
        try:
            ended = _kill(services, call, entry, name)
            told.append(f"mutation {entry.id} of {name} was killed: {_left_behind(ended)}")
        except MutationEndedError:
            ended = services.catalog.mutations.get(entry.table, entry.id)
            became = "is done" if ended.state is MutationState.DONE else "was killed"
            told.append(f"nothing was killed: mutation {entry.id} of {name} {became} already")
        except TableNotFoundError:
            if statement.mutation is not None:
                raise
            ended = entry
            told.append(f"nothing was killed: {name}, the table of mutation {entry.id}, was dropped")
        rows.append((ended, name))
    if len(told) > _TOLD_MAX:
        told[_TOLD_MAX:] = [f"and {len(told) - _TOLD_MAX} more"]
    table_of_rows = pa.table(
        {
            "mutation_id": pa.array([str(entry.id) for entry, _ in rows], pa.string()),
            "table": pa.array([name for _, name in rows], pa.string()),
            "command": pa.array([entry.command for entry, _ in rows], pa.string()),
            "state": pa.array([entry.state.value for entry, _ in rows], pa.string()),
        }
    )
    return Outcome(table=table_of_rows, message="; ".join(told) or "nothing was killed: no pending mutation matches")


def _kill(services: Services, call: Call, entry: Mutation, name: str) -> Mutation:
    """Raises MutationEndedError, TableNotFoundError."""
    reason = f"KILL MUTATION by query {call.query_id}"
    with services.audited(call, verb="KILL MUTATION", table=name):
        if entry.state is MutationState.PENDING and services.catalog.tables.by_id(entry.table) is None:
            hint = "nobody works on it; UNDROP TABLE brings it back with its table"
            raise TableNotFoundError("the table was dropped", table=name, mutation=entry.id, hint=hint)
        ended = services.catalog.mutations.kill(entry.table, entry.id, reason)
        if entry.state is not MutationState.PENDING or ended.reason != reason:
            raise MutationEndedError(table=name, mutation=entry.id, state=ended.state)
    services.maintenance.wake(entry.table)
    return ended


def _left_behind(killed: Mutation) -> str:
    columns = "the new columns stay in force, and " if killed.kind is MutationKind.COLUMNS else ""
    return columns + killed.told_parts


def _chosen(services: Services, statement: KillMutation) -> list[Mutation]:
    entries = {str(entry.id): entry for entry in services.catalog.mutations.all()}
    if statement.mutation is not None:
        if statement.mutation not in entries:
            raise MutationNotFoundError(mutation=statement.mutation, hint="system.mutations lists them")
        return [entries[statement.mutation]]
    condition = f"({statement.predicate}\n)"
    text = f"SELECT mutation_id FROM system.mutations WHERE NOT is_done AND NOT is_killed AND {condition}"
    try:
        found = answer_from_system(text, lambda name: find_system_table(name).build(services))
    except NotForThisLaneError as error:
        raise BadQueryError(str(error), predicate=statement.predicate) from error
    return [entries[name] for name in found.column("mutation_id").to_pylist() if name in entries]
