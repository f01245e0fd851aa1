"""The servers, who computes for them, their numbers, as rows.

Covers: `system.servers`, `system.storages`, `system.warehouses`, `system.workers`, `system.tasks`, `system.metrics`.

Tests: tests/unit/introspection/test_registry.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from tilth.base.pressure import describe_pressure
from tilth.base.settings import read_settings
from tilth.control.context.services import Services
from tilth.introspection.system_table import (
    FLAG,
    INTEGER,
    NUMBER,
    TEXT,
    TEXTS,
    TIME,
    ColumnDoc,
    Row,
    SystemTable,
    time_of_ms,
)
from tilth.model.pushdown import Pushdown
from tilth.model.server import ServerRecord
from tilth.model.table import KafkaDef, TableDef, ViewDef
from tilth.model.task import TaskKind
from tilth.storage import StorageSettings
from tilth.warehouse import WarehouseInfo


def _rows_of_servers(services: Services, _: Pushdown) -> Iterator[Row]:
    now_ms, memory = services.clock.now_ms(), services.memory.read()
    records = services.peers.servers() or (ServerRecord(name=services.server, epoch=0, run=""),)
    hosted = Counter(services.peers.hosts(each.uuid) or services.server for each in _with_services(services))
    for record in records:
        is_self = record.name == services.server
        started_ms = services.started_ms if is_self else record.started_ms
        yield Row(
            record,
            process=record.id,
            state="draining" if record.draining else "alive",
            reason=record.draining or None,
            url=record.url or None,
            version=record.version or None,
            is_self=is_self,
            tables=hosted[record.name],
            started=time_of_ms(started_ms),
            uptime_seconds=(now_ms - started_ms) / 1000,
            # A catalog in a folder of the server's own has no clock, and nobody who waits for a proof.
            last_proof=None if record.clock_offset_ms is None else time_of_ms(record.renewed_ms),
            clock_offset_ms=record.clock_offset_ms,
            memory_bytes=memory.used if is_self else None,
            memory_limit_bytes=memory.hard if is_self else None,
            memory_pressure=(describe_pressure(memory) or None) if is_self else None,
            memory_rejections=services.memory.rejections if is_self else None,
        )


def _with_services(services: Services) -> list[TableDef | KafkaDef]:
    return [each for each in services.catalog.tables.all() if not isinstance(each, ViewDef)]


SERVERS = SystemTable(
    name="servers",
    doc="One row for each server of this catalog that lives; the memory is known of the queried server only.",
    columns=(
        ColumnDoc("name", TEXT, "The server; `server.name`."),
        ColumnDoc("process", TEXT, "Its process, as `system.leases` and `system.transactions` name it."),
        ColumnDoc("state", TEXT, "`alive`, or `draining`: it hosts no tables."),
        ColumnDoc("reason", TEXT, "Why it drains; NULL: it does not."),
        ColumnDoc("url", TEXT, "Where others reach it; NULL: it does not listen yet, or there are no others."),
        ColumnDoc("version", TEXT, "Its version of Tilth."),
        ColumnDoc("is_self", FLAG, "Whether it is the one that answers."),
        ColumnDoc("tables", INTEGER, "Tables and Kafka tables that it hosts."),
        ColumnDoc("started", TIME, "When it was started."),
        ColumnDoc("uptime_seconds", NUMBER, "For how long it has been up."),
        ColumnDoc(
            "last_proof",
            TIME,
            "When it has last proved that it lives, by its own clock; NULL: its catalog is in a folder of its own, so "
            "that there are no others.",
        ),
        ColumnDoc(
            "clock_offset_ms",
            NUMBER,
            "Milliseconds by which its clock is ahead of the catalog's database; NULL: there is none.",
        ),
        ColumnDoc("memory_bytes", INTEGER, "Memory that it uses: its process and all below it, Spark's among them."),
        ColumnDoc("memory_limit_bytes", INTEGER, "`memory_limit_hard_bytes`; NULL: there is no limit."),
        ColumnDoc("memory_pressure", TEXT, "Why writes are slowed or refused for want of memory; NULL: they are not."),
        ColumnDoc("memory_rejections", INTEGER, "Writes that were refused for that reason since the start."),
    ),
    rows=_rows_of_servers,
)


def _rows_of_storages(services: Services, _: Pushdown) -> Iterator[Row]:
    states, storages = services.root.states(), services.root.all()
    tables = Counter(
        read_settings(StorageSettings, one.settings).storage_policy
        for one in services.catalog.tables.all()
        if isinstance(one, TableDef)
    )
    for name in (each for each in storages if each in states):
        root = storages[name]
        yield Row(
            root,
            name=name,
            kind=root.kind,
            root=root.uri,
            tables=tables[name],
            state="away" if states[name].trouble else "ok",
            reason=states[name].trouble or None,
            since=time_of_ms(states[name].since_ms),
        )


STORAGES = SystemTable(
    name="storages",
    doc="One row for each storage: a named location of tables' files.",
    columns=(
        ColumnDoc("name", TEXT, "The storage; `storage_policy` of a table names it."),
        ColumnDoc("kind", TEXT, "`file`, `s3`, `gs`, `az` or `hdfs`."),
        ColumnDoc("root", TEXT, "Where the files are, without options."),
        ColumnDoc("tables", INTEGER, "Tables whose files are there."),
        ColumnDoc("state", TEXT, "`ok`, or `away`: it does not answer now, or not as it should."),
        ColumnDoc("reason", TEXT, "Why it is away; NULL: it is not."),
        ColumnDoc("since", TIME, "Since when that is so, as this server has observed it."),
    ),
    rows=_rows_of_storages,
)


def _rows_of_warehouses(services: Services, _: Pushdown) -> Iterator[Row]:
    for one in services.dispatcher.warehouses():
        missing = max(0, one.workers_wanted - one.workers)
        yield Row(
            one,
            work=list(one.work),
            workers_wanted=one.workers_wanted or None,
            reason=_why_short(one, missing),
            master=one.master or None,
            worker_cores=one.worker_cores or None,
            worker_memory_bytes=one.worker_memory_bytes or None,
            tasks=one.tasks or None,
            tasks_reason=one.tasks_reason or None,
        )


def _why_short(one: WarehouseInfo, missing: int) -> str | None:
    if not one.workers:
        return f"no workers: tilth worker --warehouse {one.name} starts one"
    return f"{missing} of {one.workers_wanted} workers are missing" if missing else None


WAREHOUSES = SystemTable(
    name="warehouses",
    doc="One row for each warehouse: workers that share one kind of work.",
    columns=(
        ColumnDoc("name", TEXT, "The warehouse."),
        ColumnDoc("work", TEXTS, "What it may be used for: queries, imports, maintenance."),
        ColumnDoc("workers", INTEGER, "Its workers."),
        ColumnDoc("workers_wanted", INTEGER, "How many it should have; NULL: nobody said."),
        ColumnDoc("reason", TEXT, "What it lacks; NULL: nothing."),
        ColumnDoc("slots", INTEGER, "Tasks that may run at once."),
        ColumnDoc("running", INTEGER, "Tasks that run."),
        ColumnDoc("waiting", INTEGER, "Tasks that wait for a slot."),
        ColumnDoc("resident", INTEGER, "Tasks that stay until they are stopped; only their rounds take a slot."),
        ColumnDoc("master", TEXT, "The Spark master that its workers must run on; NULL: any."),
        ColumnDoc("worker_cores", INTEGER, "Cores that each of its workers must have; NULL: any number."),
        ColumnDoc("worker_memory_bytes", INTEGER, "Memory that each of its workers must have; NULL: any."),
        ColumnDoc("tasks", INTEGER, "Tasks of Spark that share a scan, a shuffle or a round, on all of its workers."),
        ColumnDoc("tasks_reason", TEXT, "Where that number is from, for each worker."),
    ),
    rows=_rows_of_warehouses,
)


def _rows_of_workers(services: Services, _: Pushdown) -> Iterator[Row]:
    for worker in services.dispatcher.workers():
        process = worker.process
        load = worker.load
        yield Row(
            worker,
            warehouses=list(worker.warehouses),
            host=process and process.host,
            pid=process and process.pid,
            version=process and process.version,
            cores=load.cores or None,
            free_cores=load.free_cores if load.cores else None,
            elsewhere=load.taken_slots,
            tasks=load.tasks or None,
            tasks_reason=load.tasks_reason or None,
            free_memory_bytes=load.free_memory_bytes if load.memory_bytes else None,
            free_disk_bytes=load.free_disk_bytes if load.disk_bytes else None,
            last_report=load.reported_ms or None,
        )


WORKERS = SystemTable(
    name="workers",
    doc="One row for each worker.",
    is_of_servers=True,
    columns=(
        ColumnDoc("name", TEXT, "The worker."),
        ColumnDoc("warehouses", TEXTS, "The warehouses that it serves."),
        ColumnDoc(
            "state",
            TEXT,
            "`alive`, `silent` (no answer to the last heartbeat), `without spark`, `draining` or `drained`.",
        ),
        ColumnDoc("reason", TEXT, "Why it is not alive, and since when."),
        ColumnDoc("last_answer", TIME, "When it last answered a heartbeat."),
        ColumnDoc("running", INTEGER, "Tasks that take a slot."),
        ColumnDoc("resident", INTEGER, "Tasks that stay until they are stopped."),
        ColumnDoc("memory_bytes", INTEGER, "What its tasks may hold together."),
        ColumnDoc("host", TEXT, "The machine of a worker in another process; NULL: the server's own process."),
        ColumnDoc("pid", INTEGER, "That process."),
        ColumnDoc("version", TEXT, "Its version of Tilth."),
        ColumnDoc("cores", INTEGER, "Cores that its Spark uses; on a cluster those of its executors."),
        ColumnDoc("free_cores", NUMBER, "What of them is not used, by its last report; it reports each second."),
        ColumnDoc("free_memory_bytes", INTEGER, "Memory of its machine that is free, likewise."),
        ColumnDoc(
            "free_disk_bytes",
            INTEGER,
            "Free disk for Spark's temporary files; NULL: not known, as on a cluster.",
        ),
        ColumnDoc("last_report", TIME, "When that was; NULL: never yet."),
        ColumnDoc("elsewhere", INTEGER, "Tasks that take a slot and that other servers have sent."),
        ColumnDoc("tasks", INTEGER, "Tasks of Spark that share a scan, a shuffle or a round there; NULL: not known."),
        ColumnDoc("tasks_reason", TEXT, "Where that number is from."),
    ),
    rows=_rows_of_workers,
)


def _rows_of_tasks(services: Services, _: Pushdown) -> Iterator[Row]:
    for task in services.dispatcher.tasks():
        yield Row(
            task,
            txn=task.txn or None,
            placement_reason=task.placement_reason or None,
            estimated_seconds=task.estimate.seconds,
            seconds=task.actual.seconds,
            estimated_input_bytes=task.estimate.input_bytes,
            input_bytes=task.actual.input_bytes,
            estimated_output_bytes=task.estimate.output_bytes,
            output_bytes=task.actual.output_bytes,
            estimated_memory_bytes=task.estimate.memory_bytes,
            memory_bytes=task.actual.memory_bytes,
            estimated_temporary_bytes=task.estimate.temporary_bytes,
            temporary_bytes=task.actual.temporary_bytes,
        )


TASKS = SystemTable(
    name="tasks",
    doc="One row for each task that runs or waits, and for the last ones that ended; estimates beside measures.",
    is_of_servers=True,
    columns=(
        ColumnDoc("id", TEXT, "The task's id."),
        ColumnDoc("kind", TEXT, f"One of {', '.join(f'`{kind}`' for kind in TaskKind)}."),
        ColumnDoc("state", TEXT, "`pending`, `running`, `done`, `failed`, `cancelled` or `lost`."),
        ColumnDoc("warehouse", TEXT, "The warehouse that it was sent to."),
        ColumnDoc("worker", TEXT, "The worker that has it."),
        ColumnDoc("table", TEXT, "`database.table`."),
        ColumnDoc("txn", INTEGER, "The transaction that it works for."),
        ColumnDoc("reason", TEXT, "Why this worker, why it waits, or why it failed."),
        ColumnDoc("placement_reason", TEXT, "Why this worker; it stays when the task has ended."),
        ColumnDoc("created", TIME, "When it was submitted."),
        ColumnDoc("started", TIME, "When a worker took it."),
        ColumnDoc("ended", TIME, "When it ended."),
        ColumnDoc("estimated_seconds", NUMBER, "How long it was thought to take."),
        ColumnDoc("seconds", NUMBER, "How long it took."),
        ColumnDoc(
            "estimate_error", NUMBER, "By how much it took longer than estimated: 1 is twice as long, -0.5 is half."
        ),
        ColumnDoc("estimated_input_bytes", INTEGER, "What it was thought to read."),
        ColumnDoc("input_bytes", INTEGER, "What it read."),
        ColumnDoc("estimated_output_bytes", INTEGER, "What it was thought to write."),
        ColumnDoc("output_bytes", INTEGER, "What it wrote."),
        ColumnDoc("estimated_memory_bytes", INTEGER, "What it was thought to hold in memory."),
        ColumnDoc("memory_bytes", INTEGER, "What it held in memory."),
        ColumnDoc("estimated_temporary_bytes", INTEGER, "What Spark was thought to shuffle and spill to disk for it."),
        ColumnDoc("temporary_bytes", INTEGER, "What Spark shuffled and spilled; NULL: not measured, as below 64 MiB."),
    ),
    rows=_rows_of_tasks,
)


def _rows_of_metrics(services: Services, _: Pushdown) -> Iterator[Row]:
    yield from _numbers("catalog", services.catalog.stats())
    yield from _numbers("warehouse", services.dispatcher.stats())
    yield from _numbers("maintenance", services.maintenance.numbers())


def _numbers(room: str, stats: object, prefix: str = "") -> Iterator[Row]:
    """Yield the numeric fields of a room's stats, and of the structs in them."""
    if not is_dataclass(stats):
        return
    for field in fields(stats):
        value = getattr(stats, field.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield Row(name=f"{room}_{prefix}{field.name}", value=float(value), room=room)
        else:
            yield from _numbers(room, value, f"{prefix}{field.name}_")


METRICS = SystemTable(
    name="metrics",
    doc="One row for each number that a room keeps of itself.",
    is_of_servers=True,
    columns=(
        ColumnDoc("name", TEXT, "The metric."),
        ColumnDoc("value", NUMBER, "Its value now."),
        ColumnDoc("room", TEXT, "The room that keeps it."),
    ),
    rows=_rows_of_metrics,
)
