"""SYSTEM and OPTIMIZE: switches of background services, and work that is done at once.

Always holds: a switch is in the catalog before it takes effect, so it survives a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from tilth.base.cancel import apart
from tilth.base.units import show_bytes
from tilth.control.context.audit import audited
from tilth.control.context.names import kafka_of, relation_of, table_of, wrong_kind
from tilth.control.context.services import Call, Services
from tilth.control.context.verify_reads import TaskReads
from tilth.control.kinds import StatementKind
from tilth.grammar.literals import parse_partition, read_settings_clause
from tilth.grammar.parse import Form
from tilth.grammar.phrases import parse_name, parse_table_name, read_seconds
from tilth.grammar.statements import Name, Partition, Statement
from tilth.grammar.text.cursor import Cursor
from tilth.maintenance import GcReport, OptimizeReport
from tilth.model.service import ALL_TABLES, ServiceKind, Switch, SwitchState, newer_since_ms
from tilth.model.table import KafkaDef, Relation, TableDef, full_name
from tilth.query.results.answer import Outcome, done
from tilth.query.snapshots.damaged import check_reads_all
from tilth.statements.alter.alter_partitions import partition_named
from tilth.verify import verify


class SwitchVerb(StrEnum):
    START = "START"
    STOP = "STOP"
    #: Valid for CONSUME only.
    RESTART = "RESTART"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchService(Statement):
    """SYSTEM START | STOP | RESTART of a background service."""

    verb: SwitchVerb
    service: ServiceKind
    #: None: of every table, those that come later too. Never None for RESTART.
    name: Name | None = None
    #: Time after which the switch reverts; None: never.
    duration_ms: int | None = None
    because: str = ""


class RunVerb(StrEnum):
    FLUSH = "FLUSH"
    VERIFY = "VERIFY"
    SCRUB = "SCRUB"
    GC = "GC"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunService(Statement):
    """SYSTEM FLUSH | VERIFY | SCRUB | GC: once, now."""

    verb: RunVerb
    name: Name
    partition: Partition | None = None
    #: `True` for GC that ignores the retention time of old parts.
    is_forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeTable(Statement):
    name: Name
    partition: Partition | None = None
    final: bool = False


_DONE = {SwitchVerb.START: "started", SwitchVerb.STOP: "stopped", SwitchVerb.RESTART: "restarted"}
#: Names of the services that can be switched.
_SERVICES = {service.word: service for service in ServiceKind}
#: Services whose host says when it has stopped that of one table.
_STOPPED_BY_HOST = frozenset({ServiceKind.CONSUME, ServiceKind.COPY})
#: A switch that turns back later than this was not meant to.
_DURATION_SECONDS_MAX = 3650 * 86400
_FORCED = "SYSTEM FORCE"
#: START and STOP targets of ClickHouse and ByConity that are no services here.
_SWITCHES_REFUSED = {
    "DEDUP": "keys of a table with UNIQUE KEY are unique at once; no service works on it",
    "TTL": "rows expire by SYSTEM STOP | START GC and MERGES",
    "MOVES": "parts do not move: there is one store",
    "FETCHES": "SYSTEM STOP | START REPLICATION says whether missing copies are made",
    "REPLICATED": "SYSTEM STOP | START REPLICATION says whether missing copies are made",
    "DISTRIBUTED": "there is nothing to send: SYSTEM STOP CONSUME stops ingestion",
    "CLUSTERING": "there is no such service",
    "MATERIALIZEDMYSQL": "there is no such service",
    "LISTEN": "stop the node to close its port",
    "VIEW": "SYSTEM STOP CONSUME k stops all views of a Kafka table",
    "VIEWS": "SYSTEM STOP CONSUME stops all views",
}


def _switch(verb: SwitchVerb) -> Form:
    return Form(words=f"SYSTEM {verb.value}", parse=lambda cursor: _parse_switch(cursor, verb))


def _run(words: str, verb: RunVerb) -> Form:
    def parse(cursor: Cursor) -> RunService:
        if words == _FORCED:
            cursor.expect("GC")
        name = parse_name(cursor)
        partition = parse_partition(cursor) if cursor.accept("PARTITION") else None
        return RunService(verb=verb, name=name, partition=partition, is_forced=words == _FORCED)

    return Form(words=words, parse=parse)


def _parse_switch(cursor: Cursor, verb: SwitchVerb) -> SwitchService:
    words = ("CONSUME",) if verb is SwitchVerb.RESTART else tuple(_SERVICES)
    for word, hint in _SWITCHES_REFUSED.items():
        if cursor.at(word):
            raise cursor.refused(f"SYSTEM {verb.value} {word} is not supported", hint=hint)
    service = _SERVICES[cursor.choose(*words)]
    name = None
    # `ON` may stand in front of the table, as behind the name of a pipe.
    is_named = service is ServiceKind.COPY and cursor.accept("ON")
    if is_named or verb is SwitchVerb.RESTART or not (cursor.at_end or cursor.at("FOR") or cursor.at("BECAUSE")):
        name = parse_name(cursor)
    duration_ms: int | None = None
    because: str | None = None
    while True:
        if duration_ms is None and verb is not SwitchVerb.RESTART and cursor.accept("FOR"):
            duration_ms = _duration(cursor)
        elif because is None and cursor.accept("BECAUSE"):
            because = _reason(cursor)
        else:
            break
    return SwitchService(verb=verb, service=service, name=name, duration_ms=duration_ms, because=because or "")


def _reason(cursor: Cursor) -> str:
    if not cursor.is_string():
        raise cursor.expected("the reason", hint="put it in single quotes: BECAUSE 'a benchmark runs'")
    return cursor.string("the reason")


def _duration(cursor: Cursor) -> int:
    """`10 minutes` or `INTERVAL 10 MINUTE`, in milliseconds."""
    cursor.accept("INTERVAL")
    hint = "write FOR 10 minutes; units: ms, seconds, minutes, hours, days"
    seconds, text, token = read_seconds(cursor, "duration", hint=hint)
    if not 0.001 <= seconds <= _DURATION_SECONDS_MAX:
        raise cursor.error(f"not a useful duration: {text}", at=token, hint="from 1 ms to 10 years")
    return round(seconds * 1000)


def _parse_optimize(cursor: Cursor) -> OptimizeTable:
    cursor.expect("TABLE")
    name = parse_table_name(cursor)
    partition = parse_partition(cursor) if cursor.accept("PARTITION") else None
    final = cursor.accept("FINAL")
    if cursor.at("DEDUPLICATE"):
        raise cursor.refused("DEDUPLICATE is not supported", hint="give the table a UNIQUE KEY")
    for name_of_setting, _ in read_settings_clause(cursor):
        cursor.notice(f"{name_of_setting} has no effect on OPTIMIZE, which returns when its merges are done")
    return OptimizeTable(name=name, partition=partition, final=final)


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
        if statement.verb is SwitchVerb.STOP and (uuid == ALL_TABLES or statement.service in _STOPPED_BY_HOST):
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
    elif service is ServiceKind.COPY:
        services.pipes.wait_stopped(table)
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
    if statement.service is ServiceKind.COPY:
        services.pipes.wake(uuid or None)
    else:
        services.maintenance.wake(uuid or None)


def _switched(services: Services, call: Call, statement: SwitchService, what: str) -> Relation | None:
    if statement.name is None:
        return None
    if statement.service is ServiceKind.CONSUME:
        return kafka_of(services, call, statement.name, what=what)
    return table_of(services, call, statement.name, what=what)


def run_service(services: Services, call: Call, statement: RunService) -> Outcome:
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
        size, duration = show_bytes(report.bytes), f"{report.seconds:.2f} s"
        result = f"{report.segments} segments with {size} became {report.parts} parts of {report.rows} rows, {duration}"
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
        lambda: verify(services.catalog, services.root, relation, TaskReads(services, call, relation)).checks,
        name="verify",
        hint="nothing was changed",
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


def optimize(services: Services, call: Call, statement: OptimizeTable) -> Outcome:
    check_reads_all(call.settings)
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
    before, after, duration = report.parts_before, report.parts_after, f"{report.seconds:.2f} s"
    if report.merges:
        return f"{before} parts became {after} by {report.merges} merges, {report.rows_merged} rows, {duration}"
    if after < before:
        return f"{before} parts became {after} meanwhile by merges of the background, none was left to do, {duration}"
    return f"nothing to merge, {after} parts, {duration}"


KINDS = (
    StatementKind(value=SwitchService, forms=tuple(_switch(verb) for verb in SwitchVerb), perform=switch_service),
    StatementKind(
        value=RunService,
        forms=(*(_run(f"SYSTEM {verb.value}", verb) for verb in RunVerb), _run(_FORCED, RunVerb.GC)),
        perform=run_service,
    ),
    StatementKind(value=OptimizeTable, forms=(Form(words="OPTIMIZE", parse=_parse_optimize),), perform=optimize),
)
