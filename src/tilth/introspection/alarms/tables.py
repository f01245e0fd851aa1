"""Alarms of tables that store rows: what fails, is damaged, crowded, stuck or lost.

Covers: their declarations and thresholds. Does not cover: the services (tilth.maintenance), Kafka tables (streams.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.base.hybrid import milliseconds
from tilth.base.units import show_count, show_time
from tilth.introspection.alarms.alarm import Alarm, AlarmFinding, Severity
from tilth.introspection.alarms.observation import Observation
from tilth.maintenance import OpKind
from tilth.model.service import ServiceKind
from tilth.model.table import full_name
from tilth.model.task import TaskState

#: Failures in a row: the first attempts are repeated within seconds, and most failures end with them.
FAILURES_MIN = 3
#: Age of a reader: few queries take an hour, and all files of an hour of merges stay on the disk for it.
READER_SECONDS_MAX = 3600
#: Duration of a task, and wait for a worker, that no merge of the default limits reaches.
TASK_SECONDS_MAX = 1800
#: A task that takes so many times its estimate is slow for another reason than its size.
ESTIMATES_MAX = 10
#: Parts that a sentence names.
PARTS_SHOWN_MAX = 3

_AROUND_DAMAGE = {kind.traits.service for kind in OpKind if kind.traits.skips_damaged}


def _failing(seen: Observation) -> Iterator[AlarmFinding]:
    damaged = {each.table for each in seen.damaged}
    mutating = {each.uuid for each in seen.mutations if each.latest_failed_part}
    for service in seen.failing:
        # Damaged parts and mutations are alarms of their own.
        is_known = (service.uuid in damaged and service.service in _AROUND_DAMAGE) or (
            service.uuid in mutating and service.service is ServiceKind.MUTATE
        )
        if service.failures >= FAILURES_MIN and not is_known:
            yield AlarmFinding(
                database=service.database,
                table=service.table,
                subject=service.service.value,
                sentence=f"{service.service} of {service.database}.{service.table} fails: {service.reason}",
            )


def _damaged(seen: Observation) -> Iterator[AlarmFinding]:
    for file in seen.damaged:
        table = seen.relations[file.table]
        more = f" and {len(file.parts) - PARTS_SHOWN_MAX} more" if len(file.parts) > PARTS_SHOWN_MAX else ""
        parts = ", ".join(file.parts[:PARTS_SHOWN_MAX]) + more
        yield AlarmFinding(
            database=table.database,
            table=table.name,
            subject=parts,
            sentence=f"a file of {full_name(table)} cannot be read, part {parts} needs it: {file.reason}",
            since_ms=file.since_ms,
        )


def _under_pressure(seen: Observation, *, is_refused: bool) -> Iterator[AlarmFinding]:
    for table, judged in seen.pressed:
        worst = any(each.is_refused for each in judged.values())
        if worst is not is_refused or not seen.is_mine(table.uuid):
            continue
        for partition, pressure in judged.items():
            if pressure.is_refused is is_refused:
                yield AlarmFinding(
                    database=table.database,
                    table=table.name,
                    subject=partition,
                    sentence=f"INSERTs into partition {partition} of {full_name(table)} "
                    + (f"are {pressure.text}" if is_refused else pressure.text),
                )


def _refused(seen: Observation) -> Iterator[AlarmFinding]:
    return _under_pressure(seen, is_refused=True)


def _crowded(seen: Observation) -> Iterator[AlarmFinding]:
    return _under_pressure(seen, is_refused=False)


def _mutations(seen: Observation) -> Iterator[AlarmFinding]:
    for mutation in seen.mutations:
        table = seen.relations.get(mutation.uuid)
        if table is None or not mutation.latest_failed_part or seen.is_stopped(mutation.uuid, ServiceKind.MUTATE):
            continue
        yield AlarmFinding(
            database=table.database,
            table=table.name,
            subject=str(mutation.id),
            sentence=f"mutation {mutation.id} of {full_name(table)} does not end, {show_count(mutation.parts_to_do)} "
            f"parts are left: {mutation.latest_fail_reason}",
        )


def _readers(seen: Observation) -> Iterator[AlarmFinding]:
    for lease in seen.readers:
        table = seen.relations.get(lease.table)
        if table is None or not seen.is_mine(lease.table):
            continue
        since_ms = seen.unread_since_ms(lease) if lease.name else lease.opened_ms
        if since_ms is None or seen.now_ms - since_ms < READER_SECONDS_MAX * 1000:
            continue
        who = lease.client or f"a reader of server {lease.holder}"
        deed = "has read"
        if lease.name:
            who, deed = f"the stream {lease.name} of {who}", "has not read the changes of"
        yield AlarmFinding(
            database=table.database,
            table=table.name,
            subject=lease.id,
            sentence=f"{who} {deed} {full_name(table)} since {show_time(since_ms)}, and all files that were "
            "replaced since then stay",
            since_ms=since_ms,
        )


def _lost(seen: Observation) -> Iterator[AlarmFinding]:
    for lost in seen.lost if seen.is_mine() else ():
        tables = [table for uuid in lost.tables if (table := seen.relations.get(uuid)) is not None]
        names = ", ".join(full_name(each) for each in tables) or "tables that are lost, too"
        at = show_time(milliseconds(lost.commit_ts))
        yield AlarmFinding(
            database=tables[0].database if tables else "",
            table=tables[0].name if tables else "",
            subject=str(lost.txn.id),
            sentence=f"the catalog's database has lost transaction {lost.txn.id}, which was answered as committed "
            f"at {at}: {len(lost.files)} files of {names}",
            since_ms=lost.found_ms,
        )


def _tasks(seen: Observation) -> Iterator[AlarmFinding]:
    for task in seen.tasks:
        traits = task.kind.traits
        if traits.is_resident or traits.is_statement or task.state not in (TaskState.PENDING, TaskState.RUNNING):
            continue
        is_running = task.state is TaskState.RUNNING
        since_ms = task.started_ms if is_running else task.created_ms
        seconds = (seen.now_ms - since_ms) / 1000
        if seconds > max(TASK_SECONDS_MAX, ESTIMATES_MAX * task.estimate.seconds if is_running else 0):
            database, _, table = task.table.partition(".")
            what = f"has run on {task.worker}" if is_running else "has waited for a worker"
            why = f": {task.reason}" if task.reason and not is_running else ""
            yield AlarmFinding(
                database=database,
                table=table,
                subject=task.id,
                sentence=f"a {task.kind} task of {task.table} {what} since {show_time(since_ms)}{why}",
                since_ms=since_ms,
            )


TABLE_ALARMS = (
    Alarm(
        name="transaction_lost",
        severity=Severity.CRITICAL,
        meaning="The catalog's database has lost a transaction that was answered as committed, as by a failover to a "
        "standby without the end of the log.",
        todo="Read the rows from the files that system.lost_transactions names, or send the INSERT again; the files "
        "stay for 30 days.",
        page="docs/operate/servers.md#a-failover-without-the-end-of-the-log",
        minutes=0,
        find=_lost,
    ),
    Alarm(
        name="part_damaged",
        severity=Severity.CRITICAL,
        meaning="A file of a table is missing or was changed: queries that need it fail, merges go around it.",
        todo="Put the file back from a copy, which is noticed within ten seconds, or drop its partition.",
        page="docs/operate/questions.md#2-which-part-is-damaged",
        minutes=0,
        find=_damaged,
    ),
    Alarm(
        name="inserts_refused",
        severity=Severity.CRITICAL,
        meaning="A partition has so many parts that INSERTs into it are refused.",
        todo="Find out by EXPLAIN MERGE why parts are not merged; send fewer and larger INSERTs.",
        page="docs/operate/questions.md#9-why-are-inserts-slow-or-refused",
        minutes=1,
        find=_refused,
    ),
    Alarm(
        name="table_crowded",
        severity=Severity.WARNING,
        meaning="A partition has so many parts that INSERTs into it wait.",
        todo="Find out by EXPLAIN MERGE why parts are not merged, before INSERTs are refused.",
        page="docs/operate/questions.md#9-why-are-inserts-slow-or-refused",
        minutes=5,
        find=_crowded,
    ),
    Alarm(
        name="mutation_stuck",
        severity=Severity.WARNING,
        meaning="An ALTER does not end, because parts cannot be rewritten.",
        todo="Repair what the sentence names, such as a damaged file, or KILL MUTATION and send the ALTER corrected.",
        page="docs/operate/questions.md#7-why-does-an-alter-not-end",
        minutes=5,
        find=_mutations,
    ),
    Alarm(
        name="service_failed",
        severity=Severity.WARNING,
        meaning="A background service of a table fails again and again.",
        todo="Repair what the sentence names; the service goes on by itself.",
        page="docs/operate/background-tasks.md#common-errors",
        minutes=10,
        find=_failing,
    ),
    Alarm(
        name="task_stuck",
        severity=Severity.WARNING,
        meaning="A background task has run for ten times its estimate, half an hour at least, or has waited half an "
        "hour for a worker.",
        todo="Compare its numbers in system.tasks with the estimate; add workers, or see in system.workers what holds "
        "it up.",
        page="docs/operate/background-tasks.md#see-them",
        minutes=5,
        find=_tasks,
    ),
    Alarm(
        name="reader_holds_files",
        severity=Severity.WARNING,
        meaning="A reader has held a snapshot for more than an hour, or a stream has not read changes for so long, so "
        "that replaced files of its table stay.",
        todo="End the query or the program that the sentence names, if nobody needs it.",
        page="docs/operate/recovery.md#what-keeps-old-files",
        minutes=10,
        find=_readers,
    ),
)
