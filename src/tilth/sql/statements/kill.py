"""KILL QUERY: one statement by its id, or all that a condition over `system.processes` holds for.

Covers: the choice, the answer. Does not cover: how a statement ends (running.py).
Always holds: a statement never kills itself; the answer has a row for each one that was chosen.
"""

from __future__ import annotations

import pyarrow as pa

from tilth.base.cancel import pause
from tilth.base.errors import NotFoundError
from tilth.sql.context.services import Call, Services
from tilth.sql.control.running import LISTED_TEXT_MAX, Running
from tilth.sql.errors import BadQueryError
from tilth.sql.grammar import KillMode, KillQuery
from tilth.sql.language.redact import shortened
from tilth.sql.results.answer import Outcome
from tilth.sql.system_tables import find_system_table
from tilth.sql.system_tables.lane import NotForThisLaneError, answer_from_system

#: How long SYNC waits for the end.
SYNC_SECONDS_MAX = 10.0
_POLL_SECONDS = 0.05


class QueryNotFoundError(NotFoundError):
    """no such query runs"""

    code = "QUERY_NOT_FOUND"


def kill_queries(services: Services, call: Call, statement: KillQuery) -> Outcome:
    """One row for each chosen statement: `waiting` until it has ended, `finished` when SYNC has seen that.

    Raises QueryNotFoundError for an id that does not run.
    """
    chosen = _chosen(services, call, statement)
    if statement.mode is KillMode.TEST:
        return _outcome(chosen, ["unknown_status"] * len(chosen), f"{_counted(chosen)} would be cancelled")
    for running in chosen:
        with services.audited(call, verb="KILL QUERY", because=running.query_id):
            services.running.cancel(running.query_id, by=f"KILL QUERY of query {call.query_id}")
    if statement.mode is KillMode.SYNC:
        _wait(services, chosen)
    live = {running.query_id for running, _ in services.running.list()}
    statuses = ["waiting" if running.query_id in live else "finished" for running in chosen]
    return _outcome(chosen, statuses, f"{_counted(chosen)} cancelled" if chosen else "no query matches")


def _chosen(services: Services, call: Call, statement: KillQuery) -> list[Running]:
    others = {one.query_id: one for one, _ in services.running.list() if one.query_id != call.query_id}
    if statement.query_id is not None:
        if statement.query_id not in others:
            hint = "it may have ended: system.processes shows what runs, system.query_log what has ended"
            raise QueryNotFoundError(query_id=statement.query_id, hint=hint)
        return [others[statement.query_id]]
    text = f"SELECT query_id FROM system.processes WHERE ({statement.predicate}\n)"
    try:
        found = answer_from_system(text, lambda name: find_system_table(name).build(services))
    except NotForThisLaneError as error:
        raise BadQueryError(str(error), predicate=statement.predicate) from error
    return [others[name] for name in found.column("query_id").to_pylist() if name in others]


def _wait(services: Services, chosen: list[Running]) -> None:
    deadline = services.clock.monotonic() + SYNC_SECONDS_MAX
    wanted = {running.query_id for running in chosen}
    while services.clock.monotonic() < deadline:
        if not wanted & {running.query_id for running, _ in services.running.list()}:
            return
        pause(services.clock, _POLL_SECONDS)


def _counted(chosen: list[Running]) -> str:
    return "1 query" if len(chosen) == 1 else f"{len(chosen)} queries"


def _outcome(chosen: list[Running], statuses: list[str], message: str) -> Outcome:
    columns = {
        "kill_status": statuses,
        "query_id": [running.query_id for running in chosen],
        "address": [running.origin.address for running in chosen],
        "query": [shortened(running.text, LISTED_TEXT_MAX) for running in chosen],
    }
    return Outcome(
        table=pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}), message=message
    )
