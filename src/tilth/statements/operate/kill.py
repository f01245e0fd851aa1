"""KILL QUERY and KILL MUTATION: by an id, or all that a condition over a system table holds for.

Covers: the choice, the answers. Does not cover: how a statement ends (control/running.py), what a killed mutation means
for parts (tilth.catalog).
Always holds: a statement never kills itself; the answer has a row for each one that was chosen, and says of a mutation
whether it was killed and how many parts it had reached.

Tests: tests/unit/control/test_running.py, tests/unit/statements/alter/test_alter.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from tilth.base.cancel import pause
from tilth.base.errors import NotFoundError
from tilth.catalog import MutationEndedError, MutationNotFoundError, NotHostedError, TableNotFoundError
from tilth.control.context.audit import audited
from tilth.control.context.services import Call, Services
from tilth.control.kinds import StatementKind
from tilth.control.running import LISTED_TEXT_MAX, Running
from tilth.control.slots import Queue
from tilth.grammar.parse import Form
from tilth.grammar.phrases import skip_on_cluster
from tilth.grammar.statements import Statement
from tilth.grammar.text.cursor import Cursor
from tilth.grammar.text.tokens import TokenKind
from tilth.introspection.registry import find_system_table
from tilth.introspection.system_queries import NotASystemQueryError, answer_from_system
from tilth.introspection.system_table import TableNames
from tilth.membership.peers import note_unanswered
from tilth.model.mutation import Mutation, MutationKind, MutationState
from tilth.query.errors import BadQueryError
from tilth.query.language.redact import shortened
from tilth.query.results.answer import Outcome

#: Maximum wait of SYNC for the end.
SYNC_SECONDS_MAX = 10.0
_POLL_SECONDS = 0.05
#: Mutations that the answer names.
_NAMED_MAX = 10
#: Last word of a KILL in ClickHouse.
_KILL_ENDS = ("SYNC", "ASYNC", "TEST")


@dataclass(frozen=True, slots=True, kw_only=True)
class KillMutation(Statement):
    """Exactly one of id and predicate over `system.mutations` is given; the other one is None."""

    mutation: str | None = None
    predicate: str | None = None


class KillMode(StrEnum):
    #: Returns when they were cancelled.
    ASYNC = "ASYNC"
    #: Returns when they have ended.
    SYNC = "SYNC"
    #: Ends nothing, and says which ones it would.
    TEST = "TEST"


@dataclass(frozen=True, slots=True, kw_only=True)
class KillQuery(Statement):
    """Exactly one of id and predicate over `system.processes` is given; the other one is None."""

    query_id: str | None = None
    predicate: str | None = None
    mode: KillMode = KillMode.ASYNC


def _parse_mutation(cursor: Cursor) -> KillMutation:
    if cursor.accept("WHERE"):
        predicate = cursor.expression("a predicate", lambda at: any(at.at(word) for word in _KILL_ENDS))
        _skip_kill_end(cursor)
        return KillMutation(predicate=predicate)
    if cursor.is_string():
        mutation = cursor.string("the id of a mutation")
    elif cursor.peek().kind is TokenKind.NUMBER:
        mutation = cursor.number("the id of a mutation").text
    else:
        hint = "ids are in system.mutations"
        raise cursor.expected("the id of a mutation, or WHERE", words=("WHERE",), hint=hint)
    _skip_kill_end(cursor)
    return KillMutation(mutation=mutation)


def _skip_kill_end(cursor: Cursor) -> None:
    if cursor.at("TEST"):
        hint = "SELECT .. FROM system.mutations WHERE .. shows what would be killed"
        raise cursor.refused("KILL MUTATION .. TEST is not supported", hint=hint)
    for word in ("SYNC", "ASYNC"):
        if cursor.accept(word):
            cursor.notice(f"{word} has no effect: KILL MUTATION returns when the mutations are killed")


def _parse_query(cursor: Cursor) -> KillQuery:
    skip_on_cluster(cursor)
    if cursor.accept("WHERE"):
        predicate = cursor.expression("a predicate", stop=_at_kill_mode)
        return KillQuery(predicate=predicate, mode=_kill_mode(cursor))
    if cursor.is_string():
        return KillQuery(query_id=cursor.string("the id of a query"), mode=_kill_mode(cursor))
    hint = "ids are in system.processes: KILL QUERY WHERE query_id = '..'"
    raise cursor.expected("the id of a query, or WHERE", words=("WHERE",), hint=hint)


def _at_kill_mode(cursor: Cursor) -> bool:
    return any(cursor.at(mode.value) for mode in KillMode)


def _kill_mode(cursor: Cursor) -> KillMode:
    return KillMode(cursor.choose(*KillMode)) if _at_kill_mode(cursor) else KillMode.ASYNC


def kill_queries(services: Services, call: Call, statement: KillQuery) -> Outcome:
    """One row for each chosen statement: `waiting` until it has ended, `finished` when SYNC has seen that.

    Raises NotFoundError for an id that does not run, and NotHostedError where another server runs it.
    """
    chosen = _chosen_queries(services, call, statement)
    if statement.mode is KillMode.TEST:
        return _killed_queries(chosen, ["unknown_status"] * len(chosen), f"{_counted(chosen)} would be cancelled")
    for running in chosen:
        with audited(services, call, verb="KILL QUERY", because=running.query_id):
            services.running.cancel(running.query_id, by=f"KILL QUERY of query {call.query_id}")
    if statement.mode is KillMode.SYNC:
        _wait(services, chosen)
    live = {running.query_id for running, _ in services.running.list()}
    statuses = ["waiting" if running.query_id in live else "finished" for running in chosen]
    return _killed_queries(chosen, statuses, f"{_counted(chosen)} cancelled" if chosen else "no query matches")


def _chosen_queries(services: Services, call: Call, statement: KillQuery) -> list[Running]:
    others = {one.query_id: one for one, _ in services.running.list() if one.query_id != call.query_id}
    if statement.query_id is not None:
        if statement.query_id not in others:
            _raise_if_elsewhere(services, statement.query_id)
            hint = "it may have ended: system.processes shows what runs, system.query_log what has ended"
            raise NotFoundError.coded("QUERY_NOT_FOUND", "no such query runs", query_id=statement.query_id, hint=hint)
        return [others[statement.query_id]]
    found = _ids(services, "SELECT query_id FROM system.processes WHERE", statement.predicate)
    elsewhere = sorted(set(found) - others.keys() - {call.query_id})
    if elsewhere:
        shown = ", ".join(elsewhere[:_NAMED_MAX])
        note_unanswered(f"{len(elsewhere)} more run on other servers, each is killed by its id: {shown}")
    return [others[name] for name in found if name in others]


def _raise_if_elsewhere(services: Services, query_id: str) -> None:
    """Raises NotHostedError where another server runs the query."""
    for table in find_system_table("processes").of_others(services):
        for each, server in zip(table["query_id"].to_pylist(), table["server"].to_pylist(), strict=True):
            if each == query_id:
                raise NotHostedError(query_id=query_id, server=server)


def _wait(services: Services, chosen: list[Running]) -> None:
    deadline = services.clock.monotonic() + SYNC_SECONDS_MAX
    wanted = {running.query_id for running in chosen}
    while services.clock.monotonic() < deadline:
        if not wanted & {running.query_id for running, _ in services.running.list()}:
            return
        pause(services.clock, _POLL_SECONDS)


def _counted(chosen: list[Running]) -> str:
    return "1 query" if len(chosen) == 1 else f"{len(chosen)} queries"


def _killed_queries(chosen: list[Running], statuses: list[str], message: str) -> Outcome:
    columns = {
        "kill_status": statuses,
        "query_id": [running.query_id for running in chosen],
        "address": [running.origin.address for running in chosen],
        "query": [shortened(running.text, LISTED_TEXT_MAX) for running in chosen],
    }
    return Outcome(
        table=pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}), message=message
    )


def kill_mutations(services: Services, call: Call, statement: KillMutation) -> Outcome:
    """One row for each mutation that was killed, or that could not be any more, which the message says.

    Raises MutationNotFoundError; TableNotFoundError for the id of a mutation whose table was dropped.
    """
    names = TableNames(services)
    rows: list[tuple[Mutation, str]] = []
    messages: list[str] = []
    for entry in _chosen_mutations(services, statement):
        database, table = names.of(entry.table)
        name = f"{database}.{table}" if table else entry.table
        try:
            ended = _kill(services, call, entry, name)
            messages.append(f"mutation {entry.id} of {name} was killed: {_left_behind(ended)}")
        except MutationEndedError:
            ended = services.catalog.mutations.get(entry.table, entry.id)
            became = "is done" if ended.state is MutationState.DONE else "was killed"
            messages.append(f"nothing was killed: mutation {entry.id} of {name} {became} already")
        except TableNotFoundError:
            if statement.mutation is not None:
                raise
            ended = entry
            messages.append(f"nothing was killed: {name}, the table of mutation {entry.id}, was dropped")
        rows.append((ended, name))
    if len(messages) > _NAMED_MAX:
        messages[_NAMED_MAX:] = [f"and {len(messages) - _NAMED_MAX} more"]
    table_of_rows = pa.table(
        {
            "mutation_id": pa.array([str(entry.id) for entry, _ in rows], pa.string()),
            "table": pa.array([name for _, name in rows], pa.string()),
            "command": pa.array([entry.command for entry, _ in rows], pa.string()),
            "state": pa.array([entry.state.value for entry, _ in rows], pa.string()),
        }
    )
    return Outcome(
        table=table_of_rows, message="; ".join(messages) or "nothing was killed: no pending mutation matches"
    )


def _kill(services: Services, call: Call, entry: Mutation, name: str) -> Mutation:
    """Raises MutationEndedError, TableNotFoundError."""
    reason = f"KILL MUTATION by query {call.query_id}"
    with audited(services, call, verb="KILL MUTATION", table=name):
        if entry.state is MutationState.PENDING and services.catalog.tables.by_id(entry.table) is None:
            hint = "nobody works on it; UNDROP TABLE restores it with its table"
            raise TableNotFoundError("the table was dropped", table=name, mutation=entry.id, hint=hint)
        ended = services.catalog.mutations.kill(entry.table, entry.id, reason)
        if entry.state is not MutationState.PENDING or ended.reason != reason:
            raise MutationEndedError(table=name, mutation=entry.id, state=ended.state)
    services.maintenance.wake(entry.table)
    return ended


def _left_behind(killed: Mutation) -> str:
    columns = "the new columns stay in force, and " if killed.kind is MutationKind.COLUMNS else ""
    return columns + killed.parts_summary


def _chosen_mutations(services: Services, statement: KillMutation) -> list[Mutation]:
    entries = {str(entry.id): entry for entry in services.catalog.mutations.all()}
    if statement.mutation is not None:
        if statement.mutation not in entries:
            raise MutationNotFoundError(mutation=statement.mutation, hint="system.mutations lists them")
        return [entries[statement.mutation]]
    pending = "SELECT mutation_id FROM system.mutations WHERE NOT is_done AND NOT is_killed AND"
    return [entries[name] for name in _ids(services, pending, statement.predicate) if name in entries]


def _ids(services: Services, beginning: str, predicate: str | None) -> list[str]:
    """Return the one column of a query over a system table, whose condition ends with the user's predicate.

    Raises BadQueryError for a predicate that only Spark could answer.
    """
    try:
        found = answer_from_system(
            f"{beginning} ({predicate}\n)", lambda name, wanted: find_system_table(name).build(services, wanted)
        )
    except NotASystemQueryError as error:
        raise BadQueryError(str(error), predicate=predicate) from error
    return [str(name) for name in found.column(0).to_pylist()]


KINDS = (
    StatementKind(
        value=KillQuery,
        forms=(Form(words="KILL QUERY", parse=_parse_query),),
        perform=kill_queries,
        queue=Queue.WATCH,
    ),
    StatementKind(
        value=KillMutation,
        forms=(Form(words="KILL MUTATION", parse=_parse_mutation),),
        perform=kill_mutations,
        queue=Queue.WATCH,
    ),
)
