"""SYSTEM and OPTIMIZE: switches of background services, and work that is done at once.

Always holds: a switch is in the catalog before it takes effect, so it survives a restart.
"""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa

from tilth import ingest
from tilth.base.units import show_bytes
from tilth.model.offset import TopicPartition
from tilth.model.service import ServiceKind, Switch, SwitchState
from tilth.model.table import KafkaDef, Relation, TableDef, full_name
from tilth.sql.alter import partition_named
from tilth.sql.answer import Outcome, done
from tilth.sql.errors import NotSupportedYetError
from tilth.sql.grammar import (
    ExplainMerge,
    OptimizeTable,
    ResetConsumeOffset,
    RunService,
    RunVerb,
    SwitchService,
    SwitchVerb,
    ToMark,
    ToOffsets,
    ToTimestamp,
)
from tilth.sql.services import Call, Services, kafka_of, relation_of, table_of, wrong_kind

_SPELLED = {
    ServiceKind.CONSUME: "CONSUME",
    ServiceKind.MERGE: "MERGES",
    ServiceKind.GC: "GC",
    ServiceKind.FLUSH: "FLUSH",
    ServiceKind.MUTATE: "MUTATIONS",
    ServiceKind.DELTA: "DELTAS",
}
_WITH_SWITCH = (ServiceKind.CONSUME, ServiceKind.MERGE, ServiceKind.GC)


def switch_service(services: Services, call: Call, statement: SwitchService) -> Outcome:
    what = f"SYSTEM {statement.verb.value} {_SPELLED[statement.service]}"
    if statement.service not in _WITH_SWITCH:
        raise NotSupportedYetError(statement=what)
    relations = _switched(services, call, statement, what)
    now_ms = services.clock.now_ms()
    until_ms = now_ms + statement.duration_ms if statement.duration_ms else 0
    for relation in relations:
        if statement.service is ServiceKind.CONSUME:
            _switch_consume(services, relation.uuid, statement, until_ms)
            continue
        services.catalog.services.set(
            Switch(
                table=relation.uuid,
                service=statement.service,
                state=SwitchState.STOPPED if statement.verb is SwitchVerb.STOP else SwitchState.RUNNING,
                since_ms=now_ms,
                until_ms=until_ms,
                because=statement.because,
            )
        )
    services.maintenance.wake()
    names = ", ".join(full_name(relation) for relation in relations) or "no table"
    word = {SwitchVerb.START: "started", SwitchVerb.STOP: "stopped", SwitchVerb.RESTART: "restarted"}[statement.verb]
    return done(f"{_SPELLED[statement.service]} {word}: {names}")


def _switch_consume(services: Services, uuid: str, statement: SwitchService, until_ms: int) -> None:
    match statement.verb:
        case SwitchVerb.START:
            services.consume.start_table(uuid)
        case SwitchVerb.STOP:
            services.consume.stop_table(uuid, because=statement.because, until_ms=until_ms)
        case SwitchVerb.RESTART:
            services.consume.restart(uuid)


def _switched(services: Services, call: Call, statement: SwitchService, what: str) -> list[Relation]:
    if statement.service is ServiceKind.CONSUME:
        assert statement.name is not None
        return [kafka_of(services, call, statement.name, what=what)]
    if statement.name is not None:
        return [table_of(services, call, statement.name, what=what)]
    return [one for one in services.catalog.tables.list() if isinstance(one, TableDef)]


def run_service(services: Services, call: Call, statement: RunService) -> Outcome:
    match statement.verb:
        case RunVerb.FLUSH:
            raise NotSupportedYetError(statement="SYSTEM FLUSH")
        case RunVerb.VERIFY:
            return _verify(services, call, statement)
        case RunVerb.GC:
            table = table_of(services, call, statement.name, what="SYSTEM GC")
            report = services.maintenance.gc_now(table.uuid)
            told = f"{report.moved} records moved to the trash, {report.removed} files removed"
            freed = f"{show_bytes(report.removed_bytes)} freed, {report.kept + report.in_trash} wait"
            return done(f"collected from {full_name(table)}: {told}, {freed}{_because(report.reason)}")


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _verify(services: Services, call: Call, statement: RunService) -> Outcome:
    """One row for each thing that was checked."""
    relation = relation_of(services, call, statement.name)
    if not isinstance(relation, TableDef | KafkaDef):
        raise wrong_kind(relation, what="SYSTEM VERIFY", needed="a table or a Kafka table")
    checks = services.consume.verify(relation.uuid).checks
    return Outcome(
        table=pa.table(
            {
                "subject": pa.array([check.subject for check in checks], pa.string()),
                "check": pa.array([check.check for check in checks], pa.string()),
                "ok": pa.array([check.is_ok for check in checks], pa.bool_()),
                "detail": pa.array([check.told for check in checks], pa.string()),
            }
        )
    )


def reset_offset(services: Services, call: Call, statement: ResetConsumeOffset) -> Outcome:
    kafka = kafka_of(services, call, statement.name, what="SYSTEM RESET CONSUME OFFSET")
    offsets = services.consume.reset_offsets(kafka.uuid, _wanted(statement))
    told = ", ".join(f"{place.topic}/{place.partition} at {offset}" for place, offset in sorted(offsets.items()))
    return done(f"offsets of {full_name(kafka)}: {told or 'forgotten'}")


def _wanted(statement: ResetConsumeOffset) -> ingest.OffsetReset:
    match statement.target:
        case ToMark(mark=mark):
            return ingest.ToMark(ingest.OffsetMark(mark.value))
        case ToTimestamp(milliseconds=milliseconds):
            return ingest.ToTime(milliseconds)
        case ToOffsets(offsets=offsets):
            return ingest.ToOffsets({TopicPartition(one.topic, one.partition): one.offset for one in offsets})
    assert_never(statement.target)


def optimize(services: Services, call: Call, statement: OptimizeTable) -> Outcome:
    table = table_of(services, call, statement.name, what="OPTIMIZE")
    partition = partition_named(services, table, statement.partition) if statement.partition is not None else None
    report = services.maintenance.optimize(table.uuid, partition, statement.final)
    told = f"{report.parts_before} parts became {report.parts_after} by {report.merges} merges"
    return done(f"optimized {full_name(table)}: {told}, {report.rows_merged} rows, {report.seconds:.2f} s")


def explain_merge(services: Services, call: Call, statement: ExplainMerge) -> Outcome:
    """One row for each partition or range of parts that was looked at, with what is to become of it and why."""
    table = table_of(services, call, statement.name, what="EXPLAIN MERGE")
    if statement.policy is not None:
        raise NotSupportedYetError(statement="EXPLAIN MERGE .. POLICY", table=full_name(table))
    rows = services.maintenance.explain_merge(table.uuid)
    return Outcome(
        table=pa.table(
            {
                "partition": pa.array([row.partition for row in rows], pa.string()),
                "state": pa.array([row.state for row in rows], pa.string()),
                "reason": pa.array([row.reason for row in rows], pa.string()),
                "score": pa.array([row.score for row in rows], pa.float64()),
                "parts": pa.array([row.parts for row in rows], pa.int64()),
                "rows": pa.array([row.rows for row in rows], pa.int64()),
                "bytes": pa.array([row.bytes for row in rows], pa.int64()),
                "next_attempt": pa.array(
                    [row.next_attempt_ms * 1000 or None for row in rows], pa.timestamp("us", tz="UTC")
                ),
            }
        )
    )
