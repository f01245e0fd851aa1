"""SYSTEM REPLAY DEAD LETTERS: the dead letters of a Kafka table go through their views again.

Covers: the statement, from the check of its condition to the answer. Does not cover: the replay (tilth.ingest).
Always holds: nothing is replayed before the condition was checked; the answer counts what is committed.

Tests: tests/integration/ingest/test_replayed_letters.py, tests/unit/statements/operate/test_system.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tilth.control.context.audit import audited
from tilth.control.context.names import kafka_of
from tilth.control.context.services import Call, Services, run_on_worker
from tilth.control.context.warehouse_choice import warehouse_of_write
from tilth.control.kinds import StatementKind
from tilth.grammar.parse import Form
from tilth.grammar.phrases import parse_name, parse_where
from tilth.grammar.statements import Name, Statement
from tilth.grammar.text.cursor import Cursor
from tilth.ingest import ReplayReport
from tilth.model.table import TableDef, full_name
from tilth.model.task import TaskKind
from tilth.query.results.answer import Outcome, done
from tilth.query.snapshots.protocol import CheckedExpressions, ExpressionsTask, ReplayTask
from tilth.warehouse import TaskResult

_VERB = "SYSTEM REPLAY DEAD LETTERS"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDeadLetters(Statement):
    """SYSTEM REPLAY DEAD LETTERS: those of a Kafka table go through their views again."""

    name: Name
    #: Predicate over the columns of its dead-letter table; empty: all dead letters.
    predicate: str = ""


def _parse(cursor: Cursor) -> ReplayDeadLetters:
    cursor.expect("DEAD", "LETTERS")
    name = parse_name(cursor)
    predicate = parse_where(cursor) if cursor.at("WHERE") else ""
    return ReplayDeadLetters(name=name, predicate=predicate)


def replay_dead_letters(services: Services, call: Call, statement: ReplayDeadLetters) -> Outcome:
    """Return what became of the letters, after the last commit."""
    kafka = kafka_of(services, call, statement.name, what=_VERB)
    with audited(services, call, verb=_VERB, table=full_name(kafka)) as audit:
        dead = services.consume.dead_letters(kafka.uuid)
        predicate = _checked(services, dead, statement.predicate) if statement.predicate else ""
        warehouse = warehouse_of_write(call, dead)

        def run(order: bytes, txn: int, input_bytes: int) -> TaskResult:
            payload = msgspec.msgpack.encode(ReplayTask(order=order, predicate=predicate))
            spec = services.dispatcher.new_spec(
                TaskKind.QUERY,
                warehouse=warehouse,
                table=full_name(kafka),
                payload=payload,
                txn=txn,
                input_bytes=input_bytes,
            )
            return services.dispatcher.run(spec)

        report = services.consume.replay(kafka.uuid, predicate=predicate, run=run)
        result = _described(report)
        audit.outcome = f"done: {result}"
    return done(f"replayed dead letters of {full_name(kafka)}: {result}", rows_written=report.rows)


def _checked(services: Services, dead: TableDef, predicate: str) -> str:
    """Return the condition with one instant for now() and its kin."""
    task = ExpressionsTask(
        table=full_name(dead), schema=dead.schema, predicate=predicate, now_ms=services.clock.now_ms()
    )
    return msgspec.msgpack.decode(run_on_worker(services, task), type=CheckedExpressions).predicate


def _described(report: ReplayReport) -> str:
    left = "".join(f"; {letters} left: {reason}" for reason, letters in sorted(report.left.items()))
    if not report.letters:
        return f"0 letters{left}"
    again = f", {report.again} of their messages are dead letters again" if report.again else ""
    return f"{report.letters} letters in {report.transactions} transactions, {report.rows} rows stored{again}{left}"


KINDS = (
    StatementKind(
        value=ReplayDeadLetters, forms=(Form(words="SYSTEM REPLAY", parse=_parse),), perform=replay_dead_letters
    ),
)
