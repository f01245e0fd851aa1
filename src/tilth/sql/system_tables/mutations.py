"""`system.mutations`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.maintenance import MutationProgress
from tilth.model.mutation import Mutation, MutationState
from tilth.sql.services import Services
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
        yield (
            str(entry.id),
            *names.of(entry.table),
            entry.command,
            entry.kind.value,
            time_of_ms(entry.created_ms),
            time_of_hybrid(entry.commit_ts),
            entry.commit_ts,
            entry.state is MutationState.DONE,
            entry.state is MutationState.KILLED,
            time_of_ms(entry.ended_ms),
            *_progress(entry, progress.get((entry.table, entry.id))),
        )


def _progress(entry: Mutation, now: MutationProgress | None) -> Row:
    done = _known(entry.parts_done)
    if entry.state is not MutationState.PENDING:
        is_killed = entry.state is MutationState.KILLED
        left = _known(entry.parts_left) if is_killed else 0
        reason = f"{entry.reason}; {entry.told_parts}" if is_killed else entry.reason
        return left, done, 0, None, None, None, None, reason
    if now is None:
        return None, done, 0, None, None, None, None, "nobody works on it yet"
    return (
        now.parts_to_do,
        _known(now.parts_done),
        now.running,
        now.latest_failed_part or None,
        time_of_ms(now.latest_fail_ms),
        now.latest_fail_reason or None,
        time_of_ms(now.next_attempt_ms),
        now.state_reason,
    )


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
