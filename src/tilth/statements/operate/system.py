"""SYSTEM and OPTIMIZE: switches of background services, and work that is done at once.

Always holds: a switch is in the catalog before it takes effect, so it survives a restart.
"""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa

from tilth import ingest
from tilth.base.cancel import apart
from tilth.base.units import show_bytes
from tilth.control.context.audit import audited
from tilth.control.context.names import kafka_of, relation_of, table_of, wrong_kind
from tilth.control.context.services import Call, Services
from tilth.grammar.statements import (
    CheckFiles,
    OptimizeTable,
    ResetConsumeOffset,
    ResetToMark,
    ResetToOffsets,
    ResetToTimestamp,
    RunService,
    RunVerb,
    SwitchService,
    SwitchVerb,
)
from tilth.maintenance import GcReport, OptimizeReport
from tilth.model.offset import TopicPartition
from tilth.model.service import ALL_TABLES, ServiceKind, Switch, SwitchState, newer_since_ms
from tilth.model.table import KafkaDef, Relation, TableDef, full_name
from tilth.query.results.answer import Outcome, done
from tilth.statements.alter.alter_partitions import partition_named
from tilth.statements.operate.check_files import check_files
from tilth.verify import verify

_DONE = {SwitchVerb.START: "started", SwitchVerb.STOP: "stopped", SwitchVerb.RESTART: "restarted"}


def switch_service(services: Services, call: Call, statement: SwitchService) -> Outcome:
    """Switch a service of one table; without a table, of all, those that come later too."""
    what = f"SYSTEM {statement.verb.value} {statement.service.word}"
    relation = _switched(services, call, statement, what)
    uuid, name = (ALL_TABLES, "") if relation is None else (relation.uuid, full_name(relation))
    duration_ms = statement.duration_ms or 0
    until_ms = services.clock.now_ms() + duration_ms if duration_ms else 0
    with audited(services, call, verb=what, table=name, because=statement.because, duration_ms=duration_ms):
        if statement.service is ServiceKind.CONSUME:
            _switch_consume(services, call, uuid, statement, until_ms)
        else:
            _switch_maintenance(services, call, uuid, statement, until_ms)
        # The switch is set: no other server runs the statement again, each only answers when it has stopped.
        if statement.verb is SwitchVerb.STOP and (uuid == ALL_TABLES or statement.service is ServiceKind.CONSUME):
            wait_stopped(services, statement.service, uuid)
            services.peers.wait_stopped(statement.service, uuid)
    limit = f" for {duration_ms / 1000:g} s" if duration_ms else ""
    return done(f"{statement.service.word} {_DONE[statement.verb]}{limit}: {name or 'all tables'}")


def wait_stopped(services: Services, service: ServiceKind, table: str) -> None:
    """Wait until this server begins nothing more of a service that the catalog says is stopped, for one table or for
    ALL_TABLES; its consumers have ended then, and other work that runs goes on to its end.

    Raises UnavailableError where that takes too long.
    """
    if service is ServiceKind.CONSUME:
        services.consume.wait_stopped(table)
    else:
        services.maintenance.wait_refreshed()


def _switch_consume(services: Services, call: Call, uuid: str, statement: SwitchService, until_ms: int) -> None:
    consume = services.consume
    match statement.verb:
        case SwitchVerb.START:
            consume.start_table(
                uuid, because=statement.because, until_ms=until_ms, query_id=call.query_id, client=call.client
            )
        case SwitchVerb.STOP:
            consume.stop_table(
                uuid, because=statement.because, until_ms=until_ms, query_id=call.query_id, client=call.client
            )
        case SwitchVerb.RESTART:
            consume.restart(uuid)


def _switch_maintenance(services: Services, call: Call, uuid: str, statement: SwitchService, until_ms: int) -> None:
    others = [each for each in services.catalog.services.all() if each.service is statement.service]
    services.catalog.services.set(
        Switch(
            table=uuid,
            service=statement.service,
            state=SwitchState.STOPPED if statement.verb is SwitchVerb.STOP else SwitchState.RUNNING,
            since_ms=newer_since_ms(others, now_ms=services.clock.now_ms()),
            until_ms=until_ms,
            because=statement.because,
            query_id=call.query_id,
            client=call.client,
        )
    )
    services.maintenance.wake(uuid or None)


def _switched(services: Services, call: Call, statement: SwitchService, what: str) -> Relation | None:
    if statement.name is None:
        return None
    if statement.service is ServiceKind.CONSUME:
        return kafka_of(services, call, statement.name, what=what)
    return table_of(services, call, statement.name, what=what)


def run_service(services: Services, call: Call, statement: RunService | CheckFiles) -> Outcome:
    if isinstance(statement, CheckFiles):
        return check_files(services, call, statement)
    match statement.verb:
        case RunVerb.FLUSH:
            return _flush(services, call, statement)
        case RunVerb.VERIFY:
            return _verify(services, call, statement)
        case RunVerb.GC:
            return _collect(services, call, statement)
        case RunVerb.SCRUB:
            return _scrub(services, call, statement)


def _flush(services: Services, call: Call, statement: RunService) -> Outcome:
    """Flush, and return when all rows that were unsorted at the start are in parts."""
    table = table_of(services, call, statement.name, what="SYSTEM FLUSH")
    partition = partition_named(services, table, statement.partition) if statement.partition is not None else None
    with audited(services, call, verb="SYSTEM FLUSH", table=full_name(table)) as audit:
        report = apart(
            lambda: services.maintenance.flush_now(table.uuid, partition),
            name="flush",
            hint="flushed rows stay in parts; run the statement again to continue",
        )
        size, took = show_bytes(report.bytes), f"{report.seconds:.2f} s"
        result = f"{report.segments} segments with {size} became {report.parts} parts of {report.rows} rows, {took}"
        audit.outcome = f"done: {result}"
    return done(f"flushed {full_name(table)}: {result if report.segments else 'no segments'}")


def _collect(services: Services, call: Call, statement: RunService) -> Outcome:
    what = "SYSTEM FORCE GC" if statement.is_forced else "SYSTEM GC"
    table = table_of(services, call, statement.name, what=what)
    partition = partition_named(services, table, statement.partition) if statement.partition is not None else None
    where = full_name(table) if partition is None else f"partition {partition} of {full_name(table)}"
    with audited(services, call, verb=what, table=full_name(table)) as audit:
        forced = statement.is_forced
        report = apart(
            lambda: services.maintenance.gc_now(table.uuid, partition, is_forced=forced),
            name="collect",
            hint="collected files stay removed; rounds under way continue",
        )
        result = _collected(report)
        audit.outcome = f"done: {result}"
    warning = "; queries that hold no lease, and reads of the past, may fail now" if statement.is_forced else ""
    return done(f"collected from {where}: {result}{warning}")


def _collected(report: GcReport) -> str:
    expired = f"{report.expired} partitions expired, " if report.expired else ""
    moved = f"{expired}{report.moved} records moved to the trash, {report.removed} files removed"
    freed = f"{show_bytes(report.removed_bytes)} freed, {report.kept + report.in_trash} wait"
    return f"{moved}, {freed}{_because(report.reason)}"


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _verify(services: Services, call: Call, statement: RunService) -> Outcome:
    """Return one row for each thing that was checked."""
    relation = relation_of(services, call, statement.name)
    if not isinstance(relation, TableDef | KafkaDef):
        raise wrong_kind(relation, what="SYSTEM VERIFY", needed="a table or a Kafka table")
    checks = apart(
        lambda: verify(services.catalog, services.root, relation).checks, name="verify", hint="nothing was changed"
    )
    return Outcome(
        table=pa.table(
            {
                "subject": pa.array([check.subject for check in checks], pa.string()),
                "check": pa.array([check.check for check in checks], pa.string()),
                "ok": pa.array([check.is_ok for check in checks], pa.bool_()),
                "detail": pa.array([check.detail for check in checks], pa.string()),
            }
        )
    )


def _scrub(services: Services, call: Call, statement: RunService) -> Outcome:
    """Read all copies of all files, copy good ones over wrong ones; return one row for each replica."""
    table = table_of(services, call, statement.name, what="SYSTEM SCRUB")
    with audited(services, call, verb="SYSTEM SCRUB", table=full_name(table)) as audit:
        rows = apart(
            lambda: services.maintenance.scrub_now(table.uuid),
            name="scrub",
            hint="copies that were made stay; the others are made in the background",
        )
        audit.outcome = f"done: {sum(each.wrong for each in rows)} wrong copies, {sum(each.left for each in rows)} left"
    return Outcome(
        table=pa.table(
            {
                "replica": pa.array([each.replica for each in rows], pa.int64()),
                "root": pa.array([each.root for each in rows], pa.string()),
                "files": pa.array([each.files for each in rows], pa.int64()),
                "bytes": pa.array([each.bytes for each in rows], pa.int64()),
                "wrong": pa.array([each.wrong for each in rows], pa.int64()),
                "repaired": pa.array([each.wrong - each.left for each in rows], pa.int64()),
                "ok": pa.array([each.is_ok for each in rows], pa.bool_()),
                "detail": pa.array([each.detail for each in rows], pa.string()),
            }
        )
    )


def reset_offset(services: Services, call: Call, statement: ResetConsumeOffset) -> Outcome:
    kafka = kafka_of(services, call, statement.name, what="SYSTEM RESET CONSUME OFFSET")
    with audited(services, call, verb="SYSTEM RESET CONSUME OFFSET", table=full_name(kafka)):
        offsets = services.consume.reset_offsets(kafka.uuid, _wanted(statement))
    positions = ", ".join(f"{place.topic}/{place.partition} at {offset}" for place, offset in sorted(offsets.items()))
    return done(f"{full_name(kafka)} continues at {positions or 'no topic partition'}")


def _wanted(statement: ResetConsumeOffset) -> ingest.OffsetReset:
    match statement.target:
        case ResetToMark(mark=mark):
            return ingest.ToMark(ingest.OffsetMark(mark.value))
        case ResetToTimestamp(milliseconds=milliseconds):
            return ingest.ToTime(milliseconds)
        case ResetToOffsets(offsets=offsets):
            return ingest.ToOffsets({TopicPartition(one.topic, one.partition): one.offset for one in offsets})
    assert_never(statement.target)


def optimize(services: Services, call: Call, statement: OptimizeTable) -> Outcome:
    table = table_of(services, call, statement.name, what="OPTIMIZE")
    partition = partition_named(services, table, statement.partition) if statement.partition is not None else None
    with audited(services, call, verb="OPTIMIZE", table=full_name(table)):
        final = statement.final
        report = apart(
            lambda: services.maintenance.optimize(table.uuid, partition, final),
            name="optimize",
            hint="finished merges stay; run the statement again to continue",
        )
    note = f"; {report.note}" if report.note else ""
    return done(f"optimized {full_name(table)}: {_optimized(report)}{note}")


def _optimized(report: OptimizeReport) -> str:
    """Sentence on the merges of OPTIMIZE; merges that were under way already are the background's."""
    before, after, took = report.parts_before, report.parts_after, f"{report.seconds:.2f} s"
    if report.merges:
        return f"{before} parts became {after} by {report.merges} merges, {report.rows_merged} rows, {took}"
    if after < before:
        return f"{before} parts became {after} meanwhile by merges of the background, none was left to do, {took}"
    return f"nothing to merge, {after} parts, {took}"
