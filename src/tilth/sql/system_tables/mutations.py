"""`system.mutations`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.maintenance import MutationProgress
from tilth.model.mutation import Mutation, MutationState
from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import (
    FLAG,
    INTEGER,
    TEXT,
    TIME,
    ColumnDoc,
    Row,
    SystemTable,
    TableNames,
    time_of_hybrid,
    time_of_ms,
)


def _rows(services: Services) -> Iterator[Row]:
    names = TableNames(services)
    # The entries first: what is told of one that ends in between stays without effect.
    entries = services.catalog.mutations.all()
    progress = {(each.uuid, each.id): each for each in services.maintenance.mutations()}
    for entry in entries:
        now = progress.get((entry.table, entry.id)) if entry.state is MutationState.PENDING else None
        yield Row(
            entry,
            now,
            mutation_id=str(entry.id),
            **names.row(entry.table),
            create_time=time_of_ms(entry.created_ms),
            commit_time=time_of_hybrid(entry.commit_ts),
            is_done=entry.state is MutationState.DONE,
            is_killed=entry.state is MutationState.KILLED,
            end_time=time_of_ms(entry.ended_ms),
            parts_to_do=_parts_to_do(entry, now),
            parts_done=_known(entry.parts_done if now is None else now.parts_done),
            running=0 if now is None else now.running,
            latest_failed_part=(now and now.latest_failed_part) or None,
            latest_fail_time=now and time_of_ms(now.latest_fail_ms),
            latest_fail_reason=(now and now.latest_fail_reason) or None,
            state_reason=_reason(entry, now),
        )


def _parts_to_do(entry: Mutation, now: MutationProgress | None) -> int | None:
    if entry.state is MutationState.KILLED:
        return _known(entry.parts_left)
    if entry.state is MutationState.DONE:
        return 0
    return None if now is None else now.parts_to_do


def _reason(entry: Mutation, now: MutationProgress | None) -> str:
    if entry.state is MutationState.KILLED:
        return f"{entry.reason}; {entry.told_parts}"
    if entry.state is MutationState.DONE:
        return entry.reason
    return "nobody works on it yet" if now is None else now.state_reason


def _known(count: int) -> int | None:
    return count if count >= 0 else None


TABLE = SystemTable(
    name="mutations",
    doc="One row for each ALTER that rewrites parts: those under way in the order in which they run, and the latest "
    "that have ended.",
    columns=(
        ColumnDoc("mutation_id", TEXT, "What KILL MUTATION takes; the transaction of the ALTER."),
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("command", TEXT, "What was asked."),
        ColumnDoc("kind", TEXT, "`columns`, `update` or `delete`."),
        ColumnDoc("create_time", TIME, "When it was asked."),
        ColumnDoc("commit_time", TIME, "When it was committed; those of one table run in this order."),
        ColumnDoc("commit_ts", INTEGER, "The same as a hybrid time, as in `system.ingest_ledger` and `system.parts`."),
        ColumnDoc("is_done", FLAG, "Whether no visible part needs it any more."),
        ColumnDoc("is_killed", FLAG, "Whether KILL MUTATION ended it; what was rewritten before stays so."),
        ColumnDoc("end_time", TIME, "When it was done or killed."),
        ColumnDoc(
            "parts_to_do",
            INTEGER,
            "Visible parts that still need it, of a killed one those that it never reached; NULL: not counted.",
        ),
        ColumnDoc(
            "parts_done",
            INTEGER,
            "Parts that it has reached: rewritten, or found without a row that it changes; NULL: not counted.",
        ),
        ColumnDoc("running", INTEGER, "Its tasks under way."),
        ColumnDoc("latest_failed_part", TEXT, "The part that failed last."),
        ColumnDoc("latest_fail_time", TIME, "When."),
        ColumnDoc("latest_fail_reason", TEXT, "Why."),
        ColumnDoc("next_attempt", TIME, "When that part is tried again."),
        ColumnDoc("state_reason", TEXT, "What it does now, why it waits, or why it was killed."),
    ),
    rows=_rows,
)
