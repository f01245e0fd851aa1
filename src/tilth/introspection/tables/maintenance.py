"""Background services, their choices and their work, as rows.

Covers: `system.bg_threads`, `system.maintenance_ops`, `system.maintenance_choices`, `system.merges`,
`system.mutations`.

Tests: tests/unit/introspection/test_registry.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from tilth.control.context.services import Services
from tilth.introspection.pushdown import relations
from tilth.introspection.system_table import (
    FLAG,
    INTEGER,
    NUMBER,
    TABLE_NAME_COLUMNS,
    TEXT,
    TIME,
    ColumnDoc,
    Row,
    SystemTable,
    TableNames,
    time_of_hybrid,
    time_of_ms,
)
from tilth.maintenance import MutationProgress, OpKind
from tilth.model.mutation import Mutation, MutationState
from tilth.model.pushdown import Pushdown
from tilth.model.service import ServiceKind, ServiceState, ServiceStats, SwitchState
from tilth.model.task import TaskKind, TaskState

#: Services whose ops send no tasks: they go on without Spark.
_WITHOUT_SPARK = {kind.traits.service for kind in OpKind} - {kind.traits.service for kind in OpKind if kind.traits.task}


def _rows_of_bg_threads(services: Services, wanted: Pushdown) -> Iterator[Row]:
    found = [*services.consume.stats(), *services.pipes.stats(), *_of_maintenance(services, wanted)]
    workers = services.dispatcher.workers()
    trouble = "; ".join(each.reason for each in workers if each.reason)
    if trouble and all(each.reason for each in workers):
        found = [_waiting(one, trouble) for one in found]
    for one in sorted(found, key=lambda one: (one.database, one.table, one.service)):
        yield Row(
            one,
            because=one.because or None,
            asked_by=one.asked_by or None,
            asked_from=one.asked_from or None,
            last_exception=one.last_exception or None,
            last_exception_time=time_of_ms(one.last_exception_ms),
        )


def _of_maintenance(services: Services, wanted: Pushdown) -> list[ServiceStats]:
    """Return what may be wanted of the rows of all tables, which are many."""
    if wanted.equal.get("service") in (ServiceKind.CONSUME, ServiceKind.COPY):
        return []
    if "table" in wanted.equal:
        found = relations(services, wanted)
        return [one for each in found for one in services.maintenance.stats(table=each.uuid)]
    if wanted.equal.get("state") == ServiceState.FAILED:
        return services.maintenance.failing()
    if wanted.equal.get("switch") == SwitchState.STOPPED:
        return services.maintenance.switched()
    return services.maintenance.stats()


def _waiting(one: ServiceStats, trouble: str) -> ServiceStats:
    """Row of a service while no worker can run its tasks."""
    if one.service in _WITHOUT_SPARK or one.state == "stopped":
        return one
    # The reason of a consumer may contain the trouble already.
    reason = one.reason if trouble in one.reason else "; ".join(filter(None, (trouble, one.reason)))
    return msgspec.structs.replace(one, state="waiting", reason=reason)


BG_THREADS = SystemTable(
    name="bg_threads",
    doc="One row for each background service of each table: its switch, what it does, what went wrong last.",
    is_of_servers=True,
    columns=(
        *TABLE_NAME_COLUMNS,
        ColumnDoc("service", TEXT, f"One of {', '.join(f'`{kind}`' for kind in ServiceKind)}."),
        ColumnDoc("switch", TEXT, "What the user wants: `running` or `stopped`; SYSTEM START and STOP set it."),
        ColumnDoc("because", TEXT, "Why it was switched, in the user's words."),
        ColumnDoc("until", TIME, "When the switch is over by itself; NULL: never."),
        ColumnDoc("asked_by", TEXT, "The query that switched it, as in `system.audit_log`; NULL: none did."),
        ColumnDoc("asked_from", TEXT, "Address of whoever sent it, with the client's name; NULL: not known."),
        ColumnDoc("state", TEXT, "What it does: `running`, `idle`, `waiting`, `stopped`, `failed`."),
        ColumnDoc("reason", TEXT, "Why it is in this state."),
        ColumnDoc("wakeups", INTEGER, "How often it has checked for work."),
        ColumnDoc("last_wakeup", TIME, "When it last did."),
        ColumnDoc(
            "next_wakeup",
            TIME,
            "Time of its next poll at the latest; NULL: when something happens, or when a user starts it.",
        ),
        ColumnDoc("running_tasks", INTEGER, "Its tasks on workers now."),
        ColumnDoc("failures", INTEGER, "Failures in a row."),
        ColumnDoc("last_exception", TEXT, "What went wrong last."),
        ColumnDoc("last_exception_time", TIME, "When."),
        ColumnDoc("next_attempt", TIME, "When what failed is tried again; NULL: nothing waits for that."),
        ColumnDoc("uuid", TEXT, "The table's uuid."),
    ),
    rows=_rows_of_bg_threads,
)


def _rows_of_maintenance_ops(services: Services, wanted: Pushdown) -> Iterator[Row]:
    listed = partial(services.maintenance.ops, runnable_only="is_runnable" in wanted.true)
    if "table" in wanted.equal:
        found = [op for each in relations(services, wanted) for op in listed(table=each.uuid)]
    else:
        found = listed()
    for op in found:
        yield Row(op, op.stats, damaged=op.damaged or None)


MAINTENANCE_OPS = SystemTable(
    name="maintenance_ops",
    doc="One row for each operation that the maintenance manager may choose, with what it would gain.",
    is_of_servers=True,
    columns=(
        ColumnDoc("name", TEXT, "As in `MERGE(db.t)`."),
        ColumnDoc("kind", TEXT, "What it does."),
        *TABLE_NAME_COLUMNS,
        ColumnDoc("is_runnable", FLAG, "Whether it could run now."),
        ColumnDoc("running", INTEGER, "Runs under way."),
        ColumnDoc("score", NUMBER, "What is compared with other ops: the gain with workload and priority."),
        ColumnDoc("perf_improvement", NUMBER, "What readers would gain; 0 is nothing."),
        ColumnDoc(
            "workload_score",
            NUMBER,
            "What reads and writes of the table add to the gain; at most workload_score_upper_bound.",
        ),
        ColumnDoc("priority", INTEGER, "The table's `maintenance_priority`."),
        ColumnDoc("data_retained_bytes", INTEGER, "Bytes on the store that it would free."),
        ColumnDoc("logs_retained_bytes", INTEGER, "Bytes of log kept alive until it runs."),
        ColumnDoc("ram_anchored_bytes", INTEGER, "Bytes of memory that it would free."),
        ColumnDoc("about", TEXT, "What it would do, or why it cannot."),
        ColumnDoc("damaged", TEXT, "Parts that it leaves out because they cannot be read, and what to do; NULL: none."),
    ),
    rows=_rows_of_maintenance_ops,
)


def _rows_of_maintenance_choices(services: Services, _: Pushdown) -> Iterator[Row]:
    for choice in services.maintenance.choices():
        yield Row(choice, op=choice.op or None, table=choice.table or None, others=choice.others or None)


MAINTENANCE_CHOICES = SystemTable(
    name="maintenance_choices",
    doc="One row for each of the last decisions of the maintenance manager, with its reason.",
    is_of_servers=True,
    columns=(
        ColumnDoc("at", TIME, "When."),
        ColumnDoc("op", TEXT, "The op that was chosen, as `MERGE(db.t)`; NULL where none was."),
        ColumnDoc("table", TEXT, "Its table, as `database.table`."),
        ColumnDoc("rule", TEXT, "The rule that decided, or `refused`."),
        ColumnDoc("reason", TEXT, "Why, in words and numbers."),
        ColumnDoc("score", NUMBER, "The score of the op that was chosen; 0 where another rule than the gain decided."),
        ColumnDoc("runnable", INTEGER, "Ops that could have run."),
        ColumnDoc("others", TEXT, "The best of those that were passed over, with their scores."),
    ),
    rows=_rows_of_maintenance_choices,
)


def _rows_of_merges(services: Services, _: Pushdown) -> Iterator[Row]:
    now_ms = services.clock.now_ms()
    for task in services.dispatcher.tasks():
        if task.kind not in (TaskKind.MERGE, TaskKind.MUTATE, TaskKind.REBASE) or task.state not in (
            TaskState.PENDING,
            TaskState.RUNNING,
        ):
            continue
        database, _dot, table = task.table.partition(".")
        elapsed = (now_ms - task.started_ms) / 1000 if task.started_ms else 0.0
        expected = task.estimate.seconds
        yield Row(
            task,
            database=database,
            table=table,
            task=task.id,
            elapsed=elapsed,
            progress=min(1.0, elapsed / expected) if expected else 0.0,
            is_mutation=task.kind is TaskKind.MUTATE,
            is_rebase=task.kind is TaskKind.REBASE,
            input_bytes=task.estimate.input_bytes,
        )


MERGES = SystemTable(
    name="merges",
    doc="One row for each merge and each rewriting of a mutation that runs or waits for a worker, as ClickHouse "
    "has it. All tasks are in `system.tasks`, merges that ended in `system.part_log`.",
    is_of_servers=True,
    columns=(
        *TABLE_NAME_COLUMNS,
        ColumnDoc("task", TEXT, "The task's id, as in `system.tasks`."),
        ColumnDoc("state", TEXT, "`pending` or `running`."),
        ColumnDoc("elapsed", NUMBER, "Seconds since a worker took it; 0: none has."),
        ColumnDoc("progress", NUMBER, "The elapsed part of its estimated time, 1 at most; 0: there is no estimate."),
        ColumnDoc("is_mutation", FLAG, "Whether it rewrites parts for a mutation."),
        ColumnDoc(
            "is_rebase",
            FLAG,
            "Whether it applies changes that came while the result was written, for its commit.",
        ),
        ColumnDoc("input_bytes", INTEGER, "Bytes that it is expected to read."),
        ColumnDoc("started", TIME, "When a worker took it; NULL: none has."),
        ColumnDoc("reason", TEXT, "Why it runs where it does, or why it waits."),
    ),
    rows=_rows_of_merges,
)


def _rows_of_mutations(services: Services, _: Pushdown) -> Iterator[Row]:
    names = TableNames(services)
    # The entries first: the progress of one that ends in between stays without effect.
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
            parts_done=entry.parts_done if now is None else now.parts_done,
            running=0 if now is None else now.running,
            latest_failed_part=(now and now.latest_failed_part) or None,
            latest_fail_time=now and time_of_ms(now.latest_fail_ms),
            latest_fail_reason=(now and now.latest_fail_reason) or None,
            state_reason=_reason(entry, now),
        )


def _parts_to_do(entry: Mutation, now: MutationProgress | None) -> int | None:
    if entry.state is MutationState.KILLED:
        return entry.parts_left
    if entry.state is MutationState.DONE:
        return 0
    return None if now is None else now.parts_to_do


def _reason(entry: Mutation, now: MutationProgress | None) -> str:
    if entry.state is MutationState.KILLED:
        return f"{entry.reason}; {entry.parts_summary}"
    if entry.state is MutationState.DONE:
        return entry.reason
    return "nobody works on it yet" if now is None else now.state_reason


MUTATIONS = SystemTable(
    name="mutations",
    doc="One row for each ALTER that rewrites parts: those under way in the order in which they run, and the latest "
    "that have ended.",
    columns=(
        ColumnDoc("mutation_id", TEXT, "What KILL MUTATION takes; the transaction of the ALTER."),
        *TABLE_NAME_COLUMNS,
        ColumnDoc("command", TEXT, "The command."),
        ColumnDoc("kind", TEXT, "`columns`, `update` or `delete`."),
        ColumnDoc("create_time", TIME, "When it was sent."),
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
            "Parts that it has reached: rewritten, or found without a row that it changes.",
        ),
        ColumnDoc("running", INTEGER, "Its tasks under way."),
        ColumnDoc("latest_failed_part", TEXT, "The part that failed last."),
        ColumnDoc("latest_fail_time", TIME, "When."),
        ColumnDoc("latest_fail_reason", TEXT, "Why."),
        ColumnDoc("next_attempt", TIME, "When that part is tried again."),
        ColumnDoc("state_reason", TEXT, "What it does now, why it waits, or why it was killed."),
    ),
    rows=_rows_of_mutations,
)
