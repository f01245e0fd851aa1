"""EXPLAIN GC: what of a table waits for collection, what keeps it and until when.
EXPLAIN MERGE: which parts would be merged next, and why.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tilth.catalog import DroppedTable, TableNotFoundError
from tilth.control.context.lifetimes import dropped_keep_ms, files_of
from tilth.control.context.names import database_and_name, table_of
from tilth.control.context.services import Call, Services
from tilth.control.kinds import StatementKind
from tilth.control.slots import Queue
from tilth.grammar.parse import Form
from tilth.grammar.phrases import parse_name
from tilth.grammar.statements import Name, Statement
from tilth.grammar.text.cursor import Cursor
from tilth.maintenance import GcRow
from tilth.model.table import TableDef
from tilth.query.results.answer import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainMerge(Statement):
    """Explains the plans of the merge policy."""

    name: Name
    #: None: the table's own.
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainGc(Statement):
    """Explains which records garbage collection would take or leave."""

    name: Name


def _parse_merge(cursor: Cursor) -> ExplainMerge:
    name = parse_name(cursor)
    _refuse_partition(cursor, "EXPLAIN MERGE")
    return ExplainMerge(name=name, policy=cursor.name("a policy") if cursor.accept("POLICY") else None)


def _parse_gc(cursor: Cursor) -> ExplainGc:
    name = parse_name(cursor)
    _refuse_partition(cursor, "EXPLAIN GC")
    return ExplainGc(name=name)


def _refuse_partition(cursor: Cursor, what: str) -> None:
    if cursor.at("PARTITION"):
        hint = "leave it out: the answer has a row for each partition, with its name in the column partition"
        raise cursor.refused(f"{what} of one partition is not supported", hint=hint)


def explain_gc(services: Services, call: Call, statement: ExplainGc) -> Outcome:
    """One row for each part, mark and range of the table, for each item of its trash, and for each dropped table of its
    name. Raises TableNotFoundError when there is neither a table of that name nor a dropped one."""
    dropped = _dropped(services, *database_and_name(call, statement.name))
    try:
        table = table_of(services, call, statement.name, what="EXPLAIN GC")
    except TableNotFoundError:
        if not dropped:
            raise
        return _answer(dropped)
    return _answer([*services.maintenance.explain_gc(table.uuid), *dropped])


def _dropped(services: Services, database: str, name: str) -> list[GcRow]:
    keep_ms = dropped_keep_ms(services)
    return [
        _dropped_row(services, each, each.dropped_ms + keep_ms)
        for each in services.catalog.tables.dropped()
        if isinstance(each.relation, TableDef) and (each.relation.database, each.relation.name) == (database, name)
    ]


def _dropped_row(services: Services, dropped: DroppedTable, until_ms: int) -> GcRow:
    is_over = dropped.is_going or until_ms <= services.clock.now_ms()
    return GcRow(
        partition="",
        entry=dropped.relation.uuid,
        kind="dropped table",
        state="removable" if is_over else "in trash",
        held_by="" if is_over else "dropped_table_keep_seconds",
        until_ms=0 if is_over else until_ms,
        bytes=sum(file.size for file in files_of(services.catalog, dropped.relation.uuid)),
        reason="its records and its folder go" if is_over else "UNDROP TABLE can bring it back",
    )


def _answer(rows: list[GcRow]) -> Outcome:
    return Outcome(
        table=pa.table(
            {
                "partition": pa.array([row.partition for row in rows], pa.string()),
                "entry": pa.array([row.entry for row in rows], pa.string()),
                "kind": pa.array([row.kind for row in rows], pa.string()),
                "state": pa.array([row.state for row in rows], pa.string()),
                "held_by": pa.array([row.held_by or None for row in rows], pa.string()),
                "until": pa.array([row.until_ms * 1000 or None for row in rows], pa.timestamp("us", tz="UTC")),
                "bytes": pa.array([row.bytes for row in rows], pa.int64()),
                "reason": pa.array([row.reason for row in rows], pa.string()),
            }
        )
    )


def explain_merge(services: Services, call: Call, statement: ExplainMerge) -> Outcome:
    """Return one row for each candidate range of parts, with the decision about it and the reason.

    With a policy: the same by that policy, then a row for each merge that it would have done to the history that the
    part log still has, and one for the sums of that history and of what really happened.
    """
    table = table_of(services, call, statement.name, what="EXPLAIN MERGE")
    rows = services.maintenance.explain_merge(table.uuid, statement.policy)
    return Outcome(
        table=pa.table(
            {
                "partition": pa.array([row.partition for row in rows], pa.string()),
                "state": pa.array([row.state for row in rows], pa.string()),
                "allowed": pa.array([row.is_allowed for row in rows], pa.bool_()),
                "reason": pa.array([row.reason for row in rows], pa.string()),
                "score": pa.array([row.score for row in rows], pa.float64()),
                "parts": pa.array([row.parts for row in rows], pa.int64()),
                "rows": pa.array([row.rows for row in rows], pa.int64()),
                "bytes": pa.array([row.bytes for row in rows], pa.int64()),
                "first_part": pa.array([row.first_part for row in rows], pa.string()),
                "last_part": pa.array([row.last_part for row in rows], pa.string()),
                "back_off": pa.array([row.back_off for row in rows], pa.string()),
                "next_attempt": pa.array(
                    [row.next_attempt_ms * 1000 or None for row in rows], pa.timestamp("us", tz="UTC")
                ),
            }
        )
    )


KINDS = (
    StatementKind(
        value=ExplainMerge,
        # EXPLAIN MERGE INTO is Spark's.
        forms=(Form(words="EXPLAIN MERGE", parse=_parse_merge, fits=lambda cursor: not cursor.is_word("INTO", 1)),),
        perform=explain_merge,
        only_reads=True,
    ),
    StatementKind(
        value=ExplainGc,
        forms=(Form(words="EXPLAIN GC", parse=_parse_gc),),
        perform=explain_gc,
        queue=Queue.WATCH,
        only_reads=True,
    ),
)
